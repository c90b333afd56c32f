"""Which candidates become pairs, and why the others do not."""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from preference import NO_FILTERS, Candidate, PairingRules, RolloutRecord, StateRecord, candidates
from preference.answer_scores import exact_match
from preference.candidate_records import StepRecord, Tag
from preference.filters import DROP_REASONS, DropReason, PassedPair, candidates_of, dropped_by_caps, select
from preference.labelling import labelled_states, with_judge_label, with_outcome_label
from tests.helpers.trees import (
    Fields,
    Pair,
    answer,
    evidence,
    four_queries,
    malformed,
    prompt,
    query,
    random_trees,
    rollouts_of,
    siblings,
    tree,
)

PUBLISHED_RULES = replace(NO_FILTERS, min_margin=0.01)


def ids(each: Candidate) -> Pair:
    return each.chosen.id, each.rejected.id


def judged(rollout: RolloutRecord, **rules: Any) -> dict[Pair, str | None]:
    """What becomes of each candidate, by (chosen, rejected), under rules that drop little, so that a test sees the one
    it is about."""
    how = PairingRules(**NO_FILTERS.flags | {"min_margin": 0.1, "min_confidence": 0.5} | rules)
    return {ids(each): each.dropped for each in candidates(rollout, how)}


def only(rollout: RolloutRecord, **rules: Any) -> str | None:
    (dropped,) = judged(rollout, **rules).values()
    return dropped


def fates(found: Iterable[Candidate]) -> Counter[str | None]:
    return Counter(each.dropped for each in found)


# -- golden answers -----------------------------------------------------------------------------------------------

UNSUPPORTED: Fields = {"in_evidence": False, "grounded": False}
SUPPORTED: Fields = {"in_evidence": True, "grounded": True}


@pytest.mark.parametrize(
    ("better", "worse", "dropped", "tags"),
    [
        (answer("Bob", 0.9, **SUPPORTED), answer("Ada Lovelace", 0.0, **UNSUPPORTED), None, ["golden_rejected"]),
        # of evidence and passages, evidence decides: a golden answer that stands in a passage is not yet reported
        (
            answer("Bob", 0.9, **SUPPORTED),
            answer("Ada Lovelace", 0.0, in_evidence=False, grounded=True),
            None,
            ["golden_rejected"],
        ),
        (answer("Bob", 0.9, grounded=True), answer("Ada Lovelace", 0.0, grounded=False), None, ["golden_rejected"]),
        (answer("Bob", 0.9, **SUPPORTED), answer("Ada Lovelace", 0.0, **SUPPORTED), "golden_rejected", []),
        (answer("Bob", 0.9), answer("Ada Lovelace", 0.0, **UNSUPPORTED), "golden_rejected", []),
        (answer("C", 0.9), answer("B", 0.0, em=1.0), "golden_rejected", []),  # the letter of the right option
        (answer("Bob", 0.9, **SUPPORTED), answer("Miss Ada Lovelace", 0.0, **UNSUPPORTED), None, []),  # only holds it
        (answer("Ada Lovelace", 0.9), answer("Bob", 0.0), None, []),
        (query("Bob", 0.9), answer("Ada Lovelace", 0.0), None, []),
    ],
)
def test_a_wrong_answer_is_preferred_to_a_golden_one_only_where_its_support_says_so(
    better: Fields, worse: Fields, dropped: str | None, tags: list[str]
) -> None:
    """It is then tagged, else dropped, with any label; pairs of published files are not changed."""
    (state,) = labelled_states(siblings(better | {"own_outcome": 1.0}, worse | {"own_outcome": 0.0}))
    by_judge = with_judge_label(state, (1, 2))
    turned_twice = with_judge_label(with_judge_label(state, (2, 1)), (1, 2))
    for labelled in (state, by_judge, turned_twice, StateRecord.model_validate_json(state.to_line())):
        (each,) = select([labelled], replace(NO_FILTERS, min_margin=0.1))
        assert (ids(each), each.dropped) == ((1, 2), dropped)
        assert [tag for tag in each.pair.tags if tag == "golden_rejected"] == tags
    published = state.model_copy(update={"pairs": [state.pairs[0].model_copy(update={"label": "imported"})]})
    assert [each.dropped for each in select([published], NO_FILTERS)] == [None]


