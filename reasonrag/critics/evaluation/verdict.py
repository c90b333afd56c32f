"""The verdict on a critic: passed, failed or undecided.

Decides what fails a critic, when nothing can be said, and what a reader of the figures should know. Computes nothing.
"""

from __future__ import annotations

from typing import Final

from reasonrag.critics.evaluation.measures import Estimate
from reasonrag.critics.evaluation.report import CLEAR, GAP, CriticEvaluation

LEAST_ACCURACY: Final = 0.75
FEWEST_CLEAR_PAIRS: Final = 30
MOST_LOST: Final = 0.05
"""Share of the scores that may have failed."""


def decided(found: CriticEvaluation) -> CriticEvaluation:
    """The evaluation with its verdict: undecided where figures cannot tell, or no outcome model was compared."""
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
    golden = found.golden_over_shuffled
    if golden.low is not None and golden.low <= 0.5:  # noqa: PLR2004 - chance
        told.append(f"it does not tell chains to right answers from steps of other questions in their place: {golden}")
    return told
