"""A retriever on another machine: `reasonrag index serve`, or any server of Search-R1's protocol.

Decides what is retried and when, when a search fails, and that every part of an answer is validated. Our own server
reports its index's identity, which becomes this retriever's: a run over it is the same run as one over the index
itself. Does not know how passages are found.

A search is a request: a server that gains by it searches together what arrives together, as ours does. Proxies of the
environment are ignored: a retriever is expected on one's own network.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any

import orjson
from aiohttp import ClientError, ClientResponse, ClientSession, ConnectionTimeoutError
from pydantic import SecretStr

from preference.export.sanitize import plain_text
from reasonrag.data.corpus import Passage, passage_of
from reasonrag.data.dataset_fields import id_of
from reasonrag.errors import EndpointLost, InputError, RetrievalError
from reasonrag.redaction import excerpt, hide_in, is_word, secrets, spellings
from reasonrag.retrieval.retriever import TOKEN_VARIABLE, ResultCache, checked_query
from reasonrag.web.client import (
    CONNECT_S,
    MOST_ERROR_BYTES,
    HttpClient,
    http_address,
    open_session,
    read_body,
    retry_after,
    shown_url,
)

TIMEOUT_S = 60.0
"""Timeout of one request; raise it for a server with a large index and no accelerator."""
LOST_AFTER = 5
"""Failed requests in a row, each after all its attempts, that end the run: a minute without a server."""
_MOST_REJECTED = 20
"""After this many different queries that were rejected in a row, none is blamed alone."""
PROBE = "Who wrote Hamlet?"
"""The first query sent to a server; it need not find anything."""
MAX_IN_FLIGHT = 32
"""Requests at a time; more wait for their turn."""
FIRST_WAIT_S = 0.5
MAX_WAIT_S = 30.0
KEEP_ALIVE_S = 4.0
"""How long an idle connection is reused: uvicorn, behind Search-R1's servers, closes it after 5 s."""
MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""1,000 passages of 64 kB."""
MAX_SAID = 300
"""Most characters shown of a server's error text."""
MAX_IDENTITY = 1000
"""Most characters of an identity, which goes into every run's configuration."""


@dataclass(frozen=True)
class Cause:
    """Why a request fails, and what the user should do next.

    attempts: failures of this cause after which a request is given up; with waits of .5, 1, 2, .. seconds, 8 take a
        minute: the time to restart a server. at_opening: fewer, so that a wrong address is reported at once. passing:
        the same search may succeed later. of_query: the query may cause it, and others may succeed.
    """

    advice: str
    attempts: int = 1
    at_opening: int = 1
    passing: bool = False
    of_query: bool = False


UNREACHABLE = Cause("Check the address and that the server runs", attempts=8, passing=True)
"""No connection, or it was lost."""
BUSY = Cause("Run the same command again later", attempts=8, at_opening=3, passing=True)
SLOW = Cause("Allow it more time, or lower --concurrency", attempts=3, passing=True)
BROKEN = Cause("Check the server's log", attempts=3, of_query=True)
REJECTED = Cause("Request less, or raise the server's limits", of_query=True)
"""The server rejects the request, or its answer is longer than MAX_ANSWER_BYTES."""
LOCKED = Cause(
    f"Set {TOKEN_VARIABLE} to the token that the server was started with, and use a name that the server answers to"
)
REFUSED = Cause("Check the address")
GARBLED = Cause(
    "Check that the address is that of reasonrag index serve, or of a server like Search-R1's, and which index it has"
)
"""An answer outside the protocol."""
_OF_STATUS: dict[int, Cause] = {
    **dict.fromkeys((429, 502, 503, 504), BUSY),
    **dict.fromkeys((400, 413, 422), REJECTED),
    **dict.fromkeys((401, 403), LOCKED),
}


