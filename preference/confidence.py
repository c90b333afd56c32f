"""A pair's confidence: the chance that the chosen step is truly better, from the sampled continuations.

A step's value is the chance that its policy reaches a right answer. Its posterior is a Beta distribution: Jeffreys'
prior and one observation per continuation from the step. Partial F1 counts as a fraction of a right answer. A pair's
confidence is the chance that a draw from the chosen step's posterior exceeds one from the rejected step's.
"""

from __future__ import annotations

import math
from functools import lru_cache

PRIOR = 0.5
"""Both parameters of Jeffreys' prior."""
_CELLS = 400
_LOGS = [(math.log((cell + 0.5) / _CELLS), math.log1p(-(cell + 0.5) / _CELLS)) for cell in range(_CELLS)]


def confidence(chosen: tuple[float, float], rejected: tuple[float, float]) -> float:
    """P(chosen truly better), in [0, 1]; one half for equal evidence.

    chosen, rejected: mean of the observations, in [0, 1], and their number (the effective sample size).
    """
    return _chance((_rounded(chosen[0]), _rounded(chosen[1])), (_rounded(rejected[0]), _rounded(rejected[1])))


@lru_cache(maxsize=65536)
def _chance(chosen: tuple[float, float], rejected: tuple[float, float]) -> float:
    better, worse = _posterior(*chosen), _posterior(*rejected)
    below = total = 0.0
    for there, here in zip(worse, better, strict=True):
        total += here * (below + there / 2)
        below += there
    return min(1.0, total)


def _rounded(value: float) -> float:
    return round(value, 4)


@lru_cache(maxsize=4096)
def _posterior(mean: float, observations: float) -> tuple[float, ...]:
    """The posterior's probability in each of `_CELLS` equal cells of [0, 1]."""
    right, wrong = PRIOR + mean * observations, PRIOR + (1 - mean) * observations
    logs = [(right - 1) * log + (wrong - 1) * log_of_rest for log, log_of_rest in _LOGS]
    highest = max(logs)
    masses = [math.exp(each - highest) for each in logs]
    whole = sum(masses)
    return tuple(mass / whole for mass in masses)
