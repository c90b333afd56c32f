"""A retriever on another machine: ours, Search-R1's, and servers that fail in every way; all over real HTTP."""

from __future__ import annotations

import asyncio
import gzip
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import given
from hypothesis import strategies as st

from reasonrag.data.corpus import Passage
from reasonrag.errors import EndpointLost, InputError, RetrievalError
from reasonrag.retrieval.opening import open_retriever
from reasonrag.retrieval.remote import (
    BROKEN,
    BUSY,
    LOST_AFTER,
    MAX_ANSWER_BYTES,
    MAX_IN_FLIGHT,
    SLOW,
    RemoteRetriever,
    open_remote,
)
from reasonrag.retrieval.retriever import TOKEN_VARIABLE, Retriever
from reasonrag.retrieval.server import ServeLimits, serving
from reasonrag.retrieval.settings import RetrievalSettings

TOKEN = "k33p-0ut"  # noqa: S105 - of this test
KEY = "hf_" + "AbCdEfGh" * 4
WORDS = "paris france rome italy tiber seine cats capital europe zebra".split()


@asynccontextmanager
async def remote(url: str, *, token: str | None = None, timeout: float = 5) -> AsyncIterator[RemoteRetriever]:  # noqa: ASYNC109
    """A retriever that does not wait long before it asks again."""
    retriever = await open_remote(url, token=token, timeout=timeout, first_wait_s=0.001)
    try:
        yield retriever
    finally:
        await retriever.close()


@asynccontextmanager
async def ours(retriever: Retriever, *, token: str | None = None, **limits: Any) -> AsyncIterator[RemoteRetriever]:
    """A service of ours over a retriever, and the way to it."""
    held = ServeLimits()._replace(**limits)
    async with (
        serving(retriever, limits=held, token=token, drain_s=0.01) as base_url,
        remote(base_url, token=token) as found,
    ):
        yield found


class Shelf:
    """A retriever that gives what it was given, whatever is asked."""

    def __init__(self, passages: Sequence[Passage] = (), *, identity: str = "shelf") -> None:
        self.identity = identity
        self.passages = list(passages)

    async def retrieve(self, query: str, top_k: int) -> list[Passage]:  # noqa: ARG002
        return self.passages[:top_k]


Answers = Callable[[dict[str, Any]], Any]


