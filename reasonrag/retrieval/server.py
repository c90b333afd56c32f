"""A retriever behind HTTP, shared by many workers and machines: POST /retrieve, GET /health.

Decides what a request may ask for, how much may wait at once, what is refused and with which message, and how the
service ends. Does not know how passages are found. Listens on loopback by default; TLS is left to a reverse proxy.

The protocol is Search-R1's (https://github.com/PeterGriffinJin/Search-R1, search_r1/search/retrieval_server.py):
`{"queries": [..], "topk": 3, "return_scores": true}` is answered by `{"result": [[{"document": {"id", "contents"},
"score"}, ..], ..]}`, one list for each query, best first; without `return_scores`, by the documents alone. Departures:

1. A bad request is answered with status 400 and `{"error": ".."}`; there with 422 and a list of details. 2. `"topk": 0`
is an error; there it means the default, as null does here too. 3. An empty query, which the trainer sends when a
sample's search is empty, finds nothing; there a dense index returns arbitrary passages. 4. An answer also holds the
retriever's `identity`, and a document its `title`, with which `contents` begins. 5. SkyRL's client
(skyrl_gym/tools/search.py) sends `query`, a text, in place of `queries`.
"""

from __future__ import annotations

import hmac
from collections import Counter as Tally
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus
from typing import Annotated, Any, NamedTuple, TypeAlias

import orjson
from aiohttp import web
from pydantic import BaseModel, Field, ValidationError

from preference.records import first_error
from reasonrag.concurrency import together
from reasonrag.data.corpus import Passage
from reasonrag.errors import RetrievalError
from reasonrag.retrieval.remote import MAX_ANSWER_BYTES, checked_token
from reasonrag.retrieval.retriever import Retriever
from reasonrag.retrieval.settings import MAX_TOP_K, TOP_K
from reasonrag.web.client import LOOPBACK
from reasonrag.web.server import listening, read_body, send_pieces

RETRY_AFTER_S = 1
"""Retry-After of a 503: most searches take less, and clients back off by themselves."""
DRAIN_S = 10.0
"""Time for requests in flight to finish at shutdown, and again for cancelled ones: within Kubernetes' 30 s."""
SEARCHED_TOGETHER = 256
"""Queries of one request searched at a time: enough for an accelerator's batch; in between, other requests are served,
even if searches run in the event loop."""
PIECE_BYTES = 256 * 1024
"""Bytes of the pieces in which an answer is sent, so that unread parts are not held twice."""


class ServeLimits(NamedTuple):
    """Limits per request and over all requests."""

    max_body_bytes: int = 1024 * 1024
    """Uncompressed size of a request; above it: 413. Room for 4096 queries of 250 bytes."""
    max_answer_bytes: int = MAX_ANSWER_BYTES
    """Bytes per answer, repeated passages included; above it: 413. Equals the limit of our client, and is ten times a
    step of Search-R1's trainer."""
    max_held_bytes: int = 4 * MAX_ANSWER_BYTES
    """Bytes of all answers in preparation or not yet read by their clients; above it: 503."""
    max_waiting: int = 4096
    """Queries admitted and not yet answered, over all requests; above it: 503, as an endless queue only answers clients
    that have given up. A request with more is refused. A step of Search-R1's trainer sends 2,560 at once."""


@asynccontextmanager
async def serving(
    retriever: Retriever,
    *,
    host: str = LOOPBACK,
    port: int = 0,
    allow_host: Iterable[str] = (),
    limits: ServeLimits = ServeLimits(),  # noqa: B008 - does not change
    token: str | None = None,
    drain_s: float = DRAIN_S,
) -> AsyncIterator[str]:
    """Run the service and yield its base URL. It ends gracefully: connections are refused, requests in flight are
    answered, for at most `drain_s` seconds.

    See `listening` for host, port and allow_host. token: required from requests as `Authorization: Bearer TOKEN`; None:
    no authorization. Raises InputError if it cannot listen, and for a token that no header can hold.
    """
    service = _SearchService(retriever, limits, checked_token(token))
    app = web.Application(client_max_size=limits.max_body_bytes, middlewares=[service.answered])
    app.router.add_post("/retrieve", service.retrieve)
    app.router.add_get("/health", service.health)
    async with listening(app, host=host, port=port, allow_host=allow_host, shutdown_s=drain_s) as address:
        yield address


