"""Client side of Search-R1's protocol for one server: requests, retries, and validation of answers."""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any, Literal

import orjson
from aiohttp import ClientError, ClientResponse, ClientSession, ConnectionTimeoutError

from preference.export.sanitize import plain_text
from reasonrag.data.columns import id_of
from reasonrag.data.corpus import Passage, passage_of
from reasonrag.errors import InputError
from reasonrag.redaction import excerpt, hide_in, is_word, secrets, spellings
from reasonrag.retrieval.retriever import TOKEN_VARIABLE
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

FailureKind = Literal["unreachable", "busy", "slow", "broken", "bad_request", "refused", "garbled", "too_much"]
"""unreachable: no connection, or it was lost. busy: 429, 502, 503, 504. slow: timeout. broken: another 5xx.
bad_request: the server rejects the request. refused: it rejects the client or the address. garbled: an answer outside
the protocol. too_much: an answer longer than MAX_ANSWER_BYTES."""
PASSING: frozenset[FailureKind] = frozenset({"unreachable", "busy", "slow"})
"""Failures after which the same search may succeed later."""
ATTEMPTS: Mapping[FailureKind, int] = {"unreachable": 8, "busy": 8, "slow": 3, "broken": 3}
"""Attempts per kind of failure; 1 for others, which would fail again. With waits of .5, 1, 2, .. seconds, 8 attempts
take a minute: the time to restart a server."""
ATTEMPTS_AT_OPENING: Mapping[FailureKind, int] = {"busy": 3}
"""At opening fewer attempts, so that a wrong address is reported at once."""
_BUSY_STATUSES = frozenset({429, 502, 503, 504})
_BAD_REQUEST_STATUSES = frozenset({400, 413, 422})
_LOCKED_STATUSES = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})


class SearchFailed(Exception):
    """A failed request. asked_to_wait: the server's Retry-After in seconds. attempts: number of attempts."""

    def __init__(self, kind: FailureKind, message: str, *, status: int = 0, asked_to_wait: float | None = None) -> None:
        super().__init__(message)
        self.kind, self.status, self.asked_to_wait = kind, status, asked_to_wait
        self.attempts = 1

    def advice(self) -> str:
        """What the user should do next."""
        if self.status == HTTPStatus.UNAUTHORIZED:
            return f"Set {TOKEN_VARIABLE} to the token that the server was started with"
        if self.status == HTTPStatus.FORBIDDEN:
            return f"Use a name that the server answers to, or set {TOKEN_VARIABLE} if it wants a token"
        advice: dict[FailureKind, str] = {
            "unreachable": "Check the address and that the server runs",
            "busy": "Run the same command again later",
            "slow": "Allow it more time, or lower --concurrency",
            "broken": "Check the server's log",
            "bad_request": "Request less, or raise the server's limits",
            "refused": "Check the address",
            "garbled": "Check that the address is that of reasonrag index serve, or of a server like Search-R1's, and "
            "which index it serves",
            "too_much": "Request fewer passages",
        }
        return advice[self.kind]


