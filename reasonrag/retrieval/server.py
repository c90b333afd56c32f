"""A retriever behind HTTP, shared by many workers and machines: POST /retrieve, GET /health, GET /metrics.

Decides what a request may ask for, how much may wait at once, what is refused and in which words, and how the service
ends. Does not know how passages are found. Listens on loopback unless told otherwise; speaks no TLS, which is a reverse
proxy's work.

The protocol is Search-R1's (https://github.com/PeterGriffinJin/Search-R1, search_r1/search/retrieval_server.py):
`{"queries": [..], "topk": 3, "return_scores": true}` is answered by `{"result": [[{"document": {"id", "contents"},
"score"}, ..], ..]}`, one list for each query, best first; without `return_scores`, by the documents alone. Departures:

1. What is wrong with a request is told with status 400 and `{"error": ".."}`; there it is 422 and a list of details.
2. `"topk": 0` is wrong; there it means the default, as null and no topk do here too.
3. No queries are answered by no lists, as there: the trainer asks so when no sample searches. An empty query, which it
   asks when a sample's search is empty, is refused, or with `allow_empty` answered by an empty list; there a dense
   index finds something at random.
4. An answer also holds `identity`, the retriever's, so that a client notices when another index is served.
5. A document also holds `title`, so that a client can tell where the title ends in `contents`, which is "title\\ntext".
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Literal

import orjson
from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import choose_encoder
from pydantic import BaseModel, ConfigDict, Field

from reasonrag.concurrency import together
from reasonrag.data.corpus import Passage
from reasonrag.errors import InputError, ReasonragError
from reasonrag.retrieval.retriever import QUERY_BYTES, Retriever
from reasonrag.retrieval.settings import MAX_TOP_K, MAX_WAITING, TOP_K
from reasonrag.web import LOOPBACK, listening

RETRY_AFTER_S = 1
"""When to come back after a 503: most searches take less, and clients wait longer from time to time by themselves."""
DRAIN_S = 10.0
"""So long may requests in flight take to end when the service is told to: a third of what Kubernetes waits."""
BODY_S = 30.0
"""For a whole body to arrive: 1 MiB takes 9 s on a line of 1 Mbit/s."""
SEARCHED_TOGETHER = 256
"""Queries of one request at a time: enough for an accelerator's batch, and between them others get their turn, also
where each is searched in the event loop."""
_CUT_OFF_S = 1.0
"""What is still open after draining, a request that arrives byte by byte for example, gets so long twice."""
_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""From a search that was kept to one over a whole Wikipedia without an accelerator."""


class ServeLimits(BaseModel):
    """How much the service takes on, of one request and of all together."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_body_bytes: int = Field(default=1024 * 1024, gt=0)
    """Of a request, unpacked. Beyond: 413. Room for 4096 queries of 250 bytes."""
    max_queries: int = Field(default=4096, gt=0)
    """In one request. Search-R1's trainer sends a whole step's queries at once: up to 512 questions times 5 samples in
    its own GRPO scripts."""
    max_query_bytes: int = Field(default=QUERY_BYTES, gt=0)
    """Of one query, in UTF-8. Longer than any reply: no search that an index takes should fail over the service."""
    max_top_k: int = Field(default=MAX_TOP_K, gt=0)
    """Passages for one query; as many as a search here gives."""
    default_top_k: int = Field(default=TOP_K, gt=0)
    """Passages for one query where the request does not say: Search-R1's default, and ours."""
    max_passages: int = Field(default=50_000, gt=0)
    """In one answer: queries times topk. Some 40 MB of Wikipedia's passages, which all stand in memory."""
    max_waiting: int = Field(default=MAX_WAITING, gt=0)
    """Queries let in and not yet answered, over all requests. Beyond: 503, for a queue that grows without end answers
    only those who have given up."""
    allow_empty: bool = False
    """Whether an empty query is answered, by no passages, instead of refusing its request."""
    request_timeout_s: float = Field(default=600.0, gt=0)
    """Seconds that the searches of one request may take together. Beyond: 503, and its places are free. Only what hangs
    takes so long: thousands of queries over a whole Wikipedia take minutes."""

    @property
    def queries_at_once(self) -> int:
        """Queries that a request can hold and still be let in when nothing else waits."""
        return min(self.max_queries, self.max_waiting)


# -- serving -----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def serving(
    retriever: Retriever,
    *,
    host: str = LOOPBACK,
    port: int = 0,
    limits: ServeLimits,
    token: str | None = None,
    passages: int | None = None,
    drain_s: float = DRAIN_S,
) -> AsyncIterator[str]:
    """The base URL of the running service, which ends gracefully: new requests are refused with 503, those in flight
    are answered, for at most `drain_s` seconds.

    port: 0 takes a free one. See `make_app` for the rest. Raises InputError where it cannot listen.
    """
    app = make_app(retriever, passages=passages, limits=limits, token=token)
    async with listening(app, host=host, port=port, shutdown_s=_CUT_OFF_S) as address:
        try:
            yield address
        finally:
            await app[_SERVICE].drain(drain_s)


