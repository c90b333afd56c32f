"""Question files: which lines are questions, and where the named data sets are found."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import orjson
import pytest

from reasonrag.data.corpus import Passage
from reasonrag.data.datasets import DATASETS, HUB_SPLITS, find_questions
from reasonrag.data.questions import GoldPassages, Question, open_questions, parse_question
from reasonrag.errors import InputError


def write(path: Path, *lines: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def row(question_id: object, question: str = "Where?") -> bytes:
    return orjson.dumps({"id": question_id, "question": question, "golden_answers": ["here"]})


@pytest.mark.parametrize(
    ("record", "question"),
    [
        (
            {"id": "a", "question": "Where?", "golden_answers": ["here", "there"]},
            Question(id="a", question="Where?", golden_answers=["here", "there"]),
        ),
        (
            {"id": "a", "question": "Where?", "golden_answers": ["here"], "metadata": {"gold_ids": ["p1"]}},
            Question(id="a", question="Where?", golden_answers=["here"], metadata={"gold_ids": ["p1"]}),
        ),
        (
            {"id": "a", "question": "Where?", "golden_answers": ["here"], "metadata": None},
            Question(id="a", question="Where?", golden_answers=["here"]),
        ),
        (
            {"id": 17, "question": "When?", "golden_answers": [1815, "in 1815"]},
            Question(id="17", question="When?", golden_answers=["1815", "in 1815"]),
        ),
        (
            {"id": "ä", "question": "東京はどこですか", "golden_answers": ["日本"]},
            Question(id="ä", question="東京はどこですか", golden_answers=["日本"]),
        ),
        (
            {"id": "a", "question": "Where?", "golden_answers": [1], "choices": ["there", "here"]},
            Question(id="a", question="Where?", golden_answers=["here"]),
        ),
        (
            {"id": "a", "question": "Where?", "golden_answers": ["1"], "choices": ["there", "here"]},
            Question(id="a", question="Where?", golden_answers=["1"]),
        ),
        (
            {"id": "a", "question": "When?", "golden_answers": [1], "choices": []},
            Question(id="a", question="When?", golden_answers=["1"]),
        ),
        (
            {"id": "a", "question": "Where?", "golden_answers": ["here"], "context": ["more"], "type": "bridge"},
            Question(id="a", question="Where?", golden_answers=["here"]),
        ),
    ],
)
def test_every_variant_of_the_format_is_read(record: dict[str, Any], question: Question) -> None:
    """Numbers become their spelling, positions in `choices` what stands there; fields of others are left alone, no
    metadata is empty metadata."""
    assert parse_question(orjson.dumps(record), where="here") == question


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"", "is not JSON"),
        (b"Where?", "is not JSON"),
        (b'{"id": "a", "question": "Whe', "is not JSON"),
        (b'["a", "Where?", ["here"]]', "is not a question"),
        (b'{"question": "Where?", "golden_answers": ["here"]}', r"is not a question \(id is missing"),
        (b'{"id": "", "question": "Where?", "golden_answers": ["here"]}', r"is not a question \(id: "),
        (b'{"id": null, "question": "Where?", "golden_answers": ["here"]}', r"is not a question \(id: "),
        (b'{"id": "a", "golden_answers": ["here"]}', r"is not a question \(question is missing"),
        (b'{"id": "a", "question": "", "golden_answers": ["here"]}', r"is not a question \(question: "),
        (b'{"id": "a", "question": " ", "golden_answers": ["here"]}', r"is not a question \(question: .*blank"),
        (
            b'{"id": "a", "question": "Where?", "golden_answers": ["", " "]}',
            r"is not a question \(golden_answers: .*no answer",
        ),
        (
            b'{"id": "a", "question": "Where?", "golden_answers": [2], "choices": ["here", "there"]}',
            r"is not a question \(.*golden_answers \[2\] are positions in choices, which has 2",
        ),
        (b'{"id": "a", "question": "Where?"}', r"is not a question \(golden_answers: "),
        (b'{"id": "a", "question": "Where?", "golden_answers": []}', r"is not a question \(golden_answers: "),
        (b'{"id": "a", "question": "Where?", "golden_answers": "here"}', r"is not a question \(golden_answers: "),
        (b'{"id": "a", "question": "Where?", "golden_answers": [["here"]]}', r"is not a question \(golden_answers.0"),
        (b'{"id": "a", "question": "Where?", "golden_answers": ["here"], "metadata": 3}', r"is not a question \(meta"),
    ],
)
def test_a_line_that_is_no_question_is_named_with_its_number_and_field(
    line: bytes, message: str, tmp_path: Path
) -> None:
    """The whole file is checked before any work is started, however few questions are asked."""
    path = write(tmp_path / "dev.jsonl", row(1), row(2), line, row(4))
    with pytest.raises(InputError, match=rf"dev\.jsonl, line 3 {message}"):
        open_questions(path, dataset="own", split="dev")


def test_a_bad_line_says_what_a_question_needs() -> None:
    """The message is enough to mend the file."""
    with pytest.raises(InputError, match='needs "id", "question" and a list "golden_answers"'):
        parse_question(b"{}", where="here")


@pytest.mark.parametrize("again", ["b", 2])
def test_an_id_may_be_used_once(again: object, tmp_path: Path) -> None:
    """A number and its spelling are the same id, because records hold spellings."""
    path = write(tmp_path / "dev.jsonl", row("a"), row(str(again)), row("c"), row(again))
    with pytest.raises(InputError, match=rf"line 4: question id '{again}' was already used in line 2"):
        open_questions(path, dataset="own", split="dev")


def test_an_empty_question_file_is_refused(tmp_path: Path) -> None:
    """A run without questions is a mistake in the path."""
    with pytest.raises(InputError, match=r"dev\.jsonl is empty; it needs one question per line"):
        open_questions(write(tmp_path / "dev.jsonl"), dataset="own", split="dev")


def test_a_question_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    """The system's own reason is passed on."""
    with pytest.raises(InputError, match=r"cannot read the questions .*nowhere\.jsonl: No such file"):
        open_questions(tmp_path / "nowhere.jsonl", dataset="own", split="dev")


