"""Columns of published data sets: what is meant is read, what is not read is named, and what cannot be is refused."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import orjson
import pytest

from preference.records import title_key
from reasonrag.data.compressed import plain_corpus
from reasonrag.data.corpus import Corpus, Passage, parse_passage, scan_corpus
from reasonrag.data.questions import QuestionFile, Sample, open_questions, parse_question
from reasonrag.errors import InputError
from tests.helpers.jsonl import write_rows

BAND, OTHER = "The Alpha Band was founded in Leeds in 1971.", "The Alpha Band plays its own songs on tour, mostly."
ANN = "Ann Lee was born in York. She sings."


def written(path: Path, content: object) -> Path:
    """JSONL of a tuple of rows, the text or bytes themselves, else JSON."""
    if isinstance(content, tuple):
        return write_rows(path, content)
    encoded = content.encode() if isinstance(content, str) else content
    path.write_bytes(encoded if isinstance(encoded, bytes) else orjson.dumps(encoded))
    return path


def asked(path: Path, said: list[str] | None = None, **more: Any) -> QuestionFile:
    told = [] if said is None else said
    return open_questions(path, dataset="mine", split="train", home=path.parent / "home", say=told.append, **more)


def question(record: dict[str, Any]) -> Any:
    return parse_question(orjson.dumps({"id": "q", "question": "Where?"} | record), where="here")


# -- passages ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("record", "title", "text"),
    [
        ({"title": "Ann Lee", "contents": "Ann Lee was born in York."}, "Ann Lee", "Ann Lee was born in York."),
        ({"title": "Ann Lee", "contents": "Ann Lee\nBorn in York."}, "Ann Lee", "Born in York."),
        ({"title": "Ann Lee", "contents": "Born in York.\nA singer."}, "Ann Lee", "Born in York.\nA singer."),
        ({"title": "Ann &amp; Lee", "contents": "Ann & Lee\nA duo."}, "Ann & Lee", "A duo."),
        ({"title": "Ann Lee", "text": "A singer.", "contents": "A singer."}, "Ann Lee", "A singer."),
        ({"title": None, "contents": "Ann Lee\nBorn in York."}, "Ann Lee", "Born in York."),
    ],
)
@pytest.mark.parametrize("name", ["id", "_id"])
def test_a_title_beside_contents_or_text_is_the_title(record: dict[str, Any], title: str, text: str, name: str) -> None:
    """The text stays as it stands, but for a first line that is the title again. `_id` is BEIR's."""
    assert parse_passage(orjson.dumps({name: "1"} | record), where="here") == Passage("1", title, text)


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"url": "http://a", "revision": 7}, "'revision', 'url'"),
        ({"contents": "Ann Lee\nA singer.", "text": "A dancer."}, "'text'"),
        ({"url": "", "metadata": {}, "tags": []}, None),
    ],
)
def test_columns_of_a_corpus_that_are_not_read_are_named_once(
    more: dict[str, Any], named: str | None, tmp_path: Path
) -> None:
    """However many rows have them; empty ones are nothing to read."""
    row = {"title": "Ann Lee", "text": "A singer."} | more
    said: list[str] = []
    corpus = written(tmp_path / "c.jsonl", tuple({"id": str(each)} | row for each in range(3)))
    scan_corpus(corpus, say=said.append)
    assert said == ([f"{corpus}: columns that are not read: {named}"] if named else [])