@dataclass
class SearchServer(HttpClient):
    """One server: address, token, timeout per request in seconds, and the wait before the first retry."""

    url: str
    token: str | None = field(repr=False)
    timeout: float
    first_wait_s: float

    def __post_init__(self) -> None:
        self._of_token = sorted(spellings(self.token or ""), key=len, reverse=True)

    async def identity(self) -> str | None:
        """What our own server says it serves; None for another one. Raises SearchFailed."""
        try:
            answer = await self.ask("GET", "/health", None, ATTEMPTS_AT_OPENING)
        except SearchFailed as failed:
            if failed.kind in ("unreachable", "busy", "slow") or failed.status in _LOCKED_STATUSES:
                raise
            return None  # no such path, or it means something else there
        return identity_of(answer) or None

    async def ask(self, method: str, path: str, body: bytes | None, attempts: Mapping[FailureKind, int]) -> Any:
        """A successful answer, without the token if the server echoes it. Raises SearchFailed, after retries where they
        may help."""
        try:
            answer = orjson.loads(await self._exchange(method, path, body, attempts))
        except orjson.JSONDecodeError:
            raise SearchFailed("garbled", "its answer is not JSON") from None
        hide_in(answer, [] if is_word(self.token or "") else self._of_token)
        return answer

    async def _exchange(self, method: str, path: str, body: bytes | None, attempts: Mapping[FailureKind, int]) -> bytes:
        """The body of a successful answer. The waits are 1, 2, 4, .. times the first, with jitter, but at least the
        server's Retry-After; none is longer than MAX_WAIT_S."""
        failures: Counter[FailureKind] = Counter()
        while True:
            try:
                return await self._once(method, path, body)
            except SearchFailed as failed:
                failures[failed.kind] += 1
                failed.attempts = failures.total()
                if failures[failed.kind] >= attempts.get(failed.kind, 1):
                    raise
                own = self.first_wait_s * (2 ** (failed.attempts - 1) + random.random())
                await asyncio.sleep(min(MAX_WAIT_S, max(own, failed.asked_to_wait or 0.0)))

    async def _once(self, method: str, path: str, body: bytes | None) -> bytes:
        session = self._session  # opens `_slots`, too
        try:
            async with (
                self._slots,
                session.request(method, self.url + path, data=body, allow_redirects=False) as response,
            ):
                content = await _content(response)
        except ConnectionTimeoutError as error:
            raise SearchFailed("unreachable", f"no connection within {min(CONNECT_S, self.timeout):g} s") from error
        except TimeoutError as error:
            raise SearchFailed("slow", f"no answer within {self.timeout:g} s") from error
        except (ClientError, OSError, ValueError) as error:  # ValueError: not HTTP
            raise SearchFailed("unreachable", self._clean(str(error)) or type(error).__name__) from error
        if response.status != HTTPStatus.OK:
            raise self._failure(response, content)
        return content

    def _failure(self, response: ClientResponse, content: bytes) -> SearchFailed:
        """The failure behind a status other than 200, with the server's message."""
        status, said = response.status, self._clean(_error_text(content))
        moved_to = response.headers.get("Location")
        if moved_to and status < HTTPStatus.BAD_REQUEST:
            said = f"moved to {self._clean(moved_to)}; give the address it moved to"
        kind: FailureKind = "refused"
        if status in _BUSY_STATUSES:
            kind = "busy"
        elif status in _BAD_REQUEST_STATUSES:
            kind = "bad_request"
        elif status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            kind = "broken"
        message = f"status {status}: {said}" if said else f"status {status}"
        return SearchFailed(kind, message, status=status, asked_to_wait=retry_after(response.headers))

    def _clean(self, text: str) -> str:
        """A server's message on one line, shortened, without secrets and control characters."""
        line = " ".join(plain_text(excerpt(text, 4 * MAX_SAID, [*self._of_token, *secrets()])).split())
        return line if len(line) <= MAX_SAID else f"{line[:MAX_SAID]}.."

    def _open(self) -> ClientSession:
        self._slots = asyncio.Semaphore(MAX_IN_FLIGHT)
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        return open_session(self.url, headers, timeout=self.timeout, keep_alive_s=KEEP_ALIVE_S)


async def _content(response: ClientResponse) -> bytes:
    """The body, up to MAX_ANSWER_BYTES, and the beginning of an error's. Raises SearchFailed for a longer answer."""
    if response.status != HTTPStatus.OK:
        return await read_body(response, MOST_ERROR_BYTES)
    content = await read_body(response, MAX_ANSWER_BYTES)
    if len(content) > MAX_ANSWER_BYTES:
        raise SearchFailed("too_much", f"its answer is longer than {MAX_ANSWER_BYTES} bytes")
    return content


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
    said = body.get("error") or body.get("detail") or body if isinstance(body, dict) else None
    return str(said or content.decode("utf-8", "replace"))


def identity_of(answer: object) -> str:
    """The identity in an answer; empty if missing or malformed."""
    said = answer.get("identity") if isinstance(answer, dict) else None
    return said if isinstance(said, str) and said.isprintable() and len(said) <= MAX_IDENTITY else ""


def parsed_passages(found: object, top_k: int) -> list[Passage]:
    """One query's passages, at most `top_k`. Raises SearchFailed."""
    if not isinstance(found, list):
        raise SearchFailed("garbled", "the result for a query is not a list")
    return [_passage(each, position) for position, each in enumerate(found[:top_k], start=1)]


def _passage(item: object, position: int) -> Passage:
    """A passage from a document, bare or with a score, with `contents` (or `title` and `text`) as in a corpus."""
    score: object = 0.0
    document = item
    if isinstance(item, dict):
        score = item.get("score")
        document = item.get("document", item)
    where = f"passage {position} of its answer"
    if not isinstance(document, dict):
        raise SearchFailed("garbled", f"{where} is not a document")
    if id_of(document) is None:
        raise SearchFailed(
            "garbled",
            f"{where} has no id, by which passages are told apart: some servers (Search-R1's BM25 and web search) "
            "leave it out. Serve the corpus with reasonrag index serve",
        )
    score = 0.0 if score is None else score
    if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
        raise SearchFailed("garbled", f"{where} has a score that is not a number")
    return _of_document(document, float(score), where)


def _of_document(document: dict[str, Any], score: float, where: str) -> Passage:
    """The passage exactly as our server has it; for other servers, as a corpus line with the same content is read."""
    passage_id, title, contents = id_of(document), document.get("title"), document.get("contents")
    if isinstance(passage_id, str) and isinstance(title, str) and isinstance(contents, str):
        head = f"{title}\n"
        if passage_id and contents.startswith(head):
            return Passage(passage_id, title, contents[len(head) :], score, document.get("fallback") is True)
    read = passage_of(document)
    if read is None:
        raise SearchFailed("garbled", f'{where} is not a passage: it needs "id" and "contents"')
    return replace(read, score=score)
