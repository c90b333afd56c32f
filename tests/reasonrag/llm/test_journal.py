"""Answers that were paid for: on disk before they are used, found however they are asked for, never bought twice."""

from __future__ import annotations

import asyncio
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preference import Message
from reasonrag.errors import CapReached, InputError, Interrupted, ModelError, StorageError, UnexpectedError
from reasonrag.llm.budget import Caps, Ledger, Tokens
from reasonrag.llm.chat import ChatModel, ChatRequest, Completion, Sampling, TokenLogprob
from reasonrag.llm.journal import JoinedJournals, Journal, JournaledModel, journal_line
from tests.helpers.scripted_model import ScriptedModel

SAMPLING = Sampling(temperature=1.0, top_p=1.0, max_tokens=64)
NAME = "scripted"


def request(samples: Iterable[int], text: str = "Where?", *, question_id: str = "q1") -> ChatRequest:
    numbers = tuple(samples)
    return ChatRequest(
        messages=(Message(role="user", content=text),),
        sampling=SAMPLING,
        samples=numbers,
        seeds=tuple(100 + number for number in numbers),
        question_id=question_id,
    )


class Paid(ScriptedModel):
    """A model that never says the same twice, charges the first draw of each request, and notes what it is asked.

    at_most: answers per request. gate: nothing is answered before it is set. fails: no request is.
    """

    def __init__(self, *, at_most: int = 10**6, gate: asyncio.Event | None = None, fails: bool = False) -> None:
        super().__init__([], name=NAME)
        self.asked: list[tuple[int, ...]] = []
        """The samples of each request."""
        self.began = asyncio.Event()
        """The first request is under way."""
        self.gate, self._at_most, self._fails = gate or asyncio.Event(), at_most, fails
        if gate is None:
            self.gate.set()

    async def complete(self, request: ChatRequest) -> Sequence[Completion]:
        self.asked.append(request.samples)
        number = len(self.asked)
        self.began.set()
        await self.gate.wait()
        await asyncio.sleep(0)
        if self._fails:
            raise ModelError("nothing came", cause="connection")
        return [
            Completion(
                text=f"{request.messages[0].content} {sample}, answer {number} of {id(self)}",
                finish_reason="length" if sample % 2 else "stop",
                requests=int(position == 0),
                prompt_tokens=10 * (position == 0),
                completion_tokens=3 * len(request.samples) * (position == 0),
                cached_tokens=4 * (position == 0),
            )
            for position, sample in enumerate(request.samples[: self._at_most])
        ]

    @property
    def draws(self) -> list[int]:
        """Every sample that it was asked for, in order."""
        return [sample for samples in self.asked for sample in samples]


def journaled(inner: ChatModel | None, journal: Journal, *, name: str = NAME) -> JournaledModel:
    return JournaledModel(inner, journal, name=name, ledger=Ledger(spent=journal.delivered))


async def under_way(model: JournaledModel, samples: Iterable[int]) -> asyncio.Task[Sequence[Completion]]:
    """A request that the model has been asked, and that is not answered yet."""
    asked = asyncio.create_task(model.complete(request(samples)))
    assert isinstance(model.inner, Paid)
    await asyncio.wait_for(model.inner.began.wait(), timeout=60)
    return asked


def line_of(sample: int, answer: Sequence[Completion]) -> bytes:
    return journal_line("q1", [request([sample]).keys(model=NAME)[0]], answer, model=None)


async def answers(model: ChatModel, requests: Sequence[ChatRequest]) -> dict[int, Completion]:
    """Completions by sample number, of requests that are under way at the same time."""
    given = await asyncio.gather(*(model.complete(each) for each in requests))
    return {
        sample: completion
        for each, completions in zip(requests, given, strict=True)
        for sample, completion in zip(each.samples, completions, strict=True)
    }


async def record(path: Path, requests: Sequence[ChatRequest], inner: ChatModel | None = None) -> dict[int, Completion]:
    """What a session with this journal is told."""
    async with Journal(path) as journal:
        return await answers(journaled(inner or Paid(), journal), requests)


async def replay(path: Path, requests: Sequence[ChatRequest], *, name: str = NAME) -> dict[int, Completion]:
    """What the journal alone says."""
    async with Journal(path, writable=False) as journal:
        return await answers(journaled(None, journal, name=name), requests)


