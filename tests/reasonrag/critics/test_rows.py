"""The rows of a critic: margins, folds by question, and refusals."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from preference.candidate_records import question_key
from reasonrag.critics.train import Fold, read_rows
from reasonrag.errors import InputError


@given(st.lists(st.text(min_size=1), min_size=1, max_size=30), st.integers(2, 6))
def test_every_question_is_in_exactly_one_fold(questions: list[str], count: int) -> None:
    folds = [Fold(number, count) for number in range(1, count + 1)]
    assert all(sum(fold.holds(question_key(each)) for fold in folds) == 1 for each in questions)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Pairs of twenty questions, one each."""
    rows = [
        {
            "instruction": "Take a step.",
            "input": f"Question: {number}?",
            "chosen": "good",
            "rejected": "bad",
            "question": f"{number}?",
            "question_id": f"q{number}",
            "margin": margin,
            "label": "value",
        }
        for number, margin in enumerate([0.5, None, -0.2, *[0.1] * 17])
    ]
    (tmp_path / "RAG_ProGuide.json").write_bytes(orjson.dumps(rows))
    (tmp_path / "questions.jsonl").write_bytes(b"")
    return tmp_path


def test_a_margin_is_the_difference_of_the_values_and_never_below_zero(data: Path) -> None:
    found = read_rows(data, "train", None)
    assert [row["margin"] for row in found.rows[:4]] == [0.5, 0.0, 0.0, 0.1]
    assert found.labels == {"value"}
    assert [turn["content"] for turn in found.rows[0]["state"]] == ["Take a step.", "Question: 0?"]


def test_exchanged_sides_keep_the_margin_that_they_had(data: Path) -> None:
    """So that a critic of `pairs --flip .5` can learn no order."""
    rows = orjson.loads((data / "RAG_ProGuide.json").read_bytes())
    rows[0] |= {"margin": -0.5, "flipped": True}
    (data / "RAG_ProGuide.json").write_bytes(orjson.dumps(rows))
    assert read_rows(data, "train", None).rows[0]["margin"] == 0.5


def test_a_critic_of_a_fold_sees_no_question_of_it_and_all_others(data: Path) -> None:
    parts = [read_rows(data, "train", Fold(number, 3)).questions for number in (1, 2, 3)]
    whole = read_rows(data, "train", None).questions
    assert all(part < whole for part in parts)
    assert all(sum(key not in part for part in parts) == 1 for key in whole)


def test_a_row_without_a_step_is_refused_by_name(data: Path) -> None:
    (data / "RAG_ProGuide.json").write_bytes(orjson.dumps([{"question": "1?", "instruction": "", "input": ""}]))
    with pytest.raises(InputError, match="a row has no 'chosen'"):
        read_rows(data, "train", None)


def test_a_data_set_without_pairs_is_refused_with_the_command_that_writes_them(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has no RAG_ProGuide\.json.* reasonrag pairs"):
        read_rows(tmp_path, "train", None)
