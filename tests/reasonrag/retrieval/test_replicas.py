"""Servers that stand in for each other: which one is asked, when a second one is, and when one counts as down.

Real HTTP. Servers answer when the test lets them, so nothing depends on how fast the machine is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from reasonrag.retrieval.replicas import HEDGED_AT_ONCE, HEDGED_SHARE, OVERTAKEN, Replicas
from reasonrag.retrieval.search_r1 import SearchFailed, SearchServer

IDENTITY = "dense:of-this-test"
SHORT_S = 0.001
"""So that whoever does not answer is late at once."""


class Server:
    """A server that says its name, or fails with `status`, 0: it hangs up. While `hanging`, it answers no one before it
    is let go."""

    def __init__(self, name: str) -> None:
        self.name, self.status, self.identity = name, 200, IDENTITY
        self.asked = 0
        self.hanging = False
        self.url = ""
        self._changed = asyncio.Condition()

    async def handle(self, request: web.Request) -> web.Response:
        await request.read()
        self.asked += 1
        async with self._changed:
            self._changed.notify_all()
            await self._changed.wait_for(lambda: not self.hanging)
        if not self.status and request.transport is not None:
            request.transport.abort()
            return web.Response()
        return web.json_response({"result": self.name, "identity": self.identity}, status=self.status)

    async def was_asked(self, times: int) -> None:
        async with asyncio.timeout(60), self._changed:
            await self._changed.wait_for(lambda: self.asked >= times)

    async def let_go(self) -> None:
        async with self._changed:
            self.hanging = False
            self._changed.notify_all()


@asynccontextmanager
async def servers(
    count: int, *, wait_s: float = SHORT_S, down: str = ""
) -> AsyncIterator[tuple[Replicas, list[Server]]]:
    """So many servers, and what asks them. down: why the first one counts as down at the beginning."""
    every = [Server(f"server {number}") for number in range(count)]
    async with AsyncExitStack() as opened:
        for each in every:
            app = web.Application()
            app.router.add_post("/retrieve", each.handle)
            running = await opened.enter_async_context(TestServer(app))
            each.url = str(running.make_url("")).rstrip("/")
        clients = [SearchServer(each.url, None, 60.0, 0.001) for each in every]
        replicas = Replicas([(each, "" if i else down) for i, each in enumerate(clients)], IDENTITY, wait_s=wait_s)
        try:
            yield replicas, every
        finally:
            for each in every:
                await each.let_go()
            await replicas.close()


async def asked(replicas: Replicas) -> Any:
    async with asyncio.timeout(60):
        return (await replicas.ask("POST", "/retrieve", b"{}", {}))["result"]


def up(replicas: Replicas) -> list[bool]:
    return [each["up"] for each in replicas.health()]


async def test_the_first_server_is_asked_while_it_answers() -> None:
    async with servers(2, wait_s=60) as (replicas, (first, second)):
        assert {await asked(replicas) for _ in range(20)} == {"server 0"}
        assert (first.asked, second.asked, replicas.hedged) == (20, 0, 0)


@pytest.mark.parametrize(("status", "identity"), [(503, IDENTITY), (0, IDENTITY), (200, "another index"), (200, "")])
async def test_what_fails_is_asked_of_the_next_server_at_once(status: int, identity: str) -> None:
    """Each request once per server; the one that failed is left alone until a trial search succeeds."""
    async with servers(3, wait_s=60) as (replicas, (first, second, third)):
        first.status, first.identity, second.status = status, identity, 500
        assert [await asked(replicas) for _ in range(5)] == 5 * ["server 2"]
        assert (first.asked, second.asked, third.asked) == (1, 1, 5)
        assert up(replicas) == [False, False, True]
        assert replicas.hedged == 0


async def test_a_server_that_recovers_is_asked_again() -> None:
    """Also one that was down at the beginning: as soon as a trial search succeeds."""
    async with servers(2, wait_s=60, down="no connection") as (replicas, (first, _)):
        assert replicas.health()[0] == {"url": first.url, "up": False, "trouble": "no connection", "failed": 0}
        assert await asked(replicas) == "server 1"
        async with asyncio.timeout(60):
            while not all(up(replicas)):  # noqa: ASYNC110 - it tells no one
                await asyncio.sleep(0.01)
        assert await asked(replicas) == "server 0"


async def test_if_no_server_answers_all_are_named_and_all_are_asked_again() -> None:
    """A failure that may pass is told as one, whichever server said so."""
    async with servers(2, wait_s=60) as (replicas, (first, second)):
        first.status, second.identity = 503, "another index"
        for _ in range(2):
            with pytest.raises(
                SearchFailed, match=f"{first.url}: status 503.*; {second.url}: .*serves another index"
            ) as told:
                await asked(replicas)
            assert told.value.kind == "busy"
        second.identity = IDENTITY
        assert await asked(replicas) == "server 1"


async def test_what_any_server_would_refuse_is_asked_of_one() -> None:
    async with servers(2, wait_s=60) as (replicas, (first, second)):
        first.status = 400
        with pytest.raises(SearchFailed) as told:
            await asked(replicas)
        assert (told.value.kind, second.asked, up(replicas)) == ("bad_request", 0, [True, True])


async def test_a_late_request_is_sent_to_a_second_server_and_the_first_answer_counts() -> None:
    async with servers(2) as (replicas, (first, second)):
        first.hanging = second.hanging = True
        running = asyncio.create_task(asked(replicas))
        await second.was_asked(1)
        await first.let_go()
        assert await running == "server 0"
        first.hanging = True
        running = asyncio.create_task(asked(replicas))
        await second.was_asked(2)
        await second.let_go()
        assert await running == "server 1"
        assert (replicas.hedged, up(replicas)) == (2, [True, True])


async def test_a_server_that_hangs_soon_counts_as_down() -> None:
    """What waits for it is then sent to another one, and no more is sent to it."""
    async with servers(2) as (replicas, (first, _)):
        first.hanging = True
        many = 40
        assert await asyncio.gather(*(asked(replicas) for _ in range(many))) == many * ["server 1"]
        assert up(replicas) == [False, True]
        before = first.asked
        assert await asked(replicas) == "server 1"
        assert first.asked == before
        assert replicas.hedged <= HEDGED_AT_ONCE + HEDGED_SHARE * many
        assert f"none of {OVERTAKEN} requests" in replicas.health()[0]["trouble"]


async def test_slowness_does_not_double_the_load() -> None:
    """Of requests that are late but answered, only a small share is sent twice."""
    many = 100
    async with servers(2) as (replicas, (first, second)):
        for number in range(many):
            first.hanging = number % 2 == 1
            running = asyncio.create_task(asked(replicas))
            await first.was_asked(number + 1)
            if number == 1:
                await second.was_asked(1)
            await asyncio.wait([running], timeout=20 * SHORT_S)
            await first.let_go()
            await running
        assert up(replicas) == [True, True]
        assert second.asked == replicas.hedged <= HEDGED_AT_ONCE + HEDGED_SHARE * many
