"""Request scheduling: which waiting request is sent next, and when. Knows paces and priorities, not requests."""

from __future__ import annotations

import asyncio
import heapq
import math
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from reasonrag.errors import RunStopped
from reasonrag.llm.endpoint.rate_limits import Pace


@dataclass(slots=True)
class RequestSlot:
    """One request's slot at an endpoint. The request's result is reported to its pace before the slot ends."""

    pace: Pace
    lane: int
    """Position of the pace among those of the scheduler."""
    tokens: float
    sent_at: float
    over: bool = False

    def succeeded(self, tokens: float, *, now: float) -> None:
        self.over = True
        self.pace.succeeded(expected_tokens=self.tokens, tokens=tokens, now=now)

    def refused(self, retry_after: float | None, *, now: float) -> None:
        self.over = True
        self.pace.refused(sent_at=self.sent_at, retry_after=retry_after, now=now)

    def failed(self, retry_after: float | None = None, *, now: float) -> None:
        self.over = True
        self.pace.failed(sent_at=self.sent_at, retry_after=retry_after, now=now)

    def answered(self) -> None:
        self.over = True
        self.pace.answered()

    def cancelled(self) -> None:
        self.over = True
        self.pace.cancelled(sent_at=self.sent_at)


class RequestScheduler:
    """Sends waiting requests as soon as a pace allows: smallest priority first, then first come, first served; among
    several paces the least loaded one.

    most: most requests in flight over all paces.
    """

    def __init__(self, paces: Sequence[Pace], *, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.paces = paces
        self.clock = clock
        self.in_flight = 0
        self.waiting_for = ""
        """Why requests are waiting, if any are; `waiting_until` is infinite while it depends on an answer."""
        self.waiting_until = 0.0
        self._most = most
        self._asked = 0
        self._waiting: list[tuple[int, int, float, int | None, asyncio.Future[RequestSlot]]] = []
        self._alarm: asyncio.TimerHandle | None = None
        self._stopped: RunStopped | None = None

    @asynccontextmanager
    async def slot(self, priority: int, *, tokens: float = 0.0, avoid: int | None = None) -> AsyncIterator[RequestSlot]:
        """Wait for a slot, preferably outside the lane to avoid. Raises RunStopped once the scheduler is stopped."""
        slot = await self._wait(priority, tokens, avoid)
        try:
            yield slot
        finally:
            if not slot.over:
                slot.cancelled()
            self.in_flight -= 1
            self._dispatch()

    async def _wait(self, priority: int, tokens: float, avoid: int | None) -> RequestSlot:
        if self._stopped:
            raise self._stopped
        granted: asyncio.Future[RequestSlot] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (priority, self._asked, tokens, avoid, granted))
        self._asked += 1
        self._dispatch()
        try:
            return await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled() and not granted.exception():
                granted.result().cancelled()  # the slot was given in the moment of cancelling
                self.in_flight -= 1
            self._dispatch()
            raise

    def _dispatch(self) -> None:
        """Grant slots until nothing waits or no pace allows one."""
        self.waiting_for = ""
        while self._waiting and self.in_flight < self._most:
            if self._waiting[0][-1].done():  # cancelled while waiting
                heapq.heappop(self._waiting)
                continue
            now, avoid = self.clock(), self._waiting[0][-2]
            (seconds, why), _, _, lane = min(
                (pace.wait(now), lane == avoid, pace.load, lane) for lane, pace in enumerate(self.paces)
            )
            if seconds > 0:
                self._sleep(seconds, why, now)
                return
            _, _, tokens, _, granted = heapq.heappop(self._waiting)
            self.paces[lane].sent(tokens, now)
            self.in_flight += 1
            granted.set_result(RequestSlot(self.paces[lane], lane, tokens, now))

    def wake(self) -> None:
        """Look again, as a pace allows more now."""
        self._dispatch()

    @property
    def waiting(self) -> int:
        """Requests without a slot."""
        return len(self._waiting)

    def _sleep(self, seconds: float, why: str, now: float) -> None:
        """Dispatch again after some seconds, or when a request ends."""
        self.waiting_for, self.waiting_until = why, now + seconds
        if math.isinf(seconds):
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = asyncio.get_running_loop().call_later(seconds, self._dispatch)

    def stop(self, reason: RunStopped) -> None:
        """Grant no more slots; waiting requests raise the reason."""
        self._stopped = self._stopped or reason
        for *_, granted in self._waiting:
            if not granted.done():
                granted.set_exception(self._stopped)
        self._waiting.clear()
