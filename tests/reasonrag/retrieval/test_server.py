"""A retriever behind HTTP: what is answered, what is refused in which words, and how the service ends."""

from __future__ import annotations

import asyncio
import gzip
import re
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasonrag.data.corpus import Passage
from reasonrag.errors import RetrievalError
from reasonrag.retrieval.retriever import Retriever
from reasonrag.retrieval.server import RETRY_AFTER_S, SEARCHED_TOGETHER, ServeLimits, serving

TOKEN = "k33p-0ut"  # noqa: S105 - of this test
QUERIES = ["Which country is Paris the capital of?", "What lies on the Tiber?", "cats", "zebra"]


class Held:
    """A retriever that finds nothing before it may: whatever is asked, one passage that repeats it."""

    identity = "held"

    def __init__(self, *, may_find: bool = False) -> None:
        self.may_find = asyncio.Event()
        if may_find:
            self.may_find.set()
        self.asked: list[str] = []
        self.left = asyncio.Semaphore(0)
        """Released once for each search that was called off."""
        self._called = asyncio.Condition()

    async def retrieve(self, query: str, top_k: int) -> list[Passage]:
        self.asked.append(query)
        async with self._called:
            self._called.notify_all()
        try:
            await self.may_find.wait()
        except asyncio.CancelledError:
            self.left.release()
            raise
        return [Passage(id=query, title="Echo", text=query, score=1.0)][:top_k]

    async def was_asked(self, times: int) -> None:
        async with asyncio.timeout(60), self._called:
            await self._called.wait_for(lambda: len(self.asked) >= times)


class Long:
    """A retriever whose passages are of 1,000 bytes in JSON, and whose tenth list never comes if it `stops`."""

    identity = "long"

    def __init__(self, *, stops: bool = False) -> None:
        self.asked = 0
        self.stops = stops

    async def retrieve(self, query: str, top_k: int) -> list[Passage]:
        self.asked += 1
        if self.stops and self.asked == 10:
            await asyncio.Event().wait()
        empty = len(orjson.dumps([{"id": "1", "title": "", "contents": "\n" + query}]))
        return [Passage(id="1", title="", text=query + "x" * (1000 - empty), score=1.0)] * top_k


class Failing:
    """A retriever whose corpus is gone."""

    identity = "failing"

    async def retrieve(self, query: str, top_k: int) -> list[Passage]:  # noqa: ARG002
        raise RetrievalError("wiki.jsonl, passage 7 is not JSON. The corpus was changed while it was searched")


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)

    @property
    def error(self) -> str:
        assert list(self.json) == ["error"]
        return str(self.json["error"])


@dataclass(frozen=True)
class Client:
    """Requests to one service, nothing retried."""

    base_url: str
    session: aiohttp.ClientSession

    async def retrieve(self, queries: object, **parameters: object) -> Answer:
        return await self.post(orjson.dumps({"queries": queries, **parameters}))

    async def post(self, body: object, **headers: str) -> Answer:
        return await self.send("POST", "/retrieve", body, **headers)

    async def is_refused(self) -> bool:
        """Whether nobody takes a new connection."""
        try:
            async with asyncio.timeout(2), client_of(self.base_url) as other:
                await other.get("/health")
        except aiohttp.ClientConnectionError:
            return True
        except TimeoutError:  # accepted as the server closed, and dropped: python/cpython#109564
            pass
        return False

    async def get(self, path: str, **headers: str) -> Answer:
        return await self.send("GET", path, None, **headers)

    async def send(self, method: str, path: str, body: object, **headers: str) -> Answer:
        url = self.base_url + path
        async with self.session.request(method, url, data=body, headers=headers) as response:
            return Answer(response.status, dict(response.headers), await response.read())


@asynccontextmanager
async def client_of(base_url: str) -> AsyncIterator[Client]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
        yield Client(base_url, session)


@asynccontextmanager
async def served(retriever: Retriever, *, token: str | None = None, **limits: Any) -> AsyncIterator[Client]:
    """A running service and a client of it. Its end waits for nobody."""
    held = ServeLimits()._replace(**limits)
    async with serving(retriever, limits=held, token=token, drain_s=0.01) as base_url, client_of(base_url) as client:
        yield client