async def serve_forever(
    retriever: Retriever,
    *,
    host: str = LOOPBACK,
    port: int,
    limits: ServeLimits,
    token: str | None = None,
    say: Callable[[str], None],
    passages: int | None = None,
    drain_s: float = DRAIN_S,
) -> None:
    """Serve until SIGTERM, SIGINT or cancellation, then end as `serving` does; a second signal ends it at once.

    say: is told the base URL once it listens. Raises InputError where it cannot listen.
    """
    stopping = asyncio.Event()
    with _signals(stopping.set) as let_go:
        async with serving(
            retriever, host=host, port=port, limits=limits, token=token, passages=passages, drain_s=drain_s
        ) as base_url:
            say(base_url)
            with contextlib.suppress(asyncio.CancelledError):
                await stopping.wait()
            let_go()


@contextmanager
def _signals(stop: Callable[[], None]) -> Iterator[Callable[[], None]]:
    """Have SIGTERM and SIGINT call `stop`, until what this gives is called. Only a main thread gets signals."""
    loop, caught = asyncio.get_running_loop(), (signal.SIGTERM, signal.SIGINT)

    def let_go() -> None:
        for each in caught:
            loop.remove_signal_handler(each)

    with contextlib.suppress(RuntimeError):  # not the main thread: whoever started it cancels
        for each in caught:
            loop.add_signal_handler(each, stop)
    try:
        yield let_go
    finally:
        let_go()


def make_app(retriever: Retriever, *, passages: int | None, limits: ServeLimits, token: str | None) -> web.Application:
    """The service as an aiohttp application.

    passages: how many there are, for /health; None if that is not known. token: what requests must bring as
    `Authorization: Bearer TOKEN`; None lets everybody in. Raises InputError for a token that no header can hold.
    """
    if token is not None and not (token and token.isascii() and token.isprintable() and " " not in token):
        raise InputError(
            "the token of the retrieval service must be of ASCII letters, digits and signs, without spaces"
        )
    app = web.Application(client_max_size=limits.max_body_bytes, middlewares=[_answered])
    app[_SERVICE] = _Service(retriever, passages, limits, token)
    app.router.add_post("/retrieve", _retrieve)
    app.router.add_get("/health", _health)
    app.router.add_get("/metrics", _metrics)
    return app


class _Service:
    """A retriever and its limits, and who is waiting for it."""

    def __init__(self, retriever: Retriever, passages: int | None, limits: ServeLimits, token: str | None) -> None:
        self.retriever, self.passages, self.limits = retriever, passages, limits
        self.waiting = 0
        """Queries let in and not yet answered."""
        self.draining = False
        self.counts = _Counts(lambda: self.waiting)
        self._token = token
        self._idle = asyncio.Event()
        self._idle.set()

    def check_token(self, authorization: str) -> None:
        """Raises _Refused where there is a token and an Authorization header does not hold it."""
        if self._token is None:
            return
        scheme, _, given = authorization.partition(" ")
        known = hmac.compare_digest(given.strip().encode("utf-8", "surrogateescape"), self._token.encode())
        if scheme.lower() != "bearer" or not known:
            message = "this needs the service's token; send it as Authorization: Bearer TOKEN"
            raise _Refused(HTTPStatus.UNAUTHORIZED, message, {"WWW-Authenticate": "Bearer"})

    @property
    def has_token(self) -> bool:
        return self._token is not None

    @contextmanager
    def places(self, queries: int) -> Iterator[None]:
        """Places for so many queries until they are answered. Raises _Refused where there are not enough."""
        if self.draining:
            raise self._unavailable("draining", "the service is being shut down")
        if self.waiting + queries > self.limits.max_waiting:
            raise self._unavailable(
                "full", f"{self.waiting} queries are waiting, and at most {self.limits.max_waiting} may"
            )
        self.waiting += queries
        self._idle.clear()
        try:
            yield
        finally:
            self.waiting -= queries
            if not self.waiting:
                self._idle.set()

    async def find(self, asked: _Asked) -> list[list[Passage]]:
        """The passages for each query, in order; equal queries are searched once, empty ones not. Raises _Refused."""
        different = [query for query in dict.fromkeys(asked.queries) if query.strip()]
        found: dict[str, list[Passage]] = {}
        try:
            async with asyncio.timeout(self.limits.request_timeout_s):
                for start in range(0, len(different), SEARCHED_TOGETHER):
                    queries = different[start : start + SEARCHED_TOGETHER]
                    lists = await together(*(self.retriever.retrieve(query, asked.top_k) for query in queries))
                    found.update(zip(queries, lists, strict=True))
        except TimeoutError:
            raise self._unavailable(
                "slow", f"the search took longer than {self.limits.request_timeout_s:g} s; send fewer queries at once"
            ) from None
        except ReasonragError as error:
            raise _Refused(HTTPStatus.INTERNAL_SERVER_ERROR, f"the search failed: {error}") from error
        return [found.get(query, []) for query in asked.queries]

    async def drain(self, seconds: float) -> None:
        """Let nobody in any more, and wait until all are answered, so long at most."""
        self.draining = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._idle.wait()

    def _unavailable(self, why: Literal["full", "draining", "slow"], message: str) -> _Refused:
        self.counts.refused.labels(why).inc()
        return _Refused(
            HTTPStatus.SERVICE_UNAVAILABLE,
            f"{message}. Try again after {RETRY_AFTER_S} s",
            {"Retry-After": str(RETRY_AFTER_S)},
        )