class SearchFailed(Exception):
    """A failed request. asked_to_wait: the server's Retry-After in seconds. attempts: number of attempts."""

    def __init__(self, cause: Cause, message: str, *, asked_to_wait: float | None = None) -> None:
        super().__init__(message)
        self.cause, self.asked_to_wait = cause, asked_to_wait
        self.attempts = 1

    def __str__(self) -> str:
        return f"{super().__str__()}. {self.cause.advice}"


async def open_remote(
    url: str,
    *,
    token: str | None,
    timeout: float = TIMEOUT_S,  # noqa: ASYNC109 - of each request, not of this call
    top_k: int = 3,
    first_wait_s: float = FIRST_WAIT_S,
) -> RemoteRetriever:
    """The retriever at an address like `http://host:8001`, probed once so that problems show before a run.

    token: sent as `Authorization: Bearer TOKEN`, and nowhere else. timeout: seconds per request. top_k: number of
        passages that will be requested. first_wait_s: seconds before the first retry, doubling each time. Raises
        InputError, saying what to do. Must be closed.
    """
    retriever = RemoteRetriever(checked_address(url), checked_token(token), timeout, first_wait_s)
    try:
        await retriever.open(top_k)
    except BaseException as error:
        await retriever.close()
        if isinstance(error, SearchFailed):
            raise InputError(f"the retriever {retriever.url} cannot be used: {error}") from error
        raise
    return retriever