# -- questions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("record", "answers"),
    [
        ({"answer": "York", "answer_aliases": ["City of York"]}, ["York", "City of York"]),
        ({"answer": ["York", "Eboracum"]}, ["York", "Eboracum"]),
        ({"answer": 1971}, ["1971"]),
        ({"answer": False}, ["no"]),
        ({"answers": {"text": ["York"], "answer_start": [3]}}, ["York"]),
        ({"answer": {"value": "York", "aliases": ["Eboracum"]}}, ["York", "Eboracum"]),
        ({"golden_answers": ["York"], "answer_aliases": ["Eboracum", "York"]}, ["York", "Eboracum"]),
        ({"golden_answers": ["York"], "metadata": {"answer_aliases": ["Eboracum"]}}, ["York", "Eboracum"]),
        ({"golden_answers": ["York"], "answer": "a prediction"}, ["York"]),
        ({"answer": "B", "choices": ["Leeds", "York"]}, ["York"]),
    ],
)
def test_answers_of_published_forms_are_gold_answers(record: dict[str, Any], answers: list[str]) -> None:
    """HotpotQA's, MuSiQue's, DPR's, SQuAD's and TriviaQA's; beside golden answers only aliases count."""
    assert question(record).golden_answers == answers


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"answer": "York", "answerable": False}, "cannot be answered"),
        ({"golden_answers": ["York"], "metadata": {"answerable": False}}, "cannot be answered"),
        ({"golden_answers": ["York"], "is_impossible": True}, "leave such questions out"),
        ({"answer": orjson.loads("[" * 200 + "]" * 200)}, "answer: an answer must be a text"),
        ({"golden_answers": "York"}, "golden_answers"),
    ],
)
def test_a_question_that_no_answer_can_be_right_for_is_refused(record: dict[str, Any], message: str) -> None:
    """With its place and the way out, before anything is paid."""
    with pytest.raises(InputError, match=f"^here is not a question.*{message}"):
        question(record)


def test_columns_of_questions_that_are_not_read_are_named_once(tmp_path: Path) -> None:
    """`answer` is read unless golden answers stand beside it."""
    rows = ({"answer": "York", "level": "hard", "evidences": []}, {"golden_answers": ["York"], "answer": "Leeds"})
    path = written(tmp_path / "q.jsonl", tuple({"id": str(n), "question": "?"} | each for n, each in enumerate(rows)))
    told = list[str]()
    asked(path, told)
    path = written(tmp_path / "r.jsonl", ({"id": "1", "question": "?", "golden_answers": ["York"], "metadata": {}},))
    asked(path, told)
    assert told == [f"{tmp_path / 'q.jsonl'}: columns that are not read: 'answer', 'level'"]


# -- gold passages -----------------------------------------------------------------------------------------------------


FACTS = [["Alpha Band", 1], ["Ann Lee", 0]]


@pytest.mark.parametrize(
    "facts",
    [
        FACTS,
        {"title": ["Alpha Band", "Ann Lee"], "sent_id": [1, 0]},
        [{"title": title, "sent_id": number} for title, number in FACTS],
        ["Alpha Band", "Ann Lee"],
    ],
)
@pytest.mark.parametrize("beside", [True, False])
def test_supporting_facts_name_two_gold_titles(facts: object, beside: bool) -> None:
    """In every published form, in the metadata or beside them."""
    about = {"supporting_facts": facts}
    gold = question({"answer": "York"} | (about if beside else {"metadata": about})).gold
    assert gold.names == ("Alpha Band", "Ann Lee")
    assert len(gold.keys) == 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Simon &amp; Garfunkel", "Simon & Garfunkel"),
        ("Beyonc\u00e9", "Beyonce\u0301"),
        ("Sean O\u2019Brien", "Sean O'Brien"),
        ("2010\u201311 season", "2010-11 Season"),
        ("\uff21\uff2e\uff2e", "Ann"),
        ("AT&amp;amp;T", "at&t"),
        ('"Ann_Lee"', "Ann Lee"),
        ("Ann\u00a0 Lee", "ann lee"),
    ],
)
def test_titles_compare_whatever_their_spelling(one: str, other: str) -> None:
    """HTML entities, composed and decomposed letters, quotes and dashes, full width, underscores, spaces."""
    assert title_key(one) == title_key(other)
    assert title_key(one) != title_key(f"{other} (film)")


def paragraphs(**of_the_first: object) -> list[dict[str, object]]:
    given = [("Alpha Band", BAND), ("Alpha Band", OTHER), ("Ann Lee", ANN)]
    found = [{"idx": n, "title": title, "paragraph_text": text} for n, (title, text) in enumerate(given)]
    return [found[0] | of_the_first, *found[1:]]