def recorded_samples(content: bytes, requests: Iterable[ChatRequest]) -> set[int]:
    """The samples whose answers stand whole in a journal's bytes; a last line may lack its line break."""
    names = {
        each.keys(model=NAME)[position]: sample for each in requests for position, sample in enumerate(each.samples)
    }
    found: set[int] = set()
    for line in content.split(b"\n"):
        try:
            found |= {names[key] for key in json.loads(line)["keys"]}
        except json.JSONDecodeError:
            continue
    return found


@st.composite
def groupings(draw: st.DrawFn) -> list[ChatRequest]:
    """Six draws of one reply in some order, in requests of some sizes."""
    order = draw(st.permutations(range(6)))
    cuts = sorted(draw(st.sets(st.integers(1, 5))))
    return [request(order[a:b]) for a, b in zip([0, *cuts], [*cuts, 6], strict=True)]


# -- paid once -----------------------------------------------------------------------------------------------------


@given(recorded=groupings(), replayed=groupings())
def test_recorded_answers_are_found_however_they_are_asked_for(
    recorded: list[ChatRequest], replayed: list[ChatRequest]
) -> None:
    """Order and grouping of requests change no answer, no finish reason and no sum of what they cost."""
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "journal.jsonl"
        said = asyncio.run(record(path, recorded))
        again = asyncio.run(replay(path, replayed))
    assert again == said
    assert sum(each.requests for each in again.values()) == len(recorded)


@given(
    requests=groupings(),
    kills=st.lists(st.tuples(st.floats(0, 1), groupings()), min_size=1, max_size=3),
    at_most=st.integers(1, 3),
)
def test_a_killed_session_that_is_repeated_pays_only_for_what_was_not_wholly_recorded(
    requests: list[ChatRequest], kills: list[tuple[float, list[ChatRequest]]], at_most: int
) -> None:
    """Whatever is asked for, in whatever groups, and at whatever byte the file ends after a kill: what stands whole in
    it is answered as before and not asked for again; everything else is asked for exactly once."""
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "journal.jsonl"
        said = asyncio.run(record(path, requests, Paid(at_most=at_most)))
        for share, asked in kills:
            content = path.read_bytes()[: round(share * path.stat().st_size)]
            path.write_bytes(content)
            kept = recorded_samples(content, requests)
            inner = Paid()
            now = asyncio.run(record(path, asked, inner))
            assert sorted(inner.draws) == sorted(set(range(6)) - kept)
            assert {sample: now[sample] for sample in kept} == {sample: said[sample] for sample in kept}
            said = now
        assert asyncio.run(replay(path, requests)) == said


async def test_log_probabilities_are_replayed_and_absent_where_there_are_none(tmp_path: Path) -> None:
    """In lines of requests that do not ask for them, nothing stands of them."""
    path, logprobs = tmp_path / "journal.jsonl", (TokenLogprob("a", -0.25), TokenLogprob(" b", 0.0))
    said = Completion(text="a b", finish_reason="stop", logprobs=logprobs)
    async with Journal(path) as journal:
        for text, reply in (("q1", said), ("q2", "a b")):
            await journaled(ScriptedModel([reply]), journal).complete(request([0], text))
    lines = [json.loads(line)["completions"] for line in path.read_text().splitlines()]
    assert lines[0] == [{"text": "a b", "finish_reason": "stop", "logprobs": [["a", -0.25], [" b", 0.0]]}]
    assert lines[1] == [{"text": "a b", "finish_reason": "stop"}]
    async with Journal(path) as journal:
        replayed = [(await journaled(None, journal).complete(request([0], text)))[0] for text in ("q1", "q2")]
    assert [each.logprobs for each in replayed] == [logprobs, None]


async def test_draws_that_a_recorded_request_lacks_are_asked_for_singly(tmp_path: Path) -> None:
    """Which draws share a request must not depend on what is missing; all stand in the order of asking."""
    path, inner = tmp_path / "journal.jsonl", Paid()
    before = await record(path, [request([1, 3])])
    now = await record(path, [request([0, 1, 2, 3, 4])], inner)
    assert sorted(inner.asked) == [(0,), (2,), (4,)]
    assert list(now) == [0, 1, 2, 3, 4]
    assert [now[1], now[3]] == [before[1], before[3]]
    assert [now[sample].text[:8] for sample in now] == [f"Where? {sample}" for sample in now]


