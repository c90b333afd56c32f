"""Settings of `publish`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from reasonrag.settings import Opposite, Places, Settings, Words, setting


class PublishSettings(Settings):
    repo: str = Field(description="Repository on the Hub: organisation/name")
    private: Annotated[bool | None, Opposite("--public")] = setting(
        "--public makes the repository public after the upload; --private refuses one that is public already "
        "[default: a new repository is private, an existing one stays as it is]"
    )
    with_trees: Places = setting(
        "Also upload the search trees of this run, without paths and addresses, and to REPO-traces its best and worst "
        "attempts, for the Hub's trace viewer; repeatable",
        default=[],
    )
    model: Path | None = setting("Publish this model folder, written by train, instead of a data set")
    base_model: str | None = setting("Name on the Hub of the model's base model, if its files name a local folder")
    license: str | None = setting(
        "Licence by its name on the Hub [default: cc-by-sa-4.0 for data with Wikipedia passages; the licence in its "
        "card for a model]",
        pattern=r"^[a-z0-9][a-z0-9.-]*$",
    )
    max_mb: int = setting(
        "Maximum size of the page of --space, in MB; a sample of larger trees is in it", default=20, ge=1
    )
    allow: Words = setting("Publish despite this objection, by its name; repeatable", default=[])
    allow_eval: Words = setting(
        "Publish questions of this evaluation split, or a model trained on them: dataset/split, or all; repeatable",
        default=[],
    )
