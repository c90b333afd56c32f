"""What the proof came to: paired differences of seeds, what could have been seen, and what may be concluded.

Decides the analysis that `PROOF.md` announces. Reads the figures of seeds alone (`proof/seed-N.json`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from math import atan, sqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from reporting import table

from reasonrag.evaluation.significance import detectable, equivalence, paired_differences

PRIMARY = "consensus", "outcome"
SECONDARY = (("sft", "consensus"), ("consensus", "placebo"), ("values", "outcome"))
"""Tested by Holm, in this order where two are as improbable."""
EQUIVALENT, WIDE_SD, FIRST_SEEDS, MORE_SEEDS = 2.0, 3.2, 4, 16
"""Points of EM within which two arms are alike; the spread of differences, in how many first seeds, from which on
twelve are too few; and how many there are then."""
LEVEL = 0.05
OF_LABELS = ("rates", "revalued", "draws")
"""What a bed and its seeds may have of their own: rates are chosen later, and a bed's labels are looked at closer."""
Answers = NDArray[np.float64]
"""0 or 1, of seeds (rows) and questions (columns)."""


def read_seeds(folder: Path) -> list[dict[str, Any]]:
    """In order. Raises SystemExit where some are of another plan."""
    found = sorted(
        (json.loads(each.read_bytes()) for each in folder.glob("seed-*.json")), key=lambda each: int(each["seed"])
    )
    for each in found:
        if each["plan"] != found[0]["plan"]:
            raise SystemExit(f"{folder}: seeds {found[0]['seed']} and {each['seed']} are of other plans")
    return found


def gap_of_bed(folder: Path, plan: Mapping[str, Any]) -> float | None:
    """How much righter the labels of consensus were than those of outcome, in the bed of this plan (`bed-N.json`):
    None where it is accepted or was not explored."""

    def same(other: Mapping[str, Any]) -> bool:
        return all(other.get(name) == each for name, each in plan.items() if name not in OF_LABELS)

    beds = [json.loads(file.read_bytes()) for file in folder.glob("bed*.json")]
    return next((bed["gap"] for bed in beds if not bed["accepted"] and same(bed["plan"])), None)


def label_share(calibration: Mapping[str, Any]) -> dict[str, Any]:
    """Labels right, wrong and tied by fresh continuations, and the mean difference that these see."""
    found = calibration["revaluation"]
    right, wrong = round(found["confirmed"]["right"]["share"] * found["pairs"]), found["confirmed"]["wrong"]
    return {"right": right, "wrong": wrong, "ties": found["confirmed"]["ties"], "margin": found["mean_fresh_margin"]}


def answers(seeds: Sequence[Mapping[str, Any]], arm: str) -> Answers:
    return np.array([[float(each) for each in seed["arms"][arm]["em"]] for seed in seeds])


def difference(seeds: Sequence[Mapping[str, Any]], arm: str, reference: str) -> dict[str, float]:
    """Of EM, in points: mean over seeds of the paired differences, its t interval, that of a bootstrap over seeds and
    questions, the 90 % interval of equivalence, p by t, and the smallest difference that is found four times in five.
    Raises ValueError where the seeds do not differ, which tells nothing of others."""
    sides = answers(seeds, reference), answers(seeds, arm)
    [found] = paired_differences([sides], paired_seeds=True)
    within = equivalence(*sides, EQUIVALENT, paired_seeds=True)
    if found.value is None or found.t_low is None or found.t_high is None or within is None:
        raise ValueError(f"{arm} and {reference} differ by the same amount in all seeds: give more of them")
    spread = float(np.std(found.by_seed, ddof=1))
    ends = {"low": found.t_low, "high": found.t_high, "resampled_low": found.low, "resampled_high": found.high}
    points = {name: 100 * (each or 0.0) for name, each in ({"value": found.value, "sd": spread} | ends).items()}
    return points | {
        "equivalent_low": within.low,
        "equivalent_high": within.high,
        "detectable": detectable(found) or 100.0,
        "p": two_sided(found.value * sqrt(len(seeds)) / spread, len(seeds)),
    }


