"""What is looked at: a run, or a data set with the runs it was made of, question by question.

Decides where the lines of a question are found again, and which pairs a run would give: those of `reasonrag pairs` with
its default filters, apart from the search in evaluation splits. Files are opened once, so that what is shown stays of
one piece while a run goes on. Knows nothing of pages or terminals.
"""

from __future__ import annotations

import io
import json
import os
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, cast

import orjson
from pydantic import ValidationError

from preference import Candidate, DropReason, PairingRules, RolloutRecord, StateRecord
from preference.best_path import question_record
from preference.candidates import MalformedCandidatesError, QuestionRecord, parse_line, question_key
from preference.export.formats import FORMATS, PAIRS_FILE, SPLITS, SplitName
from preference.export.summary import CANDIDATES, DROPPED, QUESTIONS, SUMMARY, PairSummary
from preference.filters import PassedPairs, candidates_of, dropped_by_caps, select
from preference.labelling import labelled_states
from preference.records import MalformedRolloutsError, TornLineError, parse_rollout
from reasonrag.curation.pairs import is_data_set
from reasonrag.data.item_files import read_items
from reasonrag.errors import InputError
from reasonrag.files import CONFIG, ROLLOUTS, TUNING, rollouts_in
from reasonrag.run_config import find_config

LineRecord = TypeVar("LineRecord", StateRecord, QuestionRecord)
_BLOCK = 1 << 20
_LONGEST_VALUE = 1 << 10
_AGAIN = "Make the data set again of its runs: reasonrag pairs RUN --out DIR"
_DECODER = json.JSONDecoder()
ID = "question_id"
LineSpan: TypeAlias = tuple[int, int]
"""Where a line begins in its file, and its length, in bytes."""


@dataclass(frozen=True)
class ExploredTree:
    """What a run explored for one question. source: the run's directory, as it was given."""

    source: str
    record: RolloutRecord


@dataclass(frozen=True)
class ExploredQuestion:
    """All there is of one question. number: its place in the list, from 0 on. first_pair: place of its first pair among
    those of the whole run that the rules of single questions let pass."""

    number: int
    questions: Sequence[QuestionRecord]
    """One for each tree; at least one."""
    candidates: Sequence[Candidate]
    trees: Sequence[ExploredTree] = ()
    first_pair: int = 0
    parts: Mapping[str, SplitName] = field(default_factory=dict)
    """Of the rows of a data set, by pair."""
    flipped: frozenset[str] = frozenset()
    """Pairs whose sides were exchanged on purpose."""

    @property
    def question(self) -> QuestionRecord:
        return self.questions[0]


class Collection(Protocol):
    """A run, or a data set. `path`: as it was given. `capped`: pairs dropped by rules about the whole, by their place;
    complete once everything was scanned."""

    path: Path
    rules: PairingRules

    @property
    def kind(self) -> Literal["run", "data set"]: ...
    @property
    def teachers(self) -> set[str]:
        """Who answered, where the files beside say so."""
        ...

    @property
    def warnings(self) -> list[str]:
        """What one should know before one looks."""
        ...

    @property
    def capped(self) -> Mapping[int, DropReason]: ...
    @property
    def scanned(self) -> float:
        """Share of the file that was read."""
        ...

    def scan(self) -> Iterator[ExploredQuestion]:
        """Every question, trees of data sets left out. One number may come twice: a question that failed and was
        explored later. Raises InputError where a line cannot be read."""
        ...

    def at(self, number: int) -> ExploredQuestion:
        """One question with its trees, once it was scanned; for any thread."""
        ...

    def find(self, question_id: str) -> ExploredQuestion | None:
        """One question by its id, without a scan before; None where it is not here."""
        ...

    def ids(self) -> Iterator[str]:
        """Of all questions, those of a question that was tried again more than once. Trees are not read for it."""
        ...


def open_collection(path: Path, trees: Sequence[Path] = ()) -> Collection:
    """What `path` holds. trees: runs of a data set that are not where its summary says.

    Raises InputError where it is neither a run nor a data set, or where one of `trees` is no run.
    """
    for run in trees:
        if not rollouts_in(run).is_file():
            raise InputError(f"--trees {run} holds no {ROLLOUTS}; give the directory of the run, as generate made it")
    if is_data_set(path):
        return DataSetCollection(path, trees)
    rollouts = rollouts_in(path)
    if rollouts.is_file() and rollouts.name.endswith(".jsonl"):
        return RunCollection(rollouts)
    if (path / TUNING).is_file():
        raise InputError(f"{path} holds trials of tune; look at one of them, for instance {path}/trials/base")
    if (path / "predictions.jsonl").is_file():
        raise InputError(f"{path} is an evaluation: read {path}/report.md, or hold it against another with compare")
    raise InputError(
        f"{path} is neither a run ({ROLLOUTS}) nor a data set ({CANDIDATES} and {QUESTIONS}). Make one with: "
        "reasonrag generate --run RUN, reasonrag pairs RUN --out DIR, or reasonrag import FILE --out DIR"
    )


