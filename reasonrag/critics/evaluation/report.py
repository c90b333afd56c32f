"""The record of `critic_evaluation.json`, and what is shown of it; `reasonrag view` draws it.

Decides the file's fields. Knows neither what fails a critic (`verdict`) nor how a figure is computed (`measures`).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, Field

from reasonrag.critics.evaluation.measures import Estimate
from reasonrag.rendering import Line, Part, Shown, Table, Verdict, counted

EVALUATION: Final = "evaluation"
"""Folder below the critic's."""
REPORT: Final = "critic_evaluation.json"
CLEAR_GAP: Final = 0.3
"""Pairs with a larger true gap decide."""
GAP: Final = f"{CLEAR_GAP:g}".removeprefix("0")
BUCKETS: Final = ("below .1", f".1 to {GAP}", f"above {GAP}")
CLEAR: Final = BUCKETS[-1]
ChainKind = Literal["golden", "shuffled", "won", "lost"]
Truth = Literal["fresh continuations", "values of the tree"]


class RunResult(BaseModel):
    """One run: another policy, or another corpus, shows whether the critic transfers."""

    run: str
    questions: int = 0
    seen: int = 0
    """Questions left out because the critic was trained on them."""
    truth: Truth
    """Of the pairs."""
    pairs: int = 0
    datasets: list[str] = []
    """dataset/split of its questions; not among `trained_on`: another domain."""
    accuracy: Estimate = Estimate()

    @property
    def told(self) -> str:
        """Its questions and pairs, in words."""
        seen = f", {self.seen:,} left out as trained on" if self.seen else ""
        asked = f"{counted(self.questions, 'question')} of {', '.join(self.datasets)}{seen}"
        return f"{asked}, {counted(self.pairs, 'pair')} by {self.truth}"


class CriticEvaluation(BaseModel, Shown):
    """Content of `critic_evaluation.json`."""

    schema_version: Literal["reasonrag.critic-evaluation/1"] = "reasonrag.critic-evaluation/1"
    critic: str
    trained_on: list[str] = Field(default_factory=list)
    """dataset/split; empty where its folder does not say."""
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
    golden_over_shuffled: Estimate = Estimate()
    """Share of chains to right answers that score higher than steps of other questions in the same states."""
    spread_at_equal_outcomes: Estimate = Estimate()
    """Variance of a question's chain scores among equal outcomes, over that of all of them."""
    chain_scores: dict[ChainKind, list[float]] = Field(default_factory=dict)
    """Of won and lost chains less the mean of their question's, of questions with both."""
    gaps: list[float] = Field(default_factory=list)
    """Of each sibling pair, the score of the truly better step less that of the other."""
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

    @property
    def accuracies(self) -> dict[str, Estimate]:
        """Shares of pairs and chains that are ranked right, by which, as far as there are any."""
        found = {"all pairs": self.accuracy}
        found |= {f"run {Path(each.run).name}": each.accuracy for each in self.runs if len(self.runs) > 1}
        found |= {f"true gap {name}": each for name, each in self.by_margin.items()}
        found |= {f"better step: {name}": each for name, each in self.by_action_type.items()}
        found |= {f"depth {name}": each for name, each in self.by_layer.items()}
        found |= {"the outcome model": self.outcome_model} if self.outcome_model else {}
        found |= {"baseline: the shorter step": self.shorter, "baseline: without the state": self.step_only}
        found |= {"golden chains above shuffled ones": self.golden_over_shuffled}
        return {name: each for name, each in found.items() if each.value is not None}

    def shown(self) -> Iterator[Part]:
        """The verdict, accuracy and controls."""
        yield self.decided
        yield Table(f"critic {self.critic}", self._rows())
        yield Table("pairs ranked right, by true gap", self.by_margin.items())
        yield Table("by type of the better step", self.by_action_type.items())
        yield Table("by depth", self.by_layer.items())
        yield from (f"- {each}" for each in self.remarks)
        out = Path(self.out)
        draw = shlex.join(["reasonrag", "view", str(out.parent if out.name == EVALUATION else out)])
        yield Line(f"wrote {out / REPORT}, which {draw} draws")

    @property
    def decided(self) -> Verdict:
        if self.verdict == "failed":
            return Verdict("error: NOT OFFERED: " + "; ".join(self.failures))
        undecided = "warning: undecided: " + "; ".join(self.undecided)
        return Verdict(undecided if self.verdict == "undecided" else "passed: the critic may be used")

    @property
    def said(self) -> list[str]:
        """What it was held against, remarks, and last the verdict, in sentences."""
        return [
            f"trained on questions of {', '.join(self.trained_on) or 'unknown data sets'}",
            *(f"held against {Path(each.run).name}: {each.told}" for each in self.runs),
            *([f"advantage over the outcome model {self.against}: {self.advantage:+}"] if self.advantage else []),
            f"spread of chains at equal outcomes: {self.spread_at_equal_outcomes}",
            *self.remarks,
            self.decided.removeprefix("error: ").removeprefix("warning: "),
        ]

    def _rows(self) -> Iterator[tuple[str, object]]:
        yield "trained on", self.trained_on
        for run in self.runs:
            yield run.run, f"{run.told}: {run.accuracy}"
        yield "pairs ranked right", self.accuracy
        if self.outcome_model and self.advantage:
            yield "the outcome model", self.outcome_model
            yield "advantage over it", f"{self.advantage:+}"
        yield "baseline: shorter step", self.shorter
        yield "baseline: step without its state", self.step_only
        yield "golden chains above shuffled ones", self.golden_over_shuffled
        yield "spread of chains at equal outcomes", self.spread_at_equal_outcomes
        lost = f", {self.given_up:,} failed (the same command retries them)" if self.given_up else ""
        yield "asked", f"{counted(self.calls, 'score')}, {self.session_calls:,} new{lost}"
