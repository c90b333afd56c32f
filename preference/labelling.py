"""Labels: which of two sibling steps is better, and with what confidence, for every pair in every state of a tree.

Decides what a state is, and a pair's label, margin, confidence, similarity and tags. Drops nothing; `filters` decides
which pairs are good enough. Source of the basic rule (siblings, difference of rewards): the pair builder of ReasonRAG,
arXiv 2505.14069; states by what was seen, confidence and tags are ours.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Any, Protocol

from preference.answer_scores import label_cover_em
from preference.candidates import (
    GoldVerdict,
    Origin,
    PairRecord,
    StateRecord,
    StepRecord,
    Tag,
    is_letter,
    pair_key,
    state_key,
    support_decides,
)
from preference.confidence import confidence
from preference.published.pair_rules import SYSTEM_OF_RECIPE, PublishedSystem
from preference.records import ActionType, Message, RecipeRef, RolloutNode, RolloutRecord, shared_fields
from preference.similarity import folded, similarity

TOLERANCE = 1e-9
"""Means of outcomes that differ by less are equal."""
ANSWER_WEIGHT = 0.5
"""Weight of an answer's draws in a pair with a step of another type. Such a pair says whether to answer here at all; a
lucky or unlucky answer says less of that than a continuation says of a query. With guessing teachers of known truth,
.64 (chosen answers) to .85 (rejected ones) of such pairs were right without it, in a trial on 150 questions."""


class TokenCounter(Protocol):
    """Counts tokens as a trainer does. exact: by the true vocabulary and template, not by a rule of thumb."""

    @property
    def name(self) -> str: ...
    @property
    def exact(self) -> bool: ...
    def prompt(self, prompt: Sequence[Message]) -> int:
        """Tokens up to the beginning of the reply."""
        ...

    def reply(self, text: str) -> int:
        """Tokens of a reply and its end token."""
        ...


def labelled_states(
    rollout: RolloutRecord, run_origin: Origin | None = None, tokens: TokenCounter | None = None
) -> Iterator[StateRecord]:
    """Every state of a tree in which at least two steps were taken, in order of creation.

    Pairs of a state are sorted by falling confidence, then margin, with the better step as `chosen` (the earlier one on
    a tie). run_origin: what the run's configuration adds to the record.
    """
    system = SYSTEM_OF_RECIPE.get(rollout.recipe.name)
    tree = _Tree(rollout, origin_of(rollout, run_origin), tokens, system, own_outcomes(rollout))
    for siblings in _states(rollout):
        if len(siblings) > 1:
            yield _labelled(tree, siblings)


def origin_of(rollout: RolloutRecord, run_origin: Origin | None = None) -> Origin:
    """Origin of a record: its own fields, the rest from the run's configuration."""
    rules = {"recipe": rollout.recipe.name, "reward": rollout.recipe.reward}
    own = Origin(**shared_fields(rollout, Origin) | rules)
    if run_origin is None or run_origin.config_hash not in (None, own.config_hash):
        return own
    return run_origin.model_copy(update=own.model_dump(exclude_none=True))


def _states(rollout: RolloutRecord) -> list[list[RolloutNode]]:
    """The steps taken in each state. A state is what the agent has seen: two nodes reached by the same replies are one
    state, and the steps that follow them are siblings. Where the recipe keeps equal steps apart it is a node."""
    states: dict[object, list[RolloutNode]] = {}
    by_node = not rollout.recipe.merges_equal
    for node in rollout.nodes[1:]:
        by_parent = by_node or node.prompt is None
        seen = node.parent_id if by_parent else tuple((turn.role, turn.content) for turn in node.prompt or ())
        states.setdefault(seen, []).append(node)
    return list(states.values())


def shares_estimates(recipe: RecipeRef) -> bool:
    """Whether a recipe's rewards count the observations of siblings that reveal the same."""
    return recipe.shares_estimates and (recipe.reward or "").startswith("spre_even")