async def test_answers_of_finished_questions_are_counted_but_not_held(tmp_path: Path) -> None:
    """Memory is for the questions that are owed; money is for all."""
    path = tmp_path / "journal.jsonl"
    said = await record(path, [request([0, 1], question_id="done"), request([2], question_id="owed")])
    async with Journal(path, wanted=lambda question_id: question_id == "owed") as journal:
        assert list(journal.answers.values()) == [said[2]]
        assert journal.delivered == Tokens.of(said.values())
        assert journal.delivered == Tokens(calls=3, requests=2, prompt_tokens=20, completion_tokens=9, cached_tokens=8)


@pytest.mark.parametrize(
    ("name", "asked"), [(NAME, request([7])), (NAME, request([0], "When?")), ("other", request([0]))]
)
async def test_an_answer_that_was_not_recorded_is_an_error_of_its_own(
    name: str, asked: ChatRequest, tmp_path: Path
) -> None:
    """Another sample, prompt or model is never answered with something similar; the cause can be counted."""
    path = tmp_path / "journal.jsonl"
    await record(path, [request([0])])
    with pytest.raises(
        ModelError, match=rf"has no answer of {name} to sample {asked.samples[0]} of the prompt"
    ) as info:
        await replay(path, [asked], name=name)
    assert info.value.cause == "not_recorded"


async def test_every_answer_is_in_the_file_before_it_is_used(tmp_path: Path) -> None:
    """Whoever is told an answer finds it in the file at once, under its key, however many come together."""
    path = tmp_path / "deep" / "journal.jsonl"
    async with Journal(path) as journal:
        model = journaled(Paid(), journal)

        async def ask_and_look(sample: int) -> None:
            [said] = await model.complete(request([sample]))
            lines = [json.loads(line) for line in path.read_bytes().splitlines()]
            [line] = [line for line in lines if line["keys"] == [request([sample]).keys(model=NAME)[0]]]
            assert line["completions"][0]["text"] == said.text

        await asyncio.gather(*map(ask_and_look, range(40)))


# -- whatever a crash left -----------------------------------------------------------------------------------------


async def test_a_changed_letter_anywhere_in_a_line_is_found(tmp_path: Path) -> None:
    """In a reply as in the name of a field, that of the digest included, or a digest that was left out; the message
    says which line to delete."""
    path = tmp_path / "journal.jsonl"
    await record(path, [request([0]), request([1])])
    whole = path.read_bytes()
    first, second = whole.splitlines(keepends=True)
    for place in range(len(first) - 1):
        path.write_bytes(first[:place] + bytes([first[place] ^ 1]) + first[place + 1 :] + second)
        with pytest.raises(InputError, match=r"line 1 is not a recorded answer: .*Delete the line"):
            Journal(path)
    path.write_bytes(re.sub(rb',"digest":"\w+"', b"", first) + second)
    with pytest.raises(InputError, match=r"line 1 .* its digest shows .*or is missing.* Delete the line"):
        Journal(path)
    path.write_bytes(second)
    assert set(await replay(path, [request([1])])) == {1}


async def test_a_line_that_was_copied_counts_once(tmp_path: Path) -> None:
    """200 copies of a line count as one answer. Different answers to the same draws count each, and the first holds: it
    may have been used."""
    path = tmp_path / "journal.jsonl"
    said = await record(path, [request([0, 1])])
    [line] = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(line * 200)
    assert list(JoinedJournals([path, path], print).lines()) == [line]
    async with Journal(path) as journal:
        assert journal.delivered == journal.delivered_by[None] == Tokens.of(said.values())
        await journal.append(line_of(0, await Paid().complete(request([0]))))
    async with Journal(path) as journal:
        assert journal.delivered.calls == 3
    assert await replay(path, [request([0, 1])]) == said
    assert path.read_bytes().startswith(line * 200)


