"""A critic by its folder: what is known of it, when it may be used, what its scores cost, and how its server is
asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

from preference import Message
from preference.candidate_records import question_key
from reasonrag.errors import CapReached, InputError, Interrupted, ModelError
from reasonrag.llm.budget import Caps
from reasonrag.llm.critic import Critic, CriticFacts, ScoreEndpoint, check_critic, critic_spec, find_critic
from reasonrag.llm.endpoint.endpoint import Limits
from reasonrag.llm.endpoint.http_client import BadAnswerError, score_of
from reasonrag.llm.journal import Journal
from reasonrag.llm.model_spec import ModelSpec
from reasonrag.run.session import Models
from reasonrag.web.server import listening
from tests.helpers.scripted_model import ScriptedModel

STATE = (Message(role="system", content="Take a step."), Message(role="user", content="Question: who?"))
FACTS: dict[str, Any] = {"labels": "value", "end_token": "<|im_end|>", "trial_score": 0.5}


def folder_of(place: Path, critic: dict[str, Any] | None, **told: Any) -> Path:
    """A critic's folder, as far as it is read before it is served."""
    place.mkdir(parents=True)
    (place / "config.json").write_bytes(orjson.dumps({"architectures": ["Qwen2ForSequenceClassification"]}))
    (place / "model.safetensors").write_bytes(b"weights")
    (place / "tokenizer.json").write_bytes(b"{}")
    about = {"stage": "critic", "asked": {"renderer": "r1"}, "questions": [question_key("Who?")], **told}
    (place / "reasonrag.json").write_bytes(orjson.dumps(about | ({"critic": critic} if critic else {})))
    return place


def test_a_folder_says_its_prompts_and_the_questions_it_was_trained_on(tmp_path: Path) -> None:
    found = find_critic(str(folder_of(tmp_path / "mine", FACTS)))
    assert (found.renderer, found.name.startswith("mine@")) == ("r1", True)
    assert found.trained_on("who")
    assert not found.trained_on("Where?")
    (tmp_path / "mine" / "reasonrag.json").unlink()
    with pytest.raises(InputError, match=r"mine is no critic: it has no reasonrag\.json"):
        find_critic(str(tmp_path / "mine"))


@pytest.mark.parametrize(
    ("critic", "says"),
    [(None, "is no critic, but a model of stage critic"), ({**FACTS, "kind": "value"}, "critic.kind|kind")],
)
def test_a_folder_that_is_no_critics_is_refused(tmp_path: Path, critic: dict[str, Any] | None, says: str) -> None:
    with pytest.raises(InputError, match=says):
        find_critic(str(folder_of(tmp_path / "mine", critic)))


FAILED = {"failures": ["60 % of 50 pairs"], "evaluation": "somewhere"}


@pytest.mark.parametrize(
    ("critic", "asked", "says"),
    [
        (FACTS, {"renderer": "r1", "questions": ["Where?"]}, None),
        (FACTS, {"renderer": "r2", "questions": ["Where?"]}, "would be shown r2"),
        (FACTS, {"renderer": None, "questions": ["Who?", "Where?"]}, "trained on 1 of these questions"),
        ({**FACTS, "verdict": FAILED}, {"renderer": None, "questions": []}, "failed its evaluation: 60 % of 50 pairs"),
    ],
)
def test_a_critic_that_should_not_be_used_is_refused_unless_it_is_allowed(
    tmp_path: Path, critic: dict[str, Any], asked: dict[str, Any], says: str | None
) -> None:
    found, said = find_critic(str(folder_of(tmp_path / "mine", critic))), list[str]()
    check_critic(found, allowed=True, warn=said.append, **asked)
    assert any("was never evaluated" in each for each in said) is ("verdict" not in critic)
    assert says is None or any(says in each for each in said)
    if says is None:
        check_critic(found, allowed=False, warn=said.append, **asked)
    else:
        with pytest.raises(InputError, match=f"{says}.*--allow-critic"):
            check_critic(found, allowed=False, warn=said.append, **asked)


def test_a_url_is_no_critic() -> None:
    """A server's words are no path: nothing is read or written where it says that its model is."""
    with pytest.raises(InputError, match=r"^http://127.0.0.1:8001/v1: give the critic's folder"):
        find_critic("http://me:hidden@127.0.0.1:8001/v1?key=hidden")


async def test_scores_are_journaled_and_capped_like_any_answer(tmp_path: Path) -> None:
    """But not slowed down by the rates of the model whose steps they are of."""
    spec = critic_spec(find_critic(str(folder_of(tmp_path / "mine", FACTS))), Limits(4, 10.0, rpm=3, tpm=1000))
    assert spec.limits == Limits(4, 10.0)
    teacher = ModelSpec("teacher", spec.sampling, spec.limits)
    scripted = ScriptedModel(lambda asked, _: f"{len(asked.messages[-1].content)}.0", name="mine")
    for expected in (2, 0):  # the second time the journal answers
        asked = len(scripted.requests)
        async with Journal(tmp_path / "journal.jsonl") as journal:
            models = Models.journaled(journal, Caps(calls=3), {"model": (teacher, None), "critic": (spec, scripted)})
            critic = Critic(models.by_role["critic"])
            assert await critic.scores(STATE, ["four", "seven", "four"], question_id="q1") == [4.0, 5.0, 4.0]
            assert len(scripted.requests) - asked == expected
    assert critic.spent.calls == 2
    async with Journal(tmp_path / "journal.jsonl") as journal:
        models = Models.journaled(journal, Caps(calls=3), {"model": (teacher, None), "critic": (spec, scripted)})
        with pytest.raises(CapReached):
            await Critic(models.by_role["critic"]).scores(STATE, ["a", "bb"], question_id="q1")


async def test_scores_that_wait_for_others_are_not_asked_for_once_the_session_stops(tmp_path: Path) -> None:
    spec = critic_spec(find_critic(str(folder_of(tmp_path / "mine", FACTS))), Limits(4, 10.0))
    async with serving() as (base_url, asked), Journal(tmp_path / "journal.jsonl") as journal:
        models = Models.journaled(journal, Caps(), {"critic": (spec, model := endpoint(base_url))})
        steps = list(map(str, range(50)))
        scores = asyncio.create_task(Critic(models.main).scores(STATE, steps, question_id="q1"))
        while not asked:  # noqa: ASYNC110 - the state is what is tested
            await asyncio.sleep(0.001)
        models.stop(Interrupted("enough"))
        with pytest.raises(Interrupted):
            await scores
        await models.drain()
        await model.close()
    assert len(asked) < 20


# -- a served critic over HTTP -------------------------------------------------------------------------------------


@asynccontextmanager
async def serving(
    score: Callable[[dict[str, Any]], float] = lambda body: float(len(body["messages"][-1]["content"])),
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
    assert [len(asked), critic.spent.calls, critic.spent.prompt_tokens, critic.spent.completion_tokens] == [2, 2, 24, 0]
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
