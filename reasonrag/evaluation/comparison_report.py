"""The record of `compare.json`: how conditions differ on the questions that all of them answered, and what it comes to.

Decides the file's fields and what a difference may be called: a gain counts only where cover-EM gains, too, for exact
match alone also rises when a model only words its answers as the golden ones are worded. Computes nothing.
"""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from preference.records import Record
from reasonrag.evaluation.significance import MetricDelta, SignificanceTest

COMPARISON: Final = "compare.json"
COMPARISON_SCHEMA: Final = "reasonrag.comparison/1"

ComparisonVerdict = Literal["identical", "gain", "style_gain", "loss", "style_loss", "no_difference"]
"""gain, loss: EM differs surely, and so does cover-EM to the same side. style_gain, style_loss: EM does and cover-EM
does not: it may be how answers are worded. no_difference: EM does not. identical: no metric differs on any question.

Surely: the interval leaves out 0, and the test agrees (p at most 1 - confidence). Few questions that all went one way
have an interval without 0, for no resampling of them holds a loss; the test knows how few they are."""


class WinLossCounts(Record):
    """Questions on which the other condition has a higher, lower or equal EM (over several seeds: their mean).

    style_wins, style_losses: those among them on which cover-EM is equal.
    """

    wins: int
    losses: int
    ties: int
    style_wins: int
    style_losses: int


class ExampleStep(Record):
    """A reply on the way, shortened."""

    action: str
    said: str


class ExampleAnswer(Record):
    """What one condition did, in its first seed."""

    answer: str | None
    em: float | None
    cover_em: float | None
    steps: list[ExampleStep]


class ComparedExample(Record):
    """A question on which the two differ. style: cover-EM is equal."""

    question_id: str
    question: str
    golden_answers: list[str]
    style: bool
    reference: ExampleAnswer
    other: ExampleAnswer


class ComparisonPart(Record):
    """Questions of one type, or of as many hops. metrics: EM, F1 and cover-EM."""

    questions: int
    metrics: dict[str, MetricDelta]
    outcomes: WinLossCounts


class ConditionSummary(Record):
    """What was compared. runs: as they were given. metrics: means over questions and seeds; null without a value."""

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
    tests: dict[str, SignificanceTest]
    """Of EM and cover-EM."""
    outcomes: WinLossCounts
    by_type: dict[str, ComparisonPart] = Field(default_factory=dict)
    by_hops: dict[str, ComparisonPart] = Field(default_factory=dict)
    changed: list[str] = Field(default_factory=list)
    """What decides answers and differs: `key was x, is y`."""
    wins: list[ComparedExample] = Field(default_factory=list)
    losses: list[ComparedExample] = Field(default_factory=list)


class Comparison(Record):
    """Content of `compare.json`."""

    schema_version: Literal["reasonrag.comparison/1"] = COMPARISON_SCHEMA
    dataset: str
    split: str
    questions: int
    """Compared: every evaluation has replies to them."""
    left_out: dict[str, int]
    """missing: not asked in every evaluation; failed: without replies in one."""
    confidence: float
    bootstrap: int
    seed: int
    conditions: list[ConditionSummary]
    """The first is the reference."""
    pairs: list[PairedComparison]
    warnings: list[str] = Field(default_factory=list)
    versions: dict[str, str] = Field(default_factory=dict)
