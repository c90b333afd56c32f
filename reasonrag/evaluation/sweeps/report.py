"""The record of `sweep.json`: how evaluations score under other budgets of searches and other top-k.

Decides the file's fields. Computes nothing.
"""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from preference.records import Record
from reasonrag.evaluation.report import MetricMean
from reasonrag.evaluation.significance import MetricDelta

SWEEP: Final = "sweep.json"
SWEEP_SCHEMA: Final = "reasonrag.sweep/1"
FigureName = Literal["iterations", "top-k"]
"""The two drawings: scores against the searches of the budget, and against the passages per search."""
SCORES = ("em", "f1")
"""Metrics that are drawn."""


class SweepPoint(Record):
    """An evaluation with another budget or top-k. Metrics are over `Sweep.questions`, the same for all points."""

    run: str
    """Folder of the evaluation."""
    taken: bool
    """Whether it was there before: an evaluation that was swept, of which nothing was asked."""
    searches: int
    """Most searches of the budget; 1 for rag."""
    max_steps: int
    top_k: int
    figures: list[FigureName]
    """Where it is drawn."""
    finished: bool
    """Whether every question was asked, and some has replies; otherwise there are no numbers."""
    failed: int = 0
    """Questions that failed at the model or retriever: they are left out of every point."""
    metrics: dict[str, MetricMean] = Field(default_factory=dict)
    differences: dict[str, MetricDelta] = Field(default_factory=dict)
    """Of `em` and `f1`: this point minus the evaluation that was swept, paired by question."""


class SweptEvaluation(Record):
    """An evaluation and its points, in the order of searches, then of top-k."""

    name: str
    run: str
    method: str
    model: str
    repair: bool
    """Whether an unreadable reply had a repair turn."""
    searches: int
    max_steps: int
    top_k: int
    points: list[SweepPoint]


class Sweep(Record):
    """Content of `sweep.json`."""

    schema_version: Literal["reasonrag.sweep/1"] = SWEEP_SCHEMA
    out: str
    dataset: str
    split: str
    questions: int
    """Questions with replies in every finished point."""
    failed: int
    """Questions without, left out of every point."""
    confidence: float
    bootstrap: int
    bootstrap_seed: int
    evaluations: list[SweptEvaluation]
    calls: int
    """Completions that the sweep has asked for, in all sessions, judge included; answers are shared between points."""
    cost_usd: float | None
    """Their cost; null without a price."""
    owed: int
    """Questions and judgements of its points that the same command retries."""
    warnings: list[str] = Field(default_factory=list)
    versions: dict[str, str] = Field(default_factory=dict)

    @property
    def unfinished(self) -> int:
        """Points without numbers."""
        return sum(not point.finished for each in self.evaluations for point in each.points)
