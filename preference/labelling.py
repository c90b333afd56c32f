"""Labels: which of two sibling steps is better, for every pair in every state of a tree.

Decides what a state is, which steps are siblings in it, a step's own outcome, and what a label by outcome or by a judge
changes. `margin_and_confidence`, `similarity` and `tags` decide what they are named for; `filters` which pairs are good
enough. Source of the basic rule (siblings, difference of rewards): the pair builder of ReasonRAG, arXiv 2505.14069;
states by what was seen are ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Any, Protocol

from preference.candidate_records import Origin, PairRecord, StateRecord, StepRecord
from preference.margin_and_confidence import Sibling, as_sibling, confidence_of, margin, surest_first
from preference.published.pair_rules import SYSTEM_OF_RECIPE, PublishedSystem
from preference.records import Message, RolloutNode, RolloutRecord, pair_key, shared_fields, state_key
from preference.similarity import folded, similarity
from preference.tags import gold_verdict, tags_of, tags_without_values, with_golden_tags


class TokenCounter(Protocol):
    """Counts tokens as a trainer does. exact: by the true vocabulary and template, not by a rule of thumb."""

    @property
    def name(self) -> str: ...
    @property
    def exact(self) -> bool: ...
    def prompt(self, prompt: Sequence[Message]) -> int:
        """Tokens up to the beginning of the reply."""

    def reply(self, text: str) -> int:
        """Tokens of a reply and its end token."""


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
        """F1 of the answer at the end of the trajectory that was followed, by the best steps; 0 without an answer."""
        node = self.rollout.nodes[0]
        while node.children_ids:
            steps = [self.rollout.nodes[each] for each in node.children_ids]
            node = max(steps, key=lambda step: (bool(step.children_ids), step.reward or 0.0))
        return node.f1 or 0.0

    @cached_property
    def reached(self) -> set[int]:
        """Nodes below which ReasonRAG's builder makes pairs: all down to them have a reward and several children."""
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
    steps = [as_sibling(node, rollout) for node in siblings]
    prompt = siblings[0].prompt or []
    state_id = state_key(prompt) if prompt else f"{rollout.question_id}:{siblings[0].parent_id}"
    pairs = [_pair(rollout, state_id, *two, tree.taken) for two in combinations(steps, 2)]
    if tree.origin.cut_from and sum(len(turn.content.encode()) for turn in prompt) >= tree.origin.cut_from:
        for pair in pairs:
            pair.tags.append("prompt_cut")
    pairs = surest_first(pairs, siblings)
    state = StateRecord.model_construct(
        state_id=state_id,
        **shared_fields(rollout, StateRecord),
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
            found[node.id] = node.quality
        elif len(node.rollouts) > kept:  # the first of them began here, before the step had children
            found[node.id] = node.rollouts[0].quality
        elif children:
            found[node.id] = found[children[0].id]
    return found


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

    def labelled(pair: PairRecord) -> PairRecord:
        by_values = pair.value_confidence if pair.confidence is None else pair.confidence
        pair = pair.model_copy(update={"confidence": None, "value_confidence": by_values})
        if pick is None or {pair.chosen, pair.rejected} != set(pick):
            return pair.model_copy(update={"label": None})
        swapped = pair if pair.chosen == pick[0] else pair.swapped()
        return swapped.model_copy(update={"label": "judge", "tags": tags_without_values(pair)})

    return with_golden_tags(state.model_copy(update={"pairs": [labelled(pair) for pair in state.pairs]}))


def with_outcome_label(state: StateRecord) -> StateRecord:
    """The state with every pair labelled by the outcomes of both steps' own trajectories, whatever labels it had: the
    rival of labels by values, which need many draws.

    A margin is the difference of the outcomes, None where one is unknown. One trajectory a step gives no confidence.
    """
    steps = {step.id: step for step in state.steps}

    def known(step: StepRecord) -> float:  # unknown outcomes come after all others
        return -1.0 if step.own_outcome is None else step.own_outcome

    def labelled(pair: PairRecord) -> PairRecord:
        sides = [steps[each] for each in sorted((pair.chosen, pair.rejected))]
        better, worse = sorted(sides, key=lambda step: (step.parse_error is not None, -known(step)))
        unknown = better.own_outcome is None or worse.own_outcome is None
        sure = {"margin": None if unknown else known(better) - known(worse), "confidence": None}
        turned = pair if pair.chosen == better.id else pair.swapped()
        told = {"label": "outcome", "value_confidence": None, "tags": tags_without_values(pair)}
        return turned.model_copy(update=told | sure)

    pairs = surest_first([labelled(pair) for pair in state.pairs], state.steps)
    return with_golden_tags(state.model_copy(update={"pairs": pairs}))


def _pair(rollout: RolloutRecord, state_id: str, first: Sibling, second: Sibling, taken: set[str]) -> PairRecord:
    chosen, rejected = (first, second) if first.rank >= second.rank else (second, first)
    same_type = chosen.node.action_type == rejected.node.action_type
    replies = chosen.node.response or "", rejected.node.response or ""
    of = f"{rollout.config_hash}:{rollout.seed}"
    pair_id = pair_key(state_id, *replies, of=of)
    if pair_id in taken:
        pair_id = pair_key(state_id, *replies, of=f"{of}:{chosen.node.id}:{rejected.node.id}")
    taken.add(pair_id)
    common = rollout.common_findings[chosen.node.id].get(rejected.first_equal, 0.0)
    sure = confidence_of(rollout, chosen, rejected, common)
    return PairRecord.model_construct(
        pair_id=pair_id,
        chosen=chosen.node.id,
        rejected=rejected.node.id,
        label="value",
        margin=margin(rollout, chosen.node, rejected.node),
        confidence=sure,
        similarity=similarity(chosen.text, rejected.text) if same_type else similarity(*replies),
        same=chosen.content_key == rejected.content_key or chosen.first_equal == rejected.first_equal,
        in_common=common,
        same_type=same_type,
        tags=[*tags_of(rollout, chosen, rejected, sure), *(("same_findings",) if common else ())],
        gold=gold_verdict(chosen.node, rejected.node),
    )
