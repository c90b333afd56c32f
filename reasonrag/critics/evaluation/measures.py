"""Statistics of a critic: shares with intervals over questions, AUC, calibration, best of n, the earliest error.

Pure functions of scores and true values; every interval resamples questions, since steps of one question are alike.
Knows no tree and no model.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

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


def area_under_curve(scores: Sequence[float], right: Sequence[bool]) -> float | None:
    """Chance that a right case scores higher than a wrong one, ties counting half; None without both."""
    order = np.argsort(np.asarray(scores, dtype=np.float64), kind="stable")
    values, labels = np.asarray(scores, dtype=np.float64)[order], np.asarray(right, dtype=bool)[order]
    positives = int(labels.sum())
    negatives = len(labels) - positives
    if not positives or not negatives:
        return None
    _, first, counts = np.unique(values, return_index=True, return_counts=True)
    ranks = np.repeat(first + (counts + 1) / 2, counts)
    return float((ranks[labels].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def brier_skill(chances: Sequence[float], values: Sequence[float]) -> tuple[float, float | None]:
    """The mean squared error, and its share below that of always saying the mean value; None if all values are one."""
    told, true = np.asarray(chances), np.asarray(values)
    error, usual = float(np.mean((told - true) ** 2)), float(np.var(true))
    return error, 1 - error / usual if usual else None


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


def earliest_error_f1(
    dev: Sequence[tuple[Sequence[float], int | None]], test: Sequence[tuple[Sequence[float], int | None]]
) -> dict[str, Any]:
    """ProcessBench (arXiv 2412.06559): harmonic mean of the share of erroneous trajectories whose earliest error is
    found exactly, and of the share of correct ones in which none is found, by the first step that scores below a
    threshold, which is the best one on `dev`. A trajectory: its steps' scores, and its earliest error, if any.
    """
    levels = sorted({score for scores, _ in dev for score in scores})
    thinned = levels[:: max(1, len(levels) // 200)]
    best = max(((_f1(dev, level)[0], -place) for place, level in enumerate(thinned)), default=(0.0, 0))
    threshold = thinned[-best[1]] if thinned else 0.0
    found, located, accepted = _f1(test, threshold)
    erroneous = sum(error is not None for _, error in test)
    return {
        "f1": found if erroneous and erroneous < len(test) else None,
        "located": located,
        "accepted": accepted,
        "erroneous": erroneous,
        "correct": len(test) - erroneous,
        "threshold": threshold,
    }


def _f1(cases: Sequence[tuple[Sequence[float], int | None]], threshold: float) -> tuple[float, float, float]:
    hits: dict[bool, list[bool]] = {True: [], False: []}
    for scores, error in cases:
        said = next((place for place, score in enumerate(scores) if score < threshold), None)
        hits[error is not None].append(said == error)
    located, accepted = (sum(each) / len(each) if each else 0.0 for each in (hits[True], hits[False]))
    return (2 * located * accepted / (located + accepted) if located + accepted else 0.0), located, accepted


def spread_at_equal_outcomes(groups: Sequence[Sequence[float]]) -> float | None:
    """Standard deviation of scores within groups of equal outcome, over that of all; None without any spread."""
    everything = [score for group in groups for score in group]
    if len(everything) < 2:  # noqa: PLR2004 - a spread needs two
        return None
    whole = float(np.std(everything))
    within = sum(float(np.var(group)) * len(group) for group in groups if group) / len(everything)
    return math.sqrt(within) / whole if whole else None


def grouped(cases: Iterable[Case], by: Callable[[Case], Key]) -> dict[Key, list[Case]]:
    """In ascending order of the keys."""
    found: defaultdict[Key, list[Case]] = defaultdict(list)
    for each in cases:
        found[by(each)].append(each)
    return dict(sorted(found.items()))
