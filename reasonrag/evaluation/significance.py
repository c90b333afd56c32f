"""The significance of differences: paired bootstrap intervals and McNemar's test on the same questions.

Decides the bootstrap and the test. The bootstrap is paired: every resample draws the same questions for both, so that
question difficulty cancels out; if a condition was run with several seeds, each resample draws seeds too, so that the
interval covers other questions *and* other seeds. Percentile intervals, not corrected for multiple comparisons. Knows
numbers only: no question, no file, no metric's name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from preference.records import Record
from preference.statistics import COMPARISON_LEVEL

Values: TypeAlias = NDArray[np.float64]
"""Values of one metric, shape (seeds, questions); nan without a value."""

RESAMPLES, RESAMPLING_SEED = 2000, 0
"""Of every bootstrap."""
_CELLS = 4_000_000
"""Numbers of a resampling held at a time: 32 MB."""
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

    @property
    def side(self) -> int:
        """1 or -1 where the whole interval is above or below 0; else 0. No verdict by itself."""
        if self.low is None or self.high is None:
            return 0
        return int(self.low > 0) - int(self.high < 0)


def paired_differences(
    pairs: Sequence[tuple[Values, Values]],
    *,
    resamples: int = RESAMPLES,
    seed: int = RESAMPLING_SEED,
    confidence: float = COMPARISON_LEVEL,
) -> list[MetricDelta]:
    """Differences of each metric's (reference, other). All metrics have the same questions as columns and are resampled
    together; the reference has the same seeds in every pair, and so has the other side."""
    if not pairs or not pairs[0][0].shape[1]:
        return [MetricDelta(n=0) for _ in pairs]
    usable = [_valued(one, other) for one, other in pairs]
    columns = [
        np.stack([*(np.where(used, side, 0.0) for side in one), *(np.where(used, side, 0.0) for side in other), used])
        for (one, other), used in zip(pairs, usable, strict=True)
    ]
    ours = pairs[0][0].shape[0]
    drawn = [
        np.concatenate(parts)
        for parts in zip(*_resampled(columns, ours=ours, resamples=resamples, seed=seed), strict=True)
    ]
    return [
        _difference(one[:, used], other[:, used], values, confidence=confidence)
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


def _difference(one: Values, other: Values, drawn: Values, *, confidence: float) -> MetricDelta:
    if not one.shape[1]:
        return MetricDelta(n=0)
    low, high = np.nanquantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2])
    means = float(one.mean()), float(other.mean())
    ends = (*means, float((other.mean(axis=0) - one.mean(axis=0)).mean()), float(low), float(high))
    names = ("reference", "other", "value", "low", "high")
    rounded = {name: round(each, _ROUNDED) + 0.0 for name, each in zip(names, ends, strict=True)}
    return MetricDelta(n=one.shape[1], **rounded)


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
