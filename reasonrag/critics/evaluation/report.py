"""The record of `critic_evaluation.json`, and the verdict: may the critic be offered?

Decides the file's fields and what fails a critic. Computes nothing.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import BaseModel, Field

from reasonrag.critics.evaluation.measures import Estimate
from reasonrag.llm.critic import CriticKind

REPORT: Final = "critic_evaluation.json"
SCHEMA: Final = "reasonrag.critic-evaluation/1"
BUCKETS: Final = ("below .1", ".1 to .3", "above .3")
CLEAR: Final = BUCKETS[-1]
"""Pairs with so large a true gap decide."""
LEAST_ACCURACY: Final = 0.75
FEWEST_CLEAR_PAIRS: Final = 30
SIZES: Final = (1, 2, 4, 8, 16)


class BestOf(BaseModel):
    """Mean true value of what is taken of n draws. cases: states, or questions, with at least n draws."""

    n: int
    cases: int
    random: float
    majority: float
    critic: float
    outcome_model: float | None
    oracle: float
    gain: Estimate
    """Of the critic over random."""


class Calibration(BaseModel):
    """Of a value critic, over steps. reliability: mean chance, mean true value and number of steps, by tenth of the
    chance."""

    auc: float | None
    brier: float
    skill: float | None
    """Share of the error of always saying the mean value that it avoids."""
    reliability: list[tuple[float, float, int]]


class RunResult(BaseModel):
    """One run: another policy, or another corpus, shows whether the critic transfers."""

    run: str
    questions: int
    seen: int
    """Questions left out because the critic was trained on them."""
    truth: Literal["fresh continuations", "values of the tree"]
    pairs: int
    accuracy: Estimate
    auc: float | None


class CriticEvaluation(BaseModel):
    """Content of `critic_evaluation.json`."""

    schema_version: Literal["reasonrag.critic-evaluation/1"] = SCHEMA
    critic: str
    kind: CriticKind
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
    calibration: Calibration | None = None
    """Null for a pairwise critic, whose scores mean nothing across states."""
    best_of_steps: list[BestOf] = Field(default_factory=list)
    best_of_trajectories: list[BestOf] = Field(default_factory=list)
    """By the score of the last step, of critic and outcome model alike."""
    earliest_error: dict[str, Any] = Field(default_factory=dict)
    true_state: Estimate = Estimate()
    """Share of right steps that score higher in their own state than in one of another question."""
    step_only: Estimate = Estimate()
    """Accuracy without the state's user turn."""
    shorter: Estimate = Estimate()
    """Accuracy of always taking the shorter step."""
    spread_at_equal_outcomes: float | None = None
    """Of trajectories' mean scores within a question's trajectories of equal outcome, over that of all: 0 for a critic
    that tells outcomes only."""
    liked_errors: Estimate = Estimate()
    """Share of the errors inside won trajectories that score higher than a sibling whose true value is .3 higher."""
    calls: int = 0
    session_calls: int = 0
    cost_usd: float = 0.0
    failures: list[str] = Field(default_factory=list)
    """Why the critic is not offered; empty if it passed."""
    remarks: list[str] = Field(default_factory=list)
    settings: dict[str, Any] = Field(default_factory=dict)
    versions: dict[str, str] = Field(default_factory=dict)
    out: str = ""


def failures_of(found: CriticEvaluation) -> list[str]:
    """What fails a critic, in sentences."""
    clear = found.by_margin.get(CLEAR, Estimate())
    if clear.value is None or clear.n < FEWEST_CLEAR_PAIRS:
        return [f"there are {clear.n:,} pairs with a true gap above .3, and {FEWEST_CLEAR_PAIRS} are needed to tell"]
    failed = []
    if clear.value < LEAST_ACCURACY:
        failed.append(
            f"it is right about {clear.value:.0%} of {clear.n:,} pairs with a true gap above .3, and "
            f"{LEAST_ACCURACY:.0%} are needed"
        )
    if found.advantage and found.advantage.low is not None and found.advantage.low <= 0:
        failed.append(
            f"it is not better than the outcome model {found.against}: {found.advantage.value:+.1%} of the pairs "
            f"({found.advantage.low:+.1%} to {found.advantage.high:+.1%})"
        )
    return failed


def remarks_of(found: CriticEvaluation) -> list[str]:
    """What a reader of the figures should know."""
    told = []
    if found.against is None:
        told.append("not compared with an outcome model of the same size (--against)")
    if any(each.truth == "values of the tree" for each in found.runs):
        told.append("the truth are values of the tree itself; reasonrag calibrate RUN --revalue gives fresh ones")
    if found.shorter.value is not None and found.accuracy.value is not None:
        best = max(found.shorter.value, 1 - found.shorter.value)
        if best >= found.accuracy.value:
            told.append(f"the length of a step alone is as good: {best:.0%}")
    return told
