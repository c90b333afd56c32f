"""Many questions answered at once, each to its prediction: from the journal alone, or by asking for what it lacks.

A question that fails costs itself; a cap, an interrupt, a lost endpoint or a full disk ends the sitting, with every
answer that was asked for awaited and kept. Knows no file but the log of failures, and not how an answer is found.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from reasonrag.concurrency import together
from reasonrag.data.questions import Question
from reasonrag.errors import InputError, ModelError, ReasonragError, RunStopped
from reasonrag.evaluation.judge import Judge
from reasonrag.evaluation.methods.method import Attempt, Method
from reasonrag.evaluation.metrics import failed_prediction, score_attempt
from reasonrag.evaluation.predictions import Prediction
from reasonrag.evaluation.report import UNREADABLE
from reasonrag.llm.budget import Tokens
from reasonrag.llm.chat import ChatModel, ChatRequest, Completion
from reasonrag.llm.failure_log import FailureLog
from reasonrag.llm.models import Models
from reasonrag.progress import TICK_S, SessionTally, Watcher
from reasonrag.redaction import redact

INTERNAL = "internal"
"""Cause of a question that a fault of ours has cost."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a question.

    judge: what its judgement has cost. unjudged: why its answer has no score although a judge was asked. seconds: from
    its first request to its answer.
    """

    prediction: Prediction
    judge: Tokens = field(default_factory=Tokens)
    unjudged: str | None = None
    seconds: float | None = None


class Meter:
    """A `ChatModel` that counts what the replies for each question cost, and lets older questions go first.

    positions: of the questions, by id.
    """

    def __init__(self, inner: ChatModel, positions: dict[str, int]) -> None:
        self.name = inner.name
        self.spent: defaultdict[str, Tokens] = defaultdict(Tokens)
        """By question."""
        self._inner = inner
        self._positions = positions

    async def complete(self, request: ChatRequest) -> Sequence[Completion]:
        position = self._positions.get(request.question_id, len(self._positions))
        completions = await self._inner.complete(request.model_copy(update={"priority": position}))
        self.spent[request.question_id] += Tokens.of(completions)
        return completions

    async def check(self) -> None:
        await self._inner.check()

    async def close(self) -> None:
        """The model stays its owner's."""


