"""Runs and data sets, read question by question; a data set with the trees of the runs it was made of.

Decides where the lines of a question are found again, and which pairs a run would give: those of `reasonrag pairs` with
its default filters, without decontamination. Files are opened once, so that what is shown stays consistent; what a run
adds to its own is read when it is asked for. Knows nothing of pages or terminals.
"""

from __future__ import annotations

import heapq
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, Protocol, TypeAlias

import orjson

from preference import Candidate, DropReason, PairingRules, RolloutRecord, StateRecord
from preference.best_path import question_record
from preference.candidate_records import AnyRecord, MalformedCandidatesError, QuestionRecord, parse_line, question_key
from preference.export.formats import PAIRS_FILE, SplitName, pairs_files
from preference.export.summary import CANDIDATES, DROPPED, QUESTIONS, SUMMARY, PairSummary, summary_of
from preference.filters import DROP_REASONS, PassedPair, candidates_of, dropped_by_caps, select
from preference.labelling import labelled_states, origin_of
from preference.records import MalformedRolloutsError, TornLineError, parse_rollout
from reasonrag.curation.sources import is_data_set, source_runs
from reasonrag.data.item_files import read_items
from reasonrag.errors import InputError
from reasonrag.files import (
    CALIBRATION,
    CALIBRATION_REPORT,
    COMPARISON,
    CONFIG,
    ROLLOUTS,
    ROWS_REPORT,
    TUNING,
    check_finished,
    link_out_of,
    readable,
    reading,
    rollouts_in,
)
from reasonrag.llm.endpoint.prompt_window import recorded_cut
from reasonrag.run_config import find_config
from reasonrag.viewing.evaluations import is_evaluation, is_training, predictions_in

_BLOCK = 1 << 20
_AGAIN = "Make the data set again from its runs: reasonrag pairs RUN --out DIR"
ID = "question_id"
JUDGEMENTS = "judgements"
LineSpan: TypeAlias = tuple[int, int]
"""Offset and length of a line in its file, in bytes."""


@dataclass(frozen=True)
class ExploredTree:
    """What a run explored for one question. source: the run's directory, as it was given."""

    source: str
    record: RolloutRecord


class RowPlace(NamedTuple):
    """Where a pair is a row of a data set: the part, and the number there from 1. flipped: whether its sides were
    exchanged on purpose."""

    part: SplitName | None = None
    number: int | None = None
    flipped: bool = False


NO_ROW = RowPlace()


@dataclass(frozen=True)
class ExploredQuestion:
    """One question with its candidates and trees. number: place in the list, from 0. rows: of the whole data set, by
    pair id."""

    number: int
    questions: Sequence[QuestionRecord]
    """One per tree; at least one."""
    candidates: Sequence[Candidate]
    trees: Sequence[ExploredTree] = ()
    rows: Mapping[str, RowPlace] = field(default_factory=dict)

    @property
    def question(self) -> QuestionRecord:
        return self.questions[0]

    def row_of(self, each: Candidate) -> RowPlace:
        return self.rows.get(each.pair.pair_id, NO_ROW)


class Collection(Protocol):
    """A run or a data set.

    path: as given. teachers: the models that answered, as far as the files beside say so. warnings: what a reader
        should know first. capped: pairs of a run dropped by caps on the whole data set, by question number and pair id;
        complete after a full scan. max_tokens, cut_from: of a run the token limit of replies, and the bytes from which
        its endpoint seems to have cut prompts. summary: of a data set. calibrations: where `reasonrag calibrate` would
        have left a report.
    """

    kind: Literal["run", "data set"]
    path: Path
    rules: PairingRules
    teachers: set[str]
    warnings: list[str]
    capped: Mapping[tuple[int, str], DropReason] = {}
    max_tokens: int | None = None
    cut_from: int | None = None
    summary: PairSummary | None = None
    calibrations: Sequence[Path] = ()
    _lines: _LineFile
    """Those that are scanned."""
    _read: int = 0
    """So many of their bytes were scanned."""

    @property
    def scanned(self) -> float:
        """Share of the file that was read."""
        return self._lines.share(self._read)

    def scan(self) -> Iterator[ExploredQuestion]:
        """Every question, without the trees of data sets; again, those that were added since. A number may come twice:
        for a question that failed and was explored later. Raises InputError if a line cannot be read."""

    def later(self) -> Collection | None:
        """This one, if there is more to scan; another one, if other files have taken the place of its own; None while
        nothing happens. Raises InputError and OSError for files that are being written."""

    def at(self, number: int) -> ExploredQuestion:
        """One question with its trees, once it was scanned; safe in any thread."""

    def find(self, question_id: str) -> ExploredQuestion | None:
        """One question by its id, without a scan and without caps on the whole data set; None if it is not here."""

    def ids(self) -> Iterator[str]:
        """The ids of all questions; that of a question that was retried comes more than once. Reads no trees."""


