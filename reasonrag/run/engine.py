"""Paid work on many items in a folder: what the journal answers is read, what is owed is asked.

Decides the order of a session: the journal alone, then models, trial request, consent, workers, and an end that keeps
every answer that was asked for. Knows neither what an item is nor what the models are asked about it.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from preference.records import QuestionError
from reasonrag.concurrency import work_off
from reasonrag.errors import InputError, Interrupted, ReasonragError, RunStopped, UnexpectedError
from reasonrag.files import FAILURES, JOURNAL, only_writer
from reasonrag.llm.budget import Caps, Tokens
from reasonrag.llm.chat import ChatModel, ChatRequest, Completion, WrappedModel
from reasonrag.llm.endpoint.endpoint import EndpointModel
from reasonrag.llm.expected_usage import ExpectedUsage
from reasonrag.llm.journal import Journal
from reasonrag.llm.model_spec import ModelSpec
from reasonrag.progress import Watcher
from reasonrag.run.consent import get_consent, needs_consent
from reasonrag.run.failures import FailureLog
from reasonrag.run.session import Models, Session
from reasonrag.run_config import RunConfig, another_run_named, keep_config, note_refusals

Item = TypeVar("Item")
Owed_contra = TypeVar("Owed_contra", contravariant=True)


class Role(NamedTuple):
    """A model of a run: how it is asked, and what opens it, or has it open. That may start a server, and is called once
    an item is owed. None: the journal alone answers; what it lacks is a failure."""

    spec: ModelSpec
    open: Callable[[], Awaitable[ChatModel | None]]


class ItemModel(WrappedModel):
    """A model as one item asks it: earlier items have priority, and the tokens are the item's."""

    def __init__(self, inner: ChatModel, position: int) -> None:
        super().__init__(inner)
        self.spent = Tokens()
        self._position = position

    async def complete(self, request: ChatRequest) -> Sequence[Completion]:
        completions = await self.inner.complete(replace(request, priority=self._position))
        self.spent += Tokens.of(completions)
        return completions


@dataclass
class Asked:
    """One item's turn: the models by their roles, and what becomes of a failure.

    failures: None where the journal alone answers; an item that fails there is owed.
    """

    position: int
    models: Mapping[str, ItemModel]
    failures: FailureLog | None = None
    failed: bool = False
    """Whether the item has no result."""
    stop: RunStopped | None = None
    """What ends the run after this item."""

    def failure(
        self, error: Exception, kind: str, where: Mapping[str, str | int], *, part: bool = False
    ) -> QuestionError:
        """Log it as failed work of that kind, and where that was; returns it as it was written down, without secrets.
        part: of the item, which has a result all the same. Raises the error where it is no matter of one item: it ends
        the run, or the item is owed."""
        if self.failures is None or isinstance(error, RunStopped | InputError):
            raise error
        self.failed |= not part
        if isinstance(error, ReasonragError):
            return self.failures.give_up(kind, error.cause, str(error), **where)
        message, details = f"{type(error).__name__}: {error}", traceback.format_exc()
        return self.failures.give_up(kind, UnexpectedError.cause, message, **where, details=details)

    def note(self, kind: str, **what: object) -> None:
        """Write to the failures what is no failure of the item. Not again where the journal alone answers."""
        if self.failures is not None:
            self.failures.note(kind, **what)


class Work(Protocol[Item]):
    """What a run does with each item. noun: what an item is, in messages. at_once: items under way at a time."""

    @property
    def noun(self) -> str: ...
    @property
    def at_once(self) -> int: ...

    def items(self) -> Iterable[Item]:
        """In order; called several times."""

    def question_of(self, item: Item) -> str:
        """The id by which the journal knows it."""

    async def do(self, item: Item, asked: Asked) -> None:
        """Work on an item, and keep the result at the end. What it raises while the journal alone answers makes the
        item owed; later it ends the run."""


class Estimate(Protocol[Owed_contra]):
    """What owed items will cost, for consent."""

    def described(self, count: int) -> str:
        """So many items, in the question whether to start."""

    async def expected(
        self, owed: Iterable[Owed_contra], count: int, fresh: int, roles: Sequence[str]
    ) -> Sequence[ExpectedUsage]:
        """The usage to come of each role. count: of owed items; fresh: those without any answer. Empty: not known."""


class Budget(NamedTuple):
    """caps: of all models together. yes: consent to any cost."""

    caps: Caps
    yes: bool = False


