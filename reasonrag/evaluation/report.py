"""The record of `report.json`: how well a model answered a split, under which conditions, and what that took.

Decides the file's fields. Knows neither how a metric is computed (`measuring`) nor what a page shows (`pages`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field, ValidationError

from preference.export.files import write_json
from preference.records import Record, first_error
from reasonrag.errors import InputError

REPORT: Final = "report.json"
REPORT_SCHEMA: Final = "reasonrag.evaluation/1"
UNREADABLE: Final = "unreadable"
"""Cause of an answer without a score, where the judge's reply holds none, also after its repair turn."""


class MetricMean(Record):
    """A mean over questions and the ends of its interval; all null where no question has a value.

    Shares and scores are in [0, 1]; searches, calls and tokens are numbers per question.
    """

    value: float | None
    low: float | None
    high: float | None
    n: int
    """Questions with a value."""


class QuestionGroup(Record):
    """Questions of one type, or of as many hops."""

    questions: int
    """Answered ones."""
    metrics: dict[str, MetricMean]


class EvaluationConditions(Record):
    """How the model was asked: what must be as it was in training. Same fields as `provenance.Asked`, one value each;
    null where it has no meaning for the method.

    retriever: `identity` of the retriever.
    """

    renderer: str | None
    top_k: int | None
    retriever: str | None
    max_steps: int | None


class EvaluationUsage(Record):
    """Tokens and replies of the evaluated model in `predictions.jsonl`: the same however often the run was continued.

    judge: the same of the judge. Both are what these answers cost once; retries are in `failures.jsonl`.
    """

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    judge_calls: int = 0
    judge_prompt_tokens: int = 0
    judge_completion_tokens: int = 0


class Latency(Record):
    """Seconds per question, of those that the last session that asked any asked without an answer from the journal;
    null without one.

    They depend on --concurrency and on the server's load: a throughput, not a property of the model.
    """

    questions: int = 0
    concurrency: int | None = None
    """Of that session."""
    mean: float | None = None
    p50: float | None = None
    p95: float | None = None
    seconds: float | None = None
    """Of the whole session, from its first question to its last."""
    tokens_per_second: float | None = None
    """Completion tokens of the evaluated model in this session over its seconds."""


class ConditionCheck(Record):
    """One thing that must be as in training. outcome: allowed where it differs and --allow names it."""

    name: str
    outcome: Literal["same", "unknown", "allowed"]
    message: str = ""


class TrainedModel(Record):
    """What `reasonrag.json`, or a data set, says of the evaluated model. source: the folder that said it."""

    source: str
    base_model: str | None = None
    stage: str | None = None
    finetuning_type: str | None = None
    data: list[str] = Field(default_factory=list)
    splits: list[str] = Field(default_factory=list)
    questions: int = 0
    config_hash: str | None = None


class Report(Record):
    """Content of `report.json`."""

    schema_version: Literal["reasonrag.evaluation/1"] = REPORT_SCHEMA
    run: str
    dataset: str
    split: str
    questions_sha256: str
    """Of the whole question file: equal ones and equal `questions` mean the same questions."""
    questions: int
    """Asked for: the split's, or --limit."""
    answered: int
    """With replies, an answer or not; metrics are over these."""
    failed: int
    """Without: model or retriever gave nothing."""
    failures_by_cause: dict[str, int] = Field(default_factory=dict)
    unjudged_by_cause: dict[str, int] = Field(default_factory=dict)
    """Answers without a score although a judge was asked; those that are not `unreadable` are asked for again."""
    method: str
    model: str
    judge: str | None = None
    asked: EvaluationConditions
    config_hash: str
    """Of what decides answers, as in `config.json`."""
    seed: int
    confidence: float
    """Of the intervals."""
    bootstrap: int
    """Resamples behind an interval."""
    bootstrap_seed: int
    metrics: dict[str, MetricMean]
    by_type: dict[str, QuestionGroup] = Field(default_factory=dict)
    by_hops: dict[str, QuestionGroup] = Field(default_factory=dict)
    parse_failures_by_cause: dict[str, int] = Field(default_factory=dict)
    usage: EvaluationUsage = EvaluationUsage()
    cost_usd: float | None = None
    """Everything delivered to the run, in all sessions, a judge's answers included; null without a price."""
    latency: Latency = Latency()
    checks: list[ConditionCheck] = Field(default_factory=list)
    provenance: TrainedModel | None = None
    """Null where nothing is known of the model's training."""
    warnings: list[str] = Field(default_factory=list)
    settings: dict[str, Any] = Field(default_factory=dict)
    versions: dict[str, str] = Field(default_factory=dict)

    @property
    def owed(self) -> int:
        """What the same command tries again: failed questions, and judgements that were not to be had."""
        return self.failed + sum(count for cause, count in self.unjudged_by_cause.items() if cause != UNREADABLE)

    def write(self, folder: Path) -> None:
        """Write `report.json`; it takes its place when it is whole."""
        write_json(folder / REPORT, self.model_dump(mode="json"))


def read_report(path: Path) -> Report:
    """The report of a run directory, or the file itself. Raises InputError for one that is missing or damaged."""
    file = path / REPORT if path.is_dir() else path
    try:
        return Report.model_validate_json(file.read_bytes())
    except FileNotFoundError as error:
        raise InputError(
            f"there is no {file}; reasonrag evaluate writes it when every question was asked: run it again to go on"
        ) from error
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from error
    except ValidationError as error:
        raise InputError(
            f"{file} is no {REPORT_SCHEMA}: {first_error(error)}. The command that made it writes it anew out of its "
            "journal, and asks for nothing twice"
        ) from error
