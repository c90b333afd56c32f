"""Chains of steps from a question to an answer: which are scored, and what their scores say.

Decides what a golden and a shuffled chain are. Asks no critic.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import cycle
from statistics import fmean
from typing import Any, Final, NamedTuple

from preference import RolloutRecord
from reasonrag.critics.evaluation.measures import Estimate, pair_accuracy, spread
from reasonrag.critics.evaluation.observations import JudgedStep, is_step, judged_step, true_value

WON: Final = 0.5
"""Outcome from which on a chain won; that of a lucky guess is below (`evident_f1`)."""
CHAINS: Final = 4
"""Of a question, won and lost each, at most."""


class Chain(NamedTuple):
    """All steps from a question to an answer. won: by the outcome."""

    won: bool
    steps: tuple[JudgedStep, ...]

    @property
    def question(self) -> str:
        return self.steps[0].question


def judged_chains(rollout: RolloutRecord) -> Iterator[Chain]:
    """The first chains of a tree that won, and the first that lost: CHAINS of each at most."""
    nodes, left = {node.id: node for node in rollout.nodes}, {True: CHAINS, False: CHAINS}
    for last in rollout.nodes[1:]:
        outcome = true_value(last, 0.0) if last.terminal else None
        path = [last]
        while path[0].parent_id:
            path.insert(0, nodes[path[0].parent_id])
        if outcome is not None and all(is_step(node) and node.action_type for node in path):
            if left[outcome >= WON]:
                yield Chain(outcome >= WON, tuple(judged_step(rollout, node) for node in path))
            left[outcome >= WON] = max(0, left[outcome >= WON] - 1)


def shuffled(chains: Sequence[Chain]) -> Iterator[tuple[Chain, Chain]]:
    """Of each question the first chain that won, and the same states with steps of the same types from the next
    question's; left out where that has none of a type."""
    golden = list({chain.question: chain for chain in reversed(chains) if chain.won}.values())
    for chain, other in zip(golden, golden[1:] + golden[:1], strict=True) if len(golden) > 1 else ():
        types = {step.action_type for step in other.steps}
        said = {kind: cycle([each.response for each in other.steps if each.action_type == kind]) for kind in types}
        if {step.action_type for step in chain.steps} <= types:
            steps = (replace(step, response=next(said[step.action_type])) for step in chain.steps)
            yield chain, Chain(won=False, steps=tuple(steps))


def chain_figures(
    chains: Sequence[Chain],
    mixed: Sequence[tuple[Chain, Chain]],
    score: Callable[[JudgedStep], float | None],
    mean: Callable[..., Estimate],
) -> dict[str, Any]:
    """The fields of the report about chains, whose score is the mean of their steps'. mean: `clustered_mean`."""

    def scored(chain: Chain) -> float | None:
        scores = [each for step in chain.steps if (each := score(step)) is not None]
        return fmean(scores) if len(scores) == len(chain.steps) else None

    compared = [(one.question, scored(one), scored(other)) for one, other in mixed]
    known = [(question, one, other) for question, one, other in compared if one is not None and other is not None]
    by_question: defaultdict[str, set[tuple[bool, float]]] = defaultdict(set)
    for chain in chains:
        if (found := scored(chain)) is not None:
            by_question[chain.question].add((chain.won, found))
    telling = {question: told for question, told in by_question.items() if len({won for won, _ in told}) > 1}
    spreads = {question: each for question, told in telling.items() if (each := spread(told))[1]}
    apart = [(won, each - fmean(s for _, s in telling[name])) for name in spreads for won, each in telling[name]]
    return {
        "golden_over_shuffled": mean(
            [pair_accuracy(*both) for _, *both in known], [question for question, *_ in known]
        ),
        "spread_at_equal_outcomes": mean(
            [within for within, _ in spreads.values()], list(spreads), of=[whole for _, whole in spreads.values()]
        ),
        "chain_scores": {
            "golden": [one for _, one, _ in known],
            "shuffled": [other for _, _, other in known],
            "won": [each for won, each in apart if won],
            "lost": [each for won, each in apart if not won],
        },
    }
