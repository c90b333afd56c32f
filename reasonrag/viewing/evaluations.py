"""Evaluations beside each other: questions and models, with who won and who lost; and how models were trained.

Reads predictions as the JSON they are, and shows all of an attempt that stands there. Decides what is a win and
which questions are counted together, and which files tell of a training, a critic and rounds. Computes no test:
`reasonrag compare` does. Knows no page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import orjson
from pydantic import BaseModel, Field, ValidationError

from preference.export.summary import SUMMARY
from preference.statistics import COMPARISON_LEVEL, Share, share_of
from reasonrag.critics.evaluation.report import EVALUATION, REPORT, CriticEvaluation
from reasonrag.data.corpus import parse_passage
from reasonrag.errors import InputError
from reasonrag.files import (
    ANSWERED,
    CONFIG,
    EVALUATION_REPORT,
    PASSAGES,
    PREDICTIONS,
    is_written,
    names_of,
    numbered_lines,
    read_record,
    read_small,
    readable,
    reading,
)
from reasonrag.training.metrics import METRICS, read_metrics
from reasonrag.training.output_directory import TRAINING, OutputDirectory
from reasonrag.training.policy.round_measures import Round
from reasonrag.training.policy.rounds import rounds_in
from reasonrag.training.stages.runner import STAGES

SCORES = ("em", "judged", "f1")
"""The first that some question has decides wins and losses."""
_Key: TypeAlias = tuple[str, str]
"""Id and text of a question."""
_SCORES = ("answer", "em", "f1", "judged", "gold_recall", "searches", "calls", "prompt_tokens", "completion_tokens")


_Score: TypeAlias = Annotated[float, Field(ge=0, le=1)] | None


class _Step(BaseModel):
    passages: list[dict[str, Any]] | None = None


class _Line(BaseModel):
    """What of a prediction is counted or listed."""

    question_id: str
    question: str
    golden_answers: list[str]
    type: str | None = None
    hops: int | None = None
    em: _Score = None
    judged: _Score = None
    f1: _Score = None
    answer: str | None = None
    steps: list[_Step]


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
    """Questions of one type, or number of hops, of which all models have a score. means: of the metric, by model, with
    Wilson intervals. wins, losses: of each model against the first."""

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
    about: list[str] = []
    records: list[dict[str, Any]]


def is_evaluation(path: Path) -> bool:
    return predictions_in(path).is_file()


def predictions_in(path: Path) -> Path:
    """Those so far of an evaluation that goes on, or never came to its end; else of its last end."""
    growing, ended = path / ANSWERED, path / PREDICTIONS
    return growing if growing.is_file() and (not ended.is_file() or is_written(path)) else ended


def records_in(folder: Path) -> dict[str, Any]:
    """Configuration and results as they are, by file name, and the day they were written (UTC); what can be read."""
    found = dict[str, Any]()
    for name in (CONFIG, SUMMARY, EVALUATION_REPORT):
        with suppress(OSError, ValueError, InputError):
            found[name] = orjson.loads(read_small(folder / name))
            found["written"] = str(datetime.fromtimestamp((folder / name).stat().st_mtime, UTC).date())
    return found


class Evaluations:
    """Evaluations of the same questions, in the order given.

    keys: of all questions that were ever found, by number.
    """

    def __init__(self, paths: Sequence[Path], known: Sequence[_Key] = ()) -> None:
        """known: questions that have their numbers already. Raises InputError for a line that is no prediction, or
        evaluations without a common question."""
        self.paths = list(paths)
        found = [_predictions(path) for path in paths]
        self.keys = list(dict.fromkeys([*known, *(key for each in found for key in each)]))
        attempts = [[each.get(key) for each in found] for key in self.keys]
        self._attempts = {number: each for number, each in enumerate(attempts) if any(each)}
        grows = any(not each and predictions_in(path).name == ANSWERED for each, path in zip(found, paths, strict=True))
        if not grows and not any(map(all, self._attempts.values())):
            empty = next((path for path, each in zip(paths, found, strict=True) if not each), None)
            none = f"{empty} holds no prediction; evaluate again"
            raise InputError(none if empty else f"{' and '.join(map(str, paths))} have no question in common")

    def attempts(self, number: int) -> list[dict[str, Any] | None]:
        """Predictions of a question, by model. Raises KeyError."""
        return self._attempts[number]

    def listing(self) -> EvaluationListing:
        known = [each for attempts in self._attempts.values() for each in attempts if each]
        metric = next((name for name in SCORES if any(each.get(name) is not None for each in known)), "f1")
        rows = [_question(number, attempts) for number, attempts in self._attempts.items()]
        common = [row for row in rows if all(score and score[metric] is not None for score in row.scores)]
        return EvaluationListing(
            metric=metric,
            models=_names(self.paths),
            rows=rows,
            groups=[_group(name, of, metric) for name, of in _grouped(common)],
            records=[records_in(path) for path in self.paths],
        )


def _predictions(path: Path) -> dict[_Key, dict[str, Any]]:
    file, found, texts = predictions_in(path), dict[_Key, dict[str, Any]](), _texts(path / PASSAGES)
    with reading(file), file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if file.name == ANSWERED and not line.endswith(b"\n"):  # it is being written
                break
            try:
                prediction = orjson.loads(line)
                known = _Line.model_validate(prediction)
                for each in (each for step in prediction["steps"] for each in step.get("passages") or ()):
                    if (text := texts.get(str(each.get("id")))) is not None:
                        each["text"] = text
            except ValueError as error:
                first = error.errors()[0] if isinstance(error, ValidationError) else None
                why = f"{'.'.join(map(str, first['loc'])) or 'the line'}: {first['msg']}" if first else error
                raise InputError(f"{file}, line {number}, is no prediction: {why}") from None
            if found.setdefault((known.question_id, known.question), prediction) is not prediction:
                raise InputError(f"{file}, line {number}: the question {known.question_id} stands there twice")
    return found


def _texts(file: Path) -> dict[str, str]:
    """Of passages, by id; none where an evaluation has not ended, or is older than this file."""
    if not file.is_file():
        return {}
    with reading(file), file.open("rb") as lines:
        found = (parse_passage(line, where=f"{file}, line {number}") for number, line in numbered_lines(file, lines))
        return {each.id: each.text for each in found}


def _names(paths: Sequence[Path]) -> list[str]:
    numbered = [f"{number}: {each}" for number, each in enumerate(paths, start=1)]
    return [*map(readable, names_of([each.resolve() for each in paths]) or numbered)]  # one may be given twice


def _question(number: int, attempts: Sequence[Mapping[str, Any] | None]) -> EvaluatedQuestion:
    first = next(each for each in attempts if each)
    return EvaluatedQuestion(
        number=number,
        id=first["question_id"],
        **{name: first.get(name) for name in ("question", "golden_answers", "type", "hops")},
        scores=[each and {name: each.get(name) for name in _SCORES} | {"error": _cause(each)} for each in attempts],
    )


def _cause(prediction: Mapping[str, Any]) -> str | None:
    error = prediction.get("error")
    return str(error.get("cause")) if isinstance(error, dict) else None


def _grouped(rows: Sequence[EvaluatedQuestion]) -> Iterator[tuple[str, list[EvaluatedQuestion]]]:
    yield "all questions", list(rows)
    for name in ("type", "hops"):
        values = sorted({value for row in rows if (value := getattr(row, name)) is not None}, key=str)
        if len(values) > 1:
            yield from ((f"{name}: {each}", [row for row in rows if getattr(row, name) == each]) for each in values)


def _group(name: str, rows: Sequence[EvaluatedQuestion], metric: str) -> QuestionGroup:
    values = [[float((score or {})[metric]) for score in row.scores] for row in rows]
    columns = list(zip(*values, strict=True))
    first = columns[0] if columns else ()
    return QuestionGroup(
        name=name,
        questions=len(rows),
        means=[share_of(sum(each), len(each), COMPARISON_LEVEL) for each in columns],
        wins=[sum(one > other for one, other in zip(each, first, strict=True)) for each in columns],
        losses=[sum(one < other for one, other in zip(each, first, strict=True)) for each in columns],
    )


# -- trainings, critics, rounds ----------------------------------------------------------------------------------


class Training(BaseModel):
    """What is known of a folder; the first three as in `metrics.json`. checkpoint: where they are from, of a training
    that has not ended. critic: by which pairs, how often it ranks the better step higher; scores: as evaluated."""

    stage: str = ""
    warnings: list[str] = []
    series: dict[str, list[tuple[int, float | None]]] = {}
    name: str = ""
    checkpoint: str | None = None
    critic: dict[str, Share] = {}
    scores: dict[str, list[float]] = {}
    remarks: list[str] = []
    rounds: list[Round] = []


def is_training(path: Path) -> bool:
    return any((path / name).is_file() for name in (TRAINING, METRICS, STAGES, REPORT, f"{EVALUATION}/{REPORT}"))


def trainings(paths: Sequence[Path]) -> Iterator[Training]:
    """Of each folder, and of the models of its rounds. Raises InputError for a damaged file."""
    for name, path in zip(_names(paths), paths, strict=True):
        yield (found := _training(name, path))
        for each in found.rounds:
            made = path.glob(f"round-{each.round}/*-{each.round}/{METRICS}")
            yield from (_training(f"{name}, round {each.round}", file.parent) for file in made)


def _training(name: str, path: Path) -> Training:
    logged = read_record(path / METRICS, Training, "Train again, with another --out")
    told: dict[str, Any] = {"name": name, "rounds": rounds_in(path)}
    if logged is None and (checkpoint := OutputDirectory(path).last_checkpoint()):
        logged = Training.model_validate(read_metrics(checkpoint, "").model_dump())
        told["checkpoint"] = checkpoint.name
    report = path / REPORT if (path / REPORT).is_file() else path / EVALUATION / REPORT
    if found := read_record(report, CriticEvaluation, "Evaluate the critic again"):
        told["critic"] = {pairs: estimate.share for pairs, estimate in found.accuracies.items()}
        scores = {str(kind): each for kind, each in found.chain_scores.items()}
        told |= {"scores": scores | {"gaps": found.gaps}, "remarks": found.said}
    return (logged or Training()).model_copy(update=told)