async def test_more_answers_than_draws_leave_a_journal_that_can_be_read(tmp_path: Path) -> None:
    """A model of the user's own may give too many; a line has one for each of its keys."""
    path = tmp_path / "journal.jsonl"
    reply = Completion(text="Rome", finish_reason="stop")

    class Generous(Paid):
        async def complete(self, request: ChatRequest) -> Sequence[Completion]:
            return [reply] * (len(request.samples) + 1)

    async with Journal(path) as journal:
        assert await journaled(Generous(), journal).complete(request([0, 1])) == [reply] * 2
    assert await replay(path, [request([0, 1])]) == {0: reply, 1: reply}


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": 10**30},
        {"completion_tokens": float("nan")},
        {"completion_tokens": -5},
        {"cached_tokens": "many"},
        {"requests": None},
    ],
)
async def test_an_answer_whose_cost_cannot_be_recorded_is_kept_at_the_most_it_can_cost(
    usage: dict[str, object], tmp_path: Path
) -> None:
    """The run stops after it, since the cost of the next one is unknown."""
    path = tmp_path / "journal.jsonl"
    odd = Completion(text="Rome", finish_reason="stop").model_copy(update=usage)
    async with Journal(path) as journal:
        inner = ScriptedModel([odd, odd], name=NAME)
        model = journaled(inner, journal)
        [said] = await model.complete(request([0]))
        assert isinstance(model.stopped, UnexpectedError)
        with pytest.raises(UnexpectedError, match="This answer and all others are kept"):
            await model.complete(request([1]))
        assert len(inner.requests) == 1
        assert model.ledger.spent == Tokens(1, 1, request([0]).size, SAMPLING.max_tokens)
    assert said.text == "Rome"
    assert said.tokens_bounded
    assert await replay(path, [request([0])]) == {0: said}


@pytest.mark.parametrize(("place", "writable", "why"), [("file", True, ""), ("nowhere", False, ": No such file")])
def test_a_journal_that_cannot_be_opened_is_refused(place: str, why: str, tmp_path: Path, *, writable: bool) -> None:
    """Below a regular file there can be none; one that is only read is not created. The system's reason is given."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InputError, match=rf"cannot open the journal .*journal\.jsonl{why}"):
        Journal(tmp_path / place / "journal.jsonl", writable=writable)
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("torn", [0, 1, 20])
async def test_a_journal_that_is_only_read_is_not_changed(torn: int, tmp_path: Path) -> None:
    """Not even a torn last line is taken away or ended, as is done for who writes."""
    path = tmp_path / "journal.jsonl"
    said = await record(path, [request([0]), request([1])])
    whole = path.read_bytes().splitlines(keepends=True)
    content = path.read_bytes()[: path.stat().st_size - torn]
    path.write_bytes(content)
    path.chmod(0o400)
    assert await replay(path, [request([0])]) == {0: said[0]}
    assert path.read_bytes() == content
    path.chmod(0o600)
    async with Journal(path):
        assert path.read_bytes() == (whole[0] if torn > 1 else b"".join(whole))


def _full(journal: int) -> None:
    with Path("/dev/full").open("wb") as full:
        os.dup2(full.fileno(), journal)


def _read_only(journal: int) -> None:
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), journal)


BREAKS: dict[str, Callable[[int], None]] = {
    "full disk": _full,
    "read-only file": _read_only,
    "no thread to write in": lambda _: asyncio.get_running_loop().set_default_executor(_ended()),
}


def _ended() -> ThreadPoolExecutor:
    executor = ThreadPoolExecutor()
    executor.shutdown()
    return executor


def descriptor_of(path: Path) -> int:
    """Of the file that this process has open."""
    wanted = path.stat()
    for descriptor in range(3, 1000):
        with suppress(OSError):
            if os.path.samestat(os.fstat(descriptor), wanted):
                return descriptor
    raise AssertionError(f"{path} is not open")


@pytest.mark.parametrize("broken", BREAKS)
async def test_whatever_breaks_the_journal_fails_who_waits_for_it(broken: str, tmp_path: Path) -> None:
    """Nobody waits for ever, no more is bought, and what was recorded before stays."""
    path = tmp_path / "journal.jsonl"
    async with Journal(path) as journal:
        inner = Paid()
        model = journaled(inner, journal)
        await model.complete(request([0]))
        kept = path.read_bytes()
        BREAKS[broken](descriptor_of(path))
        waiting = [asyncio.create_task(model.complete(request([number]))) for number in (1, 2, 3)]
        done, pending = await asyncio.wait(waiting, timeout=60)
        assert not pending
        assert {type(each.exception()) for each in done} == {StorageError}
        with pytest.raises(StorageError, match=r"cannot write .*journal\.jsonl"):
            await model.complete(request([4]))
        await asyncio.wait_for(model.drain(), timeout=60)
    assert path.read_bytes() == kept


# -- the end of a session ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fails", [False, True])
async def test_an_answer_that_nobody_waits_for_any_more_is_recorded(*, fails: bool, tmp_path: Path) -> None:
    """It is paid for: the next session has it. A failure disturbs nobody, and its request's place is given back."""
    path, inner = tmp_path / "journal.jsonl", Paid(gate=asyncio.Event(), fails=fails)
    async with Journal(path) as journal:
        model = journaled(inner, journal)
        waiter = await under_way(model, [0, 1])
        waiter.cancel()
        await asyncio.wait([waiter])
        assert (waiter.cancelled(), model.in_flight) == (True, 1)
        inner.gate.set()
        await asyncio.wait_for(model.drain(), timeout=60)
        assert (model.in_flight, model.ledger.promised) == (0, Tokens())
        assert model.ledger.spent.calls == (0 if fails else 2)
    assert path.read_bytes().count(b"\n") == (not fails)


