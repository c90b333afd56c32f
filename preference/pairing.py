"""Which sibling steps become a preference pair, and why the others do not.

Every two siblings of a state are a candidate. A candidate is kept, or dropped under exactly one reason: the first in
the order of `DropReason`. Source of the basic rule (siblings, reward margin .01, different content): the pair
builder of ReasonRAG, arXiv 2505.14069; confidence, the surest few of a state, tags and reasons are ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal, TypeAlias, get_args

from preference.confidence import confidence
from preference.records import ActionType, RolloutNode, RolloutRecord
from preference.scoring import cover_em

DropReason = Literal["malformed", "unvalued", "same_content", "small_margin", "uncertain", "not_surest"]
"""malformed: the better or, unless allowed, the worse step did not parse. unvalued: a step has no reward.
same_content: both have the same type and text, or share one estimate, or a surer pair says what this one does.
small_margin: rewards too close. uncertain: confidence too low. not_surest: its state has enough pairs that are
surer."""

DROP_REASONS: tuple[DropReason, ...] = get_args(DropReason)

Tag = Literal["efficiency_only", "style_only"]
"""efficiency_only: the undiscounted outcome is equal, only path length differs, and no judge was asked. style_only:
both are answers and cover-EM cannot tell them apart; never without golden answers."""

GoldVerdict = Literal["right", "wrong", "tie", "unknown"]
"""Whether the chosen step of two queries, or of two pieces of evidence, has more gold passages than the rejected one,
fewer, or as many. unknown: other types, or gold passages are not known."""

TypeCombination: TypeAlias = tuple[ActionType | None, ActionType | None]

TOLERANCE = 1e-9
"""Below this two means of the same outcomes are the same number."""


@dataclass(frozen=True, slots=True)
class PairingRules:
    """What makes a pair.

    min_margin: smallest difference of rewards, after division by alpha**layer where the recipe says so. The published
        builder has .01.
    min_confidence: smallest chance that the chosen step is truly better; see `preference.confidence`. The default is
        the least of those tried at which 19 of 20 pairs were right, ties apart, in every setting of the laboratory but
        the hardest, where it was .94 (benchmarks/RESULTS.md).
    max_pairs_per_state: of a state's valid candidates the surest are kept, wider margins first among equals; None: all.
    allow_malformed: whether a step that did not parse may be the rejected side.
    """

    min_margin: float = 0.05
    min_confidence: float = 0.7
    max_pairs_per_state: int | None = 3
    allow_malformed: bool = False


@dataclass(frozen=True, slots=True)
class Candidate:
    """Two siblings, the better one as `chosen` (the earlier one if they are equal)."""

    rollout: RolloutRecord
    chosen: RolloutNode
    rejected: RolloutNode
    margin: float
    confidence: float | None
    """None where a side has no reward, and where a judge alone decides."""
    tags: tuple[Tag, ...]
    dropped: DropReason | None

    @property
    def types(self) -> TypeCombination:
        return self.chosen.action_type, self.rejected.action_type

    @property
    def layer(self) -> int:
        return _layer(self.chosen)

    @property
    def gold(self) -> GoldVerdict:
        chosen, rejected = self.chosen.gold, self.rejected.gold
        if self.types not in (("query", "query"), ("evidence", "evidence")) or chosen is None or rejected is None:
            return "unknown"
        if chosen == rejected:
            return "tie"
        return "right" if chosen > rejected else "wrong"


def candidates(rollout: RolloutRecord, rules: PairingRules) -> Iterator[Candidate]:
    """All candidates of one tree, state by state in order of creation, in each state by falling confidence, then
    margin."""
    for siblings in _states(rollout):
        in_state = [_judge(rollout, pair, rules) for pair in combinations(siblings, 2)]
        in_state.sort(
            key=lambda each: (
                -(each.confidence or 0.0),
                -each.margin,
                _borrows(each.chosen) + _borrows(each.rejected),
                each.chosen.id,
                each.rejected.id,
            )
        )
        yield from _surest(in_state, rules.max_pairs_per_state)


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
    margin, sure = _margin(rollout, chosen, rejected), _confidence(rollout, chosen, rejected)
    dropped: DropReason | None = None
    if chosen.parse_error or (rejected.parse_error and not rules.allow_malformed):
        dropped = "malformed"
    elif chosen.reward is None or rejected.reward is None:
        dropped = "unvalued"
    elif _content_key(chosen) == _content_key(rejected) or _first_said(chosen) == _first_said(rejected):
        dropped = "same_content"
    elif margin < rules.min_margin or margin <= TOLERANCE:
        dropped = "small_margin"
    elif sure is not None and sure < rules.min_confidence:
        dropped = "uncertain"
    return Candidate(rollout, chosen, rejected, margin, sure, _tags(rollout, chosen, rejected), dropped)


def _surest(in_state: list[Candidate], most: int | None) -> Iterator[Candidate]:
    """Mark all but the first valid candidates as dropped; first of those that say the same, then of the rest."""
    said: set[frozenset[int]] = set()
    for candidate in in_state:
        if candidate.dropped is not None:
            yield candidate
            continue
        both = frozenset((_first_said(candidate.chosen), _first_said(candidate.rejected)))
        if both in said:
            yield replace(candidate, dropped="same_content")
        else:
            yield replace(candidate, dropped="not_surest") if most is not None and len(said) >= most else candidate
        said.add(both)


def _rank(node: RolloutNode) -> tuple[bool, float]:
    """Order of siblings: parsed before malformed, then by reward, unvalued last."""
    return node.parse_error is None, -1.0 if node.reward is None else node.reward


def _margin(rollout: RolloutRecord, chosen: RolloutNode, rejected: RolloutNode) -> float:
    """Difference of rewards; 0 where one is missing."""
    if chosen.reward is None or rejected.reward is None:
        return 0.0
    scale = rollout.recipe.alpha ** _layer(chosen) if rollout.recipe.margin_by_layer else 1.0
    return (chosen.reward - rejected.reward) / scale


def _confidence(rollout: RolloutRecord, chosen: RolloutNode, rejected: RolloutNode) -> float | None:
    """From the continuations alone, where a judge's word is a part of the reward; nothing is known of how often a judge
    alone is right."""
    if chosen.reward is None or rejected.reward is None or rollout.recipe.judge_weight == 1:
        return None
    better, worse = _observed(rollout, chosen), _observed(rollout, rejected)
    return None if better is None or worse is None else confidence(better, worse)


def _observed(rollout: RolloutRecord, node: RolloutNode) -> tuple[float, float] | None:
    """What continuations say a step is worth, as a share of the greatest it could be, and how many they are."""
    rule, judged, _ = (rollout.recipe.reward or "").partition("+")
    worth = node.rewards.get(rule) if judged else node.reward
    if worth is None:
        return None
    greatest = rollout.recipe.alpha ** (_layer(node) + 1)
    return min(1.0, worth / greatest), float(node.observations or max(1, len(node.rollouts)))


def _borrows(node: RolloutNode) -> bool:
    """Whether a step's estimate is that of a sibling which says the same."""
    return node.same_as is not None