def is_golden(step: StepRecord) -> bool:
    return step.em == 1 or bool(exact_match(step.content or "", ["Ada Lovelace"]))


@given(rollout=random_trees(), pick=st.integers(0, 99))
def test_no_kept_pair_prefers_a_wrong_answer_to_a_golden_one_untold(rollout: RolloutRecord, pick: int) -> None:
    """Whatever the tree, and whether values, outcomes or a judge label its pairs, with filters and without."""
    states = list(labelled_states(rollout))
    by_outcome = [with_outcome_label(state) for state in states]
    judges = [with_judge_label(state, ids_of_any(state, pick)) for state in states]
    for labelled, rules in product((states, by_outcome, judges), (PairingRules(), NO_FILTERS)):
        for each in select(labelled, rules):
            if each.dropped is None and each.types == ("answer", "answer") and is_golden(each.rejected):
                assert is_golden(each.chosen) or "golden_rejected" in each.pair.tags


def ids_of_any(state: StateRecord, pick: int) -> Pair:
    pair = state.pairs[pick % len(state.pairs)]
    return (pair.chosen, pair.rejected) if pick % 2 else (pair.rejected, pair.chosen)


# -- one pair -----------------------------------------------------------------------------------------------------

ONCE, OFTEN = {"observations": 1}, {"observations": 3}
SEARCHED = (
    "Question: q <query>x</query>\nPrevious Thoughts: So <query>Who was the first?</query> Then <query>Where</query>"
)
HERE: Fields = {"prompt": prompt(SEARCHED)}
CALL = '<tool_call>\n{"name": "search", "arguments": {"query": "the \\"first\\""}}\n</tool_call>'
CALLED: Fields = {"prompt": [*prompt("Question: q"), {"role": "assistant", "content": CALL}, prompt("Nothing")[1]]}
NINE = "birth place of Ada Lovelace who wrote first program"
NOT_AGAIN = {"allow_repeated_query": False}