def test_a_source_is_named_by_the_whole_file(tmp_path: Path) -> None:
    """A larger limit is the same source; another byte anywhere is another one."""
    path = write(tmp_path / "dev.jsonl", row(1), row(2), row(3))
    source = open_questions(path, dataset="own", split="dev")
    assert (source.dataset, source.split, source.total) == ("own", "dev", 3)
    assert source.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(("limit", "ids"), [(None, "123"), (1, "1"), (2, "12"), (3, "123"), (4, "123")])
def test_a_limit_takes_the_first_questions_in_file_order(limit: int | None, ids: str, tmp_path: Path) -> None:
    """A limit beyond the file is the whole file."""
    source = open_questions(write(tmp_path / "dev.jsonl", row(1), row(2), row(3)), dataset="own", split="dev")
    assert [question.id for question in source.read(limit)] == list(ids)
    assert [question.id for question in source.read(limit)] == list(ids)


# -- gold passages ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metadata", "gold"),
    [
        ({"gold_ids": ["p1", "p2"], "gold_titles": ["A", "B"]}, GoldPassages("id", ("p1", "p2"))),
        ({"gold_ids": [7, "7", 8]}, GoldPassages("id", ("7", "8"))),
        ({"gold_ids": [], "gold_titles": ["A", "B", "A"]}, GoldPassages("title", ("A", "B"))),
        (
            {"supporting_facts": {"title": ["Ed Wood", "Ed Wood", "Burton"], "sent_id": [0, 2, 1]}},
            GoldPassages("title", ("Ed Wood", "Burton")),
        ),
        ({}, None),
        ({"gold_ids": None, "gold_titles": None, "supporting_facts": None}, None),
        ({"gold_ids": "p1"}, None),
        ({"gold_ids": [None, " "], "gold_titles": [["A"]]}, None),
        ({"supporting_facts": [["Ed Wood", 0]]}, None),
    ],
)
def test_gold_passages_are_known_by_id_else_by_title(metadata: dict[str, Any], gold: GoldPassages | None) -> None:
    """Ids are exact, titles may repeat in a corpus; metadata of another shape names none and does no harm."""
    assert Question(id="a", question="Where?", golden_answers=["here"], metadata=metadata).gold == gold


def test_gold_passages_are_found_among_passages() -> None:
    """By id only the passage itself; by title every spelling of it, and several of one title count once."""
    passages = [Passage("p1", '"Ed  wood"', "first"), Passage("p2", "ED WOOD", "second"), Passage("p3", "Ed", "third")]
    assert GoldPassages("id", ("p2", "p4")).found_in(passages) == {"p2"}
    assert len(GoldPassages("title", ("Ed Wood", "Tim Burton")).found_in(passages)) == 1
    assert GoldPassages("title", ("Ed Wood",)).found_in(passages[2:]) == frozenset()


def test_real_questions_know_their_gold_passages(shared_data: Path) -> None:
    """Every HotpotQA question has two, of MuSiQue by id because titles repeat; Bamboogle has none."""
    known = {name: find_questions(name, "dev", shared_data) for name in ("hotpotqa", "musique", "bamboogle")}
    gold = {name: [question.gold for question in source.read()] for name, source in known.items()}
    assert all(each is not None and len(each.names) == 2 for each in gold["hotpotqa"])
    assert all(each is not None and each.by == "id" for each in gold["musique"])
    assert set(gold["bamboogle"]) == {None}


