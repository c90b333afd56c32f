"""What is known of siblings: which is better, by how much, how sure that is, and how alike they are."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preference import Message, Origin, RolloutRecord, StateRecord, cover_em
from preference.candidate_records import PairRecord
from preference.labelling import labelled_states, origin_of, own_outcomes, with_judge_label, with_outcome_label
from preference.margin_and_confidence import confidence
from preference.records import state_key
from preference.similarity import similarity
from tests.helpers.trees import (
    THINK,
    Fields,
    Pair,
    WordCounter,
    answer,
    bare,
    evidence,
    malformed,
    prompt,
    query,
    random_trees,
    rollouts_of,
    siblings,
    tree,
)


def pairs(rollout: RolloutRecord) -> list[PairRecord]:
    return [pair for state in labelled_states(rollout) for pair in state.pairs]


def ids(pair: PairRecord) -> Pair:
    return pair.chosen, pair.rejected


def only(rollout: RolloutRecord) -> PairRecord:
    (pair,) = pairs(rollout)
    return pair


# -- which is better ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "pair"),
    [
        (query("who", 0.1), query("what", 0.9), (2, 1)),
        (query("who", 0.5), query("what", 0.5), (1, 2)),  # the earlier one of equals
        (query("who", None), query("what", 0.0), (2, 1)),  # what nobody valued comes last
        (malformed("?!", 0.9), query("who", 0.0), (2, 1)),  # but for what did not parse
        (malformed("?!", 0.0), malformed("!?", 0.5), (2, 1)),
    ],
)
def test_the_sibling_with_the_higher_reward_is_chosen(first: Fields, second: Fields, pair: Pair) -> None:
    """Whatever their order and types: parsed before malformed, valued before unvalued."""
    found = only(siblings(first, second))
    assert ids(found) == pair
    assert found.label == "value"
    assert found.same_type == (first.get("action_type") == second.get("action_type"))


def test_margins_are_numbers_in_any_layer() -> None:
    """However deep a tree is, and however small its alpha, what is worth nothing differs by nothing."""
    deep = tree([*range(1500), 1499], [query(str(n), 0.0) for n in range(1501)], alpha=0.5)
    assert (only(deep).margin, only(deep).confidence) == (0.0, pytest.approx(0.5))


# -- by outcome ---------------------------------------------------------------------------------------------------

SEVEN_STEPS = tree(
    [0, 0, 1, 2, 3, 3, 4],
    [
        query("who", 0.45, rollouts=rollouts_of(0, 3) + rollouts_of(1, 3)),
        query("what", 0.3, rollouts=rollouts_of(0.4, 3)),
        evidence("she", 0.45, rollouts=rollouts_of(0, 3) + rollouts_of(1, 3)),
        evidence("he", 0.3, rollouts=rollouts_of(0.4, 3)),
        answer("Bob", 0.0, f1=0.0, rollouts=rollouts_of(0, 3)),
        answer("Ada Lovelace", 0.9, f1=1.0, rollouts=rollouts_of(1, 3)),
        answer("Ada", 0.3, f1=0.4, rollouts=rollouts_of(0.4, 3)),
    ],
)
"""who -> she -> Bob (0), then Ada Lovelace (1); what -> he -> Ada (.4)."""


def test_by_outcome_a_step_is_worth_the_trajectory_in_which_it_was_first_drawn() -> None:
    """Values prefer `who`, of whose two answers one is right; by outcome it is worth its first one. Margins are plain
    differences in any layer."""
    assert own_outcomes(SEVEN_STEPS)[1:] == [0, 0.4, 0, 0.4, 0, 1, 0.4]
    states = list(labelled_states(SEVEN_STEPS))
    assert [ids(pair) for state in states for pair in state.pairs] == [(1, 2), (6, 5)]
    found = [pair for state in states for pair in with_outcome_label(state).pairs]
    assert [(ids(pair), pair.label, pair.margin, pair.confidence) for pair in found] == [
        ((2, 1), "outcome", 0.4, None),
        ((6, 5), "outcome", 1.0, None),
    ]


def test_a_first_continuation_whose_steps_are_not_nodes_is_a_step_s_own() -> None:
    """`who` was continued to a right answer before `Bob` was drawn below it; `what` was only continued, `how` never. An
    end of unknown quality is none."""
    parents = [0, 0, 0, 0, 1, 4]
    steps = [
        query("who", 0.4, rollouts=rollouts_of(1, 3) + rollouts_of(0, 2)),
        query("what", 0.4, rollouts=rollouts_of(0.5, 3) + rollouts_of(1, 3)),
        query("how", None),
        query("why", None),
        answer("Bob", 0.0, f1=0.0, rollouts=rollouts_of(0, 2)),
        answer("Eve", None, f1=1.0, outcome={"name": "judge", "value": None}),
    ]
    assert own_outcomes(tree(parents, steps))[1:] == [1, 0.5, None, None, 0, None]


@pytest.mark.parametrize(
    ("first", "second", "pair", "margin"),
    [
        (answer("Ada", 0.1, f1=0.5), answer("Bob", 0.9, f1=0.0), (1, 2), 0.5),
        (answer("Ada", 0.1, f1=0.5), answer("Bob", 0.9, f1=0.5), (1, 2), 0.0),
        (answer("Ada", 0.1), answer("Bob", 0.0, f1=0.0), (2, 1), None),
        (malformed("?!", 0.9, f1=1.0), answer("Bob", 0.0, f1=0.0), (2, 1), -1.0),
    ],
)
def test_by_outcome_the_better_end_is_chosen(first: Fields, second: Fields, pair: Pair, margin: float | None) -> None:
    """As by values: the earlier one of equals, a known end before an unknown one, parsed before malformed."""
    [state] = labelled_states(siblings(first, second))
    [found] = with_outcome_label(state).pairs
    assert (ids(found), found.margin) == (pair, margin)


@given(record=random_trees(), seed=st.integers(0, 3))
def test_labels_by_outcome_do_not_depend_on_earlier_ones(record: RolloutRecord, seed: int) -> None:
    """Of a judge or by outcome; all pairs stay, and every line can be read again."""
    for state in labelled_states(record):
        judged = with_judge_label(state, ids(state.pairs[seed % len(state.pairs)])[::-1])
        found = with_outcome_label(state)
        assert with_outcome_label(judged) == with_outcome_label(found) == found
        assert {pair.pair_id for pair in found.pairs} == {pair.pair_id for pair in state.pairs}
        assert StateRecord.model_validate_json(found.to_line()) == found


# -- tags ---------------------------------------------------------------------------------------------------------

CHOSEN: Fields = {"name": "choice", "value": 1.0}
WRONG: Fields = CHOSEN | {"value": 0.0}


def ended(**fields: float) -> list[Fields]:
    return [{"em": 0.0, "steps": 2} | fields]


@pytest.mark.parametrize(
    ("first", "second", "tagged"),
    [
        ({"rollouts": rollouts_of(1, 1)}, {"rollouts": rollouts_of(1, 3, 3)}, True),  # always right, in 1 step and in 3
        ({"rollouts": rollouts_of(1, 3)}, {"rollouts": rollouts_of(1, 3) + rollouts_of(0, 3)}, False),
        # .15 twice against .1 and .2: the same mean but for the last bit
        ({"rollouts": rollouts_of(0.15, 1, 1)}, {"rollouts": rollouts_of(0.1, 3) + rollouts_of(0.2, 3)}, True),
        ({}, {"rollouts": rollouts_of(1, 3)}, False),  # nothing is known about one of them
        ({"f1": 1.0}, {"f1": 1.0}, True),  # no continuation recorded: the step's own score stands for it
        # what counts is what the rewards are made of: what nothing supports is worth 0, whatever its F1
        ({"rollouts": ended(f1=1, outcome=1.0)}, {"rollouts": ended(f1=1, outcome=0.0)}, False),
        ({"f1": 0.5, "outcome": {"name": "judge", "value": 1.0}}, {"rollouts": ended(f1=0, outcome=1.0)}, True),
    ],
)
def test_pairs_that_differ_only_in_length_are_tagged(first: Fields, second: Fields, tagged: bool) -> None:
    """efficiency_only: equal mean outcome before the discount."""
    assert only(siblings(query("who", 0.9, **first), query("what", 0.5, **second))).tags == ["efficiency_only"] * tagged


@pytest.mark.parametrize(("reward", "tags"), [("spre", []), ("spre_even", ["efficiency_only"]), ("rank", [])])
def test_only_length_differs_if_the_outcomes_that_rewards_are_made_of_are_equal(reward: str, tags: list[str]) -> None:
    """With rewards in which every draw of a state weighs the same, outcomes are compared so: below the first step one
    right draw was explored twice and a wrong one once (2/3 of the answers), of the second one of two answers is right;
    both are worth one half. A judge looks at more than outcomes."""
    uneven = query("who", 0.405, expected_outcome=0.5, rollouts=rollouts_of(1, 2, 2) + rollouts_of(0, 2))
    even = query("what", 0.36, expected_outcome=0.5, rollouts=rollouts_of(1, 3) + rollouts_of(0, 2))
    record = siblings(uneven, even)
    recipe = record.recipe.model_copy(update={"reward": reward})
    assert only(record.model_copy(update={"recipe": recipe})).tags == tags


@pytest.mark.parametrize(
    ("first", "second", "tags"),
    [
        (query("who", 0.9, observations=1), query("what", 0.1, observations=1), ["one_draw"]),
        (query("who", 0.9, observations=1), answer("Bob", 0.1, observations=1), ["one_draw"]),
        (query("who", 0.9, observations=1), query("what", 0.1, observations=2), []),
        (answer("Ada Lovelace", 0.9, observations=1), answer("Bob", 0.1, observations=1), []),
        (query("who", None, observations=1), query("what", 0.1, observations=1), []),
    ],
)
def test_pairs_that_rest_on_one_continuation_a_side_are_tagged(first: Fields, second: Fields, tags: list[str]) -> None:
    """As far as the record says it; a label that the values did not make does not rest on them."""
    record = siblings(first, second)
    assert only(record).tags == tags
    [state] = labelled_states(record)
    judged = with_judge_label(state, (1, 2))
    assert judged.pairs[0].tags == with_outcome_label(state).pairs[0].tags == []
    by_judge = record.recipe.model_copy(update={"reward": "rank"})
    assert only(record.model_copy(update={"recipe": by_judge})).tags == []


# -- how sure a pair is -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "observed"),
    [
        (query("who", 0.9), query("what", 0.0), ((1.0, 1), (0.0, 1))),
        (answer("Bob", 0.45), answer("Ada", 0.9, observations=3), ((1.0, 3), (0.5, 1))),
        # an answer's draws weigh half against a step of another type
        (query("who", 0.45), answer("Ada", 0.9, observations=3), ((1.0, 1.5), (0.5, 1))),
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


@pytest.mark.parametrize(("shorter_by", "tags"), [(0, ["prompt_cut"]), (50, ["prompt_cut"]), (-1, []), (None, [])])
def test_pairs_of_a_state_whose_prompt_was_cut_are_tagged(shorter_by: int | None, tags: list[str]) -> None:
    """Those of the length from which it was, in bytes, and of longer ones."""
    rollout = siblings(query("who", 0.9), query("what", 0.1))
    size = sum(len(turn.content.encode()) for turn in rollout.nodes[1].prompt or ())
    cut_from = None if shorter_by is None else size - shorter_by
    [state] = labelled_states(rollout, Origin(dataset="d", split="train", cut_from=cut_from))
    assert [pair.tags for pair in state.pairs] == [tags]


# -- how alike they are -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "field", "value"),
    [
        # same type and text, or one estimate for both
        (query("who", 0.9), query("  WHO\n", 0.1), "same", True),  # case and spaces do not matter
        (query("who", 0.9), query("who?", 0.1, same_as=1), "same", True),  # unless search took them for one
        (query("who", 0.9), answer("who", 0.1), "same", False),  # another type is another content
        (answer("", 0.9, response="one"), answer("", 0.1, response="two"), "same", True),
        (bare("one", 0.9), bare("two", 0.1), "same", False),  # where there is no content, the whole reply stands for it
        # gold passages: the chosen query or evidence has more; steps of two types, or not looked up, cannot be compared
        (query("who", 0.9, gold=1), query("what", 0.1, gold=0), "gold", "right"),
        (evidence("she did", 0.9, gold=2), evidence("None", 0.1, gold=1), "gold", "right"),
        (query("who", 0.9, gold=1), query("what", 0.1), "gold", "unknown"),
        (query("who", 0.9, gold=1), answer("Ada", 0.1), "gold", "unknown"),
        # style_only: cover-EM cannot tell them apart, as it can letters, and an option whose text holds the right one's
        (answer("B", 0.9, em=1.0), answer("C", 0.0, em=0.0), "tags", []),
        (answer("B", 0.9, outcome=CHOSEN), answer("Ada Lovelace and Bob", 0.0, outcome=WRONG), "tags", []),
    ],
)
def test_what_is_known_of_two_siblings(first: Fields, second: Fields, field: str, value: object) -> None:
    """Whether they say the same, which has more gold passages, and whether only their style differs."""
    assert getattr(only(siblings(first, second)), field) == value


# -- states -------------------------------------------------------------------------------------------------------


def test_a_state_is_what_the_agent_has_seen() -> None:
    """Two queries with the same words lead to one state: what follows the one and the other are siblings."""
    seen, other = {"prompt": prompt("Question: Who? ..")}, {"prompt": prompt("Question: Who? else")}
    record = tree(
        [0, 0, 0, 1, 1, 2, 3],
        [
            *(query("who", 0.5), query("who", 0.4), query("else", 0.3)),
            *(evidence("a", 0.81, **seen), evidence("b", 0.3, **seen), evidence("c", 0.0, **seen)),
            evidence("d", 0.9, **other),
        ],
    )
    states = list(labelled_states(record))
    assert [[step.id for step in state.steps] for state in states] == [[1, 2, 3], [4, 5, 6]]
    assert {ids(pair) for pair in states[1].pairs} == {(4, 5), (4, 6), (5, 6)}


def test_equally_sure_pairs_come_in_the_order_of_their_steps() -> None:
    """By id of chosen, then rejected: the same tree always gives the same file."""
    equal = siblings(query("a", 0.0), query("b", 0.9), query("c", 0.0), query("d", 0.9))
    assert [ids(pair) for pair in pairs(equal) if pair.margin] == [(2, 1), (2, 3), (4, 1), (4, 3)]


def test_a_state_holds_what_filters_and_formats_need() -> None:
    """Prompt, layer, action, lengths, where it comes from; of every step what search and checks know of it."""
    first = query("who", 0.9, visits=3, rollouts=rollouts_of(1, 2, 2), grounded=True, gold=1, observations=2.5)
    record = siblings(first | {"action": "think"}, malformed("what is this", repaired=True), renderer="r1")
    (state,) = labelled_states(record, tokens=WordCounter())
    turns = [Message(role="system", content=THINK), Message(role="user", content=f"Question: {record.question}")]
    step, other = state.steps
    assert (state.question_id, state.question, state.golden_answers) == ("q1", record.question, ["Ada Lovelace"])
    assert (state.layer, state.action, state.prompt, state.tokens) == (0, "think", turns, 13)
    assert (state.state_id, state.origin) == (state_key(turns), origin_of(record))
    assert step.model_dump(exclude_defaults=True) == {
        "id": 1,
        "action_type": "query",
        "content": "who",
        "response": "So <query>who</query>",
        "reward": 0.9,
        "own_outcome": 1.0,
        "grounded": True,
        "gold": 1,
        "visits": 3,
        "rollouts": 2,
        "observations": 2.5,
        "tokens": 3,
    }
    assert (other.content, other.parse_error, other.repaired, other.tokens) == (None, "no_tag", True, 4)


def test_what_a_record_says_of_itself_stands_over_what_is_known_beyond_it() -> None:
    """The run's configuration adds the teacher; data set, split and configuration are the record's own. What is known
    of one configuration is not said of another, whose records stand in the same file."""
    record = siblings(query("who", 0.9), query("what", 0.1), dataset="mine", split="dev")
    known = Origin(dataset="another", split="train", config_hash="0f", seed=1, teacher="m", renderer="r1", top_k=3)
    own = Origin(dataset="mine", split="dev", config_hash="0f", seed=7, recipe="paper")
    assert origin_of(record) == own
    assert origin_of(record, known) == own.model_copy(update={"teacher": "m", "renderer": "r1", "top_k": 3})
    assert origin_of(record, known.model_copy(update={"config_hash": "ff"})) == own
    (state,) = labelled_states(record, known)
    assert state.origin == origin_of(record, known)


# -- laws ---------------------------------------------------------------------------------------------------------


@given(rollout=random_trees())
def test_every_two_siblings_are_a_pair_once_and_the_surest_comes_first(rollout: RolloutRecord) -> None:
    """Nothing is lost. The margin is the difference of rewards over the discount where both are valued, and never below
    0 unless a malformed step stands against a parsed one."""
    found = Counter(frozenset(ids(pair)) for pair in pairs(rollout))
    assert found == Counter(frozenset(two) for node in rollout.nodes for two in combinations(node.children_ids, 2))
    for state in labelled_states(rollout):
        sure = [pair.confidence or 0.0 for pair in state.pairs]
        assert sure == sorted(sure, reverse=True)
        for pair in state.pairs:
            chosen, rejected = rollout.nodes[pair.chosen], rollout.nodes[pair.rejected]
            if chosen.reward is None or rejected.reward is None:
                assert pair.margin is None
                continue
            scale = rollout.recipe.alpha**state.layer if rollout.recipe.margin_by_layer else 1.0
            assert pair.margin == pytest.approx((chosen.reward - rejected.reward) / scale)
            assert pair.margin >= 0 or (rejected.parse_error and not chosen.parse_error)


@given(rollout=random_trees())
def test_likeness_and_style_are_what_scoring_says(rollout: RolloutRecord) -> None:
    """Words are found out once for each step; the numbers are those of `similarity` and `cover_em`."""
    for pair in pairs(rollout):
        nodes = [rollout.nodes[each] for each in ids(pair)]
        said = [node.response or "" if node.content is None else node.content for node in nodes]
        texts = said if pair.same_type else [node.response or "" for node in nodes]
        assert pair.similarity == similarity(*texts)
        covered = {cover_em(each, rollout.golden_answers) for each in said}
        answers = all(node.action_type == "answer" for node in nodes)
        assert ("style_only" in pair.tags) == (answers and len(covered) == 1)


@given(rollout=random_trees(), data=st.data())
def test_rewards_alone_decide_which_sibling_is_chosen(rollout: RolloutRecord, data: st.DataObject) -> None:
    """Visits and values of the search, and gold passages, change no margin, tag or order."""
    other = [
        node.model_copy(
            update={
                "visits": data.draw(st.integers(0, 64)),
                "value": data.draw(st.floats(0, 1)),
                "gold": data.draw(st.none() | st.integers(0, 2)),
            }
        )
        for node in rollout.nodes
    ]
    revisited = rollout.model_copy(update={"nodes": other})
    assert [pair.model_copy(update={"gold": "unknown"}) for pair in pairs(revisited)] == pairs(rollout)


@pytest.mark.parametrize(
    ("recipe", "reward", "pooled"),
    [
        pytest.param("paper", "spre", True, id="rewards that are each step's own"),
        pytest.param("my-own", "spre", True, id="an unknown recipe"),
        pytest.param("economy", "outcome", True, id="another reward than the recipe's"),
        pytest.param("economy", "spre_even", False, id="rewards that are pooled already"),
    ],
)
@pytest.mark.parametrize("common", [0.5, 1.0])
def test_the_confidence_of_what_reveals_the_same_counts_each_observation_on_both_sides(
    recipe: str, reward: str, *, pooled: bool, common: float
) -> None:
    """By that share: four right against four wrong. Rewards and margin are as they were, and so is the other pair."""
    right, wrong = ({"observations": 4, "rollouts": rollouts_of(f1, 1)} for f1 in (1.0, 0.0))
    steps = query("who", 0.9, **right), query("what", 0.0, **wrong), query("where", 0.0, **wrong)
    apart = siblings(*steps, recipe={"name": recipe, "reward": reward, "alpha": 0.9, "margin_by_layer": True})
    shared = apart.model_copy(update={"nodes": [*apart.nodes]})
    shared.nodes[2] = apart.nodes[2].model_copy(update={"in_common": {1: common}})
    before, after = ({ids(each): each for each in pairs(record)} for record in (apart, shared))
    n = 4 + 4 * common
    sides = (4 / n, n), (4 * common / n, n)
    alone = confidence((1.0, 4.0), (0.0, 4.0))
    assert before[1, 2].confidence == before[1, 3].confidence == after[1, 3].confidence == alone
    assert after[1, 2].confidence == (confidence(*sides) if pooled else alone)
    assert [(each.margin, each.in_common) for each in (before[1, 2], after[1, 2])] == [(0.9, 0.0), (0.9, common)]


def test_what_a_repeat_reveals_is_what_the_step_it_repeats_reveals() -> None:
    """And a state without anything in common says nothing of it in its line."""
    first, second = query("who", 0.9, in_common={}), query("what", 0.5, in_common={1: 0.6})
    rollout = siblings(first, second, query("Who?", 0.9, same_as=1), query("where", 0.0))
    assert {ids(pair): pair.in_common for pair in pairs(rollout) if pair.in_common} == {(1, 2): 0.6, (3, 2): 0.6}
    assert {ids(pair) for pair in pairs(rollout) if "same_findings" in pair.tags} == {(1, 2), (3, 2)}
    for record, said in ((rollout, True), (siblings(first, query("what", 0.5)), False)):
        [state] = labelled_states(record)
        assert (b"in_common" in state.to_line()) == said
        assert StateRecord.model_validate_json(state.to_line()) == state
