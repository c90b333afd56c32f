"""Scores for walking down the tree, and what one more reply is expected to bring for jumping straight to a state. Pure
functions of counts and means.

`pending` simulations of the wave in flight are added to the counts but not to the values
("watch the unobserved", arXiv 1810.11755, Eq. 4), so that a wave spreads without a made-up loss.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

from mcts.tree import Node

P = TypeVar("P")

UNVISITED = math.inf
"""Score of an unvisited child: it precedes every visited one, in order of creation."""


def uct_score(value: float, *, visits: int, parent_visits: int, prior: float, exploration: float) -> float:
    """``value + c * sqrt(ln N / n)`` (UCB1 applied to trees, Kocsis and Szepesvari 2006).

    value: mean of the backed-up values, in [0, 1].
    visits, parent_visits: n and N, with pending simulations included.
    prior: not used by this rule.
    exploration: c; the published ReasonRAG code has 1.414.
    """
    if visits == 0:
        return UNVISITED
    return value + exploration * math.sqrt(math.log(max(parent_visits, 1)) / visits)


def puct_score(value: float, *, visits: int, parent_visits: int, prior: float, exploration: float) -> float:
    """``value + c * P * sqrt(N) / (1 + n)`` (PUCT as in AlphaZero, arXiv 1712.01815).

    prior: P, probability of the step under the policy; uniform over siblings for sampled ones.
    exploration: c; ProRAG has 2.5.
    """
    return value + exploration * prior * math.sqrt(parent_visits) / (1 + visits)


SCORES = {"uct": uct_score, "puct": puct_score, "unit_puct": puct_score}
OF_SIBLINGS = frozenset({"unit_puct"})
"""Rules whose prior is one, and whose N is the sum over siblings, not the parent's own: arXiv 2505.14069, Eq. 5, which
states no c."""


def best_child(
    node: Node[P], children: Sequence[Node[P]], pending: Counter[int], *, rule: str, exploration: float
) -> Node[P]:
    """The child with the highest score by a rule of `SCORES`, the earliest on a tie."""
    score, of_siblings = SCORES[rule], rule in OF_SIBLINGS
    above = children if of_siblings else [node]
    parent_visits = sum(each.visits + pending[each.id] for each in above)
    return max(
        children,
        key=lambda child: score(
            child.value,
            visits=child.visits + pending[child.id],
            parent_visits=parent_visits,
            prior=1 if of_siblings else 1 / len(children),
            exploration=exploration,
        ),
    )


ROOT_PRIOR = 0.5
"""Weight of the prior of one half at the root, in answers."""
PARENT_PRIOR = 8.0
"""Weight of the parent's expectation at a step, in answers. Tried from 1 to 10 in the laboratory: larger values give
truer and cheaper pairs in deep trees and hardly change others."""
FOUND, MISSED = 0.6, 0.4
"""How far the expected chance of a right answer goes towards 1 with a step that brings to light all that is needed, and
towards 0 with one that brings nothing new. Tried on real questions with a teacher of known truth, from .3 to .7 and
from 0 to .4: a right pair's price hardly depends on the first, and falls with the second."""
LEAST_GAIN = 0.01
"""Disagreement that one more reply must be expected to bring, or the search ends: with paths of six steps and nothing
found, after eight answers that are all equal."""
LEAST_GAIN_OF_BUDGET = 1.28
"""The same of a whole budget, were every reply as useful as the best one left. It decides for budgets above 128
replies: who pays more for a question wants more patience with it."""


def expected_outcome(expected_above: float, *, weight: float, mean: float, answers: float) -> float:
    """Mean of a Beta posterior: the expected outcome of an answer below a step, given its parent's expectation.

    weight: of the parent's expectation, in answers. mean, answers: seen below the step itself.
    """
    return (weight * expected_above + answers * mean) / (weight + answers)


def disagreement(expected: float) -> float:
    """Chance that exactly one of two answers drawn below a state has the usual outcome, each having it with chance
    `expected`: ``2 p (1 - p)``, at most one half."""
    return 2 * expected * (1 - expected)


def after_progress(expected: float, progress: float | None) -> float:
    """The expected chance of a right answer after a step, by what it brought to light: a share of all that is needed,
    nothing (0), or unknown (None)."""
    if progress is None:
        return expected
    return expected + (1 - expected) * FOUND * progress if progress > 0 else expected * (1 - MISSED)


def gain_per_reply(expected: float, *, steps_left: float) -> float:
    """Expected disagreement that a draw brings for each reply it costs: the step, and the `steps_left` to an answer."""
    return disagreement(expected) / (1 + max(1.0, steps_left))


def least_gain(max_calls: int | None) -> float:
    """The gain per reply below which a search with that budget ends; 0, that is never, without a budget."""
    return min(LEAST_GAIN, LEAST_GAIN_OF_BUDGET / max_calls) if max_calls else 0.0
