"""A run directory: its files, its lock, and how a run resumes.

    config.json     resolved settings and their hash; no secrets
    rollouts.jsonl  one line per question, appended as trees finish, put in question order at a clean end; a tree waits
                    while the run may still turn out to stop before its question
    failures.jsonl  every failed question and call, with its cause
    journal.jsonl   every paid answer (see `reasonrag.llm.journal`)
    summary.json    what the last run did

Decides when a configuration has changed and how a torn line is repaired. Does not know how a rollout is made.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from preference import MalformedRolloutsError, RolloutRecord
from preference.export.files import PRIVATE, atomic_replacement, open_private, write_json
from preference.export.summary import SUMMARY
from preference.records import OtherSchemaError, parse_rollout
from reasonrag.errors import InputError
from reasonrag.files import CONFIG, FAILURES, ROLLOUTS, append_durably, only_writer, storing, writing
from reasonrag.llm.failure_log import FailureLog
from reasonrag.run_config import (
    RunConfig,
    config_restored,
    cuts_in,
    has_answers,
    keep_config,
    note_refusals,
    read_config,
)


class RunDirectory:
    """One run's files, locked against a second writer while open. Use as a context manager.

    Raises InputError if the directory cannot be written, is in use, or holds another configuration.
    """

    def __init__(self, path: Path, config: RunConfig, *, say: Callable[[str], None]) -> None:
        self.path = path
        self._config = config
        self._say = say
        self._lines: dict[str, tuple[int, int]] = {}
        self._failed: set[str] = set()
        self._cut: dict[str, list[str]] | None = None
        """Lengths from which prompts were cut in earlier sessions, by name of the model."""

    def __enter__(self) -> Self:
        with ExitStack() as files:
            with writing(f"the run directory {self.path}"):
                files.enter_context(only_writer(self.path))
                files.enter_context(config_restored(self.path))
                self._rollouts = files.enter_context(open_private(self.rollouts_path, "a+b"))
                self._read_back()
                self._check_config()
                (self.path / FAILURES).touch(PRIVATE)
                self.failures = files.enter_context(FailureLog(self.path / FAILURES))
            self._files = files.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._files.__exit__(kind, error, traceback)

    @property
    def rollouts_path(self) -> Path:
        return self.path / ROLLOUTS

    def is_done(self, question_id: str) -> bool:
        """Whether the question has a tree; one with only an error is tried again."""
        return question_id in self._lines and question_id not in self._failed

    def tree(self, question_id: str) -> RolloutRecord:
        """The tree of a question that is done."""
        start, length = self._lines[question_id]
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
                    start, length = self._lines[question_id]
                    self._rollouts.seek(start)
                    self._lines[question_id] = (ordered.tell(), length)
                    ordered.write(self._rollouts.read(length))
            self._rollouts.close()  # Windows replaces no file that is open
        self._rollouts = self._files.enter_context(open_private(self.rollouts_path, "a+b"))

    def note_refusals(self, refused: dict[str, list[str]]) -> dict[str, list[str]]:
        """Record which parameters endpoints refused in this session; returns those of all sessions. A length from which
        prompts were cut in an earlier session stays where this one finds none: the server may be another now."""
        if self._cut is None:
            known = read_config(self.path / CONFIG).operational
            self._cut = {name: cuts_in(each) for name, each in known.refused_parameters.items()} if known else {}
        earlier = {name: [] if cuts_in(found) else self._cut.get(name, []) for name, found in refused.items()}
        refused = {name: [*found, *earlier[name]] for name, found in refused.items()}
        return note_refusals(self.path, refused)

    def write_summary(self, summary: dict[str, Any]) -> None:
        write_json(self.path / SUMMARY, summary)

    # -- opening -------------------------------------------------------------------------------

    def _check_config(self) -> None:
        """Raises InputError for another configuration, unless the directory has no tree and no answer yet."""
        paid = has_answers(self.path)
        only_failures = self._lines and not paid and len(self._lines) == len(self._failed)
        if only_failures and read_config(self.path / CONFIG).changed_to(self._config):
            self._say(f"{self.path} has no tree, only failures of another configuration; starting over")
            self._rollouts.truncate(0)
            self._lines.clear()
            self._failed.clear()
        keep_config(self.path, self._config, held=bool(self._lines) or paid)

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
        self._lines[rollout.question_id] = (start, length)
        if rollout.error:
            self._failed.add(rollout.question_id)
        else:
            self._failed.discard(rollout.question_id)