def open_collection(path: Path, trees: Sequence[Path] = ()) -> Collection:
    """Open a run or a data set. trees: runs of a data set that are no longer where its summary says.

    Raises InputError if `path` is neither, or if one of `trees` is not a run.
    """
    for run in trees:
        if not rollouts_in(run).is_file():
            raise InputError(f"--trees {run} holds no {ROLLOUTS}; give the directory of the run, as generate made it")
    if is_data_set(path):
        return DataSetCollection(path, trees)
    rollouts = rollouts_in(path)
    if rollouts.is_file() and rollouts.name.endswith(".jsonl"):
        return RunCollection(rollouts)
    if is_of_several(path):
        raise InputError(
            f"{path} holds several runs, data sets or evaluations: reasonrag view {path} --serve lists them; give the "
            "folder of one to see it alone"
        )
    if (path / TUNING).is_file():
        raise InputError(f"{path} holds trials of reasonrag tune; show one of them, for instance {path}/trials/base")
    if (path / COMPARISON).is_file():
        raise InputError(f"{path} is a comparison: see its compare.md; reasonrag view EVAL EVAL.. shows both sides")
    if is_evaluation(path):
        raise InputError(f"{path} is an evaluation: reasonrag view {path} shows it, and {path}/report.md its numbers")
    if is_training(path):
        raise InputError(f"{path} is a training: reasonrag view {path}, without --serve, shows it")
    raise InputError(
        f"{path} is neither a run ({ROLLOUTS}) nor a data set ({CANDIDATES} and {QUESTIONS}). Make one with: "
        "reasonrag generate --run RUN, reasonrag pairs RUN --out DIR, or reasonrag import FILE --out DIR"
    )


def files_of(folder: Path) -> dict[str, list[Path]]:
    """What each kind of folder holds; the first tells its date."""
    data_set = [folder / CANDIDATES, folder / QUESTIONS]
    return {"data set": data_set, "evaluation": [predictions_in(folder)], "run": [folder / ROLLOUTS]}


def listed_in(folder: Path) -> dict[str, str]:
    """`run`, `data set` or `evaluation` by name of what lies right below a folder, unless a link in it leads out of the
    folder. Raises OSError."""
    found = {}
    for each in sorted(folder.iterdir()):
        with suppress(PermissionError, RuntimeError):  # not to be read, or a link to itself
            below = chain([each], *(each.glob(names) for names in ("*", f"{CALIBRATION}/*", f"{JUDGEMENTS}/*")))
            if (kind := kind_of(each)) and not link_out_of(folder, filter(Path.is_symlink, below)):
                found[each.name] = kind
    return found


def is_of_several(folder: Path) -> bool:
    return folder.is_dir() and kind_of(folder) is None and bool(listed_in(folder))


def kind_of(folder: Path) -> str | None:
    return next((kind for kind, files in files_of(folder).items() if all(map(Path.is_file, files))), None)


# -- a run -----------------------------------------------------------------------------------------------------


