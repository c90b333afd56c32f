"""Statistics of a critic: shares with intervals over questions, and best of n.

Pure functions of scores and true values; every interval resamples questions, since steps of one question are alike.
Knows no tree and no model.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

import numpy as np
from pydantic import BaseModel

from preference.statistics import COMPARISON_LEVEL

Case = TypeVar("Case")
Key = TypeVar("Key", str, int, float)
VOTES = 200
"""Draws of n by which a majority is simulated."""


class Estimate(BaseModel):
    """A mean over `n` cases of `questions` questions, with its interval at `COMPARISON_LEVEL` (cluster bootstrap over
    questions); null without cases."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    questions: int = 0


def clustered_mean(values: Sequence[float], clusters: Sequence[Hashable], *, resamples: int, seed: int) -> Estimate:
    """The mean, and its interval from resampled clusters."""
    if not values:
        return Estimate()
    sums: defaultdict[Hashable, float] = defaultdict(float)
    counts: Counter[Hashable] = Counter()
    for value, cluster in zip(values, clusters, strict=True):
        sums[cluster] += value
        counts[cluster] += 1
    total = np.array([sums[each] for each in sums])
    sizes = np.array([counts[each] for each in sums], dtype=np.float64)
    drawn = np.random.default_rng(seed).integers(len(total), size=(resamples, len(total)))
    means = total[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)
    tail = (1 - COMPARISON_LEVEL) / 2
    low, high = np.quantile(means, (tail, 1 - tail))
    mean = float(total.sum() / sizes.sum())
    return Estimate(value=mean, low=float(low), high=float(high), n=len(values), questions=len(total))


def ranked_right(better: float, worse: float) -> float:
    """1 if the better step scores higher, a half for equal scores."""
    return 1.0 if better > worse else 0.5 if better == worse else 0.0


def expected_best(scores: Sequence[float], values: Sequence[float], n: int) -> float:
    """The expected value of the highest-scoring of n draws with replacement; of equal scores, their mean value."""
    by_score = grouped(list(zip(scores, values, strict=True)), lambda each: each[0])
    expected, below = 0.0, 0
    for tied in by_score.values():
        chance = ((below + len(tied)) / len(scores)) ** n - (below / len(scores)) ** n
        expected += chance * sum(value for _, value in tied) / len(tied)
        below += len(tied)
    return expected


def expected_majority(names: Sequence[Hashable], values: Sequence[float], n: int, *, seed: int) -> float:
    """The same of the draw that most of the n agree with by name, the earliest of equals; by simulation."""
    dice, total = random.Random(f"majority {seed} {n}"), 0.0
    for _ in range(VOTES):
        drawn = dice.choices(range(len(names)), k=n)
        counts = Counter(names[place] for place in drawn)
        most = max(counts.values())
        total += values[next(place for place in drawn if counts[names[place]] == most)]
    return total / VOTES


def grouped(cases: Iterable[Case], by: Callable[[Case], Key]) -> dict[Key, list[Case]]:
    """In ascending order of the keys."""
    found: defaultdict[Key, list[Case]] = defaultdict(list)
    for each in cases:
        found[by(each)].append(each)
    return dict(sorted(found.items()))