class _Counts:
    """What GET /metrics shows. A registry of its own: several services may run in one process."""

    def __init__(self, waiting: Callable[[], float]) -> None:
        self.registry = CollectorRegistry()
        prefix = "reasonrag_retriever"
        self.requests = Counter(
            f"{prefix}_requests",
            "Requests by path and status; status hung_up: the client went away before the answer",
            ["path", "status"],
            registry=self.registry,
        )
        self.queries = Counter(f"{prefix}_queries", "Queries answered", registry=self.registry)
        self.refused = Counter(
            f"{prefix}_refused",
            "Requests answered with 503: full, too many queries were waiting; slow, the search took too long; draining",
            ["why"],
            registry=self.registry,
        )
        for why in ("full", "slow", "draining"):
            self.refused.labels(why)  # shown as 0 before the first
        self.seconds = Histogram(
            f"{prefix}_request_seconds",
            "Seconds from letting a request to /retrieve in to its answer",
            buckets=_BUCKETS_S,
            registry=self.registry,
        )
        now = Gauge(f"{prefix}_queries_waiting", "Queries let in and not yet answered", registry=self.registry)
        now.set_function(waiting)


_SERVICE = web.AppKey("service", _Service)


# -- requests ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request to /retrieve that keeps to the limits."""

    queries: list[str]
    top_k: int
    return_scores: bool


class _Refused(Exception):
    """A request that is answered with an error. The message says what, where and what next."""

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers or {}


@web.middleware
async def _answered(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Every answer, whatever became of the request: errors are JSON, all are counted."""
    service, resource = request.app[_SERVICE], request.match_info.route.resource
    outcome = str(HTTPStatus.INTERNAL_SERVER_ERROR.value)  # of an error that is a bug, which aiohttp reports
    try:
        response = await _guarded(request, handler)
        outcome = str(response.status)
    except asyncio.CancelledError:
        outcome = "hung_up"
        raise
    finally:
        service.counts.requests.labels(resource.canonical if resource else "other", outcome).inc()
    return response


async def _guarded(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """The handler's answer to who may ask, or the error in its place."""
    service = request.app[_SERVICE]
    given = request.headers.get("Authorization")
    try:
        if request.path != "/health" or given is not None:
            service.check_token(given or "")
        return await handler(request)
    except _Refused as refused:
        return _error(refused.status, str(refused), refused.headers)
    except web.HTTPNotFound:
        paths = "POST /retrieve, GET /health and GET /metrics"
        return _error(HTTPStatus.NOT_FOUND, f"there is no such path here; there are {paths}")
    except web.HTTPMethodNotAllowed as wrong:
        allowed = ", ".join(sorted(wrong.allowed_methods))
        message = f"this path does not take {_brief(wrong.method)}; it takes {allowed}"
        return _error(HTTPStatus.METHOD_NOT_ALLOWED, message, {"Allow": allowed})
    except web.HTTPRequestEntityTooLarge:
        return _error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _too_large(service.limits))
    except web.HTTPException as wrong:
        return _error(wrong.status, f"this request cannot be answered: {wrong.reason}")


async def _retrieve(request: web.Request) -> web.Response:
    service = request.app[_SERVICE]
    asked = _understand(await _body(request), service.limits)
    with service.places(len(asked.queries)), service.counts.seconds.time():
        lists = await service.find(asked)
        answer = _json(
            {
                "result": [[_shown(each, scored=asked.return_scores) for each in found] for found in lists],
                "identity": service.retriever.identity,
            }
        )
    service.counts.queries.inc(len(asked.queries))
    return answer