class RunCollection(Collection):
    """The trees of one rollouts file, and the pairs they would give."""

    kind = "run"

    def __init__(self, rollouts: Path) -> None:
        self.path = rollouts.parent
        self.calibrations = [self.path / CALIBRATION / CALIBRATION_REPORT]
        self.rules, self.warnings = PairingRules(), []
        made = find_config(rollouts.with_name(CONFIG))
        self.teachers = {made.decides_answers.model} - {""} if made else set()
        self.max_tokens = made.decides_answers.sampling.get("max_tokens") if made else None
        self.cut_from = recorded_cut(made.operational.refused_parameters) if made and made.operational else None
        self._lines = _LineFile(rollouts)
        self._lines_read = 0
        self._kept, self._numbers = dict[tuple[int, str], PassedPair](), dict[str, int]()
        self._places: list[LineSpan] = []
        """By number of a question."""

    def scan(self) -> Iterator[ExploredQuestion]:
        for place, line, where in self._lines.all(self._lines_read, self._read):
            record = _rollout(line, where)
            if record is None:
                if not self._numbers and not line.startswith(b"{"):
                    raise InputError(f"{where} is not a rollout record; give a run that reasonrag generate made")
                break  # the line that a run is writing at this moment
            number = self._numbers.setdefault(record.question_id, len(self._numbers))
            explored = self._explored(number, record)
            passed = [each for each in explored.candidates if each.dropped is None]
            self._kept |= {(number, each.pair.pair_id): PassedPair.of(each) for each in passed}
            self._places[number : number + 1] = [place]
            self._lines_read, self._read = self._lines_read + 1, sum(place)
            yield explored
        names, dropped = list(self._kept), dropped_by_caps(list(self._kept.values()), self.rules)
        self.capped = {names[place]: reason for place, reason in dropped.items()}

    def later(self) -> Collection | None:
        if self._lines.has_grown(at_least=self._read):
            return self
        ordered = sum(size for _, size in self._places)  # as a run leaves them that has come to its end
        return RunCollection(self._lines.path) if self._lines.is_replaced(unless=ordered) else None

    def at(self, number: int) -> ExploredQuestion:
        place = self._places[number]
        record = _rollout(self._lines.at(place), f"{self._lines.path}, byte {place[0]:,}")
        if record is None:
            raise InputError(f"{self._lines.path} ends within a line")
        explored = self._explored(number, record)
        reasons = [self.capped.get((number, each.pair.pair_id), each.dropped) for each in explored.candidates]
        capped = [replace(each, dropped=why) for each, why in zip(explored.candidates, reasons, strict=True)]
        return replace(explored, candidates=capped)

    def find(self, question_id: str) -> ExploredQuestion | None:
        named = ((line, where) for _, line, where in self._lines.all() if _fields(line, ID) == [question_id])
        records = [record for line, where in named if (record := _rollout(line, where))]
        return self._explored(0, records[-1]) if records else None  # a later line is the tree after a failure

    def ids(self) -> Iterator[str]:
        return (each for _, line, _ in self._lines.all() for each in _fields(line, ID) if isinstance(each, str))

    def _explored(self, number: int, record: RolloutRecord) -> ExploredQuestion:
        origin = origin_of(record).model_copy(update={"cut_from": self.cut_from})
        chosen = [] if record.error else select(labelled_states(record, origin), self.rules)
        tree = ExploredTree(readable(str(self.path)), record)
        return ExploredQuestion(number, [question_record(record)], chosen, [tree])


# -- a data set ------------------------------------------------------------------------------------------------