class RemoteRetriever(HttpClient):
    """A `Retriever` over HTTP, opened by `open_remote`. Usable from one event loop at a time."""

    def __init__(self, url: str, token: str | None, timeout: float, first_wait_s: float) -> None:
        self.url = url
        self.identity = f"http:{url}"
        """The index's for our own server; else the address, which says nothing about the index."""
        self.foreign = True
        """Whether the server reports no identity, so that a changed index goes unnoticed."""
        self._token, self._timeout, self._first_wait_s = SecretStr(token or ""), timeout, first_wait_s
        self._latest = ResultCache()
        self._failed_in_a_row = 0
        self._rejected: set[str] = set()
        """Queries since the last answer."""

    async def open(self, top_k: int) -> None:
        """Ask for the identity, and search once. Raises SearchFailed."""
        try:
            identity = identity_of(await self._ask("GET", "/health", None, opening=True))
        except SearchFailed as failed:
            if failed.cause.passing or failed.cause is LOCKED:
                raise
            identity = ""  # no such path, or it means something else there
        self.identity, self.foreign = identity or self.identity, not identity
        parsed_passages(await self._search(PROBE, top_k, opening=True), top_k)

    async def retrieve(self, query: str, top_k: int) -> list[Passage]:
        """At most `top_k` passages in the server's order. Raises RetrievalError, and EndpointLost for the fifth failure
        in a row."""
        query = checked_query(query, top_k)
        if (latest := self._latest.get(query, top_k)) is not None:
            return latest
        try:
            listed = await self._search(query, top_k)
            self._failed_in_a_row = 0  # the server is there, also where one of its passages cannot be read
            self._rejected.clear()
            found = parsed_passages(listed, top_k)
        except SearchFailed as failed:
            raise self._given_up(query, failed) from failed
        self._latest.keep(query, top_k, found)
        return found

    async def _search(self, query: str, top_k: int, *, opening: bool = False) -> object:
        """The list of one request, as it came. Raises SearchFailed after the allowed attempts."""
        body = orjson.dumps({"queries": [query], "topk": top_k, "return_scores": True})
        answer = await self._ask("POST", "/retrieve", body, opening=opening)
        lists = answer.get("result") if isinstance(answer, dict) else None
        if not isinstance(answer, dict) or not isinstance(lists, list):
            raise SearchFailed(GARBLED, 'its answer is not {"result": [..]}')
        if not self.foreign and answer.get("identity") != self.identity:
            now = identity_of(answer) or "one without an identity"
            raise SearchFailed(GARBLED, f"the server now serves another index: {now}, not {self.identity}")
        if len(lists) != 1:
            raise SearchFailed(GARBLED, f"it gave {len(lists)} lists of passages for a query")
        return lists[0]

    def _given_up(self, query: str, failed: SearchFailed) -> RetrievalError | EndpointLost:
        """The error of the search, or of the run: otherwise each question would pay for its first steps in vain."""
        self._failed_in_a_row += not failed.cause.of_query
        rejected = failed.cause is REJECTED
        self._rejected |= {query} if rejected else set()
        times = f" after {failed.attempts} attempts" if failed.attempts > 1 else ""
        message = f"the retriever {self.url} gave no passages{times}: {failed}"
        if self._failed_in_a_row >= LOST_AFTER:
            return EndpointLost(f"{message}, then run the same command. It failed {LOST_AFTER} times in a row")
        return RetrievalError(message, of_query=rejected and len(self._rejected) < _MOST_REJECTED)

    async def _ask(self, method: str, path: str, body: bytes | None, *, opening: bool = False) -> Any:
        """A successful answer, without the token if the server echoes it. Raises SearchFailed, after retries where they
        may help.

        Waits are 1, 2, 4, .. times the first, with jitter, at least the server's Retry-After, at most MAX_WAIT_S.
        """
        failures = Counter[Cause]()
        while True:
            try:
                return await self._once(method, path, body)
            except SearchFailed as failed:
                failures[failed.cause] += 1
                failed.attempts = failures.total()
                if failures[failed.cause] >= (failed.cause.at_opening if opening else failed.cause.attempts):
                    raise
                own = self._first_wait_s * (2 ** (failed.attempts - 1) + random.random())
                await asyncio.sleep(min(MAX_WAIT_S, max(own, failed.asked_to_wait or 0.0)))

    async def _once(self, method: str, path: str, body: bytes | None) -> Any:
        session = self._session  # opens `_slots`, too
        try:
            async with (
                self._slots,
                session.request(method, self.url + path, data=body, allow_redirects=False) as response,
            ):
                good = response.status == HTTPStatus.OK
                content = await read_body(response, MAX_ANSWER_BYTES if good else MOST_ERROR_BYTES)
        except ConnectionTimeoutError as error:
            raise SearchFailed(UNREACHABLE, f"no connection within {min(CONNECT_S, self._timeout):g} s") from error
        except TimeoutError as error:
            raise SearchFailed(SLOW, f"no answer within {self._timeout:g} s") from error
        except (ClientError, OSError, ValueError) as error:  # ValueError: not HTTP
            raise SearchFailed(UNREACHABLE, self._clean(str(error)) or type(error).__name__) from error
        if not good:
            raise self._failure(response, content)
        if len(content) > MAX_ANSWER_BYTES:
            raise SearchFailed(REJECTED, f"its answer is longer than {MAX_ANSWER_BYTES} bytes")
        try:
            answer = orjson.loads(content)
        except orjson.JSONDecodeError:
            raise SearchFailed(GARBLED, "its answer is not JSON") from None
        hide_in(answer, [] if is_word(self._token.get_secret_value()) else self._of_token)
        return answer

    def _failure(self, response: ClientResponse, content: bytes) -> SearchFailed:
        """The failure behind a status other than 200, with the server's message."""
        status, said = response.status, self._clean(_error_text(content))
        moved_to = response.headers.get("Location")
        if moved_to and status < HTTPStatus.BAD_REQUEST:
            said = f"moved to {self._clean(moved_to)}; give the address it moved to"
        cause = _OF_STATUS.get(status, BROKEN if status >= HTTPStatus.INTERNAL_SERVER_ERROR else REFUSED)
        message = f"status {status}: {said}" if said else f"status {status}"
        return SearchFailed(cause, message, asked_to_wait=retry_after(response.headers))

    @property
    def _of_token(self) -> list[str]:
        """The token in every spelling."""
        return sorted(spellings(self._token.get_secret_value()), key=len, reverse=True)

    def _clean(self, text: str) -> str:
        """A server's message on one line, shortened, without secrets and control characters."""
        return " ".join(plain_text(excerpt(text, MAX_SAID, [*self._of_token, *secrets()])).split())

    def _open(self) -> ClientSession:
        self._slots = asyncio.Semaphore(MAX_IN_FLIGHT)
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token.get_secret_value()}"
        return open_session(self.url, headers, timeout=self._timeout, keep_alive_s=KEEP_ALIVE_S)


