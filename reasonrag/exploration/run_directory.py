"""A run directory: its files, its lock, and how a run resumes.

    config.json     resolved settings and their hash; no secrets
    rollouts.jsonl  one line per question, appended as trees finish, put in question order at a clean end
    failures.jsonl  every failed question and call, with its cause
    journal.jsonl   every paid answer (see `reasonrag.llm.journal`)
    summary.json    what the last run did

Decides when a configuration has changed, how a torn line is repaired, and what of the directories of ranks is joined.
Does not know how a rollout is made.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple, Self

import orjson

from preference import MalformedRolloutsError, RolloutRecord
from preference.export.private_files import PRIVATE, atomic_replacement, open_private, write_file
from preference.records import OtherSchemaError, parse_rollout
from reasonrag.errors import InputError
from reasonrag.exploration.summary import RunSummary, added_up
from reasonrag.files import CONFIG, FAILURES, JOURNAL, ROLLOUTS, append_durably, checked_lines, storing, writing
from reasonrag.llm.budget import Tokens
from reasonrag.llm.journal import JoinedJournals
from reasonrag.ranks import Manifest, rank_of
from reasonrag.rendering import counted
from reasonrag.run.engine import claimed
from reasonrag.run.failures import FailureLog
from reasonrag.run_config import RunConfig, has_answers, read_config, refused_by_any


class RunDirectory:
    """One run's files, locked against a second writer while open. Use as a context manager.

    Raises InputError if the directory cannot be written, is in use, or holds another configuration.
    """

    def __init__(self, path: Path, config: RunConfig, *, say: Callable[[str], None]) -> None:
        self.path, self.rollouts_path = path, path / ROLLOUTS
        self._config = config
        self._say = say
        self._lines: dict[str, tuple[int, int, bool]] = {}
        """By question, where its last line begins, its length, and whether it holds a tree."""

    def __enter__(self) -> Self:
        with ExitStack() as files:
            with writing(f"the run directory {self.path}"):
                files.enter_context(claimed(self.path, self._config))
                self._rollouts = files.enter_context(open_private(self.rollouts_path, "a+b"))
                self._read_back()
                (self.path / FAILURES).touch(PRIVATE)
                self.failures = files.enter_context(FailureLog(self.path / FAILURES))
            self._files = files.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, InputError) and not has_answers(self.path):
            self._rollouts.close()
            self.rollouts_path.unlink()  # nothing was started: other commands must not take it for a run without trees
        self._files.__exit__(kind, error, traceback)

    def is_done(self, question_id: str) -> bool:
        """Whether the question has a tree; one with only an error is tried again."""
        return question_id in self._lines and self._lines[question_id][2]

    def tree(self, question_id: str) -> RolloutRecord:
        start, length, _ = self._lines[question_id]
        self._rollouts.seek(start)
        return parse_rollout(self._rollouts.read(length), where=f"{self.rollouts_path}, byte {start:,}")

    def append(self, rollout: RolloutRecord) -> None:
        """Write a finished tree, or its error, to disk. Raises StorageError; the file is then unchanged."""
        line, start = rollout.to_line(), self._rollouts.seek(0, os.SEEK_END)
        with storing(self.rollouts_path):
            append_durably(self._rollouts.fileno(), line, end=start)
        self._index(rollout, start, len(line))

    def sort_by_question(self, question_ids: Iterable[str]) -> None:
        """Rewrite rollouts.jsonl atomically in question order, without superseded error lines.

        Trees of other questions (after a smaller --limit) are kept at the end.
        """
        order = dict.fromkeys(question_ids)
        behind = (each for each in self._lines if each not in order)
        with atomic_replacement(self.rollouts_path) as ordered:
            for question_id in [*order, *behind]:
                if question_id in self._lines:
                    start, length, done = self._lines[question_id]
                    self._rollouts.seek(start)
                    self._lines[question_id] = (ordered.tell(), length, done)
                    ordered.write(self._rollouts.read(length))
            self._rollouts.close()  # Windows replaces no file that is open
        self._rollouts = self._files.enter_context(open_private(self.rollouts_path, "a+b"))

    def _read_back(self) -> None:
        """Index the existing lines; cut off a last one that a crash left incomplete."""
        start = 0
        with self.rollouts_path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if not line.endswith(b"\n"):
                    self._rollouts.truncate(start)
                    self._say(
                        f"{self.rollouts_path}: line {number} was cut off by an earlier stop; "
                        f"removed its {len(line):,} bytes, its question will be explored again"
                    )
                    break
                try:
                    rollout = parse_rollout(line, where=f"{self.rollouts_path}, line {number}")
                except OtherSchemaError as error:
                    raise InputError(f"{error}, or choose another --run") from error
                except MalformedRolloutsError as error:
                    raise InputError(f"{error}. Remove the line to have its question explored again") from error
                self._index(rollout, start, len(line))
                start += len(line)

    def _index(self, rollout: RolloutRecord, start: int, length: int) -> None:
        self._lines[rollout.question_id] = (start, length, rollout.error is None)


def join_runs(
    run: Path, manifest: Manifest, folders: Sequence[Path], capped: Sequence[int], say: Callable[[str], None]
) -> tuple[RunSummary, dict[str, Any], Tokens]:
    """Write the files of a run from those of its ranks, once all are checked; returns its summary, its settings as in
    config.json, and what was delivered to it. capped: ranks that may lack trees. Raises InputError and OSError."""
    configs, before = [_config(each, manifest) for each in folders], _versions(folders)
    lines = _find_lines(manifest, folders, capped, say)
    of_ranks = [each.operational.settings for each in configs if each.operational]
    whole = {"shard": None, "run": str(run)}
    content = configs[0].model_dump()
    content["operational"]["settings"] |= whole
    refused = refused_by_any([each.operational.refused_parameters for each in configs if each.operational])
    config, joined = RunConfig.model_validate(content), JoinedJournals([each / JOURNAL for each in folders], say)
    with ExitStack() as replaced:
        journal, failures, rollouts = (
            replaced.enter_context(atomic_replacement(run / name)) for name in (JOURNAL, FAILURES, ROLLOUTS)
        )
        journal.writelines(joined.lines())
        cut = joined.windows.lessons_by_model(config.decides_answers.model)
        config = config.with_refusals(refused).with_refusals(cut)
        for folder in folders:
            found = checked_lines(folder / FAILURES, partial(_values, "failure", ["kind"]), say)
            failures.writelines(line for _, line, _ in found)
        summary = added_up(
            run,
            folders,
            questions=len(manifest.question_ids),
            rollouts=_copied((lines[each] for each in manifest.question_ids if each in lines), rollouts),
            stopped=None,
            refused=config.operational.refused_parameters if config.operational else {},
        )
        if changed := [path for path, version in _versions(folders).items() if before[path] != version]:
            raise InputError(f"{changed[0]} was written while the ranks were joined: wait until no rank runs")
    write_file(run / CONFIG, config.to_bytes())
    return summary, of_ranks[capped[0] if capped else 0] | whole, joined.delivered


def _config(folder: Path, manifest: Manifest) -> RunConfig:
    found = read_config(folder / CONFIG)
    if found.config_hash != manifest.config_hash:
        raise InputError(
            f"{folder} has the configuration {found.config_hash}, the run's is {manifest.config_hash}: it was changed "
            "after it was made. Restore it, or make the rank again"
        )
    if found.operational is None:
        raise InputError(f"{folder / CONFIG}: operational is missing. Restore the file")
    return found


def _versions(folders: Sequence[Path]) -> dict[Path, tuple[int, int, int]]:
    found = ((each / ROLLOUTS, (each / ROLLOUTS).stat()) for each in folders)
    return {path: (stat.st_ino, stat.st_size, stat.st_mtime_ns) for path, stat in found}


class _Line(NamedTuple):
    """A line of a rank's rollouts.jsonl. start, length: in bytes. failed: whether it holds no tree."""

    path: Path
    number: int
    start: int
    length: int
    failed: bool

    def __str__(self) -> str:
        return f"{self.path}, line {self.number}"

    def read(self) -> bytes:
        with self.path.open("rb") as file:
            file.seek(self.start)
            return file.read(self.length).rstrip(b"\r\n") + b"\n"


