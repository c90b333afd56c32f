"""`reasonrag review`: a sample of pairs goes out without its labels, and what people say of it comes back.

Decides the files: a CSV for a spreadsheet, tasks in JSON for Label Studio, and how verdicts are read from either.
`preference.review_sample` decides the sample and the statistics.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast, get_args

import orjson
from pydantic import BaseModel

from preference.export.formats import pairs_files, plain_types
from preference.export.json_stream import MalformedFileError
from preference.export.private_files import write_file, write_json
from preference.review_sample import (
    Judgement,
    ReviewerReport,
    ReviewPair,
    ReviewReport,
    Verdict,
    read_pairs,
    report_of,
    sample_pairs,
)
from reasonrag.curation.settings import REVIEWED
from reasonrag.errors import InputError
from reasonrag.files import check_finished, read_small, reading, writing
from reasonrag.rendering import Line, Part, Shown, Table, agreement_text, counted, next_command, shows
from reasonrag.signatures import public_call
from reasonrag.terminal import on_one_line

COLUMNS: Final = ("pair", "prompt", "a", "b", "verdict", "note")
"""Of the CSV; tasks have the first four. `pair`: its key, and whether A is the reply that sorts last."""
MAX_NOTE_LENGTH = 2000
MAX_NAME_LENGTH = 100
MAX_FILE = 256 * 1024 * 1024
"""Bytes of a file of judgements, which repeats prompts and replies."""
_NAMES_A_PAIR = re.compile(r"([0-9a-f]{16})-([01])")
_FORMULAS = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
"""How a cell begins that a spreadsheet may take for a formula; the last four are the wide forms of the first."""


class ReviewSample(BaseModel, Shown):
    """The sample that `review` wrote. pairs: different ones that show a choice, in the data set."""

    out: str
    directory: str
    sampled: int
    pairs: int

    def shown(self) -> Iterator[Part]:
        """Where it is, what to do with it, and the command that reads it."""
        yield Line(f"wrote {self.out}: {self.sampled:,} of {counted(self.pairs, 'pair')}")
        yield "Which step should the agent take? Verdicts: a, b, tie (as good), skip (cannot say)"
        judged = "ITS_EXPORT.csv" if self.out.lower().endswith(".json") else self.out
        yield next_command("review", self.directory, "--judgements", judged)


@public_call()
def review_sample(directory: str | Path, out: str | Path, *, sample: int = REVIEWED, seed: int = 0) -> ReviewSample:
    """Write a sample of pairs without their labels, to be judged.

    Raises InputError for a data set that cannot be read, and for an `out` that exists or cannot be written.

    Example:
        >>> reasonrag.review_sample("data/first", "sample.csv", sample=5).sampled
        5

    Args:
        directory: a data set.
        out: a file for a spreadsheet (`.csv`) or for Label Studio (`.json`).
        sample: number of pairs; a larger sample contains every smaller one.
        seed: of the sample, and of which reply is shown as A.
    """
    directory, out = Path(directory), Path(out)
    _check_suffix(out, "--out")
    if out.exists():
        raise InputError(f"{out} is there already, perhaps with verdicts in it; choose another --out")
    rows, pairs = blind_sample(directory, sample, seed=seed)
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        if out.suffix.lower() == ".json":
            write_json(out, [{"data": row} for row in rows])
        else:
            write_file(out, _as_csv(rows))
    return ReviewSample(out=str(out), directory=str(directory), sampled=len(rows), pairs=pairs)


def blind_sample(directory: Path, sample: int, *, seed: int) -> tuple[list[dict[str, str]], int]:
    """Pairs without their labels, and how many the data set has. Raises InputError where none can be shown."""
    with _readable(directory):
        chosen, pairs = sample_pairs(directory, sample, seed=seed)
    if not chosen:
        raise InputError(
            f"{directory} has no pair that can be shown: none of its rows has a prompt and two different replies. See "
            f"what they lack: reasonrag audit {directory}"
        )
    return [_blind(each, exchanged=each.exchanged(seed)) for each in chosen], pairs


@public_call()
def review_report(directory: str | Path, judgements: str | Path | Sequence[str | Path]) -> ReviewReport:
    """Compare what people said of a sample with the labels and with each other.

    Raises InputError if there is no data set, and for a verdict that cannot be understood, with its file and row.

    Example:
        >>> found = reasonrag.review_report("data/first", "ana.csv")  # doctest: +SKIP

    Args:
        directory: the data set that the sample is of.
        judgements: the file that `review_sample` wrote with verdicts in it, or an export of Label Studio as JSON-MIN
            or CSV. A person is named by the file, or by the annotator that it names.
    """
    directory = Path(directory)
    paths = [Path(each) for each in ([judgements] if isinstance(judgements, str | Path) else judgements)]
    said: dict[str, dict[str, Judgement]] = {}
    for path in paths:
        for who, each in _judgements(path):
            first = said.setdefault(who or on_one_line(path.stem), {}).setdefault(each.pair, each)
            if first is not each:
                why = f"this pair was judged at {first.place} already, by the same person; keep one"
                raise InputError(f"{each.place}: {why}")
    if not said:
        raise InputError(f"no verdict in {', '.join(map(str, paths))}: write {_VERDICTS} into the column verdict")
    wanted = dict[str, Judgement]()
    for theirs in said.values():
        wanted = theirs | wanted
    judged, pairs = dict[str, ReviewPair](), 0
    with _readable(directory):
        for pair in read_pairs(directory):
            pairs += 1
            if pair.pair in wanted:
                judged[pair.pair] = pair
    if unknown := next((each.place for key, each in wanted.items() if key not in judged), None):
        raise InputError(f"{unknown}: {directory} has no such pair; give the data set that the sample was of")
    return report_of(str(directory), said, judged, pairs=pairs)


_VERDICTS = ", ".join(get_args(Verdict))


@contextmanager
def _readable(directory: Path) -> Iterator[None]:
    """Refuses what is not a data set, and explains why one cannot be read. Raises InputError."""
    if directory.is_file():
        raise InputError(f"{directory} is a file; give the directory of a data set, which holds RAG_ProGuide.json")
    check_finished(directory)
    if not pairs_files(directory):
        raise InputError(f"there is no RAG_ProGuide.json in {directory}. Make one with: reasonrag pairs RUN --out DIR")
    try:
        with reading(directory):
            yield
    except MalformedFileError as error:
        raise InputError(str(error)) from error


def _check_suffix(path: Path, flag: str) -> None:
    if path.suffix.lower() not in (".csv", ".json"):
        raise InputError(f"{flag} {path} must end in .csv, for a spreadsheet, or .json, for Label Studio")


# -- out -------------------------------------------------------------------------------------------------------


def _blind(pair: ReviewPair, *, exchanged: bool) -> dict[str, str]:
    """A pair without its label."""
    first, second = pair.sides(exchanged=exchanged)
    return {"pair": f"{pair.pair}-{exchanged:d}", "prompt": pair.user, "a": first, "b": second}


def _as_csv(rows: Sequence[Mapping[str, str]]) -> bytes:
    """With a mark by which spreadsheets know UTF-8, and an apostrophe before what they would run as a formula."""
    file = io.StringIO(newline="")
    table = csv.DictWriter(file, COLUMNS, restval="")
    table.writeheader()
    table.writerows(
        {name: f"'{text}" if text.lstrip(" ").startswith(_FORMULAS) else text for name, text in row.items()}
        for row in rows
    )
    return file.getvalue().encode("utf-8-sig")


# -- in --------------------------------------------------------------------------------------------------------


def _judgements(path: Path) -> Iterator[tuple[str, Judgement]]:
    """Every judgement of a file, with who said it, empty where the file does not tell. Raises InputError."""
    _check_suffix(path, "--judgements")
    with reading(path):
        content = read_small(path, MAX_FILE)
    for place, row in _of_json(path, content) if path.suffix.lower() == ".json" else _of_csv(path, content):
        verdict, note = row.get("verdict"), row.get("note")
        said = verdict.strip().lower() if isinstance(verdict, str) else verdict
        if not said:  # not judged yet
            continue
        if said not in get_args(Verdict):
            raise InputError(f"{place}: the verdict {_shown(verdict)} is none of {_VERDICTS}")
        named = _NAMES_A_PAIR.fullmatch(str(row.get("pair") or "").strip())
        if named is None:
            raise InputError(f"{place}: {_shown(row.get('pair'))} names no pair of a sample that review --out wrote")
        remark = on_one_line(note)[:MAX_NOTE_LENGTH] if isinstance(note, str) else ""
        who, how = on_one_line(str(row.get("annotator") or ""))[:MAX_NAME_LENGTH], cast("Verdict", said)
        yield who, Judgement(named[1], exchanged=named[2] == "1", verdict=how, note=remark, place=place)


def _of_csv(path: Path, content: bytes) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The rows, numbered as a spreadsheet does. Some spreadsheets write semicolons or tabs for commas."""
    csv.field_size_limit(MAX_FILE)
    text = content.decode("utf-8-sig", "replace")
    delimiter = max(",;\t", key=text.partition("\n")[0].count)
    rows = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    number = 1
    try:
        if missing := [each for each in ("pair", "verdict") if each not in (rows.fieldnames or ())]:
            raise InputError(f"{path} has no column {' and no column '.join(missing)}; keep those of the sample")
        for number, row in enumerate(rows, start=2):
            yield f"{path}, row {number}", row
    except csv.Error as error:
        raise InputError(f"{path}, after row {number}: {error}; save it as CSV again") from error


