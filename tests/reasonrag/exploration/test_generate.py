"""What `reasonrag.generate` tells a caller of Python."""

from __future__ import annotations

import pytest

import reasonrag


def test_a_failing_outcome_function_is_said_in_the_result_and_warned_of() -> None:
    def score(_question: object, answer: str) -> float:
        return 1 / 0 if answer else 0.0

    with pytest.warns(UserWarning, match=r"outcome function failed for 2 of 2 questions.* score raised ZeroDivision"):
        run = reasonrag.generate(dataset="atlas", limit=2, run="runs/b", outcome=score)
    assert (run.done, run.failed, run.failures_by_cause) == (0, 2, {"outcome": 2})
    assert "ZeroDivisionError" in run.warnings[0]


def test_a_function_that_is_corrected_gets_the_answers_that_were_paid_for() -> None:
    def broken(_question: object, _answer: str) -> float:
        return 2.0

    def score(_question: object, answer: str) -> float:
        return float(len(answer) < 10)

    broken.__name__ = "score"
    with pytest.warns(UserWarning, match="must return a number from 0 to 1"):
        reasonrag.generate(dataset="atlas", limit=1, run="runs/c", outcome=broken)
    run = reasonrag.generate(dataset="atlas", limit=1, run="runs/c", outcome=score)
    assert (run.done, run.failed) == (1, 0)
    assert run.session_cached_calls > 0
    assert run.warnings == []
