"""Settings of `publish`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from reasonrag.settings import Opposite, Places, Settings, Words, setting


class PublishSettings(Settings):
    """Settings of `publish`."""

    repo: str = Field(description="Name on the Hub: organisation/name")
    private: Annotated[bool | None, Opposite("--public")] = setting(
        "Make the repository public after the upload, or refuse one that is public already [default: a new "
        "repository is private; an existing one stays as it is]"
    )
    with_trees: Places = setting(
        "Also upload the trees of this run directory, without paths and addresses; repeatable", default=[]
    )
    model: Path | None = setting("Publish this model instead of a data set: a folder written by train")
    base_model: str | None = setting("Name on the Hub of the model it was trained from, if its files name a folder")
    license: str | None = setting(
        "Licence, as the Hub names it [default: cc-by-sa-4.0 for data with passages of Wikipedia; for "
        "a model, that of its card]",
        pattern=r"^[a-z0-9][a-z0-9.-]*$",
    )
    allow: Words = setting("Publish in spite of this objection, by its name; repeatable", default=[])
    allow_eval: Words = setting(
        "Publish questions of this evaluation split, or a model trained on them, as dataset/split, or all; repeatable",
        default=[],
    )
    max_shard_mb: int = setting("Maximum size of a Parquet file's rows, in MB of JSON", default=500, ge=1)
