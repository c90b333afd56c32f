"""Pairs that a hint made possible: their tag, which hinted step may be chosen, and their share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from preference import PairingRules, RolloutRecord
from preference.best_path import best_path
from preference.candidates import StateRecord, parse_line
from preference.filters import NO_FILTERS, PassedPairs, candidates, dropped_by_caps
from preference.labelling import labelled_states
from tests.helpers.trees import Fields, answer, query, siblings, tree

HINTED: Fields = {"hinted": "gold-passages", "draws": 1, "plain_draws": 0}
REACHED = HINTED | {"draws": 2, "plain_draws": 1}


def reasons(rollout: RolloutRecord, rules: PairingRules = PairingRules()) -> list[Any]:  # noqa: B008 - frozen
    return [each.dropped for each in candidates(rollout, rules)]


@pytest.mark.parametrize(
    ("good", "bad", "reason"),
    [
        ({}, {}, None),
        (HINTED, {}, "hint_only"),
        (REACHED, {}, None),
        (REACHED | {"names_unseen": True}, {}, "hint_only"),
        ({}, HINTED, None),
        ({}, HINTED | {"names_unseen": True}, None),
    ],
    ids=["plain", "by the hint alone", "by a plain draw, too", "names unseen", "rejected", "rejected, names unseen"],
)
def test_a_hinted_step_is_chosen_only_if_a_plain_draw_came_there_and_it_names_nothing_unseen(
    good: Fields, bad: Fields, reason: str | None
) -> None:
    """It may always be the rejected side; --allow-hint-only lets it be the chosen one."""
    rollout = siblings(query("who", 0.9, **good), query("what", 0.1, **bad))
    assert reasons(rollout) == [reason]
    assert reasons(rollout, PairingRules(allow_hint_only=True)) == [None]


@pytest.mark.parametrize(("twin", "reached"), [({}, True), ({"plain_draws": 0, "draws": 1}, False)])
def test_a_plain_draw_of_a_sibling_that_comes_to_the_same_counts(twin: Fields, reached: bool) -> None:
    """Whichever of the two was first: other words that find the same passages."""
    for steps in (
        [query("who", 0.9, **HINTED), query("which one", 0.9, same_as=1, **twin)],
        [query("which one", 0.9, **twin), query("who", 0.9, same_as=1, **HINTED)],
    ):
        (state,) = labelled_states(siblings(*steps, query("what", 0.1)))
        assert [step.hint_only for step in state.steps if step.content == "who"] == [not reached]
        assert all(pair.tags == ["hinted"] for pair in state.pairs)  # the twins share one estimate


def test_a_pair_is_tagged_if_a_step_or_one_on_its_path_was_hinted() -> None:
    """1 is hinted and 2 is not; 3 and 4 lie below 1, 5 and 6 below 2."""
    steps = [query("a", 0.9, **HINTED), query("b", 0.1)]
    steps += [answer("Ada Lovelace", 0.9), answer("Zola", 0.0), answer("Ada Lovelace", 0.9), answer("Zola", 0.0)]
    found = {
        (pair.chosen, pair.rejected): pair.tags
        for state in labelled_states(tree([0, 0, 1, 1, 2, 2], steps))
        for pair in state.pairs
    }
    assert found == {(1, 2): ["hinted"], (3, 4): ["hinted"], (5, 6): []}


def test_states_say_it_only_where_a_step_was_hinted() -> None:
    """Data sets of those who do without hints keep their bytes; the others read back as written."""
    for good, said in (({}, False), (HINTED, True)):
        (state,) = labelled_states(siblings(query("who", 0.9, **good), query("what", 0.1)))
        assert (b"hint_only" in state.to_line()) is said
        assert parse_line(state.to_line(), StateRecord, where="here").to_line() == state.to_line()


def test_their_share_of_the_data_set_is_capped() -> None:
    """At a tenth by default: one of ten, the surest."""
    passed = PassedPairs()
    for number in range(20):
        hinted = HINTED if number < 11 else {}
        (each,) = candidates(siblings(query("who", 0.9), query("what", number / 100, **hinted)), NO_FILTERS)
        passed.add(each)
    beyond = dropped_by_caps(passed, PairingRules())
    assert set(beyond.values()) == {"hinted_cap"}
    assert sorted(beyond) == list(range(1, 11))
    assert dropped_by_caps(passed, replace(PairingRules(), max_hinted=1.0)) == {}


def test_a_step_that_only_a_hint_brought_is_on_no_path_to_imitate() -> None:
    right = answer("Ada Lovelace", 0.9, f1=1.0, em=1.0)
    assert best_path(tree([0, 1], [query("who", 0.9, **HINTED), right])) is None
    assert best_path(tree([0, 1], [query("who", 0.9, **REACHED), right])) is not None