def _of_json(path: Path, content: bytes) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The objects of a JSON-MIN export of Label Studio."""
    try:
        rows = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise InputError(f"{path} is not JSON: {error}") from error
    for number, row in enumerate(rows if isinstance(rows, list) else [rows], start=1):
        if not isinstance(row, dict) or "pair" not in row:
            raise InputError(f"{path}, task {number} names no pair; export from Label Studio as JSON-MIN or CSV")
        yield f"{path}, task {number}", row


def _shown(value: Any) -> str:
    return repr(str("" if value is None else value)[:MAX_NAME_LENGTH])


# -- what is shown ---------------------------------------------------------------------------------------------


@shows(ReviewReport)
def review_parts(report: ReviewReport) -> Iterator[Part]:
    """The results of each reviewer, then the agreement between reviewers."""
    for each in report.reviewers:
        yield Table(f"review by {each.reviewer}", _rows(each))
    if report.between:
        rows = [(f"{each.one}, {each.other}", each.alike) for each in report.between]
        yield Table("agreement between reviewers, ties included", rows)
    yield "intervals treat pairs as independent, although pairs of a question are similar"


def _rows(report: ReviewerReport) -> Iterator[tuple[str, object]]:
    ties = f", {report.ties:,} of them {'a tie' if report.ties == 1 else 'ties'}" if report.ties else ""
    skipped = f", {report.skipped:,} skipped" if report.skipped else ""
    yield "judged", counted(report.judged, "pair") + ties + skipped
    yield "agreement with labels", report.agreement
    yield from ((f"  {plain_types(name)}", each) for name, each in report.by_action_type.items())
    for each in report.by_confidence:
        if each.mean_confidence is not None:
            claimed = f"{agreement_text(each)}; claimed {each.mean_confidence:.2f}"
            yield f"  confidence {each.low:.1f} to {each.high:.1f}", claimed
    disagreements = counted(len(report.disagreements), "pair")
    yield "disagreements with labels", f"{disagreements}: --json has them"
