"""One sitting at a run: explores what is owed, keeps count, and ends well whatever ends it.

A question that fails costs itself; a cap, an interrupt, a lost endpoint or a full disk ends the sitting, with every
answer that was asked for awaited and kept. Knows the run directory and the agents; not where they come from.
"""

from __future__ import annotations

import asyncio
import gc
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain

from preference import QuestionError, RolloutRecord
from reasonrag.agent.agent import Agent
from reasonrag.agent.model_calls import Spending
from reasonrag.agent.outcomes import OutcomeRule
from reasonrag.concurrency import together
from reasonrag.data.questions import Questions
from reasonrag.errors import DegenerateRun, ReasonragError, RunStopped
from reasonrag.exploration.degeneracy import Look, SignCounts, look_at
from reasonrag.exploration.explorer import Explorer, RunIdentity
from reasonrag.exploration.run_directory import RunDirectory
from reasonrag.llm.endpoint import CallFailure
from reasonrag.llm.models import Models
from reasonrag.progress import TICK_S, SessionTally, Watcher


@dataclass
class Session:
    """See the module's docstring.

    abort_degenerate: share of this session's questions from which on a sign of degeneracy ends it; 0 never.
    rule: how answers are valued.
    """

    run: RunDirectory
    identity: RunIdentity
    models: Models
    watcher: Watcher
    abort_degenerate: float
    rule: OutcomeRule
    tally: SessionTally = field(default_factory=SessionTally)
    stopped: RunStopped | None = None
    began: float = field(default_factory=time.monotonic)
    _total: int = 0
    _done_before: int = 0
    _cost_of_finished: float = 0.0
    _signs: SignCounts = field(default_factory=SignCounts)
    _looks: dict[int, Look | None] = field(default_factory=dict)
    """Of questions that ended before an older one; None for a failed one."""
    _judged: int = 0
    """Questions whose trees were counted, or failed; all of them older than the others."""

    def __post_init__(self) -> None:
        self._calls_before = self.models.spent
        self.models.begin(on_failure=self.call_failed, say=self.watcher.say)

    async def explore_all(
        self, agent: Agent, questions: Questions, *, at_once: int, value_agent: Agent | None = None
    ) -> None:
        """Explore every owed question, oldest first, with so many trees open at once; see `Explorer` for the agents.

        What ended the session early is in `stopped`. A tree has a request in flight almost always, so as many trees as
        requests may be in flight fill the endpoint; older trees' requests go first.
        """
        self._total = total = len(questions)
        self._done_before = sum(self.run.is_done(question.id) for question in questions)
        owed = (question for question in questions if not self.run.is_done(question.id))
        first = next(owed, None)
        if first is not None:
            await self.models.check()
        self.watcher.started(total=total, done=self._done_before)
        if first is None:
            self.watcher.ended()
            return
        queue = enumerate(chain([first], owed))

        async def explore_in_turn() -> None:
            for position, question in queue:
                own = replace(agent, priority=position, spending=Spending())
                others = None if value_agent is None else replace(value_agent, priority=position, spending=Spending())
                recipe = self.identity.recipe
                valuer = self.rule.valuer(question, gold=recipe.judge_sees_gold)
                await self._explore(Explorer(own, question, recipe, value_agent=others, valuer=valuer))

        ticking = asyncio.create_task(self._tick())
        try:
            with self.models.interruptible(self._stop, say=self.watcher.say), _rare_garbage_collection():
                try:
                    await together(*(explore_in_turn() for _ in range(min(at_once, total - self._done_before))))
                except RunStopped as reason:
                    self._stop(reason)
                except Exception as error:
                    self._stop(RunStopped(str(error)))
                    await self.models.drain()
                    raise
                await self.models.drain()  # what a failed question had asked for is paid, too
        finally:
            ticking.cancel()
            self.watcher.ended()

    # -- one question --------------------------------------------------------------------------

    async def _explore(self, explorer: Explorer) -> None:
        """One question to its line, whatever happens to it. Raises RunStopped."""
        try:
            await explorer.run()
            rollout = explorer.record(self.identity)
        except RunStopped:
            raise
        except ReasonragError as error:
            rollout = self._failed(explorer, error.cause, str(error), details=None)
        except Exception as error:  # noqa: BLE001 - a fault of ours must cost one question, not the run
            message = f"{type(error).__name__}: {error}"
            rollout = self._failed(explorer, "internal", message, details=traceback.format_exc())
        self.run.append(rollout)
        self.tally.questions += 1
        self._cost_of_finished += rollout.usage.cost_usd or 0.0
        self.tally.failed_questions += rollout.error is not None
        self._advance()
        self._looks[explorer.agent.priority] = None if rollout.error else look_at(rollout)
        self._judge_in_order()

    def _judge_in_order(self) -> None:
        """Say what is wrong with the trees so far. Raises DegenerateRun where going on would be money thrown away.

        In the order of questions, for those that end first are not like the others. Trees of earlier sessions are not
        counted: what was changed since then may have helped.
        """
        while self._judged in self._looks:
            look = self._looks.pop(self._judged)
            self._judged += 1
            if look is None:
                continue
            self._signs.add(look)
            for message in self._signs.news():
                self.watcher.warn(message)
            reason = self._signs.reason_to_stop(self.abort_degenerate)
            if reason and self._done_before + self.tally.questions < self._total:
                raise DegenerateRun(reason)

    def _failed(self, explorer: Explorer, cause: str, message: str, *, details: str | None) -> RolloutRecord:
        written = self.run.record_failure(
            {
                "kind": "question",
                "question_id": explorer.question.id,
                "cause": cause,
                "message": message,
                "details": details,
            }
        )
        return explorer.error_record(self.identity, QuestionError(cause=cause, message=written["message"]))

    def call_failed(self, failure: CallFailure) -> None:
        """Write down an attempt that got no answer."""
        self.tally.failed_calls += 1
        self.run.record_failure(
            {
                "kind": "call",
                "cause": failure.cause,
                "message": failure.message,
                "attempt": failure.attempt,
                "final": failure.final,
            }
        )
        self._advance()

    # -- ends ----------------------------------------------------------------------------------

    def _stop(self, reason: RunStopped) -> None:
        """Ask for nothing more; what is under way is awaited."""
        self.stopped = self.stopped or reason
        self.models.stop(reason)

    # -- how things stand ----------------------------------------------------------------------

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self._advance()

    def _advance(self) -> None:
        spent, tally = self.models.spent, self.tally
        tally.calls = spent.calls - self._calls_before.calls
        tally.tokens = spent.prompt + spent.completion - self._calls_before.prompt - self._calls_before.completion
        tally.cached_calls = self.models.cached_calls
        tally.in_flight = self.models.in_flight
        tally.cost = self.models.cost
        if tally.cost is not None and tally.questions:
            tally.projected_cost = max(tally.cost, self._cost_of_finished / tally.questions * self._total)
        tally.waiting_for = self.models.waiting_for
        tally.seconds = self.seconds
        self.watcher.advanced(tally)


@contextmanager
def _rare_garbage_collection() -> Iterator[None]:
    """Trees are long-lived and without cycles; walking them again and again took a fifth of the time."""
    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
