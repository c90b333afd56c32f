"""What is wrong with a written question, found in order of its price: by its text, by a search, by a fresh reader.

Decides the causes for which a question is left out. The reader is the same model, which is shown the question and
passages, never the answer; whether it really knows nothing else is not known. Two questions are the same by the rules
of decontamination, or by an equal answer from equal passages.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from preference import cover_em, f1_score
from preference.answer_scores import VERDICTS, comparable, holds
from reasonrag.curation.question_matching import QuestionIndex
from reasonrag.data.corpus import Passage
from reasonrag.retrieval.retriever import Retriever

Cause = Literal[
    "no_question",
    "unreadable",
    "answer_not_in_passage",
    "answer_in_question",
    "names_its_passage",
    "known_without_passages",
    "one_passage_suffices",
    "one_search_suffices",
    "several_answers",
    "not_answered",
    "duplicate",
    "surplus",
]
"""Why a question is not kept. no_question: the writer found none. one_passage_suffices: of several passages that it
was shown, the writer names one that the question rests on. known_without_passages,
not_answered, several_answers: what a fresh reader said. one_search_suffices: of several hops, the reader answers from
the passages that one search with the question finds. surplus: more were written at a time than were asked for."""
SAME_FROM = 0.6
"""F1 from which two answers say the same, if neither contains the other."""
_NAMES_ITS_PASSAGE = re.compile(
    r"\b(?:the|this|that|these|given)\s+(?:\w+\s+)?(?:passage|excerpt|snippet|context)s?\b|\bpassage \d"
    r"|\b(?:given|above|following|provided|(?:according to|in|from)\s+(?:the|this))\s+(?:text|document|paragraph)s?\b"
    r"|\b(?:Passage|Textstelle|(?:laut|im|aus dem|in diesem|vorliegende[nr]?|obige[nr]?)\s+"
    r"(?:Text(?:es)?|Abschnitts?|Dokuments?|Auszugs?|Absatz(?:es)?))\b"
    r"|[\u672c\u8be5\u4e0a\u4e0b\u6b64\u8fd9](?:\u6587|\u6bb5)|\u6839\u636e(?:\u4ee5\u4e0a|\u4e0a\u8ff0|\u6587)"
    r"| > ",
    re.IGNORECASE,
)
"""In English, German and Chinese; and the sign between the headings of a title."""


class Written(NamedTuple):
    """A question as it was written, with its answer."""

    question: str
    answer: str


class Fault(NamedTuple):
    cause: Cause
    detail: str = ""


Reader = Callable[[str, Sequence[Passage]], Awaitable[list[str] | None]]
"""(question, passages) -> all answers that the reader gives, without those that say that it does not know; None where
its reply cannot be read."""


def fault_of_text(written: Written, passages: Sequence[Passage]) -> Fault | None:
    """What the text of question and answer shows, if it is a fault."""
    question, answer = written
    if found := _NAMES_ITS_PASSAGE.search(question):
        return Fault("names_its_passage", f"it says {found.group().strip()!r}")
    if comparable(answer) in VERDICTS or not any(holds(each.contents, answer) for each in passages):
        return Fault("answer_not_in_passage", "the answer is not in its passages word for word")
    if holds(question, answer):
        return Fault("answer_in_question", "the question contains its answer")
    return None


def same_answer(said: str, answer: str) -> bool:
    return bool(cover_em(said, [answer]) or cover_em(answer, [said])) or f1_score(said, [answer]) >= SAME_FROM


@dataclass(frozen=True)
class Checks:
    """What a search and a fresh reader show. top_k: passages of a search."""

    retriever: Retriever
    top_k: int

    async def fault(self, written: Written, passages: Sequence[Passage], read: Reader) -> Fault | None:
        """Raises ModelError and RetrievalError."""
        question, answer = written
        if said := _matching(known := await read(question, ()), answer):
            return Fault("known_without_passages", f"without any passage a reader says {said!r}")
        found = await self.retriever.retrieve(question, self.top_k)
        gold = {each.id for each in passages}
        alone = len(passages) > 1 and any(holds(each.contents, answer) for each in found)
        if alone and (said := _matching(await read(question, found), answer)):
            return Fault("one_search_suffices", f"from what one search finds a reader says {said!r}")
        shown = [*passages, *(each for each in found if each.id not in gold)]
        answers = await read(question, shown)
        if answers is None or known is None:
            return Fault("unreadable", "a reader's reply has no readable answers")
        if _matching(answers, answer) is None:
            return Fault("not_answered", f"from its passages a reader says {'; '.join(answers) or 'nothing'}")
        if other := next((each for each in answers if not same_answer(each, answer)), None):
            return Fault("several_answers", f"a reader also says {other!r}")
        return None


def _matching(answers: Sequence[str] | None, answer: str) -> str | None:
    return next((each for each in answers or () if same_answer(each, answer)), None)


class KeptQuestions:
    """Those that were kept so far, to find what says the same again."""

    def __init__(self) -> None:
        self._index, self._ids = QuestionIndex(), list[str]()
        self._answers: dict[tuple[frozenset[str], str], str] = {}

    def same_as(self, written: Written, passages: Sequence[Passage]) -> str | None:
        """The id of a question that is the same; None of a new one."""
        if earlier := self._answers.get(self._key(written, passages)):
            return earlier
        found = self._index.same_as(written.question, [written.answer])
        return self._ids[min(found)] if found else None

    def add(self, question_id: str, written: Written, passages: Sequence[Passage]) -> None:
        self._index.add(written.question, [written.answer])
        self._ids.append(question_id)
        self._answers[self._key(written, passages)] = question_id

    @staticmethod
    def _key(written: Written, passages: Sequence[Passage]) -> tuple[frozenset[str], str]:
        return frozenset(each.id for each in passages), comparable(written.answer)
