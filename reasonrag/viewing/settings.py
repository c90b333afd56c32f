"""Settings of `view` and `show`."""

from __future__ import annotations

from pathlib import Path

from reasonrag.settings import Places, Port, Settings, setting

PACKED = 10
"""How much smaller trees are in a page than in their file, at most about: 12 times for those of the demo."""


class ShowSettings(Settings):
    """Settings of `show`."""

    trees: Places = setting(
        "Run that a data set was made from, if it was moved; repeatable [default: from the summary of the data set]",
        default=[],
    )


class ViewSettings(ShowSettings):
    """Settings of `view`."""

    out: Path | None = setting("Page to write [default: view.html in the folder shown]")
    max_mb: int = setting(
        "Maximum size of the page, in MB; a page of a larger set lists all questions and holds the trees of a sample",
        default=64,  # a browser opens it from a disk within two seconds (benchmarks/RESULTS.md)
        ge=1,
    )
    port: Port = setting("Port of --serve; 0 picks a free one", default=8766)