@dataclass(frozen=True)
class _Tree:
    """A tree, and what the labels of the published systems need to know of it beside its steps."""

    rollout: RolloutRecord
    origin: Origin
    tokens: TokenCounter | None
    system: PublishedSystem | None
    own_outcomes: list[float | None]
    taken: set[str] = field(default_factory=set)
    """Ids of the pairs so far: where equal steps are kept apart, two pairs may say the same."""

    @cached_property
    def trajectory_f1(self) -> float:
        """F1 of the answer at the end of the trajectory that was followed, from the best step to the best step; 0
        without an answer."""
        node = self.rollout.nodes[0]
        while node.children_ids:
            steps = [self.rollout.nodes[each] for each in node.children_ids]
            node = max(steps, key=lambda step: (bool(step.children_ids), step.reward or 0.0))
        return node.f1 or 0.0

    @cached_property
    def reached(self) -> set[int]:
        """Nodes below which ReasonRAG's builder makes pairs: they and all above them have rewards and several
        children."""
        found: set[int] = set()
        for node in self.rollout.nodes:
            above = node.parent_id is None or node.parent_id in found
            if above and node.reward is not None and len(node.children_ids) > 1:
                found.add(node.id)
        return found

    def fields(self, siblings: Sequence[RolloutNode]) -> dict[str, Any]:
        """Fields of the record of a state that only trees of some recipes have."""
        parents = {node.parent_id or 0 for node in siblings}
        if self.system == "reasonrag":
            return {"not_reached": not parents & self.reached}
        if self.system == "prorag":
            return {"visits": sum(self.rollout.nodes[each].visits for each in parents)}
        return {"trajectory_f1": self.trajectory_f1} if self.system == "ragym" else {}


def _labelled(tree: _Tree, siblings: list[RolloutNode]) -> StateRecord:
    rollout, tokens = tree.rollout, tree.tokens
    steps = [_sibling(node, rollout) for node in siblings]
    prompt = siblings[0].prompt or []
    state_id = state_key(prompt) if prompt else f"{rollout.question_id}:{siblings[0].parent_id}"
    pairs = [_pair(rollout, state_id, *two, tree.taken) for two in combinations(steps, 2)]
    if tree.origin.cut_from and sum(len(turn.content.encode()) for turn in prompt) >= tree.origin.cut_from:
        for pair in pairs:
            pair.tags.append("prompt_cut")
    pairs = _surest_first(pairs, siblings)
    state = StateRecord.model_construct(
        state_id=state_id,
        question_id=rollout.question_id,
        question=rollout.question,
        golden_answers=rollout.golden_answers,
        origin=tree.origin,
        layer=siblings[0].layer or 0,
        action=siblings[0].action,
        prompt=prompt,
        tokens=tokens.prompt(prompt) if tokens else None,
        token_counter=tokens.name if tokens else None,
        steps=[_record(tree, node) for node in siblings],
        pairs=pairs,
        **tree.fields(siblings),
    )
    return with_golden_tags(state)


def _surest_first(pairs: list[PairRecord], steps: Iterable[RolloutNode | StepRecord]) -> list[PairRecord]:
    """The pairs of a state in order; of equal ones, those whose steps share another one's estimate come last."""
    borrows = {step.id: step.same_as is not None for step in steps}

    def place(each: PairRecord) -> tuple[float, float, int, int, int]:
        borrowed = borrows[each.chosen] + borrows[each.rejected]
        return -(each.confidence or 0.0), -(each.margin or 0.0), borrowed, each.chosen, each.rejected

    return sorted(pairs, key=place)