@pytest.mark.parametrize(
    ("first", "second", "rules", "reason"),
    [
        # the margin: the minimum is enough (.75 - .5 = .25), zero never is, however the rewards were computed
        (query("who", 0.75), query("what", 0.5), {"min_margin": 0.25}, None),
        (query("who", 0.3), query("what", 0.1 + 0.2), {"min_margin": 0.0}, "small_margin"),
        # the confidence: one right against one wrong continuation is 1/2 + 4/pi**2 = .905
        (query("who", 0.9), query("what", 0.0), {"min_confidence": 0.89}, None),
        # .9 of the best after one continuation, .8 after fifty: the second step is the likelier to be better
        (query("who", 0.81, **ONCE), query("what", 0.72, observations=50), {"min_margin": 0.05}, "uncertain"),
        # the content: sides of two types never say the same
        (query("who", 0.9), answer("who", 0.1), {}, None),
        # what did not parse may be rejected if the user says so, where its reward is really lower, but never chosen
        (malformed("?!"), query("who", 0.9), {"allow_malformed": True}, None),
        (query("who", 0.0), malformed("?!"), {"allow_malformed": True}, "small_margin"),
        (malformed("?!", reward=0.5), query("who", 0.1), {"allow_malformed": True}, "small_margin"),
        (malformed("?!"), malformed("!?", reward=0.5), {"allow_malformed": True}, "malformed"),
        # how often each side was continued: copies of one reply were explored once, scores of answers are exact, and
        # what a record does not say drops nothing
        (query("who", 0.9, **ONCE), query("what", 0.0, **ONCE), {"min_draws": 1}, None),
        (query("who", 0.9, **OFTEN), query("what", 0.0, observations=1.8), {"min_draws": 2}, "few_draws"),
        (answer("Ada Lovelace", 0.9, **ONCE), answer("Bob", 0.0, **ONCE), {"min_draws": 2}, None),
        (query("who", 0.9), query("what", 0.0), {"min_draws": 2}, None),
        # support: a step without support may be rejected; a row of unknown support is kept
        (evidence("she", 0.9, grounded=True), evidence("he", 0.1, grounded=False), {"allow_ungrounded": False}, None),
        # queries of the path, by the prompt alone, so for imported rows too; one may be rejected
        (query("who was first", 0.9, **HERE), query("when", 0.1, **HERE), NOT_AGAIN, "repeated_query"),
        (query("where", 0.9, **HERE), query("when", 0.1, **HERE), NOT_AGAIN, "repeated_query"),
        (query("The first?", 0.9, **CALLED), query("when", 0.1, **CALLED), NOT_AGAIN, "repeated_query"),
        (query("where", 0.9, **HERE), query("when", 0.1, **HERE), {"allow_repeated_query": True}, None),
        (query("the", 0.9, **HERE), query("when", 0.1, **HERE), NOT_AGAIN, None),
        (answer("Where", 0.9, **HERE), query("when", 0.1, **HERE), NOT_AGAIN, None),
        (query("when", 0.9, **HERE), query("Where", 0.1, **HERE), NOT_AGAIN, None),
        # similarity: 9 of 10 words are not above .9, and sides of two types are never near-identical
        (query(NINE, 0.9), query(f"{NINE} ever", 0.1), {"max_similarity": 0.9}, None),
        (query(NINE, 0.9), query(f"the {NINE}?", 0.1), {"max_similarity": 1.0}, None),
        (query(NINE, 0.9, response=NINE), answer(NINE, 0.1, response=NINE), {"max_similarity": 0.5}, None),
    ],
)
def test_what_becomes_of_a_pair(first: Fields, second: Fields, rules: Fields, reason: str | None) -> None:
    """Two siblings, what the user asks for, and why they are no pair; None: they are one."""
    assert only(siblings(first, second), **rules) == reason


@pytest.mark.parametrize(("agent", "reason"), [("react", "repeated_query"), (None, None)])
def test_a_query_of_an_agents_history_is_not_asked_again(agent: str | None, reason: str | None) -> None:
    """Its lines can be trusted; a line of ours may be a thought's."""
    shown: Fields = {"prompt": prompt("Question: q\nQuery: The first?\nDocument [1] (Title: A) Ada.")}
    tree = siblings(query("the first", 0.9, **shown), query("when", 0.1, **shown), agent=agent)
    assert only(tree, **NOT_AGAIN) == reason


FLAWS: dict[DropReason, dict[str, Fields]] = {
    "malformed": {"rejected": {"parse_error": "no_tag"}},
    "unvalued": {"pair": {"margin": None}},
    "same_content": {"pair": {"same": True}},
    "not_picked": {"pair": {"label": None}},
    "prompt_cut": {"pair": {"tags": ["prompt_cut"]}},
    "ungrounded": {"chosen": {"grounded": False}},
    "repeated_query": {"chosen": {"content": "Who was first?"}},
    "same_findings": {"pair": {"in_common": 0.8}},
    "small_margin": {"pair": {"margin": 0.1}},
    "uncertain": {"pair": {"confidence": 0.6}},
    "few_draws": {"chosen": {"observations": 1.0}},
    "no_consensus": {"chosen": {"critic_score": -1.0}},
    "golden_rejected": {
        "chosen": {"action_type": "answer", "content": "Bob"},
        "rejected": {"action_type": "answer", "content": "Ada Lovelace"},
    },
    "near_identical": {"pair": {"similarity": 0.95}},
    "too_long": {"rejected": {"tokens": 7}},
}
"""What makes a good pair one that is dropped for this reason."""
APART: dict[DropReason, DropReason] = {
    "unvalued": "not_picked",
    "repeated_query": "golden_rejected",
    "few_draws": "golden_rejected",
}
"""No pair has both: where a judge picks, margins do not count, and answers neither repeat a query nor lack draws."""
STRICT = PairingRules(
    min_margin=0.2, min_confidence=0.95, min_draws=2, max_similarity=0.5, max_row_tokens=10, consensus=True
)