class DataSetCollection(Collection):
    """Candidates as written, kept or dropped, and their trees where the runs can be found."""

    kind = "data set"

    def __init__(self, path: Path, trees: Sequence[Path] = ()) -> None:
        self.path, self._given = path, trees
        check_finished(path)
        summary = summary_of(path)  # empty of a data set that was imported, or whose rows were never written
        try:
            self.rules = PairingRules(**summary.rules)
        except TypeError as error:
            raise InputError(f"the rules of {path / SUMMARY} are none of `pairs`: {error}. {_AGAIN}") from error
        self.teachers = set(summary.teachers)
        if not (path / DROPPED).is_file() and "train" not in pairs_files(path):
            raise InputError(
                f"{path} has candidates, but neither {PAIRS_FILE} nor {DROPPED} says which were kept, because "
                "reasonrag pairs was interrupted. Run the same command again"
            )
        self._lines, self._questions = _LineFile(path / CANDIDATES), _LineFile(path / QUESTIONS)
        self._dropped, self._rows = _dropped(path / DROPPED), _rows(path)
        self.summary, runs = summary, source_runs(path, summary)
        self.calibrations = [each / CALIBRATION / name for name in (ROWS_REPORT, CALIBRATION_REPORT) for each in runs]
        self._trees = _TreeIndex(trees, runs)
        self.warnings = [*summary.warnings, *self._trees.warnings]
        self._places: list[tuple[list[LineSpan], list[LineSpan]]] = []
        """By number of a question: its lines in both files."""

    def scan(self) -> Iterator[ExploredQuestion]:
        grouped = self._grouped()
        numbers = {key: number for number, key in enumerate(grouped)}
        questions = [[record for record, _ in each] for each in grouped.values()]
        self._places = [([], [place for _, place in each]) for each in grouped.values()]
        without_states = ((number, None) for number in range(len(questions)))
        merged = heapq.merge(without_states, self._numbered(numbers), key=itemgetter(0))
        for number, states in groupby(merged, key=itemgetter(0)):
            yield self._explored(number, questions[number], [state for _, state in states if state])

    def later(self) -> Collection | None:
        return DataSetCollection(self.path, self._given) if self._lines.is_replaced() else None

    def _grouped(self) -> dict[str, list[tuple[QuestionRecord, LineSpan]]]:
        """The questions, each with its line; those of one text together."""
        found: dict[str, list[tuple[QuestionRecord, LineSpan]]] = {}
        for place, line, where in self._questions.all():
            record = _parsed(line, QuestionRecord, where)
            found.setdefault(question_key(record.question), []).append((record, place))
        return found

    def _numbered(self, numbers: Mapping[str, int]) -> Iterator[tuple[int, StateRecord]]:
        """The states, each with the number of its question; notes where they stand."""
        for place, line, where in self._lines.all():
            state = _parsed(line, StateRecord, where)
            number = numbers.get(question_key(state.question))
            if number is None:
                raise InputError(f"{where}: the question of this state is not in {QUESTIONS}; make the data set again")
            self._places[number][0].append(place)
            self._read = sum(place)
            yield number, state

    def at(self, number: int) -> ExploredQuestion:
        of_states, of_questions = self._places[number]
        lines = map(self._questions.at, of_questions)
        questions = [_parsed(each, QuestionRecord, str(self._questions.path)) for each in lines]
        return self._whole(number, questions, of_states)

    def find(self, question_id: str) -> ExploredQuestion | None:
        every = [[record for record, _ in each] for each in self._grouped().values()]
        named = [number for number, each in enumerate(every) if question_id in {one.question_id for one in each}]
        if len(named) > 1:
            raise InputError(
                f"{self.path} has {len(named)} questions with the id {question_id!r}, from several runs: "
                f"reasonrag view {self.path}"
            )
        if not named:
            return None
        number, questions = named[0], every[named[0]]
        names = [[each.question_id] for each in questions]
        places = [place for place, line, _ in self._lines.all() if _fields(line, ID) in names]
        return self._whole(number, questions, places)

    def _whole(self, number: int, questions: Sequence[QuestionRecord], places: Sequence[LineSpan]) -> ExploredQuestion:
        """With its trees. places: of its states, and of others that have the same id."""
        states = [_parsed(self._lines.at(each), StateRecord, str(self._lines.path)) for each in places]
        key = question_key(questions[0].question)
        of_it = [each for each in states if question_key(each.question) == key]
        return replace(self._explored(number, questions, of_it), trees=self._trees.of(questions))

    def ids(self) -> Iterator[str]:
        return (_parsed(line, QuestionRecord, where).question_id for _, line, where in self._questions.all())

    def _explored(
        self, number: int, questions: Sequence[QuestionRecord], states: Sequence[StateRecord]
    ) -> ExploredQuestion:
        found = [
            replace(each, dropped=self._dropped.get(each.pair.pair_id))
            for state in states
            for each in candidates_of(state, as_published=self.rules.as_published)
        ]
        kept = {each.pair.pair_id for each in found if each.dropped is None}
        if self._rows and (unknown := kept - self._rows.keys()):
            raise InputError(
                f"{self.path / CANDIDATES} does not belong to the rows: {min(unknown)} is neither a row nor in "
                f"{DROPPED}. {_AGAIN}"
            )
        return ExploredQuestion(number, questions, found, rows=self._rows)


def _dropped(path: Path) -> dict[str, DropReason]:
    found: dict[str, DropReason] = {}
    for _, line, where in _LineFile(path).all() if path.is_file() else ():
        name, reason = _fields(line, "pair_id", "reason")
        if not isinstance(name, str) or reason not in DROP_REASONS:
            raise InputError(f"{where} does not say why a pair was dropped. {_AGAIN}")
        found[name] = reason
    return found


def _rows(path: Path) -> dict[str, RowPlace]:
    """By pair id."""
    found: dict[str, RowPlace] = {}
    for part, file in pairs_files(path).items():
        for item in read_items(file):
            row = item.value if isinstance(item.value, dict) else {}
            if isinstance(name := row.get("pair_id"), str):
                found[name] = RowPlace(part, item.number, bool(row.get("flipped")))
    return found


_TreeKey: TypeAlias = tuple[str | None, int | None, str]
"""What identifies a tree in any file: configuration hash, seed and question id."""


