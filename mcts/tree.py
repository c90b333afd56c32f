"""The tree: nodes, what was seen at the end of the paths through them, and how both grow.

Decides ids (creation order, root 0), depth, and which outcomes count for which node.
Does not know how nodes are chosen, nor what a payload means.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

ROOT_ID = 0

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class Step(Generic[P]):
    """One step somebody sampled outside, as it is told to the search.

    outcome: quality of the answer a terminal step gives, in [0, 1]; ignored for other steps.
    plain: False if the step was not a plain sample of the policy (a repaired reply, say). Values and means over
        continuations then leave out, for every node above it, the paths that run through it.
    """

    payload: P
    terminal: bool = False
    outcome: float = 0.0
    plain: bool = True


@dataclass(frozen=True, slots=True)
class Rollout(Generic[P]):
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
    visits, value_sum: what search has backed up through the node.
    rollouts: every distinct real path to an answer through the node that counts for it.
    """

    id: int
    parent_id: int | None
    depth: int
    step: Step[P] | None
    children_ids: list[int] = field(default_factory=list)
    visits: int = 0
    value_sum: float = 0.0
    rollouts: list[Rollout[P]] = field(default_factory=list)

    @property
    def terminal(self) -> bool:
        return self.step is not None and self.step.terminal

    @property
    def plain(self) -> bool:
        return self.step is None or self.step.plain

    @property
    def layer(self) -> int | None:
        """Layer of the state this step was taken in; None at the root, which is no step."""
        return None if self.step is None else self.depth - 1

    @property
    def value(self) -> float:
        """Mean of the values backed up through the node; 0 before the first."""
        return self.value_sum / self.visits if self.visits else 0.0

    @property
    def payload(self) -> P:
        if self.step is None:
            raise ValueError("the root is not a step and has no payload")
        return self.step.payload


class Tree(Generic[P]):
    """All nodes by id, parents before children."""

    def __init__(self) -> None:
        self.nodes: list[Node[P]] = [Node(id=ROOT_ID, parent_id=None, depth=0, step=None)]

    def __getitem__(self, node_id: int) -> Node[P]:
        return self.nodes[node_id]

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def root(self) -> Node[P]:
        return self.nodes[ROOT_ID]

    def children(self, node: Node[P]) -> list[Node[P]]:
        return [self.nodes[child_id] for child_id in node.children_ids]

    def path_up(self, node: Node[P]) -> Iterator[Node[P]]:
        """The node, its parent, and so on up to the root."""
        while True:
            yield node
            if node.parent_id is None:
                return
            node = self.nodes[node.parent_id]

    def add(self, parent: Node[P], step: Step[P]) -> Node[P]:
        """Append `step` as a child of `parent`; a terminal's own outcome is recorded on the way up."""
        if parent.terminal:
            raise ValueError(f"node {parent.id} is terminal and takes no children")
        node = Node(id=len(self.nodes), parent_id=parent.id, depth=parent.depth + 1, step=step)
        self.nodes.append(node)
        parent.children_ids.append(node.id)
        if step.terminal:
            self._record(node, Rollout(step.outcome, node.depth, step.payload))
        return node

    def add_continuation(self, node: Node[P], path: Sequence[Step[P]]) -> None:
        """Record the answer at the end of `path`, sampled from `node` on, without keeping its steps."""
        if all(step.plain for step in path):
            self._record(node, Rollout(path[-1].outcome, node.depth + len(path), path[-1].payload))

    def _record(self, node: Node[P], rollout: Rollout[P]) -> None:
        for ancestor in self.path_up(node):
            ancestor.rollouts.append(rollout)
            if not ancestor.plain:
                return