@pytest.mark.parametrize("reason", FLAWS)
def test_reasons_are_told_in_their_order(reason: DropReason) -> None:
    """A pair with a flaw and any that comes after it is dropped for the first; of an evaluation question for that."""
    of_recipes = "not_reached", "wrong_trajectory", "not_ranked_apart", "few_visits"  # see test_pair_rules
    reasons = [each for each in DROP_REASONS[: DROP_REASONS.index("too_long") + 1] if each not in of_recipes]
    assert reasons == ["contaminated", "held_out", *FLAWS]
    (state,) = labelled_states(siblings(query("where from", 0.9, **HERE), query("when", 0.1, **HERE)))
    good: dict[str, Fields] = {
        "pair": {"margin": 0.9, "confidence": 0.99, "similarity": 0.0},
        "chosen": {"grounded": True, "critic_score": 1.0, "observations": 2.0, "tokens": 4},
        "rejected": {"critic_score": 0.0, "tokens": 6},
    }
    names = list(FLAWS)
    for later in names[names.index(reason) :]:
        if later == APART.get(reason):
            continue
        has = {part: ChainMap(*(each.get(part, {}) for each in (FLAWS[reason], FLAWS[later], good))) for part in good}
        steps = [step.model_copy(update=has[part]) for step, part in zip(state.steps, list(good)[1:], strict=True)]
        pairs = [state.pairs[0].model_copy(update=has["pair"])]
        flawed = state.model_copy(update={"tokens": 4, "steps": steps, "pairs": pairs})
        assert [each.dropped for each in select([flawed], STRICT)] == [reason], later
        assert [each.dropped for each in select([flawed], STRICT, left_out="contaminated")] == ["contaminated"]


@pytest.mark.parametrize("layer", [0, 6])
@pytest.mark.parametrize("turned", [False, True])
def test_the_values_agree_with_a_judge_at_their_own_confidence_at_any_depth(layer: int, turned: bool) -> None:
    """A side that is always right, and one that never is: in seven steps a reward is at most .48."""
    best, worst = query("who", 0.9 ** (layer + 1)), query("what", 0.0)
    above = [query(f"step {each}", None) for each in range(layer)]
    rollout = tree([*range(layer), layer, layer], [*above, best, worst])
    (state,) = labelled_states(rollout)
    pick = ids_of_any(state, 0 if turned else 1)
    exactly = replace(NO_FILTERS, consensus=True, min_confidence=(state.pairs[0].confidence or 0.0) - 1e-9)
    once = with_judge_label(state, pick)
    for judged_state in (once, with_judge_label(with_judge_label(once, None), pick)):
        read = StateRecord.model_validate_json(judged_state.to_line())
        (found,) = select([read], exactly)
        assert (found.dropped, found.pair.confidence) == ("no_consensus" if turned else None, None)
        (found,) = select([read], replace(exactly, min_confidence=exactly.min_confidence + 0.01))
        assert found.dropped == "no_consensus"


def revealing(
    confidence: float | None, draws: tuple[int, float], other: tuple[int, float] = (9, 9.0), common: float = 0.5
) -> StateRecord:
    """Two queries that reveal the same in part, `draws` and `other`: continuations and effective sample size."""
    steps = [
        query("who", 0.9, rollouts=rollouts_of(1.0, *[2] * draws[0]), observations=draws[1]),
        query("what", 0.0, rollouts=rollouts_of(0.0, *[2] * other[0]), observations=other[1]),
    ]
    (state,) = labelled_states(siblings(steps[0], steps[1] | {"in_common": {1: common} if common else {}}))
    (pair,) = state.pairs
    assert pair.in_common == common
    steps_known = [each.model_copy(update={"own_outcome": float(each.id == 1)}) for each in state.steps]
    known = pair.model_copy(update={"confidence": confidence})
    return state.model_copy(update={"steps": steps_known, "pairs": [known]})


