"""`reasonrag review`: blind human review of pairs; every judgement is saved at once and counted in a report.

Decides what a key does, how judgements are stored (`DIR/review/<reviewer>.jsonl`, append-only) and which names a
reviewer may have. `preference.review_statistics` decides the sample and the statistics; `review_screen` the display and
the source of keys.
"""

from __future__ import annotations

import getpass
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Protocol, Self

from filelock import lock_descriptor
from pydantic import ValidationError

from preference.export.files import open_private, write_json
from preference.export.formats import pairs_files
from preference.export.json_stream import MalformedFileError
from preference.records import first_error
from preference.review_statistics import (
    DataSetCounts,
    JudgementRecord,
    ReviewPair,
    ReviewReport,
    Verdict,
    digest,
    latest_judgements,
    read_pairs,
    report_of,
    sample_pairs,
)
from reasonrag import __version__
from reasonrag.curation.settings import ReviewSettings
from reasonrag.errors import InputError
from reasonrag.files import append_durably, check_finished, storing, writing
from reasonrag.settings import resolve
from reasonrag.signatures import public_call
from reasonrag.terminal import on_one_line

REVIEW, REPORT = "review", "report.json"
DEFAULT_REVIEWER = "reviewer"
_SAFE_NAME = re.compile(r"\w[\w.-]{0,63}")
MAX_NOTE_LENGTH = 2000

VERDICTS: Final[dict[str, Verdict]] = {"a": "a", "b": "b", "t": "tie", "s": "skip"}
WORDS = {
    "tie": "t",
    "equal": "t",
    "skip": "s",
    "note": "n",
    "undo": "u",
    "whole": "w",
    "instructions": "i",
    "golden": "g",
    "help": "?",
    "h": "?",
    "quit": "q",
    "exit": "q",
}
"""Words accepted in place of a key."""


class KeySource(Protocol):
    """A source of keys: a terminal, or lines on stdin."""

    def key(self) -> str | None:
        """The next key or word, unprocessed; None at the end."""

    def note(self) -> str | None:
        """A line of text; None at the end."""


class ReviewDisplay(Protocol):
    """What the reviewer sees."""

    def begin(self, *, reviewer: str, contents: DataSetCounts, size: int, judged: int) -> None: ...

    def pair(self, pair: ReviewPair, seed: int, *, number: int, size: int, whole: bool, note: str) -> None: ...

    def keys(self) -> None:
        """Show what every key does."""

    def text(self, title: str, text: str) -> None: ...

    def say(self, message: str) -> None: ...


def review(directory: str | Path, keys: KeySource, screen: ReviewDisplay, **flags: Any) -> ReviewReport:
    """Show the unjudged pairs of the sample until all are judged or the reviewer quits; returns the report.

    Raises InputError for an unusable data set or reviewer name, StorageError if a judgement cannot be saved.
    """
    settings = resolve(ReviewSettings, "review", flags)
    directory, reviewer = Path(directory), reviewer_name(settings.reviewer)
    with _readable(directory):
        sample, contents = sample_pairs(directory, settings.pairs, seed=settings.seed)
    if not sample:
        why = f"{contents.unreadable:,} lack a prompt or a reply, {contents.same:,} have equal replies"
        raise InputError(
            f"{directory} has no pair that can be shown: of its {contents.rows:,} rows {why}. See "
            f"{' and '.join(str(path) for path in pairs_files(directory).values())}"
        )
    with _ReviewFile(directory / REVIEW / f"{reviewer}.jsonl", screen) as file:
        session = _ReviewSession(sample, file, settings.seed, keys, screen)
        screen.begin(reviewer=reviewer, contents=contents, size=len(sample), judged=session.judged)
        session.run()
    return review_report(directory)


@public_call()
def review_report(directory: str | Path) -> ReviewReport:
    """Compare the judgements of all reviewers with the labels and with each other; writes `review/report.json`.

    Raises InputError if there is no data set, a file of judgements is damaged or the report cannot be written.

    Example:
        >>> reasonrag.review_report("data/first").reviewers
        []

    Args:
        directory: a data set that `reasonrag review` showed.
    """
    directory = Path(directory)
    judgements = {}
    with _readable(directory):
        for path in sorted((directory / REVIEW).glob("*.jsonl")):
            judgements[path.stem] = _parse(path, path.read_bytes())[0]
        report = report_of(str(directory), judgements, read_pairs(directory))
    if judgements:
        with writing(directory / REVIEW / REPORT):
            write_json(directory / REVIEW / REPORT, report.model_dump())
    return report


