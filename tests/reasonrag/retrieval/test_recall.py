"""Recall: which passages count as gold, when a passage holds an answer, and what a report is a mean of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preference import cover_em
from reasonrag.data.corpus import Passage
from reasonrag.data.datasets import find_questions
from reasonrag.data.questions import Question
from reasonrag.retrieval.recall import (
    RecallAt,
    RecallReport,
    answer_in_passage,
    answer_recall,
    gold_recall,
    measure_recall,
)
from tests.helpers.indexes import open_or_build


def passage(text: str, *, passage_id: str = "p", title: str = "") -> Passage:
    return Passage(passage_id, title, text)


# -- gold passages ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "gold", "k", "expected"),
    [
        (["a", "b", "c"], ["a", "c"], 3, 1.0),
        (["a", "b", "c"], ["a", "c"], 2, 0.5),
        (["a", "b", "c"], ["x", "y"], 3, 0.0),
        (["a", "b"], ["a"], 10, 1.0),  # fewer were found than asked for
        (["a", "a", "a"], ["a", "b"], 3, 0.5),  # found again is not found more
        (["a", "b"], ["a", "a", "b", "c"], 2, 2 / 3),  # named again is not one more
        ([], ["a"], 3, 0.0),
        (["a"], [], 3, None),
    ],
)
def test_gold_recall_is_the_share_of_gold_passages_among_the_first(
    found: list[str], gold: list[str], k: int, expected: float | None
) -> None:
    """Of a set, so repetitions and order within the first k do not matter; nothing known is None, not 0."""
    assert gold_recall(found, gold, k) == expected


ids = st.lists(st.sampled_from("abcdefgh"), max_size=8)


@given(found=ids, gold=ids.filter(bool), k=st.integers(1, 8))
def test_gold_recall_grows_with_k_from_0_to_1(found: list[str], gold: list[str], k: int) -> None:
    """Looking further never loses a passage, and one more finds at most one more."""
    here, further = gold_recall(found, gold, k), gold_recall(found, gold, k + 1)
    assert here is not None
    assert further is not None
    assert 0 <= here <= further <= 1
    assert further - here <= 1 / len(set(gold)) + 1e-9


@given(gold=ids.filter(bool), more=ids)
def test_gold_recall_is_1_exactly_when_all_are_found(gold: list[str], more: list[str]) -> None:
    """Wherever they stand among others."""
    everything = [*more, *gold]
    assert gold_recall(everything, gold, len(everything)) == 1
    assert (gold_recall(more, gold, len(more) + 1) == 1) == (set(gold) <= set(more))


# -- answers in passages ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("title", "text", "golden_answers", "expected"),
    [
        ("Paris", "It lies on the Seine.", ["Seine"], True),
        ("Paris", "It lies on the Seine.", ["the Seine!"], True),  # normalised on both sides
        ("Paris", "It lies on the Seine.", ["Paris"], True),  # the title is read too
        ("Paris", "It lies on the Seine.", ["Thames", "seine"], True),
        ("Paris", "It lies on the Seine.", ["Thames"], False),
        ("Paris", "It lies on the Seine.", [], False),
        ("", "Born 1974–1976.", ["1974"], True),  # noqa: RUF001  as data sets have it
        ("", "John F. Kennedy", ["John Kennedy"], False),  # the words must stand together
    ],
)
def test_a_passage_holds_an_answer_whose_normalised_words_occur_in_it(
    title: str, text: str, golden_answers: list[str], *, expected: bool
) -> None:
    """SQuAD normalisation on both sides, one golden answer is enough."""
    assert answer_in_passage(passage(text, title=title), golden_answers) == expected


@pytest.mark.parametrize(
    ("title", "text", "answer"),
    [
        ("", "nobody north of here", "no"),  # inside a word
        ("New", "York is old.", "New York"),  # across the end of the title
        ("", "anything", "The"),  # nothing is left of it, and nothing occurs everywhere
    ],
)
def test_answer_recall_is_as_generous_as_flashrags(title: str, text: str, answer: str) -> None:
    """Numbers of others stay comparable: what cover-EM would not count is counted here."""
    assert answer_in_passage(passage(text, title=title), [answer])
    assert not cover_em(text, [answer])


texts = st.lists(st.sampled_from(["the", "Paris", "in", "1974", "yes", "São", "..."]), max_size=6).map(" ".join)
found_texts = st.lists(texts.map(passage), max_size=5)
golds = st.lists(texts, min_size=1, max_size=3)


@given(passages=found_texts, golden_answers=golds, k=st.integers(1, 5))
def test_answer_recall_grows_with_k(passages: list[Passage], golden_answers: list[str], k: int) -> None:
    """It is 0 or 1, and 1 from the first passage on that holds an answer."""
    here, further = answer_recall(passages, golden_answers, k), answer_recall(passages, golden_answers, k + 1)
    assert 0.0 <= here <= further <= 1.0
    assert here == float(any(answer_in_passage(each, golden_answers) for each in passages[:k]))


@given(text=texts, golden_answers=golds)
def test_what_covers_an_answer_holds_it(text: str, golden_answers: list[str]) -> None:
    """Whole words are the stricter measure."""
    if cover_em(text, golden_answers):
        assert answer_in_passage(passage(text), golden_answers)


# -- reports ---------------------------------------------------------------------------------------------------

WORLD = (
    Passage("p1", "Ed Wood", "A film about a director."),
    Passage("p2", "Ed Wood", "A director, born in Poughkeepsie."),
    Passage("p3", "Scott Derrickson", "A director, an American."),
    Passage("p4", "Rivers", "Water that runs."),
)


def question(number: int, answer: str, **metadata: Any) -> Question:
    return Question(id=str(number), question=f"q{number}", golden_answers=[answer], metadata=metadata)


class InOrder:
    """A retriever that finds the same passages for every query."""

    identity = "in order"

    async def retrieve(self, query: str, top_k: int) -> list[Passage]:
        assert query.startswith("q")
        return list(WORLD[:top_k])


QUESTIONS = [
    question(1, "American", gold_ids=["p1", "p3"], gold_titles=["Rivers"]),  # by id, although titles are there
    question(2, "water", gold_titles=["ed wood", '"Ed Wood"', "Rivers"]),  # two spellings of one title
    question(3, "Thames"),
]


async def test_a_report_means_over_the_questions_that_can_tell() -> None:
    """Gold recall over those with known gold passages, by id before title; answer recall over all; by hand. Inside of a
    running event loop too, in a notebook, say."""
    assert measure_recall(InOrder(), QUESTIONS, at=(1, 3, 4)) == RecallReport(
        questions=3,
        gold_by_id=1,
        gold_by_title=1,
        at=[
            RecallAt(k=1, gold=0.5, all_gold=0.0, answer=0.0),
            RecallAt(k=3, gold=0.75, all_gold=0.5, answer=1 / 3),
            RecallAt(k=4, gold=1.0, all_gold=1.0, answer=2 / 3),
        ],
    )


def test_a_report_without_anything_known_is_none_and_not_zero() -> None:
    """No gold passages, or no questions."""
    report = measure_recall(InOrder(), [question(1, "director")], at=(3,))
    assert report.at == [RecallAt(k=3, gold=None, all_gold=None, answer=1.0)]
    assert measure_recall(InOrder(), []).at[0] == RecallAt(k=3, gold=None, all_gold=None, answer=None)


def test_real_questions_are_measured(shared_data: Path, tmp_path: Path) -> None:
    """BM25 on HotpotQA: the gold recall measured since the beginning, beside it that of answers."""
    searched = open_or_build(tmp_path / "index", shared_data / "hotpotqa" / "corpus.jsonl")
    report = measure_recall(searched, find_questions("hotpotqa", "dev", shared_data, home=tmp_path).read())
    assert (report.questions, report.gold_by_id, report.gold_by_title) == (386, 386, 0)
    assert [(each.k, round(each.gold or 0, 3), round(each.answer or 0, 3)) for each in report.at] == [
        (3, 0.642, 0.624),
        (5, 0.734, 0.715),
    ]
