"""Retrieval recall: gold passages found, and answers found in passages.

Gold recall: are the passages named by the data set among those found? Answer recall: does any passage contain the
answer's words, whatever it is about? The second needs no gold passages and is FlashRAG's `retrieval_recall`; it is
inflated for short answers ("no" occurs in almost every passage). Does not know how passages are searched.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Iterator, Sequence

from pydantic import BaseModel, ConfigDict

from preference.answer_scores import normalize_answer
from reasonrag.concurrency import run_to_end, together
from reasonrag.data.corpus import Passage
from reasonrag.data.questions import Question
from reasonrag.retrieval.retriever import BATCH, Retriever


def gold_recall(found_ids: Sequence[str], gold_ids: Collection[str], k: int) -> float | None:
    """Share of the gold passages among the first `k` found, in [0, 1]; None if no gold passages are known.

    found_ids: best first; ids or titles.
    """
    gold = set(gold_ids)
    return len(gold.intersection(found_ids[:k])) / len(gold) if gold else None


def answer_recall(passages: Sequence[Passage], golden_answers: Iterable[str], k: int) -> float:
    """1.0 if one of the first `k` passages holds a normalised gold answer in its normalised title and text, else 0.0.

    FlashRAG's `retrieval_recall`: also inside a longer word, across the end of the title, and always if a gold answer
    is empty after normalisation. `preference.cover_em` is stricter in all three cases.
    """
    answers = [normalize_answer(each) for each in golden_answers]
    found = (normalize_answer(each.contents) for each in passages[:k])
    return float(any(answer in contents for contents in found for answer in answers))


class RecallAt(BaseModel):
    """Mean recall over questions within the first `k` passages; None without cases."""

    model_config = ConfigDict(frozen=True)

    k: int
    gold: float | None
    """Mean share of a question's gold passages, over questions with known ones."""
    all_gold: float | None
    """Share of questions with all gold passages found, over questions with known ones."""
    answer: float | None
    """Share of questions with an answer in some passage, over all questions."""


class RecallReport(BaseModel):
    """Recall of a search over the questions of a data set, each used as the query."""

    model_config = ConfigDict(frozen=True)

    questions: int
    gold_known: int
    """Questions with known gold passages. By an id only the passage itself counts; by a title alone any passage with
    it, several as one."""
    at: list[RecallAt]

    def rows(self) -> Iterator[tuple[str, object]]:
        """Recall at each depth."""
        yield "questions", f"{self.questions:,}, gold passages known for {self.gold_known:,}"
        for each in self.at:
            gold = f"gold passages {each.gold:.3f} (all of a question {each.all_gold:.3f}), " if self.gold_known else ""
            yield f"found at {each.k}", f"{gold}an answer in a passage {each.answer:.3f}"


def measure_recall(retriever: Retriever, questions: Iterable[Question], *, at: Sequence[int] = (3, 5)) -> RecallReport:
    """Search every question once, for max(`at`) passages, and measure recall.

    Gold passages are matched by id if the question has ids, else by title. Raises RetrievalError for a question that
    cannot be searched.
    """
    asked = list(questions)
    found = run_to_end(_retrieved(retriever, asked, max(at)))
    known = [
        (each.gold, [each.gold.key(one) for one in its]) for each, its in zip(asked, found, strict=True) if each.gold
    ]

    def at_depth(k: int) -> RecallAt:
        gold = [share for each, keys in known if (share := gold_recall(keys, each.keys, k)) is not None]
        answers = [answer_recall(its, each.golden_answers, k) for each, its in zip(asked, found, strict=True)]
        return RecallAt(
            k=k, gold=_mean(gold), all_gold=_mean([float(each == 1) for each in gold]), answer=_mean(answers)
        )

    return RecallReport(questions=len(asked), gold_known=len(known), at=[at_depth(k) for k in at])


async def _retrieved(retriever: Retriever, questions: Sequence[Question], top_k: int) -> list[list[Passage]]:
    found: list[list[Passage]] = []
    for start in range(0, len(questions), BATCH):
        found += await together(
            *(retriever.retrieve(each.question, top_k) for each in questions[start : start + BATCH])
        )
    return found


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None
