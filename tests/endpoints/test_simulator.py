"""The chaos endpoint over real HTTP: it behaves exactly as badly as it was told, and its answers never change."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson
import pytest

from reasonrag.errors import InputError
from tests.endpoints.behaviour import PASSING_FAULTS, EndpointBehaviour
from tests.endpoints.simulator import Traffic, serving
from tests.helpers.processes import simulated_endpoint, simulator

PATIENCE_S = 60.0
"""What does not come about by then never will; no test waits so long when all is well."""
SYSTEM = "End with So the next query is <query>..</query> or So the answer is <answer>..</answer>"


def seconds_of(duration: str) -> float:
    """`6ms`, `1.5s` and `1m2s` in seconds."""
    units = {"ms": 0.001, "s": 1.0, "m": 60.0}
    return sum(float(number) * units[unit] for number, unit in re.findall(r"([\d.]+)(ms|s|m)", duration))


def chat(question: str = "Who wrote The Iron Bell?", **parameters: object) -> bytes:
    """The body of a chat request."""
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": f"Question: {question}"}]
    return orjson.dumps({"model": "offline", "messages": messages, "temperature": 1.0, "seed": 1} | parameters)


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)

    @property
    def choices(self) -> list[tuple[str, str]]:
        """Finish reason and text of each."""
        return [(each["finish_reason"], each["message"]["content"]) for each in self.json["choices"]]


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


async def outcomes(client: Client, requests: int) -> list[int | str]:
    """Status or error of so many requests, one after the other."""
    seen: list[int | str] = []
    for each in range(requests):
        try:
            seen.append((await client.ask(chat(seed=each))).status)
        except aiohttp.ClientError as error:
            seen.append(type(error).__name__)
    return seen


async def until(true: Any) -> None:
    """Wait for what another task or process is about to do."""
    async with asyncio.timeout(PATIENCE_S):
        while not true():  # noqa: ASYNC110 - what is waited for may be another's number
            await asyncio.sleep(0.01)


async def raw(base_url: str) -> bytes:
    """Everything that comes back on a connection of one's own. Raises ConnectionResetError on a TCP reset."""
    host, _, port = base_url.removeprefix("http://").removesuffix("/v1").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(chat())}\r\n\r\n"
    try:
        writer.write(head.encode() + chat())
        async with asyncio.timeout(PATIENCE_S):
            return await reader.read()
    finally:
        writer.close()


# -- answers ---------------------------------------------------------------------------------------------------


async def test_no_fault_changes_an_answer() -> None:
    """Whoever asks until there is an answer gets the one of an endpoint without faults."""
    async with told(EndpointBehaviour()) as (client, _):
        plain = [(await client.ask(chat(seed=each, n=3))).body for each in range(20)]
    kinds = [each for each in PASSING_FAULTS if each not in ("hang", "invalid-json", "empty-choices")]
    faults = dict.fromkeys(kinds, 0.5 / len(kinds))
    async with told(EndpointBehaviour(faults=faults, slow=0.01)) as (client, traffic):
        for each, expected in enumerate(plain):
            answer = None
            while answer is None:
                try:
                    tried = await client.ask(chat(seed=each, n=3))
                    answer = tried.body if tried.status == 200 else None
                except aiohttp.ClientError:
                    pass
            assert answer == expected
    assert traffic.faults.total() > 5


