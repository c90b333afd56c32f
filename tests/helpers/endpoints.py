"""Endpoints in a thread of this process, the simulated one among them: what happens to a run is decided by the number
of a request, not by the clock, so that it is the same on a machine of any speed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Self

from aiohttp import web
from aiohttp.typedefs import Handler

from preference import Message
from reasonrag.llm import offline
from reasonrag.serving.openai_api import ChatCompletionRequest
from reasonrag.web.server import listening
from tests.endpoints.behaviour import EndpointBehaviour
from tests.endpoints.simulator import address_path, make_app


@contextmanager
def in_a_thread(
    server: AbstractAsyncContextManager[str],
    *,
    loop: asyncio.AbstractEventLoop | None = None,
    at_the_end: Callable[[], object] = lambda: None,
) -> Iterator[str]:
    """What a server gives when it is entered, by a thread of its own. at_the_end: called there before it is left."""
    known: list[str] = []
    loop = loop or asyncio.new_event_loop()
    ready, over = threading.Event(), asyncio.Event()

    async def serve() -> None:
        try:
            async with server as address:
                known.append(address)
                ready.set()
                await over.wait()
                at_the_end()
        finally:
            ready.set()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        ready.wait()
        yield known[0]
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()


def replies_of_the_teacher(wanted: ChatCompletionRequest, seen: Sequence[Message] | None = None) -> list[str]:
    """What the offline teacher says to a request. seen: what reached it, if not all of it did."""
    heat, seed = wanted.temperature, wanted.seed or 0
    turns = wanted.messages if seen is None else seen
    return [offline.reply(turns, temperature=heat, seed=seed, choice=each) for each in range(wanted.n)]


class Served:
    """An application in a thread of this process; while it is open, it has an address. path: what follows the host."""

    def __init__(self, app: web.Application, path: str) -> None:
        self.base_url = ""
        self._app, self._path = app, path
        self._loop = asyncio.new_event_loop()
        self._gate = asyncio.Event()

    @contextmanager
    def open(self) -> Iterator[Self]:
        server = listening(self._app, host="127.0.0.1", port=0)
        with in_a_thread(server, loop=self._loop, at_the_end=self._gate.set) as address:
            self.base_url = address + self._path
            yield self


class Answering(Served):
    """An endpoint that answers every chat request as `answer` says."""

    def __init__(self, answer: Handler) -> None:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", answer)
        super().__init__(app, "/v1")


class Stage(Served):
    """A running endpoint. arrived: called with the number of every chat request, the first is 1 (the trial question of
    a command), before it is answered; answered: after its answer went out. Both are called in the endpoint's thread."""

    def __init__(
        self,
        habits: EndpointBehaviour,
        *,
        arrived: Callable[[int], object] = lambda _: None,
        answered: Callable[[int], object] = lambda _: None,
    ) -> None:
        super().__init__(make_app(habits), address_path(habits))
        self._app.middlewares.append(self._watching())
        self._arrived, self._answered = arrived, answered
        self._number = 0
        self.down = False
        """While it is, every chat request gets status 503."""
        self.refused = 0
        """How many did."""
        self._held_from: int | None = None
        self.held = threading.Event()
        """Whether a request has come that gets no answer for now."""

    def hold_from(self, number: int) -> None:
        """From this request on, none is answered before release()."""
        self._held_from = number

    def release(self) -> None:
        self._loop.call_soon_threadsafe(self._gate.set)

    def _watching(self) -> Callable[[web.Request, Handler], object]:
        @web.middleware
        async def watching(request: web.Request, handler: Handler) -> web.StreamResponse:
            if not request.path.endswith("/chat/completions"):
                return await handler(request)
            self._number += 1
            number = self._number
            self._arrived(number)
            if self.down:
                self.refused += 1
                return web.Response(status=503)
            if self._held_from is not None and number >= self._held_from:
                self.held.set()
                await self._gate.wait()
            response = await handler(request)
            self._answered(number)
            return response

        return watching
