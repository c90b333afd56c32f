"""Settings of `view` and `show`."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from reasonrag.settings import Places, Port, Settings

VIEW_PORT = 8766
PAGE_MB = 64
"""Size of one page: a browser opens it from a disk within two seconds (benchmarks/RESULTS.md)."""


class ShowSettings(Settings):
    """Settings of `show`."""

    trees: Places = Field(
        default=[],
        description="Where the run of a data set is now, if it has moved; repeatable [default: from its summary]",
    )


class ViewSettings(ShowSettings):
    """Settings of `view`."""

    out: Path | None = Field(
        default=None, description="The page to write [default: view.html in the directory shown, unless --serve]"
    )
    max_mb: int = Field(
        default=PAGE_MB,
        ge=1,
        description="Maximum size of the page, in MB; of a larger set it lists all questions and holds the trees of a "
        "sample",
    )
    seed: int = Field(default=0, description="Seed of that sample")
    port: Port = Field(default=VIEW_PORT, description="With --serve: port on loopback; 0 takes a free one")
