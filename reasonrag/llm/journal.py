"""The journal: every paid answer is on disk before it is used, and is replayed instead of being requested again.

A journal is JSONL, one line per answered request: `{"question_id", "keys": [..], "completions": [..], "digest"}`, with
`model` if the answer is not the run's teacher's. The digest is that of the line before it, so that damage is found. A
key (`ChatRequest.key`) covers everything that determines one draw: a draw whose key is in the journal was paid already.
A reply that a stop string cut within its reasoning has its draw's key with `:cut`, which no draw has: it is paid, and
its draw is asked again without stop strings. Lines are written in batches and synced; an answer is returned only once
its batch is on disk. Failures are never recorded. Knows no endpoint and no price.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path

import orjson
from pydantic import ValidationError

from preference.export.private_files import open_private
from preference.records import first_error
from reasonrag.concurrency import together
from reasonrag.errors import InputError, ModelError, RunStopped, StorageError, UnexpectedError
from reasonrag.files import append_durably, checked_lines, numbered_lines, storing
from reasonrag.llm.budget import Ledger, Tokens
from reasonrag.llm.chat import USAGE, ChatModel, ChatRequest, Completion
from reasonrag.llm.endpoint.prompt_window import PromptWindows
from reasonrag.llm.reasoning import stopped_in_reasoning
from reasonrag.redaction import excerpt

CUT = ":cut"
"""Ends the key of a reply that is not used: a stop string cut it within its reasoning."""
Held = Callable[[Iterable[Completion]], list[Completion]]
GATHERED_S = 0.004
"""Seconds for which lines are gathered where they come close together: few batches cost the processor less."""
_DIGEST, _DIGEST_BYTES = b',"digest":"', 8
_END_SIZE = len(_DIGEST) + 2 * _DIGEST_BYTES + len(b'"}')
"""Bytes from the digest to the end of a line."""
LONGEST_LINE = 1 << 28
"""In bytes; the answers to one request."""


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """The answers of one line, by the keys of their draws. model: None for the run's teacher."""

    question_id: str
    answers: dict[str, Completion]
    model: str | None


