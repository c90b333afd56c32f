"""A retriever behind HTTP, shared by many workers and machines: POST /retrieve, GET /health.

Decides what a request may ask for, how much may wait at once, what is refused and with which message, and how the
service ends. Does not know how passages are found. Listens on loopback by default; TLS is left to a reverse proxy.

The protocol is Search-R1's (https://github.com/PeterGriffinJin/Search-R1, search_r1/search/retrieval_server.py):
`{"queries": [..], "topk": 3, "return_scores": true}` is answered by `{"result": [[{"document": {"id", "contents"},
"score"}, ..], ..]}`, one list for each query, best first; without `return_scores`, by the documents alone. Departures:

1. A bad request is answered with status 400 and `{"error": ".."}`; there with 422 and a list of details. 2. `"topk": 0`
is an error; there it means the default, as null and a missing topk do here too. 3. An empty list of queries is answered
by an empty list, as there: the trainer sends one when no sample searches. An empty query, which it sends when a
sample's search is empty, is refused, or with `allow_empty` answered by an empty list; there a dense index returns
arbitrary passages. 4. An answer also holds the retriever's `identity`, so that clients notice when another index is
served. 5. A document also holds `title`, so that a client can tell where the title ends in `contents`, which is
"title\\ntext". 6. SkyRL's client (skyrl_gym/tools/search.py) sends `query`, a text, in place of `queries`, and gets the
same answer, of one list.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
from collections import Counter as Tally
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus
from typing import Annotated, Any, TypeAlias

import orjson
from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from preference.records import first_error
from reasonrag.concurrency import together
from reasonrag.data.corpus import Passage
from reasonrag.errors import ReasonragError
from reasonrag.retrieval.retriever import QUERY_BYTES, Retriever, RetrieverUnavailable
from reasonrag.retrieval.search_r1 import MAX_ANSWER_BYTES, checked_token
from reasonrag.retrieval.settings import MAX_TOP_K, MAX_WAITING, TOP_K
from reasonrag.web.client import LOOPBACK
from reasonrag.web.server import listening, read_body, send_pieces

RETRY_AFTER_S = 1
"""Retry-After of a 503: most searches take less, and clients back off by themselves."""
DRAIN_S = 10.0
"""Time for requests in flight to finish at shutdown: a third of Kubernetes' grace period."""
SEARCHED_TOGETHER = 256
"""Queries of one request searched at a time: enough for an accelerator's batch; in between, other requests are served,
even if searches run in the event loop."""
PIECE_BYTES = 256 * 1024
"""Bytes of the pieces in which an answer is sent, so that unread parts are not held twice."""
_CUT_OFF_S = 1.0
"""Extra time, granted twice, for connections still open after draining, such as a request arriving byte by byte."""


class ServeLimits(BaseModel):
    """Limits per request and over all requests."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_body_bytes: int = Field(default=1024 * 1024, gt=0)
    """Uncompressed size of a request; above it: 413. Room for 4096 queries of 250 bytes."""
    max_answer_bytes: int = Field(default=MAX_ANSWER_BYTES, gt=0)
    """Bytes per answer, repeated passages included; above it: 413. Equals the limit of our client, and is ten times a
    step of Search-R1's trainer."""
    max_held_bytes: int = Field(default=4 * MAX_ANSWER_BYTES, gt=0)
    """Bytes of all answers in preparation or not yet read by their clients; above it: 503."""
    max_waiting: int = Field(default=MAX_WAITING, gt=0)
    """Queries admitted and not yet answered, over all requests; above it: 503, because an unbounded queue only answers
    clients that have given up. One request with more is refused."""
    allow_empty: bool = False
    """Answer an empty query with no passages instead of refusing its request."""
    request_timeout_s: float = Field(default=600.0, gt=0)
    """Seconds for all searches of one request; above it: 503, and its places are freed. Only a hanging search takes
    this long: thousands of queries over a whole Wikipedia take minutes."""


# -- serving -----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def serving(
    retriever: Retriever,
    *,
    host: str = LOOPBACK,
    port: int = 0,
    allow_host: Iterable[str] = (),
    limits: ServeLimits,
    token: str | None = None,
    passages: int | None = None,
    drain_s: float = DRAIN_S,
) -> AsyncIterator[str]:
    """Run the service and yield its base URL. It ends gracefully: new requests are refused with 503, those in flight
    are answered, for at most `drain_s` seconds.

    See `listening` for host, port and allow_host, `make_app` for the rest. Raises InputError if it cannot listen.
    """
    app = make_app(retriever, passages=passages, limits=limits, token=token)
    async with listening(app, host=host, port=port, allow_host=allow_host, shutdown_s=_CUT_OFF_S) as address:
        try:
            yield address
        finally:
            await app[_SERVICE].drain(drain_s)


