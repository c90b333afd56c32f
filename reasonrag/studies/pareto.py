"""The Pareto frontier of configurations by cost and yield, with bootstrap intervals over questions.

Decides which configuration dominates which, which is suggested, and what is noise: all configurations use the same
resampled questions, so what they have in common cancels out. Knows no model, no file and no tree.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

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
Values: TypeAlias = NDArray[np.float64]
Measures: TypeAlias = Mapping[str, Values]
"""By field of `TrialReport`: the value on the questions themselves (first), then on every resample."""


class QuestionYield(NamedTuple):
    """The yield of one configuration on one question. cost: in the unit of the tuning. right: sum of the confidences
    of its pairs. failure: cause, if there is no tree."""

    calls: int
    cost: float
    pairs: int
    right: float
    failure: str | None = None


class Interval95(BaseModel):
    """The middle 95 % of a bootstrap over questions. An end is null if that resample has no pair."""

    low: float | None
    high: float | None


class TrialReport(BaseModel):
    """The result of one configuration. calls, pairs, right_pairs (the sum of confidences): means per question.
    questions_with_a_pair: a share. confidence: mean over pairs; null without, like cost_per_right_pair, which is in
    `Tuning.unit`. failed: questions without a tree, which count with their cost and without pairs. intervals: by field,
    and `cost_change`, relative to the base. worse_than_base: significantly, in confidence or questions_with_a_pair.
    """

    name: str
    changed: dict[str, Any]
    complete: bool = False
    questions: int
    failed: int
    failures_by_cause: dict[str, int]
    calls: float
    pairs: float
    right_pairs: float
    questions_with_a_pair: float
    confidence: float | None
    cost_per_right_pair: float | None
    intervals: dict[str, Interval95] = {}
    worse_than_base: bool = False
    on_frontier: bool = False

    @property
    def cheaper_than_base(self) -> bool:
        """Per expected right pair, by more than noise; never where a resampling has no pair to tell."""
        change = self.intervals.get("cost_change")
        return change is not None and change.high is not None and change.high < 0

    @property
    def rank(self) -> tuple[float, ...]:
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
        if not self.changed:
            return "suggested: the base, your own settings; nothing is significantly cheaper without being worse"
        change = self.intervals["cost_change"]
        low, high = ("?" if each is None else f"{100 * each:+.0f} %" for each in (change.low, change.high))
        level = percent(COMPARISON_LEVEL)
        return f"suggested: {self.name}; a right pair costs {low} to {high} ({level} CI) against the base"


@np.errstate(divide="ignore", invalid="ignore")
def measure(questions: Sequence[QuestionYield], *, seed: int) -> Measures:
    """What one configuration yields. Without a pair its cost is infinite and its confidence 0."""
    told = [(each.cost, each.pairs, each.right, each.pairs > 0) for each in questions] or [(0.0, 0, 0.0, False)]
    count = len(told)
    resampled = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=RESAMPLES)
    cost, pairs, right, with_a_pair = (np.vstack([np.ones(count), resampled]) @ np.array(told, np.float64)).T
    return {
        "right_pairs": right / count,
        "questions_with_a_pair": with_a_pair / count,
        "confidence": np.where(pairs > 0, right / pairs, 0.0),
        "cost_per_right_pair": np.where(right > 0, cost / right, np.inf),
    }


@np.errstate(divide="ignore", invalid="ignore")
def compare(measured: Measures, base: Measures) -> dict[str, Any]:
    """How a complete trial compares to the base, as report fields; with no pairs in either the cost is unchanged."""
    change = measured["cost_per_right_pair"] / base["cost_per_right_pair"] - 1
    named = {**measured, "cost_change": np.nan_to_num(change, nan=0.0, posinf=np.inf)}
    ends = {name: map(_known, interval(values)) for name, values in named.items()}
    lost = [interval(measured[name] - base[name])[1] < 0 for name in ("confidence", "questions_with_a_pair")]
    return {
        "complete": True,
        "intervals": {name: Interval95(low=low, high=high) for name, (low, high) in ends.items()},
        "worse_than_base": any(lost),
    }


def interval(values: Values) -> tuple[float, float]:
    """The middle `COMPARISON_LEVEL` of the resampled values; as many are left out below as above."""
    low, high = np.quantile(values[1:], [(1 - COMPARISON_LEVEL) / 2, (1 + COMPARISON_LEVEL) / 2], method="inverted_cdf")
    return float(low), float(high)


def _known(value: float) -> float | None:
    """As JSON has it: null if it is infinite."""
    return float(value) if math.isfinite(value) else None


def report_trials(
    tried: Sequence[tuple[str, Mapping[str, Any], Sequence[QuestionYield]]], *, seed: int, stopped: bool
) -> list[TrialReport]:
    """The report of every trial. tried: names, what they change, and their yields; the base is the first. stopped:
    the last one is not complete, and so compared with nothing."""
    found, base = list[TrialReport](), None
    for number, (name, changed, questions) in enumerate(tried, start=1):
        measured, count = measure(questions, seed=seed), max(1, len(questions))
        failed = Counter(each.failure for each in questions if each.failure)
        fields: dict[str, Any] = {field: _known(values[0]) for field, values in measured.items()}
        fields["confidence"] = fields["confidence"] or None
        if not stopped or number < len(tried):
            base = base or measured
            fields |= compare(measured, base)
        found.append(
            TrialReport(
                **fields,
                name=name,
                changed=dict(changed),
                questions=len(questions),
                failed=failed.total(),
                failures_by_cause=dict(failed.most_common()),
                pairs=sum(each.pairs for each in questions) / count,
                calls=sum(each.calls for each in questions) / count,
            )
        )
    frontier = pareto_frontier([each for each in found if each.complete])
    return [each.model_copy(update={"on_frontier": each.name in frontier}) for each in found]


def pareto_frontier(trials: Sequence[TrialReport]) -> set[str]:
    """Names of the configurations that make pairs, and of which no other is as good in all and better in some."""

    def dominated(rank: tuple[float, ...]) -> bool:
        return any(each.rank != rank and all(map(operator.le, each.rank, rank)) for each in trials)

    return {each.name for each in trials if each.cost_per_right_pair is not None and not dominated(each.rank)}


def suggest_trial(trials: Sequence[TrialReport]) -> str | None:
    """The base, which is the first, unless others are cheaper and not worse by more than noise: of these the cheapest.
    Trials that are not complete do not count.

    The best of many that differ by chance only is always cheaper than the base; it is no reason to leave it. None if
    that would be a base that makes no pairs, or if there is none.
    """
    better = [each for each in trials if each.complete and each.cheaper_than_base and not each.worse_than_base]
    found = min(better or [each for each in trials[:1] if each.complete], key=lambda each: each.rank, default=None)
    return found.name if found and found.cost_per_right_pair is not None else None