class Journal(AbstractAsyncContextManager["Journal"]):
    """Answers by key, and their file, which is closed with the block.

    wanted: questions whose answers are held in memory; finished questions are not requested again. held: the part of
        one request's answers that is held. writable: False for a read-only journal. say: called with a message about a
        line that was cut off. Raises InputError for a file that is not a journal, or whose lines were changed.
    """

    def __init__(
        self,
        path: Path,
        *,
        wanted: Callable[[str], bool] = lambda _: True,
        held: Held = list,
        writable: bool = True,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.path = path
        self.answers: dict[str, Completion] = {}
        self.questions: set[str] = set()
        """Wanted questions of which some answer is held."""
        self.delivered = Tokens()
        """Everything in the file, finished questions included."""
        self.delivered_by: defaultdict[str | None, Tokens] = defaultdict(Tokens)
        """By model; None is the run's teacher."""
        self.windows = PromptWindows()
        """By everything in the file, too."""
        self._pending: list[tuple[bytes, asyncio.Future[None]]] = []
        self._flushing: asyncio.Task[None] | None = None
        self._dense = False  # whether lines come closer together than they are written
        self._broken: StorageError | None = None
        try:
            if writable:
                path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open_private(path, "a+b", buffering=-1) if writable else path.open("rb")
        except OSError as error:
            raise InputError(f"cannot open the journal {path}: {error.strerror}") from error
        try:
            self._load(wanted, held, say, writable=writable)
        except BaseException:
            self._file.close()
            raise

    def _load(self, wanted: Callable[[str], bool], held: Held, say: Callable[[str], None], *, writable: bool) -> None:
        """Read all lines; complete or drop a last line that a crash left without its line break.

        A line that equals an earlier one counts once. Lines with equal keys and different answers were all paid.
        """
        self._file.seek(0)
        self._size = 0
        seen = set[int]()
        for number, line in numbered_lines(self.path, self._file, LONGEST_LINE):
            whole, where = line.endswith(b"\n"), f"{self.path}, line {number}"
            try:
                entry = _parse(line)
            except ValueError as error:
                if not whole:
                    say(f"{where} was cut off while it was written; its answers are requested again where needed")
                    break
                raise InputError(f"{where} {error}. Delete the line to have its answers requested again") from error
            self._size += len(line)
            if not whole and writable:
                self._file.write(b"\n")
                self._size += 1
            if (own := hash(line.rstrip(b"\r\n"))) in seen:
                continue
            seen.add(own)
            self.delivered_by[entry.model] += Tokens.of(entry.answers.values())
            for completion in entry.answers.values():
                self.windows.add(entry.model, completion)
            if wanted(entry.question_id):
                self.questions.add(entry.question_id)
                for key, completion in zip(entry.answers, held(entry.answers.values()), strict=True):
                    self.answers.setdefault(key, completion)
        if writable:
            self._file.flush()
            self._file.truncate(self._size)
        self.delivered = sum(self.delivered_by.values(), start=Tokens())

    async def append(self, line: bytes) -> None:
        """Record a `journal_line`; returns once it is on disk. Raises StorageError if that fails."""
        if self._broken:
            raise self._broken
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pending.append((line, written))
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush())
        await written

    async def _flush(self) -> None:
        """Write batches of pending lines until none are left. Whatever fails, every waiting caller gets the error."""
        batch: list[tuple[bytes, asyncio.Future[None]]] = []
        try:
            while self._pending:
                if self._dense:
                    await asyncio.sleep(GATHERED_S)
                batch, self._pending = self._pending, []
                self._dense = len(batch) > 1
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

    async def __aexit__(self, *_: object) -> None:
        if self._flushing is not None:
            await self._flushing
        self._broken = self._broken or StorageError(f"the journal {self.path} is closed")
        self._file.close()


