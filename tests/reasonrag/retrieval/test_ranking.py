"""Fusing rankings: reciprocal ranks, and what the order then is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasonrag.retrieval.ranking import FUSED_DEPTH, HybridIndex, Ranked, best


class Scripted:
    """A ranking that gives the same rows to every query, however deep it is asked."""

    def __init__(self, *rows: int, fallback: bool = False) -> None:
        self.fallback = fallback
        self.identity, self.instant = f"rows {rows}", True
        self.rows = np.array(rows, dtype=np.int64)
        self.depths: list[int] = []

    def rank(self, queries: Sequence[str], depth: int) -> list[Ranked]:
        self.depths.append(depth)
        rows = self.rows[:depth]
        return [Ranked(rows, -np.arange(len(rows), dtype=np.float64), self.fallback) for _ in queries]


def fused(*rankings: Scripted, depth: int = 10) -> list[tuple[int, float]]:
    [found] = HybridIndex(rankings).rank(["anything"], depth)
    return list(zip(found.rows.tolist(), found.scores.tolist(), strict=True))


def test_a_row_gets_the_sum_of_its_reciprocal_ranks() -> None:
    """1 / (60 + rank), ranks from 1, as in the paper; a row that one ranking lacks gets nothing from it."""
    found = dict(fused(Scripted(5, 7), Scripted(7, 9)))
    assert found == pytest.approx({7: 1 / 62 + 1 / 61, 5: 1 / 61, 9: 1 / 62}, abs=1e-6)


@pytest.mark.parametrize(("other", "rows", "fallback"), [((5, 7), [5, 7], False), ((), [9], True)])
def test_similar_words_count_only_where_nothing_else_is_found(
    other: tuple[int, ...], rows: list[int], fallback: bool
) -> None:
    [found] = HybridIndex([Scripted(*other), Scripted(9, fallback=True)]).rank(["anything"], 5)
    assert (found.rows.tolist(), found.fallback) == (rows, fallback)


def test_deep_rows_can_rise() -> None:
    """Both rankings are asked for a hundred rows, however few are wanted."""
    first, second = Scripted(*range(100)), Scripted(*reversed(range(100)))
    assert len(fused(first, second, depth=3)) == 3
    assert first.depths == [FUSED_DEPTH]


ROWS = st.lists(st.integers(0, 50), unique=True, max_size=20)


@given(first=ROWS, second=ROWS, depth=st.integers(1, 30))
def test_fusing_does_not_depend_on_which_ranking_is_named_first(
    first: list[int], second: list[int], depth: int
) -> None:
    """The sum is the same either way, and so is the order between equal ones."""
    assert fused(Scripted(*first), Scripted(*second), depth=depth) == fused(
        Scripted(*second), Scripted(*first), depth=depth
    )


@given(
    scores=st.lists(st.floats(-1, 1, allow_nan=False), min_size=1, max_size=20),
    noise=st.integers(-4, 4),
    depth=st.integers(1, 20),
)
def test_the_last_digits_of_a_score_never_decide(scores: list[float], noise: int, depth: int) -> None:
    """Scores on a grid of a millionth give the same rows in the same order whatever stands a digit behind."""
    rows = np.arange(len(scores), dtype=np.int64)
    grid = np.round(np.array(scores), 6)
    plain, disturbed = best(rows, grid, depth), best(rows, grid + noise * 1e-8, depth)
    assert plain.rows.tolist() == disturbed.rows.tolist()
    assert plain.scores.tolist() == disturbed.scores.tolist()
