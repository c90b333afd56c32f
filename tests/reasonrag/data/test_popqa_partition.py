"""PopQA's partition: exact, without overlap, the same for every copy of the file, and kept by every reader."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from reasonrag.data.datasets import find_questions
from reasonrag.data.eval_splits import EvalSplits, add_named
from reasonrag.data.popqa_partition import WHOLE
from reasonrag.errors import InputError
from tests.helpers.jsonl import write_rows


def popqa(folder: Path, count: int = WHOLE, *, shuffled: bool = False) -> Path:
    """A data directory whose PopQA has only a test file; each tenth question has the text of the one before."""
    rows = [
        {"id": f"test_{n}", "question": f"Who wrote book {n - (n % 10 == 0)}?", "golden_answers": [f"{n}"]}
        for n in range(1, count + 1)
    ]
    if shuffled:
        random.Random(1).shuffle(rows)
        rows = [each | {"id": f"other_{number}"} for number, each in enumerate(rows)]
    write_rows(folder / "popqa" / "test.jsonl", rows)
    return folder


def texts(data_dir: Path, split: str, home: Path) -> list[str]:
    return [each.question for each in find_questions("PopQA", split, data_dir, home=home).read()]


def test_popqa_has_the_numbers_of_the_paper_and_no_question_in_both_parts(tmp_path: Path) -> None:
    """3,000 and 11,267; also no text of one part is in the other. Another copy of the file, in another order and with
    other ids, has the same parts. A part that was deleted is written again. What a run records says how it was
    drawn."""
    data = popqa(tmp_path / "qa")
    train = texts(data, "train", tmp_path / "i")
    next(tmp_path.glob("i/*/popqa/test.jsonl")).unlink()
    test = texts(data, "test", tmp_path / "i")
    assert (len(train), len(test)) == (3_000, 11_267)
    assert not set(train) & set(test)
    assert sorted(texts(popqa(tmp_path / "copy", shuffled=True), "train", tmp_path / "i")) == sorted(train)
    identity = find_questions("popqa", "train", data, home=tmp_path / "i").identity
    assert {**identity, "questions_sha256": ""} | {"partition": {**identity["partition"], "of_sha256": ""}} == {
        "dataset": "popqa",
        "split": "train",
        "questions_sha256": "",
        "partition": {"seed": 0, "train": 3_000, "test": 11_267, "of_sha256": ""},
    }


def test_an_evaluation_split_of_popqa_is_its_test_part(tmp_path: Path) -> None:
    """Else a run on the training part would be contaminated by itself. The whole file and the part that a run keeps
    are one split."""
    data, splits = popqa(tmp_path / "qa"), EvalSplits()
    kept = find_questions("popqa", "test", data, home=tmp_path / "i").path
    add_named(splits, [str(data), str(kept)])
    [split] = splits.found
    assert (split.name, split.questions) == ("popqa/test", 11_267)
    assert [each.question for each in split.read()] == texts(data, "test", tmp_path / "i")


def test_another_file_is_not_partitioned(tmp_path: Path) -> None:
    """A part of PopQA is what it is: its test file is read as it stands, and it has no training questions; with a
    training file beside it, both are the user's own."""
    data = popqa(tmp_path / "qa", 50)
    assert len(texts(data, "test", tmp_path / "i")) == 50
    with pytest.raises(InputError, match=r"popqa has no split 'train': 3,000 of the 14,267 .* another number of"):
        texts(data, "train", tmp_path / "i")
    whole = popqa(tmp_path / "own")
    (whole / "popqa" / "train.jsonl").write_bytes(b'{"id": 1, "question": "Who?", "golden_answers": ["Ada"]}\n')
    assert (len(texts(whole, "train", tmp_path / "i")), len(texts(whole, "test", tmp_path / "i"))) == (1, WHOLE)
