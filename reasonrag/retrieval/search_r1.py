"""One retrieval server in Search-R1's protocol: requests, retries, and what an answer may look like."""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Literal
from urllib.parse import urlsplit

import orjson
from aiohttp import (
    ClientError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    ConnectionTimeoutError,
    DummyCookieJar,
    TCPConnector,
)
from httpx2 import create_ssl_context
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_exponential, wait_random

from preference.export.sanitize import plain_text
from reasonrag.data.corpus import Passage, parse_passage
from reasonrag.errors import InputError
from reasonrag.redaction import HIDDEN, redact
from reasonrag.retrieval.retriever import TOKEN_VARIABLE
from reasonrag.web import CONNECT_S, retry_after

MAX_BATCH = 64
"""Searches in one request: beyond, a request costs a server nothing more, and all wait for the slowest."""
FIRST_WAIT_S = 0.5
MAX_WAIT_S = 30.0
KEEP_ALIVE_S = 4.0
"""An idle connection is used again for so long: uvicorn, under Search-R1's servers, closes it after 5 s."""
MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""64 searches of 100 passages of 10 kB each."""
MAX_SAID = 300
"""Characters of a server's error text that are shown."""
MAX_IDENTITY = 1000
"""Characters; it goes into every run's configuration."""

FailureKind = Literal["unreachable", "busy", "slow", "broken", "bad_request", "refused", "garbled", "too_much"]
"""unreachable: no connection, or it was lost. busy: 429, 502, 503, 504. slow: no answer in time. broken: another 5xx.
bad_request: the server finds fault with what was asked. refused: with who asks, or with the address. garbled: no answer
in the protocol. too_much: an answer longer than MAX_ANSWER_BYTES."""
ATTEMPTS: Mapping[FailureKind, int] = {"unreachable": 8, "busy": 8, "slow": 3, "broken": 3}
"""How often a request may fail in one way before it is given up; 1 for others, which would fail for ever. With waits of
.5, 1, 2, .. seconds, 8 times is a minute: a server that is started again."""
ATTEMPTS_AT_OPENING: Mapping[FailureKind, int] = {"busy": 3}
"""Whoever waits for a run to begin wants to know of a wrong address at once."""
_BUSY_STATUSES = frozenset({429, 502, 503, 504})
_BAD_REQUEST_STATUSES = frozenset({400, 413, 422})
_LOCKED_STATUSES = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """What a server of ours tells about itself."""

    identity: str
    passages: int | None
    max_queries: int


class SearchFailed(Exception):
    """A request without an answer. asked_to_wait: seconds, if the server said so. attempts: how many there were."""

    def __init__(self, kind: FailureKind, message: str, *, status: int = 0, asked_to_wait: float | None = None) -> None:
        super().__init__(message)
        self.kind, self.status, self.asked_to_wait = kind, status, asked_to_wait
        self.attempts = 1

    def advice(self) -> str:
        """What to do next."""
        if self.status in _LOCKED_STATUSES:
            return f"Set {TOKEN_VARIABLE} to the token that the server was started with"
        advice: dict[FailureKind, str] = {
            "unreachable": "Check the address and that the server runs",
            "busy": "Run the same again when it has time",
            "slow": "Allow it more time, or ask it less at once",
            "broken": "Look into the server's log",
            "bad_request": "Ask for less, or raise the server's limits",
            "refused": "Check the address",
            "garbled": "Check that the address is that of reasonrag index serve, or of a server like Search-R1's, and "
            "which index it serves",
            "too_much": "Ask for fewer passages",
        }
        return advice[self.kind]


@dataclass(slots=True)
class _RetryState:
    """The attempts of one request so far. allowed: failures by kind; 1 of those that are not named."""

    allowed: Mapping[FailureKind, int]
    first_wait_s: float
    failures: Counter[FailureKind] = field(default_factory=Counter)
    hopeless: bool = False
    _asked_to_wait: float = 0.0

    def note(self, failed: SearchFailed) -> None:
        self.failures[failed.kind] += 1
        failed.attempts = self.failures.total()
        self.hopeless = self.failures[failed.kind] >= self.allowed.get(failed.kind, 1)
        self._asked_to_wait = failed.asked_to_wait or 0.0

    def wait(self, state: RetryCallState) -> float:
        """Seconds to the next attempt: 1, 2, 4, .. times the first wait and some jitter, but no less than the server
        asks for, within reason."""
        own = wait_exponential(multiplier=self.first_wait_s)(state) + wait_random(0, self.first_wait_s)(state)
        return min(MAX_WAIT_S, max(own, self._asked_to_wait))


