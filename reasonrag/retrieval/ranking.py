"""Ranked rows of a corpus: the interface of indexes, and fusion of several. Knows rows, not passages."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

LOADING = threading.Lock()
"""NumPy parses file headers with `ast`, which is not thread-safe in Python 3.11 (cpython#106905)."""


@dataclass(frozen=True)
class Ranked:
    """Rows, best first, and their scores, higher is better; two arrays of one length. fallback: whether they share no
    word with the query, only similar ones."""

    rows: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float64]
    fallback: bool = False

    @classmethod
    def empty(cls) -> Ranked:
        return cls(np.empty(0, dtype=np.int64), np.empty(0))

    def __len__(self) -> int:
        return len(self.rows)


class Ranking(Protocol):
    """An index that ranks the rows of one corpus."""

    identity: str
    """Changes whenever the same query could find other rows."""
    instant: bool
    """Whether a search is faster than handing it to a thread."""

    def rank(self, queries: Sequence[str], depth: int) -> list[Ranked]:
        """At most `depth` rows for each query. A query's result does not depend on the other queries of the batch."""


RRF_K = 60
"""Constant of reciprocal rank fusion: Cormack, Clarke and Buettcher, SIGIR 2009."""
FUSED_DEPTH = 100
"""Rows fused from each ranking."""


class HybridIndex:
    """Several indexes of one corpus as one, by reciprocal rank fusion: sum of 1 / (60 + rank)."""

    def __init__(self, rankings: Sequence[Ranking]) -> None:
        self._rankings = tuple(rankings)
        names = " + ".join(each.identity for each in self._rankings)
        self.identity = f"rrf:k={RRF_K}:depth={FUSED_DEPTH}: {names}"
        self.instant = all(each.instant for each in self._rankings)

    def rank(self, queries: Sequence[str], depth: int) -> list[Ranked]:
        """Rows by fused score, best first, ties in corpus order."""
        every = [each.rank(queries, max(depth, FUSED_DEPTH)) for each in self._rankings]
        own = (
            [each for each in found if len(each) and not each.fallback] or found for found in zip(*every, strict=True)
        )
        return [_fused(found, depth) for found in own]


def _fused(rankings: Sequence[Ranked], depth: int) -> Ranked:
    found = np.concatenate([each.rows for each in rankings])
    worth = np.concatenate([1 / (RRF_K + 1 + np.arange(len(each))) for each in rankings])
    rows, places = np.unique(found, return_inverse=True)
    scores = np.asarray(np.bincount(places, weights=worth, minlength=len(rows)), dtype=np.float64)
    return replace(best(rows, scores, depth), fallback=any(each.fallback for each in rankings))


def best(rows: npt.NDArray[np.int64], scores: npt.NDArray[np.float64], depth: int) -> Ranked:
    """The `depth` best rows by score, rounded to six digits, ties in corpus order."""
    rounded = np.round(scores, 6)
    order = np.lexsort((rows, -rounded))[:depth]
    return Ranked(rows[order], rounded[order])