async def until(true: Any) -> None:
    """Wait for what another process is about to do."""
    async with asyncio.timeout(60):
        while not await true():  # noqa: ASYNC110 - another process does it
            await asyncio.sleep(0.01)


# -- the protocol ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "top_k"),
    [({"topk": 2, "return_scores": True}, 2), ({}, 3), ({"topk": None, "return_scores": False, "rerank": True}, 3)],
)
async def test_documents_stand_beside_their_scores_or_alone(
    asked: dict[str, object], top_k: int, retriever: Retriever
) -> None:
    """One list for each query in order, best first, with the passages that the index finds by itself. As in Search-R1,
    scores are only for who asks for them; null is as good as no topk, and other fields are not read."""
    async with served(retriever) as client:
        answer = (await client.retrieve(QUERIES, **asked)).json["result"]
    for query, found in zip(QUERIES, answer, strict=True):
        passages = await retriever.retrieve(query, top_k)
        documents = [
            {"id": each.id, "title": each.title, "contents": f"{each.title}\n{each.text}"} for each in passages
        ]
        scored = [
            {"document": document, "score": each.score} for document, each in zip(documents, passages, strict=True)
        ]
        assert found == (scored if asked.get("return_scores") else documents)
    assert [len(each) for each in answer] == [top_k, 2, 1, 0]


CLIENTS = {
    "search_r1": {"queries": ["Paris", "cats"], "topk": 3, "return_scores": True},
    "verl": {"queries": ["Paris"], "topk": 3, "return_scores": True},
    "skyrl": {"query": "Paris", "topk": 3, "return_scores": True},
}
"""What their code posts, in August 2026: Search-R1 search_r1/llm_agent/generation.py, verl
verl/tools/utils/search_r1_like_utils.py, SkyRL skyrl_gym/tools/search.py."""


@pytest.mark.parametrize("body", CLIENTS.values(), ids=CLIENTS)
async def test_clients_of_other_trainers_find_what_they_read(body: dict[str, object], retriever: Retriever) -> None:
    """A list for each query, and in each hit the title as the first line of `document.contents`."""
    async with served(retriever) as client:
        answer = await client.post(orjson.dumps(body))
    assert answer.status == 200
    [hits, *_] = answer.json["result"]
    expected = [f"{each.title}\n{each.text}" for each in await retriever.retrieve("Paris", 3)]
    assert [each["document"]["contents"] for each in hits] == expected != []


@pytest.mark.parametrize("more", [{}, {"topk": 2, "return_scores": True}])
async def test_the_client_of_skyrl_is_answered_like_that_of_search_r1(
    more: dict[str, object], retriever: Retriever
) -> None:
    """It posts one text as `query`, or a list, and reads the lists of `result`."""
    async with served(retriever) as client:
        for asked, same in (("zebra", ["zebra"]), (["Italy", "cats"], ["Italy", "cats"]), ([], [])):
            answer = await client.post(orjson.dumps({"query": asked, **more}))
            assert (answer.status, answer.json) == (200, (await client.retrieve(same, **more)).json)
            assert len(answer.json["result"]) == len(same)


async def test_where_no_sample_searches_the_trainer_of_search_r1_goes_on(retriever: Retriever) -> None:
    """It asks for no queries then, and reads `result`; an empty query, where a search tag is empty, finds nothing."""
    async with served(retriever) as client:
        assert (await client.retrieve([], topk=3, return_scores=True)).json["result"] == []
        found = (await client.retrieve(["", "cats", " \n"], topk=3, return_scores=True)).json["result"]
    assert [len(each) for each in found] == [0, 1, 0]


async def test_a_whole_step_of_search_r1s_grpo_fits_into_a_request() -> None:
    """512 questions times 5 samples, as in its scripts, under the limits as they come."""
    queries = [f"What is the answer to question number {each}, and where is it written?" for each in range(2560)]
    async with served(Held(may_find=True)) as client:
        found = (await client.retrieve(queries, topk=3, return_scores=True)).json["result"]
    assert [each[0]["document"]["id"] for each in found] == queries


