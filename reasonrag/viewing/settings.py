"""Settings of `view` and `show`."""

from __future__ import annotations

from pathlib import Path

from reasonrag.settings import Places, Port, Settings, setting

VIEW_PORT = 8766
PAGE_MB = 64
"""Size of one page: a browser opens it from a disk within two seconds (benchmarks/RESULTS.md)."""


class ShowSettings(Settings):
    """Settings of `show`."""

    trees: Places = setting(
        "Where the run of a data set is now, if it has moved; repeatable [default: from its summary]", default=[]
    )


class ViewSettings(ShowSettings):
    """Settings of `view`."""

    out: Path | None = setting("The page to write [default: view.html in the directory shown, unless --serve]")
    max_mb: int = setting(
        "Maximum size of the page, in MB; of a larger set it lists all questions and holds the trees of a sample",
        default=PAGE_MB,
        ge=1,
    )
    seed: int = setting("Seed of that sample", default=0)
    port: Port = setting("With --serve: port on loopback; 0 takes a free one", default=VIEW_PORT)