# -- a run -----------------------------------------------------------------------------------------------------


class RunCollection:
    """The trees of one rollouts file, and the pairs they would give."""

    kind: Literal["run"] = "run"

    def __init__(self, rollouts: Path) -> None:
        self.path = rollouts.parent
        self.rules = PairingRules()
        self.capped: dict[int, DropReason] = {}
        self.warnings: list[str] = []
        made = find_config(rollouts.with_name(CONFIG))
        self.teachers = {made.decides_answers.model} - {""} if made else set()
        self._lines = _LineFile(rollouts)
        self._places: list[tuple[LineSpan, int]] = []
        """Of each question its line, and the place of its first pair."""

    @property
    def scanned(self) -> float:
        return self._lines.share(sum(self._places[-1][0]) if self._places else 0)

    def scan(self) -> Iterator[ExploredQuestion]:
        kept, numbers = PassedPairs(), dict[str, int]()
        self._places.clear()
        for place, line, where in self._lines.all():
            record = _rollout(line, where)
            if record is None:
                break  # the line that a run is writing at this moment
            number = numbers.setdefault(record.question_id, len(numbers))
            explored = self._explored(number, record, len(kept))
            for each in explored.candidates:
                if each.dropped is None:
                    kept.add(each)
            self._places[number : number + 1] = [(place, explored.first_pair)]
            yield explored
        self.capped = dropped_by_caps(kept, self.rules)

    def at(self, number: int) -> ExploredQuestion:
        place, first_pair = self._places[number]
        record = _rollout(self._lines.at(place), f"{self._lines.path}, byte {place[0]:,}")
        if record is None:
            raise InputError(f"{self._lines.path} ends within a line")
        explored = self._explored(number, record, first_pair)
        return replace(explored, candidates=_with_caps(explored.candidates, first_pair, self.capped))

    def find(self, question_id: str) -> ExploredQuestion | None:
        """One question, by the rules of single questions, without a look at the others; None where it is not here."""
        found = None
        for _, line, where in self._lines.all():
            if _field(line, ID) == question_id and (record := _rollout(line, where)):
                found = record  # a later line is the tree of a question that failed before
        return None if found is None else self._explored(0, found, 0)

    def ids(self) -> Iterator[str]:
        found = (_field(line, ID) for _, line, _ in self._lines.all())
        return (each for each in found if isinstance(each, str))

    def _explored(self, number: int, record: RolloutRecord, first_pair: int) -> ExploredQuestion:
        chosen = [] if record.error else select(labelled_states(record), self.rules)
        tree = ExploredTree(str(self.path), record)
        return ExploredQuestion(number, [question_record(record)], chosen, [tree], first_pair)


def _with_caps(candidates: Sequence[Candidate], first_pair: int, capped: Mapping[int, DropReason]) -> list[Candidate]:
    """The candidates of a question, those dropped that the whole data set has too many of."""
    place, found = first_pair, []
    for each in candidates:
        if each.dropped is None:
            reason, place = capped.get(place), place + 1
            each = replace(each, dropped=reason) if reason else each  # noqa: PLW2901 - the same, decided
        found.append(each)
    return found


# -- a data set ------------------------------------------------------------------------------------------------


