"""What an evaluation does with each question: an answer by a method, and a judgement of it.

A question that fails at a model, at the retriever or by a bug of ours is a prediction with its cause.
Does not know how an answer is found or judged, nor how a run proceeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from reasonrag.concurrency import work_off
from reasonrag.data.corpus import Passage
from reasonrag.data.questions import Question
from reasonrag.errors import ModelError, ReasonragError
from reasonrag.evaluation.judges.answer_judge import EvaluationJudge
from reasonrag.evaluation.methods.method import Method
from reasonrag.evaluation.predictions import AnswerSupport, Prediction
from reasonrag.evaluation.report import SUPPORT
from reasonrag.evaluation.reported_metrics import failed_prediction, score_attempt
from reasonrag.llm.budget import Tokens
from reasonrag.llm.chat import ChatModel
from reasonrag.llm.expected_usage import ExpectedUsage, spread
from reasonrag.llm.offline import OfflineCritic, OfflineTeacher
from reasonrag.run.engine import Asked, ItemModel

MODEL, JUDGE, READER, CRITIC = "model", "judge", "reader", "critic"
"""Roles of an evaluation's models, in the order in which they are opened."""


@dataclass(frozen=True, slots=True)
class QuestionOutcome:
    """The result of one question.

    judge: what its judgement has cost. unjudged: why its answer has no score, or no support, though a judge was asked.
    """

    prediction: Prediction
    judge: Tokens = field(default_factory=Tokens)
    unjudged: Sequence[str] = ()


@dataclass(frozen=True)
class Answering:
    """The work of an evaluation on its questions; see `reasonrag.run.engine.Work`.

    method_of: the method with some model, a critic's and a reader's if there are any. judge_of: the judge with some
    model. most_replies: of the method to one question. described: so many owed questions, in words. keep: is told each
    prediction as it comes. outcomes: by question id, of those that are done. read: passages that were shown, by id.
    """

    questions: Sequence[Question]
    method_of: Callable[[ChatModel, ChatModel | None, ChatModel | None], Method]
    judge_of: Callable[[ChatModel], EvaluationJudge]
    at_once: int
    most_replies: int
    described: Callable[[int], str]
    keep: Callable[[Prediction], None]
    outcomes: dict[str, QuestionOutcome] = field(default_factory=dict)
    read: dict[str, Passage] = field(default_factory=dict)
    noun: str = "question"

    def items(self) -> Sequence[Question]:
        return self.questions

    def question_of(self, item: Question) -> str:
        return item.id

    async def do(self, item: Question, asked: Asked) -> None:
        outcome = await self._outcome(item, asked)
        self.keep(outcome.prediction)
        self.outcomes[item.id] = outcome

    async def expected(
        self, owed: Iterable[Question], count: int, fresh: int, roles: Sequence[str]
    ) -> list[ExpectedUsage]:
        """As the offline teacher has it on some of the owed questions; none if it could answer none. Sends no request.
        At the high end every question takes the method's most replies; each is scored."""
        answered = list[Asked]()

        async def answer(question: Question) -> None:
            asked = Asked(
                0, {role: ItemModel(OfflineCritic() if role == CRITIC else OfflineTeacher(), 0) for role in roles}
            )
            with suppress(ReasonragError):  # of the retriever: the evaluation will meet it, and tell
                await self._outcome(question, asked)
                answered.append(asked)

        await work_off(spread(owed, count), answer, at_once=self.at_once)
        if not answered:
            return []
        most = {role: 1 if role == JUDGE else self.most_replies for role in roles}
        spent = {role: [each.models[role].spent for each in answered] for role in roles}
        return [_expected(each, most[role]).times(fresh, count) for role, each in spent.items()]

    async def _outcome(self, question: Question, asked: Asked) -> QuestionOutcome:
        """Raises RunStopped and InputError, and while the journal alone answers whatever is missing there."""
        model, judge, critic, reader = (asked.models.get(role) for role in (MODEL, JUDGE, CRITIC, READER))
        assert model is not None  # noqa: S101 - an evaluation has one
        try:
            attempt = await self.method_of(model, critic, reader).answer(question)
        except Exception as error:  # noqa: BLE001 - a fault of ours must cost one question, not the run
            failure = asked.failure(error, "question", {"question_id": question.id})
            return QuestionOutcome(failed_prediction(question, failure))
        self.read.update((each.id, each) for each in attempt.read)

        def scored(judged: float | None = None, support: AnswerSupport | None = None) -> Prediction:
            spent = model.spent + reader.spent if reader else model.spent
            by_critic = critic.spent if critic else None
            return score_attempt(question, attempt, spent, judged=judged, support=support, scored=by_critic)

        if judge is None:
            return QuestionOutcome(scored())
        if attempt.answer is None:  # which no judge is shown
            return QuestionOutcome(scored(0.0))
        by, found, unjudged = self.judge_of(judge), dict[str, Any](), list[str]()
        for what, judged in (("judged", by.score), ("support", by.support)):
            try:
                judgement = await judged(question, attempt)
            except ModelError as error:
                cause = asked.failure(error, "judgement", {"question_id": question.id}, part=True).cause
            else:
                found[what] = judgement and judgement.value
                cause = (judgement.cause or "unreadable") if judgement and judgement.value is None else ""
            unjudged += [cause if what == "judged" else SUPPORT + cause] if cause else []
        return QuestionOutcome(scored(**found), judge.spent, unjudged)


def _expected(usages: Sequence[Tokens], most_calls: int) -> ExpectedUsage:
    calls = [each.calls for each in usages]
    mean, most = sum(calls) / len(calls), max(most_calls, *calls)
    return ExpectedUsage.rehearsed(usages, scale=most / mean if mean else 1.0, thoughts=max(0.0, mean - 1) / 2)
