"""Which siblings become a pair, and why the others do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preference import Candidate, PairingRules, RolloutNode, RolloutRecord, candidates
from preference.confidence import confidence

Fields = dict[str, Any]
Pair = tuple[int, int]

UNPARSED: Fields = {"cause": "no_tag", "detail": "no known tag"}


def query(content: str, reward: float | None, **fields: Any) -> Fields:
    return {"action_type": "query", "content": content, "reward": reward} | fields


def evidence(content: str, reward: float | None, **fields: Any) -> Fields:
    return {"action_type": "evidence", "content": content, "reward": reward} | fields


def answer(content: str, reward: float | None, **fields: Any) -> Fields:
    return {"action_type": "answer", "content": content, "reward": reward, "terminal": True} | fields


def bare(response: str, reward: float) -> Fields:
    return {"action_type": "query", "response": response, "reward": reward}


def malformed(response: str, reward: float | None = 0.0, **fields: Any) -> Fields:
    return {"response": response, "reward": reward, "terminal": True, "parse_error": UNPARSED} | fields


def rollouts_of(f1: float, *steps: int) -> list[Fields]:
    return [{"f1": f1, "em": float(f1 == 1), "steps": each} for each in steps]


def tree(
    parents: Sequence[int], steps: Sequence[Fields], *, alpha: float = 0.9, by_layer: bool = True
) -> RolloutRecord:
    """Node i + 1 is `steps[i]`, taken in the state of node `parents[i]`."""
    depths = [0]
    for parent in parents:
        depths.append(depths[parent] + 1)
    nodes = [
        {
            "id": node_id,
            "parent_id": None if node_id == 0 else parents[node_id - 1],
            "children_ids": [child for child, parent in enumerate(parents, start=1) if parent == node_id],
            "layer": None if node_id == 0 else depths[node_id] - 1,
        }
        | ({} if node_id == 0 else steps[node_id - 1])
        for node_id in range(len(parents) + 1)
    ]
    return RolloutRecord.model_validate(
        {
            "question_id": "q1",
            "question": "Who wrote the first program?",
            "golden_answers": ["Ada Lovelace"],
            "dataset": "toy",
            "split": "train",
            "config_hash": "0f",
            "seed": 7,
            "recipe": {"name": "paper", "alpha": alpha, "margin_by_layer": by_layer},
            "usage": {},
            "nodes": nodes,
        }
    )


def siblings(*steps: Fields) -> RolloutRecord:
    """All steps taken in the root's state."""
    return tree([0] * len(steps), steps)


def ids(each: Candidate) -> Pair:
    return each.chosen.id, each.rejected.id


def rules_of(**rules: Any) -> PairingRules:
    """Rules that drop little, so that a test sees the one it is about."""
    return PairingRules(**({"min_margin": 0.1, "min_confidence": 0.5, "max_pairs_per_state": 3} | rules))


def judged(rollout: RolloutRecord, **rules: Any) -> dict[Pair, str | None]:
    """What became of each candidate, by (chosen, rejected)."""
    return {ids(each): each.dropped for each in candidates(rollout, rules_of(**rules))}


def what_is_said(node: RolloutNode) -> tuple[str | None, str | None]:
    return node.action_type, node.response if node.content is None else node.content


def only(rollout: RolloutRecord, **rules: Any) -> Candidate:
    (candidate,) = candidates(rollout, rules_of(**rules))
    return candidate


def test_the_defaults_ask_for_some_margin_and_for_some_certainty() -> None:
    """As measured in benchmarks/RESULTS.md; the published rule asks for a margin of .01 only."""
    assert PairingRules() == PairingRules(
        min_margin=0.05, min_confidence=0.7, max_pairs_per_state=3, allow_malformed=False
    )


# -- one pair -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "chosen", "rejected"),
    [
        (query("who", 0.9), query("what", 0.1), 1, 2),
        (query("who", 0.1), query("what", 0.9), 2, 1),
        (query("who", 0.1), answer("Ada", 0.9), 2, 1),
        (evidence("she did", 0.729), evidence("None", 0.0), 1, 2),
    ],
)
def test_the_sibling_with_the_higher_reward_is_chosen(
    first: Fields, second: Fields, chosen: int, rejected: int
) -> None:
    """Whatever their order and types; the pair knows both steps whole, and the layer of their state."""
    pair = only(siblings(first, second))
    assert (pair.chosen.id, pair.rejected.id, pair.dropped) == (chosen, rejected, None)
    assert pair.types == (pair.chosen.action_type, pair.rejected.action_type)
    assert pair.layer == 0
    assert pair.rollout.question_id == "q1"


