"""Paid work on many items in a folder: what the journal answers is read, what is owed is asked.

Decides the order of a session: the journal alone, then models, trial request, consent, workers, and an end that keeps
every answer that was asked for. Knows neither what an item is nor what the models are asked about it.
"""

from __future__ import annotations

import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from reasonrag.concurrency import work_off
from reasonrag.errors import InputError, Interrupted, ReasonragError, RunStopped
from reasonrag.files import FAILURES, JOURNAL, only_writer
from reasonrag.llm.budget import Caps, Tokens
from reasonrag.llm.chat import ChatModel, ChatRequest, Completion, WrappedModel
from reasonrag.llm.expected_usage import ExpectedUsage
from reasonrag.llm.journal import Journal, open_journal
from reasonrag.llm.model_spec import ModelSpec
from reasonrag.progress import Watcher
from reasonrag.redaction import redact
from reasonrag.run.consent import get_consent, needs_consent
from reasonrag.run.failures import FailureLog
from reasonrag.run.models import Models
from reasonrag.run.session import Session
from reasonrag.run_config import RunConfig, config_restored, has_answers, keep_config, note_refusals

INTERNAL = "internal"
"""Cause of an item that failed by a bug of reasonrag."""
Item = TypeVar("Item")
Owed_contra = TypeVar("Owed_contra", contravariant=True)


class Role(NamedTuple):
    """A model of a run: how it is asked, and what opens it. That may start a server, and is called once an item is
    owed."""

    spec: ModelSpec
    open: Callable[[], Awaitable[ChatModel]]


class ItemModel(WrappedModel):
    """A model as one item asks it: earlier items have priority, and the tokens are the item's."""

    def __init__(self, inner: ChatModel, position: int) -> None:
        super().__init__(inner)
        self.spent = Tokens()
        self._position = position

    async def complete(self, request: ChatRequest) -> Sequence[Completion]:
        completions = await self.inner.complete(request.model_copy(update={"priority": self._position}))
        self.spent += Tokens.of(completions)
        return completions


class Failure(NamedTuple):
    """Why an item, or a part of it, has no result. message: without secrets."""

    cause: str
    message: str


@dataclass
class Asked:
    """One item's turn: the models by their roles, and what becomes of a failure.

    failures: None where the journal alone answers; an item that fails there is owed.
    """

    models: Mapping[str, ItemModel]
    failures: FailureLog | None = None
    failed: bool = False
    """Whether the item has no result."""

    def failure(self, error: Exception, kind: str, where: Mapping[str, str | int], *, part: bool = False) -> Failure:
        """Log it as failed work of that kind, and where that was. part: of the item, which has a result all the same.
        Raises the error where it is no matter of one item: it ends the run, or the item is owed."""
        if self.failures is None or isinstance(error, RunStopped | InputError):
            raise error
        self.failed |= not part
        if isinstance(error, ReasonragError):
            self.failures.give_up(kind, error, **where)
            return Failure(error.cause, redact(str(error)))
        message, details = f"{type(error).__name__}: {error}", traceback.format_exc()
        self.failures.note(kind, **where, cause=INTERNAL, message=message, details=details)
        return Failure(INTERNAL, redact(message))

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
        ...

    def question_of(self, item: Item) -> str:
        """The id by which the journal knows it."""
        ...

    async def do(self, item: Item, asked: Asked) -> None:
        """Work on an item, and keep the result at the end. What it raises while the journal alone answers makes the
        item owed; later it ends the run."""
        ...


class Estimate(Protocol[Owed_contra]):
    """What owed items will cost, for consent."""

    def described(self, count: int) -> str:
        """So many items, in the question whether to start."""
        ...

    async def expected(
        self, owed: Iterable[Owed_contra], count: int, fresh: int, roles: Sequence[str]
    ) -> Sequence[ExpectedUsage]:
        """The usage to come of each role. count: of the owed items; fresh: those without any answer. None if it is not
        known."""
        ...


