"""Labels by outcome: a pair is labelled by how the one trajectory ended in which each step was first drawn.

Decides a step's own outcome and what such a label changes. The rival of labels by values, which need many draws.
"""

from __future__ import annotations

from collections.abc import Mapping

from preference.candidate_records import PairRecord, StateRecord, StepRecord
from preference.margin_and_confidence import surest_first
from preference.records import RolloutRecord
from preference.tags import tags_without_values, with_golden_tags


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
    return with_golden_tags(state.model_copy(update={"pairs": surest_first(pairs, state.steps)}))


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