class DataSetCollection:
    """Candidates as they were written, what became of each, and the trees they are of, where these can be found."""

    kind: Literal["data set"] = "data set"
    capped: Mapping[int, DropReason] = {}

    def __init__(self, path: Path, trees: Sequence[Path] = ()) -> None:
        self.path = path
        summary = _summary(path)
        self.rules = PairingRules(**summary.rules) if summary and summary.rules else PairingRules()
        self.teachers = set(summary.teachers) if summary else set[str]()
        if not (path / DROPPED).is_file() and not (path / PAIRS_FILE).is_file():
            raise InputError(
                f"{path} has candidates, but neither {PAIRS_FILE} nor {DROPPED} says what became of them: a pairs "
                "command was stopped there. The same command again writes both"
            )
        self._candidates, self._questions = _LineFile(path / CANDIDATES), _LineFile(path / QUESTIONS)
        self._dropped = _dropped(path / DROPPED)
        self._parts, self._flipped = _rows(path)
        self._trees = _TreeIndex(trees, _sources(path, summary))
        self.warnings = [*(summary.warnings if summary else ()), *self._trees.warnings]
        self._places: list[tuple[list[LineSpan], list[LineSpan]]] = []
        """Of each question its lines in both files."""
        self._read = 0

    @property
    def scanned(self) -> float:
        return self._candidates.share(self._read)

    def scan(self) -> Iterator[ExploredQuestion]:
        self._places.clear()
        numbers: dict[str, int] = {}
        questions: list[list[QuestionRecord]] = []
        for place, line, where in self._questions.all():
            question = _parsed(line, QuestionRecord, where)
            number = numbers.setdefault(question_key(question.question), len(numbers))
            if number == len(questions):
                questions.append([])
                self._places.append(([], []))
            questions[number].append(question)
            self._places[number][1].append(place)
        given = 0
        states: list[StateRecord] = []
        current = -1
        for place, line, where in self._candidates.all():
            state = _parsed(line, StateRecord, where)
            number = numbers.get(question_key(state.question), -1)
            if number < 0:
                raise InputError(f"{where}: the question of this state is not in {QUESTIONS}; make the data set again")
            if number != current:
                if states:
                    yield self._explored(current, questions[current], states)
                for between in range(given, number):
                    yield self._explored(between, questions[between], [])
                current, given, states = number, number + 1, []
            states.append(state)
            self._places[number][0].append(place)
            self._read = sum(place)
        if states:
            yield self._explored(current, questions[current], states)
        for between in range(given, len(questions)):
            yield self._explored(between, questions[between], [])

    def at(self, number: int) -> ExploredQuestion:
        of_states, of_questions = self._places[number]
        states = [_parsed(self._candidates.at(each), StateRecord, str(self._candidates.path)) for each in of_states]
        questions = [
            _parsed(self._questions.at(each), QuestionRecord, str(self._questions.path)) for each in of_questions
        ]
        return replace(self._explored(number, questions, states), trees=self._trees.of(questions))

    def find(self, question_id: str) -> ExploredQuestion | None:
        """One question, without a look at the states of the others; None where it is not here."""
        groups: dict[str, list[QuestionRecord]] = {}
        for _, line, where in self._questions.all():
            question = _parsed(line, QuestionRecord, where)
            groups.setdefault(question_key(question.question), []).append(question)
        alike = [questions for questions in groups.values() if question_id in {each.question_id for each in questions}]
        if len(alike) > 1:
            raise InputError(
                f"{self.path} has {len(alike)} questions with the id {question_id!r}, of several runs; see them with: "
                f"reasonrag view {self.path}"
            )
        for number, questions in enumerate(groups.values()):
            names = {each.question_id for each in questions}
            if question_id in names:
                lines = ((line, where) for _, line, where in self._candidates.all() if _field(line, ID) in names)
                states = [_parsed(line, StateRecord, where) for line, where in lines]
                key = question_key(questions[0].question)
                of_it = [each for each in states if question_key(each.question) == key]
                return replace(self._explored(number, questions, of_it), trees=self._trees.of(questions))
        return None

    def ids(self) -> Iterator[str]:
        return (_parsed(line, QuestionRecord, where).question_id for _, line, where in self._questions.all())

    def _explored(
        self, number: int, questions: Sequence[QuestionRecord], states: Sequence[StateRecord]
    ) -> ExploredQuestion:
        found = [
            replace(each, dropped=self._dropped.get(each.pair.pair_id))
            for state in states
            for each in candidates_of(state)
        ]
        names = {each.pair.pair_id for each in found}
        parts = {name: self._parts[name] for name in names if name in self._parts}
        return ExploredQuestion(number, questions, found, parts=parts, flipped=self._flipped & names)


def _summary(path: Path) -> PairSummary | None:
    try:
        return PairSummary.model_validate_json((path / SUMMARY).read_bytes())
    except (OSError, ValidationError):
        return None  # a data set that was imported, or whose rows were never written


def _dropped(path: Path) -> dict[str, DropReason]:
    if not path.is_file():
        return {}
    found: dict[str, DropReason] = {}
    for _, line, where in _LineFile(path).all():
        try:
            each = orjson.loads(line)
            found[each["pair_id"]] = each["reason"]
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise InputError(f"{where} does not say why a pair was dropped. {_AGAIN}") from error
    return found


def _rows(path: Path) -> tuple[dict[str, SplitName], frozenset[str]]:
    """Of each row the part it is in; and those whose sides were exchanged."""
    parts: dict[str, SplitName] = {}
    flipped = set()
    for split in SPLITS:
        file = path / FORMATS["proguide"].file_name(split)
        for item in read_items(file) if file.is_file() else ():
            row = item.value if isinstance(item.value, dict) else {}
            if isinstance(name := row.get("pair_id"), str):
                parts[name] = split
                if row.get("flipped"):
                    flipped.add(name)
    return parts, frozenset(flipped)