@pytest.mark.parametrize(
    "metadata",
    [
        {"paragraphs": paragraphs(is_supporting=True)},
        {"paragraphs": paragraphs(), "question_decomposition": [{"paragraph_support_idx": 0}]},
        {"paragraphs": paragraphs(is_supporting=True), "gold_titles": ["Alpha Band"]},
        {
            "supporting_facts": [["Alpha Band", 1]],
            "context": [["Alpha Band", ["The Alpha Band was founded", "in Leeds in 1971."]], ["Alpha Band", [OTHER]]],
        },
    ],
)
def test_of_two_paragraphs_of_one_title_only_the_supporting_one_is_gold(metadata: dict[str, Any]) -> None:
    """By its mark, its idx or its text; also cut elsewhere, as another corpus does. The record says so."""
    gold = question({"answer": "York"} | metadata).gold
    right, wrong = Passage("1", "Alpha Band", BAND), Passage("2", "Alpha Band", OTHER)
    assert gold.found_in([wrong]) == frozenset()
    assert gold.found_in([right]) == gold.keys
    assert gold.found_in([Passage("3", "alpha band", f"See also: none. {BAND} It split in 1980.")]) == gold.keys
    assert (gold.only_by_title(right), gold.only_by_title(wrong)) == (False, True)
    assert not gold.only_by_title(Passage("4", "Ann Lee", ANN))


def test_a_title_without_a_known_text_counts_as_before() -> None:
    """An article is cut into many passages elsewhere."""
    gold = question({"answer": "York", "supporting_facts": FACTS, "context": [["Alpha Band", [BAND]]]}).gold
    assert gold.found_in([Passage("2", "Alpha Band", OTHER)]) == {"alpha band"}


# -- files as they are published ---------------------------------------------------------------------------------------


HOTPOT = {
    "_id": "5a8b", "answer": "York", "question": "Where?", "supporting_facts": FACTS, "type": "bridge", "level": "easy",
    "context": [["Alpha Band", ["It plays.", " In Leeds."]], ["Ann Lee", ["Born in York."]]],
}  # fmt: skip
MUSIQUE = {
    "id": "2hop__1_2", "question": "Where?", "answer": "York", "answer_aliases": ["Eboracum"], "answerable": True,
    "paragraphs": paragraphs(is_supporting=True), "question_decomposition": [{"paragraph_support_idx": 0}],
}  # fmt: skip
DPR = {"dataset": "nq", "question": "Where?", "answers": ["York"], "positive_ctxs": [{"title": "Ann Lee", "text": ANN}]}


@pytest.mark.parametrize(
    ("content", "ids", "answers", "gold"),
    [
        ([HOTPOT], ["5a8b"], ["York"], 2),
        ((MUSIQUE,), ["2hop__1_2"], ["York", "Eboracum"], 1),
        ([DPR, DPR], ["0", "1"], ["York"], None),
        ([{"id": "7", "question": "Where?", "possible_answers": '["York"]'}], ["7"], ["York"], None),
        ([{"id": "7", "question": "Where?", "answer": "[York"}], ["7"], ["[York"], None),
        ('\ufeff[\n {"id": 7,\n "question": "Where?",\n "golden_answers": ["York"]}\n]\n', ["7"], ["York"], None),
    ],
)
def test_published_question_files_are_read_as_they_are(
    content: object, ids: list[str], answers: list[str], gold: int | None, tmp_path: Path
) -> None:
    """HotpotQA, 2WikiMultiHopQA, MuSiQue, DPR and PopQA, as JSON lists or JSONL; read again alike."""
    path = written(tmp_path / "published.file", content)
    file = asked(path)
    found = list(file.read())
    assert [each.id for each in found] == ids
    assert found[0].golden_answers == answers
    assert (found[0].gold and len(found[0].gold.keys)) == gold
    assert asked(path).sha256 == file.sha256
    assert file.path == path
    drawn = asked(path, sample=Sample(1, seed=0))
    assert [each.id in ids for each in drawn.read()] == [True]


