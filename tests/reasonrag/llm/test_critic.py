"""A critic by its folder: what is known of it, when it may be used, and what its scores cost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

from preference import Message
from preference.candidates import question_key
from reasonrag.errors import CapReached, InputError
from reasonrag.llm.budget import Caps
from reasonrag.llm.chat import ChatRequest
from reasonrag.llm.critic import Critic, check_critic, critic_spec, find_critic, open_critic
from reasonrag.llm.endpoint.endpoint import Limits
from reasonrag.llm.journal import open_journal
from reasonrag.llm.model_spec import ModelSpec
from reasonrag.run.models import Models
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


# -- at a URL ----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def serving(root: Path, *, status: int = 200) -> AsyncIterator[tuple[str, list[Any]]]:
    """A server that calls the critic of a folder h: its address, and the models that it was asked for."""
    asked: list[Any] = []

    async def models(_: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "h", "root": str(root)}]}, status=status)

    async def pooling(request: web.Request) -> web.Response:
        asked.append(orjson.loads(await request.read())["model"])
        return web.json_response({"data": [{"data": [0.5]}]})

    app = web.Application()
    app.router.add_get("/v1/models", models)
    app.router.add_post("/pooling", pooling)
    async with listening(app, host="127.0.0.1", port=0, allow_host=["elsewhere"]) as address:
        yield address, asked


async def test_a_critic_served_from_a_folder_here_goes_by_that_folder_and_another_training_is_another_critic(
    tmp_path: Path,
) -> None:
    folder = folder_of(tmp_path / "mine", FACTS)
    async with serving(folder) as (address, asked), AsyncExitStack() as opened:
        found = await asyncio.to_thread(find_critic, address)
        assert (found.name, found.facts) == (find_critic(str(folder)).name, find_critic(str(folder)).facts)
        model = await open_critic(found, critic_spec(found, Limits(4, 10.0)), opened, say=print)
        await model.check()
        assert asked == ["h"], "what the server calls it"
        (folder / "model.safetensors").write_bytes(b"trained further")
        assert (await asyncio.to_thread(find_critic, address)).name != found.name


async def test_another_machine_is_asked_through_the_proxy_and_its_folder_is_not_looked_up_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(folder_of(tmp_path / "mine", FACTS)) as (address, _):
        monkeypatch.setenv("http_proxy", address)
        monkeypatch.setenv("no_proxy", "")
        found = await asyncio.to_thread(find_critic, "http://elsewhere:8001/v1")
    assert (found.name, found.folder, found.facts) == ("h", None, None)


async def test_a_refused_key_is_said_with_the_variable_that_holds_it(tmp_path: Path) -> None:
    async with serving(tmp_path, status=401) as (address, _):
        with pytest.raises(InputError, match=r"refuses the API key .*Check REASONRAG_CRITIC_API_KEY"):
            await asyncio.to_thread(find_critic, address)


def test_a_url_at_which_nothing_is_served_is_refused_with_what_to_do() -> None:
    with pytest.raises(InputError, match=r"no critic is served at .*:9/v1 .*--runner pooling"):
        find_critic("http://127.0.0.1:9/v1")


def test_a_critic_is_not_slowed_down_by_the_rates_of_the_model_whose_steps_it_scores(tmp_path: Path) -> None:
    found = find_critic(str(folder_of(tmp_path / "mine", FACTS)))
    assert critic_spec(found, Limits(4, 10.0, rpm=3, tpm=1000)).limits == Limits(4, 10.0)


def length(request: ChatRequest, _: int) -> str:
    return str(float(len(request.messages[-1].content)))


async def test_scores_are_journaled_and_capped_like_any_answer(tmp_path: Path) -> None:
    spec = critic_spec(find_critic(str(folder_of(tmp_path / "mine", FACTS))), Limits(4, 10.0))
    teacher = ModelSpec("teacher", spec.sampling, spec.limits)
    scripted = ScriptedModel(length, name="mine")
    for expected in (2, 0):  # the second time the journal answers
        asked = len(scripted.requests)
        async with open_journal(tmp_path / "journal.jsonl") as journal:
            models = Models.journaled(journal, Caps(calls=3), {"model": (teacher, None), "critic": (spec, scripted)})
            critic = Critic(models.by_role["critic"])
            assert await critic.scores(STATE, ["four", "seven", "four"], question_id="q1") == [4.0, 5.0, 4.0]
            assert len(scripted.requests) - asked == expected
    assert critic.spent.calls == 2
    async with open_journal(tmp_path / "journal.jsonl") as journal:
        models = Models.journaled(journal, Caps(calls=3), {"model": (teacher, None), "critic": (spec, scripted)})
        with pytest.raises(CapReached):
            await Critic(models.by_role["critic"]).scores(STATE, ["a", "bb"], question_id="q1")
