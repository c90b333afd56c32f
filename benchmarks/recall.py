"""Recall of a search over questions, each used as the query: gold passages found, and answers found in passages.

Gold passages are those that the data set names, by id if the question has ids, else by title. An answer is found where
a passage holds its normalised words, whatever it is about: FlashRAG's `retrieval_recall`, inflated for short answers.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from preference.answer_scores import normalize_answer
from reasonrag.data.corpus import Passage
from reasonrag.data.questions import Question
from reasonrag.retrieval.retriever import IndexRetriever


class RecallAt(NamedTuple):
    """Means over questions within the first `k` passages; None without cases. gold, all_gold: the share of a question's
    gold passages, and of questions with all of them, where any are known."""

    k: int
    gold: float | None
    all_gold: float | None
    answer: float | None


def measure_recall(index: IndexRetriever, questions: Iterable[Question], at: Sequence[int]) -> list[RecallAt]:
    asked = [(each, index.search(each.question, max(at))) for each in questions]
    return [_recall_at(k, [(each, found[:k]) for each, found in asked]) for k in at]


def _recall_at(k: int, asked: Sequence[tuple[Question, Sequence[Passage]]]) -> RecallAt:
    gold = [len(each.gold.found_in(found)) / len(each.gold.keys) for each, found in asked if each.gold]
    answers = [
        any(
            normalize_answer(one) in normalize_answer(passage.contents)
            for one in each.golden_answers
            for passage in read
        )
        for each, read in asked
    ]
    return RecallAt(k, _mean(gold), _mean([each == 1 for each in gold]), _mean(answers))


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None