def test_queries_of_beir_are_questions_and_its_passages_are_not(tmp_path: Path) -> None:
    """They have no answers, which generate can judge; a passage has a title."""
    query = {"_id": "q1", "text": "Where?", "metadata": {}}
    [found] = asked(written(tmp_path / "queries.jsonl", (query,)), check=lambda _: None).read()
    assert (found.id, found.question, found.golden_answers) == ("q1", "Where?", [])
    with pytest.raises(InputError, match="is not a question"):
        asked(written(tmp_path / "c.jsonl", ({"_id": "1", "title": "", "text": "A."},)), check=lambda _: None)


@pytest.mark.parametrize(
    ("content", "passages"),
    [
        ([{"id": 1, "title": "Ann", "text": ANN}, {"id": 2, "contents": "Bee\nIt flies."}], ["Ann", "Bee"]),
        ([{"title": "Ann", "text": ANN}, {"title": "Bee", "text": "It flies."}], ["Ann", "Bee"]),
        (({"_id": "d1", "title": "Ann", "text": ANN, "metadata": {"url": ""}},), ["Ann"]),
        (gzip.compress(b'[{"id": 1, "text": "Sings.", "title": "Ann"}]', mtime=0), ["Ann"]),
    ],
)
def test_published_corpora_are_read_as_they_are(content: object, passages: list[str], tmp_path: Path) -> None:
    """JSON lists, with and without ids, also packed, and BEIR."""
    corpus = plain_corpus(written(tmp_path / "corpus.file", content), tmp_path / "home")
    found = list(Corpus(corpus, scan_corpus(corpus).offsets))
    assert [each.title for each in found] == passages
    assert all(each.text for each in found)


def test_parquet_is_read_as_it_is(tmp_path: Path) -> None:
    """2WikiMultiHopQA's holds lists as texts."""
    pa = pytest.importorskip("pyarrow", reason="the hub extra is not installed")
    pq = pytest.importorskip("pyarrow.parquet", reason="the hub extra is not installed")
    texts = {name: orjson.dumps(HOTPOT[name]).decode() for name in ("context", "supporting_facts")}
    pq.write_table(pa.Table.from_pylist([HOTPOT | texts]), tmp_path / "dev.parquet")
    [found] = asked(tmp_path / "dev.parquet").read()
    assert found.gold is not None
    assert len(found.gold.keys) == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("Where?\t['York']\n", "line 1 is not JSON"),
        ([{"id": 1, "question": "Where?", "answers": "[York"}], "row 1: answers is no list that can be read"),
        ('[{"id": 1, "question": "Where?", "answer": NaN}]', "row 1 has NaN or a character"),
        ('[{"id": 1, "question": "Where?"', "cut off"),
        ("[1]", "row 1 is not an object"),
        pytest.param('[{"id": ' + "[" * 900 + "]" * 900 + "}]", "row 1 is nested too deeply", id="deep brackets"),
        pytest.param(
            '[{"id": 1, "answer": "' + "x" * (1 << 24) + '"}]', "row 1 is longer than 16 MB", id="a too long row"
        ),
        ([{"id": 1, "question": "?", "answer": "a"}, {"id": 1, "question": "?", "answer": "b"}], "row 2: question id"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused_with_its_place(content: object, message: str, tmp_path: Path) -> None:
    """File and row or line, and nothing of it is kept as read."""
    path = written(tmp_path / "mine.json", content)
    with pytest.raises(InputError, match=message) as refused:
        asked(path)
    assert str(path) in str(refused.value)


def test_a_file_is_rewritten_once_and_said(tmp_path: Path) -> None:
    """Where it has no ids that is said, too, and each time what is not read; without a home only JSONL is read."""
    path = written(tmp_path / "nq.json", [DPR])
    said: list[str] = []
    first = asked(path, said)
    assert said == [
        f"rewriting {path} into {first.rows}",
        f"{path}: rows without an id have their number, from 0, as id: 1",
        f"{path}: columns that are not read: 'dataset', 'positive_ctxs'",
    ]
    asked(path, said)
    assert said[3:] == said[2:3]
    with pytest.raises(InputError, match="line 1 is not a question"):
        open_questions(path, dataset="mine", split="train")