UNSURE = revealing(0.6, (9, 9.0))


@pytest.mark.parametrize(
    ("state", "dropped"),
    [
        pytest.param(revealing(0.94, (4, 4.0)), "same_findings", id="not sure enough"),
        pytest.param(revealing(0.95, (4, 4.0)), None, id="just sure enough"),
        pytest.param(revealing(0.96, (3, 9.0)), "same_findings", id="sure of three continuations"),
        pytest.param(revealing(0.96, (9, 3.9)), "same_findings", id="sure of copies of fewer than four"),
        pytest.param(revealing(0.99, (9, 9.0), (3, 9.0)), "same_findings", id="three of the rejected step"),
        pytest.param(revealing(0.94, (1, 1.0), common=0.0), None, id="what reveals something else"),
        pytest.param(with_outcome_label(UNSURE), "same_findings", id="one trajectory a step tells nothing apart"),
        pytest.param(revealing(None, (9, 9.0)), None, id="values that are a judge's word"),
        pytest.param(with_judge_label(UNSURE, (1, 2)), None, id="the pick of a judge"),
        pytest.param(
            UNSURE.model_copy(update={"pairs": [UNSURE.pairs[0].model_copy(update={"label": "imported"})]}),
            None,
            id="pairs of published files are as they are",
        ),
    ],
)
def test_steps_that_reveal_the_same_are_a_pair_only_where_they_differ_all_the_same(
    state: StateRecord, dropped: str | None
) -> None:
    """At a confidence of .95, with four independent continuations each; undone by one rule. Read again, it is alike."""
    rules = replace(NO_FILTERS, min_margin=0.1, allow_same_findings=False)
    for each in (state, StateRecord.model_validate_json(state.to_line())):
        assert [found.dropped for found in select([each], rules)] == [dropped]
        assert [found.dropped for found in select([each], replace(rules, allow_same_findings=True))] == [None]


def test_what_is_not_known_of_a_label_drops_nothing() -> None:
    """Ranks have no confidence to ask for, and of a label by outcome there are no draws to count."""
    (state,) = labelled_states(siblings(query("who", 0.9, **ONCE), query("what", 0.1, **ONCE)))
    ranked = state.model_copy(update={"pairs": [each.model_copy(update={"confidence": None}) for each in state.pairs]})
    assert [each.dropped for each in select([ranked], PairingRules(min_confidence=1.0))] == [None]
    known = [each.model_copy(update={"own_outcome": float(each.id == 1)}) for each in state.steps]
    by_outcome = with_outcome_label(state.model_copy(update={"steps": known}))
    assert [each.dropped for each in select([by_outcome], replace(NO_FILTERS, min_draws=9))] == [None]


@pytest.mark.parametrize(
    ("prompt_tokens", "chosen", "rejected", "most", "reason"),
    [
        (6, 3, 4, 10, None),
        (6, 3, 4, 9, "too_long"),
        (6, 4, 3, 9, "too_long"),
        (None, 3, 4, 1, None),  # nobody counted
    ],
)
def test_a_pair_must_fit_the_trainer(
    prompt_tokens: int | None, chosen: int | None, rejected: int | None, most: int | None, reason: str | None
) -> None:
    """Prompt and longer reply together, where they were counted."""
    (state,) = labelled_states(siblings(query("who", 0.9), query("what", 0.1)))
    steps = [
        step.model_copy(update={"tokens": count}) for step, count in zip(state.steps, (chosen, rejected), strict=True)
    ]
    counted = state.model_copy(update={"tokens": prompt_tokens, "steps": steps})
    assert [each.dropped for each in select([counted], replace(NO_FILTERS, max_row_tokens=most))] == [reason]


def test_a_judge_s_pick_needs_neither_margin_nor_certainty() -> None:
    """Of a state that a judge saw only its pick is a pair, even against the rewards; the other two are not_picked."""
    (state,) = labelled_states(siblings(query("who", 0.9), query("what", 0.5), query("where", None)))
    found = select([with_judge_label(state, (2, 1))], PairingRules())
    assert {ids(each): each.dropped for each in found} == {(2, 1): None, (1, 3): "not_picked", (2, 3): "not_picked"}