@dataclass(eq=False)
class JournaledModel:
    """A `ChatModel` that pays once: answers come from the journal, and from `inner` only if they are missing.

    inner: may return fewer answers than draws; the rest are requested singly. None: only the journal answers, and a
        missing answer raises ModelError with cause `not_recorded`. The caller closes it.
    ledger: reserves and records spending. recorded_as: the model named in new journal lines; None for the run's
        teacher.
    A requested answer is awaited and recorded even if its caller was cancelled: it is paid for. No draw may be
    requested twice in one session: new answers are not held in memory, so it would be paid again.
    """

    inner: ChatModel | None
    _journal: Journal
    name: str
    ledger: Ledger
    recorded_as: str | None = None
    cached_calls: int = 0
    """Draws answered by the journal so far."""
    on_news: Callable[[str, str], None] = lambda *_: None
    """Called with the mark of a server and what its answers show; may be set later."""
    stopped: RunStopped | None = None
    """Why no more requests are sent."""
    _fetching: set[asyncio.Task[list[Completion]]] = field(default_factory=set)

    async def complete(self, request: ChatRequest) -> Sequence[Completion]:
        if self.stopped:
            raise self.stopped
        keys = request.keys(model=self.name)
        known = [self._journal.answers.get(key) for key in keys]
        missing = [position for position, completion in enumerate(known) if completion is None]
        self.cached_calls += len(keys) - len(missing)
        whole = len(missing) == len(keys) and not self._is_cut(keys)
        fetched = await self._fetch(request, keys) if whole else []
        if len(fetched) == len(keys):
            return fetched  # as mostly
        bought = dict(enumerate(fetched))
        singly = [each for each in missing if each not in bought]
        others = await together(*(self._fetch(request.draws(each, each + 1), [keys[each]]) for each in singly))
        bought |= {each: completion for each, [completion] in zip(singly, others, strict=True)}
        return [completion or bought[position] for position, completion in enumerate(known)]

    async def _fetch(self, request: ChatRequest, keys: Sequence[str]) -> list[Completion]:
        if self.inner is None:
            end = excerpt(request.messages[-1].content, -60)
            raise ModelError(
                f"{self._journal.path} has no answer of {self.name} to sample {request.samples[0]} of the prompt "
                f"ending {end!r}; was it made with the same model, prompts, sampling and seed?",
                cause="not_recorded",
            )
        if self._is_cut(keys):  # by an earlier session, which ended before it was asked again
            request = request.without_stop()
        task = asyncio.create_task(self._ask(self.inner, request, keys))
        self._fetching.add(task)
        task.add_done_callback(self._fetching.discard)
        task.add_done_callback(lambda each: each.cancelled() or each.exception())  # retrieved: its caller may be gone
        await asyncio.wait((task,))  # which ends it not where its caller is cancelled
        completions = task.result()
        # those that a stop string cut within their reasoning are asked again, once and singly
        if cut := [place for place, each in enumerate(completions) if stopped_in_reasoning(request, each)]:
            again = [self._fetch(request.draws(place, place + 1).without_stop(), [keys[place]]) for place in cut]
            for place, [whole] in zip(cut, await together(*again), strict=True):
                completions[place] = whole
        return completions

    def _is_cut(self, keys: Sequence[str]) -> bool:
        return bool(self._journal.answers) and any(f"{key}{CUT}" in self._journal.answers for key in keys)

    async def _ask(self, inner: ChatModel, request: ChatRequest, keys: Sequence[str]) -> list[Completion]:
        """The answers to one request, recorded and paid."""
        reserved = await self.ledger.reserve(request)
        try:
            if self.stopped:  # stopped while waiting near a cap
                raise self.stopped
            said = list(await inner.complete(request))[: len(keys)]
            try:
                completions, line = self._to_record(request, keys, said)
            except Exception as error:  # noqa: BLE001 - a paid answer must reach the journal
                self.stop(UnexpectedError(error, kept=True))
                completions = _at_most(request, said)
                line = journal_line(request.question_id, keys[: len(said)], completions, model=self.recorded_as)
            await self._journal.append(line)
            self._journal.delivered_by[self.recorded_as] += Tokens.of(completions)  # where another session goes on
            self.ledger.settle(completions)
        finally:
            self.ledger.give_back(reserved)
        for each in completions:
            if news := self._journal.windows.add(self.recorded_as, each).news():
                self.on_news(each.server, news)
        return completions

    def _to_record(
        self, request: ChatRequest, keys: Sequence[str], said: list[Completion]
    ) -> tuple[list[Completion], bytes]:
        """The answers with the usage that counts, and their journal line. Raises ValueError for impossible usage."""
        cut = [stopped_in_reasoning(request, each) for each in said]
        completions = _usage_on_a_used_reply(said, cut)
        answered = [key + CUT * is_cut for key, is_cut in zip(keys, cut, strict=False)]
        used = Tokens.of(completions)
        counts = used.requests, used.prompt_tokens, used.completion_tokens
        if not all(isinstance(each, int) and each >= 0 for each in counts):
            raise ValueError(f"{used} is not a possible usage of a request")
        return completions, journal_line(request.question_id, answered, completions, model=self.recorded_as)

    @property
    def lessons(self) -> list[str]:
        """From which lengths its servers cut prompts, by all its answers, as a run records it."""
        return self._journal.windows.lessons(self.recorded_as)

    def holds(self, request: ChatRequest) -> bool:
        """Whether the journal answers it whole, as far as earlier sessions go."""
        return all(each in self._journal.answers for each in request.keys(model=self.name))

    @property
    def in_flight(self) -> int:
        """Requests waiting for a slot, their answer or the disk."""
        return len(self._fetching)

    def stop(self, reason: RunStopped) -> None:
        """Send no more requests; those in flight continue."""
        self.stopped = self.stopped or reason

    async def drain(self) -> None:
        """Wait until every answer in flight is on disk."""
        while self._fetching:
            await asyncio.wait(self._fetching)

    async def check(self) -> None:
        if self.inner is not None:
            await self.inner.check()