def _sources(path: Path, summary: PairSummary | None) -> list[Path]:
    """Runs that a data set was made of, those of data sets among its sources included; as far as they can be found
    from where its summary was written, or from a folder above."""
    found: list[Path] = []
    for source in summary.sources if summary else ():
        above = [Path(), *path.resolve().parents]
        there = next((folder / source for folder in above if (folder / source).exists()), Path(source))
        if there.resolve() != path.resolve() and is_data_set(there):
            found += _sources(there, _summary(there))
        elif there.resolve() != path.resolve():
            found.append(there)
    return found


_TreeKey: TypeAlias = tuple[str | None, int | None, str]
"""What names a tree wherever it is: configuration, seed and question."""


class _TreeIndex:
    """The trees of some runs, found by question and configuration when they are first asked for."""

    def __init__(self, given: Sequence[Path], sources: Sequence[Path]) -> None:
        """given: by the user, who then knows what is missing. sources: as the data set names them."""
        files = {run: rollouts_in(run) for run in dict.fromkeys([*given, *sources])}
        self.warnings = [
            f"{run} is not here, so trees of this data set are missing; say where it is with --trees DIR"
            for run, file in files.items()
            if not file.is_file() and not given
        ]
        self._finding = threading.Lock()
        self._runs = [(run, _LineFile(file)) for run, file in files.items() if file.is_file()]
        self._places: dict[_TreeKey, tuple[int, LineSpan]] | None = None

    def of(self, questions: Sequence[QuestionRecord]) -> list[ExploredTree]:
        with self._finding:
            if self._places is None:
                self._places = self._find()
        found = []
        for each in questions:
            known = each.origin.config_hash, each.origin.seed, each.question_id
            if known in self._places:
                number, place = self._places[known]
                run, lines = self._runs[number]
                record = _rollout(lines.at(place), str(lines.path))
                if record is not None:
                    found.append(ExploredTree(str(run), record))
        return found

    def _find(self) -> dict[_TreeKey, tuple[int, LineSpan]]:
        places: dict[_TreeKey, tuple[int, LineSpan]] = {}
        for number, (_, lines) in enumerate(self._runs):
            for place, line, where in lines.all():
                configuration, seed, question = (_field(line, each) for each in ("config_hash", "seed", ID))
                if isinstance(configuration, str) and isinstance(seed, int) and isinstance(question, str):
                    name = configuration, seed, question
                    if name not in places or places[name][0] == number:  # a later line is the tree after a failure
                        places[name] = number, place
                elif line.endswith(b"\n"):  # else a run is writing it
                    raise InputError(f"{where} is not a rollout record; look at the data set without it")
        return places


# -- lines -----------------------------------------------------------------------------------------------------


class _FromStart(io.RawIOBase):
    """A file that is open already, read from its beginning up to a size, whatever else is read of it."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._descriptor = descriptor
        self._size = size
        self._place = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        found = os.pread(self._descriptor, min(len(buffer), self._size - self._place), self._place)
        buffer[: len(found)] = found
        self._place += len(found)
        return len(found)


class _LineFile:
    """A file of lines that is held open as long as somebody may ask for one: what was there when it was opened can be
    read again from any thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}") from error
        weakref.finalize(self, os.close, self._descriptor)
        self._size = os.fstat(self._descriptor).st_size

    def share(self, place: int) -> float:
        return place / self._size if self._size else 1.0

    def all(self) -> Iterator[tuple[LineSpan, bytes, str]]:
        """Every line that was there when it was opened, where it is, and how to name it."""
        place = 0
        with io.BufferedReader(_FromStart(self._descriptor, self._size), _BLOCK) as lines:
            for number, line in enumerate(lines, start=1):
                yield (place, len(line)), line, f"{self.path}, line {number}"
                place += len(line)

    def at(self, place: LineSpan) -> bytes:
        return os.pread(self._descriptor, place[1], place[0])


def _field(line: bytes, name: str) -> object:
    """A short value of a record, without a look at its trees; None where the line is cut off or has no such field.

    The name must be that of one field only. In a text a quote has a backslash before it, so no text looks like it.
    """
    key = b'"%s":' % name.encode()
    place = line.find(key)
    if place >= 0:
        rest = line[place + len(key) : place + len(key) + _LONGEST_VALUE].decode(errors="replace").lstrip()
        with suppress(json.JSONDecodeError):  # longer than that, or cut off
            return cast("object", _DECODER.raw_decode(rest)[0])
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return record.get(name) if isinstance(record, dict) else None


def _rollout(line: bytes, where: str) -> RolloutRecord | None:
    """None for a line that was cut off: a run is writing it, or was killed there."""
    try:
        return parse_rollout(line, where=where)
    except TornLineError:
        return None
    except MalformedRolloutsError as error:
        raise InputError(str(error)) from error


def _parsed(line: bytes, kind: type[LineRecord], where: str) -> LineRecord:
    try:
        return parse_line(line, kind, where=where)
    except MalformedCandidatesError as error:
        raise InputError(f"{error}. {_AGAIN}") from error
