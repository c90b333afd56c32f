"""Atlas: the same world each time, and questions that its passages answer."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import chain, combinations, islice
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preference import normalize_answer
from reasonrag.data.atlas import SPLITS, passages, questions, write_world
from reasonrag.data.corpus import Corpus, scan_corpus
from reasonrag.data.questions import open_questions

COUNTIES = 300
"""Large enough that everything rare happens, small enough for a moment."""


def lines(records: Iterable[Mapping[str, Any]]) -> bytes:
    return b"".join(orjson.dumps(each, option=orjson.OPT_APPEND_NEWLINE) for each in records)


def all_questions(counties: int = COUNTIES) -> list[dict[str, Any]]:
    return list(chain.from_iterable(questions(split, counties) for split in SPLITS))


@pytest.fixture(scope="module")
def contents() -> dict[str, str]:
    """Passages by id."""
    return {each["id"]: each["contents"] for each in passages(COUNTIES)}


def test_the_first_county_is_on_file(golden: Callable[[str, bytes], None]) -> None:
    """The same bytes, release after release; a change of them needs another VERSION."""
    golden("atlas_county_0_passages.jsonl", lines(passages(1)))
    golden("atlas_county_0_questions.jsonl", lines(questions("train", 1)))


def test_the_default_world_is_on_file_by_its_hash(golden: Callable[[str, bytes], None]) -> None:
    """What was indexed, recorded or measured once stays comparable."""
    files = {"corpus": passages(), **{str(split): questions(split) for split in SPLITS}}
    hashes = [f"{hashlib.sha256(lines(records)).hexdigest()}  {name}.jsonl\n" for name, records in files.items()]
    golden("atlas_default_world.sha256", "".join(hashes).encode())


@settings(max_examples=25)
@given(small=st.integers(0, 25), more=st.integers(0, 25))
def test_a_larger_world_contains_a_smaller_one(small: int, more: int) -> None:
    """A county depends on its number only, so a world only grows at its end."""
    smaller, larger = lines(passages(small)), lines(passages(small + more))
    assert larger.startswith(smaller)
    for split in SPLITS:
        few, many = lines(questions(split, small)), lines(questions(split, small + more))
        assert many.startswith(few)


# -- what holds of every world ---------------------------------------------------------------------------------


def test_ids_titles_and_questions_are_unique() -> None:
    """No two passages share an id or a title, no two questions an id or their words."""
    corpus, asked = list(passages(COUNTIES)), all_questions()
    ids = Counter(each["id"] for each in (*corpus, *asked))
    titles = Counter(each["contents"].partition("\n")[0] for each in corpus)
    words = Counter(each["question"] for each in asked)
    assert [name for count in (ids, titles, words) for name, times in count.items() if times > 1] == []


def test_splits_share_neither_question_nor_gold_passage() -> None:
    """What is trained on can be in no evaluation, not even its passages."""
    for one, other in combinations(SPLITS, 2):
        ours, theirs = (list(questions(split, COUNTIES)) for split in (one, other))
        assert not {each["question"] for each in ours} & {each["question"] for each in theirs}
        gold = [{passage for each in asked for passage in each["metadata"]["gold_ids"]} for asked in (ours, theirs)]
        assert not gold[0] & gold[1]


def test_gold_passages_exist_under_their_titles_and_hold_the_answer(contents: dict[str, str]) -> None:
    """Gold ids and gold titles are the same passages in the same order, and no question has none or one twice; they
    support the answer in its own words, unless it is a verdict."""
    for asked in all_questions():
        gold_ids, titles = asked["metadata"]["gold_ids"], asked["metadata"]["gold_titles"]
        assert [contents[each].partition("\n")[0] for each in gold_ids] == titles
        assert len(set(gold_ids)) == len(gold_ids) >= 2
        [answer] = asked["golden_answers"]
        gold = " ".join(contents[each] for each in gold_ids)
        assert answer in ("yes", "no") or f" {normalize_answer(answer)} " in f" {normalize_answer(gold)} "


# -- on disk ---------------------------------------------------------------------------------------------------


def test_a_written_world_is_a_data_set(tmp_path: Path) -> None:
    """Its files are read as corpus and questions of any other data set."""
    world = write_world(tmp_path / "indexes" / "new", 20)
    assert sorted(path.name for path in world.iterdir()) == ["corpus.jsonl", "dev.jsonl", "test.jsonl", "train.jsonl"]
    corpus = Corpus(world / "corpus.jsonl", scan_corpus(world / "corpus.jsonl").offsets)
    assert [passage.id for passage in corpus] == [each["id"] for each in passages(20)]
    for split in SPLITS:
        source = open_questions(world / f"{split}.jsonl", dataset="atlas", split=split)
        assert [each.id for each in source.read()] == [each["id"] for each in questions(split, 20)]


def test_a_world_that_is_there_is_only_completed(tmp_path: Path) -> None:
    """Its files stay the same, so that its index stays current; what a stop left out is written, byte for byte."""
    world = write_world(tmp_path, 10)
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in world.iterdir()}
    (world / "dev.jsonl").unlink()
    assert write_world(tmp_path, 10) == world
    for path, (written, content) in before.items():
        assert path.read_bytes() == content
        assert path.name == "dev.jsonl" or path.stat().st_mtime_ns == written
    assert before[world / "corpus.jsonl"][1] == lines(islice(passages(10**6), 110))
