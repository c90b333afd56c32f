"""What a run does with each question: a tree, or the cause why there is none.

A failed question affects only itself. Decides when too many trees are degenerate to go on. Knows the run directory and
the agents, not how they were made.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reasonrag.agent.agent import Agent
from reasonrag.agent.outcomes import OutcomeRule
from reasonrag.data.questions import Question, Questions
from reasonrag.errors import DegenerateRun
from reasonrag.exploration.degeneracy import Look, StopDecision
from reasonrag.exploration.explorer import READER, TEACHER, VALUE_MODEL, Explorer, RunIdentity
from reasonrag.exploration.rehearsal import rehearse
from reasonrag.exploration.run_directory import RunDirectory
from reasonrag.llm.expected_usage import ExpectedUsage, spread
from reasonrag.progress import Watcher
from reasonrag.run.engine import Asked


@dataclass
class Exploring:
    """The work of a run on its questions; see `Work`.

    agent: proposes steps, and continues them unless value_agent does; see `Explorer`. rule: how answers are valued.
    abort_degenerate: share of the questions with a sign of degeneracy that ends it; 0: never; see `StopDecision`.
    """

    questions: Questions
    run: RunDirectory
    identity: RunIdentity
    agent: Agent
    value_agent: Agent | None
    rule: OutcomeRule
    watcher: Watcher
    abort_degenerate: float
    at_once: int
    noun: str = "question"

    def __post_init__(self) -> None:
        self._total = len(self.questions)  # of a shard they are read to be counted
        self._decision = StopDecision(self.abort_degenerate, self._total)
        self._told, self._warned_of = set[str](), set[str]()  # causes of failed questions, and signs

    def items(self) -> Iterable[Question]:
        return self.questions

    def question_of(self, item: Question) -> str:
        return item.id

    def is_done(self, item: Question) -> bool:
        return self.run.is_done(item.id)

    def stop_before(self) -> DegenerateRun | None:
        """Count the trees of earlier sessions; what stops this one before its first request."""
        if all(map(self.is_done, self.questions)):
            return None
        for position, each in enumerate(self.questions):
            if self.is_done(each):  # a tree is read only if it can matter
                self._decision.add(position, Look.at(self.run.tree(each.id)) if self._decision.is_open else None)
        return self._degenerate()

    def described(self, count: int) -> str:
        limited = self.questions.limit is not None
        return self.questions.source.described(count, self._total, limited=limited)

    async def expected(
        self,
        owed: Iterable[Question],
        count: int,
        fresh: int,
        roles: Sequence[str],  # noqa: ARG002 - a rehearsal knows the agents
    ) -> list[ExpectedUsage]:
        """As the offline teacher has it on some of the owed questions. Sends no request."""
        some = spread(owed, count)
        usage = await rehearse(some, self.identity.recipe, self.agent, self.value_agent, self.rule)
        return [each.times(fresh, count) for each in usage.by_model] if usage else []

    async def do(self, item: Question, asked: Asked) -> None:
        """Explore a question, and write its line, also of a failure. Raises StorageError."""
        own = self.agent.anew(asked.models[TEACHER], asked.models.get(READER))
        others = self.value_agent and self.value_agent.anew(asked.models[VALUE_MODEL])
        recipe = self.identity.recipe
        valuer = self.rule.valuer(item, gold=recipe.judge_sees_gold)
        explorer = Explorer(own, item, recipe, value_agent=others, valuer=valuer)
        try:
            await explorer.run()
            rollout = explorer.record(self.identity)
        except Exception as error:  # noqa: BLE001 - a bug must cost one question, not the run
            failure = asked.failure(error, "question", {"question_id": item.id})
            if failure.cause not in self._told:
                self._told.add(failure.cause)
                self.watcher.say(f"question {item.id} failed: {failure.message}")
            rollout = explorer.record(self.identity, failure)
        self.run.append(rollout)
        look = None if rollout.error else Look.at(rollout, undecided=self._decision.is_open)
        self._decision.add(asked.position, look)
        asked.stop = self._degenerate()

    def _degenerate(self) -> DegenerateRun | None:
        """Report signs of degeneracy so far, in question order, because questions that end first are not typical.
        Returns a reason where continuing would waste money."""
        for sign, message in self._decision.counts.warnings().items():
            if sign not in self._warned_of:
                self._warned_of.add(sign)
                self.watcher.warn(message)
        return DegenerateRun(self._decision.reason) if self._decision.reason else None