class Foreign:
    """A server in the shape of Search-R1's, which has no /health. `answers` makes the `result` of a request."""

    def __init__(self, answers: Answers | None = None) -> None:
        self.answers: Answers = answers or found_by_name
        self.asked: list[dict[str, Any]] = []
        """The requests so far, the probe apart."""
        self.headers: list[dict[str, str]] = []
        self.in_flight = self.most_in_flight = 0
        self.url = ""
        self._arrived = asyncio.Condition()
        self.opening = True

    async def handle(self, request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        self.headers.append(dict(request.headers))
        if self.opening and asked["queries"] == ["Who wrote Hamlet?"]:
            return web.json_response({"result": [[]]})
        self.opening = False
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        self.asked.append(asked)
        async with self._arrived:
            self._arrived.notify_all()
        try:
            answer = self.answers(asked)
            answer = await answer if isinstance(answer, Awaitable) else answer
        except ConnectionResetError:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        finally:
            self.in_flight -= 1
        return answer if isinstance(answer, web.StreamResponse) else web.json_response({"result": answer})

    async def was_asked(self, times: int) -> None:
        async with asyncio.timeout(60), self._arrived:
            await self._arrived.wait_for(lambda: len(self.asked) >= times)


@asynccontextmanager
async def running(server: Foreign) -> AsyncIterator[str]:
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_post("/retrieve", server.handle)
    async with TestServer(app) as running_server:
        server.url = str(running_server.make_url("")).rstrip("/")
        yield server.url


@asynccontextmanager
async def foreign(answers: Answers | None = None, **options: Any) -> AsyncIterator[tuple[Foreign, RemoteRetriever]]:
    """Such a server, and the way to it."""
    server = Foreign(answers)
    async with running(server) as url, remote(url, **options) as retriever:
        yield server, retriever


def document(name: str) -> dict[str, Any]:
    return {"id": name, "contents": f'"{name}"\nabout {name}'}


def found_by_name(asked: dict[str, Any]) -> Any:
    """For each query the passage of that name, with a score, as Search-R1's servers have it."""
    return [[{"document": document(query), "score": 0.5}] for query in asked["queries"]]


def status(number: int, said: object = "", **headers: str) -> Callable[[], web.Response]:
    return lambda: web.json_response({"detail": said}, status=number, headers=headers)


def made(*makers: Callable[[], web.Response]) -> Answers:
    """Responses in turn, each made when it is sent; then as Search-R1 does."""
    left = iter(makers)

    def answer(asked: dict[str, Any]) -> Any:
        maker = next(left, None)
        return maker() if maker else found_by_name(asked)

    return answer


@contextmanager
def fails(*words: str) -> Iterator[None]:
    """What is inside raises a RetrievalError of one readable line with these words."""
    with pytest.raises(RetrievalError) as error:
        yield
    message = str(error.value)
    assert all(each in message for each in words), message
    assert "\n" not in message
    assert len(message) < 800


# -- a server of ours --------------------------------------------------------------------------------------------


async def test_a_run_over_the_service_finds_what_one_over_the_index_finds(retriever: Retriever) -> None:
    """The same identity, and for every query the same passages with the same scores in the same order; passages of
    similar words say so. The token that it asks for is in nothing that is shown."""
    assert {each.fallback for each in await retriever.retrieve("Francexyz", 3)} == {True}
    async with ours(retriever, token=TOKEN) as found:
        assert TOKEN not in repr(found) + repr(vars(found)) + found.identity
        assert found.identity == retriever.identity
        assert not found.foreign
        for query in ("Francexyz", *(f"{first} {second}" for first in WORDS for second in WORDS)):
            assert await found.retrieve(query, 3) == await retriever.retrieve(query, 3)


TEXTS = st.text(max_size=40) | st.sampled_from(
    ["\r\n", "\u2028", "\x00", "</reference>", '"', "\\n", "\ufeff", "a\nb\n"]
)


@given(
    passages=st.lists(
        st.builds(
            Passage,
            id=TEXTS.filter(bool),
            title=TEXTS,
            text=TEXTS,
            score=st.floats(allow_nan=False, allow_infinity=False),
        ),
        min_size=1,
        max_size=8,
    )
)
async def test_a_passage_comes_over_exactly_as_it_is(passages: list[Passage]) -> None:
    """Id, title, text and score, whatever stands in them: line ends, spaces at the ends, control characters."""
    async with ours(Shelf(passages)) as found:
        assert await found.retrieve("anything", 8) == passages


async def test_a_service_that_serves_another_index_is_noticed(retriever: Retriever) -> None:
    """When it was started again: what it finds would be part of a run that says something else."""
    async with serving(retriever, drain_s=0.01) as base_url:
        found = await open_remote(base_url, token=None, timeout=60, first_wait_s=0.001)
        before = await found.retrieve("cats", 1)
    port = int(base_url.rpartition(":")[2])
    async with serving(Shelf(identity="bm25:other"), port=port, drain_s=0.01):
        with fails("now serves another index: bm25:other, not", retriever.identity):
            await found.retrieve("rome", 1)
        assert await found.retrieve("cats", 1) == before
    server = web.Application()
    server.router.add_post("/retrieve", Foreign().handle)
    async with TestServer(server, port=port):
        with fails("another index: one without an identity"):
            await found.retrieve("rome", 1)
    await found.close()


async def test_a_service_that_is_started_again_is_waited_for(retriever: Retriever) -> None:
    """A search that finds nobody there is made when there is somebody."""
    async with serving(retriever, drain_s=0.01) as base_url:
        found = await open_remote(base_url, token=None, timeout=60, first_wait_s=0.05)
    searching = asyncio.create_task(found.retrieve("cats", 1))
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectionError):
            await session.get(base_url)
    async with serving(retriever, port=int(base_url.rpartition(":")[2]), drain_s=0.01):
        assert await searching == await retriever.retrieve("cats", 1)
    await found.close()


async def test_a_service_that_is_full_answers_everybody_in_the_end(retriever: Retriever) -> None:
    """Two workers ask more at once than it lets in: refused requests come back when it said."""
    queries = [f"{first} {second}" for first in WORDS[:4] for second in WORDS]
    async with ours(retriever, max_waiting=4) as one, remote(one.url) as other:
        found = await asyncio.gather(*(each.retrieve(query, 2) for query in queries for each in (one, other)))
    assert found == [await retriever.retrieve(query, 2) for query in queries for _ in range(2)]