async def test_equal_queries_of_a_request_are_searched_once() -> None:
    """Samples of one question often ask the same; each still gets its list."""
    held = Held(may_find=True)
    async with served(held) as client:
        found = (await client.retrieve(["a", "b", "a", "a"])).json["result"]
    assert held.asked == ["a", "b"]
    assert [each["id"] for [each] in found] == ["a", "b", "a", "a"]


# -- bad input ---------------------------------------------------------------------------------------------------

BAD_BODIES: list[tuple[object, str]] = [
    (b'{"queries": ["\\ud800"]}', "Invalid JSON"),
    (b'{"queries": ["a"], "x": ' + b'{"y": ' * 100_000 + b"1" + b"}" * 100_000 + b"}", "Invalid JSON"),
    (b'{"queries": ["a"], "topk": 1e5000}', "topk: Input should be a valid integer"),
    ([], "record: Input should be an object"),
    ({"query": "cats", "queries": ["dogs"]}, 'it needs "queries", or "query", and not both'),
    ({"query": ["cats", 7]}, "query.str: Input should be a valid string"),
    ({"queries": ["a", "x" * 100_000]}, "the query has 100,000 bytes; the limit is 32,768"),
    ({"queries": ["a"] * 4097}, "there are 4097 queries, and a request may have 4096"),
    ({"queries": ["a"], "topk": 0}, "topk: Input should be greater than or equal to 1"),
    ({"queries": ["a"], "topk": 10**6}, "topk: Input should be less than or equal to 1000"),
    ({"queries": ["a"], "topk": True}, "topk: Input should be a valid integer"),
]


@pytest.mark.parametrize(("body", "words"), BAD_BODIES)
async def test_bad_input_is_answered_with_what_is_wrong(body: object, words: str, retriever: Retriever) -> None:
    """Status 400, the field that is wrong, and what a request looks like; never a part of the query."""
    async with served(retriever) as client:
        answer = await client.post(body if isinstance(body, bytes) else orjson.dumps(body))
    assert answer.status == 400
    assert words in answer.error
    assert '"topk": 3' in answer.error
    assert len(answer.error) < 300


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
REQUESTS = JSON | st.fixed_dictionaries(
    {}, optional={"queries": JSON, "query": JSON, "topk": JSON, "return_scores": JSON}
)


@given(bodies=st.lists(REQUESTS | st.binary(), min_size=1, max_size=8))
async def test_no_body_brings_the_service_down(bodies: list[object], retriever: Retriever) -> None:
    """Whatever comes in, out comes a result or an error in JSON."""
    async with served(retriever) as client:
        for body in bodies:
            answer = await client.post(body if isinstance(body, bytes) else orjson.dumps(body))
            assert answer.status in (200, 400)
            assert ("result" in answer.json) == (answer.status == 200)
            assert answer.status == 200 or answer.error


@pytest.mark.parametrize(
    ("method", "path", "status", "allowed"),
    [("GET", "/search", 404, None), ("PUT", "/retrieve", 405, "POST")],
)
async def test_a_wrong_path_or_method_is_told_the_right_ones(
    method: str, path: str, status: int, allowed: str | None, retriever: Retriever
) -> None:
    async with served(retriever) as client:
        answer = await client.send(method, path, b"{}")
    assert (answer.status, answer.headers.get("Allow")) == (status, allowed)
    assert "there are POST /retrieve and GET /health" in answer.error


async def in_chunks(body: bytes) -> AsyncIterator[bytes]:
    """A body whose length nobody is told beforehand."""
    for start in range(0, len(body), 10_000):
        yield body[start : start + 10_000]


@pytest.mark.parametrize("in_advance", [True, False])
async def test_a_body_that_is_too_large_is_not_taken(in_advance: bool, retriever: Retriever) -> None:
    """Status 413, whether its length is told in advance or not; one byte less is taken."""
    body = orjson.dumps({"queries": ["cats"]}) + b" " * 100_000
    for limit, status in ((len(body), 200), (len(body) - 1, 413)):
        async with served(retriever, max_body_bytes=limit) as client:
            answer = await client.post(body if in_advance else in_chunks(body))
        assert answer.status == status
    assert f"body size {len(body) - 1} exceeded" in answer.error
    assert answer.error.endswith("; ask with fewer queries at once, or a smaller topk")


