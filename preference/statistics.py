"""How far labels can be trusted: confirmation of pairs by fresh draws or people.

Decides what agreement means, and the intervals of shares. Draws nothing itself.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import NormalDist
from typing import NamedTuple

from pydantic import BaseModel

BINS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Edges of the bins of `reliability`; the last edge belongs to the last bin."""
LABEL_LEVEL = 0.9
"""Level of every interval that says how far labels or rows can be trusted: shares, biases."""
COMPARISON_LEVEL = 0.95
"""Level of every interval by which systems are measured and compared, evaluations and trials; a setting where a command
has `--confidence`."""


class Share(BaseModel):
    """A share of `of` cases, with its Wilson interval; all three null if `of` is 0."""

    of: int
    share: float | None = None
    low: float | None = None
    high: float | None = None


class SignAgreement(BaseModel):
    """How many pairs fresh continuations, or a person, order as the label does."""

    confirmed: Share
    """Over the pairs that are not ties."""
    ties: int
    """Pairs of which neither step is better."""
    right: Share
    """Over all pairs, ties among them: a student trains on all."""
    wrong: int


class Bin(SignAgreement):
    """Pairs with a confidence in [low, high), and how many of them were confirmed."""

    low: float
    high: float
    mean_confidence: float | None


class CheckedPair(NamedTuple):
    """A pair whose label was checked. tied: whether neither step is better. confidence: of its label, if known."""

    tied: bool
    confirmed: bool
    confidence: float | None


def share_of(part: float, whole: int, level: float = LABEL_LEVEL) -> Share:
    """A share and its Wilson interval, wider than need be where part is a sum of values in [0, 1]."""
    if not whole:
        return Share(of=0)
    low, high = wilson(part / whole, whole, level)
    return Share(of=whole, share=part / whole, low=low, high=high)


def sign_agreement(pairs: Iterable[CheckedPair]) -> SignAgreement:
    """How many labels are confirmed, with ties and without."""
    pairs = list(pairs)
    ties, right = sum(each.tied for each in pairs), sum(each.confirmed for each in pairs)
    wrong = len(pairs) - ties - right
    confirmed, of_all = share_of(right, right + wrong), share_of(right, len(pairs))
    return SignAgreement(confirmed=confirmed, ties=ties, right=of_all, wrong=wrong)


def reliability(pairs: Sequence[CheckedPair]) -> list[Bin]:
    """Claimed confidence against the confirmed share, bin by bin. Values below the first edge count in the first bin;
    pairs without a confidence are in none."""
    found = []
    claims = [(each.confidence, each) for each in pairs if each.confidence is not None]
    for number, (low, high) in enumerate(pairwise(BINS), start=1):
        inside = [(claim, each) for claim, each in claims if bisect(BINS, claim, 1, len(BINS) - 1) == number]
        mean = sum(claim for claim, _ in inside) / len(inside) if inside else None
        agreed = dict(sign_agreement(each for _, each in inside))
        found.append(Bin(low=low, high=high, mean_confidence=mean, **agreed))
    return found


def wilson(share: float, cases: float, level: float = LABEL_LEVEL) -> tuple[float, float]:
    """The Wilson interval of a share of `cases` (> 0) independent cases; within [0, 1].

    Source: E. B. Wilson, Probable inference, the law of succession, and statistical inference, JASA 22 (1927).
    """
    z = NormalDist().inv_cdf((1 + level) / 2)
    shrink = 1 + z * z / cases
    middle = (share + z * z / (2 * cases)) / shrink
    reach = z * math.sqrt(share * (1 - share) / cases + z * z / (4 * cases * cases)) / shrink
    return max(0.0, middle - reach), min(1.0, middle + reach)


def effective_sample_size(cases: int, squares: float) -> float | None:
    """Effective sample size: a lower bound that treats each cluster as fully correlated; None without cases.

    squares: sum of the squares of the clusters' sizes. Source: L. Kish, Survey Sampling (1965), chapter 8.
    """
    return cases**2 / squares if cases else None