async def test_a_stop_lets_what_is_under_way_end_and_asks_for_nothing_more(tmp_path: Path) -> None:
    """Whoever asks now is told the first reason, also if the journal knew the answer: a stop is a stop."""
    path, inner = tmp_path / "journal.jsonl", Paid(gate=asyncio.Event())
    await record(path, [request([9])])
    async with Journal(path) as journal:
        model = journaled(inner, journal)
        waiter = await under_way(model, [0])
        model.stop(Interrupted("Ctrl-C"))
        model.stop(CapReached("max_calls", "later"))
        for asked in ([1], [9, 10], [9]):
            with pytest.raises(Interrupted, match="Ctrl-C"):
                await model.complete(request(asked))
        inner.gate.set()
        said = await waiter
    assert inner.asked == [(0,)]
    assert list((await replay(path, [request([0])])).values()) == said


async def test_a_journal_that_is_closed_has_written_what_came_before(tmp_path: Path) -> None:
    """Answers that wait for the disk when a session ends are not lost."""
    path = tmp_path / "journal.jsonl"
    completion = Completion(text="Rome", finish_reason="stop")
    async with Journal(path) as journal:
        waiting = [asyncio.create_task(journal.append(line_of(each, [completion]))) for each in range(3)]
        await asyncio.sleep(0)
    await asyncio.gather(*waiting)
    with pytest.raises(StorageError, match="is closed"):  # never a wait without end
        await journal.append(line_of(3, [completion]))
    assert set((await replay(path, [request([0, 1, 2])])).values()) == {completion}


async def test_a_cap_stops_the_buying_but_not_what_is_recorded(tmp_path: Path) -> None:
    """What the journal holds counts as spent, and costs nothing again."""
    path, inner = tmp_path / "journal.jsonl", Paid()
    await record(path, [request([0, 1])])
    async with Journal(path) as journal:
        model = JournaledModel(inner, journal, name=NAME, ledger=Ledger(caps=Caps(calls=3), spent=journal.delivered))
        assert len(await model.complete(request([1, 0]))) == 2
        assert len(await model.complete(request([2]))) == 1
        with pytest.raises(CapReached, match="3 of 3 calls are used"):
            await model.complete(request([3]))
    assert inner.asked == [(2,)]


async def test_a_request_that_waits_near_a_cap_is_not_sent_after_a_stop(tmp_path: Path) -> None:
    """Ctrl-C means no new spending, also of what already waits for its turn."""
    inner = Paid(gate=asyncio.Event())
    async with Journal(tmp_path / "journal.jsonl") as journal:
        model = JournaledModel(inner, journal, name=NAME, ledger=Ledger(caps=Caps(calls=1)))
        first = await under_way(model, [0])
        second = asyncio.create_task(model.complete(request([1])))
        await asyncio.sleep(0.01)
        model.stop(Interrupted("stop"))
        model.ledger.caps = Caps(calls=9)
        inner.gate.set()
        await asyncio.gather(first, second, return_exceptions=True)
    assert inner.asked == [(0,)]
    assert isinstance(second.exception(), Interrupted)


# -- a stop string within the reasoning ----------------------------------------------------------------------------

STOPPING = SAMPLING.model_copy(update={"stop": ("</query>",)})
WHOLE = "<think>I could ask <query>Rhine</query>.</think>So the next query is <query>Seine</query>"
CUT_OFF = "<think>I could ask <query>Rhine"