def two_sided(t: float, seeds: int) -> float:
    """p of Student's t: of the angle whose tangent is t / sqrt(freedom), the density goes with cos**(freedom - 1)."""
    edges = np.linspace(0, np.pi / 2, 1_000_001)
    beyond = np.cumsum((np.cos((edges[1:] + edges[:-1]) / 2) ** (seeds - 2))[::-1])[::-1]
    return float(np.interp(atan(abs(t) / sqrt(seeds - 1)), edges[:-1], beyond / beyond[0]))


def holm(tests: Sequence[float]) -> list[float]:
    """Adjusted p, in the order given: Holm, Scand. J. Statist. 6 (1979)."""
    order, found, least = sorted(range(len(tests)), key=tests.__getitem__), [0.0] * len(tests), 0.0
    for rank, place in enumerate(order):
        least = max(least, min(1.0, (len(tests) - rank) * tests[place]))
        found[place] = least
    return found


def pooled_sd(seeds: Sequence[Mapping[str, Any]]) -> float:
    """Of the paired differences consensus - outcome and sft - outcome; their signs are not in it."""
    means = {arm: answers(seeds, arm).mean(axis=1) for arm in ("consensus", "sft", "outcome")}
    spreads = [100 * np.std(means[arm] - means["outcome"], ddof=1) for arm in ("consensus", "sft")]
    return float(np.sqrt(np.mean(np.square(spreads))))


def conclusion(primary: Mapping[str, float], shown: Mapping[tuple[str, str], int], lacks: Sequence[str] = ()) -> str:
    """In the words that the plan allows. shown: of secondary differences, 1 if one is above 0 by Holm, -1 below, else
    0. lacks: what the plan asks for and is not there, which makes it exploratory."""
    found = f"{primary['value']:+.1f} EM (95 % CI {primary['low']:+.1f} to {primary['high']:+.1f})"
    seen = f"a difference of {primary['detectable']:.1f} points would have been found four times in five"
    if shown.get(("consensus", "placebo")) != 1:
        said = (
            "DPO was not shown to transmit labels in this bed (consensus - placebo), so nothing is said of process and "
            f"outcome. Their difference was {found}; {seen}."
        )
    elif primary["low"] > 0:
        said = f"Pairs by consensus teach more than pairs by outcome, in this bed: {found}."
    elif primary["high"] < 0:
        said = f"Pairs by outcome teach more than pairs by consensus, in this bed: {found}."
    elif primary["equivalent_low"] > -EQUIVALENT and primary["equivalent_high"] < EQUIVALENT:
        said = f"Both teach as much within {EQUIVALENT:.0f} points, in this bed: {found}; {seen}."
    else:
        said = f"No difference was shown, and none was excluded: {found}; {seen}."
    if shown.get(("sft", "consensus")) == 1:
        said += " Best paths teach more than preferences, in this bed."
    return f"Exploratory: {'; '.join(lacks)}. {said}" if lacks else said


def report(seeds: Sequence[Mapping[str, Any]], gap: float | None = None) -> Iterator[str]:
    """Markdown of everything that a reader needs. gap: that of a bed in which it is too small."""
    plan = seeds[0]["plan"]
    pairs = sorted({arm["pairs"] for seed in seeds for arm in seed["arms"].values() if "pairs" in arm})
    dollars = np.mean([run["cost_usd"] for seed in seeds for run in seed["runs"].values()])
    yield "\n**Process preferences against outcome preferences at equal dollars** (benchmarks/proof.py, plan PROOF.md)"
    yield (
        f"\n{plan['questions']['heldout']:,} held-out questions of {plan['bed']}, greedy replies; seeds "
        f"{', '.join(str(each['seed']) for each in seeds)}. ${dollars:.2f} for each "
        f"exploration at GPT-4o's list price; {' to '.join(map(str, pairs[:1] + pairs[1:][-1:]))} "
        f"pairs or as many words an arm of a seed ({plan['pairs']} were planned), {plan['steps']} steps."
    )
    arms = [arm for arm in seeds[0]["arms"] if all(arm in seed["arms"] for seed in seeds)]
    rows = [_arm_row([seed["arms"][arm] for seed in seeds], arm) for arm in arms]
    yield from table("Arms", {name: [row[name] for row in rows] for name in rows[0]})
    if len(seeds) > 1:
        tested = [each for each in SECONDARY if {*each} <= {*arms}]
        yield from (
            f"\nNot all seeds have both arms of {' - '.join(each)}." for each in SECONDARY if each not in tested
        )
        yield from _differences(seeds, tested, gap)
    yield from _costs(seeds)