def _record(tree: _Tree, node: RolloutNode) -> StepRecord:
    differing = {
        "response": node.response or "",
        "own_outcome": tree.own_outcomes[node.id],
        "rollouts": len(node.rollouts),
        "uncounted": tree.rollout.uncounted[node.id] or None,
        "value": node.value if tree.system == "prorag" else None,
        "parse_error": node.parse_error.cause if node.parse_error else None,
        "tokens": tree.tokens.reply(node.response or "") if tree.tokens else None,
    }
    return StepRecord.model_construct(**shared_fields(node, StepRecord) | differing)


def distinct_steps(state: StateRecord) -> list[StepRecord]:
    """The steps that parsed and differ in content, in order: those a judge has to compare."""
    found: dict[object, StepRecord] = {}
    for step in state.steps:
        if step.parse_error is None and step.same_as is None:
            found.setdefault((step.action_type, folded(step.content or "")), step)
    return list(found.values())


def with_judge_label(state: StateRecord, pick: tuple[int, int] | None) -> StateRecord:
    """The state as a judge labels it.

    pick: ids of the better and the worse step; None if the judge picked none. Every other pair loses its label. Margins
        stay those of the values: negative where they disagree with the judge.
    """
    pairs = [_with_judge_label(pair, pick) for pair in state.pairs]
    return with_golden_tags(state.model_copy(update={"pairs": pairs}))


def with_golden_tags(state: StateRecord) -> StateRecord:
    """The state with the tag `golden_rejected` where its pairs, whose sides may have been exchanged, deserve it."""
    steps = {step.id: step for step in state.steps}

    def tagged(pair: PairRecord) -> PairRecord:
        found = support_decides(state.golden_answers, steps[pair.chosen], steps[pair.rejected])
        if found == ("golden_rejected" in pair.tags):
            return pair
        tags = [tag for tag in pair.tags if tag != "golden_rejected"]
        return pair.model_copy(update={"tags": [*tags, "golden_rejected"] if found else tags})

    return state.model_copy(update={"pairs": [tagged(pair) for pair in state.pairs]})


def _with_judge_label(pair: PairRecord, pick: tuple[int, int] | None) -> PairRecord:
    by_values = pair.value_confidence if pair.confidence is None else pair.confidence
    pair = pair.model_copy(update={"confidence": None, "value_confidence": by_values})
    if pick is None or {pair.chosen, pair.rejected} != set(pick):
        return pair.model_copy(update={"label": None})
    swapped = pair if pair.chosen == pick[0] else pair.swapped()
    return swapped.model_copy(update={"label": "judge", "tags": tags_without_values(pair)})


def tags_without_values(pair: PairRecord) -> list[Tag]:
    """The tags of a pair whose label the values of the search did not decide."""
    return [tag for tag in pair.tags if tag not in ("efficiency_only", "one_draw")]


def own_outcomes(rollout: RolloutRecord) -> list[float | None]:
    """Outcome of each step's own trajectory, by id; None without an end in the tree, or with one of unknown quality.

    A step's own trajectory is the one in which it was first drawn: the step, then its first continuation or, where
    continuations are kept as steps, the first step drawn after it, and so on to an answer.
    """
    found: list[float | None] = [None] * len(rollout.nodes)
    for node in reversed(rollout.nodes):  # children have higher ids than their parents
        children = [rollout.nodes[each] for each in node.children_ids]
        kept = sum(len(each.rollouts) for each in children if each.plain_draws)
        if node.terminal:
            found[node.id] = node.f1 if node.outcome is None else node.outcome.value
        elif len(node.rollouts) > kept:  # the first of them began here, before the step had children
            found[node.id] = node.rollouts[0].quality
        elif children:
            found[node.id] = found[children[0].id]
    return found


def with_outcome_label(state: StateRecord) -> StateRecord:
    """The state with every pair labelled by the outcomes of both steps' own trajectories, whatever labels it had.

    A margin is the difference of the outcomes, None where one is unknown. One trajectory a step gives no confidence.
    """
    steps = {step.id: step for step in state.steps}
    pairs = [_with_outcome_label(pair, steps) for pair in state.pairs]
    return with_golden_tags(state.model_copy(update={"pairs": _surest_first(pairs, state.steps)}))


