"""Are labels by values righter than labels by one outcome, where the student is a real language model?

    make real-model                                            fetches and converts SmolLM2-135M-Instruct
    python benchmarks/real_labels.py --data-dir qa             all of it; a phase that is done is not repeated
    python benchmarks/real_labels.py --data-dir qa --quick     a few questions: that the path holds, no figures

The model is warmed up as in `real_model.py`, and explores 200 questions of PopQA and 2Wiki. Pairs are made twice of the
same trees, by the values of the search and by the outcome of one trajectory (`pairs --label outcome`), with the
thresholds of `pairs`. Of each, up to 160 of either set of questions are checked by fresh continuations of both sides
(`calibrate --data`): a label is right if their means order the sides as it does. Decides the measurement of point 6 of
the proof (PROOF.md); trains nothing on the pairs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from math import sqrt
from pathlib import Path
from statistics import NormalDist
from typing import Any

from phases import say
from real_model import Experiment, Plan, command_line
from real_model_report import SFT, read_json
from reporting import publish, table

import reasonrag
from preference.export.private_files import write_json
from preference.statistics import LABEL_LEVEL, Share, share_of
from reasonrag.serving.local_server import LocalServer, served

LABELS = ("value", "outcome")


@dataclass(frozen=True)
class LabelPlan(Plan):
    """checked: pairs of a label and a set of questions at most, with so many fresh continuations of each side."""

    explore: dict[str, int] = field(default_factory=lambda: {"popqa": 130, "2wikimultihopqa": 70})
    checked: int = 160
    draws: int = 8

    def quick(self) -> LabelPlan:
        few = {"popqa": 4, "2wikimultihopqa": 4, "hotpotqa": 2}
        return replace(self, warmup=few, explore=few, heldout=4, calls=12, checked=4, draws=2)


class Labels(Experiment):
    """One run of it in `work`."""

    plan: LabelPlan

    def run(self) -> None:
        self.phases.once("questions", self.write_questions)
        self.warm_up()
        self.phases.once("explore", self.explore)
        for label in LABELS:
            runs = map(str, map(self.explored, self.plan.explore))
            out = ("--out", str(self.data_of(label)), "--validation", "0")
            self.phases.reasonrag(f"pairs by {label}", "pairs", *runs, *out, "--label", label)
        self.phases.once("checked", self.check)

    def data_of(self, label: str) -> Path:
        return self.work / f"pairs-{label}"

    def check(self) -> None:
        """Fresh continuations by the model that explored; what is bought is kept, also after Ctrl-C."""

        async def asked() -> None:
            async with served(self.work / SFT, say=say) as server:
                for label, name in product(LABELS, self.plan.explore):
                    await asyncio.to_thread(self.check_rows, label, name, server)

        asyncio.run(asked())

    def check_rows(self, label: str, name: str, server: LocalServer) -> None:
        found = reasonrag.calibrate(
            self.explored(name),
            data=self.data_of(label),
            revalue=self.plan.checked,
            k=self.plan.draws,
            model=server.name,
            base_url=[server.base_url],
            price=f"{server.name}=0,0",
            concurrency=self.plan.concurrency,
        )
        write_json(self.checked(label, name), found.model_dump(mode="json"))

    def checked(self, label: str, name: str) -> Path:
        return self.work / f"checked-{label}-{name}.json"

    def pairs_of(self, label: str) -> list[dict[str, Any]]:
        """Those that were checked."""
        files = (self.checked(label, name) for name in self.plan.explore)
        return [pair for file in files for pair in read_json(file)["revaluation"]["sample"]]


def report(labels: Labels) -> Iterator[str]:
    """All pairs, and those of steps that go on: an answer has no continuation, so both ways label it alike."""
    plan = labels.plan
    yield (
        f"\n**Labels of a real language model's steps** (benchmarks/real_labels.py): SmolLM2-135M-Instruct after its "
        f"warm-up explored {sum(plan.explore.values())} questions ({plan.explore}) with up to {plan.calls} replies "
        f"each. Up to {plan.checked} pairs of a label and a set of questions, {plan.draws} fresh continuations of both "
        f"sides; 90 % intervals."
    )
    parts = {"all": ("query", "evidence", "answer"), "steps that go on": ("query", "evidence")}
    shares = {}
    for part, types in parts.items():
        rows = []
        for label in LABELS:
            pairs = [
                each for each in labels.pairs_of(label) if {each["action_type"], each["rejected_type"]} <= {*types}
            ]
            fresh = [each["fresh_margin"] for each in pairs if each["fresh_margin"] is not None]
            right, wrong = sum(each > 0 for each in fresh), sum(each < 0 for each in fresh)
            share = shares[part, label] = share_of(right, right + wrong)
            rows.append([label, str(len(pairs)), str(right), str(wrong), str(len(fresh) - right - wrong), told(share)])
        names = ("label", "pairs", "right", "wrong", "ties", "right, ties apart")
        yield from table(f"Pairs: {part}", dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))
    for part in parts:
        yield f"\n{part}: {gap(*(shares[part, label] for label in LABELS))}"


def told(share: Share) -> str:
    return f"{share.share:.1%} ({share.low:.1%} to {share.high:.1%})" if share.of else "-"


def gap(one: Share, other: Share) -> str:
    """The difference of two shares of different pairs, and the smallest that is found four times in five, by normal
    quantiles."""
    if not (one.of and other.of):
        return "one of the labels has no pair that is right or wrong."
    error = sqrt(sum(each.share * (1 - each.share) / each.of for each in (one, other)))
    value, half = one.share - other.share, NormalDist().inv_cdf((1 + LABEL_LEVEL) / 2) * error
    seen = (NormalDist().inv_cdf(0.975) + NormalDist().inv_cdf(0.8)) * error
    return (
        f"labels by values are righter by {100 * value:+.1f} points ({100 * (value - half):+.1f} to "
        f"{100 * (value + half):+.1f}); {100 * seen:.1f} would have been found four times in five."
    )


def main() -> None:
    asked = command_line(__doc__ or "", "real-labels")
    labels = Labels(LabelPlan().quick() if asked.quick else LabelPlan(), asked.work, asked.data_dir, asked.model)
    labels.run()
    publish(report(labels), asked.append)


if __name__ == "__main__":
    main()
