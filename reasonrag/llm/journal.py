"""The journal: every paid answer is on disk before it is used, and is replayed instead of being requested again.

A journal is JSONL, one line per answered request: `{"question_id", "keys": [..], "completions": [..]}`, with `model` if
the answer is not the run's teacher's. A key (`ChatRequest.key`) covers everything that determines one draw: a draw
whose key is in the journal was paid already. A reply that a stop string cut within its reasoning has its draw's key
with `:cut`, which no draw has: it is paid, and its draw is asked again without stop strings. Lines are written in
batches and synced; an answer is returned only once its batch is on disk. Failures are never recorded. Knows no endpoint
and no price.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import orjson
from pydantic import ValidationError

from reasonrag.concurrency import together
from reasonrag.errors import InputError, ModelError, RunStopped, StorageError
from reasonrag.files import append_durably, storing
from reasonrag.llm.budget import Ledger, Tokens
from reasonrag.llm.chat import USAGE, ChatModel, ChatRequest, Completion
from reasonrag.llm.reasoning import stopped_in_reasoning

Wanted = Callable[[str], bool]
CUT = ":cut"
"""Ends the key of a reply that is not used: a stop string cut it within its reasoning."""
Held = Callable[[Iterable[Completion]], list[Completion]]
_UNREADABLE = (orjson.JSONDecodeError, KeyError, TypeError, ValueError, ValidationError)


@dataclass(frozen=True, slots=True)
class _JournalEntry:
    question_id: str
    answers: dict[str, Completion]
    model: str | None


class Journal:
    """Answers by key, and their file.

    wanted: questions whose answers are held in memory; finished questions are not requested again. held: the part of
        one request's answers that is held. writable: False for a read-only journal. Raises InputError for a file that
        is not a journal.
    """

    def __init__(
        self, path: Path, *, wanted: Wanted = lambda _: True, held: Held = list, writable: bool = True
    ) -> None:
        self.path = path
        self.answers: dict[str, Completion] = {}
        self.questions: set[str] = set()
        """Wanted questions of which some answer is held."""
        self.delivered = Tokens()
        """Everything in the file, finished questions included."""
        self.delivered_by: defaultdict[str | None, Tokens] = defaultdict(Tokens)
        """By model; None is the run's teacher."""
        self._pending: list[tuple[bytes, asyncio.Future[None]]] = []
        self._flushing: asyncio.Task[None] | None = None
        self._broken: StorageError | None = None
        try:
            if writable:
                path.parent.mkdir(parents=True, exist_ok=True)
            self._file: BinaryIO = path.open("a+b" if writable else "rb")
        except OSError as error:
            raise InputError(f"cannot open the journal {path}: {error.strerror}") from error
        try:
            self._load(wanted, held, writable=writable)
        except BaseException:
            self._file.close()
            raise

    def _load(self, wanted: Wanted, held: Held, *, writable: bool) -> None:
        """Read all lines; complete or drop a last line that a crash left without its line break."""
        self._file.seek(0)
        self._size = 0
        for number, line in enumerate(self._file, start=1):
            whole = line.endswith(b"\n")
            try:
                entry = _parse(line)
            except _UNREADABLE as error:
                if not whole:
                    break
                raise InputError(
                    f"{self.path}, line {number} is not a recorded answer: {error}. Delete the line to have "
                    "its answers requested again"
                ) from error
            self._size += len(line)
            delivered = Tokens.of(entry.answers.values())
            self.delivered += delivered
            self.delivered_by[entry.model] += delivered
            if wanted(entry.question_id):
                self.questions.add(entry.question_id)
                for key, completion in zip(entry.answers, held(entry.answers.values()), strict=True):
                    self.answers.setdefault(key, completion)
            if not whole and writable:
                self._file.write(b"\n")
                self._size += 1
        if writable:
            self._file.flush()
            self._file.truncate(self._size)

    async def append(
        self, question_id: str, keys: Sequence[str], completions: Sequence[Completion], *, model: str | None = None
    ) -> None:
        """Record the answer to these draws; returns once it is on disk. Raises StorageError if that fails.

        model: the model that answered; None: the run's teacher.
        """
        if self._broken:
            raise self._broken
        entry = {
            "question_id": question_id,
            **({} if model is None else {"model": model}),
            "keys": keys,
            "completions": [each.model_dump(mode="json", exclude_defaults=True) for each in completions],
        }
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pending.append((orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE), written))
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush())
        await written

    async def _flush(self) -> None:
        """Write batches of pending lines until none are left. Whatever fails, every waiting caller gets the error."""
        batch: list[tuple[bytes, asyncio.Future[None]]] = []
        try:
            while self._pending:
                batch, self._pending = self._pending, []
                with storing(self.path, "Earlier answers are kept; free some space and run the same command again"):
                    await asyncio.to_thread(self._write, b"".join(line for line, _ in batch))
                for _, written in batch:
                    if not written.done():
                        written.set_result(None)
        except BaseException as error:
            why = f"cannot write {self.path}: {type(error).__name__}: {error}. Earlier answers are kept"
            self._broken = error if isinstance(error, StorageError) else StorageError(why)
            for _, written in [*batch, *self._pending]:
                if not written.done():
                    written.set_exception(self._broken)
            self._pending = []
            if not isinstance(error, Exception):
                raise
        finally:
            self._flushing = None

    def _write(self, lines: bytes) -> None:
        append_durably(self._file.fileno(), lines, end=self._size)
        self._size += len(lines)

    async def close(self) -> None:
        if self._flushing is not None:
            await self._flushing
        self._broken = self._broken or StorageError(f"the journal {self.path} is closed")
        self._file.close()