# -- several pairs in one state -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("most", "beyond"), [(1, {(1, 4), (2, 3), (2, 4)}), (3, {(2, 4)}), (4, set()), (None, set())])
def test_of_a_state_the_surest_of_equal_margins_are_kept(most: int | None, beyond: set[Pair]) -> None:
    """As many as the user says; None keeps them all. What is no pair anyway takes no place."""
    assert judged(four_queries(), max_per_state=most) == {
        (1, 2): "small_margin",
        (3, 4): "small_margin",
        **{pair: "state_full" if pair in beyond else None for pair in [(1, 3), (1, 4), (2, 3), (2, 4)]},
    }
    three = siblings(query("who", 0.9), query("what", 0.4), query("WHO", 0.0))
    assert judged(three, max_per_state=1) == {(1, 3): "same_content", (1, 2): None, (2, 3): "contradicted"}


def test_what_twins_say_is_one_pair_with_the_step_that_was_explored() -> None:
    """`who` and `who?` share one estimate, as do `what` and `what?`: of four equal pairs the one without a borrowed
    estimate is kept, although 1 and 2 are the earlier ones. Two replies with nothing inside the tag are one opinion."""
    twins = siblings(
        query("who?", 0.9, same_as=3),
        query("what?", 0.0, same_as=4),
        query("who", 0.9),
        query("what", 0.0),
        query("where", 0.63),
    )
    assert judged(twins) == {
        (3, 4): None,
        **dict.fromkeys([(1, 2), (1, 4), (3, 2)], "duplicate"),
        (5, 4): None,
        (5, 2): "duplicate",
        (3, 5): None,
        (1, 5): "duplicate",
        **dict.fromkeys([(1, 3), (2, 4)], "same_content"),
    }
    empty = siblings(answer("Ada", 0.9), answer("", 0.0, response="one"), answer("", 0.0, response="two"))
    assert judged(empty) == {(1, 2): None, (1, 3): "duplicate", (2, 3): "same_content"}


# -- several runs -------------------------------------------------------------------------------------------------


def states_of(*runs: RolloutRecord) -> list[StateRecord]:
    return [state for run in runs for state in labelled_states(run)]


def test_runs_that_found_the_same_make_one_pair() -> None:
    """The wider margin is kept, whichever run is named first; words alone decide, not the ids of the steps."""
    first = siblings(query("who", 0.6), query("what", 0.1), config_hash="a")
    second = siblings(query("WHAT", 0.0), query("where", 0.8), query("who ", 0.9), config_hash="b")
    for runs in ([first, second], [second, first]):
        kept = [each for each in select(states_of(*runs), PUBLISHED_RULES) if each.dropped is None]
        assert {each.state.origin.config_hash for each in kept} == {"b"}
        assert fates(select(states_of(*runs), PUBLISHED_RULES)) == {None: 3, "duplicate": 1}


def test_what_runs_say_in_different_states_stands_side_by_side() -> None:
    """Another prompt, such as that of another renderer, is another state. In one state the surest of all runs stay."""
    other = {"prompt": prompt("Question: Who wrote the first program?", system="Think hard.")}
    runs = [
        siblings(query("who", 0.9), query("what", 0.1), config_hash="a"),
        siblings(query("who", 0.9, **other), query("what", 0.1, **other), config_hash="b"),
    ]
    assert fates(select(states_of(*runs), PairingRules(max_per_state=1))) == {None: 2}
    surer = siblings(query("where", 0.9, observations=9), query("when", 0.1, observations=9))
    found = select(states_of(runs[0], surer), replace(NO_FILTERS, max_per_state=1))
    assert [each.dropped for each in found] == ["state_full", None]


# -- laws of one question -----------------------------------------------------------------------------------------

