"""Request scheduling: which waiting request is sent next, when, and to which address.

Decides that the requests of a question go to the same address where they can, as the question's states share a prefix
that the server then has in its cache. Knows paces, priorities and names of questions, not requests.
"""

from __future__ import annotations

import asyncio
import hashlib
import heapq
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from reasonrag.errors import RunStopped
from reasonrag.llm.endpoint.rate_limits import Pace, Sent

LOAD_BOUND = 1.25
"""A question leaves its address where that has so many times the mean of requests in flight (arXiv 1608.01350)."""


class _Waiting(NamedTuple):
    """A request that waits for its slot. places: see `_places`; None: any address is as good."""

    tokens: float
    places: Sequence[bytes] | None
    failed: Mapping[int, int]
    granted: asyncio.Future[Sent]


class RequestScheduler:
    """Sends waiting requests as soon as a pace allows: smallest priority first, then first come, first served.

    Among several paces, one whose address is down and may be tried again comes first, then the question's own, then the
    next in its order; without a question the least loaded one. No request waits while any pace is free.

    most: most requests in flight over all paces. addresses: one per pace, which decide where questions go.
    """

    def __init__(
        self,
        paces: Sequence[Pace],
        *,
        most: int,
        addresses: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.paces = paces
        self.clock = clock
        self.in_flight = 0
        self.waiting_for = ""
        """Why requests are waiting, if any are; `waiting_until` is infinite while it depends on an answer."""
        self.waiting_until, self.waiting_lane = 0.0, 0
        self._most, self._addresses = most, addresses
        self._asked = 0
        self._waiting: list[tuple[int, int, _Waiting]] = []
        self._alarm: asyncio.TimerHandle | None = None
        self._stopped: RunStopped | None = None

    def give_back(self, slot: Sent) -> None:
        """End what `take` began."""
        if not slot.over:
            self.paces[slot.lane].cancelled(slot)
        self.in_flight -= 1
        self._dispatch()

    async def take(self, priority: int, tokens: float, question: str, failed: Mapping[int, int]) -> Sent:
        """Wait for a slot, which the caller gives back; a context manager would cost 4 us. Raises RunStopped once the
        scheduler is stopped.

        question: requests with the same one have the same address where they can; empty: any. failed: number of failed
        attempts of this request by lane; lanes with fewer are preferred.
        """
        if self._stopped:
            raise self._stopped
        granted: asyncio.Future[Sent] = asyncio.get_running_loop().create_future()
        places = _places(question, self._addresses) if question and len(self._addresses) > 1 else None
        heapq.heappush(self._waiting, (priority, self._asked, _Waiting(tokens, places, failed, granted)))
        self._asked += 1
        self._dispatch()
        try:
            return await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled() and not granted.exception():
                self.give_back(granted.result())  # given in the moment of cancelling
            else:
                self._dispatch()
            raise

    def _dispatch(self) -> None:
        """Grant slots until nothing waits or no pace allows one."""
        self.waiting_for = ""
        while self._waiting and self.in_flight < self._most:
            *_, first = self._waiting[0]
            if first.granted.done():  # cancelled while waiting
                heapq.heappop(self._waiting)
                continue
            now = self.clock()
            lane, (seconds, why) = self._choose(first, now)
            if seconds > 0:
                self.waiting_lane, self.waiting_for, self.waiting_until = lane, why, now + seconds
                if math.isinf(seconds):  # until a request ends
                    return
                if self._alarm is not None:
                    self._alarm.cancel()
                self._alarm = asyncio.get_running_loop().call_later(seconds, self._dispatch)
                return
            heapq.heappop(self._waiting)
            self.paces[lane].sent(first.tokens, now)
            self.in_flight += 1
            first.granted.set_result(Sent(first.tokens, now, lane=lane))

    def _choose(self, request: _Waiting, now: float) -> tuple[int, tuple[float, str]]:
        """The lane for a request, and how long and why it must wait there."""
        if len(self.paces) == 1:
            return 0, self.paces[0].wait(now)
        waits = [pace.wait(now) for pace in self.paces]
        free = [pace.in_flight for pace, (seconds, _) in zip(self.paces, waits, strict=True) if seconds == 0]
        most = LOAD_BOUND * (sum(free) + 1) / max(1, len(free))  # with this request; one of those free has fewer

        def key(lane: int) -> tuple[object, ...]:
            pace = self.paces[lane]
            own = (pace.in_flight >= most, request.places[lane]) if request.places else ()
            load = pace.in_flight / pace.window
            return waits[lane], request.failed.get(lane, 0), pace.down_since is None, own, load, lane

        lane = min(range(len(self.paces)), key=key)
        return lane, waits[lane]

    def stop(self, reason: RunStopped) -> None:
        """Grant no more slots; waiting requests raise the reason."""
        self._stopped = self._stopped or reason
        for *_, each in self._waiting:
            if not each.granted.done():
                each.granted.set_exception(self._stopped)
        self._waiting.clear()


def _places(question: str, addresses: Sequence[str]) -> list[bytes]:
    """A hash per address, smallest first: one that comes or leaves moves only its own questions (rendezvous)."""
    return [hashlib.blake2b(f"{address}\0{question}".encode(), digest_size=8).digest() for address in addresses]