@dataclass
class Run:
    """A session in a folder that is claimed.

    roles: the main model first. recorded_in: the folder whose config.json records what endpoints refused in all
    sessions; None: `refused` is that of this one. wrapped: gives the model that bills the requests. interrupt: set from
    outside, it acts as the first Ctrl-C.
    """

    journal: Journal
    failures: FailureLog
    watcher: Watcher
    roles: Mapping[str, Role]
    budget: Budget
    recorded_in: Path | None = None
    wrapped: Callable[[ChatModel], ChatModel] = lambda model: model
    interrupt: asyncio.Event = field(default_factory=asyncio.Event)
    refused: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._lessons: dict[str, list[str]] | None = None
        self._total = self._left = 0
        self._begin({})

    def ask_by(self, role: str, spec: ModelSpec) -> None:
        """Have a model asked so, from before `over` on."""
        self.roles = {**self.roles, role: Role(spec, self.roles[role].open)}
        self._begin({})

    async def over(
        self,
        work: Work[Item],
        cost: Estimate[Item] | None = None,
        *,
        done: Callable[[Item], bool] | None = None,
        before: Callable[[], None] = lambda: None,
    ) -> RunStopped | None:
        """Work on every item, once.

        cost: agreed to where that is needed; None: that was done. done: whether an item needs no work; None: the
        journal tells. before: called once all is agreed to. Returns what stopped it early: a cap, Ctrl-C, a lost
        endpoint, a full disk. Raises InputError where a model cannot be asked or the cost is not agreed to.
        """
        owed, fresh = await self._owed(work, done)
        self._left = len(owed)
        asks = bool(owed) and self.session.stopped is None
        if asks:
            self._begin({role: await each.open() for role, each in self.roles.items()})
            await self.models.check()
        self._note_refusals()
        if asks and cost:
            await self._agree(work, cost, owed, fresh)
        before()
        if asks or not self._left:
            self.watcher.started(total=self._total, done=self._total - self._left, noun=work.noun)
        if not asks:
            self.watcher.ended()
            return self.session.stopped

        async def ask(numbered: tuple[int, Item]) -> None:
            position, item = numbered
            asked, tally = self._asked(position, self.failures), self.session.tally
            await work.do(item, asked)
            self._note_refusals()  # at once, as the session may be killed
            tally.questions += 1
            tally.failed_questions += asked.failed
            self.session.advance()
            if asked.stop:
                self.session.stop(asked.stop)  # at once: other items' answers may have come in the same moment
                raise asked.stop

        stopped = await self.session.run(_at(owed, work.items()), ask, at_once=work.at_once)
        self._note_refusals()
        return stopped

    async def complete(self, work: Work[Item], cost: Estimate[Item] | None = None) -> None:
        """`over`, but raises what stopped it; KeyboardInterrupt for Ctrl-C."""
        stopped: BaseException | None = None
        try:
            stopped = await self.over(work, cost)
        except KeyboardInterrupt as again:
            stopped = again
        if stopped:
            tally = self.session.tally
            done = self._total - self._left + tally.questions - tally.failed_questions
            self.watcher.say(f"{done:,} of {self._total:,} {work.noun}s are done")
            if isinstance(stopped, Interrupted):
                raise KeyboardInterrupt from stopped
            raise stopped

    async def _owed(self, work: Work[Item], done: Callable[[Item], bool] | None) -> tuple[set[int], int]:
        """Positions of the items left to do once what the journal answers is done, and how many have no answer yet."""
        owed, fresh, self._total = set[int](), 0, 0

        async def read(numbered: tuple[int, Item]) -> None:
            nonlocal fresh
            position, item = numbered
            self._total += 1
            begun = work.question_of(item) in self.journal.questions
            if done is not None and done(item):
                return
            if done is None and begun:
                with suppress(Exception):  # the item is asked for again; what is wrong then is written down
                    await work.do(item, self._asked(position, None))
                    return
            fresh += not begun
            owed.add(position)

        await work_off(enumerate(work.items()), read, at_once=work.at_once)
        return owed, fresh

    async def _agree(self, work: Work[Item], cost: Estimate[Item], owed: Collection[int], fresh: int) -> None:
        """Get consent to the cost of the owed items, where it needs that. Raises InputError."""
        specs, count = [each.spec for each in self.roles.values()], len(owed)
        if needs_consent(specs, self.budget.caps, yes=self.budget.yes):
            items = (item for _, item in _at(owed, work.items()))
            expected = await cost.expected(items, count, fresh, [*self.roles])
            asked = zip(specs, expected, (each.inner for each in self.models.all), strict=False)
            told = [
                (spec, usage.with_reasoning(spec.sampling.max_tokens))
                if isinstance(model, EndpointModel) and model.reasons  # by its trial
                else (spec, spec.expected(usage))
                for spec, usage, model in asked
            ]
            caps, spent = self.budget.caps, self.models.spent
            get_consent(cost.described(count), told, self.watcher, caps=caps, spent=spent)

    def _asked(self, position: int, failures: FailureLog | None) -> Asked:
        models = self.models.by_role.items()
        return Asked(position, {role: ItemModel(self.wrapped(each), position) for role, each in models}, failures)

    def _begin(self, opened: Mapping[str, ChatModel | None]) -> None:
        """A session of the models behind the journal and one set of caps."""
        models = {role: (each.spec, opened.get(role)) for role, each in self.roles.items()}
        self.models = Models.journaled(self.journal, self.budget.caps, models)
        self.session = Session(self.models, self.watcher, self.failures.attempt, self.interrupt)

    def _note_refusals(self) -> None:
        if (lessons := self.models.lessons) != self._lessons:
            self._lessons = lessons
            found = note_refusals(self.recorded_in, lessons) if self.recorded_in else lessons
            self.refused = {name: refused for name, refused in found.items() if refused}


def _at(positions: Collection[int], items: Iterable[Item]) -> Iterator[tuple[int, Item]]:
    return ((position, item) for position, item in enumerate(items) if position in positions)


@contextmanager
def claimed(folder: Path, config: RunConfig | None = None, *, flag: str = "--run") -> Iterator[None]:
    """Be the only writer of a folder. config: of what is made there, kept in its config.json; None: it has none.

    Raises InputError where the folder is in use, or of another configuration. flag: names it in messages.
    """
    with only_writer(folder, flag=flag), another_run_named(folder):
        if config:
            keep_config(folder, config, flag=flag)
        yield


@asynccontextmanager
async def open_run(
    folder: Path, roles: Mapping[str, Role], watcher: Watcher, budget: Budget, recorded_in: Path | None = None
) -> AsyncIterator[Run]:
    """A session with the journal and the failures of a folder that is claimed; see `Run`."""
    async with Journal(folder / JOURNAL, say=watcher.say) as journal:
        with FailureLog(folder / FAILURES) as failures:
            yield Run(journal, failures, watcher, roles, budget, recorded_in)