@dataclass
class SearchServer:
    """An address and how it is asked: the token, the seconds that an answer may take, the first wait."""

    url: str
    token: str | None = field(repr=False)
    timeout: float
    first_wait_s: float
    _opened: tuple[asyncio.AbstractEventLoop, ClientSession] | None = field(default=None, repr=False)

    async def server_info(self) -> ServerInfo | None:
        """What a server of ours tells; None of another one. Raises SearchFailed."""
        try:
            answer = decoded(await self.exchange("GET", "/health", None, ATTEMPTS_AT_OPENING))
        except SearchFailed as failed:
            if failed.kind in ("unreachable", "busy", "slow") or failed.status in _LOCKED_STATUSES:
                raise
            return None  # it has no such path, or means something else by it
        identity = identity_of(answer)
        if not identity:
            return None
        limits = answer.get("limits")
        most = limits.get("max_queries") if isinstance(limits, dict) else None
        return ServerInfo(identity, _count(answer.get("passages")), _count(most) or MAX_BATCH)

    async def exchange(self, method: str, path: str, body: bytes | None, attempts: Mapping[FailureKind, int]) -> bytes:
        """The body of a successful answer, asked for again where that may help. Raises SearchFailed."""
        trials = _RetryState(attempts, self.first_wait_s)

        async def attempt() -> bytes:
            try:
                return await self._once(method, path, body)
            except SearchFailed as failed:
                trials.note(failed)
                raise

        retrying = AsyncRetrying(
            retry=retry_if_exception_type(SearchFailed),
            stop=lambda _: trials.hopeless,
            wait=trials.wait,
            reraise=True,
        )
        return await retrying(attempt)

    async def _once(self, method: str, path: str, body: bytes | None) -> bytes:
        try:
            async with self._session.request(method, self.url + path, data=body, allow_redirects=False) as response:
                content = await _content(response)
        except ConnectionTimeoutError as error:
            raise SearchFailed("unreachable", f"no connection within {min(CONNECT_S, self.timeout):g} s") from error
        except TimeoutError as error:
            raise SearchFailed("slow", f"no answer within {self.timeout:g} s") from error
        except (ClientError, OSError, ValueError) as error:  # ValueError: bytes that are no HTTP
            raise SearchFailed("unreachable", self._clean(str(error)) or type(error).__name__) from error
        if response.status != HTTPStatus.OK:
            raise self._failure(response, content)
        return content

    def _failure(self, response: ClientResponse, content: bytes) -> SearchFailed:
        """What a status other than 200 means, in the server's words."""
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
        wait = retry_after({"retry-after": response.headers.get("Retry-After", "")})
        return SearchFailed(
            kind, f"status {status}: {said}" if said else f"status {status}", status=status, asked_to_wait=wait
        )

    def _clean(self, text: str) -> str:
        """A server's words on one line, not too many, without secrets and what terminals would obey."""
        known = text.replace(self.token, HIDDEN) if self.token else text
        line = " ".join(redact(plain_text(known)).split())
        return line if len(line) <= MAX_SAID else f"{line[:MAX_SAID]}.."

    @property
    def _session(self) -> ClientSession:
        """One per event loop, opened by its first request."""
        loop = asyncio.get_running_loop()
        if self._opened is None or self._opened[0] is not loop or self._opened[1].closed:
            headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
            if self.token:
                headers["Authorization"] = f"Bearer {self.token}"
            certificates = create_ssl_context() if self.url.startswith("https") else True
            session = ClientSession(
                connector=TCPConnector(
                    limit=0, ssl=certificates, keepalive_timeout=KEEP_ALIVE_S
                ),  # how many are sent is decided above
                headers=headers,
                timeout=ClientTimeout(total=self.timeout, sock_connect=min(CONNECT_S, self.timeout)),
                cookie_jar=DummyCookieJar(),
            )
            self._opened = (loop, session)
        return self._opened[1]

    async def close(self) -> None:
        if self._opened is not None and self._opened[0] is asyncio.get_running_loop():
            await self._opened[1].close()
        self._opened = None


