"""Concurrent work: coroutines that succeed or fail together, workers over a queue, and coroutines run from any caller.

Knows no requests: `llm.scheduler` decides which of them is sent next.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, TypeVar

from reasonrag.errors import RunStopped

_LOOKS_EVERY_S = 0.1
T = TypeVar("T")
Item = TypeVar("Item")


async def together(*work: Coroutine[Any, Any, T]) -> list[T]:
    """Run all; the results in order. The first failure is raised and cancels the others: no request is wasted."""
    if len(work) <= 1:
        return [await each for each in work]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in work]
    except ExceptionGroup as failures:
        stop = next((each for each in failures.exceptions if isinstance(each, RunStopped)), None)
        raise stop or failures.exceptions[0] from None
    return [task.result() for task in tasks]


async def work_off(queue: Iterable[Item], work: Callable[[Item], Coroutine[Any, Any, None]], *, at_once: int) -> None:
    """Work on all items in order, `at_once` at a time. Fails as `together` does."""
    waiting = iter(queue)

    async def worker() -> None:
        for item in waiting:
            await work(item)

    await together(*(worker() for _ in range(at_once)))


@contextmanager
def calling_at(signals: Iterable[signal.Signals], call: Callable[[], None]) -> Iterator[Callable[[], None]]:
    """Have these signals call `call` in the running loop, until the block ends or the yielded function is called. Only
    a main thread gets signals."""
    loop, main = asyncio.get_running_loop(), threading.current_thread() is threading.main_thread()
    with ExitStack() as undo:
        for each in signals if main else ():
            try:
                loop.add_signal_handler(each, call)
                undo.callback(loop.remove_signal_handler, each)
            except NotImplementedError:  # Windows
                before = signal.signal(each, lambda *_: loop.call_soon_threadsafe(call))
                undo.callback(signal.signal, each, before)
        yield undo.close


@contextmanager
def interruptible(finish: Callable[[], str], say: Callable[[str], None]) -> Iterator[list[float]]:
    """Have Ctrl-C call `finish`, which returns what is waited for then, and a second one raise KeyboardInterrupt.

    Yields when it was pressed. Only the main thread is interrupted.
    """
    presses, task = list[float](), asyncio.current_task()

    def interrupt() -> None:
        presses.append(time.monotonic())
        if len(presses) > 1 and task is not None:
            task.cancel()
            return
        say(f"finishing {finish()}; Ctrl-C again stops at once")

    try:
        with calling_at([signal.SIGINT], interrupt):
            yield presses
    except asyncio.CancelledError:
        if not presses:
            raise
        raise KeyboardInterrupt from None


def run_to_end(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine, whether or not this thread already runs an event loop.

    An interrupt (Ctrl-C, a notebook's stop button) first ends the work, then propagates.
    """
    try:
        caller = asyncio.current_task()
    except RuntimeError:
        return asyncio.run(coroutine)
    running: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[T]]] = Future()

    async def announced() -> T:
        task = asyncio.ensure_future(coroutine)
        running.set_result((asyncio.get_running_loop(), task))
        return await task

    with ThreadPoolExecutor(1, "reasonrag") as thread:
        outcome = thread.submit(asyncio.run, announced())
        try:
            # asyncio.run signals Ctrl-C by cancelling the caller
            while not wait([outcome], _LOOKS_EVERY_S).done and not (caller and caller.cancelling()):
                pass
        finally:
            loop, task = running.result()
            with suppress(RuntimeError):  # it has ended meanwhile
                loop.call_soon_threadsafe(task.cancel)
    return outcome.result()
