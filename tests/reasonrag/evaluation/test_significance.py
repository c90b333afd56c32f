"""Laws of the intervals of means over questions."""

from __future__ import annotations

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasonrag.evaluation.significance import mean_interval

VALUES = st.lists(st.floats(-1e6, 1e6, allow_nan=False), min_size=1, max_size=40)
SHARES = st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=60)


@given(VALUES, st.floats(0.01, 0.99), st.integers(0, 2**63 - 1))
def test_an_interval_contains_the_mean_and_stays_within_the_values(
    values: list[float], confidence: float, seed: int
) -> None:
    """Whatever was measured, at any confidence; but for the rounding of sums."""
    found = mean_interval(values, samples=50, confidence=confidence, seed=seed)
    assert found is not None
    mean, low, high = found
    assert mean == pytest.approx(statistics.fmean(values), abs=1e-6)
    assert low <= mean <= high
    assert min(values) - 1e-6 <= low
    assert high <= max(values) + 1e-6


@given(VALUES, st.randoms(use_true_random=False), st.integers(0, 100))
def test_the_order_of_questions_does_not_matter(values: list[float], dice: random.Random, seed: int) -> None:
    """The same questions and seed give the same interval to the last bit."""
    shuffled = dice.sample(values, len(values))
    first = mean_interval(values, samples=50, confidence=0.95, seed=seed)
    assert mean_interval(shuffled, samples=50, confidence=0.95, seed=seed) == first


def test_it_is_as_wide_as_the_textbook_says() -> None:
    """40 % of 400 questions: the normal approximation is 1.96 standard errors wide on either side."""
    found = mean_interval([1.0] * 160 + [0.0] * 240, samples=20_000, confidence=0.95, seed=0)
    assert found is not None
    error = (0.4 * 0.6 / 400) ** 0.5
    assert found[0] == 0.4
    assert found[1] == pytest.approx(0.4 - 1.96 * error, abs=0.003)
    assert found[2] == pytest.approx(0.4 + 1.96 * error, abs=0.003)


def test_many_questions_are_drawn_in_pieces_that_fit() -> None:
    """More different values than fit at once with all resamples give an interval like any other."""
    values = [float(each) for each in range(300_000)]
    found = mean_interval(values, samples=30, confidence=0.9, seed=0)
    assert found is not None
    assert found[1] < found[0] == 149_999.5 < found[2]


def test_nothing_has_no_mean() -> None:
    assert mean_interval([], samples=10, confidence=0.95, seed=0) is None
