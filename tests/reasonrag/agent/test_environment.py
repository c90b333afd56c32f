"""The environment: an agent's states for a policy of your own."""

from __future__ import annotations

from pathlib import Path

import pytest

import reasonrag as package
from preference import read_rollouts
from reasonrag import Environment
from reasonrag.agent.settings import AgentName
from reasonrag.errors import InputError
from reasonrag.retrieval.opening import open_index


@pytest.mark.parametrize("agent", ["reasonrag", "react", "prorag", "tools"])
def test_a_path_of_a_tree_is_walked_in_the_same_words(agent: AgentName) -> None:
    """Prompts are those that the search showed, and the reward at its end is the answer's F1."""
    few = {"search.simulations": 4}
    package.generate(dataset="atlas", limit=1, agent=agent, set=few, run="runs/a", index_home="indexes")
    [tree] = read_rollouts(Path("runs/a/rollouts.jsonl"))
    end = max((node for node in tree.nodes if node.terminal and node.f1 is not None), key=lambda node: node.layer or 0)
    path = [end]
    while path[0].parent_id:
        path.insert(0, tree.nodes[path[0].parent_id])
    [place] = [each.parent for each in Path("indexes").glob("*/manifest.json")]
    world = Environment(retriever=open_index(place), agent=agent)
    shown, turn = world.reset(tree.question, tree.golden_answers), None
    for node in path:
        assert [(each["role"], each["content"]) for each in shown] == [(m.role, m.content) for m in node.prompt or ()]
        turn = world.step(node.response or "")
        shown = turn.observation
    assert turn is not None
    assert (turn.done, turn.reward, turn.observation) == (True, end.f1, [])


def test_what_is_no_step_ends_a_question_without_a_reward() -> None:
    """No repair turn, as no model is known; after an end a question must be begun. Agents with a reader are refused."""

    class Nothing:
        identity = "none"

        async def retrieve(self, query: str, top_k: int) -> list[object]:  # noqa: ARG002 - a retriever's
            return []

    world = Environment(retriever=Nothing(), max_steps=3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="call reset"):
        world.step("x")
    world.reset("Which river?", ["Seine"])
    turn = world.step("<think>It is <answer>Seine</answer></think>The Seine.")
    assert (turn.done, turn.reward) == (True, 0.0)
    with pytest.raises(InputError, match="call reset"):
        world.step("x")
    with pytest.raises(InputError, match="the agent re2search has a reader"):
        Environment(retriever=Nothing(), agent="re2search")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="agent 'nonsense': choose from prorag"):
        Environment(retriever=Nothing(), agent="nonsense")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="outcome 'f2'"):
        Environment(retriever=Nothing(), outcome="f2")  # type: ignore[arg-type]