def _first_said(node: RolloutNode) -> int:
    """The earliest sibling that says the same."""
    return node.id if node.same_as is None else node.same_as


def _content_key(node: RolloutNode) -> tuple[ActionType | None, str]:
    """What a step says, whatever its case and spaces: the same for two steps that make no pair (`same_content`)."""
    content = node.content if node.content is not None else node.response or ""
    return node.action_type, " ".join(content.split()).casefold()


def _tags(rollout: RolloutRecord, chosen: RolloutNode, rejected: RolloutNode) -> tuple[Tag, ...]:
    tags: list[Tag] = []
    left, right = _mean_outcome(rollout, chosen), _mean_outcome(rollout, rejected)
    judged = rollout.recipe.judge_weight > 0
    if not judged and left is not None and right is not None and abs(left - right) <= TOLERANCE:
        tags.append("efficiency_only")
    if chosen.action_type == rejected.action_type == "answer" and rollout.golden_answers:
        covered = [cover_em(node.content or "", rollout.golden_answers) for node in (chosen, rejected)]
        if covered[0] == covered[1]:
            tags.append("style_only")
    return tuple(tags)


def _mean_outcome(rollout: RolloutRecord, node: RolloutNode) -> float | None:
    """Undiscounted, what the reward is made of; the step's own outcome where nothing was continued."""
    if (rollout.recipe.reward or "").startswith("spre_even"):
        return node.expected_outcome
    if node.rollouts:
        return sum(each.quality for each in node.rollouts) / len(node.rollouts)
    return node.f1 if node.outcome is None else node.outcome.value


def _layer(node: RolloutNode) -> int:
    if node.layer is None:
        raise ValueError(f"node {node.id} is no step and has no layer")
    return node.layer