limits = st.none() | st.integers(1, 3)
rules = st.builds(
    PairingRules,
    min_margin=st.sampled_from([0.0, 0.01, 0.3]),
    min_confidence=st.sampled_from([0.0, 0.5, 0.7]),
    max_similarity=st.sampled_from([0.3, 0.9, 1.0]),
    max_per_state=limits,
    **{name: st.booleans() for name in NO_FILTERS.flags if name.startswith("allow_")},
)
runs = st.lists(st.sampled_from("abc").flatmap(lambda name: random_trees(config_hash=name)), max_size=3).map(
    lambda found: states_of(*found)
)


def names(found: Iterable[Candidate]) -> list[tuple[int, Pair]]:
    return [(id(each.state), ids(each)) for each in found]


@given(states=runs, how=rules)
def test_every_candidate_has_one_fate(states: list[StateRecord], how: PairingRules) -> None:
    """Each is kept, or dropped under a reason that exists: none is lost, added or moved. Of a state as many are kept as
    the cap says, and never fewer where there are more."""
    found = select(states, how)
    assert names(found) == [name for state in states for name in names(candidates_of(state))]
    assert {each.dropped for each in found} <= {None, *get_args(DropReason)}
    assert fates(found).total() == sum(len(state.pairs) for state in states)
    numbers = Counter(each.state.state_id for each in found if each.dropped is None)
    for state, number in Counter(each.state.state_id for each in found if each.dropped in (None, "state_full")).items():
        assert numbers[state] == (number if how.max_per_state is None else min(number, how.max_per_state))


@given(states=runs, how=rules)
def test_a_kept_pair_prefers_the_better_step(states: list[StateRecord], how: PairingRules) -> None:
    """Chosen reward > rejected reward, by the smallest margin at least, and as surely as is asked; the chosen step
    parsed, is supported, and says another thing."""
    for pair in select(states, how):
        if pair.dropped is None:
            assert pair.chosen.reward is not None
            assert pair.rejected.reward is not None
            assert pair.chosen.reward > pair.rejected.reward
            assert pair.margin >= how.min_margin
            assert (pair.pair.confidence or 0.0) >= how.min_confidence
            assert pair.chosen.parse_error is None
            assert how.allow_malformed or pair.rejected.parse_error is None
            assert how.allow_ungrounded or pair.chosen.grounded is not False
            assert not pair.pair.same_type or pair.pair.similarity <= how.max_similarity
            assert not pair.pair.same


TWIN_OF_ANOTHER_TYPE = siblings(
    query("who", None), query("who", 1.0), answer("who", 0.0), answer("who", 0.0, same_as=1)
)


@example(states=states_of(TWIN_OF_ANOTHER_TYPE), how=NO_FILTERS)
@given(states=runs, how=rules)
def test_no_two_kept_pairs_of_a_state_say_the_same_or_the_opposite(
    states: list[StateRecord], how: PairingRules
) -> None:
    """In whatever words' case, and from whatever run."""
    said: set[tuple[str, frozenset[object]]] = set()
    for each in select(states, how):
        if each.dropped is None:
            sides = frozenset((step.action_type, _said(each.state, step.id)) for step in (each.chosen, each.rejected))
            assert (each.state.state_id, sides) not in said
            said.add((each.state.state_id, sides))


def _said(state: StateRecord, step_id: int) -> str:
    steps = {step.id: step for step in state.steps}
    first = steps.get(steps[step_id].same_as or step_id, steps[step_id])
    return " ".join((first.response if first.content is None else first.content).split()).casefold()


@given(states=runs, how=rules, strictness=st.sampled_from([0.02, 0.1, 0.4, 0.8]))
def test_a_stricter_margin_never_adds_a_pair_where_places_are_not_limited(
    states: list[StateRecord], how: PairingRules, strictness: float
) -> None:
    """What was dropped stays dropped: a wider pair never made way for a narrower one."""
    free = replace(how, max_per_state=None)
    loose, strict = (select(states, replace(free, min_margin=margin)) for margin in (free.min_margin, strictness))
    if strictness >= free.min_margin:
        for before, after in zip(loose, strict, strict=True):
            assert before.dropped is None or after.dropped is not None