class _TreeIndex:
    """The trees of some runs, indexed by question and configuration when they are first needed."""

    def __init__(self, given: Sequence[Path], sources: Sequence[Path]) -> None:
        """given: runs named by the user, who then needs no warning. sources: runs that the data set names."""
        files = {run: rollouts_in(run) for run in dict.fromkeys([*given, *sources])}
        self.warnings = [
            f"{run} is not here, so trees of this data set are missing; give its directory with --trees DIR"
            for run, file in files.items()
            if not file.is_file() and not given
        ]
        self._finding = threading.Lock()
        self._runs = [(run, _LineFile(file)) for run, file in files.items() if file.is_file()]

    def of(self, questions: Sequence[QuestionRecord]) -> list[ExploredTree]:
        with self._finding:
            places = self._places
        keys = ((each.origin.config_hash, each.origin.seed, each.question_id) for each in questions)
        known = [places[key] for key in keys if key in places]
        read = [(run, _rollout(lines.at(place), str(lines.path))) for run, lines, place in known]
        return [ExploredTree(readable(str(run)), record) for run, record in read if record]

    @cached_property
    def _places(self) -> dict[_TreeKey, tuple[Path, _LineFile, LineSpan]]:
        places: dict[_TreeKey, tuple[Path, _LineFile, LineSpan]] = {}
        for run, lines in reversed(self._runs):  # of a tree in several the first; of lines the last, after a failure
            for place, line, where in lines.all():
                configuration, seed, question = _fields(line, "config_hash", "seed", ID)
                if isinstance(configuration, str) and isinstance(seed, int) and isinstance(question, str):
                    places[configuration, seed, question] = run, lines, place
                elif line.endswith(b"\n"):  # else a run is writing it
                    raise InputError(f"{where} is not a rollout record; look at the data set without it")
        return places


# -- lines -----------------------------------------------------------------------------------------------------


class _LineFile:
    """A file of lines that is kept open: the lines that it had when it was opened, or when it was last seen to have
    grown, can be read from any thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with reading(path):
            self._file = path.open("rb", buffering=_BLOCK)
        weakref.finalize(self, self._file.close)
        self._size = os.fstat(self._file.fileno()).st_size
        self._reading = threading.Lock()

    def share(self, place: int) -> float:
        return place / self._size if self._size else 1.0

    def has_grown(self, *, at_least: int) -> bool:
        """Whether it has changed its size since this was last asked, and has so many bytes still."""
        with self._reading:
            before, self._size = self._size, os.fstat(self._file.fileno()).st_size
            self._file.seek(0, os.SEEK_END)  # forgets what was read ahead: a line that was cut off may be written anew
        return self._size != before and self._size >= at_least

    def is_replaced(self, *, unless: int | None = None) -> bool:
        """Whether another file has its name. unless: size of a file that counts as the same."""
        there, own = self.path.stat(), os.fstat(self._file.fileno())
        return not os.path.samestat(there, own) and there.st_size != unless

    def all(self, number: int = 0, place: int = 0) -> Iterator[tuple[LineSpan, bytes, str]]:
        """Every line behind so many lines and bytes: its place, its bytes, and how messages name it."""
        while line := self._read(place, lambda file, left: file.readline(left)):
            number += 1
            yield (place, len(line)), line, f"{self.path}, line {number}"
            place += len(line)

    def at(self, place: LineSpan) -> bytes:
        start, size = place
        return self._read(start, lambda file, _: file.read(size))

    def _read(self, place: int, read: Callable[[BinaryIO, int], bytes]) -> bytes:
        with self._reading:  # Windows has no pread
            self._file.seek(place)
            return read(self._file, self._size - place)


def _fields(line: bytes, *names: str) -> list[Any]:
    """Values of a record; None if the line is cut off or has no such field."""
    with suppress(orjson.JSONDecodeError):
        if isinstance(record := orjson.loads(line), dict):
            return [record.get(name) for name in names]
    return [None for _ in names]


def _rollout(line: bytes, where: str) -> RolloutRecord | None:
    """None for a line that is cut off: a run is writing it, or was killed there."""
    try:
        return parse_rollout(line, where=where)
    except TornLineError:
        return None
    except MalformedRolloutsError as error:
        raise InputError(str(error)) from error


def _parsed(line: bytes, kind: type[AnyRecord], where: str) -> AnyRecord:
    try:
        return parse_line(line, kind, where=where)
    except MalformedCandidatesError as error:
        raise InputError(f"{error}. {_AGAIN}") from error
