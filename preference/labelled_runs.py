"""Several runs as one set of candidates: trees are labelled, and all states of a question stand together.

Decides the order of `candidates.jsonl` and `questions.jsonl`: questions by first appearance, within a question the
sources as given. `labelling` decides which states there are. Memory holds file offsets, not contents.
"""

from __future__ import annotations

import gc
import hashlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

import orjson

from preference.best_path import question_record
from preference.candidate_records import (
    AnyRecord,
    Origin,
    QuestionRecord,
    StateRecord,
    is_conversation,
    parse_line,
    question_key,
    read_lines,
)
from preference.export.private_files import atomic_replacement
from preference.export.summary import CANDIDATES, QUESTIONS
from preference.labelling import TokenCounter, labelled_states
from preference.records import MalformedRolloutsError, RolloutRecord

_KINDS: dict[str, type[StateRecord | QuestionRecord]] = {CANDIDATES: StateRecord, QUESTIONS: QuestionRecord}


def write_candidates(
    rollouts: Iterable[RolloutRecord],
    out: Path,
    *,
    origin: Origin | None = None,
    tokens: TokenCounter | None = None,
    every_step: bool = False,
) -> None:
    """Label the trees of a run and write `candidates.jsonl` and `questions.jsonl` below `out`.

    origin: what the run's configuration adds to its records. every_step: as of `question_record`. A question that
        failed and was explored later has one line, that of its tree.

    Raises OSError and whatever reading `rollouts` raises; then nothing is replaced.
    """
    out.mkdir(parents=True, exist_ok=True)
    failed: dict[str, bytes] = {}
    keys: Counter[str] = Counter()
    with (
        rare_garbage_collection(),
        atomic_replacement(out / CANDIDATES) as candidates,
        atomic_replacement(out / QUESTIONS) as questions,
    ):
        for rollout in rollouts:
            _check_turns(rollout)
            question = question_record(rollout, origin, every_step=every_step).to_line()
            if rollout.error is not None:
                failed[rollout.question_id] = question
                continue
            failed.pop(rollout.question_id, None)
            keys[question_key(rollout.question)] += 1
            questions.write(question)
            candidates.writelines(each.to_line() for each in labelled_states(rollout, origin, tokens))
        questions.writelines(failed.values())
    if len(keys) < keys.total():  # data sets ask some questions twice, under two ids
        merge_candidates([out], out)


@contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """Make garbage collection rare: neither trees, records nor requests have cycles, and scanning them took a fifth to
    a third of the time. Earlier garbage waits until after: looking for it took up to a third of a second where much is
    loaded."""
    thresholds = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(200_000, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


def _check_turns(rollout: RolloutRecord) -> None:
    for node in rollout.nodes[1:]:
        if not is_conversation(node.prompt):
            raise MalformedRolloutsError(
                f"question {rollout.question_id!r}, node {node.id}: its prompt must be one system turn, then user "
                "turns with replies between them, or nothing could be trained on it"
            )


def merge_candidates(folders: Sequence[Path], out: Path) -> None:
    """Merge the candidates of several folders. States of one question stand together; a tree that is in several folders
    is taken from the first, regardless of token counter and labels.

    Raises OSError, and MalformedCandidatesError for a line that is not a record.
    """
    out.mkdir(parents=True, exist_ok=True)
    for name, kind in _KINDS.items():
        with ExitStack() as opened:
            sources = [opened.enter_context((folder / name).open("rb")) for folder in folders]
            target = opened.enter_context(atomic_replacement(out / name))
            for source, place in _grouped(sources, kind):
                sources[source].seek(place)
                target.write(sources[source].readline().rstrip(b"\r\n") + b"\n")


def recount_tokens(folder: Path, tokens: TokenCounter) -> None:
    """Recount token lengths in `candidates.jsonl` that are missing or from another counter; writes nothing if there are
    none. Raises OSError, and MalformedCandidatesError for a line that is not a record."""
    path = folder / CANDIDATES
    mark = b'"token_counter":' + orjson.dumps(tokens.name)  # only in lines of this counter: texts have no bare quotes
    with path.open("rb") as lines:
        if all(mark in line for line in lines):
            return
    with path.open("rb") as lines, atomic_replacement(path) as target:
        for number, line in enumerate(lines, start=1):
            if mark not in line:
                state = parse_line(line, StateRecord, where=f"{path}, line {number}")
                steps = [step.model_copy(update={"tokens": tokens.reply(step.response)}) for step in state.steps]
                counted = {"tokens": tokens.prompt(state.prompt), "token_counter": tokens.name, "steps": steps}
                line = state.model_copy(update=counted).to_line()  # noqa: PLW2901 - the same line with other numbers
            target.write(line)


def rewrite_lines(path: Path, kind: type[AnyRecord], change: Callable[[AnyRecord], AnyRecord]) -> None:
    """Replace every record of a file by what `change` makes of it. Raises OSError, MalformedCandidatesError."""
    with atomic_replacement(path) as target:
        target.writelines(change(each).to_line() for each in read_lines(path, kind))


def _grouped(sources: Sequence[BinaryIO], kind: type[StateRecord | QuestionRecord]) -> Iterator[tuple[int, int]]:
    """Source and offset of every line, grouped by question; of equal lines of one tree only the first."""
    places: dict[str, array[int]] = {}
    seen: set[bytes] = set()
    for number, source in enumerate(sources):
        place = 0
        for count, line in enumerate(source, start=1):
            record = parse_line(line, kind, where=f"{source.name}, line {count}")
            digest = hashlib.sha256(_explored(record)).digest()[:16]
            if digest not in seen:
                seen.add(digest)
                places.setdefault(question_key(record.question), array("Q")).extend((number, place))
            place += len(line)
    for each in places.values():
        yield from zip(each[::2], each[1::2], strict=True)


def _explored(record: StateRecord | QuestionRecord) -> bytes:
    """What exploration decided of a record: without the run's configuration, token counts and a judge's picks. All of
    it if it names no run."""
    origin = record.origin
    if origin.config_hash is None:
        return record.to_line()
    run = origin.config_hash, origin.seed, origin.dataset, origin.split, record.question_id
    if isinstance(record, QuestionRecord):
        return orjson.dumps(run) + record.model_dump_json(exclude={"origin", "plain_steps", "not_plain"}).encode()
    steps = [(step.id, step.reward) for step in record.steps]
    return orjson.dumps((run, record.state_id, steps, sorted(pair.pair_id for pair in record.pairs)))
