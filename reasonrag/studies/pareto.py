"""The Pareto frontier of configurations by cost and yield, with bootstrap intervals over questions.

Decides which configuration dominates which, which one is suggested, and what is noise: all configurations use the same
resampled questions, so what they have in common cancels out. Knows no model, no file and no tree.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from preference.statistics import COMPARISON_LEVEL

RESAMPLES = 2_000

Interval: TypeAlias = tuple[float, float]
_Values: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class QuestionYield:
    """The yield of one configuration on one question. right: sum of the confidences of its pairs."""

    cost: float
    pairs: int
    right: float


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

    def cheaper_than(self, base: ConfigurationMeasurements) -> bool:
        """Per expected right pair, by more than noise; never where a resampling has no pair to tell."""
        return interval(self.cost_change(base))[1] < 0

    def standing(self, name: str, base: ConfigurationMeasurements) -> TrialStanding:
        """Where a configuration of that name stands, on the questions themselves."""
        known = (self.cost, self.right, self.confidence, self.share)
        cost, right, confidence, share = (float(each[0]) for each in known)
        return TrialStanding(name, cost, right, confidence, share, self.worse_than(base), self.cheaper_than(base))

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


@dataclass(frozen=True, slots=True)
class TrialStanding:
    """Where a configuration stands; the numbers are those of `ConfigurationMeasurements`.

    worse: than the base, by more than noise. cheaper: per expected right pair than the base, by more than noise.
    """

    name: str
    cost: float
    right: float
    confidence: float
    share: float
    worse: bool = False
    cheaper: bool = False

    @property
    def rank(self) -> tuple[float, float, float, float]:
        """Smaller is better: by cost, at the same cost by what one gets for it."""
        return self.cost, -self.right, -self.confidence, -self.share


def dominates(one: TrialStanding, other: TrialStanding) -> bool:
    """Whether one is as good in every respect, and better in one."""
    return one.rank != other.rank and all(mine <= its for mine, its in zip(one.rank, other.rank, strict=True))


def pareto_frontier(standings: Sequence[TrialStanding]) -> set[str]:
    """Names of the configurations that make pairs and are not dominated."""
    return {
        each.name
        for each in standings
        if math.isfinite(each.cost) and not any(dominates(other, each) for other in standings)
    }


def suggest_trial(standings: Sequence[TrialStanding]) -> str | None:
    """The base, which is the first, unless others are cheaper and not worse by more than noise: of these the cheapest.

    The best of many that differ by chance only is always cheaper than the base; it is no reason to leave it. None if
    that would be a base that makes no pairs, or if there is none.
    """
    better = [each for each in standings if each.cheaper and not each.worse]
    found = min(better or standings[:1], key=lambda each: each.rank, default=None)
    return found.name if found and math.isfinite(found.cost) else None
