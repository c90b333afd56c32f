"""Estimates of a step's expected outcome from the draws below it, in which every draw of a state weighs the same.

A search samples more where it expects more. A plain mean over all answers below a step would be biased towards those
places; here a state's value is the mean of what was drawn in it, however much was then explored below each draw.
Equivalent siblings share one estimate; siblings that have in common what they reveal count each other's observations
by that share. Knows neither the search nor what the estimates are used for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from mcts.tree import Node, Rollout, Tree

EndValue = Callable[[Rollout[Any]], float]


class Estimate(NamedTuple):
    """A step's expected outcome.

    mean: value of the answers below the step, every draw of a state weighing the same.
    observations: effective sample size (Kish), in independent draws of the next state: the number of draws if all
        differ; fewer if some are copies, which were explored once. For an answer: its draws.
    answers: answers seen below the step, each draw counted.

    Of siblings that have something in common, observations and answers of the other count by that share.
    """

    mean: float
    observations: float
    answers: float


def estimates(tree: Tree[Any], end_value: EndValue, *, plain_only: bool = True) -> list[Estimate | None]:
    """The estimate of each node by id; None where no draw below it has reached an answer.

    end_value: value of a path's end, in [0, 1].
    plain_only: count only plain samples of a state's policy, and of these none that decided where the search goes on.
    """
    return Estimates(tree, end_value, plain_only=plain_only).update(range(len(tree)))


class Estimates:
    """The estimates of a tree that grows; only those above or beside a change are computed again."""

    def __init__(self, tree: Tree[Any], end_value: EndValue, *, plain_only: bool) -> None:
        """As of `estimates`."""
        self._tree, self._end_value, self._plain_only = tree, end_value, plain_only
        self._firsts: list[int] = []
        """By node: the first of its equivalent siblings, or itself."""
        self._equal: defaultdict[int, list[int]] = defaultdict(list)
        self._own: list[Estimate | None] = []
        self._shared: list[Estimate | None] = []
        """By first of equivalent siblings: that of all of them."""
        self._found: list[Estimate | None] = []
        """By node: the same, with those of siblings by what they have in common."""
        self._common: list[dict[int, float]] = []
        """By node: what it has in common with which siblings."""

    def update(self, changed: Iterable[int]) -> list[Estimate | None]:
        """The estimate of each node. changed: ids of all nodes that were drawn, or continued, since the last call."""
        nodes = self._tree.nodes
        for node in nodes[len(self._own) :]:
            first = node.id if node.same_as is None else node.same_as
            self._firsts.append(first)
            self._equal[first].append(node.id)
            self._own.append(None)
            self._shared.append(None)
            self._found.append(None)
            self._common.append(dict(node.in_common))
            for earlier, share in node.in_common.items():
                self._common[earlier][node.id] = share
        due = set[int]()
        for each in changed:
            above: int | None = each
            while above is not None and above not in due:
                due.add(above)
                above = nodes[above].parent_id
        firsts = set(map(self._firsts.__getitem__, due))
        for each in sorted(due | firsts, reverse=True):  # children before parents
            self._own[each] = self._own_estimate(nodes[each])
            if each in firsts:
                known = [*filter(None, map(self._own.__getitem__, self._equal[each]))]
                self._shared[each] = _pooled(known[0], [(other, 1.0) for other in known[1:]]) if known else None
        for each in firsts.union(*map(self._common.__getitem__, firsts)):
            common = [(other, share) for one, share in self._common[each].items() if (other := self._shared[one])]
            own = self._shared[each]
            found = own and _pooled(own, common)
            for one in self._equal[each]:
                self._found[one] = found
        self._found[0] = self._shared[0]
        return self._found

    def _own_estimate(self, node: Node[Any]) -> Estimate | None:
        """The estimate from a step's own draws."""
        if node.terminal:
            draws = max(1, node.counted_draws if self._plain_only else node.draws)
            return Estimate(self._end_value(node.rollouts[0]), draws, draws) if node.rollouts else None
        parts: dict[int, tuple[Estimate, int]] = {}
        for child in self._tree.children(node):
            said, draws = self._firsts[child.id], child.counted_draws if self._plain_only else child.draws
            if (estimate := self._shared[said]) and draws:
                parts[said] = (estimate, draws + (parts[said][1] if said in parts else 0))
        ends = [(Estimate(self._end_value(rollout), 1, 1), 1) for rollout in node.unkept]
        return _mean([*parts.values(), *ends])


def _pooled(own: Estimate, others: Iterable[tuple[Estimate, float]]) -> Estimate | None:
    """The joint estimate of a step and others that equal or overlap it, each by the share of its draws that counts."""
    observations = 1.0 * own.observations
    mean, answers = observations * own.mean, own.answers
    for each, share in others:
        weight = share * each.observations
        observations += weight
        mean += weight * each.mean
        answers += share * each.answers
    return Estimate(mean / observations, observations, 1.0 * answers) if observations else None


def _mean(parts: Iterable[tuple[Estimate, int]]) -> Estimate | None:
    """The mean over different steps, weighted by draws. Its variance is that of a weighted mean (Kish): copies of a
    step add weight but no information, and a draw is one draw, however much was explored below it."""
    draws, mean, spread, answers = 0, 0.0, 0.0, 0.0
    for part, weight in parts:
        draws += weight
        mean += weight * part.mean
        spread += weight**2 / part.observations
        answers += part.answers
    return Estimate(mean / draws, min(draws, draws**2 / spread), answers) if draws else None