@pytest.mark.parametrize(
    ("first", "second", "pair", "reason"),
    [
        (query("who", 0.5), query("what", 0.5), (1, 2), "small_margin"),
        (query("who", 0.5), query("what", 0.41), (1, 2), "small_margin"),
        (query("who", 0.41), query("what", 0.5), (2, 1), "small_margin"),
        (query("who", 0.5), query("what", 0.3), (1, 2), None),
        (query("who", 0.9), query("what", 0.8, observations=99), (1, 2), "small_margin"),
        (query("who", 0.9), query("what", 0.79, observations=99), (1, 2), "uncertain"),
        (query("who", 0.9), query("who?", 0.1, same_as=1), (1, 2), "same_content"),
        (query("who", 0.9), query("who", 0.1), (1, 2), "same_content"),
        (query("who", 0.1), query("  WHO\n", 0.9), (2, 1), "same_content"),
        (query("who is she", 0.5), query("Who  is she", 0.5), (1, 2), "same_content"),
        (query("who", 0.9), answer("who", 0.1), (1, 2), None),  # another type is another content
        (answer("", 0.9, response="one"), answer("", 0.1, response="two"), (1, 2), "same_content"),
        (bare("one", 0.9), bare("two", 0.1), (1, 2), None),  # where there is no content, the whole reply stands for it
        (bare("one", 0.9), bare("ONE", 0.1), (1, 2), "same_content"),
        (query("who", None), query("what", 0.1), (2, 1), "unvalued"),
        (query("who", 0.0), query("what", None), (1, 2), "unvalued"),
        (query("who", None), query("what", None), (1, 2), "unvalued"),
        (query("who", None), query("who", 0.5), (2, 1), "unvalued"),
        (query("who", 0.5), query("who", 0.5), (1, 2), "same_content"),
        (query("who", 0.9), malformed("?!"), (1, 2), "malformed"),
        (malformed("?!"), query("who", 0.9), (2, 1), "malformed"),
        (malformed("?!"), query("who", 0.0), (2, 1), "malformed"),
        (malformed("?!"), query("who", None), (2, 1), "malformed"),
        (malformed("?!"), malformed("!?"), (1, 2), "malformed"),
    ],
)
def test_a_candidate_is_dropped_for_the_first_reason_that_holds(
    first: Fields, second: Fields, pair: Pair, reason: str | None
) -> None:
    """malformed before unvalued before same_content before small_margin before uncertain; (chosen, rejected) is known
    all the same."""
    assert judged(siblings(first, second)) == {pair: reason}


def test_siblings_with_equal_reward_make_no_pair() -> None:
    """Even a smallest margin of zero asks for a difference: none is kept without one, however it was computed."""
    equal = siblings(query("who", 0.3), query("what", 0.1 + 0.2))  # .30000000000000004
    assert judged(equal, min_margin=0.0) == {(2, 1): "small_margin"}
    assert judged(siblings(query("who", 0.3), query("what", 0.3)), min_margin=0.0) == {(1, 2): "small_margin"}


@pytest.mark.parametrize(
    ("min_margin", "reason"), [(0.0, None), (0.25, None), (0.3, "small_margin"), (1.0, "small_margin")]
)
def test_the_smallest_margin_is_set_by_the_user(min_margin: float, reason: str | None) -> None:
    """A margin of exactly the minimum is enough (.75 - .5 = .25)."""
    assert only(siblings(query("who", 0.75), query("what", 0.5)), min_margin=min_margin).dropped == reason


