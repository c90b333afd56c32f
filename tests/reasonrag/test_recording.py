"""Answers recorded and played back: the same, however they are asked for, and nothing else."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preference import Message
from reasonrag.chat import ChatModel, ChatRequest, Completion, Sampling
from reasonrag.errors import InputError, ModelError
from reasonrag.recording import RecordingModel, ReplayModel
from reasonrag.scripted import ScriptedModel

SAMPLING = Sampling(temperature=1.0, top_p=1.0, max_tokens=64)


def request(samples: Iterable[int], text: str = "Where?") -> ChatRequest:
    numbers = tuple(samples)
    return ChatRequest(
        messages=(Message(role="user", content=text),),
        sampling=SAMPLING,
        samples=numbers,
        seeds=tuple(100 + number for number in numbers),
    )


def new_answer() -> ScriptedModel:
    """A model that never says the same twice, and charges the first draw of each request."""
    count = iter(range(10**6))

    def answer(request: ChatRequest, position: int) -> Completion:
        text = f"{request.messages[0].content} {request.samples[position]} {next(count)}"
        first = position == 0
        return Completion(
            text=text,
            finish_reason="length" if request.samples[position] % 2 else "stop",
            requests=int(first),
            prompt_tokens=10 * first,
            completion_tokens=3 * len(request.samples) * first,
        )

    return ScriptedModel(answer)


async def answers(model: ChatModel, requests: Sequence[ChatRequest]) -> dict[int, Completion]:
    """Completions by sample number."""
    found: dict[int, Completion] = {}
    for each in requests:
        found |= zip(each.samples, await model.complete(each), strict=True)
    return found


async def record(path: Path, requests: Sequence[ChatRequest]) -> dict[int, Completion]:
    model = RecordingModel(new_answer(), path)
    try:
        return await answers(model, requests)
    finally:
        await model.close()


@st.composite
def groupings(draw: st.DrawFn) -> list[ChatRequest]:
    """Six draws of one reply in some order, in requests of some sizes."""
    order = draw(st.permutations(range(6)))
    cuts = sorted(draw(st.sets(st.integers(1, 5))))
    return [request(order[a:b]) for a, b in zip([0, *cuts], [*cuts, 6], strict=True)]


@settings(deadline=None, max_examples=30)
@given(recorded=groupings(), replayed=groupings())
def test_a_replay_gives_the_recorded_answers_however_they_are_asked_for(
    recorded: list[ChatRequest], replayed: list[ChatRequest]
) -> None:
    """Order and grouping of requests change no answer, no finish reason and no sum of what they cost."""
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "recording.jsonl"
        said = asyncio.run(record(path, recorded))
        again = asyncio.run(answers(ReplayModel(path, name="scripted"), replayed))
    assert again == said
    assert sum(each.requests for each in again.values()) == len(recorded)


async def test_a_recording_passes_answers_on_unchanged(tmp_path: Path) -> None:
    """Who records sees what the model said, and what it cost."""
    plain = await new_answer().complete(request(range(3)))
    assert list((await record(tmp_path / "r.jsonl", [request(range(3))])).values()) == plain


async def test_every_answer_is_in_the_file_before_it_is_used(tmp_path: Path) -> None:
    """A crash right after an answer loses nothing that was paid for."""
    path = tmp_path / "deep" / "recording.jsonl"
    model = RecordingModel(new_answer(), path)
    [said] = await model.complete(request([0]))
    replayed = await ReplayModel(path, name="scripted").complete(request([0]))  # the recording is still open
    await model.close()
    assert replayed == [said]


async def test_recording_goes_on_where_it_ended(tmp_path: Path) -> None:
    """A second session adds to the file; of two answers to one draw, the first holds."""
    path = tmp_path / "recording.jsonl"
    first = await record(path, [request([0, 1])])
    second = await record(path, [request([1, 2])])
    replayed = await answers(ReplayModel(path, name="scripted"), [request([0, 1, 2])])
    assert first[1] != second[1]
    assert replayed == {0: first[0], 1: first[1], 2: second[2]}


@pytest.mark.parametrize(
    ("name", "asked"), [("scripted", request([7])), ("scripted", request([0], "When?")), ("other", request([0]))]
)
async def test_an_answer_that_was_not_recorded_is_an_error_of_its_own(
    name: str, asked: ChatRequest, tmp_path: Path
) -> None:
    """Another sample, prompt or model is never answered with something similar; the cause can be counted."""
    path = tmp_path / "recording.jsonl"
    await record(path, [request([0])])
    with pytest.raises(
        ModelError, match=rf"has no answer of {name} to sample {asked.samples[0]} of the prompt"
    ) as info:
        await ReplayModel(path, name=name).complete(asked)
    assert info.value.cause == "not_recorded"


async def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    """A crash while writing costs that one answer."""
    path = tmp_path / "recording.jsonl"
    said = await record(path, [request([0]), request([1])])
    whole = path.read_bytes()
    for lost in (1, 10, len(whole.splitlines()[1]) - 1):
        path.write_bytes(whole[: len(whole) - 1 - lost])
        model = ReplayModel(path, name="scripted")
        assert await model.complete(request([0])) == [said[0]]
        with pytest.raises(ModelError):
            await model.complete(request([1]))


@pytest.mark.parametrize("kept", [0, 1, 2])
async def test_recording_goes_on_behind_a_torn_line(kept: int, tmp_path: Path) -> None:
    """The torn answer is asked for again; no answer is glued to it. A line that only lacks its break is kept."""
    path = tmp_path / "recording.jsonl"
    first = await record(path, [request([0]), request([1])])
    lines = path.read_bytes().splitlines(keepends=True)
    torn = {0: lines[0][:9], 1: lines[0] + lines[1][:-20], 2: b"".join(lines)[:-1]}[kept]
    path.write_bytes(torn)
    second = await record(path, [request([2]), request([3])])
    model = ReplayModel(path, name="scripted")
    for sample, completion in ({each: first[each] for each in range(kept)} | second).items():
        assert await model.complete(request([sample])) == [completion]


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b"3",
        b'{"key": "k"}',
        b'{"key": "k", "completion": {}}',
        b'{"key": [], "completion": {}}',
    ],
)
async def test_a_broken_line_anywhere_else_is_refused_with_its_number(broken: bytes, tmp_path: Path) -> None:
    """A file that is not what it was must not be replayed in part."""
    path = tmp_path / "recording.jsonl"
    await record(path, [request([0]), request([1])])
    first, second = path.read_bytes().splitlines(keepends=True)
    for content in (first + broken + b"\n" + second, first + broken + b"\n"):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"recording\.jsonl, line 2 is not a recorded answer"):
            ReplayModel(path, name="scripted")


def test_a_recording_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    """Before anything is started, with the system's reason."""
    with pytest.raises(InputError, match=r"cannot read the recording .*nowhere\.jsonl: No such file"):
        ReplayModel(tmp_path / "nowhere.jsonl", name="scripted")


