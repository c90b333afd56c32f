"""What may run at the same time: how many requests are in flight, which waiting one goes next, and work that succeeds
or fails together.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

T = TypeVar("T")


async def together(*work: Coroutine[Any, Any, T]) -> list[T]:
    """The results in order. The first failure is raised and cancels the others: nothing is paid for in vain."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in work]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]


class Slots:
    """A semaphore that serves the smallest priority first, and equal ones in order of asking."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._asked = 0
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self.in_flight = 0

    @asynccontextmanager
    async def slot(self, priority: int) -> AsyncIterator[None]:
        await self._acquire(priority)
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1
            self._release()

    async def _acquire(self, priority: int) -> None:
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (priority, self._asked, turn))
        self._asked += 1
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release()  # the slot was handed over in the moment of cancelling
            raise

    def _release(self) -> None:
        while self._waiting:
            _, _, turn = heapq.heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