def make_app(retriever: Retriever, *, passages: int | None, limits: ServeLimits, token: str | None) -> web.Application:
    """The service as an aiohttp application.

    passages: their number, for /health; None if unknown. token: required from requests as `Authorization: Bearer
        TOKEN`; None: no authorization. Raises InputError for a token that no header can hold.
    """
    app = web.Application(client_max_size=limits.max_body_bytes, middlewares=[_answered])
    app[_SERVICE] = _SearchService(retriever, passages, limits, checked_token(token))
    app.router.add_post("/retrieve", _retrieve)
    app.router.add_get("/health", _health)
    return app


class _SearchService:
    """A retriever, its limits, and the queries waiting for it."""

    def __init__(self, retriever: Retriever, passages: int | None, limits: ServeLimits, token: str | None) -> None:
        self.retriever, self.passages, self.limits = retriever, passages, limits
        self.waiting = 0
        """Queries admitted and not yet answered."""
        self.held = 0
        """Bytes of answers in preparation or being sent."""
        self.draining = False
        self.token = token
        self._idle = asyncio.Event()
        self._idle.set()

    def check_token(self, authorization: str) -> None:
        """Raises _RefusedRequest if there is a token and the Authorization header does not hold it."""
        if self.token is None:
            return
        scheme, _, given = authorization.partition(" ")
        known = hmac.compare_digest(given.strip().encode("utf-8", "surrogateescape"), self.token.encode())
        if scheme.lower() != "bearer" or not known:
            message = "this needs the service's token; send it as Authorization: Bearer TOKEN"
            raise _RefusedRequest(HTTPStatus.UNAUTHORIZED, message, {"WWW-Authenticate": "Bearer"})

    @contextmanager
    def places(self, queries: int) -> Iterator[None]:
        """Reserve places for this many queries until they are answered. Raises _RefusedRequest if there are not
        enough."""
        if self.draining:
            raise _unavailable("the service is being shut down")
        if self.waiting + queries > self.limits.max_waiting:
            raise _unavailable(f"{self.waiting} queries are waiting, and at most {self.limits.max_waiting} may")
        self.waiting += queries
        self._idle.clear()
        try:
            yield
        finally:
            self.waiting -= queries
            if not self.waiting:
                self._idle.set()

    async def find(self, search: _SearchRequest, answer: _HeldAnswer) -> None:
        """Fill the answer; equal queries are searched once, empty ones not. Raises _RefusedRequest."""
        asked = Tally(search.texts)

        async def find_one(query: str) -> None:
            found = await self.retriever.retrieve(query, search.top_k)
            answer.add(query, orjson.dumps([_shown(each, scored=search.return_scores) for each in found]), asked[query])

        try:
            async with asyncio.timeout(self.limits.request_timeout_s):
                different = [query for query in asked if query.strip()]
                for start in range(0, len(different), SEARCHED_TOGETHER):
                    await together(*(find_one(query) for query in different[start : start + SEARCHED_TOGETHER]))
        except TimeoutError:
            raise _unavailable(
                f"the search took longer than {self.limits.request_timeout_s:g} s; send fewer queries at once"
            ) from None
        except RetrieverUnavailable as error:
            raise _unavailable(f"the search failed: {error}") from error
        except ReasonragError as error:
            raise _RefusedRequest(HTTPStatus.INTERNAL_SERVER_ERROR, f"the search failed: {error}") from error

    async def drain(self, seconds: float) -> None:
        """Admit no more queries, and wait until all are answered, for at most `seconds`."""
        self.draining = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._idle.wait()


class _HeldAnswer:
    """The rendered lists of an answer, within the limits of one answer and of all."""

    def __init__(self, service: _SearchService) -> None:
        self._service = service
        self._lists: dict[str, bytes] = {}
        self.bytes = 0
        """Bytes of the whole answer; `release` them."""

    def add(self, query: str, rendered: bytes, times: int) -> None:
        """Add the passages of a query that occurs so many times. Raises _RefusedRequest beyond a limit."""
        limits, size = self._service.limits, times * len(rendered)
        if self.bytes + size > limits.max_answer_bytes:
            raise _RefusedRequest(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"the passages found are more than {limits.max_answer_bytes:,} bytes in one answer; ask with fewer "
                "queries at once, or a smaller topk",
            )
        if self._service.held + size > limits.max_held_bytes:
            raise _unavailable(f"{self._service.held:,} bytes of answers have not been read by their clients yet")
        self._lists[query] = rendered
        self._service.held += size
        self.bytes += size

    def release(self) -> None:
        """The answer was sent, or failed."""
        self._service.held -= self.bytes

    def body(self, queries: Sequence[str], identity: str) -> bytes:
        lists = b",".join(self._lists.get(query, b"[]") for query in queries)
        self._lists.clear()  # not held twice
        return b'{"result":[' + lists + b'],"identity":' + orjson.dumps(identity) + b"}"


_SERVICE = web.AppKey("service", _SearchService)


# -- requests ----------------------------------------------------------------------------------------------------


_Queries: TypeAlias = Annotated[list[str], Field(fail_fast=True)]