async def test_canned_answers_are_the_same_answers() -> None:
    """Replies that are kept are those that would be thought of again, whatever stop string comes with the request."""
    bodies = [chat(seed=seed, stop=stop, n=2) for seed in range(5) for stop in (["</query>", "</answer>"], [])] * 2
    answers = []
    for canned in (False, True):
        async with told(EndpointBehaviour(canned=canned)) as (client, _):
            answers.append([(await client.ask(each)).body for each in bodies])
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("behaviour", "given"),
    [
        (EndpointBehaviour(max_choices=2), 2),
        (EndpointBehaviour(ignore_n=True, max_choices=2), 1),
        (EndpointBehaviour(), 4),
    ],
)
async def test_choices_stop_at_the_most_the_endpoint_gives(behaviour: EndpointBehaviour, given: int) -> None:
    """The choices that are given are the first of those asked for; the client must ask for the others itself."""
    async with told(EndpointBehaviour()) as (client, _):
        everything = (await client.ask(chat(n=4))).choices
    async with told(behaviour) as (client, _):
        assert (await client.ask(chat(n=4))).choices == everything[:given]


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", chat(n=0.5, temperature="warm"), chat(n=-1), chat(n=10_000), chat(stop=[3])]
)
async def test_what_is_no_chat_request_gets_a_400(body: bytes) -> None:
    """The client's mistakes are no failures of the endpoint's."""
    async with told(EndpointBehaviour()) as (client, traffic):
        answer = await client.send("POST", f"{client.base_url}/chat/completions", body)
    assert (answer.status, answer.json["error"]["type"]) == (400, "invalid_request_error")
    assert (traffic.failed, traffic.delivered.total()) == (0, 0)


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


async def test_who_waits_as_long_as_told_is_let_in() -> None:
    """Refused requests cost nothing, and the time to wait is enough."""
    async with told(EndpointBehaviour(rpm=240)) as (client, traffic):
        await asyncio.gather(*(client.ask(chat(seed=each)) for each in range(30)))
        refused = await client.ask()
        await asyncio.sleep(float(refused.headers["Retry-After"]))
        assert (refused.status, (await client.ask()).status) == (429, 200)
    assert traffic.requests == 32


async def test_tokens_are_limited_too() -> None:
    """Prompt and completion count; what an answer took too much is owed by the next request."""
    async with told(EndpointBehaviour(tpm=1200)) as (client, traffic):
        seen = [await client.ask(chat(seed=each)) for each in range(10)]
    used = traffic.prompt_tokens + traffic.completion_tokens
    most = max(each.json["usage"]["total_tokens"] for each in seen if each.status == 200)
    assert {each.status for each in seen} == {200, 429}
    assert used <= 100 + most + 20  # the bucket, the answer that emptied it, and a second for the test to run
    assert seen[-1].json["error"]["type"] == "tokens"
    assert traffic.refused == sum(each.status == 429 for each in seen) > 0


async def test_every_answer_shows_the_limits() -> None:
    """Answers, refusals, errors, half answers and lists of models carry OpenAI's headers; reset can be read."""
    async with told(EndpointBehaviour(rpm=12, tpm=60_000, faults={"500": 0.5}, fault_seed=4)) as (client, _):
        answers = [await client.ask(chat(seed=each)) for each in range(4)]
        answers.append(await client.send("GET", f"{client.base_url}/models"))
    assert [each.status for each in answers] == [500, 429, 429, 429, 200]
    for answer in answers:
        assert answer.headers["x-ratelimit-limit-requests"] == "12"
        assert answer.headers["x-ratelimit-remaining-requests"] == "0"
        assert 3 < seconds_of(answer.headers["x-ratelimit-reset-requests"]) <= 5
        assert answer.headers["x-ratelimit-limit-tokens"] == "60000"
        assert 4900 < int(answer.headers["x-ratelimit-remaining-tokens"]) < 5000
        assert 0 < seconds_of(answer.headers["x-ratelimit-reset-tokens"]) < 0.1


async def test_no_limit_shows_no_headers() -> None:
    """A server of one's own does not count."""
    async with told(EndpointBehaviour()) as (client, _):
        assert not [each for each in (await client.ask()).headers if each.lower().startswith("x-ratelimit")]


async def test_a_long_reset_is_given_in_minutes() -> None:
    """OpenAI's spelling: 1m0s for a bucket that holds one request a minute."""
    async with told(EndpointBehaviour(rpm=1)) as (client, _):
        reset = (await client.ask()).headers["x-ratelimit-reset-requests"]
    assert reset.startswith(("1m0s", "59."))
    assert 59 < seconds_of(reset) <= 60