class JournaledModel:
    """A `ChatModel` that pays once: answers come from the journal, and from `inner` only if they are missing.

    inner: may return fewer answers than draws; the rest are requested singly. None: only the journal answers, and a
        missing answer raises ModelError with cause `not_recorded`. The caller closes it.
    ledger: reserves and records spending. recorded_as: the model named in new journal lines; None for the run's
        teacher.
    A requested answer is awaited and recorded even if its caller was cancelled: it is paid for. No draw may be
    requested twice in one session: new answers are not held in memory, so it would be paid again.
    """

    def __init__(
        self,
        inner: ChatModel | None,
        journal: Journal,
        *,
        name: str,
        ledger: Ledger,
        recorded_as: str | None = None,
    ) -> None:
        self.name = name
        self.inner = inner
        self.ledger = ledger
        self.cached_calls = 0
        """Draws answered by the journal so far."""
        self._journal = journal
        self._recorded_as = recorded_as
        self._fetching: set[asyncio.Task[list[Completion]]] = set()
        self._stopped: RunStopped | None = None

    async def complete(self, request: ChatRequest) -> Sequence[Completion]:
        if self._stopped:
            raise self._stopped
        keys = [request.key(position, model=self.name) for position in range(len(request.samples))]
        known = [self._journal.answers.get(key) for key in keys]
        missing = [position for position, completion in enumerate(known) if completion is None]
        self.cached_calls += len(keys) - len(missing)
        if not missing:
            return [completion for completion in known if completion is not None]
        if len(missing) == len(keys) and not any(self._is_cut(key) for key in keys):
            return await self._complete_missing(request, keys)
        bought = await together(*(self._fetch(request.draws(each, each + 1), [keys[each]]) for each in missing))
        fresh = iter(completion for [completion] in bought)
        return [completion or next(fresh) for completion in known]

    async def _complete_missing(self, request: ChatRequest, keys: Sequence[str]) -> list[Completion]:
        """All draws in one request; missing ones singly."""
        first = await self._fetch(request, keys)
        rest = range(len(first), len(request.samples))
        others = await together(*(self._fetch(request.draws(each, each + 1), [keys[each]]) for each in rest))
        return first + [completion for [completion] in others]

    async def _fetch(self, request: ChatRequest, keys: Sequence[str]) -> list[Completion]:
        if self.inner is None:
            raise ModelError(
                f"{self._journal.path} has no answer of {self.name} to sample {request.samples[0]} of the prompt "
                f"ending {request.messages[-1].content[-60:]!r}; was it made with the same model, prompts, sampling "
                "and seed?",
                cause="not_recorded",
            )
        if any(self._is_cut(key) for key in keys):  # by an earlier session, which ended before it was asked again
            request = request.without_stop()
        task = asyncio.create_task(self._ask(self.inner, request, keys))
        self._fetching.add(task)
        task.add_done_callback(self._fetched)
        completions = await asyncio.shield(task)
        return await self._whole(request, keys, completions)

    async def _whole(
        self, request: ChatRequest, keys: Sequence[str], completions: list[Completion]
    ) -> list[Completion]:
        """The completions, with those that a stop string cut within their reasoning asked again, once and singly."""
        cut = [place for place, each in enumerate(completions) if stopped_in_reasoning(request, each)]
        again = [self._fetch(request.draws(place, place + 1).without_stop(), [keys[place]]) for place in cut]
        for place, [whole] in zip(cut, await together(*again), strict=True):
            completions[place] = whole
        return completions

    def _fetched(self, task: asyncio.Task[list[Completion]]) -> None:
        self._fetching.discard(task)
        if not task.cancelled():
            task.exception()  # marked as retrieved: the caller has it, or was cancelled

    def _is_cut(self, key: str) -> bool:
        return f"{key}{CUT}" in self._journal.answers

    async def _ask(self, inner: ChatModel, request: ChatRequest, keys: Sequence[str]) -> list[Completion]:
        """The answers to one request, recorded and paid."""
        async with self.ledger.reserve(request) as reservation:
            if self._stopped:  # stopped while waiting near a cap
                raise self._stopped
            completions = list(await inner.complete(request))
            cut = [stopped_in_reasoning(request, each) for each in completions]
            completions = _usage_on_a_used_reply(completions, cut)
            answered = [key + CUT * is_cut for key, is_cut in zip(keys, cut, strict=False)]
            await self._journal.append(request.question_id, answered, completions, model=self._recorded_as)
            reservation.settle(completions)
        return completions

    def holds(self, request: ChatRequest) -> bool:
        """Whether the journal answers it whole, as far as earlier sessions go."""
        keys = (request.key(position, model=self.name) for position in range(len(request.samples)))
        return all(each in self._journal.answers for each in keys)

    @property
    def in_flight(self) -> int:
        """Requests waiting for a slot, their answer or the disk."""
        return len(self._fetching)

    def stop(self, reason: RunStopped) -> None:
        """Send no more requests; those in flight continue."""
        self._stopped = self._stopped or reason

    async def drain(self) -> None:
        """Wait until every answer in flight is on disk."""
        while self._fetching:
            await asyncio.wait(self._fetching)

    async def check(self) -> None:
        if self.inner is not None:
            await self.inner.check()

    async def close(self) -> None:
        """Does nothing: journal and model belong to the caller."""


@asynccontextmanager
async def open_journal(path: Path, **options: Any) -> AsyncIterator[Journal]:
    """Open a journal for the block; see `Journal` for the options."""
    journal = Journal(path, **options)
    try:
        yield journal
    finally:
        await journal.close()


def _usage_on_a_used_reply(completions: list[Completion], cut: Sequence[bool]) -> list[Completion]:
    """The answers of a request, with its usage on the first that is used, if any is: an answer that is not used is in
    no record, and what its request cost would be missing there."""
    if not cut[0] or all(cut):
        return completions
    first, payer, found = completions[0], cut.index(False), list(completions)
    found[0] = Completion(text=first.text, finish_reason=first.finish_reason, reasoning=first.reasoning, requests=0)
    found[payer] = completions[payer].model_copy(update={name: getattr(first, name) for name in USAGE})
    return found


def _parse(line: bytes) -> _JournalEntry:
    record = orjson.loads(line)
    completions = [Completion.model_validate(each) for each in record["completions"]]
    answers = dict(zip(record["keys"], completions, strict=True))
    return _JournalEntry(str(record["question_id"]), answers, record.get("model"))
