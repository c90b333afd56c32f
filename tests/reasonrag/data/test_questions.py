"""Question files: which lines are questions, and where the named data sets are found."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasonrag.data.corpus import Passage
from reasonrag.data.datasets import find_questions
from reasonrag.data.gold_passages import GoldPassages
from reasonrag.data.questions import Question, Sample, open_questions, parse_question
from reasonrag.data.settings import canonical_dataset
from reasonrag.errors import InputError
from tests.helpers.jsonl import write_lines


def row(question_id: object, question: str = "Where?") -> bytes:
    return orjson.dumps({"id": question_id, "question": question, "golden_answers": ["here"]})


@pytest.mark.parametrize(
    ("record", "question"),
    [
        (
            {"id": "a", "question": "Where?", "golden_answers": ["here"], "metadata": None},
            Question(id="a", question="Where?", golden_answers=["here"]),
        ),
        (
            {"id": 17, "question": "東京", "golden_answers": [1815, "in 1815"]},
            Question(id="17", question="東京", golden_answers=["1815", "in 1815"]),
        ),
        (
            {"id": "a", "question": "Where?", "golden_answers": ["here"], "level": "hard", "type": "bridge"},
            Question(id="a", question="Where?", golden_answers=["here"], metadata={"type": "bridge"}),
        ),
    ],
)
def test_every_variant_of_the_format_is_read(record: dict[str, Any], question: Question) -> None:
    """Numbers become their spelling; fields of others are left alone, no metadata is empty metadata."""
    assert parse_question(orjson.dumps(record), where="here") == question


NO_QUESTIONS: list[tuple[bytes, str]] = [
    (b'{"id": "a", "question": "Whe', "is not JSON"),
    (b'["a", "Where?", ["here"]]', 'is not a question .* needs "id", "question" and a list "golden_answers"'),
    (b'{"question": "Where?", "golden_answers": ["here"]}', r"is not a question \(id is missing"),
    (b'{"id": "a", "question": " ", "golden_answers": ["here"]}', r"is not a question \(question: .*blank"),
    (
        b'{"id": "a", "question": "Where?", "golden_answers": ["", " "]}',
        r"is not a question \(golden_answers: .*no answer",
    ),
    (b'{"id": "a", "question": "Where?", "golden_answers": [["here"]]}', r"is not a question \(golden_answers.0"),
    (
        b'{"id": "a", "question": "Where?", "golden_answers": ["here"], "metadata": {"style": "brief"}}',
        r"is not a question \(metadata: .*style 'brief' is neither short nor long",
    ),
]


@pytest.mark.parametrize(
    ("name", "lines", "message"),
    [
        *(("f.jsonl", [row(1), row(2), line, row(4)], rf"f\.jsonl, line 3 {says}") for line, says in NO_QUESTIONS),
        ("f.jsonl", [row("a"), row("b"), row("c"), row("b")], "line 4: question id 'b' was already used in line 2"),
        ("f.jsonl", [row("2"), row(2)], "line 2: question id '2' was already used in line 1"),
        ("f.jsonl", [], r"f\.jsonl is empty; it needs one question per line"),
        ("nowhere", [row("a")], "cannot read the questions .*nowhere: No such file"),
    ],
)
def test_a_file_that_holds_no_questions_is_refused(name: str, lines: list[bytes], message: str, tmp_path: Path) -> None:
    """The whole file is checked before any work is started, however few questions are asked. A number and its spelling
    are the same id, because records hold spellings."""
    write_lines(tmp_path / "f.jsonl", *lines)
    with pytest.raises(InputError, match=message):
        open_questions(tmp_path / name, dataset="own", split="dev")


# -- gold passages ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metadata", "gold"),
    [
        ({"gold_ids": ["p1", "p2"], "gold_titles": ["A", "B"]}, GoldPassages("id", ("p1", "p2"))),
        ({"gold_ids": [], "gold_titles": ["A", "B", "A"]}, GoldPassages("title", ("A", "B"))),
        ({"paragraphs": ["Ed Wood", {"is_supporting": True}, {"title": "Ed Wood", "is_supporting": "no"}]}, None),
        ({"gold_ids": "p1"}, None),
        ({"gold_ids": [None, " "], "gold_titles": [["A"]]}, None),
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


# -- samples --------------------------------------------------------------------------------------


KINDS = st.text("abc", min_size=1, max_size=40)


@given(KINDS, st.integers(1, 40), st.integers(0, 10), st.integers(0, 3))
def test_a_sample_is_stratified_and_grows_without_changing(kinds: str, size: int, more: int, seed: int) -> None:
    """Every prefix of it, too, has each type's share to within one; no question twice; and what identifies it is the
    file and the seed, not the size."""
    with TemporaryDirectory() as folder:
        rows = [orjson.loads(row(f"train_{n}")) | {"metadata": {"type": kind}} for n, kind in enumerate(kinds)]
        path = write_lines(Path(folder) / "train.jsonl", *map(orjson.dumps, rows))
        small, large = (
            open_questions(path, dataset="d", split="train", sample=Sample(each, seed)) for each in (size, size + more)
        )
        ids, types = zip(*((each.id, each.type) for each in large.read()), strict=True)
        assert [each.id for each in small.read()] == list(ids[:size])
        assert len(set(ids)) == len(ids) == large.total == min(size + more, len(kinds))
        for length in range(1, len(types) + 1):
            rates = [(types[:length].count(kind), kinds.count(kind)) for kind in set(kinds)]
            assert max((drawn - 1) / of for drawn, of in rates) < min((drawn + 1) / of for drawn, of in rates)
        assert small.identity == large.identity
        assert small.identity["sample"] == {"seed": seed}


def test_a_sample_without_types_is_drawn_at_random(tmp_path: Path) -> None:
    """By the seed alone; data sets with the same ids are drawn independently."""
    path = write_lines(tmp_path / "train.jsonl", *(row(f"train_{number}") for number in range(50)))
    drawn = {
        (name, seed): [
            each.id for each in open_questions(path, dataset=name, split="t", sample=Sample(10, seed)).read()
        ]
        for name, seed in (("a", 0), ("a", 1), ("b", 0))
    }
    assert len({tuple(each) for each in drawn.values()}) == 3
    assert drawn["a", 0] != sorted(drawn["a", 0], key=lambda each: int(each[6:]))


def test_a_whole_file_is_identified_by_its_content(tmp_path: Path) -> None:
    file = open_questions(path := write_lines(tmp_path / "f.jsonl", row(1), row(2)), dataset="a", split="train")
    assert (file.total, file.sha256) == (2, hashlib.sha256(path.read_bytes()).hexdigest())
    assert file.identity == {"dataset": "a", "split": "train", "questions_sha256": file.sha256}
    assert [each.id for each in file.limited(1)] == ["1"]


def test_ids_that_the_corpus_does_not_have_are_not_taken_for_gold_ones(tmp_path: Path) -> None:
    """One of passages that came with questions has others."""
    line = orjson.dumps(orjson.loads(row(1)) | {"metadata": {"gold_ids": ["p1", 2], "gold_titles": ["Ada"]}})
    file = open_questions(write_lines(tmp_path / "f.jsonl", line), dataset="a", split="train")
    assert [each.gold for each in file.read()] == [GoldPassages("id", ("p1", "2"))]
    assert [each.gold for each in replace(file, has_gold_ids=False).read()] == [GoldPassages("title", ("Ada",))]


# -- named data sets -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("folder", "dataset", "split", "message"),
    [
        (".", "hotqa", "dev", r" has no data set 'hotqa'; did you mean 'hotpotqa'\? choose from bare, hotpotqa, own$"),
        (".", "hotpotqa", "devel", r"has no split 'devel'; did you mean 'dev'\? choose from dev, train$"),
        (".", "bare", "dev", r"bare has no questions; put them at .*dev\.jsonl"),
        ("rollouts", "own", "dev", r"has no data sets; put them at <dataset>/<split>\.jsonl, with corpus\.jsonl"),
        ("nowhere", "own", "dev", r"there is no data directory .*nowhere"),
    ],
)
def test_a_missing_data_set_or_split_says_which_exist(
    folder: str, dataset: str, split: str, message: str, tmp_path: Path
) -> None:
    """The nearest name first, then all, or else what is expected; a folder without corpus and splits is no data set, a
    corpus no split."""
    for name, splits in {"hotpotqa": ["train", "dev"], "own": ["test"], "bare": []}.items():
        write_lines(tmp_path / name / "corpus.jsonl", b"{}")
        for each in splits:
            write_lines(tmp_path / name / f"{each}.jsonl", row(f"{name}_{each}"))
    write_lines(tmp_path / "rollouts" / "trees.jsonl", row(1))
    with pytest.raises(InputError, match=message):
        find_questions(dataset, split, tmp_path / folder, home=Path())


@pytest.mark.parametrize(
    ("question_id", "metadata", "hops"),
    [
        ("a", {"hops": 3, "gold_ids": ["p"]}, 3),
        ("2hop__403712_793210", {}, 2),
        ("3hop1__1_2_3", {"gold_titles": ["One"]}, 3),
        ("a", {"gold_ids": ["p", "q", "q"]}, 2),
        ("a", {"hops": 0}, None),
        ("a2hop__1", {}, None),
    ],
)
def test_hops_are_what_the_data_set_says_or_its_gold_passages(
    question_id: str, metadata: dict[str, object], hops: int | None
) -> None:
    """Its own number first, then that of MuSiQue's ids, then how many passages the answer rests on."""
    assert Question(id=question_id, question="Q?", golden_answers=["a"], metadata=metadata).hops == hops


