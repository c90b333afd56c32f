"""A teacher that leaves, and one that is served where there is room: what is said, and that no question fails."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest
from aiohttp import web
from aiohttp.typedefs import Handler

from reasonrag.exploration.explore import Given, explore
from reasonrag.exploration.settings import GenerateSettings
from reasonrag.exploration.summary import RunSummary
from reasonrag.llm.chat import ChatModel
from reasonrag.llm.endpoint.endpoint import EndpointModel, Limits
from reasonrag.llm.settings import DEFAULT_TEACHER
from reasonrag.progress import SilentWatcher
from reasonrag.web.server import read_body
from tests.endpoints.behaviour import EndpointBehaviour
from tests.endpoints.simulator import make_app
from tests.helpers.command_line import CORPUS, QUESTION, Reasonrag
from tests.helpers.endpoints import Served, Stage
from tests.helpers.trees import digest

FLEX = {"service_tier": "flex"}


class Catalogue(Served):
    """The simulated endpoint with a list of models; others are gone."""

    def __init__(self, *models: str) -> None:
        self.asked = list[str]()
        self.models = list(models)
        app = make_app(EndpointBehaviour())
        app.middlewares.append(self._answering)
        super().__init__(app, "/v1")

    @web.middleware
    async def _answering(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path.endswith("/models"):
            return web.json_response({"data": [{"id": name} for name in self.models]})
        body = await read_body(request)
        self.asked.append(model := orjson.loads(body)["model"])
        if model not in self.models:
            told = f"The model `{model}` does not exist or you do not have access to it."
            error = {"message": told, "type": "invalid_request_error", "param": None, "code": "model_not_found"}
            return web.json_response({"error": error}, status=404)
        with warnings.catch_warnings(action="ignore"):  # of a future aiohttp, which puts nothing back
            request.content.unread_data(body)
        return await handler(request)


@contextmanager
def catalogue(monkeypatch: pytest.MonkeyPatch, *models: str) -> Iterator[Catalogue]:
    """In the place of OpenAI, with a key."""
    with Catalogue(*models).open() as served:
        monkeypatch.setenv("OPENAI_BASE_URL", served.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-anything")
        yield served


@pytest.fixture(autouse=True)
def own_files() -> None:
    lines = [orjson.dumps({"id": each, "title": title, "text": text}) for each, title, text in CORPUS]
    Path("corpus.jsonl").write_bytes(b"\n".join(lines))
    Path("questions.jsonl").write_bytes(orjson.dumps(QUESTION.model_dump(include={"id", "question", "golden_answers"})))


OWN = ("--questions", "questions.jsonl", "--corpus", "corpus.jsonl")
FIRST = ("generate", *OWN, "--yes", "--set=search.simulations=2")


def tried(err: str) -> list[str]:
    """The words of the command that is proposed, without the program."""
    _, found, command = err.partition("try: reasonrag ")
    assert found, err
    return shlex.split(command)


def model_of(run: str) -> str:
    return str(orjson.loads(Path(run, "config.json").read_bytes())["decides_answers"]["model"])


def test_the_first_command_with_a_key_once_the_default_teacher_is_gone(
    reasonrag: Reasonrag, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It starts nothing and chooses nothing; the command that it names works as it is printed."""
    with catalogue(monkeypatch, "gpt-6-luna", "gpt-5.6") as served:
        done = reasonrag(*FIRST, "--run", "runs/a")
        assert done.status == 2
        assert f"does not answer for the model {DEFAULT_TEACHER} (status 404" in done.err
        assert (
            "Reported on 27 October 2026, not verified: shutdown of gpt-4o on 14 January 2027, followed by" in done.err
        )
        assert served.asked == [DEFAULT_TEACHER]
        again = reasonrag(*tried(done.err))
        assert (again.status, model_of("runs/a")) == (0, "gpt-6-luna"), again.err


def with_two_questions(words: Sequence[object]) -> list[object]:
    """The words of a command that asks them instead."""
    Path("more.jsonl").write_bytes(
        b"\n".join(orjson.dumps({"id": each, "question": f"{each}?", "golden_answers": ["Seine"]}) for each in "ab")
    )
    return [each if each != "questions.jsonl" else "more.jsonl" for each in words]


@pytest.mark.parametrize(
    ("asked", "first", "then"),
    [
        (FIRST, ("--limit", 1), ("--limit", 2)),
        (("tune", *FIRST[1:], "--pilot", 2, "--vary"), ("search.continuations=2",), ("search.siblings=3,4,6",)),
    ],
    ids=["a run", "a tuning"],
)
def test_a_run_whose_teacher_went_names_another_run(
    asked: tuple[object, ...],
    first: tuple[object, ...],
    then: tuple[object, ...],
    reasonrag: Reasonrag,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its answers stay: which teacher made a run is its identity. The command works as it is printed."""
    words = with_two_questions(asked)
    with catalogue(monkeypatch, "gpt-4o", "gpt-6.1-sol") as served:
        assert reasonrag(*words, *first, "--run", "runs/a").status == 0
        before = {each: each.read_bytes() for each in Path("runs/a").rglob("rollouts.jsonl")}
        served.models.remove("gpt-4o")
        done = reasonrag(*words, *then, "--run", "runs/a")
        again = tried(done.err)
        assert (done.status, again[-4:]) == (2, ["--model", "gpt-6.1-sol", "--run", "runs/a-gpt-6.1-sol"])
        assert {each: each.read_bytes() for each in before} == before
        assert reasonrag(*again).status == 0
    for run, model in (("runs/a", "gpt-4o"), ("runs/a-gpt-6.1-sol", "gpt-6.1-sol")):
        assert {model_of(str(each.parent)) for each in Path(run).rglob("config.json")} == {model}


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        ((*FIRST, "--model", "m", "--value-model", "gpt-4o"), "--value-model"),
        (("evaluate", *FIRST[1:5], "--model", "m", "--judge", "gpt-4.1", "--yes"), "--judge"),
        (("ask", "Who?", "--corpus", "corpus.jsonl", "--model=openai/gpt-4o-mini"), "--model"),
    ],
)
def test_every_command_names_the_flag_of_its_model(
    words: tuple[object, ...], flag: str, reasonrag: Reasonrag, monkeypatch: pytest.MonkeyPatch
) -> None:
    with catalogue(monkeypatch, "m", "gpt-6-luna", "openai/gpt-6-luna"):
        done = reasonrag(*words)
        again = tried(done.err)
        assert (done.status, again[again.index(flag) + 1].removeprefix("openai/")) == (2, "gpt-6-luna")
        assert reasonrag(*again).status == 0


async def test_every_question_is_done_where_capacity_comes_and_goes() -> None:
    """Half of the requests with service_tier flex find none; the trees are those of a run that found it always, and
    as many requests may be in flight in the end as in the beginning."""

    async def explored(run: str, teacher: ChatModel | None) -> RunSummary:
        asked = {"limit": 6, "set": "search.simulations=2", "extra_body": FLEX, "run": Path(run)}
        return await explore(GenerateSettings.model_validate(asked), SilentWatcher(), Given(teacher))

    await explored("runs/always", None)
    with Stage(EndpointBehaviour(faults={"no-capacity": 0.5})).open() as stage:
        limits = Limits(64, timeout=60.0, first_wait=0.001)
        teacher = EndpointModel("offline", limits, base_urls=[stage.base_url])
        found = await explored("runs/a", teacher)
        await teacher.close()
    [pace] = teacher.scheduler.paces
    assert (found.done, found.failed, found.session_failed_calls > 20, pace.window) == (6, 0, True, 64)
    assert digest("runs/a") == digest("runs/always")
