"""Several runs as one set of candidates: trees are labelled, and all states of a question stand together.

Decides the order of `candidates.jsonl` and `questions.jsonl`: questions by first appearance, within a question the
sources as given. `labelling` decides which states there are. Memory holds file offsets, not contents.
"""

from __future__ import annotations

import gc
import hashlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from preference.best_path import question_record
from preference.candidates import (
    MalformedCandidatesError,
    Origin,
    StateRecord,
    is_two_turns,
    parse_line,
    question_key,
    read_lines,
)
from preference.export.files import atomic_replacement
from preference.export.summary import CANDIDATES, QUESTIONS
from preference.labelling import TokenCounter, labelled_states, with_outcome_label
from preference.records import MalformedRolloutsError, RolloutRecord


@dataclass(frozen=True)
class _LabelledLines:
    """The output lines for one rollout."""

    question_id: str
    key: str
    failed: bool
    question: bytes
    states: bytes


def write_candidates(
    rollouts: Iterable[RolloutRecord], out: Path, *, origin: Origin | None = None, tokens: TokenCounter | None = None
) -> None:
    """Label the trees of a run and write `candidates.jsonl` and `questions.jsonl` below `out`.

    origin: what the run's configuration adds to its records. A question that failed and was explored later has one
        line, that of its tree. Raises OSError and whatever reading `rollouts` raises; then nothing is replaced.
    """
    with without_cycle_collection():
        _write((_label(rollout, origin, tokens) for rollout in rollouts), out)


@contextmanager
def without_cycle_collection() -> Iterator[None]:
    """Pause the cyclic garbage collector: records hold no cycles, and it took a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _label(rollout: RolloutRecord, origin: Origin | None, tokens: TokenCounter | None) -> _LabelledLines:
    for node in rollout.nodes[1:]:
        if not is_two_turns(node.prompt):
            raise MalformedRolloutsError(
                f"question {rollout.question_id!r}, node {node.id}: its prompt must be one system turn and one user "
                "turn, or nothing could be trained on it"
            )
    origin = origin and _completed(origin, rollout)
    states = b"" if rollout.error else b"".join(each.to_line() for each in labelled_states(rollout, origin, tokens))
    question = question_record(rollout, origin).to_line()
    key = question_key(rollout.question)
    return _LabelledLines(rollout.question_id, key, rollout.error is not None, question, states)


def _write(labelled: Iterable[_LabelledLines], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    failed: dict[str, bytes] = {}
    seen: set[str] = set()
    again = False
    with atomic_replacement(out / CANDIDATES) as candidates, atomic_replacement(out / QUESTIONS) as questions:
        for each in labelled:
            if each.failed:
                failed[each.question_id] = each.question
                continue
            failed.pop(each.question_id, None)
            again |= each.key in seen
            seen.add(each.key)
            questions.write(each.question)
            candidates.write(each.states)
        for line in failed.values():
            questions.write(line)
    if again:  # data sets ask some questions twice, under two ids
        merge_candidates([out], out)


def _completed(origin: Origin, rollout: RolloutRecord) -> Origin:
    """The run's origin completed for one record: records of an imported run may come from several data sets."""
    own = {"dataset": rollout.dataset, "split": rollout.split, "revision": rollout.revision or origin.revision}
    return origin.model_copy(update=own)


def merge_candidates(folders: Sequence[Path], out: Path) -> None:
    """Merge the candidates of several folders. States of one question stand together; a tree that is in several folders
    is taken from the first, regardless of token counter and labels.

    Raises OSError, and MalformedCandidatesError for a line that names no question.
    """
    out.mkdir(parents=True, exist_ok=True)
    for name in (CANDIDATES, QUESTIONS):
        with ExitStack() as opened:
            sources = [opened.enter_context((folder / name).open("rb")) for folder in folders]
            target = opened.enter_context(atomic_replacement(out / name))
            for source, place in _grouped(sources):
                sources[source].seek(place)
                target.write(sources[source].readline().rstrip(b"\r\n") + b"\n")


def recount_tokens(folder: Path, tokens: TokenCounter) -> None:
    """Recount token lengths in `candidates.jsonl` that are missing or from another counter; writes nothing if there are
    none. Raises OSError, and MalformedCandidatesError for a line that is not a record."""
    path, mark = folder / CANDIDATES, _counter_mark(tokens)
    with path.open("rb") as lines:
        if all(mark in line for line in lines):
            return
    with path.open("rb") as lines, atomic_replacement(path) as target:
        for number, line in enumerate(lines, start=1):
            if mark not in line:
                state = parse_line(line, StateRecord, where=f"{path}, line {number}")
                line = _counted(state, tokens).to_line()  # noqa: PLW2901 - the same line with other numbers
            target.write(line)


def label_by_outcome(folder: Path) -> None:
    """Label all pairs in `candidates.jsonl` by outcome. Raises OSError, and MalformedCandidatesError for a line that is
    not a record."""
    path = folder / CANDIDATES
    with atomic_replacement(path) as target:
        target.writelines(with_outcome_label(state).to_line() for state in read_lines(path, StateRecord))


def _counter_mark(tokens: TokenCounter) -> bytes:
    """A byte string that occurs only in lines of this counter: text in JSON has no bare quotes."""
    return b'"token_counter":' + orjson.dumps(tokens.name)


def _counted(state: StateRecord, tokens: TokenCounter) -> StateRecord:
    steps = [step.model_copy(update={"tokens": tokens.reply(step.response)}) for step in state.steps]
    counted = {"tokens": tokens.prompt(state.prompt), "token_counter": tokens.name, "steps": steps}
    return state.model_copy(update=counted)


def _grouped(sources: Sequence[BinaryIO]) -> Iterator[tuple[int, int]]:
    """Source and offset of every line, grouped by question; of equal lines of one tree only the first."""
    places: dict[str, array[int]] = {}
    seen: set[bytes] = set()
    for number, source in enumerate(sources):
        place = 0
        for count, line in enumerate(source, start=1):
            key, digest = _key_and_digest(line, where=f"{source.name}, line {count}")
            if digest not in seen:
                seen.add(digest)
                places.setdefault(key, array("Q")).extend((number, place))
            place += len(line)
    for each in places.values():
        yield from zip(each[::2], each[1::2], strict=True)


def _key_and_digest(line: bytes, *, where: str) -> tuple[str, bytes]:
    """The key of the line's question, and a digest of what the line says about its tree."""
    try:
        record = orjson.loads(line)
        key = question_key(record["question"])
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise MalformedCandidatesError(f"{where} names no question: {error}") from error
    return key, hashlib.sha256(orjson.dumps(_explored(record))).digest()[:16]


def _explored(record: Any) -> Any:
    """The part of a record that exploration decided: without the run's configuration, token counts and a judge's picks.
    The whole record if it names no run."""
    try:
        origin = record["origin"]
        if origin["config_hash"] is None:
            return record
        run = origin["config_hash"], origin["seed"], origin["dataset"], origin["split"]
        if "steps" not in record:
            return run, {name: value for name, value in record.items() if name != "origin"}
        steps = [(step["id"], step["reward"]) for step in record["steps"]]
        return (
            run,
            record["question_id"],
            record["state_id"],
            steps,
            sorted(pair["pair_id"] for pair in record["pairs"]),
        )
    except (KeyError, TypeError):
        return record  # the reader of the line reports what is wrong with it