def _differences(
    seeds: Sequence[Mapping[str, Any]], secondary: Sequence[tuple[str, str]], gap: float | None
) -> Iterator[str]:
    tested = [PRIMARY, *secondary]
    found = [difference(seeds, *each) for each in tested]
    adjusted = [found[0]["p"], *holm([each["p"] for each in found[1:]])]
    yield from table(
        "Paired differences of EM (t interval over seeds; bootstrap over seeds and questions; secondary p by Holm)",
        {
            "difference": [" - ".join(each) for each in tested],
            "points": [f"{each['value']:+.1f} {_ends(each, 'low', 'high')}" for each in found],
            "bootstrap": [_ends(each, "resampled_low", "resampled_high") for each in found],
            "SD of seeds": [f"{each['sd']:.1f}" for each in found],
            "p": [f"{each:.2g}" for each in adjusted],
            "detectable": [f"{each['detectable']:.1f}" for each in found],
        },
    )
    shown = {
        each: (1 if of["value"] > 0 else -1) if p < LEVEL else 0
        for each, of, p in zip(tested[1:], found[1:], adjusted[1:], strict=True)
    }
    spread = pooled_sd(seeds[:FIRST_SEEDS])
    wanted = seeds[0]["plan"]["seeds"] if spread <= WIDE_SD else MORE_SEEDS
    lacks = ["fewer seeds than the plan asks for"] if len(seeds) < wanted else []
    if gap is not None:
        lacks.append(f"in the bed's own seed labels of consensus were {100 * gap:.1f} points righter, too little a gap")
    yield f"\n{conclusion(found[0], shown, lacks)}"
    yield (
        f"\nThe 90 % interval of the first is {_ends(found[0], 'equivalent_low', 'equivalent_high')}. SD of the "
        f"differences of the first {min(FIRST_SEEDS, len(seeds))} seeds to `outcome`, pooled over `consensus` and "
        f"`sft`: {spread:.1f} points."
    )


def _arm_row(found: Sequence[Mapping[str, Any]], arm: str) -> dict[str, str]:
    em = [100 * each["em"].count("1") / len(each["em"]) for each in found]
    labels = [each["labels"] for each in found if "labels" in each]
    right, wrong = (sum(each[name] for each in labels) for name in ("right", "wrong"))
    logps = [each["training"]["last"] for each in found if "training" in each]
    return {
        "arm": arm,
        "EM": f"{np.mean(em):.1f} ({min(em):.1f} to {max(em):.1f})",
        "labels right, ties apart": f"{right / (right + wrong):.1%} of {right + wrong}" if labels else "-",
        "true margin": f"{np.mean([each['margin'] for each in labels]):.3f}" if labels else "-",
        "gold found": f"{np.mean([each['gold_found'] for each in found]):.1%}",
        "unreadable": f"{np.mean([each['unreadable'] / len(each['em']) for each in found]):.2%}",
        "log p, chosen / rejected": f"{np.mean(logps, axis=0)[0]:.1f} / {np.mean(logps, axis=0)[1]:.1f}"
        if logps
        else "-",
    }


def _costs(seeds: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    runs = {split: [seed["runs"][split] for seed in seeds] for split in seeds[0]["runs"]}
    yield from table(
        "Explorations, mean of seeds",
        {
            "run": list(runs),
            "questions done": [f"{np.mean([each['done'] for each in of]):.0f}" for of in runs.values()],
            "replies": [f"{np.mean([each['calls'] for each in of]):,.0f}" for of in runs.values()],
            "dollars": [f"{np.mean([each['cost_usd'] for each in of]):.2f}" for of in runs.values()],
        },
    )
    critics = np.mean([seed["seconds"]["critics"] for seed in seeds]) / 60
    whole = np.mean([sum(took for name, took in seed["seconds"].items() if name != "explored") for seed in seeds]) / 60
    yield f"\nMinutes of a core a seed: {whole:.0f}, of them {critics:.1f} of the critics, which cost no dollars."


def _ends(found: Mapping[str, float], low: str, high: str) -> str:
    return f"({found[low]:+.1f} to {found[high]:+.1f})"