async def test_a_query_that_the_service_refuses_fails_alone(retriever: Retriever) -> None:
    """Others are answered, however many are refused; the message is the server's, without the query."""
    async with ours(retriever, max_body_bytes=1000) as found:
        for size in range(10_000, 10_000 + 2 * LOST_AFTER):
            with pytest.raises(RetrievalError, match="413: Maximum request body size 1000 exceeded") as error:
                await found.retrieve("x" * size, 2)
            assert "xxx" not in str(error.value)
        for query in WORDS:
            assert await found.retrieve(query, 2) == await retriever.retrieve(query, 2)


# -- a server of others ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("item", "passage"),
    [
        ({"document": {"id": "7", "contents": "A\nb\nc"}, "score": 1.5}, Passage("7", "A", "b\nc", 1.5)),
        ({"document": {"id": 7, "contents": "A\nb"}, "score": 2}, Passage("7", "A", "b", 2.0)),
        ({"document": {"id": 0, "contents": "A\nb"}, "score": None}, Passage("0", "A", "b", 0.0)),
        ({"id": "7", "contents": "A\nb", "score": 0.25}, Passage("7", "A", "b", 0.25)),
        ({"id": "7", "title": "A", "text": "b\nc"}, Passage("7", "A", "b\nc", 0.0)),
        ({"id": "7", "contents": "no line end"}, Passage("7", "no line end", "", 0.0)),
        ({"id": "7", "title": "A", "contents": "A is b."}, Passage("7", "A", "A is b.", 0.0)),
        ({"document": {"id": "7", "title": "A", "contents": "b.\nc"}, "score": 1}, Passage("7", "A", "b.\nc", 1.0)),
        ({"document": {"_id": "7", "title": "A", "text": "b"}}, Passage("7", "A", "b", 0.0)),
    ],
)
async def test_documents_of_other_servers_are_read(item: dict[str, Any], passage: Passage) -> None:
    """Beside a score or bare, with contents or with title and text: as a corpus of the same lines would be."""
    async with foreign(lambda _: [[item, item]]) as (_, found):
        assert await found.retrieve("anything", 1) == [passage], "and more than were asked for are cut"


async def test_other_servers_are_asked_as_search_r1_asks_them() -> None:
    """The three fields of its protocol, at /retrieve; a question mark stands for what UTF-8 cannot say."""
    async with foreign() as (server, found):
        await found.retrieve("cats \ud83d", 5)
    assert server.asked == [{"queries": ["cats ?"], "topk": 5, "return_scores": True}]


@pytest.mark.parametrize("ending", ["", "/", "/retrieve", "/retrieve/"])
async def test_an_address_may_end_as_people_write_it(ending: str) -> None:
    """All of them are one identity, the address, and a warning says what that means."""
    said: list[str] = []
    async with running(Foreign()) as url, AsyncExitStack() as opened:
        settings = RetrievalSettings(retriever=url + ending)
        found = await open_retriever(settings, None, opened, say=said.append)
        assert found.identity == f"http:{url}"
        assert await found.retrieve("cats", 1)
        assert said[0].startswith(f"warning: {url} does not report which index it serves")


BAD_ANSWERS: list[tuple[Any, str]] = [
    ([[], []], "2 lists of passages for a query"),
    ({"cats": []}, 'not {"result": [..]}'),
    (["cats"], "not a list"),
    ([[None]], "passage 1 of its answer is not a document"),
    ([[document("a"), {"contents": "A\nb"}]], "passage 2 of its answer has no id"),
    ([[{"document": {"id": "7"}}]], "passage 1 of its answer is not a passage"),
    ([[{"document": document("a"), "score": True}]], "passage 1 of its answer has a score that is not a number"),
    (b"<html>It works!</html>", "not JSON"),
    (b"[1]", 'not {"result": [..]}'),
    (b'{"result": [[{"id": "a", "contents": "A", "score": 1e999}]]}', "not JSON"),
    (b'{"result": [[{"id": "a", "contents": ' + b"[" * 400 + b"]" * 400 + b"}]]}", "is not a passage"),
]