@pytest.mark.parametrize(
    ("first", "second", "pair", "reason"),
    [
        (query("who", 0.9), malformed("?!"), (1, 2), None),
        (malformed("?!"), query("who", 0.9), (2, 1), None),
        (query("who", 0.0), malformed("?!"), (1, 2), "small_margin"),
        (malformed("?!", reward=0.5), query("who", 0.1), (2, 1), "small_margin"),
        (malformed("?!"), malformed("!?", reward=0.5), (2, 1), "malformed"),
    ],
)
def test_a_malformed_step_may_be_rejected_if_the_user_says_so_but_never_chosen(
    first: Fields, second: Fields, pair: Pair, reason: str | None
) -> None:
    """With `allow_malformed` the parsed sibling is chosen, where its reward is really higher."""
    assert judged(siblings(first, second), allow_malformed=True) == {pair: reason}


@pytest.mark.parametrize(("by_layer", "margins"), [(True, [0.09, 0.1, 0.1]), (False, [0.09, 0.09, 0.081])])
def test_margins_are_divided_by_the_discount_of_their_layer_where_the_recipe_says_so(
    *, by_layer: bool, margins: list[float]
) -> None:
    """alpha .9: differences of .09, .09 and .081 in layers 0, 1 and 2 are .09, .09 / .9 and .081 / .81 of what could
    still be won there; without `margin_by_layer` they stand as they are."""
    deep = tree(
        [0, 0, 1, 1, 3, 3],
        [
            query("who", 0.60),
            query("what", 0.51),
            evidence("she", 0.60),
            evidence("he", 0.51),
            answer("Ada", 0.600),
            answer("Bob", 0.519),
        ],
        by_layer=by_layer,
    )
    pairs = list(candidates(deep, PairingRules()))
    assert [(ids(pair), pair.layer) for pair in pairs] == [((1, 2), 0), ((3, 4), 1), ((5, 6), 2)]
    assert [pair.margin for pair in pairs] == pytest.approx(margins)


@pytest.mark.parametrize(("by_layer", "reason"), [(True, None), (False, "small_margin")])
def test_a_deep_pair_passes_the_threshold_by_its_scaled_margin(*, by_layer: bool, reason: str | None) -> None:
    """.09 in layer 2 is .111 of .81: above .1 only if margins are scaled."""
    deep = tree(
        [0, 1, 2, 2],
        [query("who", 0.5), evidence("she", 0.5), answer("Ada", 0.59), answer("Bob", 0.5)],
        by_layer=by_layer,
    )
    assert only(deep).dropped == reason


# -- tags ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "tags"),
    [
        # both always right, in 1 and in 3 steps: only the length differs
        (
            answer("Ada Lovelace", 0.9, rollouts=rollouts_of(1, 1)),
            query("who", 0.729, rollouts=rollouts_of(1, 3, 3)),
            ("efficiency_only",),
        ),
        # right in 3 steps against right and wrong
        (
            query("who", 0.729, rollouts=rollouts_of(1, 3)),
            query("what", 0.4, rollouts=rollouts_of(1, 3) + rollouts_of(0, 3)),
            (),
        ),
        # .15 twice against .1 and .2: the same mean but for the last bit
        (
            query("who", 0.27, rollouts=rollouts_of(0.15, 1, 1)),
            query("what", 0.1, rollouts=rollouts_of(0.1, 3) + rollouts_of(0.2, 3)),
            ("efficiency_only",),
        ),
        # nothing known about one of them
        (query("who", 0.9), query("what", 0.5, rollouts=rollouts_of(1, 3)), ()),
        # two answers that hold the golden one: style
        (
            answer("Ada Lovelace", 0.9, rollouts=rollouts_of(1, 1)),
            answer("It was Ada Lovelace", 0.7, rollouts=rollouts_of(0.8, 1)),
            ("style_only",),
        ),
        # two answers that do not
        (
            answer("Ada", 0.6, rollouts=rollouts_of(0.67, 1)),
            answer("Bob", 0.0, rollouts=rollouts_of(0, 1)),
            ("style_only",),
        ),
        # one that does, one that does not
        (
            answer("Ada Lovelace", 0.9, rollouts=rollouts_of(1, 1)),
            answer("Ada", 0.6, rollouts=rollouts_of(0.67, 1)),
            (),
        ),
        # the same words in other lengths of path, both right
        (
            answer("Ada Lovelace", 0.9, rollouts=rollouts_of(1, 1)),
            answer("Lovelace, Ada Lovelace", 0.7, rollouts=rollouts_of(1, 1)),
            ("efficiency_only", "style_only"),
        ),
        # style is a matter of answers only
        (
            answer("Ada", 0.6, rollouts=rollouts_of(0.67, 1)),
            query("who", 0.0, rollouts=rollouts_of(0, 3)),
            (),
        ),
        # no continuation recorded: the step's own score stands for it
        (
            answer("Ada Lovelace", 0.9, f1=1.0),
            answer("Ada", 0.7, f1=1.0),
            ("efficiency_only",),
        ),
        # what counts is what the rewards are made of: an answer that nothing supports is worth 0 here, whatever its F1
        (
            answer("Ada Lovelace", 0.9, rollouts=[{"f1": 1, "em": 1, "steps": 1, "outcome": 1.0}]),
            query("who", 0.0, rollouts=[{"f1": 1, "em": 1, "steps": 2, "outcome": 0.0}]),
            (),
        ),
        (
            answer("Ada Lovelace", 0.9, f1=1.0, outcome={"name": "evident_f1", "value": 1.0}),
            query("who", 0.5, rollouts=[{"f1": 0, "em": 0, "steps": 2, "outcome": 1.0}]),
            ("efficiency_only",),
        ),
    ],
)
def test_pairs_that_differ_only_in_length_or_style_are_tagged(
    first: Fields, second: Fields, tags: tuple[str, ...]
) -> None:
    """efficiency_only: equal mean outcome before the discount. style_only: answers that cover-EM cannot tell apart.

    A tag is said, not judged: the pair is kept.
    """
    pair = only(siblings(first, second))
    assert pair.tags == tags
    assert pair.dropped is None


