"""One session of a run: explores the remaining questions, counts, and ends cleanly.

A failed question affects only itself; a cap, an interrupt, a lost endpoint or a full disk ends the session once every
requested answer is in the journal. Knows the run directory and the agents, not how they were made.
"""

from __future__ import annotations

import asyncio
import gc
import traceback
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace

from preference import QuestionError, RolloutRecord
from reasonrag.agent.agent import Agent
from reasonrag.agent.model_calls import Spending
from reasonrag.agent.outcomes import OutcomeRule
from reasonrag.data.questions import Question, Questions
from reasonrag.errors import DegenerateRun, ReasonragError, RunStopped
from reasonrag.exploration.degeneracy import StopDecision, observed_signs
from reasonrag.exploration.explorer import Explorer, RunIdentity
from reasonrag.exploration.run_directory import RunDirectory
from reasonrag.progress import Watcher
from reasonrag.rendering import counted
from reasonrag.run.models import Models
from reasonrag.run.session import Session


@dataclass
class ExplorationSession:
    """See the module's docstring.

    agent: proposes steps, and continues them unless value_agent does; see `Explorer`. rule: how answers are valued.
    abort_degenerate: share of the questions with a sign of degeneracy that ends it; 0: never; see `StopDecision`.
    interrupt: see `Session`.
    """

    run: RunDirectory
    identity: RunIdentity
    agent: Agent
    value_agent: Agent | None
    rule: OutcomeRule
    models: Models
    watcher: Watcher
    abort_degenerate: float
    interrupt: asyncio.Event | None = None
    _total: int = 0
    _done_before: int = 0
    _cost_of_finished: float = 0.0
    _waiting: dict[int, RolloutRecord] = field(default_factory=dict)
    """Finished trees by position, not yet written because the run may stop at an earlier question."""
    _failures: set[str] = field(default_factory=set)
    """Causes of which a question has failed."""

    def __post_init__(self) -> None:
        self._decision = StopDecision(0.0, 0)
        self.session = Session(self.models, self.watcher, self.run.failures.attempt, interrupt=self.interrupt)

    @property
    def stopped(self) -> RunStopped | None:
        """What ended the session early."""
        return self.session.stopped

    def owed(self, questions: Questions) -> Iterator[Question]:
        """The questions without a tree, in order."""
        return (question for question in questions if not self.run.is_done(question.id))

    async def check(self) -> None:
        """Raises InputError if a model is unusable."""
        await self.models.check()
        self.run.note_refusals(self.models.lessons)

    def begin(self, questions: Questions) -> None:
        """Count the trees of earlier sessions, which may stop this one before its first request."""
        self._total = len(questions)
        self._decision = StopDecision(self.abort_degenerate, self._total)
        done = [(position, each.id) for position, each in enumerate(questions) if self.run.is_done(each.id)]
        self._done_before = len(done)
        if self._done_before == self._total:
            return
        for position, question_id in done:
            undecided = self._decision.reach < self._total  # a tree is read only if it can matter
            self._decision.add(
                position, observed_signs(self.run.tree(question_id), for_stop=True) if undecided else None
            )
        with suppress(DegenerateRun):
            self._check_degeneracy()

    async def explore_all(self, questions: Questions, *, at_once: int) -> None:
        """Explore every remaining question in order, with `at_once` trees open at a time.

        A tree almost always has a request in flight, so as many trees as allowed requests fill the endpoint; older
        trees' requests go first.
        """
        self.watcher.started(total=self._total, done=self._done_before)
        if self._done_before == self._total or self.stopped:
            self.watcher.ended()
            return
        with closing(iter(questions)) as each_question:
            numbered = enumerate(each_question)
            queue = ((position, each) for position, each in numbered if not self.run.is_done(each.id))
            await self.session.run(queue, self._explore, at_once=at_once)
        self._tell_what_waits()

    def _tell_what_waits(self) -> None:
        """Say how many trees are finished and not written, where the next session will write them."""
        if self._waiting and not isinstance(self.stopped, DegenerateRun):
            self.watcher.say(
                f"{counted(len(self._waiting), 'finished tree')} will be written once earlier questions are done; "
                "their answers are in the journal and are not paid for again"
            )

    # -- one question --------------------------------------------------------------------------

    async def _explore(self, queued: tuple[int, Question]) -> None:
        """Explore one question; its line, also of a failure, is written once the run is sure to reach it. Raises
        RunStopped."""
        position, question = queued
        explorer = self._explorer(position, question)
        try:
            await explorer.run()
            rollout = explorer.record(self.identity)
        except RunStopped:
            raise
        except ReasonragError as error:
            rollout = self._failed(explorer, error.cause, str(error), details=None)
        except Exception as error:  # noqa: BLE001 - a bug must cost one question, not the run
            message = f"{type(error).__name__}: {error}"
            rollout = self._failed(explorer, "internal", message, details=traceback.format_exc())
        self._waiting[position] = rollout
        undecided = self._decision.reach < self._total  # whether it may stop the run
        self._decision.add(position, None if rollout.error else observed_signs(rollout, for_stop=undecided))
        self._write_decided()
        self._count(rollout)
        self._check_degeneracy()

    def _write_decided(self) -> None:
        """Write the lines of questions that the run is sure to reach. Raises StorageError."""
        for position in [each for each in self._waiting if each < self._decision.reach]:
            self.run.append(self._waiting[position])
            del self._waiting[position]

    def _explorer(self, position: int, question: Question) -> Explorer:
        own = replace(self.agent, priority=position, spending=Spending())
        others = self.value_agent and replace(self.value_agent, priority=position, spending=Spending())
        recipe = self.identity.recipe
        valuer = self.rule.valuer(question, gold=recipe.judge_sees_gold)
        return Explorer(own, question, recipe, value_agent=others, valuer=valuer)

    def _count(self, rollout: RolloutRecord) -> None:
        self.run.note_refusals(self.models.lessons)  # at once, as the session may be killed
        tally = self.session.tally
        tally.questions += 1
        tally.failed_questions += rollout.error is not None
        self._cost_of_finished += rollout.usage.cost_usd or 0.0
        if self.models.cost is not None:
            tally.projected_cost = self._cost_of_finished / tally.questions * self._total
        self.session.advance()

    def _check_degeneracy(self) -> None:
        """Report signs of degeneracy so far, in question order, because questions that end first are not typical.
        Raises DegenerateRun if continuing would waste money."""
        for message in self._decision.counts.new_messages():
            self.watcher.warn(message)
        if self._decision.reason:
            stop = DegenerateRun(self._decision.reason)
            self.session.stop(stop)
            raise stop

    def _failed(self, explorer: Explorer, cause: str, message: str, *, details: str | None) -> RolloutRecord:
        written = self.run.failures.note(
            "question", question_id=explorer.question.id, cause=cause, message=message, details=details
        )
        if cause not in self._failures:
            self._failures.add(cause)
            self.watcher.say(f"question {explorer.question.id} failed: {written['message']}")
        return explorer.error_record(self.identity, QuestionError(cause=cause, message=written["message"]))


@contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """Make garbage collection rare: neither trees nor requests have cycles, and scanning them took a fifth of the
    time. Earlier garbage waits until after: looking for it took up to a third of a second where much is loaded."""
    thresholds = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(200_000, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