# -- faults ----------------------------------------------------------------------------------------------------


def always(kind: str, **behaviour: Any) -> EndpointBehaviour:
    return EndpointBehaviour(faults={kind: 1.0}, **behaviour)


@pytest.mark.parametrize(("kind", "retry_after"), [("429", None), ("429-retry-after", "0.1")])
async def test_refusals_on_a_whim(kind: str, retry_after: str | None) -> None:
    """Without a rate limit, with and without saying when to come back; both count as refused."""
    async with told(always(kind)) as (client, traffic):
        answer = await client.ask()
    assert (answer.status, answer.json["error"]["code"]) == (429, "rate_limit_exceeded")
    assert answer.headers.get("Retry-After") == retry_after
    assert (traffic.refused, traffic.failed) == (1, 0)


async def test_capacity_lacks_only_to_those_who_ask_for_what_is_left() -> None:
    async with told(always("no-capacity")) as (client, traffic):
        answers = [await client.ask(chat(service_tier=tier)) for tier in ("flex", "default", None)]
    assert [each.status for each in answers] == [429, 200, 200]
    assert answers[0].json["error"]["code"] == "resource_unavailable"
    assert (traffic.refused, traffic.faults["no-capacity"]) == (1, 1)


async def test_passing_server_errors_differ_each_time() -> None:
    """Nobody can tell by the text that it is the same error again."""
    async with told(always("500")) as (client, _):
        answers = [await client.ask() for _ in range(2)]
    assert [each.status for each in answers] == [500, 500]
    assert answers[0].body != answers[1].body


async def test_a_request_that_fails_for_ever_fails_the_same_way() -> None:
    """Which requests do is decided by what they ask; with other messages or another seed they may be answered."""
    async with told(EndpointBehaviour(faults={"same-500": 0.5})) as (client, traffic):
        answers = [[await client.ask(chat(seed=seed)) for _ in range(3)] for seed in range(20)]
    by_request = [{(each.status, each.body) for each in attempts} for attempts in answers]
    assert all(len(each) == 1 for each in by_request)
    assert len({answer for each in by_request for answer in each if answer[0] == 500}) == 1
    assert 0 < traffic.faults["same-500"] < 60
    assert traffic.delivered.total() == 60 - traffic.failed


async def test_a_reset_is_a_reset() -> None:
    """The connection ends with RST and not a byte."""
    async with told(always("reset")) as (client, traffic):
        with pytest.raises(ConnectionResetError):
            await raw(client.base_url)
    assert (traffic.failed, traffic.delivered.total()) == (1, 0)