def _with_outcome_label(pair: PairRecord, steps: Mapping[int, StepRecord]) -> PairRecord:
    sides = [steps[each] for each in sorted((pair.chosen, pair.rejected))]
    better, worse = sorted(sides, key=lambda step: (step.parse_error is not None, -_known(step.own_outcome)))
    known = better.own_outcome is not None and worse.own_outcome is not None
    turned = pair if pair.chosen == better.id else pair.swapped()
    return turned.model_copy(
        update={
            "label": "outcome",
            "margin": _known(better.own_outcome) - _known(worse.own_outcome) if known else None,
            "confidence": None,
            "value_confidence": None,
            "tags": tags_without_values(pair),
        }
    )


def _known(outcome: float | None) -> float:
    """Unknown outcomes come after all others."""
    return -1.0 if outcome is None else outcome


@dataclass(frozen=True)
class _Sibling:
    """A node, with what every comparison with its siblings needs, computed once.

    rank: order of siblings: parsed before malformed, then by reward, unvalued last. content_key: type and content
        regardless of case and spaces. first_equal: id of the earliest equivalent sibling. covers: whether the answer
        contains a gold answer. mean_outcome: the undiscounted mean behind the reward; the step's own outcome if nothing
        was continued.
    """

    node: RolloutNode
    rank: tuple[bool, float]
    text: str
    content_key: tuple[ActionType | None, str]
    first_equal: int
    covers: bool
    mean_outcome: float | None


def _sibling(node: RolloutNode, rollout: RolloutRecord) -> _Sibling:
    text = node.content if node.content is not None else node.response or ""
    outcome = node.f1 if node.outcome is None else node.outcome.value
    if (rollout.recipe.reward or "").startswith("spre_even"):
        outcome = node.expected_outcome
    elif node.rollouts:
        outcome = sum(each.quality for each in node.rollouts) / len(node.rollouts)
    return _Sibling(
        node,
        rank=(node.parse_error is None, -1.0 if node.reward is None else node.reward),
        text=text,
        content_key=(node.action_type, folded(text)),
        first_equal=node.id if node.same_as is None else node.same_as,
        covers=node.action_type == "answer" and _covers(node, text, rollout.golden_answers),
        mean_outcome=outcome,
    )


def _covers(answer: RolloutNode, text: str, golden_answers: Sequence[str]) -> bool:
    """By `label_cover_em`. A letter contains a gold answer if its option is right; with outcome `choice` nothing else
    counts."""
    if answer.outcome is not None and answer.outcome.name == "choice":
        return bool(answer.outcome.value)
    return bool(answer.em and is_letter(text)) or bool(label_cover_em(text, golden_answers))


def _pair(rollout: RolloutRecord, state_id: str, first: _Sibling, second: _Sibling, taken: set[str]) -> PairRecord:
    chosen, rejected = (first, second) if first.rank >= second.rank else (second, first)
    same_type = chosen.node.action_type == rejected.node.action_type
    replies = chosen.node.response or "", rejected.node.response or ""
    of = f"{rollout.config_hash}:{rollout.seed}"
    pair_id = pair_key(state_id, *replies, of=of)
    if pair_id in taken:
        pair_id = pair_key(state_id, *replies, of=f"{of}:{chosen.node.id}:{rejected.node.id}")
    taken.add(pair_id)
    common = rollout.common_findings[chosen.node.id].get(rejected.first_equal, 0.0)
    sure = _confidence(rollout, chosen, rejected, common)
    return PairRecord.model_construct(
        pair_id=pair_id,
        chosen=chosen.node.id,
        rejected=rejected.node.id,
        label="value",
        margin=_margin(rollout, chosen.node, rejected.node),
        confidence=sure,
        similarity=similarity(chosen.text, rejected.text) if same_type else similarity(*replies),
        same=chosen.content_key == rejected.content_key or chosen.first_equal == rejected.first_equal,
        in_common=common,
        same_type=same_type,
        tags=[*_tags(rollout, chosen, rejected, sure), *(("same_findings",) if common else ())],
        gold=_gold(chosen.node, rejected.node),
    )


