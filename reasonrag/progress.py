"""Progress of a job: the protocol of its watchers, and the counters of a session. Knows no terminal."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from reasonrag.errors import Interrupted
from reasonrag.rendering import counted, dollars

TICK_S = 0.5
"""How often a watcher is updated, even if nothing happened."""
SAID_EVERY_S = 15.0
"""How often an index build says how far it is."""


@dataclass
class SessionTally:
    """Counters of the session so far.

    questions, failed_questions: ended in this session, and how many of them without a tree. calls, tokens: delivered by
        the models. cached_calls: answered by the journal. cost: dollars spent on the run, earlier sessions included.
        waiting_for: why no request is sent; empty while requests go out.
    """

    questions: int = 0
    failed_questions: int = 0
    failed_calls: int = 0
    calls: int = 0
    cached_calls: int = 0
    tokens: int = 0
    in_flight: int = 0
    seconds: float = 0.0
    cost: float | None = None
    waiting_for: str = ""

    @property
    def shown(self) -> str:
        """The state of the session, in one line."""
        rate = self.calls / self.seconds if self.seconds else 0.0
        parts = (
            self.failed_questions and f"{self.failed_questions:,} failed",
            f"{self.in_flight:,} in flight",
            f"{rate:,.1f} completions/s",
            self.cached_calls and f"{100 * self.cached_calls / (self.calls + self.cached_calls):.0f} % cached",
            f"{self.tokens:,} tokens",
            self.cost and dollars(self.cost),
            self.failed_calls and counted(self.failed_calls, "failed attempt"),
            self.waiting_for,
        )
        return ", ".join(each for each in parts if each)

    @classmethod
    def of_all(cls, parts: Sequence[SessionTally]) -> SessionTally:
        """Of sessions that go on at once. A cost that is not known of one is not known."""
        added = ("questions", "failed_questions", "failed_calls", "calls", "cached_calls", "tokens", "in_flight")
        sums: dict[str, Any] = {name: sum(getattr(each, name) for each in parts) for name in added}
        costs, waiting = (
            [each.cost for each in parts],
            next((each.waiting_for for each in parts if each.waiting_for), ""),
        )
        sums["cost"] = None if None in costs else sum(filter(None, costs))
        return cls(**sums, seconds=max(each.seconds for each in parts), waiting_for=waiting)


class JobWatcher(Protocol):
    """Receives the progress of a job: common to runs, index builds and trainings."""

    def say(self, message: str) -> None:
        """Show a message."""

    def ended(self) -> None: ...


class Watcher(JobWatcher, Protocol):
    """Receives the progress of a run. noun: what it works on, by the name of one."""

    def warn(self, message: str) -> None:
        """Show a warning that needs attention now, such as degenerate trees."""

    def confirm(self, question: str) -> bool | None:
        """Whether to go on. None: there is no terminal to ask in; the question was shown as a warning."""

    def started(self, *, total: int, done: int, noun: str = "question") -> None: ...

    def advanced(self, tally: SessionTally) -> None:
        """Called when an item ends, when an attempt fails, and every half second."""


def warn_all(warnings: Iterable[str], watcher: Watcher) -> None:
    for each in warnings:
        watcher.warn(each)


class SilentWatcher:
    """Watches a job of any kind and shows nothing but what it will cost: the default of the Python calls."""

    def say(self, message: str) -> None: ...
    def warn(self, message: str) -> None: ...

    def confirm(self, question: str) -> None:
        from reasonrag.terminal import print_shown

        print_shown(f"warning: {question}", file=sys.stderr)

    def started(self, *, total: int, done: int, noun: str = "question") -> None: ...
    def advanced(self, tally: SessionTally) -> None: ...
    def stage(self, name: str, *, total: int, done: int = 0) -> None: ...
    def reached(self, done: int) -> None: ...
    def ended(self) -> None: ...


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

    def ended(self) -> None: ...
