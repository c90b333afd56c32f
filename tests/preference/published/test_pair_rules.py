"""The labels and filters of the published systems: on any tree the rows are theirs, and nothing else is a row."""

from __future__ import annotations

import copy
import json
import re
from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preference import RolloutRecord, StateRecord
from preference.export.formats import proguide_row
from preference.filters import AS_PUBLISHED, PairingRules, select
from preference.labelling import labelled_states
from preference.published.pair_rules import builder_reading
from preference.published.repairs import ImportRules, Notes
from preference.published.trees import read_tree
from preference.records import RecipeRef
from tests.helpers.published_trees import builder_rewards, builder_rows, random_tree
from tests.helpers.trees import answer, malformed, query, siblings, tree

FIELDS = 10
SEEDS = st.integers(0, 10**6)


def rows_of(record: RolloutRecord) -> list[dict[str, Any]]:
    """The ten published fields of the rows of `pairs --as-published`."""
    kept = [each for each in select(labelled_states(record), AS_PUBLISHED) if each.dropped is None]
    return [dict(list(proguide_row(each).items())[:FIELDS]) for each in kept]


@given(seed=SEEDS)
def test_an_imported_tree_has_the_builder_s_rewards_and_rows(seed: int) -> None:
    """Every reward but for rounding, and every row byte for byte: with equal siblings, contents equal but for case or
    tag, single children, and open tags."""
    tree = random_tree(Random(seed))
    record = read_tree(copy.deepcopy(tree), ImportRules(), Notes("file.json:1"), revision="f00")
    rewards = builder_rewards(tree)
    assert [node.reward for node in record.nodes] == pytest.approx([rewards[node.id] for node in record.nodes])
    assert Counter(map(json.dumps, rows_of(record))) == Counter(map(json.dumps, builder_rows(tree)))


@pytest.mark.parametrize(
    ("response", "reading"),
    [
        ("<answer>A</answer> or <query>Q</query>", ("query", "A")),
        ("<query>open", ("query", "")),
        ("<query>open <evidence> E </evidence>", ("query", "E")),
        ("<Answer>A</Answer>", (None, "")),
    ],
)
def test_the_builder_reads_type_and_content_apart(response: str, reading: tuple[str | None, str]) -> None:
    """The type from the first tag opened of query, evidence, answer; the content from the first whole one of answer,
    query, evidence."""
    assert builder_reading(response) == reading


@given(
    st.lists(st.sampled_from(["<answer>", "</answer>", "<query>", "</query>", "<evidence>", " a\n", "b"])).map("".join)
)
def test_contents_are_those_of_the_builder_s_expression(response: str) -> None:
    found = (re.search(rf"<{tag}>(.*?)</{tag}>", response, re.DOTALL) for tag in ("answer", "query", "evidence"))
    assert builder_reading(response)[1] == next((each[1].strip() for each in found if each), "")


def test_a_hostile_reply_is_read_in_one_pass() -> None:
    """A million open tags: an expression that tries each of them against all that follows would take hours."""
    assert builder_reading("<answer>" * 1_000_000) == ("answer", "")


# -- ranked steps ----------------------------------------------------------------------------------------------


def ranked(*steps: dict[str, Any], final_f1: float = 1.0) -> StateRecord:
    """A state of `ragym`, whose rewards are 1 / (1 + rank)."""
    rollout = siblings(*steps)
    recipe = RecipeRef(name="ragym", reward="rank", alpha=1.0, margin_by_layer=False)
    (state,) = labelled_states(rollout.model_copy(update={"recipe": recipe}))
    return state.model_copy(update={"trajectory_f1": final_f1})


def fates(state: StateRecord, rules: PairingRules) -> dict[tuple[int, int], str | None]:
    return {(each.pair.chosen, each.pair.rejected): each.dropped for each in select([state], rules)}


@pytest.mark.parametrize("rules", [AS_PUBLISHED, PairingRules()])
def test_the_step_ranked_first_stands_against_the_third_and_later_ones(rules: PairingRules) -> None:
    """Each different one once, with the widest margin; nothing of a trajectory that ended wrong, nor of a judgement
    that failed."""
    steps = query("a", 1.0), query("b", 1 / 2), query("c", 1 / 3), query("c", 1 / 4), answer("d", 1 / 5)
    found = fates(ranked(*steps), rules)
    assert {pair for pair, dropped in found.items() if dropped is None} == {(1, 4), (1, 5)}
    assert (found[1, 2], found[2, 3], found[1, 3]) == ("not_ranked_apart", "not_ranked_apart", "duplicate")
    assert set(fates(ranked(*steps, final_f1=0.75), rules).values()) == {"wrong_trajectory"}
    failed = ranked(query("a", 0.0), query("b", 0.0), query("c", 0.0))
    assert set(fates(failed, rules).values()) == {"not_ranked_apart"}


def test_equal_replies_that_were_ranked_apart_are_no_pair() -> None:
    found = fates(ranked(query("a", 1.0), query("a", 1 / 3), malformed("?!", 1 / 4)), AS_PUBLISHED)
    assert found == {(1, 2): "same_content", (1, 3): None, (2, 3): "not_ranked_apart"}


def test_a_ranked_pair_needs_ranks_and_a_better_reply_that_parses() -> None:
    found = fates(ranked(malformed("?!", 1.0), malformed("!?", 1 / 3), query("b", None)), AS_PUBLISHED)
    assert found == {(1, 2): "malformed", (3, 1): "unvalued", (3, 2): "unvalued"}


def test_a_trajectory_is_as_good_as_the_answer_at_its_end() -> None:
    """Of the steps that were executed, not of one that would have been right elsewhere; 0 without an answer."""
    first = query("a", 1 / 2), query("b", 1.0), answer("right", 1 / 3, f1=1.0)
    recipe = RecipeRef(name="ragym", reward="rank", alpha=1.0, margin_by_layer=False)
    for last, f1 in ((answer("so", 1.0, f1=0.8), 0.8), (query("c", 1.0), 0.0)):
        steps = *first, query("d", 1 / 2), last
        record = tree([0, 0, 0, 2, 2], steps).model_copy(update={"recipe": recipe})
        assert [state.trajectory_f1 for state in labelled_states(record)] == [f1, f1]
        line = next(labelled_states(record)).to_line()
        assert (b'"trajectory_f1":0.8' in line, b"not_reached" in line) == (f1 > 0, False)
