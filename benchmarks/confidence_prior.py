"""Whether confidence is better calibrated with a prior over the steps of a state or question than with Jeffreys' prior.

Of the laboratory's candidates with a margin of .05 or more, ties counted as not right: the Brier score of each prior,
what is right of all that is said to be .7 to .9, and how many of the surest pairs are right if as many are kept as
Jeffreys' prior keeps. Intervals by a bootstrap over questions. Prints Markdown.
"""

from __future__ import annotations

import random
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated

import numpy as np
import typer
from decision_process import LabQuestion
from reporting import publish, table
from search_economy import SETTINGS, Exploration, Plan

from mcts import RECIPES
from preference.filters import candidates_of
from preference.labelling import TOLERANCE, observed

CELLS = 200
MIDDLES = (np.arange(CELLS) + 0.5) / CELLS


@dataclass(frozen=True)
class Case:
    """A candidate: r and n of both sides, means of its state and question, and whether it is right."""

    question: int
    sides: tuple[tuple[float, float], tuple[float, float]]
    state_mean: float
    question_mean: float
    right: bool


@lru_cache(maxsize=100_000)
def _posterior(right: float, wrong: float) -> np.ndarray:
    logs = (right - 1) * np.log(MIDDLES) + (wrong - 1) * np.log1p(-MIDDLES)
    masses = np.exp(logs - logs.max())
    return masses / masses.sum()


def _chance(case: Case, strength: float, mean: float) -> float:
    mean = min(0.95, max(0.05, mean))
    better, worse = (
        _posterior(round(strength * mean + r * n, 2), round(strength * (1 - mean) + (1 - r) * n, 2))
        for r, n in case.sides
    )
    return float((better * (np.cumsum(worse) - worse / 2)).sum())


PRIORS: dict[str, Callable[[Case], float]] = {
    "Jeffreys": lambda case: _chance(case, 1.0, 0.5),
    "symmetric, strength .5": lambda case: _chance(case, 0.5, 0.5),
    "state, strength 1": lambda case: _chance(case, 1.0, case.state_mean),
    "state, strength .5": lambda case: _chance(case, 0.5, case.state_mean),
    "question, strength 1": lambda case: _chance(case, 1.0, case.question_mean),
    "question, strength .5": lambda case: _chance(case, 0.5, case.question_mean),
}


def _cases(setting_number: int, questions: int) -> Iterator[Case]:
    setting, plan = SETTINGS[setting_number], Plan("economy", RECIPES["economy"])
    for number in range(questions):
        exploration = Exploration(
            plan, LabQuestion(setting, number, alpha=plan.search.alpha), f"{setting.name}/{number}"
        )
        record = exploration.record()
        own = {node.id: observed(record, node, node) for node in record.nodes[1:] if node.reward is not None}
        known = {each: value for each, value in own.items() if value}
        everywhere = _mean(list(known.values()))
        for state in exploration.states():
            here = _mean([known[step.id] for step in state.steps if step.id in known])
            for each in candidates_of(state):
                nodes = record.nodes[each.chosen.id], record.nodes[each.rejected.id]
                sides = observed(record, *nodes), observed(record, nodes[1], nodes[0])
                if sides[0] and sides[1] and each.margin >= 0.05 and not each.pair.same:
                    right = exploration.true_margin(each) > TOLERANCE
                    yield Case(number, (sides[0], sides[1]), here, everywhere, right)


def _mean(observations: list[tuple[float, float]]) -> float:
    return (sum(r * n for r, n in observations) + 0.5) / (sum(n for _, n in observations) + 1)


def main(questions: Annotated[int, typer.Option(help="Questions a setting")] = 60) -> None:
    """Measure the priors in every setting."""
    publish(_report(questions), None)


def _report(questions: int) -> Iterator[str]:
    for number, setting in enumerate(SETTINGS):
        cases = list(_cases(number, questions))
        said = {name: np.array([prior(each) for each in cases]) for name, prior in PRIORS.items()}
        truth = np.array([each.right for each in cases], float)
        kept = int((said["Jeffreys"] >= 0.7).sum())
        rows: dict[str, list[str]] = defaultdict(list)
        for name, chances in said.items():
            rows["prior"].append(name)
            rows["Brier"].append(f"{((chances - truth) ** 2).mean():.4f}")
            gain = (said["Jeffreys"] - truth) ** 2 - (chances - truth) ** 2
            rows["better than Jeffreys' by"].append(f"{gain.mean():+.4f} {_interval(cases, gain)}")
            off, first = _calibration_error(chances, truth), _calibration_error(said["Jeffreys"], truth)
            rows["calibration error"].append(f"{off:.3f}")
            rows["lower than Jeffreys' by"].append(
                f"{first - off:+.3f} {_interval_of_errors(cases, said['Jeffreys'], chances, truth)}"
            )
            inside = (chances >= 0.75) & (chances < 0.85)
            shown = (
                f"{chances[inside].mean():.2f}: {truth[inside].mean():.2f} of {inside.sum():,}" if inside.any() else "-"
            )
            rows["said .75 to .85, right of all"].append(shown)
            rows["right of as many"].append(f"{truth[np.argsort(-chances, kind='stable')[:kept]].mean():.3f}")
        yield from table(f"`{setting.name}`, {len(cases):,} candidates of {questions} questions", rows)


def _calibration_error(chances: np.ndarray, truth: np.ndarray) -> float:
    """Mean distance of what is said and what is right of all, over ten bins weighted by their cases."""
    bins = np.minimum(9, (10 * chances).astype(int))
    return sum(abs((chances - truth)[bins == each].sum()) for each in range(10)) / max(1, len(chances))


def _interval_of_errors(cases: list[Case], first: np.ndarray, other: np.ndarray, truth: np.ndarray) -> str:
    places: defaultdict[int, list[int]] = defaultdict(list)
    for place, each in enumerate(cases):
        places[each.question].append(place)
    dice, gains = random.Random(0), []
    for _ in range(200):
        drawn = np.concatenate([places[each] for each in dice.choices(list(places), k=len(places))])
        gains.append(_calibration_error(first[drawn], truth[drawn]) - _calibration_error(other[drawn], truth[drawn]))
    cuts = statistics.quantiles(gains, n=20)
    return f"({cuts[0]:+.3f} to {cuts[-1]:+.3f})"


def _interval(cases: list[Case], gain: np.ndarray) -> str:
    sums: defaultdict[int, list[float]] = defaultdict(list)
    for each, value in zip(cases, gain, strict=True):
        sums[each.question].append(float(value))
    pooled = [(sum(each), len(each)) for each in sums.values()]
    dice = random.Random(0)
    means = []
    for _ in range(200):
        drawn = dice.choices(pooled, k=len(pooled))
        means.append(sum(value for value, _ in drawn) / sum(count for _, count in drawn))
    cuts = statistics.quantiles(means, n=20)
    return f"({cuts[0]:+.4f} to {cuts[-1]:+.4f})"


if __name__ == "__main__":
    typer.run(main)