def _find_lines(
    manifest: Manifest, folders: Sequence[Path], capped: Sequence[int], say: Callable[[str], None]
) -> dict[str, _Line]:
    """The line of every question that has one, by its id. Raises InputError for a question that is missing though its
    rank is complete, in the wrong rank or in no manifest, and for one with two trees."""
    ranks, found = {each: rank_of(each, manifest.ranks) for each in manifest.question_ids}, dict[str, _Line]()
    values = partial(_values, "rollout record", ["question_id", "config_hash", "error"])
    for rank, folder in enumerate(folders):
        start = 0
        for number, line, (named, config_hash, error) in checked_lines(folder / ROLLOUTS, values, say):
            question_id = str(named)
            new, earlier = _Line(folder / ROLLOUTS, number, start, len(line), bool(error)), found.get(question_id)
            if ranks.get(question_id) != rank:
                raise InputError(f"{new}: the question {question_id!r} is not of rank {rank}")
            if config_hash != manifest.config_hash:
                raise InputError(f"{new} is of another configuration, {config_hash}. Run rank {rank} again")
            if earlier and not earlier.failed and earlier.read() != line:
                raise InputError(f"{new} has another tree of {question_id!r} than line {earlier.number}; remove one")
            found[question_id] = new  # replaces an error
            start += len(line)
    if missing := [each for each, rank in ranks.items() if each not in found and rank not in capped]:
        rank = ranks[missing[0]]
        raise InputError(
            f"{counted(len(missing), 'question')} of the run have no line, {missing[0]!r} of rank {rank} for one: "
            f"{folders[rank] / ROLLOUTS} was changed after it was made. Run that rank again, then merge"
        )
    return found


def _values(kind: str, keys: Sequence[str], line: bytes) -> list[Any]:
    """What a record of that kind has under these keys. Raises ValueError."""
    try:
        record = orjson.loads(line)
        return [record[each] for each in keys]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"is not a {kind}: {error}") from error


def _copied(lines: Iterable[_Line], to: BinaryIO) -> Iterator[RolloutRecord]:
    """The trees of these lines, each of which is written once it was read."""
    for each in lines:
        yield parse_rollout(line := each.read(), where=str(each))
        to.write(line)