@pytest.mark.parametrize(("result", "words"), BAD_ANSWERS)
async def test_an_answer_that_is_none_fails_the_search(result: Any, words: str) -> None:
    """At once: it would be the same again. Whatever a web server may say with status 200."""
    answer = (lambda: web.Response(body=result)) if isinstance(result, bytes) else lambda: result
    async with foreign(lambda _: answer()) as (server, found):
        with fails(server.url, words):
            await found.retrieve("cats", 3)
        assert len(server.asked) == 1


async def test_a_small_answer_that_unpacks_without_end_is_not_unpacked_to_its_end() -> None:
    """Memory is bounded whatever a server sends, also packed: the bound is on what is unpacked."""
    packed = gzip.compress(bytes(2 * MAX_ANSWER_BYTES), compresslevel=1)
    bomb = answering(lambda: web.Response(body=packed, headers={"Content-Encoding": "gzip"}))
    async with TestServer(bomb) as server:
        with pytest.raises(InputError, match=f"longer than {MAX_ANSWER_BYTES} bytes"):
            await open_remote(str(server.make_url("")), token=None, timeout=10)


# -- opening -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "token", "words"),
    [
        ("127.0.0.1:8001", None, "it should look like"),
        ("http://[::1:8001", None, "it should look like"),
        ("http://user:s3cret/s3cret@host:port", None, "it should look like"),
        ("http://user:s3cret@host:8001", None, TOKEN_VARIABLE),
        ("http://host:8001?token=s3cret", None, "without"),
        *(("http://127.0.0.1:1", each, TOKEN_VARIABLE) for each in ("", "s3cret\nline", "s3cretü")),
    ],
)
async def test_what_is_no_address_or_holds_a_secret_is_bad_input(url: str, token: str | None, words: str) -> None:
    """Nor is a token that no header can hold. The message shows what an address looks like, and no password: it is a
    part of the run's configuration."""
    with pytest.raises(InputError, match=words) as error:
        await open_remote(url, token=token, timeout=60)
    assert "s3cret" not in str(error.value)


async def test_a_top_k_that_the_service_does_not_give_is_bad_input(retriever: Retriever) -> None:
    """Before a run in which every search would fail."""
    async with serving(retriever) as base_url:
        with pytest.raises(InputError, match="topk: Input should be less than or equal to 1000"):
            await open_remote(base_url, token=None, timeout=60, top_k=1001)


def answering(make: Callable[[], web.Response | Awaitable[web.Response]]) -> web.Application:
    """A server that says one thing on every path."""

    async def answer(request: web.Request) -> web.Response:  # noqa: ARG001
        said = make()
        return await said if isinstance(said, Awaitable) else said

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    return app


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: web.Response(text="<html>It works!</html>"), "not JSON"),
        (lambda: web.Response(status=404, text="nothing here"), "status 404: nothing here. Check the address"),
        (
            lambda: web.json_response({"error": "Ask for b"}, status=403),
            f"Ask for b. Set {TOKEN_VARIABLE}.* use a name",
        ),
        (lambda: web.Response(status=503, text="busy"), "status 503: busy. Run the same command again"),
        (lambda: web.Response(status=500), "status 500. Check the server"),
        (lambda: web.Response(status=302, headers={"Location": "http://b/x"}), "moved to http://b/x; give the address"),
        (lambda: web.json_response({"identity": "x" * 9999, "result": []}), "0 lists"),
        (lambda: web.json_response({"identity": "a\x1b[2Jb", "result": []}), "0 lists"),
        (lambda: web.json_response({"identity": "ours"}), r'not \{"result": \[..\]\}'),
    ],
)
async def test_a_server_that_is_no_retriever_is_bad_input(make: Callable[[], web.Response], words: str) -> None:
    """What it said, and what to look at."""
    async with TestServer(answering(make)) as server:
        with pytest.raises(InputError, match=words):
            await open_remote(str(server.make_url("")), token=None, timeout=60, first_wait_s=0.001)


async def test_a_server_that_says_nothing_is_bad_input_in_time() -> None:
    """After one timeout, not three. Who gives up before leaves nothing open, which would be warned of."""
    asked = asyncio.Semaphore(0)

    async def hang() -> web.Response:
        asked.release()
        await asyncio.Event().wait()
        raise AssertionError

    async with TestServer(answering(hang), handler_cancellation=True) as server:
        url = str(server.make_url(""))
        with pytest.raises(InputError, match=r"no answer within 0.1 s. Allow it more time"):
            await open_remote(url, token=None, timeout=0.1)
        await asked.acquire()
        assert asked.locked()
        opening = asyncio.create_task(open_remote(url, token=None, timeout=60))
        await asked.acquire()
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening


@pytest.mark.parametrize(
    ("token", "shown"),
    [
        ("k33p-0ut-of-here", f"key {KEY}, token [secret]"),
        ("keep-out", f"key {KEY}, token keep-out"),
    ],
)
async def test_passages_are_as_the_server_sends_them_but_for_its_own_token(
    token: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever other keys the environment has, so that a run is the same everywhere; and a word is no secret."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    said = f"key {KEY}, token {token}"
    passages = [[{"document": {"id": "a", "contents": f'"A"\n{said}'}, "score": 1.0}]]
    async with foreign(lambda asked: passages * len(asked["queries"]), token=token) as (_, found):
        [passage] = await found.retrieve("cats", 1)
    assert passage.text == shown


async def test_the_token_does_not_go_where_the_server_points() -> None:
    """Redirects are not followed."""
    other = Foreign()
    async with running(other) as url:
        app = answering(lambda: web.Response(status=307, headers={"Location": f"{url}/retrieve"}))
        async with TestServer(app) as server:
            with pytest.raises(InputError, match="moved to"):
                await open_remote(str(server.make_url("")), token=TOKEN, timeout=60)
    assert other.headers == []


# -- asking again ------------------------------------------------------------------------------------------------


def torn() -> web.Response:
    """An answer whose bytes are not what its headers say."""
    return web.Response(body=b"{}", headers={"Content-Encoding": "gzip"})


def lost() -> web.Response:
    """No answer: the server hangs up."""
    raise ConnectionResetError


@pytest.mark.parametrize(
    "passing",
    [[status(429)] * 2, [status(500)] * 2, [torn] * 2, [lost, lost, lost, status(500)]],
    ids=["429", "500", "torn", "lost"],
)
async def test_what_passes_is_asked_again(passing: list[Callable[[], web.Response]]) -> None:
    """Until the passages are there; a server that starts may fail in several ways."""
    async with foreign(made(*passing)) as (server, found):
        assert [each.id for each in await found.retrieve("cats", 1)] == ["cats"]
        assert len(server.asked) == len(passing) + 1


async def test_a_server_is_left_alone_as_long_as_it_asks() -> None:
    """Retry-After counts, where it is more than we would wait."""
    async with foreign(made(status(503, **{"Retry-After": "1"}))) as (_, found):
        begun = time.monotonic()
        await found.retrieve("cats", 1)
        assert time.monotonic() - begun >= 1


@pytest.mark.parametrize(
    ("number", "attempts"), [(503, BUSY.attempts), (500, BROKEN.attempts), (400, 1), (401, 1), (301, 1)]
)
async def test_what_does_not_pass_is_given_up_and_what_never_would_is_asked_once(number: int, attempts: int) -> None:
    """The message says what the server said, and after how many attempts, where there were several."""
    told = f"after {attempts} attempts" if attempts > 1 else "gave no passages"
    async with foreign(lambda _: status(number, "no memory")()) as (server, found):
        with fails(server.url, f"{told}: status {number}: no memory"):
            await found.retrieve("cats", 1)
        assert len(server.asked) == attempts


async def test_a_server_that_hangs_is_given_up() -> None:
    """After some timeouts; the next search is free to fare better."""

    async def hang(asked: dict[str, Any]) -> Any:
        if asked["queries"] == ["cats"]:
            await asyncio.Event().wait()
        return found_by_name(asked)

    async with foreign(hang, timeout=2) as (server, found):
        with fails(server.url, f"after {SLOW.attempts} attempts: no answer within 2 s"):
            await found.retrieve("cats", 1)
        assert await found.retrieve("dogs", 1)


async def test_a_server_that_is_gone_ends_the_run_in_the_end() -> None:
    """A search that fails is its question's matter; when all fail, every further question would be begun in vain."""
    works = True

    def answers(asked: dict[str, Any]) -> Any:
        return found_by_name(asked) if works else status(404, "gone")()

    async with foreign(answers) as (_, found):
        for round_ in range(2):
            works = False
            for each in range(LOST_AFTER - 1):
                with pytest.raises(RetrievalError):
                    await found.retrieve(f"{round_}, {each}", 1)
            works = round_ == 0
            if works:  # one answer, and the count begins anew
                assert await found.retrieve("cats", 1)
        with pytest.raises(EndpointLost, match=r"status 404: gone.*, then run the same command. It failed 5 times"):
            await found.retrieve("dogs", 1)


@pytest.mark.parametrize("before", range(4))
async def test_what_a_server_says_is_shown_on_one_line_and_in_part(before: int) -> None:
    """Without what a terminal would obey, not a page of it, and without the token wherever the cut falls: its beginning
    would not be recognised."""
    said, token = f"first\nsecond \x1b[2J {'.' * before * 10}", "k33p-0ut-" + "abcdefghij" * 4
    async with foreign(lambda _: status(400, said + 100 * token)(), token=token) as (_, found):
        with pytest.raises(RetrievalError, match=r"status 400: first second \[2J .*\[secret\]") as refused:
            await found.retrieve("cats", 1)
    shown = str(refused.value)
    assert (len(shown) < 800, "\n" in shown, "k33p" in shown) == (True, False, False)


async def test_one_query_asked_often_is_no_lost_server() -> None:
    """Neither where its passages cannot be read, nor where it is rejected: then it is blamed alone, however often."""
    for answers, words, of_query in (
        (lambda _: [[{"contents": "A\nb"}]], "has no id", False),
        (lambda _: status(400, "not this")(), "not this", True),
    ):
        async with foreign(answers) as (_, found):
            for _ in range(30):
                with pytest.raises(RetrievalError, match=words) as refused:
                    await found.retrieve("cats", 1)
                assert refused.value.of_query is of_query


@pytest.mark.parametrize("number", [500, 503, 404])
async def test_a_query_is_not_blamed_for_what_befalls_the_server_after_another(number: int) -> None:
    """The state would end for good, where its question is to be asked again."""
    async with foreign(lambda asked: status(400 if asked["queries"] == ["cats"] else number)()) as (_, found):
        for query in ("cats", "dogs"):
            with pytest.raises(RetrievalError) as refused:
                await found.retrieve(query, 1)
            assert refused.value.of_query is (query == "cats")


# -- many searches -----------------------------------------------------------------------------------------------


async def test_no_more_searches_are_sent_at_a_time_than_a_server_takes_together() -> None:
    """The others wait for their turn; one that is called off is not sent."""
    gate = asyncio.Event()

    async def answers(asked: dict[str, Any]) -> Any:
        await gate.wait()
        return found_by_name(asked)

    async with foreign(answers) as (server, found):
        searches = [asyncio.create_task(found.retrieve(f"q{each}", 1)) for each in range(2 * MAX_IN_FLIGHT)]
        await server.was_asked(MAX_IN_FLIGHT)
        assert server.in_flight == MAX_IN_FLIGHT
        searches.pop().cancel()
        gate.set()
        for each, search in enumerate(searches):
            assert [passage.id for passage in await search] == [f"q{each}"]
    assert server.most_in_flight == MAX_IN_FLIGHT
    assert sorted(each["queries"][0] for each in server.asked) == sorted(f"q{each}" for each in range(len(searches)))


async def test_a_search_is_kept_unless_it_failed() -> None:
    """Siblings of a tree ask the same again; what failed may be answered when it is asked again."""
    async with foreign(made(status(400))) as (server, found):
        with fails("status 400"):
            await found.retrieve("cats", 1)
        first = await found.retrieve("cats", 1)
        later = await found.retrieve("cats", 1)
        assert later == first
        later.clear()
        assert await found.retrieve("cats", 1) == first
        await found.retrieve("cats", 2)
    assert [(each["queries"], each["topk"]) for each in server.asked] == [(["cats"], 1), (["cats"], 1), (["cats"], 2)]


def test_it_may_be_used_from_one_event_loop_after_another() -> None:
    """Calls from Python may each run a loop of their own."""

    async def in_one(kept: list[RemoteRetriever]) -> None:
        async with ours(Shelf([Passage("a", "A", "b")])) as found:
            kept.append(found)
            assert await found.retrieve("cats", 1)

    kept: list[RemoteRetriever] = []
    for _ in range(2):
        asyncio.run(in_one(kept))
    assert asyncio.run(kept[0].retrieve("cats", 1)) == [Passage("a", "A", "b")]
