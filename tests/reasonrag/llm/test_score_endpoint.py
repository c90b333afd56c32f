"""A served critic over HTTP: what is asked of vLLM's endpoints, what an answer may be, and when a server is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import orjson
import pytest
from aiohttp import web

from preference import Message
from reasonrag.errors import InputError, ModelError
from reasonrag.llm.critic import Critic, CriticFacts, ScoreEndpoint
from reasonrag.llm.endpoint.endpoint import Limits
from reasonrag.llm.endpoint.http_client import BadAnswerError, score_of
from reasonrag.web.server import listening

STATE = (Message(role="system", content="Take a step."), Message(role="user", content="Question: who?"))


def score_of_length(body: dict[str, Any]) -> float:
    return float(len(body["messages"][-1]["content"]))


@asynccontextmanager
async def serving(
    score: Callable[[dict[str, Any]], float] = score_of_length,
) -> AsyncIterator[tuple[str, list[tuple[str, dict[str, Any]]]]]:
    """A server as vLLM is one: its address with /v1, and what it was asked."""
    asked: list[tuple[str, dict[str, Any]]] = []

    async def answer(request: web.Request) -> web.Response:
        body = orjson.loads(await request.read())
        asked.append((request.path, body))
        usage = {"prompt_tokens": 12, "total_tokens": 12}
        return web.json_response({"data": [{"index": 0, "data": [score(body)]}], "usage": usage})

    app = web.Application()
    app.router.add_post("/pooling", answer)
    async with listening(app, host="127.0.0.1", port=0) as address:
        yield f"{address}/v1", asked


def endpoint(base_url: str, **trained: Any) -> ScoreEndpoint:
    return ScoreEndpoint("critic", base_url, Limits(4, 20.0), CriticFacts(labels="value", end_token="", **trained))


async def test_a_score_is_asked_for_as_a_conversation_that_ends_with_the_step_and_without_an_activation() -> None:
    async with serving() as (base_url, asked):
        critic = Critic(model := endpoint(base_url))
        found = await critic.scores(STATE, ["four", "seven", "four"], question_id="q1")
        await model.close()
    assert found == [4.0, 5.0, 4.0]
    assert {path for path, _ in asked} == {"/pooling"}
    assert [len(asked), critic.spent.calls, critic.spent.prompt, critic.spent.completion] == [2, 2, 24, 0]
    assert asked[0][1] == {
        "model": "critic",
        "messages": [
            {"role": "system", "content": "Take a step."},
            {"role": "user", "content": "Question: who?"},
            {"role": "assistant", "content": "four"},
        ],
        "task": "classify",
        "use_activation": False,
        "add_generation_prompt": False,
    }


@pytest.mark.parametrize(
    ("score", "expected", "tokens", "says"),
    [
        (2.0, 2.0, None, None),
        (2.2, 2.0, 12, None),
        (0.01, None, 12, None),
        (-800.0, -900.0, 12, "its own chat template and end token"),
        (0.01, 0.0, 11, "reads the trial step as 12 tokens, the training as 11"),
    ],
)
async def test_a_server_that_reads_or_scores_the_trial_step_otherwise_than_the_training_is_refused(
    score: float, expected: float | None, tokens: int | None, says: str | None
) -> None:
    """By one request. It has another template or end token; near 0 the scores of both may be alike."""
    async with serving(score=lambda _: score) as (base_url, asked):
        model = endpoint(base_url, trial_score=expected, trial_tokens=tokens)
        with pytest.raises(InputError, match=says) if says else nullcontext():
            await model.check()
        await model.close()
    assert len(asked) == 1


async def test_a_server_that_fails_is_told_with_its_cause_and_one_without_a_score_is_refused() -> None:
    def bad(body: dict[str, Any]) -> Any:
        return 1 / 0 if "four" in str(body) else [0.2, 0.8]

    async with serving(bad) as (base_url, asked):
        model = endpoint(base_url)
        with pytest.raises(InputError, match=r"critic serves no critic: .* gave no score: "):
            await model.check()
        with pytest.raises(ModelError, match="the server of critic gave no score: status 500") as raised:
            await Critic(model).scores(STATE, ["four"], question_id="q1")
        await model.close()
    assert (raised.value.cause, len(asked)) == ("http_500", 2)


BODIES = {
    "no JSON": b"<html>",
    "a chat completion": b'{"choices": [{"message": {"content": "4"}}]}',
    "no numbers": b'{"data": [{"data": ["high"]}]}',
    "two labels": b'{"data": [{"data": [0.2, 0.8]}]}',
    "a vector of an encoder": b'{"data": [{"data": [[0.1, 0.2]]}]}',
    "not a number": b'{"data": [{"data": [NaN]}]}',
    "two answers": b'{"data": [{"data": [1]}, {"data": [2]}]}',
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_body_that_holds_no_single_number_is_no_score(body: bytes) -> None:
    with pytest.raises(BadAnswerError):
        score_of(body, (), prompt_size=100)


def test_a_server_that_counts_no_tokens_is_charged_by_bytes_and_a_score_has_no_tokens() -> None:
    told = score_of(b'{"data": [{"data": [-1.5]}]}', (), prompt_size=100)
    assert (told.text, told.prompt_tokens, told.completion_tokens, told.tokens_bounded) == ("-1.5", 100, 0, True)
    counted = score_of(b'{"data": [{"data": [-1.5]}], "usage": {"prompt_tokens": 30}}', (), prompt_size=100)
    assert (counted.prompt_tokens, counted.completion_tokens, counted.tokens_bounded) == (30, 0, False)
