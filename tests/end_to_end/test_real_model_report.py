"""benchmarks/real_model.py: the settings of its folder, and its report on predictions written by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from real_model import Experiment, Plan
from real_model_report import habits, p_value, speed

from preference.records import PassageRef
from reasonrag.evaluation.predictions import PredictedStep, Prediction

PASSAGE = PassageRef(id="7", title="Ada Lovelace", score=1.0)


def prediction(*steps: PredictedStep, answer: str | None, em: float, cover_em: float) -> Prediction:
    return Prediction(
        question_id="q",
        question="Who wrote it?",
        golden_answers=["Ada Lovelace"],
        answer=answer,
        em=em,
        cover_em=cover_em,
        steps=list(steps),
    )


def think(tag: str, content: str | None, **more: object) -> PredictedStep:
    return PredictedStep.model_validate(
        {"action": "think", "response": f"So <{tag}>{content}</{tag}>", "content": content} | more
    )


def test_each_habit_is_counted_among_the_steps_that_could_have_it() -> None:
    read = PredictedStep(
        action="read", response="<evidence>..</evidence>", content="Ada Lovelace: wrote it", passages=[PASSAGE]
    )
    predictions = [
        prediction(
            think("query", "who wrote it"),
            read,
            think("query", "Who  wrote it?", repaired=True),
            think("answer", "It was Ada Lovelace"),
            answer="It was Ada Lovelace",
            em=0,
            cover_em=1,
        ),
        prediction(think("answer", None, parse_error="no_tag"), answer=None, em=0, cover_em=0),
    ]
    rows = dict(
        line.strip("| ").split(" | ")
        for text in habits("popqa", {"sft": predictions})
        for line in text.splitlines()
        if line.startswith("| ") and not line.startswith("|  |")
    )
    assert rows["replies that could not be read, after the repair turn"] == "1 of 5"
    assert rows["their causes"] == "no tag 1"
    assert rows["replies that the repair turn mended"] == "1 of 5"
    assert rows["first queries that are the question"] == "1 of 1"
    assert rows["queries that repeat an earlier one"] == "1 of 1"
    assert rows["evidence that is none"] == "0 of 1"
    assert rows["evidence that begins with a passage's title"] == "1 of 1"
    assert rows["answers that no evidence holds"] == "1 of 1"
    assert rows["right answers among other words (cover-EM without EM)"] == "1 of 1"


@pytest.mark.parametrize(
    ("session", "cached", "shown"), [(10, 0, "4.0"), (9, 0, "-"), (10, 3, "-")], ids=["whole", "resumed", "replayed"]
)
def test_speed_is_that_of_a_run_that_was_not_stopped(session: int, cached: int, shown: str) -> None:
    summary = {"questions": 10, "session_questions": session, "session_cached_calls": cached, "calls": 40}
    assert speed(summary | {"session_seconds": 10}) == shown


@pytest.mark.parametrize(("p", "shown"), [(0.0, "<0.001"), (0.0004, "<0.001"), (0.0149, "0.015"), (1.0, "1.000")])
def test_no_p_value_is_shown_as_zero(p: float, shown: str) -> None:
    assert p_value(p) == shown


def test_a_folder_begun_with_other_settings_is_refused(tmp_path: Path) -> None:
    """A phase that is done there would count for what it was not done with."""
    data, model = tmp_path / "data", tmp_path / "model"
    for _ in range(2):
        Experiment(Plan().quick(), tmp_path / "work", data, model)
    with pytest.raises(SystemExit, match="begun with another plan, model"):
        Experiment(Plan(), tmp_path / "work", data, tmp_path / "other")
