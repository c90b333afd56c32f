"""Answers kept in a file, and played back with the network off.

A recording is JSONL: `{"key", "sample", "completion"}`, one line per reply. The key is `ChatRequest.key`, so the
same draw is found whatever order or grouping it was asked in.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import orjson
from pydantic import ValidationError

from reasonrag.chat import ChatModel, ChatRequest, Completion
from reasonrag.errors import InputError, ModelError

_UNREADABLE = (orjson.JSONDecodeError, KeyError, TypeError, ValidationError)


class RecordingModel:
    """Passes requests on and appends every reply to `path` before it is used. The model it was given stays open."""

    def __init__(self, inner: ChatModel, path: Path) -> None:
        self.name = inner.name
        self._inner = inner
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a+b")
            self._file.seek(0)
            _mend(self._file)
        except OSError as error:
            raise InputError(f"cannot write the recording {path}: {error.strerror}") from error

    async def complete(self, request: ChatRequest) -> Sequence[Completion]:
        completions = await self._inner.complete(request)
        lines = [
            orjson.dumps(
                {
                    "key": request.key(position, model=self.name),
                    "sample": request.samples[position],
                    "completion": completion.model_dump(mode="json"),
                },
                option=orjson.OPT_APPEND_NEWLINE,
            )
            for position, completion in enumerate(completions)
        ]
        self._file.write(b"".join(lines))
        self._file.flush()
        return completions

    async def check(self) -> None:
        await self._inner.check()

    async def close(self) -> None:
        self._file.close()


def _mend(file: BinaryIO) -> None:
    """End a last line that lacks its line break; cut it off where it is no whole answer (a crash tore it)."""
    start = end = 0
    for line in file:
        start, end = end, end + len(line)
    file.seek(start)
    last = file.read()
    if not last or last.endswith(b"\n"):
        return
    try:
        _parse_answer(last)
    except _UNREADABLE:
        file.truncate(start)
    else:
        file.write(b"\n")


class ReplayModel:
    """Answers from a recording only. A draw that is not in it raises ModelError with cause `not_recorded`."""

    def __init__(self, path: Path, *, name: str) -> None:
        self.name = name
        self._path = path
        self._answers = _read_recording(path)

    async def complete(self, request: ChatRequest) -> Sequence[Completion]:
        return [self._answer(request, position) for position in range(len(request.samples))]

    def _answer(self, request: ChatRequest, position: int) -> Completion:
        answer = self._answers.get(request.key(position, model=self.name))
        if answer is None:
            raise ModelError(
                f"{self._path} has no answer of {self.name} to sample {request.samples[position]} of the prompt "
                f"ending {request.messages[-1].content[-60:]!r}; was it recorded with the same model, prompts, "
                "sampling and seed?",
                cause="not_recorded",
            )
        return answer

    async def check(self) -> None:
        """A recording is always there."""

    async def close(self) -> None:
        """Nothing is held open."""


def _read_recording(path: Path) -> dict[str, Completion]:
    """Answers by key; the first of a key holds. A torn last line is left out, it was never used."""
    answers: dict[str, Completion] = {}
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except OSError as error:
        raise InputError(f"cannot read the recording {path}: {error.strerror}") from error
    for number, line in enumerate(lines, start=1):
        try:
            key, completion = _parse_answer(line)
        except _UNREADABLE as error:
            if number == len(lines) and not line.endswith(b"\n"):
                break
            raise InputError(f"{path}, line {number} is not a recorded answer: {error}") from error
        answers.setdefault(key, completion)
    return answers


def _parse_answer(line: bytes) -> tuple[str, Completion]:
    record = orjson.loads(line)
    return record["key"], Completion.model_validate(record["completion"])