class Thinking(Paid):
    """A model of whose draws some are cut by their stop string within the reasoning; without one all come whole.

    fails: gives no answer without stop strings.
    """

    def __init__(self, cut: Iterable[int], *, fails: bool = False) -> None:
        super().__init__()
        self.stops: list[tuple[str, ...]] = []
        self._cut, self._fails_whole = set(cut), fails

    async def complete(self, request: ChatRequest) -> Sequence[Completion]:
        self.stops.append(request.sampling.stop)
        if self._fails_whole and not request.sampling.stop:
            raise ModelError("nothing came", cause="connection")
        stopped = self._cut if request.sampling.stop else set()
        paid = await super().complete(request)
        return [
            each.model_copy(update={"text": CUT_OFF if sample in stopped else WHOLE, "finish_reason": "stop"})
            for sample, each in zip(request.samples, paid, strict=True)
        ]


def stopping(samples: Iterable[int]) -> ChatRequest:
    return replace(request(samples), sampling=STOPPING)


@given(cut=st.sets(st.integers(0, 3)), replayed=st.permutations(range(4)), size=st.integers(1, 4))
def test_what_a_stop_string_cut_is_asked_again_without_it(cut: set[int], replayed: list[int], size: int) -> None:
    """Singly, under the draw's own key: every replay says the same, in whatever groups, and asks for nothing."""
    with tempfile.TemporaryDirectory() as home:
        path, inner = Path(home) / "journal.jsonl", Thinking(cut)
        said = asyncio.run(record(path, [stopping(range(4))], inner))
        groups = [stopping(replayed[at : at + size]) for at in range(0, 4, size)]
        again = asyncio.run(replay(path, groups))
        with path.open("rb") as lines:
            delivered = [completion for line in lines for completion in json.loads(line)["completions"]]
    assert {each.text for each in said.values()} == {WHOLE}
    assert again == said
    assert sorted(inner.asked) == sorted([(0, 1, 2, 3), *((each,) for each in cut)])
    assert inner.stops == [STOPPING.stop, *([()] * len(cut))]
    assert len(delivered) == 4 + len(cut)


@given(cut=st.sets(st.integers(0, 3)), alone=st.booleans())
def test_what_is_cut_is_paid_and_what_is_used_is_billed(cut: set[int], *, alone: bool) -> None:
    """Everything delivered counts against the caps, in this session and the next; callers see the cost of every request
    that gave something used."""

    async def spent() -> tuple[Tokens, Tokens, Tokens]:
        with tempfile.TemporaryDirectory() as home:
            path = Path(home) / "journal.jsonl"
            groups = [stopping([each]) for each in range(4)] if alone else [stopping(range(4))]
            async with Journal(path) as journal:
                model = journaled(Thinking(cut), journal)
                used = await answers(model, groups)
                now = model.ledger.spent
            async with Journal(path, writable=False) as journal:
                return now, journal.delivered, Tokens.of(used.values())

    now, later, used = asyncio.run(spent())
    requests = (4 if alone else 1) + len(cut)
    assert now == later == Tokens(4 + len(cut), requests, 10 * requests, 3 * (4 + len(cut)), 4 * requests)
    wasted = len(cut) if alone else int(len(cut) == 4)
    assert (used.calls, used.requests) == (4, requests - wasted)


@pytest.mark.parametrize("size", [1, 3])
async def test_a_session_that_ended_in_between_does_not_pay_for_the_cut_again(size: int, tmp_path: Path) -> None:
    """The next one asks without stop strings at once, and only for what was cut."""
    path = tmp_path / "journal.jsonl"
    with pytest.raises(ModelError, match="nothing came"):
        await record(path, [stopping(range(size))], Thinking(range(size), fails=True))
    second = Thinking(range(size))
    said = await record(path, [stopping(range(size))], second)
    assert sorted(second.asked) == [(each,) for each in range(size)]
    assert second.stops == [()] * size
    assert {each.text for each in said.values()} == {WHOLE}
    assert await replay(path, [stopping(range(size))]) == said


async def test_a_cap_holds_for_what_is_asked_again(tmp_path: Path) -> None:
    """The second request is reserved like any other: near a cap it is not sent, and the first one is kept."""
    path = tmp_path / "journal.jsonl"
    async with Journal(path) as journal:
        inner = Thinking({0})
        model = JournaledModel(inner, journal, name=NAME, ledger=Ledger(caps=Caps(calls=1)))
        with pytest.raises(CapReached):
            await model.complete(stopping([0]))
        assert (len(inner.asked), model.ledger.spent.calls, model.ledger.promised) == (1, 1, Tokens())
    [line] = path.read_bytes().splitlines()
    assert json.loads(line)["keys"] == [f"{stopping([0]).keys(model=NAME)[0]}:cut"]
