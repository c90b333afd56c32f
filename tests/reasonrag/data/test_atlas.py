"""Atlas: the same world from the same seed, and questions that its passages answer."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, combinations, islice
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preference import normalize_answer
from reasonrag.data.atlas import DEFAULT_COUNTIES, SPLITS, Split, county, passages, questions, write_world
from reasonrag.data.corpus import Corpus, scan_corpus
from reasonrag.data.questions import open_questions

COUNTIES = 300
"""Large enough that everything rare happens, small enough for a moment."""


def lines(records: Iterable[Mapping[str, Any]]) -> bytes:
    return b"".join(orjson.dumps(each, option=orjson.OPT_APPEND_NEWLINE) for each in records)


def all_questions(counties: int = COUNTIES, *, seed: int = 0) -> list[dict[str, Any]]:
    return list(chain.from_iterable(questions(split, counties, seed=seed) for split in SPLITS))


@pytest.fixture(scope="module")
def contents() -> dict[str, str]:
    """Passages by id."""
    return {each["id"]: each["contents"] for each in passages(COUNTIES)}


def test_the_first_county_is_on_file(golden: Callable[[str, bytes], None]) -> None:
    """The same seed gives the same bytes, release after release; a change of them needs another VERSION."""
    golden("atlas_county_0_passages.jsonl", lines(passages(1)))
    golden("atlas_county_0_questions.jsonl", lines(questions("train", 1)))


def test_the_default_world_is_on_file_by_its_hash(golden: Callable[[str, bytes], None]) -> None:
    """What was indexed, recorded or measured once stays comparable."""
    files = {"corpus": passages(), **{str(split): questions(split) for split in SPLITS}}
    hashes = [f"{hashlib.sha256(lines(records)).hexdigest()}  {name}.jsonl\n" for name, records in files.items()]
    golden("atlas_default_world.sha256", "".join(hashes).encode())


def test_another_seed_is_another_world() -> None:
    """No passage of one world is found in the other."""
    one, other = list(passages(20, seed=0)), list(passages(20, seed=1))
    assert not {each["contents"] for each in one} & {each["contents"] for each in other}
    assert [each["id"] for each in one] == [each["id"] for each in other]


@settings(max_examples=25)
@given(small=st.integers(0, 25), more=st.integers(0, 25), seed=st.integers(0, 1000))
def test_a_larger_world_contains_a_smaller_one(small: int, more: int, seed: int) -> None:
    """A county depends on seed and number only, so a world only grows at its end."""
    smaller, larger = lines(passages(small, seed=seed)), lines(passages(small + more, seed=seed))
    assert larger.startswith(smaller)
    for split in SPLITS:
        few, many = lines(questions(split, small, seed=seed)), lines(questions(split, small + more, seed=seed))
        assert many.startswith(few)


@pytest.mark.parametrize("number", [0, 7, 1_000, 10**6])
def test_any_county_can_be_made_alone(number: int) -> None:
    """The county of a number is the same whether or not those before it were made, even far out."""
    place = county(number)
    assert place == county(number)
    assert place.number == number
    assert (len(place.towns), len(place.people), len(place.works)) == (3, 4, 3)


@pytest.mark.parametrize("build", [passages, lambda counties: questions("test", counties)])
def test_a_huge_world_streams(build: Callable[[int], Iterator[dict[str, Any]]]) -> None:
    """The first item of a world of 10^12 counties is there without the others."""
    assert next(build(10**12)) == next(build(20))


def test_the_default_world_has_the_size_it_says() -> None:
    """1,320 passages and 960 questions."""
    assert sum(1 for _ in passages()) == 1_320
    assert len(all_questions(DEFAULT_COUNTIES)) == 960


# -- what holds of every world ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, 17])
def test_ids_titles_and_questions_are_unique(seed: int) -> None:
    """No two passages share an id or a title, no two questions an id or their words."""
    corpus, asked = list(passages(COUNTIES, seed=seed)), all_questions(seed=seed)
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


def test_eight_counties_of_ten_are_for_training() -> None:
    """One of the others is for dev, one for test."""
    assert Counter(county(number).split for number in range(100)) == {"train": 80, "dev": 10, "test": 10}
    assert {split: sum(1 for _ in questions(split, 10)) for split in SPLITS} == {"train": 64, "dev": 8, "test": 8}


def test_every_gold_passage_exists_and_has_the_title_it_is_given(contents: dict[str, str]) -> None:
    """Gold ids and gold titles are the same passages in the same order, and no question has none or one twice."""
    for asked in all_questions():
        gold_ids, titles = asked["metadata"]["gold_ids"], asked["metadata"]["gold_titles"]
        assert [contents[each].partition("\n")[0] for each in gold_ids] == titles
        assert len(set(gold_ids)) == len(gold_ids) >= 2


def test_every_answer_stands_in_a_gold_passage(contents: dict[str, str]) -> None:
    """Gold passages support the answer in its own words, unless it is a verdict."""
    for asked in all_questions():
        [answer] = asked["golden_answers"]
        gold = " ".join(contents[each] for each in asked["metadata"]["gold_ids"])
        assert answer in ("yes", "no") or f" {normalize_answer(answer)} " in f" {normalize_answer(gold)} "


def test_what_is_asked_for_does_not_stand_in_the_question() -> None:
    """A question cannot be answered by repeating it."""
    for asked in all_questions():
        if asked["metadata"]["type"] in ("bridge", "composition"):
            assert asked["golden_answers"][0] not in asked["question"]


def test_comparisons_have_one_right_answer(contents: dict[str, str]) -> None:
    """The years that are compared differ, and the answer is the one with the earlier year."""
    for asked in all_questions():
        if asked["metadata"]["type"] == "comparison":
            texts = [contents[each] for each in asked["metadata"]["gold_ids"]]
            years = {
                text.partition("\n")[0]: int(
                    next(word for word in text.split() if word.strip(".)").isdigit()).strip(".)")
                )
                for text in texts
            }
            assert len(set(years.values())) == 2
            assert asked["golden_answers"] == [min(years, key=lambda title: years[title])]


def test_verdicts_agree_with_the_passages(contents: dict[str, str]) -> None:
    """Yes where both gold passages name the same town of birth, no where they do not."""
    for asked in all_questions():
        if asked["metadata"]["type"] == "yes_no":
            births = {
                contents[each].partition(" was born in ")[2].partition(" and later")[0]
                for each in asked["metadata"]["gold_ids"]
            }
            assert asked["golden_answers"] == ["yes" if len(births) == 1 else "no"]


@pytest.mark.parametrize("split", SPLITS)
def test_every_split_asks_every_kind_of_question(split: Split) -> None:
    """Bridges, compositions, comparisons and verdicts."""
    kinds = {each["metadata"]["type"] for each in questions(split, COUNTIES)}
    assert kinds == {"bridge", "composition", "comparison", "yes_no"}


@pytest.mark.parametrize("split", SPLITS)
def test_both_verdicts_are_right_about_equally_often(split: Split) -> None:
    """Always saying yes must not look like knowing, in no split."""
    verdicts = Counter(
        each["golden_answers"][0] for each in questions(split, 200) if each["metadata"]["type"] == "yes_no"
    )
    assert set(verdicts) == {"yes", "no"}
    assert min(verdicts.values()) >= 0.4 * verdicts.total()


def test_names_that_have_come_around_carry_their_number_behind_them() -> None:
    """In a very large world a name comes again, as another one: `Leagaeborough 2`, not `Leagae 2borough`."""
    names = [
        subject.name for number in (0, 19_200, 28_800) for subject in (*county(number).towns, *county(number).people)
    ]
    assert any(name.endswith(" 2") for name in names)
    assert not [name for name in names if re.search(r"\d[a-z]|\d .", name)]


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


def test_a_world_that_is_there_is_not_written_again(tmp_path: Path) -> None:
    """Its corpus stays the same file, so that its index stays current."""
    world = write_world(tmp_path, 10)
    before = {path: path.stat().st_mtime_ns for path in world.iterdir()}
    assert write_world(tmp_path, 10) == world
    assert {path: path.stat().st_mtime_ns for path in world.iterdir()} == before


def test_worlds_of_other_seeds_and_sizes_lie_beside_each_other(tmp_path: Path) -> None:
    """A folder's name says everything that its content depends on."""
    places = {write_world(tmp_path, size, seed=seed) for size in (10, 11) for seed in (0, 1)}
    assert len({(place / "corpus.jsonl").read_bytes() for place in places}) == 4


def test_an_unfinished_world_is_finished(tmp_path: Path) -> None:
    """A stop between two files loses nothing: what is missing is written, byte for byte."""
    world = write_world(tmp_path, 10)
    whole = (world / "corpus.jsonl").read_bytes()
    (world / "corpus.jsonl").unlink()
    assert (write_world(tmp_path, 10) / "corpus.jsonl").read_bytes() == whole
    assert whole == lines(islice(passages(10**6), whole.count(b"\n")))