def test_a_recording_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    """A path below a regular file can never be one."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InputError, match="cannot write the recording"):
        RecordingModel(new_answer(), tmp_path / "file" / "recording.jsonl")


class Unreachable:
    """A model that no work should be started with, and that notes its end."""

    name = "unreachable"
    closed = False

    async def complete(self, request: ChatRequest) -> Sequence[Completion]:
        raise ModelError(f"no answer to {len(request.samples)} draws", cause="connection")

    async def check(self) -> None:
        raise InputError("nobody answers")

    async def close(self) -> None:
        self.closed = True


async def test_a_recorded_model_is_checked_like_any_other_and_stays_its_owners(tmp_path: Path) -> None:
    """Recording hides nothing of the model behind it."""
    inner = Unreachable()
    model = RecordingModel(inner, tmp_path / "recording.jsonl")
    with pytest.raises(InputError, match="nobody answers"):
        await model.check()
    assert not inner.closed
    await model.close()
    assert (inner.closed, model.name) == (False, "unreachable")


async def test_a_request_that_failed_leaves_no_line(tmp_path: Path) -> None:
    """Only answers are recorded; the error goes to whoever asked."""
    path = tmp_path / "recording.jsonl"
    model = RecordingModel(ScriptedModel(["only one"]), path)
    await model.complete(request([0]))
    with pytest.raises(ModelError, match="no reply left"):
        await model.complete(request([1]))
    await model.close()
    assert path.read_bytes().count(b"\n") == 1
