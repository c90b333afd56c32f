"""The tree by itself: ids, depths, steps drawn twice, and which outcomes count for which node."""

from __future__ import annotations

import itertools

import pytest

from mcts import Node, Step, Tree
from mcts.rewards import REWARDS


def same(payload: str, *, plain: bool = True) -> Step[str]:
    """A step that is one node however often it is drawn."""
    return Step(payload, plain=plain, identity=payload)


def answer(outcome: float = 1.0, *, plain: bool = True) -> Step[str]:
    return Step("answer", terminal=True, outcome=outcome, plain=plain, identity="answer")


def outcomes(node: Node[str]) -> list[tuple[float, int]]:
    return [(rollout.outcome, rollout.steps) for rollout in node.rollouts]


@pytest.mark.parametrize("kept", [True, False])
def test_an_answer_without_an_outcome_counts_nowhere(*, kept: bool) -> None:
    """Nobody could say what it is worth: it stands in the tree, and no mean knows of it."""
    tree: Tree[str] = Tree()
    first = tree.add(tree.root, same("first"))
    path = [Step("answer", terminal=True, outcome=None)]
    if kept:
        tree.follow(first, path)
    else:
        tree.add_continuation(first, path)
    assert len(tree) == 2 + kept
    assert all((outcomes(node), node.unkept) == ([], []) for node in tree.nodes)
    assert {each for rule in REWARDS.values() for each in rule(tree, alpha=0.9)} == {None}


def test_a_terminal_takes_no_children() -> None:
    """Nothing can be sampled after an answer; the refusal leaves the tree as it was."""
    tree: Tree[str] = Tree()
    answer = tree.add(tree.root, Step("answer", terminal=True, outcome=1.0))
    with pytest.raises(ValueError, match="node 1 is terminal"):
        tree.add(answer, Step("more"))
    assert len(tree) == 2
    assert answer.children_ids == []


# -- steps drawn twice --------------------------------------------------------------------------------------------


def test_what_is_found_below_a_step_counts_above_it_once_it_was_drawn_plainly() -> None:
    """A repaired query keeps its answers to itself until it is drawn plainly; then all of them count, each once."""
    tree: Tree[str] = Tree()
    query = tree.add(tree.root, same("query", plain=False))
    tree.add_continuation(query, [answer(0.0)])
    assert outcomes(tree.root) == []
    assert tree.add(tree.root, same("query")) is query
    tree.add_continuation(query, [answer(1.0)])
    tree.add(tree.root, same("query"))
    assert outcomes(query) == outcomes(tree.root) == [(0.0, 2), (1.0, 2)]


@pytest.mark.parametrize(
    ("plain", "counting"),
    [
        ((True, True), [4, 3, 1, 0]),
        ((True, False), [4]),  # the repaired answer counts for itself
        ((False, True), [4, 3, 1, 0]),  # the step was drawn plainly before: what is below it counts above, too
        ((False, False), [4]),
    ],
)
def test_what_is_found_counts_up_to_the_first_step_that_was_never_drawn_plainly(
    plain: tuple[bool, bool], counting: list[int]
) -> None:
    """Root - 1 (plain) - 3 - 4, of which 3 and 4 were drawn plainly first and now as said, beside a plain sibling 2
    that never counts. An answer counts draw by draw, a step as soon as it was drawn plainly."""
    tree: Tree[str] = Tree()
    start = tree.add(tree.root, same("query"))
    tree.add(tree.root, same("sibling"))
    tree.follow(start, [same("evidence"), answer()])
    path = [same("evidence", plain=plain[0]), answer(plain=plain[1])]
    nodes = tree.follow(start, path)
    assert [node.id for node in tree.counting(start, path, nodes)] == counting


PLAIN, REPAIRED, DECISIVE = "drawn plainly", "repaired", "decisive"


@pytest.mark.parametrize(
    ("draws", "above"),
    [
        ([PLAIN, REPAIRED], [1.0, 0.5]),
        ([PLAIN, REPAIRED, DECISIVE], [1.0, 0.5]),
        ([PLAIN, REPAIRED, REPAIRED], [1.0, 0.5, 0.5]),
        ([PLAIN, PLAIN, REPAIRED], [1.0, 1.0, 0.5]),
    ],
)
def test_what_counts_above_a_step_does_not_depend_on_the_order_of_its_draws(
    draws: list[str], above: list[float]
) -> None:
    """Each draw is a path of two steps and an answer of its own. What a decisive draw found counts for its answer
    alone; what the others found counts for both steps, and above once the first was drawn plainly."""
    worth = {PLAIN: 1.0, REPAIRED: 0.5, DECISIVE: 0.0}
    for order in itertools.permutations(draws):
        tree: Tree[str] = Tree()
        for draw in order:
            last = answer(worth[draw])._replace(identity=draw)
            path = [same("query", plain=draw != REPAIRED), same("evidence"), last]
            tree.follow(tree.root, path, decisive=draw == DECISIVE)
        query, evidence = tree[1], tree[2]
        found = [worth[draw] for draw in draws if draw != DECISIVE]
        assert sorted(end.outcome for end in evidence.rollouts) == sorted(found)
        assert sorted(end.outcome for end in query.rollouts) == sorted(found)
        assert sorted(end.outcome for end in tree.root.rollouts) == sorted(above)


def test_a_node_remembers_the_continuations_that_began_at_it_and_became_no_nodes() -> None:
    """`unkept` are draws of the node's state like its children; those that count for nobody are not among them."""
    tree: Tree[str] = Tree()
    query = tree.add(tree.root, same("query"))
    tree.add_continuation(query, [same("evidence"), answer(0.5)])
    tree.add_continuation(query, [same("evidence", plain=False), answer(1.0)])
    assert [each.outcome for each in query.unkept] == [0.5]
    assert tree.root.unkept == []
    assert outcomes(query) == [(0.5, 3)]
