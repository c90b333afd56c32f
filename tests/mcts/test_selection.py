"""The scores by which a simulation walks down and the disagreement by which it jumps, against hand-computed numbers."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcts import puct_score, uct_score, unit_puct_score
from mcts.selection import (
    LEAST_GAIN,
    PARENT_PRIOR,
    ROOT_PRIOR,
    after_progress,
    disagreement,
    expected_outcome,
    gain_per_reply,
    least_gain,
)

values = st.floats(0, 1)


@pytest.mark.parametrize(
    ("value", "visits", "parent_visits", "exploration", "expected"),
    [
        (0.5, 1, 1, 1.414, 0.5),  # ln 1 = 0: nothing to explore yet
        (0.7, 3, 4, 1.414, 1.661206),  # ln 4 = 1.386294, / 3 = 0.462098, root 0.679778, times 1.414 = 0.961206
        (0.9, 5, 100, 0.0, 0.9),  # without exploration the value alone
        (0.0, 0, 100, 0.0, math.inf),  # not visited yet: before every visited one
    ],
)
def test_uct_is_the_value_plus_what_few_visits_leave_open(
    *, value: float, visits: int, parent_visits: int, exploration: float, expected: float
) -> None:
    """value + c * sqrt(ln N / n)."""
    score = uct_score(value, visits=visits, parent_visits=parent_visits, prior=0.5, exploration=exploration)
    assert score == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("value", "visits", "parent_visits", "prior", "exploration", "expected"),
    [
        (0.0, 0, 0, 0.5, 2.5, 0.0),  # before the first visit of the parent all are equal
        (0.0, 0, 4, 0.5, 2.5, 2.5),  # 2.5 * 0.5 * 2 / 1
        (0.5, 1, 4, 0.5, 2.5, 1.75),  # 0.5 + 2.5 * 0.5 * 2 / 2
        (0.9, 5, 100, 1.0, 0.0, 0.9),
    ],
)
def test_puct_is_the_value_plus_what_the_prior_promises(
    *, value: float, visits: int, parent_visits: int, prior: float, exploration: float, expected: float
) -> None:
    """value + c * P * sqrt(N) / (1 + n)."""
    score = puct_score(value, visits=visits, parent_visits=parent_visits, prior=prior, exploration=exploration)
    assert score == pytest.approx(expected)


def test_eq_5_of_reasonrag_is_puct_with_a_prior_of_one() -> None:
    """Q + c * sqrt(sum of N) / (1 + N): .5 + 1.414 * sqrt(9) / 3 = 1.914."""
    known = {"visits": 2, "parent_visits": 9, "exploration": 1.414}
    assert unit_puct_score(0.5, **known, prior=0.1) == puct_score(0.5, **known, prior=1.0) == pytest.approx(1.914)


@pytest.mark.parametrize(
    ("expected_above", "weight", "mean", "answers", "expected"),
    [
        (0.5, 0.5, 0.0, 0, 0.5),  # nothing seen: what was expected above
        (0.5, 0.5, 1.0, 1, 0.833333),  # (.25 + 1) / 1.5
        (0.5, 0.5, 1.0, 8, 0.970588),  # (.25 + 8) / 8.5
        (0.9, 8.0, 0.0, 1, 0.8),  # 7.2 / 9: one wrong answer below a state where most are right
        (0.9, 8.0, 0.5, 8, 0.7),  # (7.2 + 4) / 16: as many answers as the parent weighs, half way
    ],
)
def test_what_is_expected_is_drawn_towards_what_is_expected_above(
    *, expected_above: float, weight: float, mean: float, answers: int, expected: float
) -> None:
    """(weight * above + answers * mean) / (weight + answers)."""
    found = expected_outcome(expected_above, weight=weight, mean=mean, answers=answers)
    assert found == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("expected", "chance"), [(0.0, 0.0), (0.1, 0.18), (0.25, 0.375), (0.5, 0.5), (0.9, 0.18), (1.0, 0.0)]
)
def test_the_promise_of_a_state_is_the_chance_that_two_answers_disagree(expected: float, chance: float) -> None:
    """2 p (1 - p)."""
    assert disagreement(expected) == pytest.approx(chance)


@pytest.mark.parametrize(("answers", "worth_it"), [(1, True), (7, True), (8, False), (20, False)])
@pytest.mark.parametrize("outcome", [0.0, 1.0])
def test_eight_equal_answers_end_the_draws_at_the_root(outcome: float, answers: int, *, worth_it: bool) -> None:
    """p (.25 + 7) / 7.5 = .967 promises .0644, p (.25 + 8) / 8.5 = .971 promises .0571; a path of six steps costs six
    replies, so the border of .01 by the reply is at .06."""
    expected = expected_outcome(0.5, weight=ROOT_PRIOR, mean=outcome, answers=answers)
    assert (gain_per_reply(expected, steps_left=5) > LEAST_GAIN) == worth_it


@given(expected=values, progress=st.none() | values)
def test_a_finding_raises_the_hope_of_a_right_answer_and_a_miss_lowers_it(
    expected: float, progress: float | None
) -> None:
    """It stays a chance; the more is found, the higher; where it is unknown nothing changes."""
    found = after_progress(expected, progress)
    assert 0 <= found <= 1
    assert (found >= expected) if progress else (found <= expected)
    if progress is None:
        assert found == expected
    else:
        assert found <= after_progress(expected, 1.0)


@given(budget=st.integers(1, 10_000), expected=values, near=st.floats(1, 20), far=st.floats(1, 20))
def test_a_larger_budget_never_ends_earlier_and_a_longer_way_is_never_worth_more(
    budget: int, expected: float, near: float, far: float
) -> None:
    """The rule by which a search ends: monotone in the budget, and in the replies that a draw costs."""
    assert 0 < least_gain(budget + 1) <= least_gain(budget) <= LEAST_GAIN
    assert least_gain(None) == 0
    least, most = sorted((near, far))
    assert gain_per_reply(expected, steps_left=most) <= gain_per_reply(expected, steps_left=least)


@given(above=values, mean=values, answers=st.integers(0, 10_000))
def test_what_is_expected_lies_between_what_was_seen_and_what_is_expected_above(
    above: float, mean: float, answers: int
) -> None:
    """And the more was seen, the nearer it is to that."""
    expected = expected_outcome(above, weight=PARENT_PRIOR, mean=mean, answers=answers)
    after = expected_outcome(above, weight=PARENT_PRIOR, mean=mean, answers=answers + 1)
    assert min(above, mean) - 1e-12 <= expected <= max(above, mean) + 1e-12
    assert abs(after - mean) <= abs(expected - mean) + 1e-12