def test_without_golden_answers_no_pair_is_said_to_differ_in_style_only() -> None:
    """Cover-EM tells no two answers apart where nothing is to be covered."""
    record = siblings(answer("Ada Lovelace", 0.9), answer("Charles Babbage", 0.2))
    assert only(record.model_copy(update={"golden_answers": []})).tags == ()


@pytest.mark.parametrize(
    ("reward", "tags"), [("spre", ()), ("spre_even", ("efficiency_only",)), ("spre_even+judge", ())]
)
def test_only_length_differs_if_the_outcomes_that_rewards_are_made_of_are_equal(
    reward: str, tags: tuple[str, ...]
) -> None:
    """With rewards in which every draw of a state weighs the same, outcomes are compared so: below the first step one
    right draw was explored twice and a wrong one once (2/3 of the answers), of the second one of two answers is right;
    both are worth one half. A judge looks at more than outcomes."""
    uneven = query("who", 0.405, expected_outcome=0.5, rollouts=rollouts_of(1, 2, 2) + rollouts_of(0, 2))
    even = query("what", 0.36, expected_outcome=0.5, rollouts=rollouts_of(1, 3) + rollouts_of(0, 2))
    record = siblings(uneven, even)
    judged_by = {"reward": reward, "judge_weight": 0.5 if "judge" in reward else 0.0}
    recipe = record.recipe.model_copy(update=judged_by)
    assert only(record.model_copy(update={"recipe": recipe}), min_margin=0.01).tags == tags


# -- how sure a pair is -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "observed"),
    [
        (query("who", 0.9), query("what", 0.0), ((1.0, 1), (0.0, 1))),
        (query("who", 0.9, observations=4), query("what", 0.45, observations=2), ((1.0, 4), (0.5, 2))),
        (query("who", 0.45), answer("Ada", 0.9, observations=3), ((1.0, 3), (0.5, 1))),
        # where the record does not say, the continuations that came to an answer stand for them
        (query("who", 0.9, rollouts=rollouts_of(1, 1, 1)), query("what", 0.0), ((1.0, 2), (0.0, 1))),
        # labels that are no estimate of SPRE may be greater than a right answer could make them
        (query("who", 0.95), query("what", 0.0), ((1.0, 1), (0.0, 1))),
    ],
)
def test_a_pair_is_as_sure_as_the_continuations_its_rewards_rest_on(
    first: Fields, second: Fields, observed: tuple[tuple[float, int], tuple[float, int]]
) -> None:
    """Each side counts with its reward as a share of the greatest there could be, .9 here in layer 0 (alpha .9), and
    with the number of continuations below it, at least one."""
    assert only(siblings(first, second)).confidence == pytest.approx(confidence(*observed))


