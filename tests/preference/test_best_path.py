"""What came of a question: how its continuations ended, and the best way to a right answer."""

from __future__ import annotations

from typing import Any

import pytest

from preference import Origin, RolloutRecord
from preference.best_path import best_path, question_record
from tests.helpers.trees import (
    UNPARSED,
    Fields,
    ada,
    answer,
    evidence,
    failure,
    query,
    rollouts_of,
    siblings,
    tree,
)

RIGHT: Fields = {"f1": 1.0, "outcome": {"name": "f1", "value": 1.0}}
WRONG: Fields = {"f1": 0.0, "outcome": {"name": "f1", "value": 0.0}}


def right(reward: float | None, **fields: Any) -> Fields:
    return answer("Ada Lovelace", reward, **(RIGHT | fields))


def found(rollout: RolloutRecord) -> list[str] | None:
    """What the steps of the best path say."""
    path = best_path(rollout)
    return None if path is None else [f"{step.layer} {step.action_type} {step.content}" for step in path]


# -- the best path ------------------------------------------------------------------------------------------------


def test_the_path_leads_from_the_question_to_the_right_answer() -> None:
    """Every step with its own prompt and whole reply, in order."""
    rollout = tree(
        [0, 0, 2, 3],
        [answer("Bob", 0.0, **WRONG), query("who", 0.7), evidence("she did", 0.7), right(0.729)],
    )
    path = best_path(rollout)
    assert path is not None
    assert found(rollout) == ["0 query who", "1 evidence she did", "2 answer Ada Lovelace"]
    assert [step.prompt for step in path] == [rollout.nodes[each].prompt for each in (2, 3, 4)]
    assert path[-1].response == "So <answer>Ada Lovelace</answer>"


def test_the_path_that_labels_hold_highest_is_taken() -> None:
    """Not the first: here the shorter one, whose reward is discounted less."""
    rollout = tree(
        [0, 1, 2, 0, 4, 4],
        [*(query("long", 0.7), evidence("she", 0.7), right(0.729)), query("short", 0.8), right(0.81), right(0.80)],
    )
    assert found(rollout) == ["0 query short", "1 answer Ada Lovelace"]


@pytest.mark.parametrize(
    ("rewards", "first"), [((0.5, 0.5), "shallow"), ((0.6, 0.5), "deep"), ((None, 0.1), "shallow")]
)
def test_of_equals_the_shortest_path_is_taken(rewards: tuple[float | None, float], first: str) -> None:
    """Without a discount, say; an answer that nobody valued comes last."""
    deep, shallow = rewards
    rollout = tree(
        [0, 1, 2, 0, 4],
        [query("deep", 0.5), evidence("she", 0.5), right(deep), query("shallow", 0.5), right(shallow)],
    )
    path = found(rollout)
    assert path is not None
    assert path[0] == f"0 query {first}"


def test_of_equally_short_paths_the_earliest_is_taken() -> None:
    """The same tree always gives the same path."""
    assert found(siblings(answer("ada lovelace", 0.9, **RIGHT), right(0.9))) == ["0 answer ada lovelace"]


@pytest.mark.parametrize("step", [query("who", 0.9, repaired=True), query("who", 0.9, parse_error=UNPARSED)])
def test_a_step_that_did_not_parse_by_itself_is_on_no_path(step: Fields) -> None:
    """A way around it is taken, be it worse; without one there is none."""
    around = [query("another", 0.1), right(0.1)]
    assert found(tree([0, 1, 0, 3], [step, right(0.9), *around])) == ["0 query another", "1 answer Ada Lovelace"]
    assert found(tree([0, 1], [step, right(0.9)])) is None


@pytest.mark.parametrize(
    ("end", "is_right"),
    [
        (right(0.9), True),
        (answer("Ada", 0.6, f1=0.67, outcome={"name": "f1", "value": 0.67}), False),  # a part of it is not it
        (right(0.0, outcome={"name": "evident_f1", "value": 0.0}), False),  # right, but no evidence says so
        (answer("Ada", 0.9, f1=0.67, outcome={"name": "judge", "value": 1.0}), True),  # the outcome asked for decides
        (answer("Ada Lovelace", 0.9, f1=1.0), True),  # older records have the score alone
        (answer("Ada Lovelace", 0.9), False),  # or nothing
        (right(0.9, parse_error=UNPARSED), False),
        (query("Ada Lovelace", 0.9, f1=1.0), False),  # no answer
    ],
)
def test_a_right_answer_is_what_the_outcome_says(end: Fields, *, is_right: bool) -> None:
    """1 of whatever search and labels were made of."""
    assert (found(siblings(end)) is not None) == is_right


# -- the question -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcomes", "ends"),
    [
        ((), "unknown"),
        ((1, 1), "all_right"),
        ((0, 0, 0), "all_wrong"),
        ((0, 1), "mixed"),
        ((0.5,), "mixed"),
    ],
)
def test_a_question_says_how_its_continuations_ended(outcomes: tuple[float, ...], ends: str) -> None:
    """All right or all wrong is why a tree gives no pair."""
    steps = [query(str(n), 0.5, rollouts=rollouts_of(f1, 3)) for n, f1 in enumerate(outcomes)]
    assert question_record(siblings(*steps)).ends == ends


def test_a_question_s_ends_are_those_of_the_outcome_that_was_asked_for() -> None:
    """An answer that is right by its words and by nothing that was read is a wrong end."""
    unsupported = [{"f1": 1.0, "em": 1.0, "steps": 2, "outcome": 0.0}]
    assert question_record(siblings(query("who", 0.0, rollouts=unsupported))).ends == "all_wrong"


def test_a_question_says_what_it_cost_and_where_it_comes_from() -> None:
    """Also one that failed, which has a cause and no path."""
    known = Origin(dataset="toy", split="train", teacher="gpt-4o")
    failed = question_record(failure(usage={"calls": 3, "cost_usd": 0.25}), known)
    assert failed.error is not None
    assert (failed.error.cause, failed.path, failed.ends) == ("timeout", None, "unknown")
    assert failed.usage is not None
    assert (failed.usage.calls, failed.usage.cost_usd) == (3, 0.25)
    done = question_record(ada(), known)
    assert (done.error, done.origin.teacher, done.origin.config_hash) == (None, "gpt-4o", "0f1e")
    assert done.path is not None
    assert [step.content for step in done.path] == ["no"]
