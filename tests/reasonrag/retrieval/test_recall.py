"""Recall: which passages count as gold, when a passage holds an answer, and what a report is a mean of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from preference import normalize_answer
from reasonrag.data.corpus import Passage
from reasonrag.data.datasets import find_questions
from reasonrag.data.questions import Question
from reasonrag.retrieval.recall import (
    RecallAt,
    RecallReport,
    answer_recall,
    gold_recall,
    measure_recall,
)
from tests.helpers.indexes import open_or_build

# -- gold passages ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "gold", "k", "expected"),
    [
        (["a", "b", "c"], ["a", "c"], 2, 0.5),
        (["a", "b"], ["a"], 10, 1.0),  # fewer were found than asked for
        (["a", "a", "a"], ["a", "b"], 3, 0.5),  # found again is not found more
        (["a", "b"], ["a", "a", "b", "c"], 2, 2 / 3),  # named again is not one more
        (["a"], [], 3, None),
    ],
)
def test_gold_recall_is_the_share_of_gold_passages_among_the_first(
    found: list[str], gold: list[str], k: int, expected: float | None
) -> None:
    """Of a set, so repetitions and order within the first k do not matter; nothing known is None, not 0."""
    assert gold_recall(found, gold, k) == expected


# -- answers in passages ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("title", "text", "golden_answers", "expected"),
    [
        ("Paris", "It lies on the Seine.", ["the Seine!"], True),  # normalised on both sides
        ("Paris", "It lies on the Seine.", ["Thames", "paris"], True),  # the title is read too
        ("Paris", "It lies on the Seine.", [], False),
        ("", "John F. Kennedy", ["John Kennedy"], False),  # the words must stand together
        # what cover-EM would not count, so that numbers stay comparable to FlashRAG's
        ("", "nobody north of here", ["no"], True),  # inside a word
        ("New", "York is old.", ["New York"], True),  # across the end of the title
        ("", "anything", ["The"], True),  # nothing is left of it, and nothing occurs everywhere
    ],
)
def test_an_answer_is_found_where_its_normalised_words_occur(
    title: str, text: str, golden_answers: list[str], *, expected: bool
) -> None:
    """From the first passage on that holds one of the golden answers."""
    other, holding = Passage("q", "", "Rain."), Passage("p", title, text)
    assert [answer_recall([other, holding], golden_answers, k) for k in (1, 2, 3)] == [
        float("" in map(normalize_answer, golden_answers)),
        float(expected),
        float(expected),
    ]


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
        gold_known=2,
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
    assert (report.questions, report.gold_known) == (386, 386)
    assert [(each.k, round(each.gold or 0, 3), round(each.answer or 0, 3)) for each in report.at] == [
        (3, 0.642, 0.624),
        (5, 0.734, 0.715),
    ]