async def _health(request: web.Request) -> web.Response:
    """Whether it is well, for anybody; what it serves, for who may search: a probe needs no token, and a stranger no
    knowledge of the index."""
    service = request.app[_SERVICE]
    if service.draining:
        return _json({"status": "draining"}, status=503, headers={"Retry-After": str(RETRY_AFTER_S)})
    if service.has_token and "Authorization" not in request.headers:
        return _json({"status": "ok"})
    limits = service.limits.model_dump() | {"max_queries": service.limits.queries_at_once}
    return _json(
        {"status": "ok", "identity": service.retriever.identity, "passages": service.passages, "limits": limits}
    )


async def _metrics(request: web.Request) -> web.Response:
    encode, content_type = choose_encoder(request.headers.get("Accept", ""))
    text = encode(request.app[_SERVICE].counts.registry)
    return web.Response(body=text, headers={"Content-Type": content_type})


async def _body(request: web.Request) -> bytes:
    """The whole body. Raises _Refused if it comes too slowly; aiohttp sees to its size."""
    try:
        async with asyncio.timeout(BODY_S):
            return await request.read()
    except TimeoutError:
        raise _Refused(
            HTTPStatus.REQUEST_TIMEOUT, f"the body did not arrive within {BODY_S:g} s; send it again"
        ) from None


def _understand(body: bytes, limits: ServeLimits) -> _Asked:
    """The request in a body. Raises _Refused, naming the field, if there is none or it asks for too much."""
    try:
        asked = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise _bad(f"the body is not JSON ({error})") from None
    if not isinstance(asked, dict):
        raise _bad(f"the body is {_kind(asked)}")
    top_k, return_scores = asked.get("topk"), asked.get("return_scores", False)
    if top_k is None:
        top_k = min(limits.default_top_k, limits.max_top_k)
    if not isinstance(top_k, int) or isinstance(top_k, bool):
        raise _bad(f"topk is {_kind(top_k)}; it must be a whole number")
    if not 1 <= top_k <= limits.max_top_k:
        raise _bad(f"topk is {top_k}; it must be from 1 to {limits.max_top_k}")
    if not isinstance(return_scores, bool):
        raise _bad(f"return_scores is {_kind(return_scores)}; it must be true or false")
    queries = _queries(asked, limits)
    if len(queries) * top_k > limits.max_passages:
        raise _bad(
            f"{len(queries)} queries with topk {top_k} may find {len(queries) * top_k} passages; "
            f"it must be {limits.max_passages} at most in one request"
        )
    return _Asked(queries, top_k, return_scores)


def _queries(asked: dict[str, Any], limits: ServeLimits) -> list[str]:
    """The queries of a request, each of them searchable. Raises _Refused naming the first that is not."""
    if "queries" not in asked:
        raise _bad('"queries" is missing')
    queries = asked["queries"]
    if not isinstance(queries, list):
        raise _bad(f"queries is {_kind(queries)}; it must be a list of strings")
    if len(queries) > limits.queries_at_once:
        raise _bad(f"queries holds {len(queries)}; it must be {limits.queries_at_once} at most in one request")
    for position, query in enumerate(queries):
        where = f"queries[{position}]"
        if not isinstance(query, str):
            raise _bad(f"{where} is {_kind(query)}; it must be a string")
        if not query.strip() and not limits.allow_empty:
            raise _bad(f"{where} is empty; leave it out, or serve with --allow-empty-queries")
        if (size := len(query.encode())) > limits.max_query_bytes:
            raise _bad(f"{where} is of {size} bytes; it must be of {limits.max_query_bytes} at most. Shorten it")
    return queries


def _bad(message: str) -> _Refused:
    return _Refused(
        HTTPStatus.BAD_REQUEST,
        f'{message}. A request is {{"queries": ["who wrote Hamlet?"], "topk": 3, "return_scores": true}}',
    )


def _too_large(limits: ServeLimits) -> str:
    return f"the body is larger than {limits.max_body_bytes} bytes; send fewer queries at once"


def _kind(value: object) -> str:
    """What JSON calls a value; never the value, which may be anything."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def _brief(word: str) -> str:
    return word if word.isascii() and word.isalpha() and len(word) <= len("PROPPATCH") else "this method"


# -- answers -----------------------------------------------------------------------------------------------------


def _shown(passage: Passage, *, scored: bool) -> dict[str, Any]:
    """A passage in Search-R1's form."""
    document = {"id": passage.id, "title": passage.title, "contents": passage.contents}
    return {"document": document, "score": passage.score} if scored else document


def _error(status: int, message: str, headers: dict[str, str] | None = None) -> web.Response:
    return _json({"error": message}, status=status, headers=headers)


def _json(content: dict[str, Any], *, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(body=orjson.dumps(content), status=status, headers=headers, content_type="application/json")