def reviewer_name(given: str | None) -> str:
    """A name that is safe as a file name: the one given, else the user's, else `reviewer`. Raises InputError."""
    if given is not None:
        if not _SAFE_NAME.fullmatch(given):
            raise InputError(
                f"--reviewer {given!r} cannot name a file; use up to 64 letters, digits, '_', '-' and '.', a letter, "
                "digit or '_' first"
            )
        return given
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container without an entry for its user, or a system without users
        return DEFAULT_REVIEWER
    return user if _SAFE_NAME.fullmatch(user) else DEFAULT_REVIEWER


@contextmanager
def _readable(directory: Path) -> Iterator[None]:
    """Refuses what is not a data set, and explains why one cannot be read. Raises InputError."""
    if directory.is_file():
        raise InputError(f"{directory} is a file; give the directory of a data set, which holds RAG_ProGuide.json")
    check_finished(directory)
    if not pairs_files(directory):
        raise InputError(f"there is no RAG_ProGuide.json in {directory}. Make one with: reasonrag pairs RUN --out DIR")
    try:
        yield
    except MalformedFileError as error:
        raise InputError(str(error)) from error
    except OSError as error:
        raise InputError(f"cannot read {error.filename or directory}: {error.strerror}") from error


# -- judgements on disk ----------------------------------------------------------------------------------------


