"""Several runs as one set of candidates: trees are labelled, and all states of a question stand together.

Decides the order of `candidates.jsonl` and `questions.jsonl`: questions as they first come, in each the sources as they
were given. Which states there are is decided in `labelling`. Memory holds places in files, not what stands there.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import BinaryIO, TypeAlias

import orjson

from preference.candidates import Origin, question_key
from preference.exporting import CANDIDATES, QUESTIONS, replacing
from preference.labelling import TokenCounter, labelled_states
from preference.paths import question_record
from preference.records import RolloutRecord, parse_rollout, read_rollouts

_WORTH_SHARING = 64 * 2**20
"""Bytes from which on several processes are faster than one: starting them takes about a second."""
_CHUNK_BYTES = 2**20


@dataclass(frozen=True)
class _Labelled:
    """The lines that a rollout becomes."""

    question_id: str
    failed: bool
    question: bytes
    states: bytes


def write_candidates(
    rollouts: Iterable[RolloutRecord], out: Path, *, origin: Origin | None = None, tokens: TokenCounter | None = None
) -> None:
    """Label the trees of a run and write `candidates.jsonl` and `questions.jsonl` below `out`.

    origin: what the run's configuration tells beyond its records. A question that failed and was explored later has one
    line, that of its tree. Raises OSError, and whatever reading `rollouts` raises; nothing is replaced then.
    """
    with _no_search_for_cycles():
        _write((_label(rollout, origin, tokens) for rollout in rollouts), out)


def label_file(
    rollouts: Path,
    out: Path,
    *,
    origin: Origin | None = None,
    tokens: TokenCounter | None = None,
    processes: int = 1,
) -> None:
    """The same of a rollouts file, shared among so many processes where it is large.

    Raises OSError, and MalformedRolloutsError for a line that is no record.
    """
    if processes == 1 or rollouts.stat().st_size < _WORTH_SHARING:
        write_candidates(read_rollouts(rollouts), out, origin=origin, tokens=tokens)
        return
    with rollouts.open("rb") as lines, ProcessPoolExecutor(processes, get_context("spawn")) as workers:
        chunks = _chunks((line, f"{rollouts}, line {number}") for number, line in enumerate(lines, start=1))
        _write(_shared(workers, partial(_label_lines, origin=origin, tokens=tokens), chunks, ahead=2 * processes), out)


_Lines: TypeAlias = list[tuple[bytes, str]]


def _chunks(lines: Iterable[tuple[bytes, str]]) -> Iterator[_Lines]:
    """Lines, each with its place, in lists of at least so many bytes."""
    chunk: _Lines = []
    size = 0
    for line in lines:
        chunk.append(line)
        size += len(line[0])
        if size >= _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _shared(
    workers: Executor, work: Callable[[_Lines], list[_Labelled]], chunks: Iterable[_Lines], *, ahead: int
) -> Iterator[_Labelled]:
    """Results in the order of the chunks, of which only so many are in memory."""
    waiting: deque[Future[list[_Labelled]]] = deque()
    for chunk in chunks:
        waiting.append(workers.submit(work, chunk))
        if len(waiting) > ahead:
            yield from waiting.popleft().result()
    while waiting:
        yield from waiting.popleft().result()


def _label_lines(lines: _Lines, *, origin: Origin | None, tokens: TokenCounter | None) -> list[_Labelled]:
    with _no_search_for_cycles():
        return [_label(parse_rollout(line, where=where), origin, tokens) for line, where in lines]


@contextmanager
def _no_search_for_cycles() -> Iterator[None]:
    """Records hold none, and looking for them took a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _label(rollout: RolloutRecord, origin: Origin | None, tokens: TokenCounter | None) -> _Labelled:
    states = b"" if rollout.error else b"".join(each.to_line() for each in labelled_states(rollout, origin, tokens))
    question = question_record(rollout, origin).to_line()
    return _Labelled(rollout.question_id, rollout.error is not None, question, states)


def _write(labelled: Iterable[_Labelled], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    failed: dict[str, bytes] = {}
    with replacing(out / CANDIDATES) as candidates, replacing(out / QUESTIONS) as questions:
        for each in labelled:
            if each.failed:
                failed[each.question_id] = each.question
                continue
            failed.pop(each.question_id, None)
            questions.write(each.question)
            candidates.write(each.states)
        for line in failed.values():
            questions.write(line)


def merge_candidates(folders: Sequence[Path], out: Path) -> None:
    """Several folders with candidates as one; states of one question stand together. Raises OSError."""
    out.mkdir(parents=True, exist_ok=True)
    for name in (CANDIDATES, QUESTIONS):
        with ExitStack() as opened:
            sources = [opened.enter_context((folder / name).open("rb")) for folder in folders]
            target = opened.enter_context(replacing(out / name))
            for source, place in _grouped(sources):
                sources[source].seek(place)
                target.write(sources[source].readline())


def _grouped(sources: Sequence[BinaryIO]) -> Iterator[tuple[int, int]]:
    """Source and place of every line, those of a question together."""
    places: dict[str, list[tuple[int, int]]] = {}
    for number, source in enumerate(sources):
        place = 0
        for line in source:
            places.setdefault(question_key(orjson.loads(line)["question"]), []).append((number, place))
            place += len(line)
    for found in places.values():
        yield from found
