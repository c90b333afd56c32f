"""What a judge says of an answer: how good it is, and of a long one, which passages support each sentence.

Decides what the judge is shown. With gold answers that is the last reply alone, so that all methods are judged alike;
without them, or by a rubric, also what was read. A citation is the title, the id or the number of a passage in square
brackets. Its prompts are `answer.txt`, `rubric.txt` and `support.txt`. Does not know whether the judge is right.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from reasonrag.agent.model_calls import Judgement, ModelCaller
from reasonrag.agent.parsing import parse_support
from reasonrag.agent.prompting import render_answer, render_support
from reasonrag.data.corpus import Passage
from reasonrag.data.questions import AnswerStyle, Question
from reasonrag.evaluation.methods.method import Attempt
from reasonrag.evaluation.predictions import AnswerSupport

MOST_SENTENCES = 100
"""Of an answer whose support is judged: a judge that is shown more loses count."""
_CITED = r"(?:\s*\[[^\[\]]*\])*"
_SENTENCE = re.compile(rf"\S.*?(?:[.!?]{_CITED}(?=\s|$)|[。！？]{_CITED}|$)", re.DOTALL)  # noqa: RUF001 - Chinese
_CITATION = re.compile(r"\[([^\[\]]+)\]")


@dataclass(frozen=True)
class EvaluationJudge:
    """A judge of answers. sees_gold: whether it is shown the gold answers. rubric: for questions without their own.
    style: of answers, for questions that name none."""

    caller: ModelCaller
    sees_gold: bool
    rubric: tuple[str, ...]
    style: AnswerStyle

    async def score(self, question: Question, attempt: Attempt) -> Judgement[float]:
        """The score of an attempt that has an answer, in [0, 1]. Raises ModelError."""
        rubric = question.rubric or self.rubric
        prompt = render_answer(
            self.caller.prompts,
            question=question.question,
            thoughts=(attempt.steps[-1].response,),
            answer=attempt.answer or "",
            golden_answers=question.golden_answers if self.sees_gold else (),
            passages=() if self.sees_gold and not rubric else attempt.read,
            rubric=rubric,
        )
        return await self.caller.score(question.id, prompt, 0)

    async def support(self, question: Question, attempt: Attempt) -> Judgement[AnswerSupport] | None:
        """Support of the sentences of a long answer; None of a short one. Raises ModelError."""
        if (question.style or self.style) != "long" or attempt.answer is None:
            return None
        sentences = _SENTENCE.findall(attempt.answer)
        if len(sentences) > MOST_SENTENCES:
            return Judgement(None, calls=0, cause="too_long")
        if not (sentences and attempt.read):  # nothing that a judge could find
            return Judgement(_counted(sentences, [frozenset()] * len(sentences), attempt.read), calls=0)
        judgement = await self.caller.judgement(
            question.id,
            render_support(self.caller.prompts, question.question, sentences, attempt.read),
            0,
            tag="support",
            wanted=f"each number from 1 to {len(sentences)}, a colon, and the numbers of passages or none",
            read=partial(parse_support, sentences=len(sentences), passages=len(attempt.read)),
        )
        found = None if judgement.value is None else _counted(sentences, judgement.value, attempt.read)
        return Judgement(found, judgement.calls, judgement.unreadable, judgement.cause)


def _counted(sentences: Sequence[str], support: Sequence[frozenset[int]], passages: Sequence[Passage]) -> AnswerSupport:
    """support: numbers of the passages that support each sentence, from 1."""
    names = defaultdict[str, set[int]](set)
    for number, passage in enumerate(passages, start=1):
        for name in (str(number), passage.id, passage.title):
            names[name.strip().casefold()].add(number)
    cited = [[names.get(each, set()) for each in _cited_in(text, names)] for text in sentences]
    right = [[bool(each & found) for each in named] for named, found in zip(cited, support, strict=True)]
    return AnswerSupport(
        sentences=len(sentences),
        supported=sum(map(bool, support)),
        cited=sum(map(any, right)),
        citations=sum(map(len, cited)),
        right_citations=sum(map(sum, right)),
    )


def _cited_in(sentence: str, names: Container[str]) -> Iterator[str]:
    """The passages that it names in brackets. Brackets that hold no name as a whole are a list of names."""
    for cited in _CITATION.findall(sentence.casefold()):
        yield from [cited.strip()] if cited.strip() in names else map(str.strip, re.split("[,;]", cited))