def test_what_a_reward_could_be_at_most_depends_on_its_layer() -> None:
    """In layer 1 a right answer is worth .81 at best, however margins are measured."""
    for by_layer in (True, False):
        deep = tree(
            [0, 1, 1], [query("who", 0.5), answer("Ada", 0.81), answer("Bob", 0.405)], alpha=0.9, by_layer=by_layer
        )
        assert only(deep).confidence == pytest.approx(confidence((1.0, 1), (0.5, 1)))


@pytest.mark.parametrize(
    ("first", "second"), [(query("who", None), query("what", 0.5)), (malformed("?!", reward=None), query("what", 0.5))]
)
def test_nothing_is_said_of_a_pair_with_an_unvalued_side(first: Fields, second: Fields) -> None:
    """None, not one half: there is no estimate to be sure of."""
    assert only(siblings(first, second)).confidence is None


@pytest.mark.parametrize(
    ("min_confidence", "reason"), [(0.0, None), (0.5, None), (0.89, None), (0.92, "uncertain"), (1.0, "uncertain")]
)
def test_how_sure_a_pair_must_be_is_set_by_the_user(min_confidence: float, reason: str | None) -> None:
    """One right against one wrong continuation: 1/2 + 4/pi**2 = .905."""
    assert only(siblings(query("who", 0.9), query("what", 0.0)), min_confidence=min_confidence).dropped == reason


def test_a_lucky_step_is_no_better_than_a_proven_one() -> None:
    """.9 of the best after one continuation, .8 after fifty: the mean of the first posterior is (.5 + .9) / 2 = .7, so
    the second step is the likelier to be better, and the pair that rewards would make is uncertain."""
    lucky = siblings(query("who", 0.81, observations=1), query("what", 0.72, observations=50))
    assert judged(lucky, min_margin=0.05) == {(1, 2): "uncertain"}
    assert judged(lucky, min_margin=0.05, min_confidence=0.0) == {(1, 2): None}


# -- several pairs in one state -----------------------------------------------------------------------------------


def test_a_state_is_what_the_agent_has_seen() -> None:
    """Two queries with the same words lead to one state: what follows the one and the other are siblings, with one pair
    at most for both of them, not one for each."""
    seen = {"prompt": [{"role": "system", "content": "read"}, {"role": "user", "content": "Question: Who? .."}]}
    other = {"prompt": [{"role": "system", "content": "read"}, {"role": "user", "content": "Question: Who? else"}]}
    record = tree(
        [0, 0, 0, 1, 1, 2, 3],
        [
            *(query("who", 0.5), query("who", 0.4), query("else", 0.3)),
            *(evidence("a", 0.81, **seen), evidence("b", 0.3, **seen), evidence("c", 0.0, **seen)),
            evidence("d", 0.9, **other),
        ],
    )
    of_evidence = {pair: dropped for pair, dropped in judged(record, max_pairs_per_state=1).items() if pair[0] > 3}
    assert of_evidence == {(4, 6): None, (4, 5): "not_surest", (5, 6): "not_surest"}


def four_queries() -> RolloutRecord:
    """Right after 8 continuations, right after 1, wrong after 4, wrong after 1.

    More evidence is surer, so 1 > 3 (8 and 4) before 1 > 4 (8 and 1) before 2 > 3 (1 and 4) before 2 > 4 (1 and 1).
    1 > 2 and 3 > 4 have no margin; of them 1 is rather better than 2, and 3 rather worse than 4.
    """
    return siblings(
        query("a", 0.9, observations=8),
        query("b", 0.9, observations=1),
        query("c", 0.0, observations=4),
        query("d", 0.0, observations=1),
    )


def test_candidates_of_a_state_come_by_falling_confidence_and_states_by_creation() -> None:
    """A deeper state with a surer pair still comes later."""
    order = [ids(each) for each in candidates(four_queries(), PairingRules())]
    assert order == [(1, 3), (1, 4), (2, 3), (2, 4), (1, 2), (3, 4)]
    two_states = tree(
        [0, 0, 1, 1],
        [query("a", 0.5), query("b", 0.3), evidence("e", 0.0, observations=9), evidence("f", 0.8, observations=9)],
    )
    assert [ids(each) for each in candidates(two_states, PairingRules())] == [(1, 2), (4, 3)]


