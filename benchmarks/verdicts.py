"""What kept pairs say, held against the truth: right, wrong or a tie.

Shares are of all kept pairs, as a student trains on ties too, unless they are called `ties apart`. Knows no teacher and
no search.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias, TypeVar

from reporting import interval

from preference.margin_and_confidence import TOLERANCE

Verdict: TypeAlias = int
"""Of a pair: 1 right, -1 wrong, 0 a tie."""
QUERIES = "query, query"
PAIR_TYPES = (QUERIES, "evidence, evidence", "answer, answer", "answer, other")
"""Action types of both steps. Those of one state differ only where one of them is an answer."""


@dataclass(frozen=True)
class Verdicts:
    """The pairs of one question, by the types of both steps and verdict."""

    by_types: Counter[tuple[str, Verdict]]

    @cached_property
    def right(self) -> int:
        return self._pairs_that_are(1)

    @cached_property
    def wrong(self) -> int:
        return self._pairs_that_are(-1)

    @cached_property
    def ties(self) -> int:
        return self._pairs_that_are(0)

    @cached_property
    def pairs(self) -> int:
        return self.by_types.total()

    def _pairs_that_are(self, wanted: Verdict) -> int:
        return sum(count for (_, verdict), count in self.by_types.items() if verdict == wanted)


Several: TypeAlias = Sequence[Verdicts]
Key = TypeVar("Key")


def verdict_of(true_margin: float) -> Verdict:
    """Whether the chosen step of a pair is truly better."""
    return (true_margin > TOLERANCE) - (true_margin < -TOLERANCE)


def types_of(chosen: str | None, rejected: str | None) -> str:
    """Which of `PAIR_TYPES` a pair has."""
    if chosen == rejected and f"{chosen}, {chosen}" in PAIR_TYPES:
        return f"{chosen}, {chosen}"
    if chosen != rejected and "answer" in (chosen, rejected):
        return "answer, other"
    raise ValueError(f"no state has a pair of the types {chosen} and {rejected}")


def right_of_all(several: Several) -> float:
    return _share(several, "right")


def wrong_of_all(several: Several) -> float:
    return _share(several, "wrong")


def ties_of_all(several: Several) -> float:
    return _share(several, "ties")


def right_ties_apart(several: Several) -> float:
    """Of the pairs that are no ties."""
    right, wrong = (sum(getattr(each, name) for each in several) for name in ("right", "wrong"))
    return right / max(1, right + wrong)


def ties_of_queries(several: Several) -> float:
    """Of the pairs of query against query."""
    found = by_types(several)
    return found[QUERIES, 0] / max(1, sum(found[QUERIES, verdict] for verdict in (1, -1, 0)))


def by_types(several: Several) -> Counter[tuple[str, Verdict]]:
    return sum((each.by_types for each in several), Counter[tuple[str, Verdict]]())


def verdict_cells(several: Several) -> dict[str, str]:
    """The columns of a table that say how good pairs are."""
    return {
        "right of all": with_interval(several, right_of_all, ".3f", ".2f"),
        "wrong": f"{wrong_of_all(several):.3f}",
        "ties": f"{ties_of_all(several):.3f}",
        "ties of query pairs": f"{ties_of_queries(several):.3f}",
        "right, ties apart": f"{right_ties_apart(several):.3f}",
    }


def type_cells(several: Several) -> dict[str, str]:
    """Columns: right, wrong and tied pairs by the types of both steps."""
    found = by_types(several)
    return {types: counts(found, types) for types in PAIR_TYPES}


def counts(found: Counter[tuple[Key, Verdict]], which: Key) -> str:
    """Right, wrong and tied pairs."""
    return "/".join(str(found[which, verdict]) for verdict in (1, -1, 0))


Case = TypeVar("Case")


def with_interval(several: Sequence[Case], figure: Callable[[Sequence[Case]], float], shown: str, bound: str) -> str:
    """A figure with its bootstrap interval over questions, and how both are formatted."""
    low, high = interval(several, figure)
    return f"{figure(several):{shown}} ({low:{bound}}-{high:{bound}})"


def _share(several: Several, name: str) -> float:
    return sum(getattr(each, name) for each in several) / max(1, sum(each.pairs for each in several))
