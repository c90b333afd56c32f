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
Worth = Callable[[Rollout[Any]], float]


@dataclass(frozen=True, slots=True)
class Estimate:
    """mean: of what the answers below a step are worth, each draw of a state weighing the same.
    draws: continuations that began at the step, of which it is the mean; for an answer how often it was drawn."""

    mean: float
    draws: int


def estimates(tree: Tree[Any], worth: Worth) -> list[Estimate | None]:
    """Of each node by id; None where no plain draw below it has come to an answer.

    worth: value of one path's end, in [0, 1].
    """
    own: list[Estimate | None] = [None] * len(tree)
    shared: list[Estimate | None] = [None] * len(tree)
    for node in reversed(tree.nodes):  # children have higher ids than their parents
        own[node.id] = _own(tree, node, worth, shared)
        if node.same_as is None:
            twins = [own[each] for each in _group(tree, node)]
            shared_one = _mean([(each, each.draws) for each in twins if each])
            for each in _group(tree, node):
                shared[each] = shared_one
    return shared


def _group(tree: Tree[Any], node: Node[Any]) -> list[int]:
    """A step and the later siblings that say the same."""
    if node.parent_id is None:
        return [node.id]
    siblings = tree.children(tree[node.parent_id])
    return [node.id] + [each.id for each in siblings if each.same_as == node.id]


def _own(tree: Tree[Any], node: Node[Any], worth: Worth, shared: list[Estimate | None]) -> Estimate | None:
    """What a step's own draws say."""
    if node.terminal:
        return Estimate(worth(node.rollouts[0]), max(1, node.plain_draws)) if node.rollouts else None
    found = [(shared[child.id], child.plain_draws) for child in tree.children(node)]
    seen = [(estimate, draws) for estimate, draws in found if estimate and draws]
    seen += [(Estimate(worth(rollout), 1), 1) for rollout in node.unkept]
    return _mean(seen)


def _mean(parts: list[tuple[Estimate, int]]) -> Estimate | None:
    draws = sum(weight for _, weight in parts)
    if not draws:
        return None
    return Estimate(sum(weight * part.mean for part, weight in parts) / draws, draws)
