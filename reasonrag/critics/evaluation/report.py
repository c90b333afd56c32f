"""The record of `critic_evaluation.json`, and the verdict: may the critic be offered?

Decides the file's fields, what fails a critic, and when nothing can be said. Computes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, Field

from reasonrag.critics.evaluation.measures import Estimate
from reasonrag.rendering import Line, Part, Table, counted

REPORT: Final = "critic_evaluation.json"
SCHEMA: Final = "reasonrag.critic-evaluation/1"
CLEAR_GAP: Final = 0.3
"""Pairs with a larger true gap decide."""
GAP: Final = f"{CLEAR_GAP:g}".removeprefix("0")
BUCKETS: Final = ("below .1", f".1 to {GAP}", f"above {GAP}")
CLEAR: Final = BUCKETS[-1]
LEAST_ACCURACY: Final = 0.75
FEWEST_CLEAR_PAIRS: Final = 30
MOST_LOST: Final = 0.05
"""Share of the scores that may have failed."""
Truth = Literal["fresh continuations", "values of the tree"]


class RunResult(BaseModel):
    """One run: another policy, or another corpus, shows whether the critic transfers."""

    run: str
    questions: int
    seen: int
    """Questions left out because the critic was trained on them."""
    truth: Truth
    """Of the pairs."""
    pairs: int
    accuracy: Estimate = Estimate()


class CriticEvaluation(BaseModel):
    """Content of `critic_evaluation.json`."""

    schema_version: Literal["reasonrag.critic-evaluation/1"] = SCHEMA
    critic: str
    against: str | None
    """The outcome model."""
    runs: list[RunResult]
    questions: int
    accuracy: Estimate
    """Share of sibling pairs whose truly better step scores higher; equal scores count half."""
    by_action_type: dict[str, Estimate] = Field(default_factory=dict)
    """Of the better step."""
    by_layer: dict[str, Estimate] = Field(default_factory=dict)
    by_margin: dict[str, Estimate] = Field(default_factory=dict)
    """By the true gap."""
    outcome_model: Estimate | None = None
    """The outcome model's accuracy on the same pairs."""
    advantage: Estimate | None = None
    """Of the critic over the outcome model, pair by pair."""
    step_only: Estimate = Estimate()
    """Accuracy without the state's user turn."""
    shorter: Estimate = Estimate()
    """Accuracy of always taking the shorter step."""
    scores: int = 0
    """Wanted, of the critic and the outcome model."""
    given_up: int = 0
    """Of them, those that failed."""
    calls: int = 0
    session_calls: int = 0
    verdict: Literal["passed", "failed", "undecided"] = "undecided"
    failures: list[str] = Field(default_factory=list)
    """Why it failed, and is not offered."""
    undecided: list[str] = Field(default_factory=list)
    """Why there is no verdict."""
    remarks: list[str] = Field(default_factory=list)
    settings: dict[str, Any] = Field(default_factory=dict)
    versions: dict[str, str] = Field(default_factory=dict)
    out: str = ""

    def shown(self) -> Iterator[Part]:
        """Accuracy, controls, and the verdict."""
        yield Table(f"critic {self.critic}", self._rows())
        yield Table("pairs ranked right, by true gap", self.by_margin.items())
        yield Table("by type of the better step", self.by_action_type.items())
        yield Table("by depth", self.by_layer.items())
        yield from (f"- {each}" for each in self.remarks)
        yield Line(f"wrote {Path(self.out) / REPORT}")
        if self.verdict == "failed":
            yield "NOT OFFERED: " + "; ".join(self.failures)
        elif self.verdict == "undecided":
            yield "undecided: " + "; ".join(self.undecided)
        else:
            yield "passed: the critic may be used"

    def _rows(self) -> Iterator[tuple[str, object]]:
        for run in self.runs:
            seen = f", {run.seen:,} left out as trained on" if run.seen else ""
            asked = f"{counted(run.questions, 'question')}{seen}, {counted(run.pairs, 'pair')} by {run.truth}"
            yield run.run, f"{asked}: {run.accuracy}"
        yield "pairs ranked right", self.accuracy
        if self.outcome_model and self.advantage:
            yield "the outcome model", self.outcome_model
            yield "advantage over it", f"{self.advantage:+}"
        yield "baseline: shorter step", self.shorter
        yield "baseline: step without its state", self.step_only
        lost = f", {self.given_up:,} failed (the same command retries them)" if self.given_up else ""
        yield "asked", f"{counted(self.calls, 'score')}, {self.session_calls:,} new{lost}"


def decided(found: CriticEvaluation) -> CriticEvaluation:
    """The evaluation with its verdict: undecided where the figures cannot tell, and where nothing says that the critic
    is better than an outcome model."""
    clear, advantage = found.by_margin.get(CLEAR, Estimate()), found.advantage or Estimate()
    undecided, failures = [], []
    if clear.value is None or clear.n < FEWEST_CLEAR_PAIRS:
        undecided.append(
            f"there are {clear.n:,} pairs with a true gap above {GAP}, and {FEWEST_CLEAR_PAIRS} are needed to tell: "
            "give runs of more questions"
        )
    elif clear.value < LEAST_ACCURACY:
        failures.append(
            f"it is right about {clear.value:.0%} of {clear.n:,} pairs with a true gap above {GAP}, and "
            f"{LEAST_ACCURACY:.0%} are needed"
        )
    if found.given_up > MOST_LOST * found.scores:
        undecided.append(
            f"{found.given_up:,} of {found.scores:,} scores failed (see failures.jsonl); the same command asks again"
        )
    if advantage.value is not None and advantage.low is not None and advantage.low <= 0:
        failures.append(
            f"it is not better than the outcome model {found.against}: {advantage.value:+.1%} of the pairs "
            f"({advantage.low:+.1%} to {advantage.high:+.1%})"
        )
    if undecided:  # too little is known to fail it, either
        failures = []
    elif advantage.value is None and not failures:
        undecided.append(
            "it was not compared with an outcome model of the same size: --against CRITIC, trained on data of "
            "reasonrag pairs --label outcome"
        )
    verdict = "undecided" if undecided else "failed" if failures else "passed"
    return found.model_copy(update={"verdict": verdict, "failures": failures, "undecided": undecided})


def remarks_of(found: CriticEvaluation) -> list[str]:
    """What a reader of the figures should know."""
    told = []
    if any(each.truth == "values of the tree" for each in found.runs):
        told.append("ground truth is values of the tree itself; reasonrag calibrate RUN gives fresh ones")
    if found.shorter.value is not None and found.accuracy.value is not None:
        best = max(found.shorter.value, 1 - found.shorter.value)
        if best >= found.accuracy.value:
            told.append(f"the length of a step alone is as good: {best:.0%}")
        if found.step_only.high is not None and found.step_only.high >= found.accuracy.value:
            told.append(
                f"it ranks {found.step_only.value:.0%} of the pairs right without their state: it may judge by what a "
                "step looks like, not by whether it fits"
            )
    return told
