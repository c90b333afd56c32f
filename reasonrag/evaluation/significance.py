"""The significance of differences: paired bootstrap intervals and McNemar's test on the same questions.

Decides the bootstrap and the test. The bootstrap is paired: every resample draws the same questions for both, so that
question difficulty cancels out; if a condition was run with several seeds, each resample draws seeds too, so that the
interval covers other questions *and* other seeds. Paired seeds are drawn together; a t interval of their differences
covers other seeds. Percentile intervals, not corrected for multiple comparisons. Knows numbers only: no question, no
file, no metric's name.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import NormalDist
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from preference.records import AbsentIfEmpty, AbsentIfNone, Record
from preference.statistics import COMPARISON_LEVEL

Values: TypeAlias = NDArray[np.float64]
"""Values of one metric, shape (seeds, questions); nan without a value."""

RESAMPLES, RESAMPLING_SEED = 2000, 0
"""Of every bootstrap."""
_CELLS = 4_000_000
"""Numbers of a resampling held at a time: 32 MB."""
POWER, EQUIVALENCE_LEVEL = 0.8, 2 * COMPARISON_LEVEL - 1
"""Chance to find the smallest detectable difference; level of the interval that is two one-sided tests at 5 %."""
_EXPECTED_CHANGES = 7.91
"""Of which with POWER (Poisson) six are seen, as McNemar's exact test needs: 2 / 2**6 <= 1 - COMPARISON_LEVEL."""
_SMALLEST_P = 1e-4
_ROUNDED = 12
"""Digits: floating point differs in the last ones with the order of a sum."""


class MetricDelta(Record):
    """A metric's means over the questions that have a value under all seeds of both, and other minus reference with its
    interval. All but n are null where no question has."""

    n: int
    reference: float | None = None
    other: float | None = None
    value: float | None = None
    low: float | None = None
    high: float | None = None
    by_seed: AbsentIfEmpty[tuple[float, ...]] = ()
    """Differences of paired seeds, whose mean is value; none where all are equal, which says nothing of other seeds."""
    t_low: AbsentIfNone[float] = None
    t_high: AbsentIfNone[float] = None

    @property
    def side(self) -> int:
        """1 or -1 where the whole interval is above or below 0; else 0. No verdict by itself."""
        if self.low is None or self.high is None:
            return 0
        return int(self.low > 0) - int(self.high < 0)

    @property
    def intervals(self) -> list[tuple[float, float]]:
        """By bootstrap, and by t where paired seeds differ; none without a value."""
        ends = (self.low, self.high), (self.t_low, self.t_high)
        return [(low, high) for low, high in ends if low is not None and high is not None]


class Equivalence(Record):
    """Whether a difference is shown to be within +-points: its interval at EQUIVALENCE_LEVEL is. All in points."""

    points: float
    low: float
    high: float
    shown: bool


def paired_differences(
    pairs: Sequence[tuple[Values, Values]],
    *,
    resamples: int = RESAMPLES,
    seed: int = RESAMPLING_SEED,
    confidence: float = COMPARISON_LEVEL,
    paired_seeds: bool = False,
) -> list[MetricDelta]:
    """Differences of each metric's (reference, other). All metrics have the same questions as columns and are resampled
    together; the reference has the same seeds in every pair, and so has the other side. paired_seeds: both sides have
    the same seeds in the same rows, whose differences are resampled."""
    if not pairs or not pairs[0][0].shape[1]:
        return [MetricDelta(n=0) for _ in pairs]
    usable = [_valued(one, other) for one, other in pairs]
    sides = [(np.zeros((1, one.shape[1])), other - one) for one, other in pairs] if paired_seeds else pairs
    columns = [
        np.stack([*(np.where(used, side, 0.0) for side in one), *(np.where(used, side, 0.0) for side in other), used])
        for (one, other), used in zip(sides, usable, strict=True)
    ]
    drawings = _resampled(columns, ours=sides[0][0].shape[0], resamples=resamples, seed=seed)
    drawn = [np.concatenate(parts) for parts in zip(*drawings, strict=True)]
    return [
        _difference(one[:, used], other[:, used], values, confidence=confidence, paired_seeds=paired_seeds)
        for (one, other), used, values in zip(pairs, usable, drawn, strict=True)
    ]


def _valued(one: Values, other: Values) -> NDArray[np.bool_]:
    """Which questions have a value under all seeds of both."""
    valued: NDArray[np.bool_] = ~np.isnan(np.concatenate([one, other])).any(axis=0)
    return valued


def changes(one: Values, other: Values) -> Values:
    """How much each question changes that has a value under all seeds of both, in the mean over seeds."""
    used = _valued(one, other)
    change: Values = np.round(other[:, used].mean(axis=0) - one[:, used].mean(axis=0), _ROUNDED)
    return change


