"""Answers many questions concurrently, each to its prediction: from the journal alone, or by asking what it lacks.

A question that fails costs itself; a cap, an interrupt, a lost endpoint or a full disk ends the session, with every
answer that was asked for awaited and kept. Knows no file but the log of failures, and not how an answer is found.
"""

from __future__ import annotations

import traceback
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from reasonrag.concurrency import work_off
from reasonrag.data.questions import Question
from reasonrag.errors import InputError, ModelError, ReasonragError, RunStopped
from reasonrag.evaluation.judge import Judge
from reasonrag.evaluation.methods.method import Attempt, Method
from reasonrag.evaluation.metrics import failed_prediction, score_attempt
from reasonrag.evaluation.predictions import Prediction
from reasonrag.llm.budget import Tokens
from reasonrag.llm.chat import ChatModel, ChatRequest, Completion, WrappedModel
from reasonrag.llm.expected_usage import ExpectedUsage, spread
from reasonrag.llm.failure_log import FailureLog
from reasonrag.llm.models import Models
from reasonrag.llm.offline import OfflineCritic, OfflineTeacher
from reasonrag.llm.session import Session
from reasonrag.progress import Watcher
from reasonrag.redaction import redact

INTERNAL = "internal"
"""Cause of a question that failed by a bug of reasonrag."""


@dataclass(frozen=True, slots=True)
class QuestionOutcome:
    """The result of one question.

    judge: what its judgement has cost. unjudged: why its answer has no score although a judge was asked.
    """

    prediction: Prediction
    judge: Tokens = field(default_factory=Tokens)
    unjudged: str | None = None


class Meter(WrappedModel):
    """A `ChatModel` that counts the tokens of each question, and gives earlier questions priority.

    positions: of the questions, by id.
    """

    def __init__(self, inner: ChatModel, positions: dict[str, int]) -> None:
        super().__init__(inner)
        self.spent: defaultdict[str, Tokens] = defaultdict(Tokens)
        """Tokens by question id."""
        self._positions = positions

    async def complete(self, request: ChatRequest) -> Sequence[Completion]:
        position = self._positions.get(request.question_id, len(self._positions))
        completions = await self.inner.complete(request.model_copy(update={"priority": position}))
        self.spent[request.question_id] += Tokens.of(completions)
        return completions