@pytest.mark.parametrize(
    ("known", "spellings"),
    [
        ("hotpotqa", "hotpot hotpot_qa HotpotQA Hotpot-QA"),
        ("2wikimultihopqa", "2wiki 2Wiki 2WikiMultihopQA 2wikimultihop 2wikimqa 2_wiki_multi_hop_qa"),
        ("musique", "MuSiQue musique MuSiQue-Ans"),
        ("nq", "NQ natural_questions nq_open NaturalQuestions"),
        ("my_questions", "my_questions"),
    ],
)
def test_usual_spellings_of_a_data_set_are_understood(known: str, spellings: str) -> None:
    """Case and punctuation do not matter; a name that is not ours stays as it is."""
    assert {canonical_dataset(each) for each in spellings.split()} == {known}


def test_another_spelling_finds_the_folder_and_is_recorded_by_our_name(tmp_path: Path) -> None:
    """A folder of exactly the given name keeps that name."""
    write_lines(tmp_path / "2wiki" / "dev.jsonl", row(1))
    assert find_questions("2WikiMultihopQA", "dev", tmp_path, home=tmp_path).dataset == "2wikimultihopqa"
    assert find_questions("2wiki", "dev", tmp_path, home=tmp_path).dataset == "2wiki"


def test_a_byte_order_mark_before_the_first_question_is_no_fault() -> None:
    """Programs on Windows write one."""
    line = b'\xef\xbb\xbf{"id": "a", "question": "Who?", "golden_answers": ["x"]}'
    assert parse_question(line, where="q").id == "a"
