"""The Pareto frontier of configurations by cost and yield, with bootstrap intervals over questions.

Decides which configuration dominates which, and what is noise: all configurations use the same
resampled questions, so what they have in common cancels out. Knows no model, no file and no tree.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from preference.statistics import COMPARISON_LEVEL
from reasonrag.rendering import percent, written

RESAMPLES = 2_000
Unit = Literal["dollars", "calls"]
HEAD = (
    *("trial", ("comple-", "tions"), "share", "pairs", ("confi-", "dence"), ("expected", "right")),
    *("cost", ("CI", "low"), ("CI", "high"), ""),
)
"""Of the table of trials."""

Interval: TypeAlias = tuple[float, float]
_Values: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class QuestionYield:
    """The yield of one configuration on one question. right: sum of the confidences of its pairs."""

    cost: float
    pairs: int
    right: float


class Interval95(BaseModel):
    """The middle 95 % of a bootstrap over questions. An end is null if that resample has no pair."""

    low: float | None
    high: float | None


class TrialReport(BaseModel):
    """The result of one configuration."""

    name: str
    changed: dict[str, Any]
    """The value of the recipe that differs from the base's, by its key."""
    complete: bool
    """Whether every question was tried; otherwise nothing is compared."""
    questions: int
    failed: int
    """Questions without a tree; they count with their cost and without pairs."""
    failures_by_cause: dict[str, int]
    calls: float
    """Completions. From here to `right_pairs`: means per question; costs are those of this configuration alone."""
    cost_usd: float | None
    """Null if the model has no price."""
    pairs: float
    right_pairs: float
    """Expected right pairs: the sum of confidences."""
    questions_with_a_pair: float
    """Share."""
    confidence: float | None
    """Mean over pairs; null without pairs, like `cost_per_right_pair`."""
    cost_per_right_pair: float | None
    """In `Tuning.unit`."""
    intervals: dict[str, Interval95] = {}
    """Intervals by field name, and `cost_change`: the relative change of `cost_per_right_pair` from the base."""
    worse_than_base: bool = False
    """Significantly worse in confidence or questions_with_a_pair."""
    on_frontier: bool = False
    """Whether no other trial dominates it in cost_per_right_pair, right_pairs, confidence and questions_with_a_pair."""

    @property
    def cheaper_than_base(self) -> bool:
        """Per expected right pair, by more than noise; never where a resampling has no pair to tell."""
        change = self.intervals.get("cost_change")
        return change is not None and change.high is not None and change.high < 0

    @property
    def rank(self) -> tuple[float, float, float, float]:
        """Smaller is better: by cost, at the same cost by what one gets for it."""
        cost = math.inf if self.cost_per_right_pair is None else self.cost_per_right_pair
        return cost, -self.right_pairs, -(self.confidence or 0.0), -self.questions_with_a_pair

    def row(self, unit: Unit) -> list[str]:
        """Under `HEAD`."""

        def cost(value: float | None) -> str:
            return "-" if value is None else f"{1000 * value:,.2f}" if unit == "dollars" else f"{value:,.1f}"

        ends = self.intervals.get("cost_per_right_pair")
        return [
            self.name,
            f"{self.calls:,.0f}",
            percent(self.questions_with_a_pair, 0),
            f"{self.pairs:.1f}",
            written(self.confidence),
            f"{self.right_pairs:.1f}",
            cost(self.cost_per_right_pair),
            *([cost(ends.low), cost(ends.high)] if ends else ["", ""]),
            "*" if self.on_frontier else "worse" if self.worse_than_base else "" if self.complete else "..",
        ]

    @property
    def as_suggestion(self) -> str:
        """What is said of it where it is suggested."""
        if not self.changed:
            return "suggested: the base, your own settings; nothing is significantly cheaper without being worse"
        change = self.intervals["cost_change"]
        low, high = ("?" if each is None else f"{100 * each:+.0f} %" for each in (change.low, change.high))
        by = f"{low} to {high} ({percent(COMPARISON_LEVEL)} CI)"
        return f"suggested: {self.name}; a right pair costs {by} against the base"


class ConfigurationMeasurements:
    """Measurements of one configuration: on the questions themselves (first), then on every resample.

    cost: per expected right pair, infinite without a pair. right: expected right pairs per question. confidence: mean
    over pairs, 0 without any. share: of the questions that have a pair.
    """

    def __init__(self, questions: Sequence[QuestionYield], *, seed: int) -> None:
        count = len(questions)
        resampled = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=RESAMPLES)
        weights = np.vstack([np.ones(count), resampled])

        def summed(values: Iterable[float]) -> _Values:
            return weights @ np.array(list(values), dtype=np.float64)

        right, pairs = summed(each.right for each in questions), summed(each.pairs for each in questions)
        self.cost = _ratio(summed(each.cost for each in questions), right, empty=math.inf)
        self.right = right / count
        self.confidence = _ratio(right, pairs, empty=0.0)
        self.share = summed(float(each.pairs > 0) for each in questions) / count

    def worse_than(self, base: ConfigurationMeasurements) -> bool:
        """In confidence or share, by more than noise."""
        differences = (self.confidence - base.confidence, self.share - base.share)
        return any(interval(each)[1] < 0 for each in differences)

    def intervals(self, base: ConfigurationMeasurements) -> dict[str, Interval95]:
        """Of what is reported, by field of `TrialReport`."""
        resampled = {
            "right_pairs": self.right,
            "questions_with_a_pair": self.share,
            "confidence": self.confidence,
            "cost_per_right_pair": self.cost,
            "cost_change": self.cost_change(base),
        }
        found = {
            name: [each if math.isfinite(each) else None for each in interval(of)] for name, of in resampled.items()
        }
        return {name: Interval95(low=low, high=high) for name, (low, high) in found.items()}

    def cost_change(self, base: ConfigurationMeasurements) -> _Values:
        """Relative change of the cost per expected right pair from the base's."""
        neither_has_pairs = np.isinf(self.cost) & np.isinf(base.cost)
        return np.where(neither_has_pairs, 0.0, _ratio(self.cost, base.cost, empty=math.inf) - 1)


def interval(values: _Values) -> Interval:
    """The middle `COMPARISON_LEVEL` of the resampled values; as many are left out below as above."""
    low, high = np.quantile(values[1:], [(1 - COMPARISON_LEVEL) / 2, (1 + COMPARISON_LEVEL) / 2], method="inverted_cdf")
    return float(low), float(high)


def _ratio(above: _Values, below: _Values, *, empty: float) -> _Values:
    """`above / below`, and `empty` where below is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(below == 0, empty, above / below)


def dominates(one: TrialReport, other: TrialReport) -> bool:
    """Whether one is as good in every respect, and better in one."""
    return one.rank != other.rank and all(mine <= its for mine, its in zip(one.rank, other.rank, strict=True))


def pareto_frontier(trials: Sequence[TrialReport]) -> set[str]:
    """Names of the configurations that make pairs and are not dominated."""
    return {
        each.name
        for each in trials
        if each.cost_per_right_pair is not None and not any(dominates(other, each) for other in trials)
    }