def test_equally_sure_pairs_come_in_the_order_of_their_steps() -> None:
    """By id of chosen, then rejected: the same tree always gives the same file."""
    equal = siblings(query("a", 0.0), query("b", 0.9), query("c", 0.0), query("d", 0.9))
    order = [ids(each) for each in candidates(equal, PairingRules()) if each.margin]
    assert order == [(2, 1), (2, 3), (4, 1), (4, 3)]


@pytest.mark.parametrize(
    ("most", "not_surest"),
    [(1, {(1, 4), (2, 3), (2, 4)}), (3, {(2, 4)}), (4, set()), (None, set())],
)
def test_of_a_state_the_surest_pairs_are_kept(most: int | None, not_surest: set[Pair]) -> None:
    """As many as the user says; None keeps them all. What is no pair anyway takes no place."""
    found = judged(four_queries(), max_pairs_per_state=most)
    assert found == {
        (1, 2): "small_margin",
        (3, 4): "small_margin",
        **{pair: "not_surest" if pair in not_surest else None for pair in [(1, 3), (1, 4), (2, 3), (2, 4)]},
    }


def test_without_a_limit_every_valid_candidate_is_kept() -> None:
    """Nothing is dropped for another pair's sake that says another thing, and everything else as before."""
    three = siblings(query("a", 0.8), query("b", 0.5), query("B", 0.2), query("d", None))
    assert judged(three, max_pairs_per_state=None) == {
        (1, 2): None,
        (1, 3): None,
        (2, 3): "same_content",
        (1, 4): "unvalued",
        (2, 4): "unvalued",
        (3, 4): "unvalued",
    }


def test_the_surest_valid_pair_is_kept_where_the_surest_is_not_valid() -> None:
    """Best and worst say the same here, so the next takes its place."""
    three = siblings(query("who", 0.9), query("what", 0.4), query("WHO", 0.1))
    assert judged(three, max_pairs_per_state=1) == {(1, 3): "same_content", (1, 2): None, (2, 3): "not_surest"}


def test_steps_that_share_one_estimate_are_no_pair() -> None:
    """3 and 4 say the same as 1, in other words: nothing is known that would prefer one of them. 2 says another thing
    than all three, and one pair says so, the surest; the others would only repeat it."""
    twins = siblings(
        query("who", 0.9),
        query("what", 0.0),
        query("who?", 0.5, same_as=1),
        query("who then", 0.4, same_as=1),
    )
    assert judged(twins, max_pairs_per_state=None) == {
        (1, 2): None,
        (3, 2): "same_content",
        (4, 2): "same_content",
        (1, 3): "same_content",
        (1, 4): "same_content",
        (3, 4): "same_content",
    }


def test_what_twins_say_is_one_pair_with_the_step_that_was_explored() -> None:
    """`who` and `who?` share one estimate, as do `what` and `what?`: of four equal pairs the one without a
    borrowed estimate is kept, although 1 and 2 are the earlier ones. Of the two places of the state the second is
    left for `where`, over `what`, which is surer than `who` over `where`; what the twins would add is the same."""
    twins = siblings(
        query("who?", 0.9, same_as=3),
        query("what?", 0.0, same_as=4),
        query("who", 0.9),
        query("what", 0.0),
        query("where", 0.63),
    )
    assert judged(twins, max_pairs_per_state=2) == {
        (3, 4): None,
        **dict.fromkeys([(1, 2), (1, 4), (3, 2)], "same_content"),
        (5, 4): None,
        (5, 2): "same_content",
        (3, 5): "not_surest",
        (1, 5): "same_content",
        **dict.fromkeys([(1, 3), (2, 4)], "same_content"),
    }


def test_twins_are_one_pair_whichever_of_them_is_the_better() -> None:
    """A pair of a state is known by what its two sides say: `who` over `what` is kept once, not once for each wording,
    in another state once more."""
    two_states = tree(
        [0, 0, 0, 1, 1, 1],
        [
            *(query("who", 0.9), query("what", 0.0), query("what?", 0.0, same_as=2)),
            *(evidence("e", 0.8), evidence("f", 0.0), evidence("f!", 0.0, same_as=5)),
        ],
    )
    kept = [pair for pair, verdict in judged(two_states, max_pairs_per_state=None).items() if verdict is None]
    assert kept == [(1, 2), (4, 5)]


