"""The record of `report.json`: how well a model answered a split, under which conditions, and at what cost.

Decides the file's fields. Knows neither how a metric is computed (`reported_metrics`) nor what a page shows (`pages`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field

from preference.records import AbsentIfEmpty, AbsentIfNone, Record
from reasonrag.errors import InputError
from reasonrag.evaluation.predictions import REWRITES, WRITTEN_AT_THE_END
from reasonrag.files import EVALUATION_REPORT, read_record

REPORT: Final = EVALUATION_REPORT
UNREADABLE: Final = ("unreadable", "reasoning_cut", "too_long")
"""Causes for a missing score or support: the judge's reply has none, even after its repair turn; is nothing but
reasoning; or the answer has too many sentences."""
SUPPORT: Final = "support_"
"""Begins a cause for missing support."""


class MetricMean(Record):
    """A mean over questions with its interval; null if no question has a value.

    Shares and scores are in [0, 1]; searches, calls and tokens are numbers per question.
    """

    value: float | None
    low: float | None
    high: float | None
    n: int
    """Questions with a value."""


class QuestionGroup(Record):
    """The questions of one type or number of hops."""

    questions: int
    """Answered ones."""
    metrics: dict[str, MetricMean]


class EvaluationConditions(Record):
    """How the model was asked: what must be as it was in training, and the retriever, which may be another. Same fields
    as `TrainingConditions`, one value each; null where it has no meaning for the method.

    retriever: its `identity`. max_passage_chars: absent where passages were shown whole. passage_order:
    absent where the best stood first. style: absent for short answers. agent: absent for ReasonRAG's. reader:
    the model that reads; absent where the agent has none.
    """

    renderer: str | None
    top_k: int | None
    max_passage_chars: AbsentIfEmpty[int | None] = None
    passage_order: AbsentIfEmpty[str | None] = None
    style: AbsentIfEmpty[str | None] = None
    agent: AbsentIfEmpty[str | None] = None
    reader: AbsentIfEmpty[str | None] = None
    retriever: str | None
    max_steps: int
    """At most so many completions, repair turns apart; how many searches those are is `most_searches`'."""


class EvaluationUsage(Record):
    """Completions and tokens of the evaluated model in `predictions.jsonl`, independent of how often the run was
    resumed; judge_*: those of the judge; critic_*: its scores, and what it read. Retries are not included; they are in
    `failures.jsonl`."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: AbsentIfEmpty[int] = 0
    judge_calls: int = 0
    judge_prompt_tokens: int = 0
    judge_completion_tokens: int = 0
    critic_calls: AbsentIfEmpty[int] = 0
    critic_prompt_tokens: AbsentIfEmpty[int] = 0


class ConditionCheck(Record):
    """A condition of training. outcome: allowed if it differs and --allow names it."""

    name: str
    outcome: Literal["same", "unknown", "allowed"]
    message: str = ""


class TrainedModel(Record):
    """The provenance of the evaluated model. source: the folder it was read from."""

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

    schema_version: Literal["reasonrag.evaluation/1"] = "reasonrag.evaluation/1"
    run: str
    dataset: str
    split: str
    questions_sha256: str
    """Hash of the whole question file: with equal hash and `questions` the questions are the same."""
    questions: int
    """Requested questions: the whole split, or --limit."""
    answered: int
    """Questions with replies, whether or not with an answer; metrics are over these."""
    failed: int
    """Questions that failed at the model or retriever."""
    failures_by_cause: dict[str, int] = Field(default_factory=dict)
    unjudged_by_cause: dict[str, int] = Field(default_factory=dict)
    """Answers without a score, or without support (`support_`), by cause; all but those in UNREADABLE are retried."""
    method: str
    model: str
    judge: str | None = None
    judge_saw_gold: AbsentIfNone[bool] = None
    """Whether the judge was shown the gold answers; not if some question has none."""
    rubric_sha256: AbsentIfNone[str] = None
    """Of the criteria of --rubric."""
    best_of: int | None = None
    """Replies that were drawn in every state, of which `critic` chose one."""
    critic: str | None = None
    vote: int | None = None
    """Attempts at every question, of which the commonest answer was taken."""
    asked: EvaluationConditions
    repair: bool
    """Whether an unreadable reply had a repair turn."""
    config_hash: str
    """Hash of what decides answers, as in `config.json`."""
    seed: int
    confidence: float
    """Confidence level of the intervals."""
    bootstrap: int
    """Bootstrap resamples per interval."""
    bootstrap_seed: int
    metrics: dict[str, MetricMean]
    by_type: dict[str, QuestionGroup] = Field(default_factory=dict)
    by_hops: dict[str, QuestionGroup] = Field(default_factory=dict)
    parse_failures_by_cause: dict[str, int] = Field(default_factory=dict)
    usage: EvaluationUsage = EvaluationUsage()
    cost_usd: float | None = None
    """Total cost of the run over all sessions, judge included; null without a price."""
    checks: list[ConditionCheck] = Field(default_factory=list)
    refused_parameters: dict[str, list[str]] = Field(default_factory=dict)
    """Request parameters that an endpoint refused, by name of the model: its answers came without them."""
    provenance: TrainedModel | None = None
    """Null if the model's training is unknown."""
    warnings: list[str] = Field(default_factory=list)
    settings: dict[str, Any] = Field(default_factory=dict)
    versions: dict[str, str] = Field(default_factory=dict)

    @property
    def owed(self) -> int:
        """What the same command retries: failed questions and failed judgements."""
        return self.failed + sum(
            count for cause, count in self.unjudged_by_cause.items() if cause.removeprefix(SUPPORT) not in UNREADABLE
        )


def read_report(path: Path) -> Report:
    """The report of a run directory, or of the file itself. Raises InputError if it is missing or damaged."""
    file = path / REPORT if path.is_dir() else path
    found = read_record(file, Report, REWRITES)
    if found is None:
        raise InputError(f"there is no {file}; {WRITTEN_AT_THE_END}")
    return found
