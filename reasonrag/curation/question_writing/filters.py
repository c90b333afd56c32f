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

from preference import f1_score
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
]
"""Why a question is not kept. no_question: the writer found none. one_passage_suffices: of several passages that it
was shown, the writer names one that the question rests on. known_without_passages, not_answered, several_answers: what
a fresh reader said; the last from its passages and what one search finds, too. one_search_suffices: of several hops,
the reader answers from the passages that one search with the question finds."""
SAME_FROM = 0.6
"""F1 from which two answers say the same, if neither contains the other."""
_THING = r"(?:passage|excerpt|snippet|context|text|document|paragraph)s?"
_NAMES_ITS_PASSAGE = re.compile(
    rf"\b(?:according to|in|from) (?:the|this|these) (?:(?:given|above|following|provided) )?{_THING}\b"
    rf"|\b(?:given|above|following|provided) {_THING}\b|\bthis (?:passage|excerpt|snippet|text)\b|\bpassage \d"
    rf"|\bthe {_THING} (?:say|state|mention|describe)s?\b"
    r"|\b(?:laut|im|aus dem|in diesem|in der|vorliegende[nr]?|obige[nr]?) "
    r"(?:Text(?:es)?|Abschnitts?|Dokuments?|Auszugs?|Absatz(?:es)?|Passage|Textstelle)\b"
    r"|(?<![\u65e5])[\u672c\u8be5\u4e0a\u4e0b\u6b64](?:\u6587|\u6bb5)(?![\u5316\u4ef6\u5b57\u660e])"
    r"|\u8fd9\u6bb5|\u6839\u636e(?:\u4ee5\u4e0a|\u4e0a\u8ff0)",
    re.IGNORECASE,
)
"""In English, German and Chinese."""


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
        return Fault("names_its_passage", f"it says {found.group()!r}")
    if title := next((each.title for each in passages if " > " in each.title and each.title in question), ""):
        return Fault("names_its_passage", f"it says {title!r}")
    if comparable(answer) in VERDICTS or not any(holds(each.contents, answer) for each in passages):
        return Fault("answer_not_in_passage", "the answer is not in its passages word for word")
    if holds(question, answer):
        return Fault("answer_in_question", "the question contains its answer")
    return None


def same_answer(said: str, answer: str) -> bool:
    return holds(said, answer) or holds(answer, said) or f1_score(said, [answer]) >= SAME_FROM


@dataclass(frozen=True)
class Checks:
    """What a search and a fresh reader show. top_k: passages of a search."""

    retriever: Retriever
    top_k: int

    async def fault(self, written: Written, passages: Sequence[Passage], read: Reader) -> Fault | None:
        """Raises ModelError and RetrievalError."""
        question, answer = written
        found = await self.retriever.retrieve(question, self.top_k)
        gold = {each.id for each in passages}
        others = [each for each in found if each.id not in gold]
        heard: dict[tuple[str, ...], list[str] | None] = {}
        may_suffice = len(passages) > 1 and any(holds(each.contents, answer) for each in found)
        for shown in ((), found if may_suffice else None, passages, [*passages, *others] if others else None):
            if shown is None:
                continue
            key = tuple(each.id for each in shown)
            answers = heard[key] if key in heard else await read(question, shown)  # no draw is asked for twice
            heard[key] = answers
            said = next((each for each in answers or () if same_answer(each, answer)), None)
            other = next((each for each in answers or () if not same_answer(each, answer)), None)
            if answers is None:
                return Fault("unreadable", "a reader's reply has no readable answers")
            if not shown and said:
                return Fault("known_without_passages", f"without any passage a reader says {said!r}")
            if shown is found and said:
                return Fault("one_search_suffices", f"from what one search finds a reader says {said!r}")
            if shown is passages and not said:
                return Fault("not_answered", f"from its passages a reader says {'; '.join(answers) or 'nothing'}")
            if shown and shown is not found and other:
                return Fault("several_answers", f"a reader also says {other!r}")
        return None


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
