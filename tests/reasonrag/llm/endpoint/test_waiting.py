"""Waits that servers ask for and troubles that they are in, over real HTTP: what is waited for, what is said, and what
ends the run."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import chain, pairwise, repeat

import pytest
from aiohttp import web

from reasonrag.errors import EndpointLost, InputError, Interrupted, ModelError, WaitTooLong
from reasonrag.llm.endpoint.trouble import MAX_ATTEMPTS, clock_time
from reasonrag.web.client import LONGEST_RETRY_AFTER_S, retry_after
from tests.reasonrag.llm.endpoint.test_endpoint import (
    Handler,
    answer,
    client_at,
    client_of,
    endpoint_of,
    refusal,
    request_for,
)


def saying(status: int, message: str, **headers: str) -> Handler:
    async def says(_: web.Request) -> web.Response:
        return refusal(status, message, **headers)

    return says


def date_in(**time: float) -> str:
    return format_datetime(datetime.now(UTC) + timedelta(**time), usegmt=True)


ABSENT: dict[str, Callable[[], dict[str, str]]] = {
    "a negative number": lambda: {"retry-after": "-5"},
    "zero": lambda: {"retry-after": "0"},
    "a date in the past": lambda: {"retry-after": date_in(days=-1)},
    "1e300": lambda: {"retry-after": "1e300"},
    "not a number": lambda: {"retry-after": "NaN"},
    "a date in 2037": lambda: {"retry-after": "Fri, 31 Dec 2037 23:59:59 GMT"},
    "a time of day instead of a duration": lambda: {"retry-after": str(int(datetime.now(UTC).timestamp()) + 60)},
    "a word": lambda: {"retry-after": "later"},
    "a year without end": lambda: {"retry-after": "Mon, 01 Jan 90000000000000000000 00:00:00 GMT"},
    "endless digits": lambda: {"retry-after": "9" * 5_000},
    "a date without a zone": lambda: {"retry-after": "Wed, 21 Oct 2037 07:28:00"},
    "negative milliseconds": lambda: {"retry-after-ms": "-250"},
}
"""Times that say nothing."""


@pytest.mark.parametrize("case", ABSENT)
def test_a_time_that_cannot_be_meant_is_absent(case: str) -> None:
    assert retry_after(ABSENT[case]()) is None


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "7200"}, 7200.0),
        ({"retry-after": "86400"}, LONGEST_RETRY_AFTER_S),
        ({"retry-after": " 12 "}, 12.0),
        ({"retry-after": "5", "retry-after-ms": "250"}, 0.25),
        ({"retry-after": "5", "retry-after-ms": "0"}, 5.0),
        ({"retry-after": "5", "retry-after-ms": "soon"}, 5.0),
        ({"retry-after": "-5", "retry-after-ms": "1e300"}, None),
    ],
)
def test_the_finest_time_that_says_something_counts(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds
    assert retry_after({"retry-after": date_in(seconds=30)}) == pytest.approx(30, abs=2)


SHORT: dict[str, Callable[[], dict[str, str]]] = {
    **ABSENT,
    "half a second": lambda: {"retry-after": "0.05"},
    "a millisecond": lambda: {"retry-after-ms": "1"},
}
STATUSES = [429, 503, 529, 500]


@pytest.mark.parametrize(("case", "status"), [(case, STATUSES[i % 4]) for i, case in enumerate(SHORT)])
async def test_attempts_are_spaced_whatever_a_server_says(case: str, status: int) -> None:
    """The wait doubles from attempt to attempt, as without the header; here a second is a tenth of one."""
    times: list[float] = []

    async def refusing(_: web.Request) -> web.Response:
        times.append(asyncio.get_running_loop().time())
        return refusal(status, "no", **SHORT[case]())

    async with endpoint_of(refusing) as base_url, client_of(base_url, first_wait=0.1) as (client, _):
        asked = asyncio.create_task(client.complete(request_for(1)))
        while len(times) < 4:  # noqa: ASYNC110 - the state is what is tested
            await asyncio.sleep(0.01)
        client.stop(Interrupted("enough"))
        with pytest.raises((Interrupted, ModelError)):
            await asked
    waits = [after - before for before, after in pairwise(times)]
    assert all(wait >= floor for wait, floor in zip(waits, (0.1, 0.2, 0.4), strict=False)), waits


LONG = [
    (429, {"retry-after-ms": "7200000"}),
    (529, {"retry-after": "7200"}),
    (503, {"retry-after": "date"}),
]


@pytest.mark.parametrize(("status", "headers"), LONG)
async def test_a_wait_of_hours_is_shown_in_the_words_of_the_server(status: int, headers: dict[str, str]) -> None:
    """Once, however many requests it meets; the progress says until when, and no request fails meanwhile."""
    headers = {name: date_in(seconds=7200) if each == "date" else each for name, each in headers.items()}
    words = "The daily tokens\nof \x1b[31morg-1 are used"
    async with client_at(lambda _: refusal(status, words, **headers), max_wait=9000.0) as at:
        asked = [asyncio.create_task(at.client.complete(request_for(1, question=f"{i}?"))) for i in range(6)]
        while len(at.failures) < 6 or "asked to wait" not in at.client.waiting_for:  # noqa: ASYNC110 - the state is what is tested
            await asyncio.sleep(0.01)
        shown = at.client.waiting_for
        assert not any(each.done() for each in asked)
        at.client.stop(Interrupted("enough"))
        await asyncio.gather(*asked, return_exceptions=True)
    [line] = at.said
    assert re.search(r"asks to wait (2 hours|120 minutes), until (\w+ )?\d\d:\d\d: status \d+: The daily tokens", line)
    assert line.endswith("org-1 are used")
    assert "\x1b" not in line
    assert re.fullmatch(rf"busy \(status {status}\), asked to wait: until (\w+ )?\d\d:\d\d", shown)
    assert re.fullmatch(r"\w{3} \d\d:\d\d", clock_time(24 * 3600))


@pytest.mark.parametrize(("status", "headers"), LONG[:2])
async def test_a_wait_beyond_the_longest_ends_the_run_as_a_cap(status: int, headers: dict[str, str]) -> None:
    async with client_at(lambda _: refusal(status, "daily limit", **headers), max_wait=1800.0) as at:
        with pytest.raises(
            WaitTooLong, match=r"asks to wait 2 hours, until .*max_wait allows \(30 minutes\).*daily limit"
        ) as end:
            await at.client.complete(request_for(1))
    assert end.value.exit_status == 3


async def test_waits_in_a_row_count_together() -> None:
    """Each is short enough; without an answer between them they are one wait."""
    async with client_at(lambda _: refusal(429, "wait", **{"retry-after": "0.2"}), max_wait=1.0) as at:
        with pytest.raises(WaitTooLong):
            await at.client.complete(request_for(1))
    assert len(at.bodies) > 2


async def test_a_trial_waits_as_long_as_it_is_asked_or_stops_the_run() -> None:
    """No exit status 2: nothing that the user gave is wrong."""
    for most, ended in ((60.0, nullcontext()), (0.1, pytest.raises(WaitTooLong))):
        said = iter((refusal(429, "wait", **{"retry-after": "0.5"}), answer("yes")))
        began = asyncio.get_running_loop().time()
        async with client_at(lambda _, said=said: next(said), max_wait=most) as at:  # type: ignore[misc]
            with ended:
                await at.client.check()
                assert asyncio.get_running_loop().time() - began >= 0.5


async def test_requests_outlive_an_endpoint_that_refuses_everything_for_longer_than_their_attempts() -> None:
    """A quarter of the patience with nothing but status 429 and no time: none is given up while none is served."""
    said = chain([429] * (MAX_ATTEMPTS + 3), repeat(0))

    def busy(_: object) -> web.Response:
        return refusal(status, "too many") if (status := next(said)) else answer("<answer>x</answer>")

    async with client_at(busy, concurrency=1, first_wait=0.001) as at:
        assert await at.client.complete(request_for(1))
    assert len(at.failures) == MAX_ATTEMPTS + 3


def full(message: str = "Resource unavailable", **error: object) -> web.Response:
    """What is said of a request with service_tier flex while there is no room for it."""
    return web.json_response({"error": {"message": message, **error}}, status=429)


@pytest.mark.parametrize(
    ("refused", "window"),
    [
        (lambda: full(type="invalid_request_error", code="resource_unavailable"), 16),
        (lambda: full("429 Resource Unavailable. Please try again later.", code=None), 16),
        (lambda: full("try again later", type="RESOURCE_UNAVAILABLE"), 16),
        (lambda: full("The requested resources are currently unavailable"), 16),
        (lambda: full("There is no capacity for this model now", code=429), 16),
        (lambda: web.Response(text="Resource unavailable", status=429), 16),
        (lambda: web.json_response({"detail": "Flex processing is temporarily unavailable"}, status=429), 16),
        (lambda: refusal(429, "Rate limit reached for gpt-6-luna in organization o on requests per min"), 8),
        (lambda: full("Resource has been exhausted (e.g. check quota).", code="RESOURCE_EXHAUSTED"), 8),
        (lambda: refusal(429, "Too many requests: the model is overloaded"), 8),
    ],
)
async def test_only_a_rate_that_is_too_high_narrows_the_window(
    refused: Callable[[], web.Response], window: int
) -> None:
    """No room for a tier says nothing about a rate: once there is room, all go at once again."""
    said = iter((refused, lambda: answer("<answer>x</answer>")))
    async with client_at(lambda _: next(said)(), concurrency=16) as at:
        await at.client.complete(request_for(1))
        [pace] = at.client.scheduler.paces
    assert int(pace.window) == window
    assert len(at.failures) == 1


async def test_no_capacity_is_waited_for_as_long_as_servers_may_ask() -> None:
    """Longer than for a server that refuses everything; then the run ends, and the same command continues it."""
    limits = {"patience": 0.1, "max_wait": 0.6, "first_wait": 0.001}
    for request, error, message in (
        (request_for(1), WaitTooLong, r"has had no capacity for 0\.6 seconds.*Later, run the same command"),
        (None, InputError, r"without capacity \(status 429\): run the same command later"),
    ):
        async with client_at(lambda _: full(), **limits) as at:
            began = asyncio.get_running_loop().time()
            with pytest.raises(error, match=message):
                await (at.client.complete(request) if request else at.client.check())
            assert asyncio.get_running_loop().time() - began > 0.6
        assert ["is waited for, 0.6 seconds at most: " in each for each in at.said] == [True] * (request is None)
        assert not [each for each in at.failures if each.final]


async def hang_up(request: web.Request) -> web.Response:
    assert request.transport
    request.transport.close()
    return web.Response()


async def hang(_: web.Request) -> web.Response:
    await asyncio.sleep(2)
    return web.Response()


TROUBLES: dict[str, tuple[Handler | None, str, str]] = {
    "nobody listens": (None, r"down \(connection refused\)", "has not answered for"),
    "429 and nothing else": (
        saying(429, "slow down"),
        r"busy \(status 429\)",
        r"is up, but has refused every request for .*slow down.*lower --concurrency or --rpm, run the same command",
    ),
    "503 that says so": (
        saying(503, "The engine is overloaded, try again"),
        r"busy \(status 503\)",
        r"is up, but has refused every request for .*overloaded",
    ),
    "llama.cpp, at its start": (
        saying(503, "Loading model"),
        r"loading its model \(status 503\)",
        r"is up, but has been loading its model for .*Once that is done, run the same command",
    ),
    "a gateway without a server": (
        saying(502, "Bad Gateway"),
        r"down \(status 502\)",
        r"has not answered for .*Bad Gateway.*Once it does, run the same command",
    ),
    "a server that hangs up": (hang_up, "down", r"has not answered for .*Once it does, run the same command"),
    "a server that takes its time": (
        hang,
        "no answer within --timeout",
        r"takes requests, but has answered none within --timeout for .*With a higher --timeout, run the same command",
    ),
}


@pytest.mark.parametrize("case", TROUBLES)
async def test_what_keeps_an_endpoint_from_answering_is_told(case: str) -> None:
    """In the progress, and in the message that ends the run: what it is, and what helps."""
    handler, state, message = TROUBLES[case]
    seen: set[str] = set()
    async with (
        endpoint_of(handler or hang) as base_url,
        client_of(
            base_url if handler else "http://127.0.0.1:9/v1", timeout=0.1 if handler is hang else 30, patience=1.0
        ) as (client, _),
    ):
        asked = asyncio.create_task(client.complete(request_for(1)))
        while not asked.done():
            seen.add(client.waiting_for)
            await asyncio.sleep(0.002)
        with pytest.raises(EndpointLost, match=message):
            await asked
    assert any(re.search(state, each) for each in seen), seen


async def test_a_trial_waits_for_a_server_that_loads_its_model_and_not_long_for_one_that_is_broken() -> None:
    """As long as any request is tried; the first three errors of another kind end it."""
    for message, tried in (("Loading model", MAX_ATTEMPTS), ("list index out of range", 3)):
        async with client_at(lambda _, said=message: refusal(500, said), first_wait=0.001) as at:  # type: ignore[misc]
            with pytest.raises(InputError, match=f"{message}.*run the same command later"):
                await at.client.check()
        assert len(at.bodies) == tried