def _margin(rollout: RolloutRecord, chosen: RolloutNode, rejected: RolloutNode) -> float | None:
    """Difference of rewards; None if one is missing."""
    if chosen.reward is None or rejected.reward is None:
        return None
    scale = _discount(rollout, chosen.layer or 0) if rollout.recipe.margin_by_layer else 1.0
    return (chosen.reward - rejected.reward) / scale


def _confidence(rollout: RolloutRecord, chosen: _Sibling, rejected: _Sibling, common: float) -> float | None:
    """Computed from continuations; ranks have none, as it is unknown how often a judge is right. common: the share of
    what both reveal that they have in common; by it each counts the observations of the other, too, unless the rewards
    already do."""
    if rollout.recipe.reward == "rank":
        return None
    better, worse = observed(rollout, chosen.node, rejected.node), observed(rollout, rejected.node, chosen.node)
    if better is None or worse is None:
        return None
    if common and not shares_estimates(rollout.recipe):
        better, worse = _with_common(better, worse, common), _with_common(worse, better, common)
    return confidence(better, worse)


def _with_common(own: tuple[float, float], other: tuple[float, float], share: float) -> tuple[float, float]:
    """Mean and number of observations, with such a share of another step's."""
    n = own[1] + share * other[1]
    return (own[0] * own[1] + share * other[0] * other[1]) / n, n


def observed(rollout: RolloutRecord, node: RolloutNode, other: RolloutNode) -> tuple[float, float] | None:
    """What a pair's confidence rests on, of one side: r, the reward of its continuations as a share of that of a right
    answer in its place, so that one k steps below counts alpha**k; and n, their effective sample size, weighted."""
    if node.reward is None:
        return None
    weight = ANSWER_WEIGHT if node.action_type == "answer" != other.action_type else 1.0
    n = (node.observations or max(1, len(node.rollouts))) * weight
    return min(1.0, node.reward / _discount(rollout, (node.layer or 0) + 1)), n


def rests_on_one_draw(chosen: RolloutNode, rejected: RolloutNode) -> bool:
    """Whether neither step was continued more than once; the scores of two answers are exact."""
    answers = chosen.action_type == rejected.action_type == "answer"
    return not answers and all(0 < (each.observations or 0) <= 1 + TOLERANCE for each in (chosen, rejected))


def _gold(chosen: RolloutNode, rejected: RolloutNode) -> GoldVerdict:
    types = chosen.action_type, rejected.action_type
    if types not in (("query", "query"), ("evidence", "evidence")) or chosen.gold is None or rejected.gold is None:
        return "unknown"
    if chosen.gold == rejected.gold:
        return "tie"
    return "right" if chosen.gold > rejected.gold else "wrong"


def _tags(rollout: RolloutRecord, chosen: _Sibling, rejected: _Sibling, sure: float | None) -> list[Tag]:
    tags: list[Tag] = []
    left, right = chosen.mean_outcome, rejected.mean_outcome
    if rollout.recipe.reward != "rank" and left is not None and right is not None and abs(left - right) <= TOLERANCE:
        tags.append("efficiency_only")
    both_answer = chosen.node.action_type == rejected.node.action_type == "answer"
    if both_answer and rollout.golden_answers and chosen.covers == rejected.covers:
        tags.append("style_only")
    if sure is not None and rests_on_one_draw(chosen.node, rejected.node):
        tags.append("one_draw")
    return tags


def _discount(rollout: RolloutRecord, steps: int) -> float:
    """alpha**steps, kept above 0."""
    return max(rollout.recipe.alpha**steps, sys.float_info.min)