def checked_address(url: str) -> str:
    """The normalised address, so that equal servers have equal ones. Raises InputError."""
    shown = shown_url(url)
    parts = http_address(url.strip())
    if parts is None:
        raise InputError(f"{shown!r} is not a retriever's address; it should look like http://127.0.0.1:8001")
    if "@" in parts.netloc:
        raise InputError(f"the address {shown} contains a user or password; remove them and set {TOKEN_VARIABLE}")
    if parts.query or parts.fragment:
        raise InputError(f"the address {shown} contains ? or #; give it without, like http://127.0.0.1:8001")
    path = parts.path.rstrip("/").removesuffix("/retrieve").rstrip("/")
    usual = {"http": ":80", "https": ":443"}[parts.scheme]
    return f"{parts.scheme}://{parts.netloc.lower().removesuffix(usual)}{path}"


def checked_token(token: str | None) -> str | None:
    if token is not None and not (token and token.isascii() and token.isprintable() and " " not in token):
        raise InputError(f"{TOKEN_VARIABLE} is empty or contains characters that no token has; copy it again")
    return token


def _error_text(content: bytes) -> str:
    """The error message in a body: in our format, in FastAPI's, or else the beginning of the body."""
    try:
        body: object = orjson.loads(content)
    except orjson.JSONDecodeError:
        body = None
    said = body.get("error") or body.get("detail") if isinstance(body, dict) else None
    return str(said or content.decode("utf-8", "replace"))


def identity_of(answer: object) -> str:
    """The identity in an answer; empty if missing or malformed."""
    said = answer.get("identity") if isinstance(answer, dict) else None
    return said if isinstance(said, str) and said.isprintable() and len(said) <= MAX_IDENTITY else ""


def parsed_passages(found: object, top_k: int) -> list[Passage]:
    """One query's passages, at most `top_k`. Raises SearchFailed."""
    if not isinstance(found, list):
        raise SearchFailed(GARBLED, "the result for a query is not a list")
    return [_passage(each, position) for position, each in enumerate(found[:top_k], start=1)]


def _passage(item: object, position: int) -> Passage:
    """A passage from a document, bare or with a score: exactly as our server has it, and from other servers as a corpus
    line with the same content is read."""
    document = item.get("document", item) if isinstance(item, dict) else item
    score = item.get("score") if isinstance(item, dict) else None
    where = f"passage {position} of its answer"
    if not isinstance(document, dict):
        raise SearchFailed(GARBLED, f"{where} is not a document")
    passage_id, title, contents = id_of(document), document.get("title"), document.get("contents")
    if passage_id is None:
        raise SearchFailed(
            GARBLED,
            f"{where} has no id, by which passages are told apart: some servers (Search-R1's BM25 and web search) "
            "leave it out. Serve the corpus with reasonrag index serve",
        )
    score = 0.0 if score is None else score
    if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
        raise SearchFailed(GARBLED, f"{where} has a score that is not a number")
    if passage_id and isinstance(passage_id, str) and isinstance(title, str) and isinstance(contents, str):
        head = f"{title}\n"
        if contents.startswith(head):
            return Passage(passage_id, title, contents[len(head) :], float(score), document.get("fallback") is True)
    read = passage_of(document)
    if read is None:
        raise SearchFailed(GARBLED, f'{where} is not a passage: it needs "id" and "contents"')
    return replace(read, score=float(score))
