"""The scores by which a simulation walks down and the disagreement by which it jumps, by hand and as laws."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcts.selection import (
    LEAST_GAIN,
    PARENT_PRIOR,
    ROOT_PRIOR,
    SCORES,
    after_progress,
    expected_outcome,
    gain_per_reply,
)

values = st.floats(0, 1)


@pytest.mark.parametrize(
    ("rule", "explores"), [("uct", 1.414 * (math.log(7) / 2) ** 0.5), ("puct", 1.414 * 0.5 * 7**0.5 / 3)]
)
def test_a_score_is_the_value_and_what_few_visits_leave_to_explore(rule: str, explores: float) -> None:
    """UCB1 and PUCT by hand, of a child that was taken in two of its state's seven visits."""
    assert SCORES[rule](0.5, visits=2, parent_visits=7, prior=0.5, exploration=1.414) == pytest.approx(0.5 + explores)


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


@given(above=values, mean=values, answers=st.integers(0, 10_000))
def test_what_is_expected_lies_between_what_was_seen_and_what_is_expected_above(
    above: float, mean: float, answers: int
) -> None:
    """And the more was seen, the nearer it is to that."""
    expected = expected_outcome(above, weight=PARENT_PRIOR, mean=mean, answers=answers)
    after = expected_outcome(above, weight=PARENT_PRIOR, mean=mean, answers=answers + 1)
    assert min(above, mean) - 1e-12 <= expected <= max(above, mean) + 1e-12
    assert abs(after - mean) <= abs(expected - mean) + 1e-12
