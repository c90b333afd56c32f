"""What labels are made of: the paper's estimate, the same of evenly weighed draws, and what the published code has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mcts import ROOT_ID, Step, Tree, evenly_drawn_rewards, spre_rewards, visit_weighted_rewards
from mcts.rewards import distinct_spre_rewards
from preference import f1_score

PublishedNode = dict[str, Any]


def test_a_step_without_a_continuation_has_no_reward() -> None:
    """None is said, not 0: nothing is known."""
    tree: Tree[str] = Tree()
    tree.add(tree.root, Step("query"))
    assert spre_rewards(tree, alpha=0.9) == [None, None]
    assert evenly_drawn_rewards(tree, alpha=0.9) == [None, None]
    assert visit_weighted_rewards(tree, alpha=0.9) == [None, None]


def test_distinct_trajectories_count_once_and_branches_without_an_answer_are_pruned() -> None:
    """root - query - answer 1.0, drawn three times; query - repaired - answer 0.0; root - stuck - a reply that could
    not be read.

    The answer .81 counts once, and the wrong one behind a step that is no plain sample not above that step.
    """
    tree: Tree[str] = Tree()
    query = tree.add(tree.root, Step("query"))
    for _ in range(3):
        tree.add(query, Step("answer", terminal=True, outcome=1.0, identity="answer"))
    repaired = tree.add(query, Step("repaired", plain=False))
    tree.add(repaired, Step("wrong", terminal=True, outcome=0.0))
    stuck = tree.add(tree.root, Step("stuck"))
    tree.add(stuck, Step("unreadable", terminal=True, outcome=None))
    assert distinct_spre_rewards(tree, alpha=0.9) == pytest.approx([0.81, 0.81, 0.81, 0.0, 0.0, None, None])


@pytest.fixture
def published_trees(shared_data: Path) -> list[dict[str, Any]]:
    content = (shared_data / "rollouts" / "reasonrag_gpt4o_mcts_trees.json").read_bytes()
    trees: list[dict[str, Any]] = json.loads(content)
    return trees


def nodes_by_id(published: dict[str, Any]) -> dict[int, PublishedNode]:
    return {int(name.rpartition("_")[2]): node for name, node in published["output"].items()}


def rebuilt(published: dict[str, Any]) -> Tree[PublishedNode]:
    """The tree with the published visits and our F1 of its answers; its ids are those of creation."""
    nodes = nodes_by_id(published)
    tree: Tree[PublishedNode] = Tree()
    tree.root.visits = nodes[ROOT_ID]["N"]
    for node_id in sorted(nodes)[1:]:
        node = nodes[node_id]
        answer = node.get("answer")
        step = Step(
            node,
            terminal=answer is not None,
            outcome=0.0 if answer is None else f1_score(answer, published["golden_answers"]),
        )
        added = tree.add(tree[node["parent_id"]], step)
        added.visits = node["N"]
        assert (added.id, added.depth) == (node_id, node["step"])
    return tree


def test_visit_weighted_rewards_repeat_the_files_where_both_rules_agree(published_trees: list[dict[str, Any]]) -> None:
    """The files' inner rewards weight leaves by their own visits, the builder's children by theirs. Above leaves only
    both are the same; there ours, at .95, is theirs, and so it is of the nine leaves: F1 * .95**step."""
    compared = 0
    for published, tree in ((each, rebuilt(each)) for each in published_trees):
        rewards = visit_weighted_rewards(tree, alpha=0.95)
        for node_id, node in nodes_by_id(published).items():
            if all(tree[child_id].terminal for child_id in node["children_ids"]):
                assert rewards[node_id] == pytest.approx(node["reward"])
                compared += 1
    assert compared == 13  # all fifteen but two: the root and the first query of dev_1
