"""The record of `compare.json`: how conditions differ on their common questions, and the verdict.

Decides the file's fields and the verdicts: a gain counts only if cover-EM gains too, because exact match alone also
rises when a model merely words its answers like the golden ones. Computes nothing.
"""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from preference.records import AbsentIfNone, Record
from reasonrag.evaluation.judges.pairwise import Preferences
from reasonrag.evaluation.significance import Equivalence, MetricDelta

COMPARISON: Final = "compare.json"
OF_PARTS: Final = ("em", "f1", "cover_em")
"""Metrics of the answer: always shown, and by question type and hops, too."""

ComparisonVerdict = Literal["identical", "gain", "style_gain", "loss", "style_loss", "no_difference"]
"""gain, loss: EM differs significantly, and cover-EM in the same direction; or the metric that decides in its place
does. style_gain, style_loss: EM does and cover-EM does not, which may be the wording of answers. no_difference: the
metric that decides does not. identical: no metric differs on any question.

Significantly: the interval excludes 0, and the test agrees (p at most 1 - confidence). A few questions that all went
one way have an interval without 0, because no resample contains a loss; the test accounts for how few they are."""


class WinLossCounts(Record):
    """Counts of questions with a higher, lower or equal EM in the other condition (mean over several seeds), or of the
    metric that decides in its place.

    style_wins, style_losses: those with equal cover-EM; 0 where another metric decides.
    """

    wins: int
    losses: int
    ties: int
    style_wins: int
    style_losses: int


class ComparisonPart(Record):
    """The questions of one type or number of hops. metrics: `OF_PARTS`."""

    questions: int
    metrics: dict[str, MetricDelta]
    outcomes: WinLossCounts


class ConditionSummary(Record):
    """A condition. runs: as given, by seed. metrics: means over questions and seeds; null without values."""

    name: str
    runs: list[str]
    method: str
    model: str
    seeds: list[int]
    metrics: dict[str, float | None]


class PairedComparison(Record):
    """One condition against the reference."""

    reference: str
    other: str
    verdict: ComparisonVerdict
    sentence: str
    metrics: dict[str, MetricDelta]
    decided_by: str = "em"
    """The metric of verdict and counts: EM if every question has gold answers and some answer equals one; else
    preference or judged_right, where there is one."""
    preferences: AbsentIfNone[Preferences] = None
    """With --judge."""
    paired_seeds: bool = False
    """Both have the same seeds, several; a resample draws the same ones for both."""
    detectable: float | None = None
    """The smallest difference that decides and is found with 80 % power, in points; null where none can be."""
    equivalent: AbsentIfNone[Equivalence] = None
    """With --equivalent."""
    tests: dict[str, float]
    """p of McNemar's test of the metrics that decide, and of accuracy where questions have options."""
    outcomes: WinLossCounts
    by_type: dict[str, ComparisonPart] = Field(default_factory=dict)
    by_hops: dict[str, ComparisonPart] = Field(default_factory=dict)
    changed: list[str] = Field(default_factory=list)
    """Differing settings that affect answers: `key was x, is y`."""
    wins: list[str] = Field(default_factory=list)
    """Ids of the questions; what was said is in `predictions.jsonl`."""
    losses: list[str] = Field(default_factory=list)


class Comparison(Record):
    """Content of `compare.json`."""

    schema_version: Literal["reasonrag.comparison/1"] = "reasonrag.comparison/1"
    dataset: str
    split: str
    questions: int
    """Compared questions, to which every evaluation has replies."""
    left_out: dict[str, int]
    """missing: absent from an evaluation; failed: without replies in one."""
    confidence: float
    bootstrap: int
    seed: int
    conditions: list[ConditionSummary]
    """The first is the reference."""
    pairs: list[PairedComparison]
    cost_usd: AbsentIfNone[float] = None
    """Of the judgements, over all sessions."""
    warnings: list[str] = Field(default_factory=list)
    versions: dict[str, str] = Field(default_factory=dict)
