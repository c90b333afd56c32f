"""What a model's folder says about how it was trained, and what may not be asked of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from preference.candidate_records import question_key
from reasonrag.errors import InputError
from reasonrag.model_folder import PROVENANCE
from reasonrag.training.provenance import Provenance, TrainingConditions, read_provenance

ASKED = TrainingConditions(renderer="r1", top_k=(3,), retriever=("bm25 x", None), max_steps=(7,))
NOW = {"renderer": "r1", "top_k": 3, "max_steps": 7}
MODEL = Provenance(
    base_model="Qwen/Qwen2.5-7B-Instruct",
    stage="dpo",
    finetuning_type="lora",
    asked=ASKED,
    data=["data/h"],
    splits=["hotpotqa/dev", "hotpotqa/train"],
    questions=[question_key("Who wrote Faust?")],
)


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    """A folder may say nothing. Questions are recognised however they are spelled, as in the contamination gate, and
    splits that are not for training are named."""
    assert read_provenance(tmp_path) is None
    MODEL.write(tmp_path)
    assert read_provenance(tmp_path) == MODEL
    assert MODEL.trained_on(["who wrote  faust", "Who wrote Emma?"]) == ["who wrote  faust"]
    assert MODEL.evaluation_splits == ["hotpotqa/dev"]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"schema_version": "reasonrag.model/9"}', '{"base_model": 3}'])
def test_a_damaged_file_is_no_silence(content: str, tmp_path: Path) -> None:
    (tmp_path / PROVENANCE).write_text(content)
    with pytest.raises(InputError, match=r"reasonrag\.json is damaged"):
        read_provenance(tmp_path)


@pytest.mark.parametrize(("name", "value"), [("renderer", "r2"), ("top_k", 5), ("max_steps", 8)])
def test_every_difference_is_named(name: str, value: object) -> None:
    """What is the same, or not known, is no objection."""
    assert ASKED.objections(**NOW) == []  # type: ignore[arg-type]
    assert TrainingConditions(top_k=(None,)).objections(**NOW | {"top_k": 9}) == []  # type: ignore[arg-type]
    [(named, sentence)] = ASKED.objections(**NOW | {name: value})  # type: ignore[arg-type]
    assert named == name
    assert str(value) in sentence
