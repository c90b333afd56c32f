"""Reinforcement in the closed world of the loop: does a student rise by rounds of its own attempts, and by which?

    python benchmarks/rounds.py --append benchmarks/RESULTS.md          policy gradients beside SFT, one student

A student of 0.6 million parameters, warmed up by the loop, draws eight attempts at each of 200 questions a round and
learns from them (`reasonrag rounds`). Rates were chosen by one round of seed 1, on questions of the training split.
All are asked the same held-out questions, greedily. Decides arms, sizes and the table; a phase that is done is not
repeated.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from loop import BEFORE, CONFIGS, Loop, Plan, lines_of
from loop_report import differences, figures, shown
from reporting import ROOT, publish, table

from reasonrag.training.policy.rounds import PAGE

RATES = ("--set", "train.learning_rate=1e-4", "--set", "train.per_device_train_batch_size=64")
POLICY = ("policy-smoke-cpu", *RATES, "--set", "train.max_length=512")
SFT = (str(CONFIGS / "sft.yaml"), "--train", "sft", "--set", "train.learning_rate=3e-4")
ARMS = {
    "outcome": POLICY,
    "sft": (*SFT, "--set", "train.num_train_epochs=1.0", "--set", "train.train_on_prompt=false"),
}
"""Each with what `rounds` is told."""


@dataclass(frozen=True)
class RoundsPlan(Plan):
    """All numbers; the loop's but for the split of its questions."""

    questions: dict[str, int] = field(
        default_factory=lambda: {"warmup": 900, "explore": 1600, "dev": 50, "heldout": 600}
    )
    rounds: int = 8
    sample: int = 200
    group: int = 8


@dataclass
class Rounds(Loop):
    """One run of an experiment, all in `work`."""

    plan: RoundsPlan

    def reinforce(self, seed: int, arm: str) -> None:
        """Rounds of an arm, and what comes of them."""
        home, plan = self.of(seed), self.plan
        sizes = "--rounds", str(plan.rounds), "--group", str(plan.group), "--sample", str(plan.sample)
        self.phases.reasonrag(
            f"seed{seed} rounds {arm}",
            *("rounds", *ARMS[arm], *self.asked("explore"), *sizes, "--model", str(home / BEFORE)),
            *("--max-reply-tokens", "64", "--concurrency", "64", "--seed", str(1000 * seed), "--run", str(home / arm)),
        )
        self.evaluate(seed, arm, f"{arm}/model")

    def learn(self, seed: int) -> None:
        self.warm_up(seed)
        self.evaluate(seed, BEFORE, BEFORE)
        for arm in ARMS:
            self.reinforce(seed, arm)

    def contrast(self) -> None:
        """`compare` of all arms against the student before."""
        groups = [
            word
            for arm in (BEFORE, *ARMS)
            for word in ("--group", f"{arm}={','.join(str(self.evaluation(seed, arm)) for seed in self.seeds)}")
        ]
        self.phases.reasonrag("against before", "compare", *groups, "--out", str(self.comparison(BEFORE)))


def report(rounds: Rounds) -> Iterator[str]:
    plan = rounds.plan
    yield f"\n**Reinforcement in the closed world: {', '.join(ARMS)}** (benchmarks/rounds.py)"
    yield (
        f"\n{plan.questions['heldout']} held-out questions, greedy replies. {plan.rounds} rounds of {plan.sample} of "
        f"{plan.questions['explore']} questions, {plan.group} attempts each; seeds: {plan.seeds}."
    )
    arms = {arm: figures([rounds.evaluation(seed, arm) for seed in rounds.seeds]) for arm in (BEFORE, *ARMS)}
    against = differences(rounds.comparison(BEFORE))
    yield from table(
        "EM, and its difference to the student before",
        {
            "arm": list(arms),
            "EM": [shown(each["em"], "mean", sign="") for each in arms.values()],
            "F1": [shown(each["f1"], "mean", sign="") for each in arms.values()],
            "no answer": [f"{each['no_answer']:.1%}" for each in arms.values()],
            "EM - before": ["", *(shown(against[arm]["em"], "value", sign="+") for arm in ARMS)],
        },
    )
    for arm in ARMS:
        told = [line for line in lines_of(rounds.of(0) / arm / PAGE) if line.startswith("|")]
        yield "\n".join([f"\nRounds of {arm}, seed 0\n", *told])
    minutes = {name: took / 60 for name, took in rounds.phases.took.items() if "rounds" in name}
    yield f"\nMinutes: {json.dumps({name: round(took, 1) for name, took in minutes.items()})}."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "rounds", help="where all goes [%(default)s]")
    parser.add_argument("--seeds", type=int, default=1, help="students [%(default)s]")
    parser.add_argument("--workers", type=int, default=2, help="students at work at a time [%(default)s]")
    parser.add_argument("--append", type=Path, help="add the report to this file")
    asked = parser.parse_args()
    rounds = Rounds(replace(RoundsPlan(), seeds=asked.seeds), asked.work.resolve())
    rounds.prepare()
    with ThreadPoolExecutor(asked.workers) as workers:
        list(workers.map(rounds.learn, rounds.seeds))
    rounds.contrast()
    publish(report(rounds), asked.append)


if __name__ == "__main__":
    main()