async def _content(response: ClientResponse) -> bytes:
    """The body, as far as anybody would want to read it. Raises SearchFailed for a longer one."""
    content = bytearray()
    async for chunk in response.content.iter_any():
        content += chunk
        if len(content) > MAX_ANSWER_BYTES:
            response.close()
            raise SearchFailed("too_much", f"its answer is longer than {MAX_ANSWER_BYTES} bytes")
    return bytes(content)


def checked_address(url: str) -> str:
    """An address without what may be left out, so that equal servers have equal ones. Raises InputError."""
    shown = re.sub(r"//[^/]*@", "//", url).partition("?")[0]
    try:
        parts = urlsplit(url.strip())
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets that do not match, a port that is no number
        valid = False
    if not valid:
        raise InputError(f"{shown!r} is no address of a retriever; it looks like http://127.0.0.1:8001")
    if "@" in parts.netloc:
        raise InputError(f"the address {shown} holds a user or password; leave them out and set {TOKEN_VARIABLE}")
    if parts.query or parts.fragment:
        raise InputError(f"the address {shown} goes on with ? or #; give it without, like http://127.0.0.1:8001")
    path = parts.path.rstrip("/").removesuffix("/retrieve").rstrip("/")
    usual = {"http": ":80", "https": ":443"}[parts.scheme]
    return f"{parts.scheme}://{parts.netloc.lower().removesuffix(usual)}{path}"


def checked_token(token: str | None) -> str | None:
    if token is not None and not (token and token.isascii() and token.isprintable() and " " not in token):
        raise InputError(f"{TOKEN_VARIABLE} is empty or holds characters that no token has; copy it again")
    return token


def decoded(content: bytes) -> Any:
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        raise SearchFailed("garbled", "its answer is no JSON") from None


def _error_text(content: bytes) -> str:
    """The error text of a body: ours, that of FastAPI's servers, or the body's beginning."""
    try:
        body: object = orjson.loads(content)
    except orjson.JSONDecodeError:
        body = None
    said = body.get("error") or body.get("detail") or body if isinstance(body, dict) else None
    return str(said or content[: 4 * MAX_SAID].decode("utf-8", "replace"))


def identity_of(answer: object) -> str:
    """The identity in an answer of ours; empty if there is none that could be one."""
    said = answer.get("identity") if isinstance(answer, dict) else None
    return said if isinstance(said, str) and said.isprintable() and len(said) <= MAX_IDENTITY else ""


def _count(said: object) -> int | None:
    return said if isinstance(said, int) and not isinstance(said, bool) and said > 0 else None


def passages_of(found: object, top_k: int) -> tuple[Passage, ...]:
    """One query's passages, `top_k` at most. Raises SearchFailed for what is none."""
    if not isinstance(found, list):
        raise SearchFailed("garbled", "what it found for a query is no list")
    return tuple(_passage(each, position) for position, each in enumerate(found[:top_k], start=1))


def _passage(item: object, position: int) -> Passage:
    """A document, bare or with its score, whose `contents` (or `title` and `text`) are those of a corpus."""
    score: object = 0.0
    document = item
    if isinstance(item, dict):
        score = item.get("score")
        document = item.get("document", item)
    where = f"passage {position} of its answer"
    if not isinstance(document, dict):
        raise SearchFailed("garbled", f"{where} is no document")
    if document.get("id") is None:
        raise SearchFailed(
            "garbled",
            f"{where} has no id, by which passages are told apart: some servers (Search-R1's BM25 and web search) "
            "leave it out. Serve the corpus with reasonrag index serve",
        )
    if score is None:
        score = 0.0
    if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
        raise SearchFailed("garbled", f"{where} has a score that is no number")
    return _of_document(document, float(score), where)


def _of_document(document: dict[str, Any], score: float, where: str) -> Passage:
    """The passage exactly as our server has it; of another one as a corpus line of the same content would be read."""
    passage_id, title, contents = document["id"], document.get("title"), document.get("contents")
    if isinstance(passage_id, str) and isinstance(title, str) and isinstance(contents, str):
        head = f"{title}\n"
        if passage_id and contents.startswith(head):
            return Passage(id=passage_id, title=title, text=contents[len(head) :], score=score)
    try:
        read = parse_passage(orjson.dumps(document), where=where)
    except InputError as error:
        raise SearchFailed("garbled", str(error)) from error
    except orjson.JSONEncodeError as error:  # nested too deep
        raise SearchFailed("garbled", f"{where} cannot be read") from error
    return Passage(id=read.id, title=read.title, text=read.text, score=score)