# -- named data sets -------------------------------------------------------------------------------------------


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A directory with two data sets, and one folder that is none."""
    for name, splits in {"hotpotqa": ["train", "dev"], "own": ["test"]}.items():
        write(tmp_path / "data" / name / "corpus.jsonl", b"{}")
        for split in splits:
            write(tmp_path / "data" / name / f"{split}.jsonl", row(f"{name}_{split}"))
    write(tmp_path / "data" / "rollouts" / "dev.jsonl", row(1))
    return tmp_path / "data"


def test_a_data_set_of_a_directory_is_found_by_its_name(data_dir: Path) -> None:
    """Any folder with questions and a corpus is a data set, known to us or not."""
    assert [q.id for q in find_questions("hotpotqa", "dev", data_dir).read()] == ["hotpotqa_dev"]
    assert [q.id for q in find_questions("own", "test", data_dir).read()] == ["own_test"]


@pytest.mark.parametrize(
    ("dataset", "split", "message"),
    [
        ("hotpot", "dev", r"data has no data set 'hotpot'; did you mean 'hotpotqa'\? choose from hotpotqa, own$"),
        ("musique", "dev", r"data has no data set 'musique'; choose from hotpotqa, own$"),
        ("hotpotqa", "test", r"hotpotqa in .* has no split 'test'; choose from dev, train$"),
        ("hotpotqa", "devel", r"has no split 'devel'; did you mean 'dev'\? choose from dev, train$"),
    ],
)
def test_a_missing_data_set_or_split_says_which_exist(dataset: str, split: str, message: str, data_dir: Path) -> None:
    """The nearest name first, then all; a folder without a corpus is no data set, a corpus no split."""
    with pytest.raises(InputError, match=message):
        find_questions(dataset, split, data_dir)


def test_a_directory_without_data_sets_or_questions_says_where_to_put_them(tmp_path: Path) -> None:
    """There is nothing to choose from, so the message says what is expected."""
    with pytest.raises(InputError, match=r"has no data sets; put them at <dataset>/<split>\.jsonl and corpus\.jsonl"):
        find_questions("own", "dev", tmp_path)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "corpus.jsonl").touch()
    with pytest.raises(InputError, match=r"own has no questions; put them at .*dev\.jsonl"):
        find_questions("own", "dev", tmp_path)


def test_a_missing_data_directory_is_named(tmp_path: Path) -> None:
    """It is the directory that is wrong, not the data set."""
    with pytest.raises(InputError, match=r"there is no data directory .*nowhere"):
        find_questions("hotpotqa", "dev", tmp_path / "nowhere")


def test_the_named_data_sets_are_those_of_the_collection_and_atlas() -> None:
    """Every name has at least one split, so no choice that is offered leads nowhere."""
    assert set(DATASETS) == {"atlas", *HUB_SPLITS}
    assert all(HUB_SPLITS.values())


@pytest.mark.parametrize(
    ("file", "total", "first"),
    [("flashrag_popqa_test_50", 50, "test_10207"), ("flashrag_quick_start_nq_test", 17, "test_0")],
)
def test_real_question_files_of_flashrag_are_read(file: str, total: int, first: str, shared_data: Path) -> None:
    """Rows as FlashRAG ships them."""
    source = open_questions(shared_data / "samples" / f"{file}.jsonl", dataset="popqa", split="test")
    questions = list(source.read())
    assert (source.total, len(questions), questions[0].id) == (total, total, first)
    assert all(answer.strip() for question in questions for answer in question.golden_answers)


@pytest.mark.parametrize(
    ("question_id", "metadata", "hops"),
    [
        ("a", {"hops": 3, "gold_ids": ["p"]}, 3),
        ("2hop__403712_793210", {}, 2),
        ("3hop1__1_2_3", {"gold_titles": ["One"]}, 3),
        ("4hop2__1", {"hops": "many"}, 4),
        ("a", {"gold_ids": ["p", "q", "q"]}, 2),
        ("a", {"supporting_facts": {"title": ["One", "one", "Two"], "sent_id": [0, 1, 0]}}, 2),
        ("a", {"hops": 0}, None),
        ("a", {"hops": True}, None),
        ("0hop__1", {}, None),
        ("a2hop__1", {}, None),
        ("a", {}, None),
    ],
)
def test_hops_are_what_the_data_set_says_or_its_gold_passages(
    question_id: str, metadata: dict[str, object], hops: int | None
) -> None:
    """Its own number first, then that of MuSiQue's ids, then how many passages the answer rests on."""
    assert Question(id=question_id, question="Q?", golden_answers=["a"], metadata=metadata).hops == hops


@pytest.mark.parametrize(("kind", "expected"), [("bridge", "bridge"), (" ", None), (3, None), (None, None)])
def test_the_type_is_what_the_metadata_calls_it(kind: object, expected: str | None) -> None:
    assert Question(id="a", question="Q?", golden_answers=["a"], metadata={"type": kind}).type == expected