class _SearchRequest(BaseModel):
    """A request to /retrieve; other fields are not read."""

    model_config = ConfigDict(strict=True)

    queries: _Queries | None = None
    query: Annotated[str | _Queries | None, Field(union_mode="left_to_right")] = None
    topk: Annotated[int, Field(ge=1, le=MAX_TOP_K)] | None = None
    return_scores: bool = False

    @property
    def texts(self) -> list[str]:
        """The queries, by whichever name."""
        given = self.queries if self.query is None else self.query
        return [given] if isinstance(given, str) else given or []

    @property
    def top_k(self) -> int:
        """By default Search-R1's, and ours."""
        return TOP_K if self.topk is None else self.topk


class _RefusedRequest(Exception):
    """A request to answer with an error. The message says what is wrong, where, and what to do."""

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers or {}


@web.middleware
async def _answered(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """The handler's answer if the request is authorized, or an error."""
    service = request.app[_SERVICE]
    given = request.headers.get("Authorization")
    try:
        if request.path != "/health" or given is not None:
            service.check_token(given or "")
        return await handler(request)
    except _RefusedRequest as refused:
        return _error(refused.status, str(refused), refused.headers)
    except web.HTTPRequestEntityTooLarge:
        message = f"the body is larger than {service.limits.max_body_bytes} bytes; send fewer queries at once"
        return _error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message)
    except (web.HTTPRequestTimeout, web.HTTPBadRequest) as wrong:
        return _error(wrong.status, wrong.text or wrong.reason)
    except web.HTTPException as wrong:
        message = f"this request cannot be answered ({wrong.reason}); there are POST /retrieve and GET /health"
        return _error(wrong.status, message, {"Allow": wrong.headers["Allow"]} if "Allow" in wrong.headers else {})


async def _retrieve(request: web.Request) -> web.StreamResponse:
    service = request.app[_SERVICE]
    search = _parsed_request(await read_body(request), service.limits)
    answer = _HeldAnswer(service)
    try:
        with service.places(len(search.texts)):
            await service.find(search, answer)
        body = memoryview(answer.body(search.texts, service.retriever.identity))
        pieces = (body[start : start + PIECE_BYTES] for start in range(0, len(body), PIECE_BYTES))
        return await send_pieces(request, pieces, len(body))
    finally:
        answer.release()


async def _health(request: web.Request) -> web.Response:
    """Health for everyone; details of the index only with the token: probes need none, and strangers need not know the
    index."""
    service = request.app[_SERVICE]
    if service.draining:
        return _json({"status": "draining"}, status=503, headers={"Retry-After": str(RETRY_AFTER_S)})
    if service.token and "Authorization" not in request.headers:
        return _json({"status": "ok"})
    limits = service.limits.model_dump()
    return _json(
        {"status": "ok", "identity": service.retriever.identity, "passages": service.passages, "limits": limits}
    )


def _parsed_request(body: bytes, limits: ServeLimits) -> _SearchRequest:
    """Parse a body. Raises _RefusedRequest, naming the field, if it is malformed or exceeds a limit."""
    try:
        search = _SearchRequest.model_validate_json(body)
    except ValidationError as error:
        raise _bad(first_error(error)) from None
    if (search.queries is None) == (search.query is None):
        raise _bad('it needs "queries", or "query", and not both')
    texts = search.texts
    if len(texts) > limits.max_waiting:
        raise _bad(f"there are {len(texts)} queries; a request may have {limits.max_waiting} at most")
    for position, query in enumerate(texts):
        if not query.strip() and not limits.allow_empty:
            raise _bad(f"query {position} is empty; leave it out, or serve with --allow-empty-queries")
        if (size := len(query.encode())) > QUERY_BYTES:
            raise _bad(f"query {position} is of {size} bytes; it must be of {QUERY_BYTES} at most. Shorten it")
    return search


def _unavailable(message: str) -> _RefusedRequest:
    return _RefusedRequest(
        HTTPStatus.SERVICE_UNAVAILABLE,
        f"{message}. Try again after {RETRY_AFTER_S} s",
        {"Retry-After": str(RETRY_AFTER_S)},
    )


def _bad(message: str) -> _RefusedRequest:
    return _RefusedRequest(
        HTTPStatus.BAD_REQUEST,
        f'{message}. A request is {{"queries": ["who wrote Hamlet?"], "topk": 3, "return_scores": true}}',
    )


# -- answers -----------------------------------------------------------------------------------------------------


def _shown(passage: Passage, *, scored: bool) -> dict[str, Any]:
    """A passage in Search-R1's form."""
    document: dict[str, Any] = {"id": passage.id, "title": passage.title, "contents": passage.contents}
    if passage.fallback:
        document["fallback"] = True
    return {"document": document, "score": passage.score} if scored else document


def _error(status: int, message: str, headers: dict[str, str] | None = None) -> web.Response:
    return _json({"error": message}, status=status, headers=headers)


def _json(content: dict[str, Any], *, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(body=orjson.dumps(content), status=status, headers=headers, content_type="application/json")