@given(states=runs, how=rules)
def test_without_filters_only_what_cannot_be_trained_on_is_dropped(
    states: list[StateRecord], how: PairingRules
) -> None:
    """NO_FILTERS undoes all that can be undone, and keeps at least what any rules keep."""
    found = select(states, NO_FILTERS)
    reasons = {"malformed", "unvalued", "same_content", "small_margin", "golden_rejected", "duplicate", "contradicted"}
    assert {each.dropped for each in found} <= {None, *reasons}
    assert all(each.margin <= 1e-9 for each in found if each.dropped == "small_margin")
    caps_only = replace(NO_FILTERS, max_per_state=how.max_per_state)
    for free, capped in zip(found, select(states, caps_only), strict=True):
        assert free.dropped == capped.dropped or (free.dropped is None and capped.dropped == "state_full")


# -- shares of the whole data set ---------------------------------------------------------------------------------


def candidate(tags: Sequence[Tag], margin: float, sure: float) -> Candidate:
    """A pair that every other rule lets pass."""
    (state,) = labelled_states(siblings(query("who", 0.9), query("what", 0.1)))
    (found,) = candidates_of(state)
    return replace(found, pair=found.pair.model_copy(update={"tags": list(tags), "margin": margin, "confidence": sure}))


def kept(*pairs: Candidate) -> list[PassedPair]:
    return [PassedPair.of(each) for each in pairs]


def plain(number: int, tags: Sequence[Tag] = ()) -> list[Candidate]:
    """Pairs that are less sure one by one."""
    return [candidate(tags, 0.5, 0.9 - n / 10_000) for n in range(number)]


@pytest.mark.parametrize(
    ("others", "tagged", "share", "left"),
    [
        (9, 1, 0.1, 1),  # exactly 10 %
        (9, 2, 0.1, 1),
        (0, 7, 0.1, 0),  # there is nothing for them to be a share of
    ],
)
@pytest.mark.parametrize("tag", ["efficiency_only", "style_only"])
def test_the_share_of_a_tag_is_held_exactly(tag: Tag, others: int, tagged: int, share: float, left: int) -> None:
    """Of all pairs that are written; the surest of the tagged stay, and no other pair goes."""
    pairs = kept(*plain(others), *plain(tagged, tags=[tag]))
    beyond = dropped_by_caps(pairs, replace(NO_FILTERS, **{f"max_{tag}": share}))
    assert beyond == dict.fromkeys(range(others + left, others + tagged), f"{tag}_cap")


tags = st.sampled_from([[], [], ["efficiency_only"], ["style_only"], ["efficiency_only", "style_only"]])
data_sets = st.lists(st.builds(candidate, tags, st.floats(0, 1), st.floats(0, 1)), max_size=30).map(
    lambda pairs: kept(*pairs)
)
shares = st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0])


@given(pairs=data_sets, efficiency=shares, style=shares)
def test_shares_hold_of_any_data_set_and_the_surest_are_dropped_last(
    pairs: list[PassedPair], efficiency: float, style: float
) -> None:
    """Of what is left, each tag is at most its share (1: no limit). What goes has the tag under whose name it goes, and
    what stays is at least as sure as one with the same tags that goes."""
    beyond = dropped_by_caps(pairs, replace(NO_FILTERS, max_efficiency_only=efficiency, max_style_only=style))
    left = [i for i in range(len(pairs)) if i not in beyond]
    for tag, share in (("efficiency_only", efficiency), ("style_only", style)):
        assert sum(getattr(pairs[i], tag) for i in left) <= share * len(left) + 1e-9
    for i, reason in beyond.items():
        assert getattr(pairs[i], reason.removesuffix("_cap"))
        for j in left:
            surer = (pairs[j].surest_first, j) < (pairs[i].surest_first, i)
            assert surer or pairs[i][:2] != pairs[j][:2]
    assert dropped_by_caps(pairs, NO_FILTERS) == {}