def test_each_state_has_its_own_surest_pair() -> None:
    """A pair in one state takes no place in another."""
    two_states = tree(
        [0, 0, 1, 1, 2, 2],
        [query("a", 0.9), query("b", 0.1)] + [evidence(text, reward) for text in "cd" for reward in (0.8, 0.2)],
    )
    rules = rules_of(max_pairs_per_state=1)
    contents = {(each.chosen.parent_id, each.dropped) for each in candidates(two_states, rules)}
    assert contents == {(0, None), (1, "same_content"), (2, "same_content")}


@pytest.mark.parametrize("children", [0, 1])
def test_a_state_with_fewer_than_two_steps_has_no_candidates(children: int) -> None:
    """A pair takes two."""
    assert judged(siblings(*[query("alone", 0.9)] * children)) == {}


def test_a_failed_question_has_no_candidates() -> None:
    """An error line has no nodes, hence no pairs."""
    failed = siblings().model_copy(update={"nodes": []})
    assert judged(failed) == {}


# -- laws ---------------------------------------------------------------------------------------------------------

random_steps = st.fixed_dictionaries(
    {
        "action_type": st.sampled_from(["query", "evidence", "answer", None]),
        "content": st.sampled_from(["Ada Lovelace", "ada  lovelace", "Ada", "Bob", None]),
        "response": st.sampled_from(["one", "two"]),
        "reward": st.none() | st.floats(0, 1) | st.sampled_from([0.0, 0.5, 0.505, 0.9]),
        "parse_error": st.sampled_from([None, None, None, UNPARSED]),
        "observations": st.none() | st.integers(1, 9),
        "same_as": st.sampled_from([None, None, 1]),
        "rollouts": st.lists(st.builds(lambda f1: rollouts_of(f1, 2)[0], st.sampled_from([0.0, 0.5, 1.0])), max_size=2),
    }
)

rules = st.builds(
    PairingRules,
    min_margin=st.sampled_from([0.0, 0.01, 0.3]),
    min_confidence=st.sampled_from([0.0, 0.5, 0.7]),
    max_pairs_per_state=st.none() | st.integers(1, 3),
    allow_malformed=st.booleans(),
)


@st.composite
def random_trees(draw: st.DrawFn) -> RolloutRecord:
    steps = draw(st.lists(random_steps, max_size=9))
    parents = [draw(st.integers(0, child)) for child in range(len(steps))]
    return tree(parents, steps, alpha=draw(st.sampled_from([0.5, 0.9, 1.0])), by_layer=draw(st.booleans()))


@given(rollout=random_trees(), how=rules)
def test_every_two_siblings_are_a_candidate_once(rollout: RolloutRecord, how: PairingRules) -> None:
    """A state with k steps has k(k - 1)/2 candidates, each kept or dropped under one reason: nothing is lost."""
    found = Counter(frozenset(ids(each)) for each in candidates(rollout, how))
    wanted = [frozenset(pair) for node in rollout.nodes for pair in combinations(node.children_ids, 2)]
    assert found == Counter(wanted)


@given(rollout=random_trees(), how=rules)
def test_a_kept_pair_prefers_the_better_step(rollout: RolloutRecord, how: PairingRules) -> None:
    """Chosen reward > rejected reward, by the smallest margin at least, and as surely as is asked; the chosen step
    parsed and says another thing.

    What may be rejected besides is a step that did not parse, where the user allows it.
    """
    for pair in candidates(rollout, how):
        if pair.dropped is None:
            assert pair.chosen.reward is not None
            assert pair.rejected.reward is not None
            assert pair.chosen.reward > pair.rejected.reward
            assert pair.margin >= how.min_margin
            assert pair.confidence is not None
            assert pair.confidence >= how.min_confidence
            assert pair.chosen.parse_error is None
            assert how.allow_malformed or pair.rejected.parse_error is None
            assert what_is_said(pair.chosen) != what_is_said(pair.rejected)
            assert pair.chosen.same_as is None or pair.chosen.same_as != pair.rejected.same_as
            assert pair.chosen.id != pair.rejected.same_as
            assert pair.rejected.id != pair.chosen.same_as


