"""Chains of steps from a question to an answer: which are scored, and what their scores say.

Decides what a golden and a shuffled chain are. Asks no critic.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import cycle
from statistics import fmean
from typing import Any, Final, NamedTuple

from preference import RolloutRecord
from preference.best_path import steps_to
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
    found = Counter[bool]()
    for last in rollout.nodes[1:]:
        outcome, path = true_value(last, 0.0) if last.terminal else None, steps_to(rollout.nodes, last)
        if outcome is not None and all(is_step(node) and node.action_type for node in path):
            found[outcome >= WON] += 1
            if found[outcome >= WON] <= CHAINS:
                yield Chain(outcome >= WON, tuple(judged_step(rollout, node) for node in path))


def shuffled(chains: Sequence[Chain]) -> Iterator[tuple[Chain, Chain]]:
    """Of each question the first chain that won, and the same states with steps of the same types from the next
    question's; left out where that has none of a type."""
    golden = list({chain.question: chain for chain in reversed(chains) if chain.won}.values())
    for chain, other in zip(golden, golden[1:] + golden[:1], strict=True) if len(golden) > 1 else ():
        types = {step.action_type for step in other.steps}
        said = {kind: cycle([each.step for each in other.steps if each.action_type == kind]) for kind in types}
        if {step.action_type for step in chain.steps} <= types:
            steps = (replace(step, step=next(said[step.action_type])) for step in chain.steps)
            yield chain, Chain(won=False, steps=tuple(steps))


def chain_figures(
    chains: Sequence[Chain],
    mixed: Sequence[tuple[Chain, Chain]],
    score: Callable[[JudgedStep], float | None],
    mean: Callable[..., Estimate],
) -> dict[str, Any]:
    """The fields of the report about chains, whose score is the mean of their steps'. mean: `clustered_mean`."""
    known = dict[Chain, float]()
    for chain in dict.fromkeys([*chains, *(one for both in mixed for one in both)]):
        scores = [each for step in chain.steps if (each := score(step)) is not None]
        if len(scores) == len(chain.steps):
            known[chain] = fmean(scores)
    compared = [(one.question, known[one], known[other]) for one, other in mixed if {one, other} <= known.keys()]
    by_question: defaultdict[str, set[tuple[bool, float]]] = defaultdict(set)
    for chain in filter(known.__contains__, chains):
        by_question[chain.question].add((chain.won, known[chain]))
    told = {question: each for question, each in by_question.items() if len({won for won, _ in each}) > 1}
    spreads = {question: found for question, each in told.items() if (found := spread(each))[1]}
    apart = [(won, each - fmean(s for _, s in told[name])) for name in spreads for won, each in told[name]]
    within, whole = ([each[part] for each in spreads.values()] for part in (0, 1))
    return {
        "golden_over_shuffled": mean([pair_accuracy(*both) for _, *both in compared], [name for name, *_ in compared]),
        "spread_at_equal_outcomes": mean(within, list(spreads), of=whole),
        "chain_scores": {
            "golden": [one for _, one, _ in compared],
            "shuffled": [other for _, _, other in compared],
            "won": [each for won, each in apart if won],
            "lost": [each for won, each in apart if not won],
        },
    }
