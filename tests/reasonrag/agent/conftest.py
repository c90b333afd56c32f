"""A question explored by a scripted model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from mcts import Recipe
from preference import RolloutRecord
from reasonrag.agent.agent import Agent
from reasonrag.agent.outcomes import OutcomeRule
from reasonrag.agent.prompting import load_prompts
from reasonrag.data.questions import Question
from reasonrag.exploration.explorer import Explorer, RunIdentity
from reasonrag.llm.chat import ChatModel, ChatRequest, Sampling
from reasonrag.retrieval.retriever import IndexRetriever
from tests.helpers.scripted_model import Script, ScriptedModel

OPEN = Question(id="q1", question="Which river flows through the capital of France?")
"""A question without gold answers."""
Explored = Callable[..., Awaitable[tuple[RolloutRecord, list[ChatRequest]]]]


@pytest.fixture
def explored(retriever: IndexRetriever) -> Explored:
    """Its record, and all that was asked. values: the model that continues, if that is another."""

    async def make(
        script: Script, of: Recipe, question: Question = OPEN, *, seed: int = 0, values: ChatModel | None = None
    ) -> tuple[RolloutRecord, list[ChatRequest]]:
        def agent(model: ChatModel) -> Agent:
            sampling = Sampling(temperature=1, top_p=1, max_tokens=64)
            return Agent(model, retriever, load_prompts(), sampling, 2, 7, seed=seed)

        model = ScriptedModel(script)
        valuer = OutcomeRule(of.outcome).valuer(question, gold=of.judge_sees_gold)
        explorer = Explorer(agent(model), question, of, value_agent=agent(values) if values else None, valuer=valuer)
        await explorer.run()
        return explorer.record(RunIdentity("own", "train", "c0", seed=0, recipe=of)), model.requests

    return make
