"""Finished trees, grown by hand or at random: what tests of the data set's files begin with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from hypothesis import strategies as st

from preference import RolloutRecord

Fields: TypeAlias = dict[str, Any]
Pair: TypeAlias = tuple[int, int]

QUESTION = "Who wrote the first program?"
SYSTEM = "Think, then ask or answer."
UNPARSED: Fields = {"cause": "no_tag", "detail": "no known tag"}


def query(content: str, reward: float | None, **fields: Any) -> Fields:
    return _step("query", content, reward) | fields


def evidence(content: str, reward: float | None, **fields: Any) -> Fields:
    return _step("evidence", content, reward) | fields


def answer(content: str, reward: float | None, **fields: Any) -> Fields:
    return _step("answer", content, reward) | {"terminal": True} | fields


def bare(response: str, reward: float) -> Fields:
    return {"action_type": "query", "response": response, "reward": reward}


def malformed(response: str, reward: float | None = 0.0, **fields: Any) -> Fields:
    return {"response": response, "reward": reward, "terminal": True, "parse_error": UNPARSED} | fields


def _step(action_type: str, content: str, reward: float | None) -> Fields:
    response = f"So <{action_type}>{content}</{action_type}>"
    return {"action_type": action_type, "content": content, "response": response, "reward": reward}


def rollouts_of(f1: float, *steps: int) -> list[Fields]:
    return [{"f1": f1, "em": float(f1 == 1), "steps": each} for each in steps]


def prompt(user: str, system: str = SYSTEM) -> list[Fields]:
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


def tree(
    parents: Sequence[int], steps: Sequence[Fields], *, alpha: float = 0.9, by_layer: bool = True, **fields: Any
) -> RolloutRecord:
    """Node i + 1 is `steps[i]`, taken in the state of node `parents[i]`; every node leads to a state of its own."""
    question = fields.get("question", QUESTION)
    depths = [0]
    for parent in parents:
        depths.append(depths[parent] + 1)
    nodes: list[Fields] = [{"id": 0, "parent_id": None, "layer": None}]
    for node_id, (parent, step) in enumerate(zip(parents, steps, strict=True), start=1):
        user = f"Question: {question}" + (f"\nPrevious Thoughts: those of {parent}" if parent else "")
        here = {"id": node_id, "parent_id": parent, "layer": depths[node_id] - 1, "prompt": prompt(user)}
        nodes.append(here | step)
    for node in nodes:
        node["children_ids"] = [child for child, parent in enumerate(parents, start=1) if parent == node["id"]]
    return RolloutRecord.model_validate(
        {
            "question_id": "q1",
            "question": question,
            "golden_answers": ["Ada Lovelace"],
            "dataset": "toy",
            "split": "train",
            "config_hash": "0f",
            "seed": 7,
            "recipe": {"name": "paper", "alpha": alpha, "margin_by_layer": by_layer},
            "usage": {},
            "nodes": nodes,
        }
        | fields
    )


def siblings(*steps: Fields, **fields: Any) -> RolloutRecord:
    """All steps taken in the root's state."""
    return tree([0] * len(steps), steps, **fields)


def failure(question_id: str = "q2", **fields: Any) -> RolloutRecord:
    """A question without a tree."""
    error = {"cause": "timeout", "message": "no answer after 600 s"}
    return siblings(question_id=question_id, error=error, **fields).model_copy(update={"nodes": []})


random_steps = st.fixed_dictionaries(
    {
        "action_type": st.sampled_from(["query", "evidence", "answer", None]),
        "content": st.sampled_from(["Ada Lovelace", "ada  lovelace", "Ada", "Bob", "", None]),
        "response": st.sampled_from(["one", "two", "three"]),
        "reward": st.none() | st.floats(0, 1) | st.sampled_from([0.0, 0.5, 0.505, 0.9]),
        "parse_error": st.sampled_from([None, None, None, UNPARSED]),
        "observations": st.none() | st.integers(1, 9),
        "same_as": st.sampled_from([None, None, 1]),
        "grounded": st.sampled_from([None, None, True, False]),
        "rollouts": st.lists(st.builds(lambda f1: rollouts_of(f1, 2)[0], st.sampled_from([0.0, 0.5, 1.0])), max_size=2),
    }
)


@st.composite
def random_trees(draw: st.DrawFn, **fields: Any) -> RolloutRecord:
    steps = draw(st.lists(random_steps, max_size=9))
    parents = [draw(st.integers(0, child)) for child in range(len(steps))]
    return tree(parents, steps, alpha=draw(st.sampled_from([0.5, 0.9, 1.0])), by_layer=draw(st.booleans()), **fields)
