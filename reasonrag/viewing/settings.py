"""Settings of `view` and `show`; the defaults of looking at things live here."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator

from reasonrag.settings import Settings, list_of_places

VIEW_PORT = 8766
PAGE_MB = 64
"""Of one page: a browser opens it from a disk within two seconds (benchmarks/RESULTS.md)."""


class ShowSettings(Settings):
    """Settings of `show`."""

    trees: list[Path] = Field(
        default=[],
        description="Where the run of a data set is now, if it was moved; repeatable [default: where its summary says]",
    )

    @field_validator("trees", mode="before")
    @classmethod
    def _runs(cls, value: object) -> object:
        return list_of_places(value)


class ViewSettings(ShowSettings):
    """Settings of `view`."""

    out: Path | None = Field(
        default=None, description="The page to write [default: view.html in what is looked at, unless --serve]"
    )
    max_mb: int = Field(
        default=PAGE_MB,
        ge=1,
        description="Size of the page at most, in MB; beyond it holds the trees of a sample of the questions, and the "
        "list of all",
    )
    seed: int = Field(default=0, description="Of that sample")
    port: int = Field(default=VIEW_PORT, ge=0, le=65535, description="With --serve: port on loopback; 0 for a free one")