async def test_a_failed_search_is_told_without_a_traceback() -> None:
    """Status 500 and the words of the RetrievalError; the service goes on."""
    async with served(Failing()) as client:
        for _ in range(2):
            answer = await client.retrieve(["cats", "dogs"])
            assert answer.status == 500
            assert answer.error.startswith("the search failed: wiki.jsonl, passage 7")
            assert "Traceback" not in answer.error


# -- the token ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given_token", [None, "Bearer", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x", "Bearer ä"])
async def test_without_the_token_nobody_is_let_in(given_token: str | None, retriever: Retriever) -> None:
    """Status 401, and nothing said about what there is; the token itself is in no answer."""
    headers = {} if given_token is None else {"Authorization": given_token}
    async with served(retriever, token=TOKEN) as client:
        for answer in (await client.post(None, **headers), await client.get("/elsewhere", **headers)):
            assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
            assert "Authorization: Bearer TOKEN" in answer.error
            assert TOKEN not in answer.error


@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
async def test_with_the_token_everything_is_answered_and_without_it_health_alone(
    scheme: str, retriever: Retriever
) -> None:
    """Schemes are written in any case, as HTTP has it. A load balancer has no token and needs none; a wrong one is
    worth knowing of."""
    async with served(retriever, token=TOKEN) as client:
        headers = {"Authorization": f"{scheme} {TOKEN}"}
        assert (await client.post(orjson.dumps({"queries": ["cats"]}), **headers)).status == 200
        assert (await client.get("/health", **headers)).json["identity"] == retriever.identity
        assert (await client.get("/health")).json == {"status": "ok"}
        assert (await client.get("/health", Authorization="Bearer wrong")).status == 401


async def test_health_tells_what_is_served(retriever: Retriever) -> None:
    """Identity, number of passages, and the limits that a client should keep to; on loopback, unless it is told
    otherwise."""
    async with served(retriever, max_waiting=100) as client:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", client.base_url)
        health = (await client.get("/health")).json
    assert health == {
        "status": "ok",
        "identity": retriever.identity,
        "passages": 4,
        "limits": ServeLimits(max_waiting=100)._asdict(),
    }


# -- back-pressure -----------------------------------------------------------------------------------------------


async def test_too_much_at_once_is_refused_and_may_come_back() -> None:
    """Beyond max_waiting queries, however many requests they are of: 503 and Retry-After; then there is room again. A
    request that could never be let in is bad input, so that it does not come back for ever."""
    held = Held()
    async with served(held, max_waiting=3) as client:
        waiting = [asyncio.create_task(client.retrieve(["a", "b"])), asyncio.create_task(client.retrieve(["c"]))]
        await held.was_asked(3)
        refused, never = await client.retrieve(["d"]), await client.retrieve(["d"] * 4)
        held.may_find.set()
        assert [(await each).status for each in waiting] == [200, 200]
        assert (await client.retrieve(["d"])).status == 200
    assert (refused.status, refused.headers["Retry-After"]) == (503, str(RETRY_AFTER_S))
    assert "3 queries are waiting, and at most 3 may" in refused.error
    assert "d" not in held.asked[:3]
    assert (never.status, "there are 4 queries, and a request may have 3" in never.error) == (400, True)


async def test_a_client_that_goes_away_frees_its_place() -> None:
    """Its searches are called off."""
    held = Held()
    async with served(held, max_waiting=2) as client:
        waiting = asyncio.create_task(client.retrieve(["a", "b"]))
        await held.was_asked(2)
        waiting.cancel()
        async with asyncio.timeout(60):
            await held.left.acquire()
            await held.left.acquire()
        held.may_find.set()
        assert (await client.retrieve(["c", "d"])).status == 200


