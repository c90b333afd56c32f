"""Which of two sibling steps is better, by how much (margin) and how surely (confidence).

A step's value is the chance that its policy reaches a right answer. Its posterior is a Beta distribution: Jeffreys'
prior and one observation per continuation from the step. Partial F1 counts as a fraction of a right answer. A pair's
confidence is the chance that a draw from the chosen step's posterior exceeds one from the rejected step's. Does not
know which pairs are good enough (`filters`).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from preference.answer_scores import label_cover_em
from preference.candidate_records import PairRecord, StepRecord, is_letter
from preference.records import ActionType, RecipeRef, RolloutNode, RolloutRecord
from preference.similarity import folded

TOLERANCE = 1e-9
"""Means of outcomes that differ by less are equal."""
ANSWER_WEIGHT = 0.5
"""Weight of an answer's draws in a pair with a step of another type. Such a pair says whether to answer here at all; a
lucky or unlucky answer says less of that than a continuation says of a query. With guessing teachers of known truth,
.64 (chosen answers) to .85 (rejected ones) of such pairs were right without it, in a trial on 150 questions."""
PRIOR = 0.5
"""Both parameters of Jeffreys' prior."""
_CELLS = 400
_LOGS = [(math.log((cell + 0.5) / _CELLS), math.log1p(-(cell + 0.5) / _CELLS)) for cell in range(_CELLS)]


@dataclass(frozen=True)
class Sibling:
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


def as_sibling(node: RolloutNode, rollout: RolloutRecord) -> Sibling:
    text = node.content if node.content is not None else node.response or ""
    outcome = node.quality
    if (rollout.recipe.reward or "").startswith("spre_even"):
        outcome = node.expected_outcome
    elif node.rollouts:
        outcome = sum(each.quality for each in node.rollouts) / len(node.rollouts)
    return Sibling(
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


def margin(rollout: RolloutRecord, chosen: RolloutNode, rejected: RolloutNode) -> float | None:
    """Difference of rewards; None if one is missing."""
    if chosen.reward is None or rejected.reward is None:
        return None
    scale = discount(rollout, chosen.layer or 0) if rollout.recipe.margin_by_layer else 1.0
    return (chosen.reward - rejected.reward) / scale


def discount(rollout: RolloutRecord, steps: int) -> float:
    """alpha**steps, kept above 0."""
    return max(rollout.recipe.alpha**steps, sys.float_info.min)


def confidence_of(rollout: RolloutRecord, chosen: Sibling, rejected: Sibling, common: float) -> float | None:
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


def shares_estimates(recipe: RecipeRef) -> bool:
    """Whether a recipe's rewards count the observations of siblings that reveal the same."""
    return recipe.shares_estimates and (recipe.reward or "").startswith("spre_even")


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
    return min(1.0, node.reward / discount(rollout, (node.layer or 0) + 1)), n


def rests_on_one_draw(chosen: RolloutNode, rejected: RolloutNode) -> bool:
    """Whether neither step was continued more than once; the scores of two answers are exact."""
    answers = chosen.action_type == rejected.action_type == "answer"
    return not answers and all(0 < (each.observations or 0) <= 1 + TOLERANCE for each in (chosen, rejected))


def confidence(chosen: tuple[float, float], rejected: tuple[float, float]) -> float:
    """P(chosen truly better), in [0, 1]; one half for equal evidence.

    chosen, rejected: mean of the observations, in [0, 1], and their number (the effective sample size).
    """
    return _chance((round(chosen[0], 4), round(chosen[1], 4)), (round(rejected[0], 4), round(rejected[1], 4)))


@lru_cache(maxsize=65536)
def _chance(chosen: tuple[float, float], rejected: tuple[float, float]) -> float:
    better, worse = _posterior(*chosen), _posterior(*rejected)
    below = total = 0.0
    for there, here in zip(worse, better, strict=True):
        total += here * (below + there / 2)
        below += there
    return min(1.0, total)


@lru_cache(maxsize=4096)
def _posterior(mean: float, observations: float) -> tuple[float, ...]:
    """The posterior's probability in each of `_CELLS` equal cells of [0, 1]."""
    right, wrong = PRIOR + mean * observations, PRIOR + (1 - mean) * observations
    logs = [(right - 1) * log + (wrong - 1) * log_of_rest for log, log_of_rest in _LOGS]
    highest = max(logs)
    masses = [math.exp(each - highest) for each in logs]
    whole = sum(masses)
    return tuple(mass / whole for mass in masses)


def surest_first(pairs: list[PairRecord], steps: Iterable[RolloutNode | StepRecord]) -> list[PairRecord]:
    """The pairs of a state in order; of equal ones, those whose steps share another one's estimate come last."""
    borrows = {step.id: step.same_as is not None for step in steps}

    def place(each: PairRecord) -> tuple[float, float, int, int, int]:
        borrowed = borrows[each.chosen] + borrows[each.rejected]
        return -(each.confidence or 0.0), -(each.margin or 0.0), borrowed, each.chosen, each.rejected

    return sorted(pairs, key=place)
