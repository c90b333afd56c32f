"""Which sibling steps become a preference pair, and why the others do not.

Every two siblings of a state are a candidate. A candidate is kept, or dropped under exactly one reason: the first in
the order of `DropReason`. Source of the basic rule (siblings, reward margin .01, different content): the pair
builder of ReasonRAG, arXiv 2505.14069; best against worst per state and action-type combination, tags and reasons
are ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal, TypeAlias, get_args

from preference.records import ActionType, RolloutNode, RolloutRecord
from preference.scoring import cover_em

DropReason = Literal["malformed", "unvalued", "same_content", "small_margin", "not_extreme"]
"""malformed: the better or, unless allowed, the worse step did not parse. unvalued: a step has no reward.
same_content: both have the same type and text. small_margin: rewards too close. not_extreme: not the best against the
worst of its state and action-type combination."""

DROP_REASONS: tuple[DropReason, ...] = get_args(DropReason)

Tag = Literal["efficiency_only", "style_only"]
"""efficiency_only: undiscounted F1 is equal, only path length differs. style_only: both are answers and
cover-EM cannot tell them apart."""

TypeCombination: TypeAlias = tuple[ActionType | None, ActionType | None]

TOLERANCE = 1e-9
"""Below this two means of the same outcomes are the same number."""


@dataclass(frozen=True, slots=True)
class PairingRules:
    """What makes a pair.

    min_margin: smallest difference of rewards, after division by alpha**layer where the recipe says so; the published
        builder has .01.
    allow_malformed: whether a step that did not parse may be the rejected side.
    all_pairs: keep every valid candidate instead of best against worst per state and action-type combination.
    """

    min_margin: float = 0.01
    allow_malformed: bool = False
    all_pairs: bool = False


@dataclass(frozen=True, slots=True)
class Candidate:
    """Two siblings, the better one as `chosen` (the earlier one if they are equal)."""

    rollout: RolloutRecord
    chosen: RolloutNode
    rejected: RolloutNode
    margin: float
    tags: tuple[Tag, ...]
    dropped: DropReason | None

    @property
    def types(self) -> TypeCombination:
        return self.chosen.action_type, self.rejected.action_type

    @property
    def layer(self) -> int:
        return _layer(self.chosen)


def candidates(rollout: RolloutRecord, rules: PairingRules) -> Iterator[Candidate]:
    """All candidates of one tree, state by state in order of creation, in each state by falling margin."""
    for siblings in _states(rollout):
        in_state = [_judge(rollout, pair, rules) for pair in combinations(siblings, 2)]
        in_state.sort(key=lambda each: (-each.margin, each.chosen.id, each.rejected.id))
        yield from in_state if rules.all_pairs else _extremes(in_state)


def _states(rollout: RolloutRecord) -> list[list[RolloutNode]]:
    """The steps taken in each state. A state is what the agent has seen: two nodes that were reached by the same
    replies are one state, and what follows them are siblings."""
    states: dict[object, list[RolloutNode]] = {}
    for node in rollout.nodes[1:]:
        seen = node.parent_id if node.prompt is None else tuple((turn.role, turn.content) for turn in node.prompt)
        states.setdefault(seen, []).append(node)
    return list(states.values())


def _judge(rollout: RolloutRecord, pair: tuple[RolloutNode, RolloutNode], rules: PairingRules) -> Candidate:
    first, second = pair
    chosen, rejected = (first, second) if _rank(first) >= _rank(second) else (second, first)
    margin = _margin(rollout, chosen, rejected)
    dropped: DropReason | None = None
    if chosen.parse_error or (rejected.parse_error and not rules.allow_malformed):
        dropped = "malformed"
    elif chosen.reward is None or rejected.reward is None:
        dropped = "unvalued"
    elif _content_key(chosen) == _content_key(rejected):
        dropped = "same_content"
    elif margin < rules.min_margin or margin <= TOLERANCE:
        dropped = "small_margin"
    return Candidate(rollout, chosen, rejected, margin, _tags(rollout, chosen, rejected), dropped)


def _extremes(in_state: list[Candidate]) -> Iterator[Candidate]:
    """Mark all but the first (widest) valid candidate of each action-type combination as dropped."""
    seen: set[TypeCombination] = set()
    for candidate in in_state:
        if candidate.dropped is None and candidate.types in seen:
            yield replace(candidate, dropped="not_extreme")
            continue
        if candidate.dropped is None:
            seen.add(candidate.types)
        yield candidate


def _rank(node: RolloutNode) -> tuple[bool, float]:
    """Order of siblings: parsed before malformed, then by reward, unvalued last."""
    return node.parse_error is None, -1.0 if node.reward is None else node.reward


def _margin(rollout: RolloutRecord, chosen: RolloutNode, rejected: RolloutNode) -> float:
    """Difference of rewards; 0 where one is missing."""
    if chosen.reward is None or rejected.reward is None:
        return 0.0
    scale = rollout.recipe.alpha ** _layer(chosen) if rollout.recipe.margin_by_layer else 1.0
    return (chosen.reward - rejected.reward) / scale


def _content_key(node: RolloutNode) -> tuple[ActionType | None, str]:
    content = node.content if node.content is not None else node.response or ""
    return node.action_type, " ".join(content.split()).casefold()


def _tags(rollout: RolloutRecord, chosen: RolloutNode, rejected: RolloutNode) -> tuple[Tag, ...]:
    tags: list[Tag] = []
    left, right = _mean_f1(chosen), _mean_f1(rejected)
    if left is not None and right is not None and abs(left - right) <= TOLERANCE:
        tags.append("efficiency_only")
    if chosen.action_type == rejected.action_type == "answer":
        covered = [cover_em(node.content or "", rollout.golden_answers) for node in (chosen, rejected)]
        if covered[0] == covered[1]:
            tags.append("style_only")
    return tuple(tags)


def _mean_f1(node: RolloutNode) -> float | None:
    """Undiscounted mean over the continuations that count; the step's own score where none are recorded."""
    if node.rollouts:
        return sum(each.f1 for each in node.rollouts) / len(node.rollouts)
    return node.f1


def _layer(node: RolloutNode) -> int:
    if node.layer is None:
        raise ValueError(f"node {node.id} is no step and has no layer")
    return node.layer