# -- bytes of answers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("queries", "top_k"), [(["a"] * 60, 1), ([f"q{each}" for each in range(60)], 1), (["a", "b"], 30), (["a"], 60)]
)
async def test_an_answer_is_bounded_in_bytes(queries: list[str], top_k: int) -> None:
    """Equal queries count as often as they are answered; less is answered."""
    async with served(Long(), max_answer_bytes=50_000) as client:
        answer = await client.retrieve(queries, topk=top_k)
        fewer = await client.retrieve(queries[:40], topk=min(top_k, 20))
    assert answer.status == 413
    assert answer.error == (
        "the passages found are more than 50,000 bytes in one answer; ask with fewer queries at once, or a smaller topk"
    )
    assert (fewer.status, len(fewer.body) > 20_000) == (200, True)


async def test_beyond_the_limit_nothing_more_is_searched() -> None:
    """Of 4,000 queries, those that are searched together with the first that is too much."""
    long = Long()
    async with served(long, max_answer_bytes=50_000) as client:
        assert (await client.retrieve([f"q{each}" for each in range(4000)], topk=1)).status == 413
    assert long.asked <= SEARCHED_TOGETHER


async def test_bytes_of_all_answers_together_are_bounded() -> None:
    """While others are being made or are not yet taken: 503 and Retry-After, and room once they are gone."""
    long = Long(stops=True)
    async with served(long, max_held_bytes=20_000) as client:
        waiting = asyncio.create_task(client.retrieve([f"q{each}" for each in range(10)], topk=2))

        async def held() -> bool:
            return long.asked == 10

        await until(held)
        refused = await client.retrieve(["a"], topk=3)
        assert (await client.retrieve(["a"], topk=1)).status == 200
        waiting.cancel()

        async def free() -> bool:
            return (await client.retrieve(["a"], topk=3)).status == 200

        await until(free)
    assert (refused.status, refused.headers["Retry-After"]) == (503, str(RETRY_AFTER_S))
    assert re.search(r"^17,\d{3} bytes of answers have not been read by their clients yet; try again", refused.error)


@pytest.mark.parametrize(("body", "status"), [(b"plain", 400), (gzip.compress(b" " * 50_000_000, mtime=0), 413)])
async def test_a_body_that_is_not_what_its_headers_say_is_bad_input(
    body: bytes, status: int, capfd: pytest.CaptureFixture[str]
) -> None:
    """No gzip, and too much once it is unpacked; nothing is said on stderr."""
    async with served(Held(may_find=True)) as client:
        answer = await client.post(body, **{"Content-Encoding": "gzip"})
        assert answer.status == status
        assert answer.error
    assert capfd.readouterr().err == ""


# -- the end -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("may_find", [True, False])
async def test_those_in_flight_are_answered_and_new_ones_refused(may_find: bool) -> None:
    """A search without end is given up in the end."""
    held = Held()
    async with AsyncExitStack() as service, asyncio.timeout(60):
        url = await service.enter_async_context(serving(held, drain_s=60 if may_find else 0.01))
        async with client_of(url) as client:
            waiting = asyncio.create_task(client.retrieve(["a"]))
            await held.was_asked(1)
            ending = asyncio.create_task(service.aclose())
            await until(client.is_refused)
            if may_find:
                held.may_find.set()
                assert (await waiting).status == 200
            else:
                with pytest.raises(aiohttp.ClientConnectionError):
                    await waiting
            await ending
    assert held.asked == ["a"]


SCRIPT = """
import asyncio
from reasonrag.retrieval.server import serving
from reasonrag.web.server import serve_until_stopped

class Never:
    identity = "never"
    async def retrieve(self, query, top_k):
        print("searching", flush=True)
        await asyncio.Event().wait()

def say(base_url):
    print(base_url, flush=True)

asyncio.run(serve_until_stopped(serving(Never(), drain_s=60), say=say))
"""
"""A service of its own process, whose searches never end."""


async def test_a_second_signal_ends_the_process_at_once() -> None:
    """Whoever cannot wait for the searches in flight need not."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", SCRIPT, stdout=PIPE)
    assert process.stdout is not None
    async with asyncio.timeout(60), client_of((await process.stdout.readline()).decode().strip()) as client:
        waiting = asyncio.create_task(client.retrieve(["cats"]))
        await process.stdout.readline()
        process.terminate()
        await until(client.is_refused)
        process.terminate()
        assert await process.wait() == -signal.SIGTERM
        with pytest.raises(aiohttp.ClientConnectionError):
            await waiting
