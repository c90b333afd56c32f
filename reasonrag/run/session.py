"""One session with some models: workers over a queue, progress, and an end that keeps every requested answer.

Decides what Ctrl-C does: the first lets the requests in flight finish, the second ends at once. Knows neither questions
nor trees, nor what the models are asked.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from reasonrag.concurrency import interruptible, work_off
from reasonrag.errors import Interrupted, RunStopped
from reasonrag.llm.budget import Caps, Ledger, Tokens
from reasonrag.llm.chat import ChatModel
from reasonrag.llm.critic import ScoreEndpoint
from reasonrag.llm.endpoint.endpoint import CallFailure, EndpointModel
from reasonrag.llm.journal import Journal, JournaledModel
from reasonrag.llm.model_spec import ModelSpec
from reasonrag.progress import TICK_S, SessionTally, Watcher

Item = TypeVar("Item")


@dataclass(frozen=True)
class Models:
    """The models of a session, behind one journal and one set of caps: begun, checked, stopped and drained together.

    by_role: by what they are for ("model", "judge", "critic", ..). The first one is the main model.
    """

    by_role: dict[str, JournaledModel]

    @classmethod
    def journaled(cls, journal: Journal, caps: Caps, roles: Mapping[str, tuple[ModelSpec, ChatModel | None]]) -> Models:
        """Models behind a journal. Each comes with what answers if the journal does not; None: it alone answers."""
        found, ledger = dict[str, JournaledModel](), None
        for role, (spec, inner) in roles.items():
            spent = journal.delivered_by[spec.recorded_as]
            ledger = ledger.beside(spec.price, spent) if ledger else Ledger(spec.price, caps, spent=spent)
            name = spec.recorded_as or spec.name
            found[role] = JournaledModel(inner, journal, name=name, ledger=ledger, recorded_as=spec.recorded_as)
        return cls(found)

    @property
    def main(self) -> JournaledModel:
        return self.all[0]

    @property
    def all(self) -> tuple[JournaledModel, ...]:
        return tuple(self.by_role.values())

    @property
    def endpoints(self) -> list[tuple[JournaledModel, EndpointModel]]:
        """Those that are asked over HTTP."""
        return [(each, each.inner) for each in self.all if isinstance(each.inner, EndpointModel)]

    def begin(self, *, on_failure: Callable[[CallFailure], None], say: Callable[[str], None]) -> None:
        """Reset for a new session. on_failure: called with every failed attempt of a request. say: called with messages
        about an endpoint for the user."""
        for model, endpoint in self.endpoints:
            endpoint.begin()
            endpoint.on_failure, endpoint.say, model.on_news = on_failure, say, endpoint.tell

    async def check(self) -> None:
        """Raises InputError if one of them is unusable."""
        for each in self.all:
            await each.check()
        for model, endpoint in self.endpoints:
            model.ledger.counts_bytes |= endpoint.counts_bytes

    def stop(self, reason: RunStopped) -> None:
        """Send no more requests; `drain` awaits those in flight."""
        for each in self.all:
            each.stop(reason)
            if isinstance(each.inner, EndpointModel | ScoreEndpoint):
                each.inner.stop(reason)

    async def drain(self) -> None:
        for each in self.all:
            await each.drain()

    # -- state ----------------------------------------------------------------------

    @property
    def stopped(self) -> RunStopped | None:
        """Why one of the models sends no more requests; None if all do."""
        reasons = [*(each.stopped for each in self.all), *(endpoint.stopped for _, endpoint in self.endpoints)]
        return next(filter(None, reasons), None)

    @property
    def lessons(self) -> dict[str, list[str]]:
        """By name of the model, what its endpoints refused in this session, and from which lengths they cut prompts. A
        model that was not checked is left out."""
        return {model.name: each.refused + model.lessons for model, each in self.endpoints if each.checked}

    @property
    def spent(self) -> Tokens:
        """Tokens delivered by all of them, in all sessions."""
        return sum((each.ledger.spent for each in self.all), start=Tokens())

    @property
    def cost(self) -> float | None:
        """Dollars, in all sessions; None if one has no price."""
        return self.main.ledger.cost

    @property
    def cached_calls(self) -> int:
        """Draws answered by the journal in this session."""
        return sum(each.cached_calls for each in self.all)

    @property
    def in_flight(self) -> int:
        return sum(
            each.inner.in_flight if isinstance(each.inner, EndpointModel) else each.in_flight for each in self.all
        )


@dataclass
class Session:
    """See the module's docstring. Creating it begins the models.

    on_failure: called with every failed attempt of a request. interrupt: set from outside, it is a first Ctrl-C.
    """

    models: Models
    watcher: Watcher
    on_failure: Callable[[CallFailure], None]
    interrupt: asyncio.Event = field(default_factory=asyncio.Event)
    tally: SessionTally = field(default_factory=SessionTally)
    stopped: RunStopped | None = None
    """What ended the session early, or was about to when the last item finished."""

    def __post_init__(self) -> None:
        self._began = time.monotonic()
        self._spent_before = self.models.spent
        self.models.begin(on_failure=self._failed, say=self.watcher.say)

    async def run(
        self, queue: Iterable[Item], work: Callable[[Item], Coroutine[Any, Any, None]], *, at_once: int
    ) -> RunStopped | None:
        """Work on the items in order, `at_once` at a time, and wait until every answer in flight is on disk.

        Returns what stopped the session: a cap, Ctrl-C, a lost endpoint, a full disk, a bug after an answer. Raises the
        first other error of an item once the rest is stopped; KeyboardInterrupt at the second Ctrl-C.
        """
        telling = asyncio.create_task(self._tell())
        heeding = asyncio.create_task(self._heed())
        reason = None
        try:
            with interruptible(self._finish, self.watcher.say) as presses:
                try:
                    await work_off(queue, work, at_once=at_once)
                except RunStopped as stopped:
                    reason = stopped
                    self.stop(stopped)
                except Exception as error:
                    self.stop(RunStopped(str(error)))
                    await self.models.drain()
                    raise
                if len(presses) > 1:
                    raise asyncio.CancelledError  # the second came while the workers ended, where it is lost
                await self.models.drain()  # abandoned work had sent requests, which are paid too
                if self.stopped is None and self.models.stopped is not None:  # by the last answer
                    reason = self.models.stopped
                    self.stop(reason)
        finally:
            telling.cancel()
            heeding.cancel()
            self.advance()
            self.watcher.ended()
        return reason

    def stop(self, reason: RunStopped) -> None:
        """Send no more requests; those in flight are awaited."""
        self.stopped = self.stopped or reason
        self.models.stop(reason)

    def _finish(self) -> str:
        self.stop(Interrupted("interrupted; finished work and received answers are kept"))
        return f"{self.models.in_flight:,} requests in flight"

    async def _heed(self) -> None:
        await self.interrupt.wait()
        self._finish()

    # -- state ----------------------------------------------------------------------

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def advance(self) -> None:
        new, tally = self.models.spent - self._spent_before, self.tally
        tally.calls, tally.tokens = new.calls, new.prompt_tokens + new.completion_tokens
        tally.cached_calls = self.models.cached_calls
        tally.in_flight = self.models.in_flight
        tally.cost = self.models.cost
        reasons = [endpoint.waiting_for for _, endpoint in self.models.endpoints if endpoint.waiting_for]
        tally.waiting_for = "; ".join(reasons) or self.models.main.ledger.waiting_for
        tally.seconds = self.seconds
        self.watcher.advanced(tally)

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self.advance()

    def _failed(self, failure: CallFailure) -> None:
        self.tally.failed_calls += 1
        self.on_failure(failure)
        self.advance()