class JoinedJournals:
    """The journals of a run's shards or copies as one: each answer once, and no two answers to one draw. say: is told
    of a last line that is left out as cut."""

    def __init__(self, paths: Sequence[Path], say: Callable[[str], None]) -> None:
        self.delivered, self.windows = Tokens(), PromptWindows()
        """By everything in the lines that were read."""
        self._paths, self._say = paths, say

    def lines(self) -> Iterator[bytes]:
        """Raises InputError for a line that is no answer, or another one to a draw. Holds some 200 bytes a draw."""
        seen, said = set[int](), dict[int, int]()
        for path in self._paths:
            for number, line, entry in checked_lines(path, _parse, self._say, longest=LONGEST_LINE):
                if hash(line) in seen:
                    continue
                seen.add(hash(line))
                self.delivered += Tokens.of(entry.answers.values())
                for key, answer in entry.answers.items():
                    self.windows.add(entry.model, answer)
                    own = hash((answer.text, answer.reasoning, answer.finish_reason))
                    if said.setdefault(hash((entry.question_id, key)), own) != own:
                        raise InputError(
                            f"{path}, line {number} has another answer to a request than a line before it. Remove one "
                            "of them, then merge again"
                        )
                yield line


def _usage_on_a_used_reply(completions: list[Completion], cut: Sequence[bool]) -> list[Completion]:
    """The answers of a request, with its usage on the first that is used, if any: others are in no record."""
    if not cut[0] or all(cut):
        return completions
    first, payer, found = completions[0], cut.index(False), list(completions)
    found[0] = Completion(text=first.text, finish_reason=first.finish_reason, reasoning=first.reasoning, requests=0)
    found[payer] = completions[payer].model_copy(update={name: getattr(first, name) for name in USAGE})
    return found


def _at_most(request: ChatRequest, said: Sequence[Completion]) -> list[Completion]:
    """Answers without a recordable usage, at the highest cost that they can have had."""
    bare = [Completion(text=each.text, finish_reason=each.finish_reason, requests=0) for each in said]
    most = len(request.samples) * request.sampling.max_tokens
    usage = {"requests": 1, "prompt_tokens": request.size, "completion_tokens": most, "tokens_bounded": True}
    return [bare[0].model_copy(update=usage), *bare[1:]]


def journal_line(
    question_id: str, keys: Sequence[str], completions: Sequence[Completion], *, model: str | None
) -> bytes:
    """The line of one answered request, with its digest and line break. model: None for the run's teacher."""
    entry = {
        "question_id": question_id,
        **({} if model is None else {"model": model}),
        "keys": keys,
        "completions": [each.model_dump(mode="json", exclude_defaults=True) for each in completions],
    }
    content = orjson.dumps(entry)[:-1]
    return content + _end_of(content) + b"\n"


def _end_of(content: bytes) -> bytes:
    """How a line ends that begins so."""
    digest = hashlib.blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()
    return _DIGEST + digest.encode() + b'"}'


def _parse(line: bytes) -> JournalEntry:
    """The entry of a line. Raises ValueError for one that is not a recorded answer, or was changed."""
    line = line.rstrip(b"\r\n")
    content = line[:-_END_SIZE]
    if line[len(content) :] != _end_of(content):
        raise ValueError("is not a recorded answer: its digest shows that it was changed, or is missing")
    try:
        record = orjson.loads(line)
        completions = [Completion.model_validate(each) for each in record["completions"]]
        answers = dict(zip(record["keys"], completions, strict=True))
        return JournalEntry(str(record["question_id"]), answers, record.get("model"))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        why = first_error(error) if isinstance(error, ValidationError) else error
        raise ValueError(f"is not a recorded answer: {why}") from error
