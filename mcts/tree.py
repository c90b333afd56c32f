"""The tree: nodes, the answers at the end of the paths through them, and how both grow.

Decides ids (creation order, root 0), depth, that the same step drawn twice is one node, and which outcomes count for
which node. Does not know how nodes are selected, nor what a payload means.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

ROOT_ID = 0

P = TypeVar("P")


class Step(NamedTuple, Generic[P]):
    """One sampled step, as it is told to the search.

    outcome: quality of a terminal step's answer, in [0, 1]; None if unknown, then its path counts nowhere; ignored for
        other steps.
    plain: False if the step was not a plain sample of the policy (a repaired reply, say). Values and means over
        continuations then leave out, for every node above it, the paths that run through it, unless the same step was
        drawn plainly, too.
    progress: the share of all that an answer needs which the step brings to light, in [0, 1]; None if unknown.
    identity: equal for steps that lead from one state to the same state; None for a step that equals no other.
    """

    payload: P
    terminal: bool = False
    outcome: float | None = 0.0
    plain: bool = True
    identity: Hashable | None = None
    progress: float | None = None


class Rollout(NamedTuple, Generic[P]):
    """A path from the root to an answer, seen from one node on it.

    outcome: quality of the answer, in [0, 1].
    steps: edges from the root to the answer (a direct answer is 1).
    final: payload of the answering step.
    """

    outcome: float
    steps: int
    final: P


@dataclass(slots=True)
class Node(Generic[P]):
    """A step that was taken in its parent's state; the root is the empty beginning.

    depth: edges from the root; the layer of the state it was taken in is `depth - 1`.
    draws, plain_draws: how often the step was drawn in its state, and how many of the draws were plain samples.
    decisive_draws: how many of the plain ones lie on a path whose answer decided that the search goes on here; they
        count for no step above.
    same_as: the earliest equivalent sibling, if the search compares siblings; else None.
    in_common: by id, for each earlier sibling that is no repeat: the share, in (0, 1], of what both steps reveal that
        they have in common.
    visits: backups through the node. counted, value_sum: how many of them count for the node, and their sum.
    rollouts: every real path to an answer through the node that counts for it.
    unkept: those that started here and whose steps are not nodes.
    """

    id: int
    parent_id: int | None
    depth: int
    step: Step[P] | None
    terminal: bool = False
    children_ids: list[int] = field(default_factory=list)
    draws: int = 0
    plain_draws: int = 0
    decisive_draws: int = 0
    same_as: int | None = None
    in_common: dict[int, float] = field(default_factory=dict)
    visits: int = 0
    counted: int = 0
    value_sum: float = 0.0
    rollouts: list[Rollout[P]] = field(default_factory=list)
    unkept: list[Rollout[P]] = field(default_factory=list)

    @property
    def counted_draws(self) -> int:
        """Draws that count for the step above."""
        return self.plain_draws - self.decisive_draws

    @property
    def counts_above(self) -> bool:
        """Whether what is found below the step says something of the step above."""
        return self.step is None or self.plain_draws > self.decisive_draws

    @property
    def layer(self) -> int | None:
        """Layer of the state this step was taken in; None at the root, which is not a step."""
        return None if self.step is None else self.depth - 1

    @property
    def value(self) -> float:
        """Mean of the values that count for the node; 0 before the first."""
        return self.value_sum / self.counted if self.counted else 0.0

    @property
    def payload(self) -> P:
        if self.step is None:
            raise ValueError("the root is not a step and has no payload")
        return self.step.payload


class Tree(Generic[P]):
    """All nodes by id, parents before children.

    merge_equal: whether steps of equal identity, drawn in one state, are one node.
    """

    def __init__(self, *, merge_equal: bool = True) -> None:
        self.merge_equal = merge_equal
        self.nodes: list[Node[P]] = [Node(id=ROOT_ID, parent_id=None, depth=0, step=None)]
        self.outcomes: set[float] = set()
        """Of all answers that count for any node."""

    def __getitem__(self, node_id: int) -> Node[P]:
        return self.nodes[node_id]

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def root(self) -> Node[P]:
        return self.nodes[ROOT_ID]

    def children(self, node: Node[P]) -> list[Node[P]]:
        return list(map(self.nodes.__getitem__, node.children_ids))

    def path_up(self, node: Node[P]) -> Iterator[Node[P]]:
        """The node, its parent, and so on up to the root."""
        while True:
            yield node
            if node.parent_id is None:
                return
            node = self.nodes[node.parent_id]

    def state_of(self, node: Node[P]) -> Hashable:
        """Equal for nodes that lead to the same state: without merging, several nodes may."""
        if self.merge_equal:
            return node.id
        return tuple(
            each.id if each.step is None or each.step.identity is None else each.step.identity
            for each in self.path_up(node)
        )

    def drawn(self, node: Node[P]) -> int:
        """Steps drawn so far in the state below a node, repeats included."""
        return sum([self.nodes[each].draws for each in node.children_ids])

    def add(self, parent: Node[P], step: Step[P]) -> Node[P]:
        """Add a drawn step: to the earlier child of the same identity (if equal steps are merged), or as a new one. A
        terminal step's answer is recorded."""
        return self.follow(parent, [step])[0]

    def follow(
        self, start: Node[P], path: Sequence[Step[P]], *, decisive: bool = False, level_discount: float = 1.0
    ) -> list[Node[P]]:
        """Add the steps of a path drawn from `start`, each as `add` does, and return its nodes. An answer at its end is
        recorded where it counts; see `counting`. level_discount: of values, as they are backed up."""
        nodes: list[Node[P]] = []
        node = start
        for step in path:
            node = self._child(node, step)
            node.decisive_draws += decisive and step.plain
            nodes.append(node)
        for node, step in zip(nodes, path, strict=True):  # from the top, so that nothing is handed up twice
            if step.plain and not decisive and node.counted_draws == 1 and not node.terminal:
                self._hand_up(node, level_discount)
        if path[-1].terminal:
            self._record(self.counting(start, path, nodes, decisive=decisive), path[-1], node.depth)
        return nodes

    def _hand_up(self, node: Node[P], level_discount: float) -> None:
        """What was found below a step before a draw of it counted, is now counted above it, too."""
        rollouts, counted, value_sum = list(node.rollouts), node.counted, node.value_sum
        for above in itertools.islice(self.counting(node), 1, None):
            above.rollouts += rollouts
            above.counted += counted
            value_sum *= level_discount
            above.value_sum += value_sum

    def _child(self, parent: Node[P], step: Step[P]) -> Node[P]:
        if parent.terminal:
            raise ValueError(f"node {parent.id} is terminal and takes no children")
        twins = (each for each in self.children(parent) if each.step and each.step.identity == step.identity)
        node = next(twins, None) if self.merge_equal and step.identity is not None else None
        if node is None:
            node = Node(len(self.nodes), parent.id, parent.depth + 1, step, step.terminal)
            self.nodes.append(node)
            parent.children_ids.append(node.id)
        node.draws += 1
        node.plain_draws += step.plain
        return node

    def add_continuation(self, node: Node[P], path: Sequence[Step[P]]) -> bool:
        """Record the answer at the end of `path`, drawn from `node`, without keeping its steps. Whether it counts."""
        counted = list(self.counting(node, path)) if path[-1].outcome is not None else []
        self._record(counted, path[-1], node.depth + len(path))
        if counted:
            node.unkept.append(node.rollouts[-1])
        return bool(counted)

    def counting(
        self,
        start: Node[P],
        path: Sequence[Step[P]] = (),
        nodes: Sequence[Node[P]] | None = None,
        *,
        decisive: bool = False,
    ) -> Iterator[Node[P]]:
        """The nodes for which the outcome at the end of a path counts, the last one first.

        path: steps drawn from `start`; nodes: their nodes, None if they were not kept. An answer counts above itself if
            its draw was plain, and above each node of which any draw counts. Steps that are no nodes must all be plain.
        decisive: whether the outcome decided that the search goes on here: it then counts for the answer alone.
        """
        if nodes is not None:
            yield nodes[-1]
            start, path = [start, *nodes][-2], path[-1:]
        if decisive or not all(step.plain for step in path):
            return
        above: Node[P] | None = start
        while above:
            yield above
            above = self.nodes[above.parent_id] if above.counts_above and above.parent_id is not None else None

    def _record(self, nodes: Iterable[Node[P]], last: Step[P], steps: int) -> None:
        if last.outcome is None:
            return
        rollout = Rollout(last.outcome, steps, last.payload)
        for node in nodes:
            node.rollouts.append(rollout)
            self.outcomes.add(rollout.outcome)
