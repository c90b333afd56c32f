"""The models a session asks, as one: begun, checked, stopped and drained together, and interrupted well.

Decides what Ctrl-C does. Knows neither runs nor trees, and not what the models are asked for.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from reasonrag.concurrency import together
from reasonrag.errors import Interrupted, RunStopped
from reasonrag.llm.budget import Tokens
from reasonrag.llm.endpoint import CallFailure, EndpointModel
from reasonrag.llm.journal import JournaledModel

TOLD_EVERY_S = 10.0
"""How often a line says how far work outside a run is."""

T = TypeVar("T")


@dataclass(frozen=True)
class Models:
    """The teacher, and the value model where another one continues what the teacher proposes."""

    teacher: JournaledModel
    value: JournaledModel | None = None

    @property
    def all(self) -> tuple[JournaledModel, ...]:
        return (self.teacher,) if self.value is None else (self.teacher, self.value)

    @property
    def _endpoints(self) -> list[EndpointModel]:
        return [each.inner for each in self.all if isinstance(each.inner, EndpointModel)]

    def begin(self, *, on_failure: Callable[[CallFailure], None], say: Callable[[str], None]) -> None:
        """Be ready for a session, whatever ended the last one, and tell these what goes wrong and what is learned."""
        for endpoint in self._endpoints:
            endpoint.begin()
            endpoint.on_failure, endpoint.say = on_failure, say

    async def check(self) -> None:
        for each in self.all:
            await each.check()

    def stop(self, reason: RunStopped) -> None:
        """Ask for nothing more; what is under way is awaited by `drain`."""
        for each in self.all:
            each.stop(reason)
        for endpoint in self._endpoints:
            endpoint.stop(reason)

    async def drain(self) -> None:
        """Wait until every answer under way is on disk."""
        for each in self.all:
            await each.drain()

    @contextmanager
    def interruptible(self, stop: Callable[[RunStopped], None], *, say: Callable[[str], None]) -> Iterator[None]:
        """The first Ctrl-C calls `stop`, the second ends the block at once. Only the main thread hears of it."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        interrupts: list[bool] = []

        def interrupt() -> None:
            if interrupts and task is not None:
                task.cancel()
                return
            interrupts.append(True)
            stop(Interrupted("interrupted; what was finished and what was answered is kept"))
            say(f"finishing {self.in_flight:,} requests in flight; Ctrl-C again stops at once")

        loop.add_signal_handler(signal.SIGINT, interrupt)
        try:
            yield
        except asyncio.CancelledError:
            if not interrupts:
                raise
            raise KeyboardInterrupt from None
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    async def carry_out(
        self, *work: Coroutine[Any, Any, T], say: Callable[[str], None], how_far: Callable[[], str] | None
    ) -> list[T]:
        """Results of work that asks these models, in order, when every answer under way is on disk.

        how_far: a line that is said now and then; None where somebody else tells. Raises the first error of any piece
        of work, when the others were stopped; KeyboardInterrupt where that was Ctrl-C.
        """
        telling = asyncio.create_task(self._tell(say, how_far))
        try:
            with self.interruptible(self.stop, say=say):
                try:
                    found = await together(*work)
                except Exception as error:
                    self.stop(error if isinstance(error, RunStopped) else RunStopped(str(error)))
                    await self.drain()
                    if isinstance(error, Interrupted):
                        raise KeyboardInterrupt from error
                    raise
                await self.drain()  # what was given up had asked for something, which is paid, too
        finally:
            telling.cancel()
        return found

    async def _tell(self, say: Callable[[str], None], how_far: Callable[[], str] | None) -> None:
        while how_far is not None:
            await asyncio.sleep(TOLD_EVERY_S)
            waiting = f"; {self.waiting_for}" if self.waiting_for else ""
            say(f"{how_far()}, {self.spent.calls:,} replies{waiting}")

    # -- how things stand ----------------------------------------------------------------------

    @property
    def spent(self) -> Tokens:
        """Delivered by all of them, in all sessions."""
        return sum((each.ledger.spent for each in self.all), start=Tokens())

    @property
    def cost(self) -> float | None:
        """Dollars, in all sessions; None where one has no price."""
        return self.teacher.ledger.cost

    @property
    def cached_calls(self) -> int:
        """Draws answered by the journal in this session."""
        return sum(each.cached_calls for each in self.all)

    @property
    def in_flight(self) -> int:
        """Requests sent and not yet answered."""
        return sum(
            each.inner.in_flight if isinstance(each.inner, EndpointModel) else each.in_flight for each in self.all
        )

    @property
    def seconds_per_request(self) -> float | None:
        """From sending to answer, the mean over the endpoints; None before the first answer."""
        known = [each for each in self._endpoints if each.answered]
        answered = sum(each.answered for each in known)
        return sum(each.answered * (each.seconds_per_request or 0.0) for each in known) / answered if answered else None

    @property
    def waiting_for(self) -> str:
        """Why nothing is sent at the moment; empty while requests go."""
        if reasons := [endpoint.waiting_for for endpoint in self._endpoints if endpoint.waiting_for]:
            return "; ".join(reasons)
        return "a cap is near: one request at a time" if any(each.ledger.waiting for each in self.all) else ""
