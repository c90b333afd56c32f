"""What is known about a step from the draws below it: a mean in which every draw of a state weighs the same.

A search samples more where it is promising. A plain mean over all answers below a step would lean towards those
places; here a state is the mean of what was drawn in it, however much was then explored below each draw. Siblings that
say the same share one estimate. Knows neither the search nor what the estimates are used for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from mcts.tree import Node, Rollout, Tree

P = TypeVar("P")
EndValue = Callable[[Rollout[Any]], float]


@dataclass(frozen=True, slots=True)
class Estimate:
    """mean: of what the answers below a step are end_value, each draw of a state weighing the same.
    observations: how many independent draws of the next state the mean is end_value: as many as began at the step where
        each was another step; fewer where some were copies, which were explored once. Of an answer its draws.
    answers: seen below the step, every draw of one counted.
    """

    mean: float
    observations: float
    answers: int


def estimates(tree: Tree[Any], end_value: EndValue, *, plain_only: bool = True) -> list[Estimate | None]:
    """Of each node by id; None where no draw below it has come to an answer.

    end_value: value of one path's end, in [0, 1].
    plain_only: whether only plain samples of a state's policy count for it.
    """
    own: list[Estimate | None] = [None] * len(tree)
    shared: list[Estimate | None] = [None] * len(tree)
    for node in reversed(tree.nodes):  # children have higher ids than their parents
        own[node.id] = _own_estimate(tree, node, end_value, shared, plain_only=plain_only)
        if node.same_as is None:
            twins = _equal_siblings(tree, node)
            known = [each for each in map(own.__getitem__, twins) if each]
            both = _pooled(known) if known else None
            for each in twins:
                shared[each] = both
    return shared


def _equal_siblings(tree: Tree[Any], node: Node[Any]) -> list[int]:
    """A step and the later siblings that say the same."""
    if node.parent_id is None:
        return [node.id]
    siblings = tree.children(tree[node.parent_id])
    return [node.id] + [each.id for each in siblings if each.same_as == node.id]


def _pooled(twins: list[Estimate]) -> Estimate:
    """What is known of steps that say the same."""
    observations = sum(each.observations for each in twins)
    mean = sum(each.observations * each.mean for each in twins) / observations
    return Estimate(mean, observations, sum(each.answers for each in twins))


def _own_estimate(
    tree: Tree[Any], node: Node[Any], end_value: EndValue, shared: list[Estimate | None], *, plain_only: bool
) -> Estimate | None:
    """What a step's own draws say."""
    if node.terminal:
        draws = max(1, node.plain_draws if plain_only else node.draws)
        return Estimate(end_value(node.rollouts[0]), draws, draws) if node.rollouts else None
    parts: dict[int, tuple[Estimate, int]] = {}
    for child in tree.children(node):
        estimate, draws = shared[child.id], child.plain_draws if plain_only else child.draws
        if estimate and draws:
            said = child.id if child.same_as is None else child.same_as
            parts[said] = (estimate, draws + (parts[said][1] if said in parts else 0))
    ends = [(Estimate(end_value(rollout), 1, 1), 1) for rollout in node.unkept]
    return _mean([*parts.values(), *ends])


def _mean(parts: list[tuple[Estimate, int]]) -> Estimate | None:
    """The mean of different steps by their draws. Its variance is that of a weighted mean (Kish): copies of a step add
    weight, not knowledge; what was explored below a draw does not make more of it than one draw of this state."""
    draws = sum(weight for _, weight in parts)
    if not draws:
        return None
    mean = sum(weight * part.mean for part, weight in parts) / draws
    known = draws**2 / sum(weight**2 / part.observations for part, weight in parts)
    return Estimate(mean, min(draws, known), sum(part.answers for part, _ in parts))
