"""Progress of index builds: watchers, time left, interruption, and row ranges."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Protocol

from reasonrag.errors import Interrupted
from reasonrag.progress import JobWatcher

SAID_EVERY_S = 15.0
READING = "reading the corpus"
"""The stage that counts bytes, which are shown as a percentage; the others count passages or words."""


class BuildWatcher(JobWatcher, Protocol):
    """Receives the progress of an index build."""

    def stage(self, name: str, *, total: int, done: int = 0) -> None:
        """Begin a stage; `total` and `done` in the stage's own units."""

    def reached(self, done: int) -> None: ...


class PlainBuildWatcher:
    """Progress in plain lines, every SAID_EVERY_S seconds.

    stopped: set it to stop the build; the next progress call raises Interrupted.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self.stopped = threading.Event()
        self._name, self._total, self._first, self._begun, self._said = "", 0, 0, 0.0, 0.0

    def stage(self, name: str, *, total: int, done: int = 0) -> None:
        self._name, self._total, self._first = name, total, done
        self._begun = self._said = time.monotonic()

    def reached(self, done: int) -> None:
        if self.stopped.is_set():
            raise Interrupted("the build was interrupted")
        now = time.monotonic()
        if now - self._said < SAID_EVERY_S:
            return
        self._said = now
        rate = (done - self._first) / (now - self._begun)
        left = timedelta(seconds=round((self._total - done) / rate)) if rate else "?"
        self.say(f"{self._name}: {done:,} of {self._total:,}, {rate:,.0f}/s, about {left} left")

    def ended(self) -> None:
        """Nothing to clean up."""


def row_ranges(rows: int, size: int = 16_384) -> Iterator[tuple[int, int]]:
    """(start, stop) of consecutive ranges that cover all rows."""
    return ((start, min(start + size, rows)) for start in range(0, rows, size))
