"""How sure a share is, and how many independent cases many that are alike come to.

Knows numbers only. All intervals of the project hold at one level, which is decided here.
"""

from __future__ import annotations

import math
from statistics import NormalDist

CONFIDENCE_LEVEL = 0.9
Z = NormalDist().inv_cdf((1 + CONFIDENCE_LEVEL) / 2)
"""Standard deviations of a normal distribution within which it holds so much."""


def wilson(share: float, cases: float) -> tuple[float, float]:
    """The interval of a share of so many independent cases, more than 0; within [0, 1].

    Source: E. B. Wilson, Probable inference, the law of succession, and statistical inference, JASA 22 (1927).
    """
    shrink = 1 + Z * Z / cases
    middle = (share + Z * Z / (2 * cases)) / shrink
    reach = Z * math.sqrt(share * (1 - share) / cases + Z * Z / (4 * cases * cases)) / shrink
    return max(0.0, middle - reach), min(1.0, middle + reach)


def independent_cases(cases: int, squares: float) -> float | None:
    """How many independent cases those of clusters are worth at least, if all of a cluster said the same; None of none.

    squares: sum of the squares of the clusters' sizes. Source: L. Kish, Survey Sampling (1965), chapter 8.
    """
    return cases**2 / squares if cases else None