@dataclass(frozen=True)
class EvaluationSession:
    """See the module's docstring.

    method_of: the method with some model, and a critic's if there is one. judge_of: the judge with some model.
    at_once: questions under way at a time; each has one request in flight almost always.
    """

    questions: Sequence[Question]
    method_of: Callable[[ChatModel, ChatModel | None], Method]
    judge_of: Callable[[ChatModel], Judge]
    failures: FailureLog
    watcher: Watcher
    at_once: int

    async def replay(self, models: Models) -> dict[str, QuestionOutcome]:
        """Outcomes by question id, of the questions that the journal answers completely."""
        metered, found = self._metered(models.main, models.second, models.critic), dict[str, QuestionOutcome]()

        async def replay(question: Question) -> None:
            with suppress(Exception):  # it is asked for again; what is wrong then is written down
                found[question.id] = await metered.outcome(question)

        await work_off(self.questions, replay, at_once=self.at_once)
        return found

    async def ask(self, models: Models, owed: Sequence[Question]) -> dict[str, QuestionOutcome]:
        """Outcomes by question id, of the questions that are still owed.

        Raises RunStopped, and KeyboardInterrupt where that is Ctrl-C; InputError where the models cannot be asked.
        """
        session = Session(models, self.watcher, self.failures.attempt)
        await models.check()
        metered, found = self._metered(models.main, models.second, models.critic), dict[str, QuestionOutcome]()

        async def answer(question: Question) -> None:
            outcome = found[question.id] = await self._outcome(metered, question)
            session.tally.questions += 1
            session.tally.failed_questions += outcome.prediction.error is not None
            session.advance()

        done = len(self.questions) - len(owed)
        self.watcher.started(total=len(self.questions), done=done)
        try:
            await session.run_or_raise(owed, answer, at_once=self.at_once)
        except (RunStopped, KeyboardInterrupt):
            self.watcher.say(f"{done + len(found):,} of {len(self.questions):,} questions are done")
            raise
        return found

    async def rehearse(
        self, owed: Sequence[Question], *, most_replies: int, judged: bool, scored: bool
    ) -> list[ExpectedUsage]:
        """Usage per question of the model, of the judge and of the critic if there are any (judged, scored), as the
        offline teacher has it on some of the owed questions; empty if it could answer none. Sends no request.

        most_replies: of the method to one question, which every question takes at the high end; each is scored.
        """
        judge = OfflineTeacher() if judged else None
        metered = self._metered(OfflineTeacher(), judge, OfflineCritic() if scored else None)
        answered = list[str]()

        async def answer(question: Question) -> None:
            with suppress(ReasonragError):  # of the retriever: the evaluation will meet it, and tell
                await metered.outcome(question)
                answered.append(question.id)

        await work_off(spread(owed, len(owed)), answer, at_once=self.at_once)
        meters = (metered.meter, most_replies), (metered.judges_meter, 1), (metered.critics_meter, most_replies)
        usages = [([meter.spent[each] for each in answered], most) for meter, most in meters if meter]
        return [_expected(each, most) for each, most in usages] if answered else []

    def _metered(self, model: ChatModel, judge: ChatModel | None, critic: ChatModel | None) -> _Metered:
        positions = {question.id: position for position, question in enumerate(self.questions)}
        meter, critics = Meter(model, positions), Meter(critic, positions) if critic else None
        method = self.method_of(meter, critics)
        if judge is None:
            return _Metered(meter, method, critics)
        judges_meter = Meter(judge, positions)
        return _Metered(meter, method, critics, judges_meter, self.judge_of(judges_meter))

    async def _outcome(self, metered: _Metered, question: Question) -> QuestionOutcome:
        """The outcome of one question, also if it fails. Raises RunStopped."""
        try:
            attempt = await metered.method.answer(question)
        except (RunStopped, InputError):
            raise
        except ReasonragError as error:
            self.failures.give_up("question", error, question_id=question.id)
            return QuestionOutcome(failed_prediction(question, error.cause, redact(str(error))))
        except Exception as error:  # noqa: BLE001 - a fault of ours must cost one question, not the run
            message, details = f"{type(error).__name__}: {error}", traceback.format_exc()
            self.failures.note("question", question_id=question.id, cause=INTERNAL, message=message, details=details)
            return QuestionOutcome(failed_prediction(question, INTERNAL, redact(message)))
        try:
            return await metered.judged(question, attempt)
        except ModelError as error:
            self.failures.give_up("judgement", error, question_id=question.id)
            return replace(metered.unjudged(question, attempt), unjudged=error.cause)


def _expected(usages: Sequence[Tokens], most_calls: int) -> ExpectedUsage:
    calls = [each.calls for each in usages]
    mean, most = sum(calls) / len(calls), max(most_calls, *calls)
    return ExpectedUsage.rehearsed(usages, scale=most / mean if mean else 1.0, thoughts=max(0.0, mean - 1) / 2)


@dataclass(frozen=True)
class _Metered:
    """The method and the judge of one pass over the questions, with the token counts of their models."""

    meter: Meter
    method: Method
    critics_meter: Meter | None = None
    judges_meter: Meter | None = None
    judge: Judge | None = None

    async def outcome(self, question: Question) -> QuestionOutcome:
        """Raises ReasonragError."""
        return await self.judged(question, await self.method.answer(question))

    async def judged(self, question: Question, attempt: Attempt) -> QuestionOutcome:
        """The outcome with the judge's score, if there is a judge; 0 without an answer, which no judge is shown."""
        if self.judge is None or self.judges_meter is None:
            return self.unjudged(question, attempt)
        if attempt.answer is None:
            return QuestionOutcome(self._scored(question, attempt, judged=0.0))
        judgement = await self.judge.score(question, attempt)
        return QuestionOutcome(
            self._scored(question, attempt, judged=judgement.value),
            judge=self.judges_meter.spent[question.id],
            unjudged=(judgement.cause or "unreadable") if judgement.value is None else None,
        )

    def unjudged(self, question: Question, attempt: Attempt) -> QuestionOutcome:
        return QuestionOutcome(self._scored(question, attempt))

    def _scored(self, question: Question, attempt: Attempt, *, judged: float | None = None) -> Prediction:
        scored = self.critics_meter.spent[question.id] if self.critics_meter else None
        return score_attempt(question, attempt, self.meter.spent[question.id], judged=judged, scored=scored)