@dataclass(frozen=True)
class Sitting:
    """See the module's docstring.

    method_of, judge_of: the method, and the judge, with some model. at_once: questions under way at a time; each has
    one request in flight almost always.
    """

    questions: Sequence[Question]
    method_of: Callable[[ChatModel], Method]
    judge_of: Callable[[ChatModel], Judge]
    failures: FailureLog
    watcher: Watcher
    at_once: int

    async def replay(self, models: Models) -> dict[str, Outcome]:
        """The outcomes, by question, of those that the journal behind these models answers to the end."""
        asked, found = self._asked(models), dict[str, Outcome]()
        waiting = iter(self.questions)

        async def work() -> None:
            for question in waiting:
                try:
                    found[question.id] = await asked.outcome(question)
                except Exception:  # noqa: BLE001, S112 - it is asked for again; what is wrong then is written down
                    continue

        await together(*(work() for _ in range(self.at_once)))
        return found

    async def ask(self, models: Models, owed: Sequence[Question], fresh: Collection[str]) -> dict[str, Outcome]:
        """The outcomes of these, by question. fresh: of which the journal had nothing, so that their time says what
        they take.

        Raises RunStopped, and KeyboardInterrupt where that is Ctrl-C; InputError where the models cannot be asked.
        """
        models.begin(on_failure=self.failures.attempt, say=self.watcher.say)
        await models.check()
        asked, found = self._asked(models), dict[str, Outcome]()
        waiting = iter(owed)

        async def work() -> None:
            for question in waiting:
                found[question.id] = await self._asked_for(asked, question, timed=question.id in fresh)

        self.watcher.started(total=len(self.questions), done=len(self.questions) - len(owed))
        with self._telling(models, found):
            workers = (work() for _ in range(min(self.at_once, len(owed))))
            try:
                await models.carry_out(*workers, say=self.watcher.say, how_far=None)
            except (RunStopped, KeyboardInterrupt):
                done = len(self.questions) - len(owed) + len(found)
                self.watcher.say(f"{done:,} of {len(self.questions):,} questions were through")
                raise
        return found

    def _asked(self, models: Models) -> _Asked:
        positions = {question.id: position for position, question in enumerate(self.questions)}
        meter = Meter(models.teacher, positions)
        if models.value is None:
            return _Asked(meter, self.method_of(meter))
        judging = Meter(models.value, positions)
        return _Asked(meter, self.method_of(meter), judging, self.judge_of(judging))

    async def _asked_for(self, asked: _Asked, question: Question, *, timed: bool) -> Outcome:
        """One question to its outcome, whatever happens to it. Raises RunStopped."""
        began = time.monotonic()
        try:
            attempt = await asked.method.answer(question)
        except (RunStopped, InputError):
            raise
        except ReasonragError as error:
            self.failures.give_up("question", error, question_id=question.id)
            return Outcome(failed_prediction(question, error.cause, redact(str(error))))
        except Exception as error:  # noqa: BLE001 - a fault of ours must cost one question, not the run
            message, details = f"{type(error).__name__}: {error}", traceback.format_exc()
            self.failures.note("question", question_id=question.id, cause=INTERNAL, message=message, details=details)
            return Outcome(failed_prediction(question, INTERNAL, redact(message)))
        seconds = time.monotonic() - began if timed else None
        try:
            outcome = await asked.judged(question, attempt)
        except ModelError as error:
            self.failures.give_up("judgement", error, question_id=question.id)
            outcome = replace(asked.unjudged(question, attempt), unjudged=error.cause)
        return replace(outcome, seconds=seconds)

    @contextmanager
    def _telling(self, models: Models, found: dict[str, Outcome]) -> Iterator[None]:
        """Tell the watcher how things stand, every half second and at the end."""
        began, before, failed_before = time.monotonic(), models.spent, self.failures.attempts

        def tell() -> None:
            spent = models.spent
            self.watcher.advanced(
                SessionTally(
                    questions=len(found),
                    failed_questions=sum(each.prediction.error is not None for each in found.values()),
                    failed_calls=self.failures.attempts - failed_before,
                    calls=spent.calls - before.calls,
                    cached_calls=models.cached_calls,
                    tokens=spent.prompt + spent.completion - before.prompt - before.completion,
                    in_flight=models.in_flight,
                    seconds=time.monotonic() - began,
                    cost=models.cost,
                    waiting_for=models.waiting_for,
                )
            )

        async def tick() -> None:
            while True:
                await asyncio.sleep(TICK_S)
                tell()

        ticking = asyncio.create_task(tick())
        try:
            yield
        finally:
            ticking.cancel()
            tell()
            self.watcher.ended()


@dataclass(frozen=True)
class _Asked:
    """The method and the judge of one pass over the questions, and what their models are asked."""

    meter: Meter
    method: Method
    judging: Meter | None = None
    judge: Judge | None = None

    async def outcome(self, question: Question) -> Outcome:
        """Raises ReasonragError."""
        return await self.judged(question, await self.method.answer(question))

    async def judged(self, question: Question, attempt: Attempt) -> Outcome:
        """What a judge says of an attempt, if there is one. Without an answer it is 0, and nobody is asked."""
        if self.judge is None or self.judging is None:
            return self.unjudged(question, attempt)
        if attempt.answer is None:
            return Outcome(score_attempt(question, attempt, self.meter.spent[question.id], judged=0.0))
        judgement = await self.judge.score(question, attempt)
        return Outcome(
            score_attempt(question, attempt, self.meter.spent[question.id], judged=judgement.value),
            judge=self.judging.spent[question.id],
            unjudged=UNREADABLE if judgement.value is None else None,
        )

    def unjudged(self, question: Question, attempt: Attempt) -> Outcome:
        return Outcome(score_attempt(question, attempt, self.meter.spent[question.id]))
