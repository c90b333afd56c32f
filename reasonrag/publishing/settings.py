"""Settings of `publish`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from reasonrag.settings import Opposite, Places, Settings, Words


class PublishSettings(Settings):
    """Settings of `publish`."""

    repo: str = Field(description="Name on the Hub: organisation/name")
    private: Annotated[bool | None, Opposite("--public")] = Field(
        default=None,
        description="Keep the repository private after the upload, or make it public [default: public, unless it was "
        "published privately before]",
    )
    with_trees: Places = Field(
        default=[], description="Also upload the trees of this run directory, without paths and addresses; repeatable"
    )
    model: Path | None = Field(
        default=None, description="Publish this model instead of a data set: a folder written by train"
    )
    base_model: str | None = Field(
        default=None, description="Name on the Hub of the model it was trained from, if its files name a folder"
    )
    license: str | None = Field(
        default=None,
        pattern=r"^[a-z0-9][a-z0-9.-]*$",
        description="Licence, as the Hub names it [default: cc-by-sa-4.0 for data with passages of Wikipedia; for "
        "a model, that of its card]",
    )
    allow: Words = Field(default=[], description="Publish in spite of this objection, by its name; repeatable")
    allow_eval: Words = Field(
        default=[],
        description="Publish questions of this evaluation split, or a model trained on them, as dataset/split, or all; "
        "repeatable",
    )
    max_shard_mb: int = Field(default=500, ge=1, description="Maximum size of a Parquet file's rows, in MB of JSON")