@given(rollout=random_trees(), how=rules)
def test_the_margin_is_the_difference_of_rewards_over_the_discount(rollout: RolloutRecord, how: PairingRules) -> None:
    """Where both are valued; 0 where they are not."""
    for pair in candidates(rollout, how):
        expected = 0.0
        if pair.chosen.reward is not None and pair.rejected.reward is not None:
            scale = rollout.recipe.alpha**pair.layer if rollout.recipe.margin_by_layer else 1.0
            expected = (pair.chosen.reward - pair.rejected.reward) / scale
        assert pair.margin == pytest.approx(expected)


@given(rollout=random_trees(), how=rules)
def test_confidence_falls_within_a_state(rollout: RolloutRecord, how: PairingRules) -> None:
    """The surest candidate of a state comes first, those of which nothing is known last."""
    for before, after in pairwise(candidates(rollout, how)):
        if before.chosen.parent_id == after.chosen.parent_id:
            assert (before.confidence or 0.0) >= (after.confidence or 0.0)


@given(rollout=random_trees(), how=rules)
def test_the_surest_are_all_pairs_up_to_the_limit(rollout: RolloutRecord, how: PairingRules) -> None:
    """With a limit every state keeps the first of the pairs that it would keep without; the other ones are not_surest,
    and what repeats one of them stays same_content: nothing else changes."""
    everything = list(candidates(rollout, replace(how, max_pairs_per_state=None)))
    surest = list(candidates(rollout, how))
    assert [ids(each) for each in surest] == [ids(each) for each in everything]
    kept: Counter[int | None] = Counter()
    for each, limited in zip(everything, surest, strict=True):
        full = how.max_pairs_per_state is not None and kept[each.chosen.parent_id] >= how.max_pairs_per_state
        assert limited.dropped == ("not_surest" if each.dropped is None and full else each.dropped)
        kept[each.chosen.parent_id] += each.dropped is None


@given(rollout=random_trees(), how=rules, data=st.data())
def test_rewards_alone_decide_which_sibling_is_chosen(
    rollout: RolloutRecord, how: PairingRules, data: st.DataObject
) -> None:
    """Visits and values of the search, of whatever recipe, change no candidate."""
    other = [
        node.model_copy(update={"visits": data.draw(st.integers(0, 64)), "value": data.draw(st.floats(0, 1))})
        for node in rollout.nodes
    ]
    revisited = rollout.model_copy(update={"nodes": other})
    before = [(ids(each), each.margin, each.tags, each.dropped) for each in candidates(rollout, how)]
    assert [(ids(each), each.margin, each.tags, each.dropped) for each in candidates(revisited, how)] == before


# -- gold passages ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [
        (query("who", 0.9, gold=1), query("what", 0.1, gold=0), "right"),
        (query("who", 0.1, gold=1), query("what", 0.9, gold=0), "wrong"),
        (query("who", 0.9, gold=0), query("what", 0.1, gold=0), "tie"),
        (evidence("she did", 0.9, gold=2), evidence("None", 0.1, gold=1), "right"),
        (evidence("None", 0.9, gold=0), evidence("she did", 0.1, gold=1), "wrong"),
        (query("who", 0.9, gold=1), query("what", 0.1), "unknown"),
        (query("who", 0.9), query("what", 0.1), "unknown"),
        (query("who", 0.9, gold=1), answer("Ada", 0.1), "unknown"),
        (answer("Ada", 0.9), answer("Bob", 0.1), "unknown"),
    ],
)
def test_gold_passages_say_whether_a_pair_is_right(first: Fields, second: Fields, verdict: str) -> None:
    """The chosen query or evidence has more of them; two types, or what nobody looked up, cannot be compared."""
    assert only(siblings(first, second)).gold == verdict


def test_gold_passages_choose_no_pair() -> None:
    """They check labels and never make them: with or without, the same pairs in the same order."""
    plain = siblings(query("a", 0.9), query("b", 0.5), query("c", 0.1))
    gold = siblings(query("a", 0.9, gold=0), query("b", 0.5, gold=2), query("c", 0.1, gold=1))
    assert judged(plain) == judged(gold)
