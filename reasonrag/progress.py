"""Progress of a job: the protocol of its watchers, and the counters of a session. Knows no terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from reasonrag.rendering import counted, dollars

TICK_S = 0.5
"""How often a watcher is updated, even if nothing happened."""


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
