"""What the loop came to: figures with intervals, verdicts, a report.

Decides what counts as a gain and when nothing can be said. Knows the files of evaluations and comparisons, and nothing
of how they came about.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from reporting import table

from preference.statistics import COMPARISON_LEVEL
from reasonrag.evaluation.predictions import read_predictions
from reasonrag.rendering import percent

METRICS = {"EM": "em", "F1": "f1", "cover-EM": "cover_em"}
RANGE = (0.2, 0.8)
"""EM of a student before preferences that leaves room for them to show; outside, the table is inconclusive."""
RESAMPLES = 2000


def interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """The middle `COMPARISON_LEVEL` of the means of resampled seeds (rows) and questions (columns)."""
    dice = np.random.default_rng(0)
    seeds, questions = values.shape
    means = [
        values[dice.integers(seeds, size=seeds)][:, dice.integers(questions, size=questions)].mean()
        for _ in range(RESAMPLES)
    ]
    low, high = np.quantile(means, [round((1 - COMPARISON_LEVEL) / 2, 12), (1 + COMPARISON_LEVEL) / 2])
    return float(low), float(high)


def figures(evaluations: Sequence[Path]) -> dict[str, Any]:
    """Of one arm, an evaluation per seed."""
    read = [read_predictions(each) for each in evaluations]
    found: dict[str, Any] = {}
    for metric in METRICS.values():
        values = np.array([[getattr(each, metric) or 0.0 for each in run] for run in read])
        low, high = interval(values)
        by_seed = [round(float(each), 4) for each in values.mean(axis=1)]
        found[metric] = {"mean": float(values.mean()), "low": low, "high": high, "by_seed": by_seed}
    every = [each for run in read for each in run]
    found["searches"] = float(np.mean([each.searches for each in every]))
    found["no_answer"] = float(np.mean([each.answer is None for each in every]))
    return found


def differences(comparison: Path) -> dict[str, Any]:
    """Paired differences of a comparison to its reference, by arm and metric."""
    content = json.loads((comparison / "compare.json").read_bytes())
    return {pair["other"]: pair["metrics"] for pair in content["pairs"]}


def verdict(before: Mapping[str, Any], against: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What the figures say, in sentences.

    before: EM of the student before preferences. against: differences by reference, then by arm.
    """
    low, high = RANGE
    if not all(low <= each <= high for each in before["by_seed"]):
        shown = ", ".join(f"{each:.0%}" for each in before["by_seed"])
        return [f"Inconclusive: a student stood outside {low:.0%} to {high:.0%} EM before preferences ({shown})."]
    return [sentence(arm, reference, metrics) for reference, arms in against.items() for arm, metrics in arms.items()]


def sentence(arm: str, reference: str, metrics: Mapping[str, Any]) -> str:
    """A difference counts where the intervals of EM and of cover-EM lie on the same side of 0."""
    gain = f"{100 * metrics['em']['value']:+.1f} EM"
    sides = {_side(metrics[name]) for name in ("em", "cover_em")}
    if sides == {1}:
        return f"`{arm}` gains over `{reference}` ({gain}), and so does cover-EM."
    if sides == {-1}:
        return f"`{arm}` loses against `{reference}` ({gain}), and so does cover-EM."
    return f"`{arm}` against `{reference}`: no difference that these questions and seeds show ({gain})."


def _side(delta: Mapping[str, Any]) -> int:
    return int(delta["low"] > 0) - int(delta["high"] < 0)


def report(found: Mapping[str, Any]) -> Iterator[str]:
    """Markdown of everything in `loop.json` that a reader needs."""
    plan, data, arms = found["plan"], found["data"].values(), found["arms"]
    yield "\n**The loop closes on a laptop** (benchmarks/loop.py)"
    yield (
        f"\n{found['questions']:,} questions of `{found['split']}`, greedy replies; {plan['seeds']} training seeds, "
        "each a student of its own from random weights on, with its own exploration, pairs and arms. "
        f"Pairs of every arm of preferences: {_each(data, 'pairs')}; further SFT reads as many words of "
        f"{_each(data, 'best_path_steps')} steps on best paths ({_each(data, 'sft_epochs')} passes). "
        f"Intervals: {percent(COMPARISON_LEVEL)}, over questions and seeds."
    )
    yield (
        f"\nWarm-up {plan['warmup_epochs']:g} passes; exploration of {plan['questions']['explore']:,} questions at "
        f"temperature {plan['temperature']:g}, {plan['calls']} replies each at most; DPO {plan['dpo_epochs']:g} passes "
        f"at {plan['dpo_rate']:g}, beta {plan['beta']:g}, batches of 16; further SFT at {plan['sft_rate']:g}."
    )
    yield from table(
        "Arms",
        {
            "arm": list(arms),
            **{name: [shown(each[key], "mean", sign="") for each in arms.values()] for name, key in METRICS.items()},
            "EM by seed": [" ".join(f"{100 * each:.1f}" for each in arm["em"]["by_seed"]) for arm in arms.values()],
            "searches": [f"{each['searches']:.2f}" for each in arms.values()],
            "no answer": [f"{each['no_answer']:.1%}" for each in arms.values()],
        },
    )
    rows = [(arm, reference, each) for reference, of in found["against"].items() for arm, each in of.items()]
    yield from table(
        "Paired differences",
        {
            "arm": [arm for arm, _, _ in rows],
            "against": [reference for _, reference, _ in rows],
            **{name: [shown(each[key], "value", sign="+") for _, _, each in rows] for name, key in METRICS.items()},
        },
    )
    yield ""
    yield from (f"- {each}" for each in found["verdict"])
    minutes = {kind: seconds / 60 for kind, seconds in found["seconds_by_kind"].items()}
    yield f"\nMinutes of all phases: {', '.join(f'{kind} {each:.1f}' for kind, each in minutes.items())}."


def _each(data: Collection[Mapping[str, Any]], name: str) -> str:
    return ", ".join(str(each[name]) for each in data)


def shown(figure: Mapping[str, float], name: str, *, sign: str) -> str:
    low, middle, high = (f"{100 * figure[each]:{sign}.1f}" for each in ("low", name, "high"))
    return f"{middle} ({low} to {high})"
