"""Statistics of a critic: shares with intervals over questions.

Pure functions of scores; intervals resample questions, as steps of one are alike. Knows no tree and no model.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence

import numpy as np
from pydantic import BaseModel

from preference.statistics import COMPARISON_LEVEL, Share, share_of
from reasonrag.rendering import interval_text

FEW = 30
"""Questions below which the interval of a bootstrap is too narrow for a share, and Wilson's takes its place."""


class Estimate(BaseModel):
    """A mean over `n` cases and its interval at `COMPARISON_LEVEL`, by a bootstrap over questions; null without any."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    questions: int = 0

    @property
    def share(self) -> Share:
        """Of an estimate that is a share; Wilson's interval counts the cases of a question as one."""
        if self.value is not None and self.questions < FEW:
            return share_of(self.value * self.questions, self.questions, COMPARISON_LEVEL)
        return Share(of=self.n, share=self.value, low=self.low, high=self.high)

    def __format__(self, sign: str) -> str:
        """In percent; with `+` every end has its sign."""
        if self.value is None or self.low is None or self.high is None:
            return "no cases"
        ends = interval_text(f"{self.low:{sign}.1%}", f"{self.high:{sign}.1%}", COMPARISON_LEVEL)
        return f"{self.value:{sign}.1%} {ends}; {self.n:,} of {self.questions:,} questions"

    def __str__(self) -> str:
        return f"{self}"


def clustered_mean(
    values: Sequence[float],
    clusters: Sequence[Hashable],
    *,
    of: Sequence[float] | None = None,
    resamples: int,
    seed: int,
) -> Estimate:
    """The mean, and its interval from resampled clusters. of: the sum is divided by theirs, not by their number."""
    if not values:
        return Estimate()
    place = {cluster: number for number, cluster in enumerate(dict.fromkeys(clusters))}
    places = [place[each] for each in clusters]
    total, sizes = np.bincount(places, weights=values), np.bincount(places, weights=of).astype(np.float64)
    drawn = np.random.default_rng(seed).integers(len(total), size=(resamples, len(total)))
    means = total[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)
    tail = (1 - COMPARISON_LEVEL) / 2
    low, high = np.quantile(means, (tail, 1 - tail))
    mean = float(total.sum() / sizes.sum())
    return Estimate(value=mean, low=float(low), high=float(high), n=len(values), questions=len(total))


def pair_accuracy(better: float | None, worse: float | None) -> float | None:
    """1 if the truly better step scores higher, a half for equal scores; None without both scores."""
    if better is None or worse is None:
        return None
    return 1.0 if better > worse else 0.5 if better == worse else 0.0


def spread(scores: Collection[tuple[bool, float]]) -> tuple[float, float]:
    """Variance of scores among those of equal outcome, and of all; both 0 for two or fewer, which do not tell."""
    groups = [[score for won, score in scores if won is one] for one in (True, False)]
    if len(scores) <= len(groups):
        return 0.0, 0.0
    within = sum(float(np.var(each)) * len(each) for each in groups if each) / (len(scores) - len(groups))
    return within, float(np.var([score for _, score in scores], ddof=1))
