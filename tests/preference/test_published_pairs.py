"""The published pair rule on three real GPT-4o trees: our export gives the same rows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mcts import Step, Tree, visit_weighted_rewards
from preference import NO_FILTERS, ExportOptions, RolloutRecord, export_pairs, f1_score
from preference.gathering import write_candidates

PROGUIDE_FIELDS = 10

VERDICTS = {
    "begin_reasoning": ("think", {True: "answer", False: "query"}),
    "reasoning": ("think", {True: "answer", False: "query"}),
    "document_analysis": ("read", {False: "evidence"}),
}
"""Action and, by whether the step answers, action type of a published node."""


@pytest.fixture
def rollouts(shared_data: Path) -> Path:
    return shared_data / "rollouts"


def published_nodes(published: dict[str, Any]) -> list[dict[str, Any]]:
    """Nodes by id; a published node knows parent, children, visits and reward, and its `step` is its depth."""
    nodes = {int(name.rpartition("_")[2]): node for name, node in published["output"].items()}
    return [nodes[node_id] for node_id in sorted(nodes)]


def builder_rewards(published: dict[str, Any]) -> list[float | None]:
    """Labels as the published builder makes them: F1 * .9**step, upwards weighted by visits."""
    tree: Tree[None] = Tree()
    root, *steps = published_nodes(published)
    tree.root.visits = root["N"]
    for node in steps:
        answer = node.get("answer")
        outcome = f1_score(answer, published["golden_answers"]) if answer else 0.0
        added = tree.add(tree[node["parent_id"]], Step(None, terminal=answer is not None, outcome=outcome))
        added.visits = node["N"]
    return visit_weighted_rewards(tree, alpha=0.9)


def as_rollout(published: dict[str, Any], rewards: list[float | None]) -> RolloutRecord:
    """A record of a published tree. The text inside the tag is that of the reply, to the character: `next_query` and
    `answer` of the file for queries and answers; evidence has no field of its own there and is cut from the reply."""
    root, *steps = published_nodes(published)
    nodes: list[dict[str, Any]] = [
        {"id": 0, "parent_id": None, "children_ids": root["children_ids"], "layer": None, "visits": root["N"]}
    ]
    for node_id, node in enumerate(steps, start=1):
        action, types = VERDICTS[node["action_name"]]
        evidence = node["response"].partition("<evidence>")[2].partition("</evidence>")[0]
        nodes.append(
            {
                "id": node_id,
                "parent_id": node["parent_id"],
                "children_ids": node["children_ids"],
                "layer": node["step"] - 1,
                "action": action,
                "prompt": node["input_prompt"],
                "response": node["response"],
                "action_type": types[node.get("answer") is not None],
                "content": node.get("answer") or node.get("next_query") or evidence,
                "terminal": node.get("answer") is not None,
                "visits": node["N"],
                "value": node["Q"],
                "reward": rewards[node_id],
            }
        )
    return RolloutRecord.model_validate(
        {
            "question_id": published["id"],
            "question": published["question"],
            "golden_answers": published["golden_answers"],
            "dataset": "hotpotqa",
            "split": "dev",
            "config_hash": "published",
            "seed": 0,
            "recipe": {"name": "released", "alpha": 0.9, "margin_by_layer": False},
            "usage": {},
            "nodes": nodes,
        }
    )


@pytest.mark.parametrize("rewarded_by", ["file", "builder"])
def test_the_export_of_the_published_trees_is_the_published_rows(
    *, rewarded_by: str, rollouts: Path, tmp_path: Path
) -> None:
    """All ten fields of all three rows, in order: with the rewards that stand in the files (made at .95), and with
    those the builder makes anew at .9. Its rule is the margin alone; all three are too uncertain for ours."""
    published_rule = replace(NO_FILTERS, min_margin=0.01)
    trees = json.loads((rollouts / "reasonrag_gpt4o_mcts_trees.json").read_bytes())
    expected = json.loads((rollouts / "ragproguide_format_pairs_from_real_trees.json").read_bytes())
    records = [
        as_rollout(
            published,
            builder_rewards(published)
            if rewarded_by == "builder"
            else [node["reward"] for node in published_nodes(published)],
        )
        for published in trees
    ]
    write_candidates(records, tmp_path)
    all_to_train = ExportOptions(validation=0)
    summary = export_pairs(tmp_path, tmp_path, published_rule, all_to_train)
    rows = json.loads((tmp_path / "RAG_ProGuide.json").read_bytes())
    assert [dict(list(row.items())[:PROGUIDE_FIELDS]) for row in rows] == expected
    assert [list(row)[:PROGUIDE_FIELDS] for row in rows] == [list(row) for row in expected]
    # dev_0 and dev_3 say the same twice; of dev_1's four pairs of siblings, 5 and 7 are too close.
    assert (summary.candidates, summary.pairs) == (6, 3)
    assert {reason: count for reason, count in summary.dropped.items() if count} == {
        "same_content": 2,
        "small_margin": 1,
    }
    assert export_pairs(tmp_path, tmp_path, replace(published_rule, min_confidence=0.7), all_to_train).pairs == 0
