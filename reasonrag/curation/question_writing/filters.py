"""What is wrong with a written question: by its text, by what a fresh reader says, and by what was kept before.

Decides for which causes a question is left out; docs/reference/formats/inputs.md says what each means. The reader is
the same model, which is shown the question and passages, never the answer; whether it really knows nothing else is not
known. Two questions are the same by the rules of decontamination, or by an equal answer from equal passages.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from preference import f1_score
from preference.answer_scores import VERDICTS, comparable, holds
from reasonrag.curation.left_out import needed
from reasonrag.curation.question_matching import QuestionIndex
from reasonrag.data.corpus import Passage

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


Reader = Callable[[str, Sequence[Passage]], Awaitable[list[str]]]
"""(question, passages) -> the reader's answers, none where it does not know. Raises LeftOut for an unreadable reply."""


def check_text(written: Written, passages: Sequence[Passage]) -> None:
    """Raises LeftOut for a fault that the text of question and answer shows."""
    question, answer = written
    named = _NAMES_ITS_PASSAGE.search(question)
    paths = (each.title for each in passages if " > " in each.title)  # of several headings
    said = named.group() if named else next((each for each in paths if each in question), "")
    needed(not said, "names_its_passage", f"it says {said!r}")
    stands = comparable(answer) not in VERDICTS and any(holds(each.contents, answer) for each in passages)
    needed(stands, "answer_not_in_passage", "the answer is not in its passages word for word")
    needed(not holds(question, answer), "answer_in_question", "the question contains its answer")


def same_answer(said: str, answer: str) -> bool:
    return holds(said, answer) or holds(answer, said) or f1_score(said, [answer]) >= SAME_FROM


async def check_by_reading(
    written: Written, passages: Sequence[Passage], found: Sequence[Passage], read: Reader
) -> None:
    """What a fresh reader says without passages, from those that one search `found`, from its own, and from both.

    Raises LeftOut for a faulty question, ModelError.
    """
    question, answer = written

    async def right_from(shown: Sequence[Passage]) -> str:
        return next((each for each in await read(question, shown) if same_answer(each, answer)), "")

    said = await right_from(())
    needed(not said, "known_without_passages", f"without any passage a reader says {said!r}")
    if len(passages) > 1 and any(holds(each.contents, answer) for each in found):
        said = await right_from(found)
        needed(not said, "one_search_suffices", f"from what one search finds a reader says {said!r}")
    answers = await read(question, passages)
    right = any(same_answer(each, answer) for each in answers)
    needed(right, "not_answered", f"from its passages a reader says {'; '.join(answers) or 'nothing'}")
    own = {each.id for each in passages}
    for shown in (passages, [*passages, *(each for each in found if each.id not in own)]):
        other = next((each for each in await read(question, shown) if not same_answer(each, answer)), "")
        needed(not other, "several_answers", f"a reader also says {other!r}")


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