def _resampled(columns: Sequence[Values], *, ours: int, resamples: int, seed: int) -> Iterator[list[Values]]:
    """Differences of resamplings, some at a time, for every metric: nan where none of its questions was drawn."""
    of_questions, of_seeds = np.random.default_rng([seed, 0]), np.random.default_rng([seed, 1])
    rows, questions = columns[0].shape
    at_once = max(1, _CELLS // questions)
    even = np.full(questions, 1 / questions)
    for start in range(0, resamples, at_once):
        some = min(at_once, resamples - start)
        weights = of_questions.multinomial(questions, even, size=some).astype(np.float64)
        reference = _seed_weights(of_seeds, ours, some)
        other = _seed_weights(of_seeds, rows - 1 - ours, some)
        parts = []
        for column in columns:
            sums = weights @ column.T
            with np.errstate(invalid="ignore", divide="ignore"):
                means = sums[:, :-1] / sums[:, -1:]
            parts.append((means[:, ours:] * other).sum(axis=1) - (means[:, :ours] * reference).sum(axis=1))
        yield parts


def _seed_weights(dice: np.random.Generator, seeds: int, some: int) -> Values:
    if seeds == 1:
        return np.ones((some, 1))
    drawn: Values = dice.multinomial(seeds, np.full(seeds, 1 / seeds), size=some) / seeds
    return drawn


def _difference(one: Values, other: Values, drawn: Values, *, confidence: float, paired_seeds: bool) -> MetricDelta:
    if not one.shape[1]:
        return MetricDelta(n=0)
    low, high = np.nanquantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2])
    ends = [one.mean(), other.mean(), (other.mean(axis=0) - one.mean(axis=0)).mean(), low, high]
    by_seed = np.round((other - one).mean(axis=1), _ROUNDED) if paired_seeds else np.empty(0)
    if len(set(by_seed)) > 1:
        reach = quantile((1 + confidence) / 2, len(by_seed)) * by_seed.std(ddof=1) / math.sqrt(len(by_seed))
        ends += [ends[2] - reach, ends[2] + reach]
    names = ("reference", "other", "value", "low", "high", "t_low", "t_high")
    rounded = {name: round(float(each), _ROUNDED) + 0.0 for name, each in zip(names, ends, strict=False)}
    return MetricDelta(n=one.shape[1], by_seed=tuple(by_seed.tolist()) if "t_low" in rounded else (), **rounded)


def quantile(share: float, seeds: int) -> float:
    """Of Student's t for a mean over so many seeds; for 0, of the normal distribution."""
    if not seeds:
        return NormalDist().inv_cdf(share)
    # t is sqrt(freedom) * tan(angle), where the density of the angle goes with cos(angle)**(freedom - 1)
    edges = np.linspace(-math.pi / 2, math.pi / 2, 100_001)
    below = np.cumsum(np.cos((edges[1:] + edges[:-1]) / 2) ** (seeds - 2))
    return math.sqrt(seeds - 1) * math.tan(np.interp(share, np.append(0, below / below[-1]), edges))


def detectable(delta: MetricDelta) -> float | None:
    """The smallest difference, in points, that is found with `POWER` by each interval at COMPARISON_LEVEL and by
    McNemar's test. None: above 100, or without a value."""
    if not delta.intervals:
        return None
    least = [_EXPECTED_CHANGES / delta.n]
    for (low, high), seeds in zip(delta.intervals, (0, len(delta.by_seed)), strict=False):
        tail, power = (quantile(each, seeds) for each in ((1 + COMPARISON_LEVEL) / 2, POWER))
        least.append((high - low) / 2 * (1 + power / tail))
    found = round(100 * max(least), _ROUNDED)
    return found if found <= 100 else None  # noqa: PLR2004 - points


def equivalence(one: Values, other: Values, points: float, *, paired_seeds: bool) -> Equivalence | None:
    """By the widest of all intervals; None without a value. Where hardly a question changes, a bootstrap has no width:
    the ends reach at least as far as that of a share of which no case was seen."""
    [delta] = paired_differences([(one, other)], confidence=EQUIVALENCE_LEVEL, paired_seeds=paired_seeds)
    if delta.value is None:
        return None
    unseen = 1 - (1 - COMPARISON_LEVEL) ** (1 / delta.n)
    lows, highs = zip(*delta.intervals, (delta.value - unseen, delta.value + unseen), strict=True)
    low, high = (round(100 * each, _ROUNDED) for each in (min(lows), max(highs)))
    return Equivalence(points=points, low=low, high=high, shown=-points < low and high < points)


def mcnemar(one: Values, other: Values) -> float | None:
    """Two-sided p of McNemar's exact test, to six significant digits; None without a question.

    Twice the chance that, of the questions that change, at most so many would change against the mean if a fair coin
    decided. Of several seeds a question's mean counts. Many small losses may then outnumber a few large gains: p is 1.
    """
    change = changes(one, other)
    if not change.size:
        return None
    changed = change[change != 0]
    against = int((np.sign(changed) != np.sign(change.mean().round(_ROUNDED))).sum())
    thrown, ways, at_most = changed.size, 1, 0
    for fewer in range(against + 1):
        at_most += ways
        ways = ways * (thrown - fewer) // (fewer + 1)
    return min(1.0, float(f"{2 * at_most / 2**thrown:.6g}"))


def mcnemar_text(p: float) -> str:
    """`McNemar p = 0.25`."""
    return f"McNemar p = {p:.2g}" if p >= _SMALLEST_P else f"McNemar p < {_SMALLEST_P:g}"


def mean_interval(
    values: Sequence[float],
    *,
    samples: int = RESAMPLES,
    confidence: float = COMPARISON_LEVEL,
    seed: int = RESAMPLING_SEED,
) -> tuple[float, float, float] | None:
    """Mean, and the ends of its interval; None of no values.

    values: one for each question, finite. samples: how often as many questions as there are are drawn with replacement.
    confidence: in (0, 1). The interval always contains the mean.
    """
    if not values:
        return None
    # drawing n of n questions is drawing how often each different value occurs
    different, counts = np.unique(np.asarray(values, dtype=np.float64), return_counts=True)
    size = int(counts.sum())
    mean = float(different @ counts) / size
    generator = np.random.default_rng(seed)
    rows = max(1, _CELLS // len(different))
    means = np.concatenate(
        [
            generator.multinomial(size, counts / size, size=min(rows, samples - start)) @ different / size
            for start in range(0, samples, rows)
        ]
    )
    tail = (1 - confidence) / 2
    low, high = (float(each) for each in np.quantile(means, [tail, 1 - tail]))
    return mean, min(low, mean), max(high, mean)
