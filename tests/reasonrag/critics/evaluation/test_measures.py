"""Statistics of a critic, by hand-worked numbers and by laws."""

from __future__ import annotations

import itertools
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasonrag.critics.evaluation.measures import (
    clustered_mean,
    expected_best,
    expected_majority,
    grouped,
    ranked_right,
)

scores = st.lists(st.integers(-5, 5).map(float), min_size=1, max_size=6)


def test_a_mean_has_an_interval_of_its_questions_not_of_its_cases() -> None:
    alike = clustered_mean([1.0] * 50 + [0.0] * 50, ["a"] * 50 + ["b"] * 50, resamples=500, seed=0)
    apart = clustered_mean([1.0, 0.0] * 50, list(map(str, range(100))), resamples=500, seed=0)
    assert (alike.value, alike.low, alike.high, alike.n, alike.questions) == (0.5, 0.0, 1.0, 100, 2)
    assert apart.value == 0.5
    assert apart.low is not None
    assert 0.35 < apart.low < 0.45


def test_a_mean_over_nothing_is_unknown() -> None:
    assert clustered_mean([], [], resamples=10, seed=0).value is None


@pytest.mark.parametrize(("better", "worse", "right"), [(2.0, 1.0, 1.0), (1.0, 2.0, 0.0), (1.0, 1.0, 0.5)])
def test_a_tie_is_half_right(better: float, worse: float, right: float) -> None:
    assert ranked_right(better, worse) == right


@given(scores, st.data())
def test_the_best_of_n_is_the_mean_over_all_draws_of_n_with_replacement(told: list[float], data: st.DataObject) -> None:
    """And over draws of equal score, in whatever order they come."""
    n = data.draw(st.integers(1, 4))
    values = data.draw(st.lists(st.floats(0, 1), min_size=len(told), max_size=len(told)))
    alike = {
        score: statistics.mean(value for other, value in zip(told, values, strict=True) if other == score)
        for score in told
    }
    taken = [alike[max(drawn)] for drawn in itertools.product(told, repeat=n)]
    assert expected_best(told, values, n) == pytest.approx(statistics.mean(taken))
    assert expected_best(told[::-1], values[::-1], n) == pytest.approx(expected_best(told, values, n))


def test_a_critic_that_says_the_same_of_all_takes_the_mean() -> None:
    assert expected_best([0.0, 0.0, 0.0], [1.0, 0.0, 0.5], 2) == 0.5


def test_groups_come_in_the_order_of_their_keys_not_of_their_names() -> None:
    assert list(grouped([11, 2, 10, 0], lambda each: each)) == [0, 2, 10, 11]


def test_the_majority_of_all_draws_is_the_most_frequent_name() -> None:
    assert expected_majority(["a", "b", "a"], [1.0, 0.0, 1.0], 99, seed=0) == pytest.approx(1.0, abs=0.01)
    assert expected_majority(["a", "b"], [1.0, 0.0], 1, seed=0) == pytest.approx(0.5, abs=0.15)
