"""Laws of the intervals of means over questions, and Student's t-test against SciPy."""

from __future__ import annotations

import random
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from reasonrag.evaluation.significance import Values, mean_interval, paired_t_test, t_test_p

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


@given(SHARES, st.floats(0.5, 0.8), st.floats(0.85, 0.99))
def test_more_confidence_is_a_wider_interval(values: list[float], some: float, more: float) -> None:
    """Of the same resamples."""
    narrow = mean_interval(values, samples=200, confidence=some, seed=0)
    wide = mean_interval(values, samples=200, confidence=more, seed=0)
    assert narrow is not None
    assert wide is not None
    assert wide[1] <= narrow[1]
    assert narrow[2] <= wide[2]


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


# -- Student's t-test --------------------------------------------------------------------------------------------------

SIDES = st.integers(2, 40).flatmap(
    lambda n: arrays(np.float64, (2, 1, n), elements=st.sampled_from([0.0, 0.25, 2 / 3, 1.0]))
)


@pytest.mark.parametrize(
    ("t", "df", "p"),
    [
        (0.0, 7, 1.0),
        (1.0, 1, 0.5),
        (12.706, 1, 0.05),
        (4.303, 2, 0.05),
        (3.182, 3, 0.05),
        (2.776, 4, 0.05),
        (2.845, 20, 0.01),
        (1.960, 19_999, 0.05),
        (1e300, 1, 0.0),
        (1e9, 19_998, 0.0),
    ],
)
def test_p_is_that_of_the_tables_in_textbooks(t: float, df: int, p: float) -> None:
    """Whichever side is ahead."""
    assert t_test_p(t, df) == t_test_p(-t, df) == pytest.approx(p, abs=5e-5)


@given(t=st.floats(-60, 60), df=st.integers(1, 2_000) | st.sampled_from([19_998, 19_999, 100_000]))
def test_p_is_that_of_scipy(t: float, df: int) -> None:
    """To ten decimals, for whole degrees of freedom."""
    stats = pytest.importorskip("scipy.stats")
    assert t_test_p(t, df) == pytest.approx(2 * float(stats.t.sf(abs(t), df)), abs=1e-10)


@given(sides=SIDES)
def test_the_t_test_is_scipys_and_turns_its_sign_with_the_sides(sides: Values) -> None:
    """Where all questions differ by the same amount, SciPy has no number or an infinite one, and we have none."""
    stats = pytest.importorskip("scipy.stats")
    one, other = sides
    there, back = paired_t_test(one, other), paired_t_test(other, one)
    assert there is not None
    assert back is not None
    if there.t is None:
        assert np.ptp(np.round(other - one, 12)) == 0
        assert there.p is back.t is back.p is None
    else:
        theirs = stats.ttest_rel(other[0], one[0])
        assert (there.t, there.df) == (pytest.approx(float(theirs.statistic), rel=1e-5, abs=1e-9), int(theirs.df))
        assert there.p == pytest.approx(float(theirs.pvalue), abs=1e-9)
        assert (back.t, back.p) == (-there.t, there.p)


def test_the_t_test_is_over_questions_and_not_over_seeds() -> None:
    """Seeds enter by each question's mean, so that one question asked three times is one question."""
    three = np.array([[0.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.5, 1.0, 0.0]])
    seeds = paired_t_test(np.zeros((2, 3)), three)
    assert seeds == paired_t_test(np.zeros((1, 3)), three.mean(axis=0, keepdims=True))
    assert seeds is not None
    assert seeds.df == 2
    one = paired_t_test(np.zeros((2, 1)), np.ones((3, 1)))
    assert one is not None
    assert (one.t, one.df, one.p) == (None, 0, None)
    assert paired_t_test(np.full((1, 2), np.nan), np.ones((1, 2))) is None
