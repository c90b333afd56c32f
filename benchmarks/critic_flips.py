"""How much wrong labels cost a critic: `pairs --flip`, where every value is known, in some minutes on one core.

    python benchmarks/critic_flips.py --append benchmarks/RESULTS.md     a phase that is done is not repeated

The three lines of docs/how-to/critics.md for every share, in the world of `critics.py`, on few of its questions: labels
by the values of the search, a critic from random weights, the oracle's values as the truth.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from critics import CONFIDENCE, Experiment, Plan, with_true_values
from critics_report import read_json
from loop import lines_of, rows_of
from lucky_world import Size, write_world
from reporting import ROOT, publish, table

import reasonrag
from preference.export.formats import PAIRS_FILE
from reasonrag.critics.evaluation.measures import Estimate
from reasonrag.critics.evaluation.report import CLEAR, CriticEvaluation

FLIPPED = (0, 10, 20)
"""Percent of the labels that are exchanged."""
PLAN = replace(
    Plan(),
    size=Size(towns=60, people=160, works=200, organisations=50),
    questions={"warmup": 1, "explore": 240, "dev": 12, "heldout": 60},
    calls=64,
)
SMALL = ("--width", "32", "--layers", "1", "--heads", "2")


def make(experiment: Experiment) -> None:
    """The trees, the labels, and the weights that all critics begin with."""
    phases, work, world = experiment.phases, experiment.work, experiment.world()
    phases.once("world", lambda: write_world(world, PLAN.size, PLAN.questions, seed=0))
    experiment.explore("explore", "explore")
    experiment.explore("heldout", "heldout")
    runs = experiment.run("heldout"), experiment.run("heldout oracle")
    phases.once("oracle", lambda: with_true_values(*runs, experiment.known("heldout", PLAN.skill)))
    phases.once("labelled", partial(experiment.pairs, "explore", "labelled", min_confidence=CONFIDENCE))
    rows = rows_of(work / "data" / "labelled" / PAIRS_FILE)
    texts = [row[name] for row in rows for name in ("prompt", "chosen", "rejected")] + ["system user assistant"]
    texts += [json.loads(line)["contents"] for line in lines_of(world / "corpus.jsonl")]
    texts += [json.loads(line)["question"] for line in lines_of(world / "heldout.jsonl")]
    words, script = work / "words.txt", Path(__file__).with_name("loop_student.py")
    words.write_text("\n".join(dict.fromkeys(texts)), "utf-8")
    phases.command("student", sys.executable, str(script), str(work / "student"), "--texts", str(words), *SMALL)


def judged(experiment: Experiment, share: int) -> CriticEvaluation:
    """The three lines."""
    name, out = f"flip-{share}", experiment.critic(f"flip-{share}") / "evaluation"
    experiment.phases.once(f"pairs {name}", lambda: experiment.unfiltered_pairs("labelled", name, flip=share / 100))
    experiment.train(name, name, "--set", "learning_rate=0.005")
    runs = experiment.critic(name), experiment.run("heldout oracle")
    experiment.phases.once(f"judged {name}", lambda: reasonrag.evaluate_critic(*runs, out=out))
    return CriticEvaluation.model_validate(read_json(out / "critic_evaluation.json"))


def report(experiment: Experiment) -> Iterator[str]:
    make(experiment)
    found = {share: judged(experiment, share) for share in FLIPPED}
    rows = len(rows_of(experiment.work / "data" / "labelled" / PAIRS_FILE))
    yield "\n**Critics of flipped labels** (benchmarks/critic_flips.py)\n"
    yield f"{rows} pairs of {PLAN.questions['explore']} questions, 200 steps of 16, from random weights (95 %)."
    figures: dict[str, list[Estimate]] = {
        "held-out pairs ranked right": [each.accuracy for each in found.values()],
        f"gap {CLEAR}": [each.by_margin.get(CLEAR, Estimate()) for each in found.values()],
        "without the state": [each.step_only for each in found.values()],
        "golden above shuffled": [each.golden_over_shuffled for each in found.values()],
        "spread at equal outcomes": [each.spread_at_equal_outcomes for each in found.values()],
    }
    columns = {name: [_percent(each) for each in column] for name, column in figures.items()}
    yield from table("By the oracle", {"flipped": [f"{share} %" for share in found], **columns})


def _percent(each: Estimate) -> str:
    if each.value is None or each.low is None or each.high is None:
        return "-"
    return f"{100 * each.value:.1f} ({100 * each.low:.1f} to {100 * each.high:.1f}) of {each.n}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "critic-flips", help="[%(default)s]")
    parser.add_argument("--append", type=Path, help="add the report to this file")
    asked = parser.parse_args()
    asked.work.mkdir(parents=True, exist_ok=True)
    publish(report(Experiment(PLAN, asked.work.resolve())), asked.append)


if __name__ == "__main__":
    main()