async def test_half_a_body_is_half_of_what_was_promised() -> None:
    """A good status, the headers of the whole answer, and a connection that ends too early."""
    async with told(EndpointBehaviour()) as (client, _):
        whole = (await client.ask()).body
    async with told(always("half-body", rpm=600)) as (client, traffic):
        head, _, body = (await raw(client.base_url)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert f"content-length: {len(whole)}".encode() in head.lower()
    assert b"x-ratelimit-limit-requests: 600" in head.lower()
    assert body == whole[: len(whole) // 2]
    assert traffic.delivered.total() == 0


async def test_a_hanging_request_ends_without_an_answer() -> None:
    """Nothing comes, and at last the connection is closed."""
    async with told(always("hang", hang=0.1)) as (client, traffic):
        started = time.perf_counter()
        assert await raw(client.base_url) == b""
    assert time.perf_counter() - started >= 0.1
    assert traffic.failed == 1


async def test_an_endpoint_with_hanging_requests_can_be_stopped() -> None:
    """And who does not want to wait may go; the request is no longer in flight then."""
    async with told(always("hang")) as (client, traffic):
        impatient, patient = asyncio.create_task(client.ask()), asyncio.create_task(client.ask())
        await until(lambda: traffic.in_flight == 2)
        impatient.cancel()
        await until(lambda: traffic.in_flight == 1)
        closed = time.perf_counter()
    assert time.perf_counter() - closed < 60  # it would hang for 600
    with pytest.raises(aiohttp.ClientError):
        await patient


async def test_a_body_that_is_no_json() -> None:
    """Status and content type promise what the body does not hold."""
    async with told(always("invalid-json")) as (client, _):
        answer = await client.ask()
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json")
    with pytest.raises(orjson.JSONDecodeError):
        _ = answer.json


async def test_an_answer_without_choices() -> None:
    """A chat completion in every other respect; it delivers nothing."""
    async with told(always("empty-choices")) as (client, traffic):
        answer = await client.ask()
    assert (answer.status, answer.choices, answer.json["object"]) == (200, [], "chat.completion")
    assert (traffic.failed, traffic.delivered.total()) == (1, 0)


async def test_cut_and_withheld_replies_are_the_same_each_time() -> None:
    """They are decided by the request's content, and are whole answers that are paid for."""
    async with told(EndpointBehaviour()) as (client, _):
        plain = [(await client.ask(chat(seed=each))).choices[0][1] for each in range(40)]
    async with told(EndpointBehaviour(faults={"length": 0.4, "content-filter": 0.4})) as (client, traffic):
        first = [(await client.ask(chat(seed=each))).choices[0] for each in range(40)]
        again = [(await client.ask(chat(seed=each))).choices[0] for each in range(40)]
    assert first == again
    expected = {
        "stop": lambda text: text,
        "length": lambda text: text[: len(text) // 2],
        "content_filter": lambda _: "",
    }
    assert [text for _, text in first] == [
        expected[reason](text) for (reason, _), text in zip(first, plain, strict=True)
    ]
    assert set(Counter(reason for reason, _ in first)) == set(expected)
    assert (traffic.failed, traffic.delivered.total()) == (0, 80)


async def test_cut_replies_do_not_depend_on_how_many_are_asked_for() -> None:
    """The first choice of a request is the same alone and with siblings."""
    async with told(EndpointBehaviour(faults={"length": 0.5})) as (client, _):
        for seed in range(10):
            [alone] = (await client.ask(chat(seed=seed))).choices
            assert (await client.ask(chat(seed=seed, n=3))).choices[0] == alone


async def test_a_slow_answer_is_an_answer() -> None:
    """It only takes its time."""
    async with told(always("slow-first-byte", slow=0.1)) as (client, traffic):
        started = time.perf_counter()
        assert (await client.ask()).status == 200
    assert time.perf_counter() - started >= 0.1
    assert (traffic.failed, traffic.delivered.total()) == (0, 1)


async def test_the_same_requests_meet_the_same_faults() -> None:
    """Faults depend on their seed and the number of the request, on no clock and no luck."""
    faults = {"429": 0.2, "500": 0.2, "reset": 0.2, "length": 0.1}
    runs = []
    for seed in (1, 1, 2):
        async with told(EndpointBehaviour(faults=faults, fault_seed=seed)) as (client, _):
            runs.append(await outcomes(client, 40))
    assert runs[0] == runs[1] != runs[2]
    assert {429, 500, 200} < set(runs[0])


async def test_shares_are_shares() -> None:
    """Of many different requests each fault meets about its share, and no request meets two."""
    faults = {"500": 0.3, "429": 0.1, "same-500": 0.2, "content-filter": 0.3}
    async with told(EndpointBehaviour(faults=faults)) as (client, traffic):
        seen = Counter(await outcomes(client, 600))
    assert traffic.faults.total() == sum(traffic.faults.values()) <= 600
    for kind, share in faults.items():
        assert abs(traffic.faults[kind] / 600 - share) < 0.06, kind
    assert seen[500] == traffic.faults["500"] + traffic.faults["same-500"] == traffic.failed
    assert seen[429] == traffic.faults["429"] == traffic.refused


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        ({"50": 0.1}, "there is no fault '50'; did you mean '500'"),
        ({"500": 1.5}, "the share of fault 500 is 1.5; it must be from 0 to 1"),
        ({"500": -0.1}, "must be from 0 to 1"),
        ({"500": float("nan")}, "must be from 0 to 1"),
        ({"500": 0.6, "reset": 0.6}, "500, reset are together more than 1"),
    ],
)
def test_faults_that_make_no_sense_are_refused(faults: dict[str, float], message: str) -> None:
    """Before anything is served."""
    with pytest.raises(InputError, match=message):
        EndpointBehaviour(faults=faults)


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


async def test_tokens_are_those_of_the_answers_delivered() -> None:
    """The sum of the usage that the client saw."""
    async with told(EndpointBehaviour(faults={"500": 0.3, "half-body": 0.3, "length": 0.2})) as (client, traffic):
        usages = []
        for seed in range(30):
            try:
                answer = await client.ask(chat(seed=seed, n=2))
                usages += [answer.json["usage"]] if answer.status == 200 else []
            except aiohttp.ClientError:
                pass
    assert 0 < len(usages) < 30
    assert traffic.prompt_tokens == sum(each["prompt_tokens"] for each in usages)
    assert traffic.completion_tokens == sum(each["completion_tokens"] for each in usages)


async def test_an_answer_that_nobody_waited_for_is_not_delivered() -> None:
    """The client went away during the latency."""
    async with told(EndpointBehaviour(latency=0.2)) as (client, traffic):
        asking = asyncio.create_task(client.ask())
        await until(lambda: traffic.in_flight == 1)
        asking.cancel()
        await until(lambda: traffic.in_flight == 0)
        await asyncio.sleep(0.25)
    assert (traffic.requests, traffic.delivered.total()) == (1, 0)


async def test_an_endpoint_that_is_down_says_the_same_to_everybody() -> None:
    """Models and chats get one and the same 503 until it is up again; /stats stays."""
    async with told(EndpointBehaviour()) as (client, traffic):
        traffic.down = True
        answers = [await client.ask(), await client.ask(), await client.send("GET", f"{client.base_url}/models")]
        stats = (await client.stats()).json
        traffic.down = False
        assert (await client.ask()).status == 200
    assert {each.status for each in answers} == {503}
    assert len({each.body for each in answers}) == 1
    assert (stats["down"], stats["requests"], stats["failed"]) == (True, 2, 2)


# -- the command -----------------------------------------------------------------------------------------------


async def test_the_command_knows_every_habit() -> None:
    """Each flag arrives where it belongs; the numbers can be read from another process."""
    flags = ["--rpm", "600", "--tpm", "600000", "--max-choices", "2", "--canned"]
    flags += ["--fault", "500=0.25", "--fault", "hang=0.25", "--fault-seed", "3", "--hang", "0.01", "--slow", "0.01"]
    with simulated_endpoint(*flags) as base_url:
        async with aiohttp.ClientSession() as session:
            client = Client(base_url, session)
            seen = await outcomes(client, 20)
            stats = (await client.stats()).json
            limits = (await client.send("GET", f"{base_url}/models")).headers
    behaviour = EndpointBehaviour(faults={"500": 0.25, "hang": 0.25}, fault_seed=3, hang=0.01)
    async with told(behaviour) as (client, _):
        assert seen == await outcomes(client, 20)
    assert stats["delivered"] == {"answers": seen.count(200), "repeated": 0}
    assert stats["faults"] == {"500": seen.count(500), "hang": seen.count("ServerDisconnectedError")}
    assert limits["x-ratelimit-limit-requests"] == "600"
    assert limits["x-ratelimit-limit-tokens"] == "600000"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--fault", "50=0.1"], "did you mean '500'"),
        (["--fault", "500"], "500"),
        (["--fault", "500=much"], "500"),
        (["--fault", "=0.1"], "500"),
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
