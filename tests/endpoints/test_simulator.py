"""The chaos endpoint over real HTTP: it behaves exactly as badly as it was told, and its answers never change."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson
import pytest

from tests.endpoints.behaviour import EndpointBehaviour
from tests.endpoints.simulator import Traffic, serving
from tests.helpers.processes import simulator

PATIENCE_S = 60.0
"""What does not come about by then never will; no test waits so long when all is well."""
SYSTEM = "End with So the next query is <query>..</query> or So the answer is <answer>..</answer>"


def chat(question: str = "Who wrote The Iron Bell?", **parameters: object) -> bytes:
    """The body of a chat request."""
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": f"Question: {question}"}]
    return orjson.dumps({"model": "offline", "messages": messages, "temperature": 1.0, "seed": 1} | parameters)


@dataclass(frozen=True)
class Answer:
    status: int | str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)


@dataclass(frozen=True)
class Client:
    """Requests to one endpoint, nothing retried."""

    base_url: str
    session: aiohttp.ClientSession

    async def ask(self, body: bytes | None = None) -> Answer:
        return await self.send("POST", f"{self.base_url}/chat/completions", body or chat())

    async def stats(self) -> Answer:
        return await self.send("GET", self.base_url.removesuffix("/v1") + "/stats")

    async def send(self, method: str, url: str, body: bytes | None = None) -> Answer:
        async with self.session.request(method, url, data=body) as response:
            return Answer(response.status, dict(response.headers), await response.read())


@asynccontextmanager
async def told(behaviour: EndpointBehaviour) -> AsyncIterator[tuple[Client, Traffic]]:
    """A running endpoint and a client of it."""
    timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
    async with serving(behaviour) as (base_url, traffic), aiohttp.ClientSession(timeout=timeout) as session:
        yield Client(base_url, session), traffic


# -- rate limits -----------------------------------------------------------------------------------------------


async def test_more_requests_than_the_bucket_holds_are_refused_with_the_time_to_wait() -> None:
    """60 a minute are 5 in five seconds; the next one is due a second later."""
    async with told(EndpointBehaviour(rpm=60)) as (client, traffic):
        answers = [await client.ask(chat(seed=each)) for each in range(6)]
    assert [each.status for each in answers] == [200] * 5 + [429]
    refused = answers[-1]
    assert refused.json["error"]["code"] == "rate_limit_exceeded"
    assert refused.json["error"]["type"] == "requests"
    assert 0 < float(refused.headers["Retry-After"]) <= 1
    assert (traffic.refused, traffic.failed, traffic.delivered.total()) == (1, 0, 5)


# -- faults ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("429", (429, "rate_limit_exceeded", None, (1, 0))),
        ("429-retry-after", (429, "rate_limit_exceeded", "0.1", (1, 0))),
        ("500", (500, "server_error", None, (0, 1))),
        ("invalid-json", (200, None, None, (0, 1))),
        ("empty-choices", (200, [], None, (0, 1))),
        ("slow-first-byte", (200, 1, None, (0, 0))),
        ("half-body", ("ClientPayloadError", None, None, (0, 1))),
        ("reset", ("ClientOSError", None, None, (0, 1))),
    ],
)
async def test_a_fault_is_what_its_name_says(
    kind: str, expected: tuple[int | str, object, str | None, tuple[int, int]]
) -> None:
    """Status or error, code or choices, time to wait, and whether it counts as refused or failed."""
    async with told(EndpointBehaviour(faults={kind: 1.0}, slow=0.01)) as (client, traffic):
        try:
            answer = await client.ask()
        except aiohttp.ClientError as error:
            answer = Answer(type(error).__name__, {}, b"")
    try:
        body = answer.json
    except orjson.JSONDecodeError:
        said = None
    else:
        said = body["error"]["code"] if "error" in body else len(body["choices"]) or []
    assert (answer.status, said, answer.headers.get("Retry-After"), (traffic.refused, traffic.failed)) == expected
    assert traffic.delivered.total() == (kind == "slow-first-byte")


# -- what it saw, and what takes it down -----------------------------------------------------------------------


async def test_answers_delivered_twice_are_seen() -> None:
    """A request is known by messages, temperature, seed and n; a failed attempt delivers nothing."""
    async with told(EndpointBehaviour(faults={"500": 0.4})) as (client, traffic):
        bodies = [chat(), chat(n=2), chat(seed=2)] * 4
        delivered = [each for each in bodies if (await client.ask(each)).status == 200]
        stats = (await client.stats()).json
    assert len({*delivered}) == 3 < len(delivered) < 12
    assert stats["delivered"] == {"answers": len(delivered), "repeated": len(delivered) - 3}
    assert sorted(traffic.delivered.values()) == sorted(Counter(delivered).values())
    assert (stats["requests"], stats["failed"], stats["in_flight"]) == (12, 12 - len(delivered), 0)
    assert stats["refused"] == 0
    assert stats["prompt_tokens"] == traffic.prompt_tokens > 0


# -- the command -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--fault", "50=0.1"], "did you mean '500'"),
        (["--fault", "500"], "500"),
        (["--fault", "500=2"], "must be from 0 to 1"),
        (["--fault", "500=0.1", "--fault", "500=0.2"], "--fault 500 is given twice"),
        (["--latency", "-1"], "latency"),
        (["--profile", "gpt5"], "there is no profile 'gpt5'; did you mean 'gpt-5'?"),
    ],
)
def test_what_makes_no_sense_ends_the_command_before_anything_is_served(flags: list[str], said: str) -> None:
    """Exit status 2, and what there is."""
    with simulator(*flags) as refused:
        assert refused.wait() == 2
    assert said in refused.err
    assert "Traceback" not in refused.err
    assert refused.out == ""