@dataclass
class Run:
    """A session of a folder that is locked. refused: parameters that endpoints refused, in all sessions, by model."""

    folder: Path
    journal: Journal
    failures: FailureLog
    watcher: Watcher
    roles: Mapping[str, Role]
    caps: Caps
    yes: bool
    configured: bool
    refused: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.models = self._behind({})

    def ask_by(self, role: str, spec: ModelSpec) -> None:
        """Have a model asked so, from before `over` on."""
        self.roles = {**self.roles, role: Role(spec, self.roles[role].open)}
        self.models = self._behind({})

    async def over(self, work: Work[Item], cost: Estimate[Item] | None = None) -> RunStopped | None:
        """Work on every item, once. cost: agreed to where that is needed; None: nothing is spent.

        Returns what stopped it early: a cap, Ctrl-C, a lost endpoint, a full disk. Raises InputError where a model
        cannot be asked or the cost is not agreed to.
        """
        owed, total, fresh = await self._replay(work)
        if not owed:
            self._note_refusals()
            self.watcher.started(total=total, done=total, noun=work.noun)
            self.watcher.ended()
            return None
        self.models = self._behind({role: await each.open() for role, each in self.roles.items()})
        session = Session(self.models, self.watcher, self.failures.attempt)
        await self.models.check()
        self._note_refusals()
        if cost:
            await self._agree(work, cost, owed, fresh)
        done = total - len(owed)
        self.watcher.started(total=total, done=done, noun=work.noun)

        async def ask(numbered: tuple[int, Item]) -> None:
            position, item = numbered
            asked = self._asked(position, self.failures)
            await work.do(item, asked)
            session.tally.questions += 1
            session.tally.failed_questions += asked.failed
            session.advance()

        numbered = ((position, item) for position, item in enumerate(work.items()) if position in owed)
        stopped = await session.run(numbered, ask, at_once=work.at_once)
        self._note_refusals()
        if stopped:
            self.watcher.say(f"{done + session.tally.questions:,} of {total:,} {work.noun}s are done")
        return stopped

    async def complete(self, work: Work[Item], cost: Estimate[Item] | None = None) -> None:
        """`over`, but raises what stopped it; KeyboardInterrupt for Ctrl-C."""
        stopped = await self.over(work, cost)
        if isinstance(stopped, Interrupted):
            raise KeyboardInterrupt from stopped
        if stopped is not None:
            raise stopped

    async def _replay(self, work: Work[Item]) -> tuple[set[int], int, int]:
        """Do what the journal answers. Positions of the owed items, how many items there are, and how many of the owed
        ones have no answer yet."""
        owed, total, fresh = set[int](), 0, 0

        async def read(numbered: tuple[int, Item]) -> None:
            nonlocal total, fresh
            position, item = numbered
            total += 1
            if work.question_of(item) not in self.journal.questions:
                owed.add(position)
                fresh += 1
                return
            try:
                await work.do(item, self._asked(position, None))
            except Exception:  # noqa: BLE001 - the item is asked for again; what is wrong then is written down
                owed.add(position)

        await work_off(enumerate(work.items()), read, at_once=work.at_once)
        return owed, total, fresh

    async def _agree(self, work: Work[Item], cost: Estimate[Item], owed: set[int], fresh: int) -> None:
        """Get consent to the cost of the owed items, where it needs that. Raises InputError."""
        specs = [each.spec for each in self.roles.values()]
        if needs_consent(specs, self.caps, yes=self.yes):
            items = (item for position, item in enumerate(work.items()) if position in owed)
            expected = await cost.expected(items, len(owed), fresh, [*self.roles])
            told = list(zip(specs, expected, strict=True)) if expected else []
            get_consent(cost.described(len(owed)), told, self.watcher, self.models)

    def _asked(self, position: int, failures: FailureLog | None) -> Asked:
        return Asked({role: ItemModel(each, position) for role, each in self.models.by_role.items()}, failures)

    def _behind(self, opened: Mapping[str, ChatModel]) -> Models:
        """The models behind the journal and one set of caps."""
        return Models.journaled(
            self.journal, self.caps, {role: (each.spec, opened.get(role)) for role, each in self.roles.items()}
        )

    def _note_refusals(self) -> None:
        if self.configured:
            self.refused = note_refusals(self.folder, self.models.lessons)


@contextmanager
def claimed(folder: Path, config: RunConfig | None = None, *, flag: str = "--run") -> Iterator[None]:
    """Be the only writer of a folder. config: of what is made there, kept in its config.json; None: it has none.

    Raises InputError where the folder is in use, or was made with another configuration. A start that ends by an
    InputError leaves no file. flag: names the folder in messages.
    """
    with only_writer(folder, flag=flag), config_restored(folder):
        if config:
            keep_config(folder, config, held=has_answers(folder))
        yield


@asynccontextmanager
async def open_run(
    folder: Path, roles: Mapping[str, Role], watcher: Watcher, *, caps: Caps, yes: bool, configured: bool
) -> AsyncIterator[Run]:
    """A session in a folder that is claimed, the main model first. caps: of all models together. yes: consent to any
    cost. configured: whether the folder has a config.json, which notes what endpoints refuse."""
    async with open_journal(folder / JOURNAL, say=watcher.say) as journal:
        with FailureLog(folder / FAILURES) as failures:
            yield Run(folder, journal, failures, watcher, roles, caps, yes, configured)
