"""Questions of a `datasets.Dataset` become a question file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from datasets import Dataset, DatasetDict

import reasonrag
from reasonrag.errors import InputError


def lines(path: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("Paris", ["Paris"]),
        (["Paris", "Lutetia"], ["Paris", "Lutetia"]),
        ({"text": ["Paris"], "start": [0]}, ["Paris"]),
    ],
)
def test_answers_of_every_form_become_a_list(given: Any, read: list[str]) -> None:
    rows = Dataset.from_list([{"id": "7", "question": "What is the capital?", "answers": given}])
    path = reasonrag.from_dataset(rows, "mine.jsonl", golden_answers="answers")
    assert lines(path) == [{"id": "7", "question": "What is the capital?", "golden_answers": read, "metadata": {}}]


def test_rows_without_ids_are_numbered_and_explored() -> None:
    rows = [{"q": "Who was born first, Bam Traecel or Bex Traecel?", "a": "Bam Traecel"}]
    path = reasonrag.from_dataset(rows, "mine.jsonl", question="q", golden_answers="a")
    assert [each["id"] for each in lines(path)] == ["q0"]
    Path("corpus.jsonl").write_text('{"id": "0", "contents": "Bam Traecel\\nBam Traecel was born in 1700."}\n')
    assert reasonrag.generate(questions=path, corpus="corpus.jsonl", model="offline", run="runs/mine").done == 1


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"text": "?"}], "row 0 has no column 'question'"),
        ([{"question": "A?", "golden_answers": ["x"]}, {"question": " ", "golden_answers": []}], "row 1: question"),
        ([{"id": 1, "question": "A?", "golden_answers": "x"}] * 2, "an earlier row has the id '1'"),
        ([{"question": "A?", "golden_answers": {"spans": ["x"]}}], "row 0: .*an answer must be a text"),
        ([{"question": "A?", "golden_answers": "x", "metadata": {"image": b""}}], "row 0: its metadata"),
        (DatasetDict(train=Dataset.from_list([{"question": "A?", "golden_answers": "x"}])), "pass one split"),
        ([], "there is no row"),
    ],
)
def test_what_is_wrong_is_said_and_the_file_stays_as_it_was(rows: Any, said: str) -> None:
    Path("mine.jsonl").write_text("before")
    with pytest.raises(InputError, match=said):
        reasonrag.from_dataset(rows, "mine.jsonl")
    assert Path("mine.jsonl").read_text() == "before"
