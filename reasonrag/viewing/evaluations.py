"""Evaluations beside each other: questions and models, with who won and who lost.

Reads `predictions.jsonl` as the JSON it is, and shows all of an attempt that stands there. Decides what is a win and
which questions are counted together. Computes no test: `reasonrag compare` does. Knows no page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import orjson
from pydantic import BaseModel, ValidationError

from preference.statistics import Share, wilson
from reasonrag.errors import InputError
from reasonrag.files import reading

PREDICTIONS = "predictions.jsonl"
METRICS = ("em", "judged", "f1")
"""The first that some question has decides wins and losses."""
_SCORES = ("answer", "em", "f1", "cover_em", "judged", "gold_recall", "searches", "calls", "malformed")


class _Line(BaseModel):
    """What of a prediction is counted or listed."""

    question_id: str
    question: str
    golden_answers: list[str]
    type: str | None = None
    hops: int | None = None
    em: float | None = None
    judged: float | None = None
    f1: float | None = None
    answer: str | None = None
    steps: list[dict[str, Any]]


class EvaluatedQuestion(BaseModel):
    """scores: by model, as in its prediction; null where the question is not in its evaluation."""

    number: int
    id: str
    question: str
    golden_answers: list[str]
    type: str | None
    hops: int | None
    scores: list[dict[str, Any] | None]


class QuestionGroup(BaseModel):
    """Questions of one type, or number of hops, of which all models have a score. means: of the metric, by model; with
    a Wilson interval where it is 0 or 1. wins, losses: of each model against the first."""

    name: str
    questions: int
    means: list[Share]
    wins: list[int]
    losses: list[int]


class EvaluationListing(BaseModel):
    """What the page of evaluations is made of; attempts come question by question."""

    kind: Literal["evaluations"] = "evaluations"
    metric: str
    models: list[str]
    rows: list[EvaluatedQuestion]
    groups: list[QuestionGroup]
    about: list[str]


def is_evaluation(path: Path) -> bool:
    return (path / PREDICTIONS).is_file()


class Evaluations:
    """Evaluations of the same questions, in the order given."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Raises InputError for a line that is no prediction, or evaluations without a common question."""
        self.paths = list(paths)
        found = [dict(_predictions(path)) for path in paths]
        keys = dict.fromkeys(key for each in found for key in each)
        self._attempts = [[each.get(key) for each in found] for key in keys]
        if not any(all(each) for each in self._attempts):
            raise InputError(f"{' and '.join(map(str, paths))} have no question in common")

    def attempts(self, number: int) -> list[dict[str, Any] | None]:
        """Predictions of a question, by model."""
        return self._attempts[number]

    def listing(self, about: Sequence[str]) -> EvaluationListing:
        known = [each for attempts in self._attempts for each in attempts if each]
        metric = next((name for name in METRICS if any(each.get(name) is not None for each in known)), "f1")
        rows = [_question(number, attempts) for number, attempts in enumerate(self._attempts)]
        common = [row for row in rows if all(score and score[metric] is not None for score in row.scores)]
        left_out = len(rows) - len(common)
        told = [f"{left_out:,} of {len(rows):,} questions have no score in some evaluation, and count nowhere."]
        return EvaluationListing(
            metric=metric,
            models=_names(self.paths),
            rows=rows,
            groups=[_group(name, of, metric) for name, of in _grouped(common)],
            about=[*about, *(told if left_out else [])],
        )


def _predictions(path: Path) -> Iterator[tuple[tuple[str, str], dict[str, Any]]]:
    """By id and text of the question."""
    file, seen = path / PREDICTIONS, set[tuple[str, str]]()
    with reading(file), file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                found = orjson.loads(line)
                known = _Line.model_validate(found)
            except ValidationError as error:
                [first, *_] = error.errors()
                where = ".".join(map(str, first["loc"])) or "the line"
                raise InputError(f"{file}, line {number}, is no prediction: {where}: {first['msg']}") from None
            except ValueError as error:
                raise InputError(f"{file}, line {number}, is no prediction: {error}") from None
            key = known.question_id, known.question
            if key in seen:
                raise InputError(f"{file}, line {number}: the question {known.question_id} stands there twice")
            seen.add(key)
            yield key, found


def _names(paths: Sequence[Path]) -> list[str]:
    """The last part of each path; as many parts as it takes to tell them apart."""
    for parts in range(1, 9):
        names = ["/".join(each.resolve().parts[-parts:]) for each in paths]
        if len(set(names)) == len(names):
            return names
    return [f"{number}: {each}" for number, each in enumerate(paths, start=1)]


def _question(number: int, attempts: Sequence[Mapping[str, Any] | None]) -> EvaluatedQuestion:
    first = next(each for each in attempts if each)
    return EvaluatedQuestion(
        number=number,
        id=first["question_id"],
        question=first["question"],
        golden_answers=first["golden_answers"],
        type=first.get("type"),
        hops=first.get("hops"),
        scores=[each and {name: each.get(name) for name in _SCORES} | {"error": _cause(each)} for each in attempts],
    )


def _cause(prediction: Mapping[str, Any]) -> str | None:
    error = prediction.get("error")
    return str(error.get("cause")) if isinstance(error, dict) else None


def _grouped(rows: Sequence[EvaluatedQuestion]) -> Iterator[tuple[str, list[EvaluatedQuestion]]]:
    yield "all questions", list(rows)
    for name, key in (("type", "type"), ("hops", "hops")):
        found: dict[Any, list[EvaluatedQuestion]] = {}
        for row in rows:
            if (value := getattr(row, key)) is not None:
                found.setdefault(value, []).append(row)
        if len(found) > 1:
            yield from ((f"{name}: {value}", found[value]) for value in sorted(found, key=str))


def _group(name: str, rows: Sequence[EvaluatedQuestion], metric: str) -> QuestionGroup:
    values = [[float((score or {})[metric]) for score in row.scores] for row in rows]
    columns = list(zip(*values, strict=True))
    first = columns[0] if columns else ()
    return QuestionGroup(
        name=name,
        questions=len(rows),
        means=[_mean(each) for each in columns],
        wins=[sum(one > other for one, other in zip(each, first, strict=True)) for each in columns],
        losses=[sum(one < other for one, other in zip(each, first, strict=True)) for each in columns],
    )


def _mean(values: Sequence[float]) -> Share:
    if not values:
        return Share(of=0)
    mean = sum(values) / len(values)
    low, high = wilson(mean, len(values)) if set(values) <= {0.0, 1.0} else (None, None)
    return Share(of=len(values), share=mean, low=low, high=high)