class _SearchService:
    """A retriever, its limits, and what is under way. token: of those who may search; None: of anyone."""

    def __init__(self, retriever: Retriever, limits: ServeLimits, token: str | None) -> None:
        self.retriever, self.limits, self.token = retriever, limits, token
        self.waiting = 0
        """Queries admitted and not yet answered."""
        self.held = 0
        """Bytes of answers in preparation or being sent."""

    @web.middleware
    async def answered(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """The handler's answer if the request is authorized, or an error."""
        try:
            if request.path != "/health" or "Authorization" in request.headers:
                self._check_token(request.headers.get("Authorization", ""))
            return await handler(request)
        except web.HTTPException as refused:
            allow = {"Allow": refused.headers["Allow"]} if "Allow" in refused.headers else None
            said = "; ".join(each for each in (refused.text, _NEXT.get(refused.status)) if each)
            return _json({"error": said}, status=refused.status, headers=allow or _HEADERS.get(refused.status))

    async def retrieve(self, request: web.Request) -> web.StreamResponse:
        search = _parsed_request(await read_body(request), self.limits)
        with self._held_answer() as hold:
            with self._places(len(search.texts)):
                body = memoryview(await self._answer(search, hold))
            pieces = (body[start : start + PIECE_BYTES] for start in range(0, len(body), PIECE_BYTES))
            return await send_pieces(request, pieces, len(body))

    async def health(self, request: web.Request) -> web.Response:
        """Health for all; details of the index only with the token: probes need none, strangers need not know it."""
        if self.token and "Authorization" not in request.headers:
            return _json({"status": "ok"})
        served = {"identity": self.retriever.identity, "passages": getattr(self.retriever, "passages", None)}
        return _json({"status": "ok", **served, "limits": self.limits._asdict()})

    def _check_token(self, authorization: str) -> None:
        """Raises HTTPUnauthorized if there is a token and the Authorization header does not hold it."""
        if self.token is None:
            return
        scheme, _, given = authorization.partition(" ")
        known = hmac.compare_digest(given.strip().encode("utf-8", "surrogateescape"), self.token.encode())
        if scheme.lower() != "bearer" or not known:
            raise web.HTTPUnauthorized(text="this needs the service's token")

    @contextmanager
    def _places(self, queries: int) -> Iterator[None]:
        """Reserve places for so many queries until they are answered. Raises HTTPServiceUnavailable if full."""
        if self.waiting + queries > self.limits.max_waiting:
            raise web.HTTPServiceUnavailable(
                text=f"{self.waiting} queries are waiting, and at most {self.limits.max_waiting} may"
            )
        self.waiting += queries
        try:
            yield
        finally:
            self.waiting -= queries

    @contextmanager
    def _held_answer(self) -> Iterator[Callable[[int], None]]:
        """An answer until it is sent; yields what counts more bytes of it, and raises HTTPException beyond a limit."""
        held, limits = 0, self.limits

        def hold(size: int) -> None:
            nonlocal held
            if held + size > limits.max_answer_bytes:
                said = f"the passages found are more than {limits.max_answer_bytes:,} bytes in one answer"
                raise web.HTTPRequestEntityTooLarge(limits.max_answer_bytes, held + size, text=said)
            if self.held + size > limits.max_held_bytes:
                raise web.HTTPServiceUnavailable(
                    text=f"{self.held:,} bytes of answers have not been read by their clients yet"
                )
            held += size
            self.held += size

        try:
            yield hold
        finally:
            self.held -= held

    async def _answer(self, search: _SearchRequest, hold: Callable[[int], None]) -> bytes:
        """The body of the answer; equal queries are searched once, empty ones not. Raises HTTPException."""
        asked, lists = Tally(search.texts), dict[str, bytes]()

        async def find(query: str) -> None:
            found = await self.retriever.retrieve(query, search.top_k)
            rendered = orjson.dumps([_shown(each, scored=search.return_scores) for each in found])
            hold(asked[query] * len(rendered))
            lists[query] = rendered

        different = [query for query in asked if query.strip()]
        try:
            for start in range(0, len(different), SEARCHED_TOGETHER):
                await together(*(find(query) for query in different[start : start + SEARCHED_TOGETHER]))
        except RetrievalError as error:
            refused = web.HTTPBadRequest if error.of_query else web.HTTPInternalServerError
            raise refused(text=f"the search failed: {error}") from error
        result = b",".join(lists.get(query, b"[]") for query in search.texts)
        lists.clear()  # not held twice
        return b'{"result":[' + result + b'],"identity":' + orjson.dumps(self.retriever.identity) + b"}"


# -- requests ----------------------------------------------------------------------------------------------------

_Queries: TypeAlias = Annotated[list[str], Field(fail_fast=True)]


class _SearchRequest(BaseModel, strict=True):
    """A request to /retrieve; other fields are not read."""

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


_PATHS = "there are POST /retrieve and GET /health"
_NEXT: dict[int, str] = {
    HTTPStatus.BAD_REQUEST: 'a request is {"queries": ["who wrote Hamlet?"], "topk": 3, "return_scores": true}',
    HTTPStatus.UNAUTHORIZED: "send it as Authorization: Bearer TOKEN",
    HTTPStatus.NOT_FOUND: _PATHS,
    HTTPStatus.METHOD_NOT_ALLOWED: _PATHS,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "ask with fewer queries at once, or a smaller topk",
    HTTPStatus.SERVICE_UNAVAILABLE: f"try again after {RETRY_AFTER_S} s",
}
"""What a client is to do, by the status of the error that it gets."""
_HEADERS: dict[int, dict[str, str]] = {
    HTTPStatus.UNAUTHORIZED: {"WWW-Authenticate": "Bearer"},
    HTTPStatus.SERVICE_UNAVAILABLE: {"Retry-After": str(RETRY_AFTER_S)},
}


def _parsed_request(body: bytes, limits: ServeLimits) -> _SearchRequest:
    """Parse a body. Raises HTTPBadRequest, naming the field, if it is malformed or exceeds a limit."""
    try:
        search = _SearchRequest.model_validate_json(body)
    except ValidationError as error:
        raise web.HTTPBadRequest(text=first_error(error)) from None
    if (search.queries is None) == (search.query is None):
        raise web.HTTPBadRequest(text='it needs "queries", or "query", and not both')
    if (queries := len(search.texts)) > limits.max_waiting:
        raise web.HTTPBadRequest(text=f"there are {queries} queries, and a request may have {limits.max_waiting}")
    return search


def _shown(passage: Passage, *, scored: bool) -> dict[str, Any]:
    """A passage in Search-R1's form."""
    document: dict[str, Any] = {"id": passage.id, "title": passage.title, "contents": passage.contents}
    if passage.fallback:
        document["fallback"] = True
    return {"document": document, "score": passage.score} if scored else document


def _json(content: dict[str, Any], *, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(body=orjson.dumps(content), status=status, headers=headers, content_type="application/json")
