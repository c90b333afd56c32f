"""The candidate record: what a line holds, what a reader refuses, and how states and pairs are named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from preference import RolloutRecord, StateRecord
from preference.best_path import question_record
from preference.candidate_records import (
    MalformedCandidatesError,
    PairRecord,
    QuestionRecord,
    is_training_split,
    parse_line,
    question_key,
    read_lines,
)
from preference.labelling import labelled_states
from preference.records import pair_key
from tests.helpers.trees import Fields, ada, asked, candidates_in, failure, prompt, random_trees

Change = Callable[[Any], Any]


def state_line() -> Fields:
    state: Fields = json.loads(next(labelled_states(ada())).to_line())
    return state


# -- files --------------------------------------------------------------------------------------------------------


@given(rollout=random_trees())
def test_what_is_written_is_read_back(rollout: RolloutRecord) -> None:
    """Every field of every state, to the last bit; one line each."""
    for state in labelled_states(rollout):
        line = state.to_line()
        assert line.count(b"\n") == 1
        read = parse_line(line, StateRecord, where="here")
        assert read == state
        assert read.to_line() == line


@pytest.mark.parametrize("rollout", [ada(), failure(), asked(1, usage={"cost_usd": 0.1})])
def test_a_question_is_read_back(rollout: RolloutRecord) -> None:
    """With its path, its error, its cost."""
    question = question_record(rollout)
    assert parse_line(question.to_line(), QuestionRecord, where="here") == question


def test_a_file_is_read_line_by_line(tmp_path: Path) -> None:
    """In order; fields that a later version may add are no reason to refuse one."""
    candidates_in(tmp_path, asked(1), asked(2))
    path = tmp_path / "candidates.jsonl"
    later = json.loads(path.read_bytes().splitlines()[0]) | {"added_later": [1]}
    path.write_bytes(json.dumps(later).encode() + b"\n" + path.read_bytes())
    assert [state.question_id for state in read_lines(path, StateRecord)] == ["q1", "q1", "q2"]
    path.write_bytes(b"")
    assert list(read_lines(path, StateRecord)) == []


def changed(**fields: Any) -> Change:
    return lambda line: line | fields


def without(field: str) -> Change:
    return lambda line: {name: value for name, value in line.items() if name != field}


def with_pair(**fields: Any) -> Change:
    return lambda line: line | {"pairs": [line["pairs"][0] | fields]}


def with_step(**fields: Any) -> Change:
    return lambda line: line | {"steps": [line["steps"][0] | fields, *line["steps"][1:]]}


MALFORMED: list[tuple[Change, str]] = [
    (lambda _: [], "is not a line of reasonrag.candidates/1: record: "),
    (without("question"), "is not a line of reasonrag.candidates/1: question is missing"),
    (changed(schema_version="reasonrag.candidates/2"), "schema_version: Input should be 'reasonrag.candidates/1'"),
    (changed(layer=-1), "layer: Input should be greater than or equal to 0"),
    (changed(prompt=prompt("u")[:1]), "a prompt must be one system turn, then user turns"),
    (changed(prompt=[{"role": "root", "content": ""}]), "prompt.0.role: Input should be 'system', 'user' or "),
    (with_pair(rejected=99, pair_id="p1"), "pair p1 does not name two steps of its state"),
    (with_pair(chosen=3, rejected=3, pair_id="p1"), "pair p1 does not name two steps of its state"),
    (with_pair(margin=float("nan")), "pairs.0.margin: Input should be a finite number"),
    (with_pair(label="guess"), "pairs.0.label: Input should be 'value', 'judge', 'outcome' or 'imported'"),
    (with_step(id=2), "two steps of state "),
]


@pytest.mark.parametrize(("change", "message"), MALFORMED)
def test_a_line_that_is_no_candidate_is_refused_by_file_and_line(change: Change, message: str, tmp_path: Path) -> None:
    """With the field and what is wrong; lines before it are good."""
    path = tmp_path / "candidates.jsonl"
    good = json.dumps(state_line())
    path.write_text(f"{good}\n{json.dumps(change(state_line()))}\n{good}\n", "utf-8")
    lines = read_lines(path, StateRecord)
    assert next(lines).question_id == "q1"
    with pytest.raises(MalformedCandidatesError) as refusal:
        next(lines)
    assert str(refusal.value).startswith(f"{path}, line 2")
    assert message in str(refusal.value)


@pytest.mark.parametrize("line", [b"\n", b"{}\n", b'{"question": "\xff"}\n', b'{"question": "\\ud800"}\n', b"[" * 9999])
def test_what_is_no_json_object_of_ours_is_refused(line: bytes, tmp_path: Path) -> None:
    """Blank, empty, no UTF-8, half a character, or nested without end: named, not crashed on."""
    path = tmp_path / "questions.jsonl"
    path.write_bytes(line)
    with pytest.raises(MalformedCandidatesError, match=r"questions\.jsonl, line 1 is not a line of reasonrag\.quest"):
        list(read_lines(path, QuestionRecord))


def test_a_path_whose_prompt_has_other_turns_is_refused() -> None:
    """Nobody could train on it."""
    line: Fields = json.loads(question_record(ada()).to_line())
    line["path"][0]["prompt"] = prompt("u")[1:]
    with pytest.raises(MalformedCandidatesError, match=r"path\.0\.prompt: a prompt must be one system turn, then user"):
        parse_line(json.dumps(line).encode(), QuestionRecord, where="here")


# -- names --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Who wrote the first program?", "who wrote first program", True),
        ("Who wrote the first program?", "Who wrote the second program?", False),
        ("Who wrote the first program…", "Who wrote the first program", False),  # SQuAD knows ASCII punctuation only
        ("1,000", "1000", True),
    ],
)
def test_questions_that_differ_in_spelling_only_have_one_key(one: str, other: str, *, same: bool) -> None:
    """Case, ASCII punctuation, articles, spaces."""
    assert (question_key(one) == question_key(other)) == same


def test_a_pair_is_named_by_what_it_holds() -> None:
    """State, both replies in their order, and the tree."""
    parts = [("s", "a", "b", "run"), ("s", "b", "a", "run"), ("t", "a", "b", "run"), ("s", "a", "b", "other")]
    assert len({pair_key(state, chosen, rejected, of=of) for state, chosen, rejected, of in parts}) == len(parts)
    assert pair_key("s", "a", "b", of="run") == pair_key("s", "a", "b", of="run")
    assert all(len(pair_key(*each[:3], of=each[3])) == 16 for each in parts)


@given(rollout=random_trees())
def test_turning_a_pair_twice_changes_nothing(rollout: RolloutRecord) -> None:
    """And once exchanges what is said of its sides; `golden_rejected`, which only its state tells, is gone
    (`with_golden_tags`)."""
    for state in labelled_states(rollout):
        for pair in state.pairs:
            swapped = pair.swapped()
            assert (swapped.chosen, swapped.rejected, swapped.pair_id) == (pair.rejected, pair.chosen, pair.pair_id)
            assert swapped.margin == (None if pair.margin is None else -pair.margin)
            assert "golden_rejected" not in swapped.tags
            assert _rounded(swapped.swapped()) == _rounded(pair)


def _rounded(pair: PairRecord) -> PairRecord:
    tags = [tag for tag in pair.tags if tag != "golden_rejected"]
    return pair.model_copy(update={"confidence": round(pair.confidence or 0.0, 12), "tags": tags})


@pytest.mark.parametrize(
    ("name", "training"),
    [
        ("train", True),
        ("train_1k", True),
        ("dev", False),
        ("constraint", False),
        ("toy/train_1k", True),
        ("train/dev", False),
    ],
)
def test_only_splits_called_train_may_be_trained_on(name: str, training: bool) -> None:
    """A word of the name says so, not a part of a word, and not the data set's name before it."""
    assert is_training_split(name) is training
