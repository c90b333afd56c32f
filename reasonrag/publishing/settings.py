"""Settings of `publish`."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator

from reasonrag.settings import Settings, list_of_places, one_or_several


class PublishSettings(Settings):
    """Settings of `publish`."""

    repo: str = Field(description="Name on the Hub: organisation/name")
    private: bool | None = Field(
        default=None,
        description="Keep it private when everything is up, or make it public [default: public, but what was published "
        "privately stays private]",
    )
    with_trees: list[Path] = Field(
        default=[], description="A run directory whose trees go up too; repeatable. Paths and addresses stay behind"
    )
    model: Path | None = Field(
        default=None, description="Publish this model instead of a data set: a folder that train wrote"
    )
    base_model: str | None = Field(
        default=None,
        description="Name on the Hub of the model it was trained from, where files name a folder",
    )
    license: str | None = Field(
        default=None,
        pattern=r"^[a-z0-9][a-z0-9.-]*$",
        description="Its licence, as the Hub calls it [default: cc-by-sa-4.0 for data with passages of Wikipedia; for "
        "a model what its card says]",
    )
    allow: list[str] = Field(default=[], description="Publish in spite of this objection, by its name; repeatable")
    allow_eval: list[str] = Field(
        default=[],
        description="Publish questions of this evaluation split, or a model trained on them, as dataset/split, or all; "
        "repeatable",
    )
    max_shard_mb: int = Field(default=500, ge=1, description="Rows in a Parquet file at most, in MB of JSON")

    @field_validator("allow", "allow_eval", mode="before")
    @classmethod
    def _names(cls, value: object) -> object:
        return one_or_several(value)

    @field_validator("with_trees", mode="before")
    @classmethod
    def _runs(cls, value: object) -> object:
        return list_of_places(value)
