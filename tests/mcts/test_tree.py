"""The tree by itself: ids, depths, and which outcomes count for which node."""

from __future__ import annotations

import pytest

from mcts import ROOT_ID, Node, Step, Tree


def outcomes(node: Node[str]) -> list[tuple[float, int]]:
    return [(rollout.outcome, rollout.steps) for rollout in node.rollouts]


def test_ids_are_the_order_of_creation_and_the_root_is_zero() -> None:
    """A node's id is its place in `nodes`; parents come before children."""
    tree: Tree[str] = Tree()
    first = tree.add(tree.root, Step("first"))
    below = tree.add(first, Step("below"))
    second = tree.add(tree.root, Step("second"))
    assert [node.id for node in tree.nodes] == [ROOT_ID, 1, 2, 3]
    assert [node.parent_id for node in tree.nodes] == [None, 0, 1, 0]
    assert tree.children(tree.root) == [first, second]
    assert list(tree.path_up(below)) == [below, first, tree.root]
    assert len(tree) == 4


def test_the_layer_of_a_step_is_that_of_the_state_it_was_taken_in() -> None:
    """Layer 0 is the root's state; the root is no step and has no layer."""
    tree: Tree[str] = Tree()
    first = tree.add(tree.root, Step("first"))
    below = tree.add(first, Step("below"))
    assert [node.layer for node in (tree.root, first, below)] == [None, 0, 1]


def test_the_root_has_no_payload() -> None:
    """Asking the root for a payload is an error, not None."""
    tree: Tree[str] = Tree()
    with pytest.raises(ValueError, match="root"):
        _ = tree.root.payload
    assert tree.add(tree.root, Step("first")).payload == "first"


def test_a_terminal_takes_no_children() -> None:
    """Nothing can be sampled after an answer; the refusal leaves the tree as it was."""
    tree: Tree[str] = Tree()
    answer = tree.add(tree.root, Step("answer", terminal=True, outcome=1.0))
    with pytest.raises(ValueError, match="node 1 is terminal"):
        tree.add(answer, Step("more"))
    assert len(tree) == 2
    assert answer.children_ids == []


def test_an_answer_is_recorded_on_every_node_above_it() -> None:
    """Each node on the path keeps the outcome and the edges from the root to the answer."""
    tree: Tree[str] = Tree()
    query = tree.add(tree.root, Step("query"))
    answer = tree.add(query, Step("answer", terminal=True, outcome=0.5))
    assert outcomes(answer) == outcomes(query) == outcomes(tree.root) == [(0.5, 2)]
    assert answer.rollouts[0].final == "answer"


def test_a_continuation_is_recorded_without_becoming_nodes() -> None:
    """`add_continuation` adds an outcome at depth + length, and no node."""
    tree: Tree[str] = Tree()
    query = tree.add(tree.root, Step("query"))
    tree.add_continuation(query, [Step("evidence"), Step("answer", terminal=True, outcome=1.0)])
    assert len(tree) == 2
    assert outcomes(query) == outcomes(tree.root) == [(1.0, 3)]


def test_a_repaired_step_keeps_its_own_outcomes_and_hides_them_from_everything_above() -> None:
    """Paths through a step that is no plain sample count for that step and what is below it only."""
    tree: Tree[str] = Tree()
    query = tree.add(tree.root, Step("query"))
    repaired = tree.add(query, Step("evidence", plain=False))
    answer = tree.add(repaired, Step("answer", terminal=True, outcome=1.0))
    assert outcomes(answer) == outcomes(repaired) == [(1.0, 3)]
    assert outcomes(query) == outcomes(tree.root) == []


def test_a_repaired_answer_counts_for_itself_only() -> None:
    """The same for a terminal step: its own outcome is known exactly, means above it leave it out."""
    tree: Tree[str] = Tree()
    query = tree.add(tree.root, Step("query"))
    answer = tree.add(query, Step("answer", terminal=True, outcome=1.0, plain=False))
    assert outcomes(answer) == [(1.0, 2)]
    assert outcomes(query) == outcomes(tree.root) == []


@pytest.mark.parametrize("repaired_step", [0, 1])
def test_a_continuation_with_a_repaired_step_counts_for_nobody(repaired_step: int) -> None:
    """Its steps are no nodes, so there is no node whose own outcome it would be."""
    tree: Tree[str] = Tree()
    query = tree.add(tree.root, Step("query"))
    tree.add_continuation(
        query,
        [
            Step("evidence", plain=repaired_step != 0),
            Step("answer", terminal=True, outcome=1.0, plain=repaired_step != 1),
        ],
    )
    assert outcomes(query) == outcomes(tree.root) == []


def test_a_continuation_below_a_repaired_step_counts_for_that_step_only() -> None:
    """A plain continuation of a repaired step values this step, not its parent."""
    tree: Tree[str] = Tree()
    repaired = tree.add(tree.root, Step("query", plain=False))
    tree.add_continuation(repaired, [Step("answer", terminal=True, outcome=1.0)])
    assert outcomes(repaired) == [(1.0, 2)]
    assert outcomes(tree.root) == []


def test_the_value_of_a_node_is_the_mean_of_what_was_backed_up() -> None:
    """value_sum / visits, and 0 before the first visit."""
    node: Node[str] = Node(id=1, parent_id=0, depth=1, step=Step("query"))
    assert node.value == 0.0
    node.visits, node.value_sum = 4, 3.0
    assert node.value == 0.75
