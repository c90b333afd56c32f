"""A session with models: items in order, and every answer that was asked for on disk, whatever ends it;
failures short and without secrets."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from preference import Message
from reasonrag.errors import CapReached, Interrupted, OutcomeError, UnexpectedError
from reasonrag.llm.budget import Caps
from reasonrag.llm.chat import ChatRequest, Completion, Sampling
from reasonrag.llm.endpoint.endpoint import Limits
from reasonrag.llm.journal import Journal
from reasonrag.llm.model_spec import ModelSpec
from reasonrag.progress import SessionTally, SilentWatcher
from reasonrag.run.failures import MOST_NOTED, FailureLog
from reasonrag.run.session import Models, Session
from tests.helpers.scripted_model import ScriptedModel

SAMPLING = Sampling(temperature=1.0, top_p=1.0, max_tokens=8)
SPEC = ModelSpec("scripted", SAMPLING, Limits(4, timeout=1.0))


class Gated(ScriptedModel):
    """A model that answers when its gate is open. `asked`: the questions, in order."""

    def __init__(self) -> None:
        super().__init__([])
        self.asked: list[str] = []
        self.gate = asyncio.Event()

    async def complete(self, request: ChatRequest) -> Sequence[Completion]:
        self.asked.append(request.question_id)
        await self.gate.wait()
        return [Completion(text=f"answer to {request.question_id}", finish_reason="stop")]


class Heard(SilentWatcher):
    def __init__(self) -> None:
        self.messages: list[str] = []
        self.tallies: list[SessionTally] = []
        self.over = False

    def say(self, message: str) -> None:
        self.messages.append(message)

    def advanced(self, tally: SessionTally) -> None:
        self.tallies.append(SessionTally(**vars(tally)))

    def ended(self) -> None:
        self.over = True


async def ask(session: Session, question: str) -> None:
    request = ChatRequest(
        messages=(Message(role="user", content=question),),
        sampling=SAMPLING,
        samples=(0,),
        seeds=(1,),
        question_id=question,
    )
    await session.models.main.complete(request)


Work = Callable[[Session, str], Coroutine[Any, Any, None]]


@dataclass
class Ended:
    session: Session
    heard: Heard
    reason: BaseException | None


def run(folder: Path, model: Gated, work: Work, *, at_once: int = 2) -> Ended:
    """A session of four items."""

    async def ended() -> Ended:
        async with Journal(folder / "journal.jsonl") as journal:
            heard = Heard()
            session = Session(Models.journaled(journal, Caps(), {"model": (SPEC, model)}), heard, lambda _: None)
            try:
                reason: BaseException | None = await session.run("abcd", partial(work, session), at_once=at_once)
            except Exception as error:  # noqa: BLE001 - the test asks which
                reason = error
            return Ended(session, heard, reason)

    return asyncio.run(ended())


def answered(folder: Path) -> list[str]:
    """The questions whose answers are on disk."""

    async def read() -> list[str]:
        async with Journal(folder / "journal.jsonl", writable=False) as journal:
            return sorted(completion.text.removeprefix("answer to ") for completion in journal.answers.values())

    return asyncio.run(read())


def test_works_on_every_item_in_order_and_tells_how_it_went(tmp_path: Path) -> None:
    model = Gated()
    model.gate.set()
    ended = run(tmp_path, model, ask)
    assert (model.asked, answered(tmp_path)) == (list("abcd"), list("abcd"))
    assert (ended.reason, ended.session.stopped, ended.heard.over) == (None, None, True)
    assert ended.heard.tallies[-1].calls == 4


@pytest.mark.parametrize("error", [CapReached("max_calls", "used up", needed=9), ValueError("a fault")])
def test_what_is_under_way_is_kept_and_no_more_asked_when_an_item_fails(tmp_path: Path, error: Exception) -> None:
    """A reason to stop is returned, and any other error raised."""
    model = Gated()

    async def until_the_second(session: Session, item: str) -> None:
        if item == "b":
            asyncio.get_running_loop().call_later(0.01, model.gate.set)
            raise error
        await ask(session, item)

    ended = run(tmp_path, model, until_the_second)
    assert (model.asked, answered(tmp_path)) == (["a"], ["a"])
    assert ended.reason is error
    assert str(ended.session.stopped) == str(error)
    assert ended.heard.over


def test_ctrl_c_lets_the_requests_in_flight_finish(tmp_path: Path) -> None:
    model = Gated()

    async def interrupted(session: Session, item: str) -> None:
        if item == "b":
            signal.raise_signal(signal.SIGINT)
            asyncio.get_running_loop().call_later(0.01, model.gate.set)
        await ask(session, item)

    ended = run(tmp_path, model, interrupted)
    assert set(model.asked) == set(answered(tmp_path)) <= {"a", "b"}
    assert isinstance(ended.reason, Interrupted)
    assert any("Ctrl-C again stops at once" in message for message in ended.heard.messages)


def test_an_answer_that_cannot_be_accounted_for_ends_the_session_also_if_it_is_the_last(tmp_path: Path) -> None:
    """It is not silently done: the reason is returned, and the answer is on disk."""

    class Odd(Gated):
        async def complete(self, request: ChatRequest) -> Sequence[Completion]:
            said = await super().complete(request)
            return [each.model_copy(update={"prompt_tokens": 10**30}) for each in said] if self.asked[3:] else said

    model = Odd()
    model.gate.set()
    ended = run(tmp_path, model, ask, at_once=1)
    assert (model.asked, answered(tmp_path)) == (list("abcd"), list("abcd"))
    assert isinstance(ended.reason, UnexpectedError)
    assert ended.session.stopped is ended.reason


def test_a_second_ctrl_c_ends_at_once(tmp_path: Path) -> None:
    model = Gated()

    async def interrupted(session: Session, item: str) -> None:
        for delay in (0.0, 0.01):
            asyncio.get_running_loop().call_later(delay, signal.raise_signal, signal.SIGINT)
        await ask(session, item)

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, model, interrupted, at_once=1)
    assert (model.asked, answered(tmp_path)) == (["a"], [])


# -- failures ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", [0, MOST_NOTED - 40, MOST_NOTED - 7, MOST_NOTED])
def test_a_failure_of_megabytes_is_noted_in_short_and_without_a_key(
    before: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the text is cut, no part of a key is left."""
    monkeypatch.setenv("OPENAI_API_KEY", "correct-horse-battery-staple-0123456789")
    path = tmp_path / "failures.jsonl"
    error = OutcomeError(f"{'.' * before}correct-horse-battery-staple-0123456789{'!' * 20_000_000}")
    with FailureLog(path) as log:
        log.give_up("question", error.cause, str(error), question_id="q1")
    [line] = map(orjson.loads, path.read_bytes().splitlines())
    assert (line["cause"], line["question_id"]) == ("outcome", "q1")
    assert len(line["message"]) == MOST_NOTED
    assert "correct" not in line["message"]
