"""One session with some models: workers over a queue, progress, and an end that keeps every requested answer.

Decides what Ctrl-C does: the first lets the requests in flight finish, the second ends at once. Knows neither questions
nor trees, nor what the models are asked.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from reasonrag.concurrency import interruptible, work_off
from reasonrag.errors import Interrupted, RunStopped
from reasonrag.llm.endpoint.endpoint import CallFailure
from reasonrag.progress import TICK_S, SessionTally, Watcher
from reasonrag.run.models import Models

Item = TypeVar("Item")


@dataclass
class Session:
    """See the module's docstring. Creating it begins the models.

    on_failure: called with every failed attempt of a request. interrupt: set from outside, it does what the first
        Ctrl-C does.
    """

    models: Models
    watcher: Watcher
    on_failure: Callable[[CallFailure], None]
    interrupt: asyncio.Event | None = None
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
        heeding = asyncio.create_task(self._heed()) if self.interrupt else None
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
            if heeding:
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
        if self.interrupt:
            await self.interrupt.wait()
            self._finish()

    # -- state ----------------------------------------------------------------------

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def advance(self) -> None:
        """Update the watcher."""
        new, tally = self.models.spent - self._spent_before, self.tally
        tally.calls, tally.tokens = new.calls, new.prompt_tokens + new.completion_tokens
        tally.cached_calls = self.models.cached_calls
        tally.in_flight = self.models.in_flight
        tally.cost = self.models.cost
        tally.waiting_for = self.models.waiting_for
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