class _ReviewFile:
    """The judgements of one reviewer, locked against a second session. Use as a context manager."""

    def __init__(self, path: Path, screen: ReviewDisplay) -> None:
        self._path = path
        self._screen = screen
        self.lines: list[JudgementRecord] = []

    def __enter__(self) -> Self:
        with writing(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open_private(self._path, "a+b")
        try:
            self._take()
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def append(self, judgement: JudgementRecord) -> None:
        """Durably append a judgement. Raises StorageError; the file is then unchanged."""
        with storing(self._path, "The last judgement is lost; make room and run the same command again"):
            append_durably(self._file.fileno(), judgement.to_line(), end=self._file.seek(0, os.SEEK_END))
        self.lines.append(judgement)

    def _take(self) -> None:
        if not lock_descriptor(self._file.fileno(), blocking=False):
            raise InputError(f"{self._path} is open in another review; continue there, or choose another --reviewer")
        self._file.seek(0)
        content = self._file.read()
        self.lines, whole = _parse(self._path, content)
        if whole < len(content):
            self._file.truncate(whole)
            self._screen.say(
                f"the last line of {self._path} was incomplete and has been removed; its pair is shown again"
            )
        elif content and not content.endswith(b"\n"):
            os.write(self._file.fileno(), b"\n")


def _parse(path: Path, content: bytes) -> tuple[list[JudgementRecord], int]:
    """The judgements and their length in bytes; a torn last line is ignored. Raises InputError."""
    found, read = [], 0
    for number, line in enumerate(content.splitlines(keepends=True), start=1):
        try:
            found.append(JudgementRecord.model_validate_json(line))
        except ValidationError as error:
            if not line.endswith(b"\n"):
                break
            name = JudgementRecord.model_fields["schema_version"].default
            raise InputError(
                f"{path}, line {number} is not a line of {name}: {first_error(error)}. Remove the line, or move the "
                "file away"
            ) from error
        read += len(line)
    return found, read


# -- a session -------------------------------------------------------------------------------------------------


class _ReviewSession:
    """One review session: shows the pairs of a sample one by one."""

    def __init__(
        self, sample: list[ReviewPair], file: _ReviewFile, seed: int, keys: KeySource, screen: ReviewDisplay
    ) -> None:
        said = latest_judgements(file.lines)
        self._sample = {pair.facts.key: pair for pair in sample}
        self._waiting = [pair for pair in sample if pair.facts.key not in said]
        self._done = [key for key in said if key in self._sample]
        """Judged pairs of the sample, in order of judgement."""
        self._notes = {key: each.note for key, each in said.items()}
        self._last: ReviewPair | None = None
        """JudgedPair in this session."""
        self._file = file
        self._seed = seed
        self._keys = keys
        self._screen = screen

    @property
    def judged(self) -> int:
        return len(self._done)

    def run(self) -> None:
        """Run until the sample is judged or the reviewer quits."""
        while self._waiting:
            if not self._judge(self._waiting[0]):
                return
        self._screen.say(f"all {len(self._sample):,} pairs of the sample are judged; a larger --pairs adds more")

    def _judge(self, pair: ReviewPair) -> bool:
        """Show a pair until it is judged or another one comes next; returns False to quit."""
        note = self._notes.pop(pair.facts.key, "")
        self._show(pair, note)
        started = time.monotonic()
        while True:
            written = self._keys.key()
            key, rest = ("q", "") if written is None else _parse_key(written)
            if key in VERDICTS:
                self._keep(pair, VERDICTS[key], note, time.monotonic() - started)
                return True
            if key == "q":
                return False
            if key == "u":
                self._notes[pair.facts.key] = note
                if self._undo():
                    return True
            elif key == "n":
                note = self._take_note(rest or self._keys.note(), note)
            else:
                self._tell(pair, key, note)

    def _take_note(self, text: str | None, before: str) -> str:
        note = before if text is None else on_one_line(text)[:MAX_NOTE_LENGTH]
        self._screen.say(f"note: {note}" if note else "no note")
        return note

    def _tell(self, pair: ReviewPair, key: str, note: str) -> None:
        """Handle keys that only show something."""
        if key == "w":
            self._show(pair, note, whole=True)
        elif key == "i":
            self._screen.text("instructions", pair.system or "unknown")
        elif key == "g":
            self._tell_golden_answers()
        elif key == "?":
            self._screen.keys()
        elif key:
            self._screen.say(f"unknown key {on_one_line(key)[:20]!r}; ? lists the keys")

    def _show(self, pair: ReviewPair, note: str, *, whole: bool = False) -> None:
        number = len(self._done) + 1
        self._screen.pair(pair, self._seed, number=number, size=len(self._sample), whole=whole, note=note)

    def _keep(self, pair: ReviewPair, verdict: Verdict, note: str, seconds: float) -> None:
        first, second = pair.sides(self._seed)
        self._append(pair, (digest(first), digest(second)), verdict, note, seconds)
        self._notes[pair.facts.key] = note
        self._waiting.remove(pair)
        self._done.append(pair.facts.key)
        self._last = pair

    def _undo(self) -> bool:
        """Withdraw the last judgement and show its pair again; returns whether there was one."""
        if not self._done:
            self._screen.say("there is nothing to undo")
            return False
        pair = self._sample[self._done.pop()]
        self._append(pair, latest_judgements(self._file.lines)[pair.facts.key].shown, "withdrawn", "", 0.0)
        self._waiting.insert(0, pair)
        self._last = None
        self._screen.say("judgement withdrawn; judge the pair again")
        return True

    def _append(self, pair: ReviewPair, shown: tuple[str, str], verdict: Verdict, note: str, seconds: float) -> None:
        self._file.append(
            JudgementRecord(
                pair=pair.facts.key,
                pair_id=pair.facts.pair_id,
                shown=shown,
                verdict=verdict,
                note=note,
                seconds=round(seconds, 2),
                at=datetime.now(UTC).isoformat(timespec="seconds"),
                seed=self._seed,
                version=__version__,
            )
        )

    def _tell_golden_answers(self) -> None:
        """Show the gold answers of the pair judged last, once no other pair of its question is waiting."""
        if self._last is None:
            self._screen.say("gold answers are shown for the pair judged last; judge one first")
        elif any(pair.question == self._last.question for pair in self._waiting):
            self._screen.say("not yet: another pair of that question is still unjudged")
        else:
            answers = " | ".join(self._last.golden_answers) or "unknown"
            self._screen.text("gold answers of the previous pair", answers)


def _parse_key(written: str) -> tuple[str, str]:
    """The key for a word, and the note behind `n`; anything else is returned unchanged."""
    word, _, rest = written.strip().partition(" ")
    if rest and word.lower() not in ("n", "note"):
        return written.strip(), ""
    return WORDS.get(word.lower(), word.lower()), rest.strip()
