"""The content of a data set directory, read whole before it is published.

Decides whether rows, candidates and summary belong to one export, and collects the facts about runs for the data set
card: question sets, teachers, settings and cost. Scans every line for secrets. Knows neither blockers nor the Hub.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from pydantic import ValidationError

from preference.candidate_records import Origin
from preference.export.formats import FORMATS, PAIRS, SplitName
from preference.export.summary import CANDIDATES, DROPPED, QUESTIONS, SUMMARY, PairSummary
from preference.records import Usage
from reasonrag.curation.decontamination import CONTAMINATION
from reasonrag.errors import InputError
from reasonrag.files import ROLLOUTS, check_finished, file_digest, read_record
from reasonrag.redaction import keys_in, secrets, texts_in


def _again(directory: Path) -> str:
    return f"Make it again: reasonrag pairs {directory} --out {directory}"


@dataclass
class RunContribution:
    """What one run contributed to the data set."""

    origin: Origin
    questions: int = 0
    failed: int = 0
    usage: Usage | None = field(default_factory=lambda: Usage(cost_usd=0.0))
    """Null if a question does not record it."""

    def add(self, question: dict[str, Any]) -> None:
        self.questions += 1
        self.failed += question.get("error") is not None
        told = question.get("usage")
        self.usage = self.usage + Usage.model_validate(told) if self.usage and told else None


@dataclass
class DatasetInventory:
    """The content of a data set directory."""

    directory: Path
    summary: PairSummary
    runs: list[RunContribution]
    candidate_questions: dict[str, int]
    """Questions without errors, by `dataset/split`."""
    in_evaluation: dict[str, int]
    """Kept questions that stand in an evaluation split, by its name."""
    secrets: list[str]
    """Places (file, line) with a possible key."""

    @property
    def datasets(self) -> list[str]:
        return sorted({run.origin.dataset for run in self.runs})

    def rows(self, name: str) -> int:
        return self.summary.files.get(name, 0)

    def rows_of(self, split: SplitName) -> int:
        """Pairs, or the steps of `warm-up`."""
        return sum(self.rows(FORMATS[name].file_name(split)) for name in (("sft",) if self.summary.warm_up else PAIRS))


def read_dataset_directory(directory: Path) -> DatasetInventory:
    """Read a data set. Raises InputError if it is not one, is empty, or contradicts its summary."""
    if (directory / ROLLOUTS).is_file() and not (directory / CANDIDATES).is_file():
        raise InputError(
            f"{directory} is a run, not a data set. First: reasonrag pairs {directory} --out data/{directory.name}"
        )
    check_finished(directory)
    summary = read_summary(directory)
    if not (summary.pairs or summary.warm_up.get("with_rows")):
        raise InputError(f"{directory} has no pairs, so there is nothing to publish; see {directory / SUMMARY} for why")
    for name in (CANDIDATES, QUESTIONS, DROPPED, *summary.files):
        if not (directory / name).is_file():
            raise InputError(f"there is no {directory / name}. {_again(directory)}")
    for name in summary.files:
        if file_digest(directory / name) != summary.sha256.get(name):
            raise InputError(
                f"{directory / name} has changed since {SUMMARY} was written, so the card would be wrong. "
                f"{_again(directory)}"
            )
    runs, by_split = _runs(directory), Counter[str]()
    for run in runs:
        by_split[f"{run.origin.dataset}/{run.origin.split}"] += run.questions - run.failed
    count = sum(len(state["pairs"]) for _, state in _objects(directory / CANDIDATES))
    if count != summary.candidates:
        raise InputError(
            f"{directory / CANDIDATES} does not belong to the rows ({count:,} candidates, {SUMMARY} says "
            f"{summary.candidates:,}). {_again(directory)}"
        )
    kept = [directory / name for name in (QUESTIONS, CANDIDATES, DROPPED, CONTAMINATION)]
    found = [place for path in kept if path.is_file() for place in secrets_in(path)]
    asked = {name: count for name, count in sorted(by_split.items()) if count}
    return DatasetInventory(directory, summary, runs, asked, kept_evaluation_questions(directory, summary), found)


def secrets_in(path: Path) -> list[str]:
    """Places of lines with a possible key."""
    known = secrets()
    return [f"{path}, line {number}" for number, line in _objects(path) if keys_in("\n".join(texts_in(line)), known)]


def read_summary(directory: Path) -> PairSummary:
    """The summary of the last `pairs`. Raises InputError where there is none, or one that cannot be read."""
    found = read_record(directory / SUMMARY, PairSummary, _again(directory))
    if found is None:
        what = "has no summary.json, so it is not a data set" if directory.is_dir() else "does not exist"
        raise InputError(f"{directory} {what}. Make one: reasonrag pairs RUN --out {directory}")
    return found


def _runs(directory: Path) -> list[RunContribution]:
    path, runs = directory / QUESTIONS, dict[str, RunContribution]()
    for number, question in _objects(path):
        try:
            origin = Origin.model_validate(question["origin"])
            runs.setdefault(origin.model_dump_json(), RunContribution(origin)).add(question)
        except (ValidationError, KeyError) as error:
            raise InputError(f"{path}, line {number} is not a question record. {_again(directory)}") from error
    return [run for _, run in sorted(runs.items())]


def kept_evaluation_questions(directory: Path, summary: PairSummary) -> dict[str, int]:
    """Questions of a data set that stand in an evaluation split and were kept, by its name."""
    counts, dropped, left_out = Counter[str](), len(dropped_keys(directory)), summary.contamination.get("dropped", 0)
    if dropped != left_out:
        raise InputError(
            f"{directory / CONTAMINATION} does not belong to the rows (questions left out: {dropped:,}, {SUMMARY} says "
            f"{left_out:,}). {_again(directory)}"
        )
    for line in _compared(directory):
        if not line.get("dropped"):
            counts.update({str(match["eval"]) for match in line.get("matches", ()) if "eval" in match})
    return dict(sorted(counts.items()))


def dropped_keys(directory: Path) -> set[str]:
    """Of the questions that decontamination left out. Raises InputError for a line that names none."""
    keys = {line.get("question_key") for line in _compared(directory) if line.get("dropped")}
    if not all(isinstance(each, str) for each in keys):
        raise InputError(f"{directory / CONTAMINATION} has a line without a question_key. {_again(directory)}")
    return {str(each) for each in keys}


def _compared(directory: Path) -> Iterator[dict[str, Any]]:
    """Lines about the questions that were found in an evaluation split."""
    path = directory / CONTAMINATION
    return (line for _, line in (_objects(path) if path.is_file() else ()))


def _objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The lines with their numbers, from 1."""
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                value = orjson.loads(line)
            except orjson.JSONDecodeError:
                value = None
            if not isinstance(value, dict):
                raise InputError(f"{path}, line {number} is not a JSON object. {_again(path.parent)}")
            yield number, value
