"""A retriever on another machine: `reasonrag index serve`, or any server that speaks Search-R1's protocol.

Decides which searches go together in a request, which are asked again and when, what is given up, and what of an answer
is believed: nothing that was not checked. A server of ours tells its index's identity, which then is this retriever's:
a run over it is the same run as one over the index itself. Does not know how passages are found.

Searches that wait go together as soon as one of a few requests may go, so a lone search is never kept waiting, and many
are few requests. Proxies of the environment are not used: a retriever is a machine of one's own.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter, deque
from collections.abc import Mapping, Sequence
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
from reasonrag.errors import EndpointLost, InputError, RetrievalError
from reasonrag.redaction import HIDDEN, redact
from reasonrag.retrieval.retriever import TOKEN_VARIABLE, LatestResults, check_query
from reasonrag.web import CONNECT_S, retry_after

TIMEOUT_S = 60.0
"""For the answer to one request. A server that takes longer, with a large index and no accelerator, is given more."""
LOST_AFTER = 5
"""Requests in a row that were given up, after all their attempts, until the run is: without a server some minutes."""
MAX_BATCH = 64
"""Searches in one request: beyond, a request costs a server nothing more, and all wait for the slowest."""
MAX_IN_FLIGHT = 4
"""Requests at a time: one is searched while others travel."""
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
_PROBE = "Who wrote Hamlet?"
"""What a server is asked first: it need not find anything."""

Kind = Literal["unreachable", "busy", "slow", "broken", "bad_request", "refused", "garbled", "too_much"]
"""unreachable: no connection, or it was lost. busy: 429, 502, 503, 504. slow: no answer in time. broken: another 5xx.
bad_request: the server finds fault with what was asked. refused: with who asks, or with the address. garbled: no answer
in the protocol. too_much: an answer longer than MAX_ANSWER_BYTES."""
ATTEMPTS: Mapping[Kind, int] = {"unreachable": 8, "busy": 8, "slow": 3, "broken": 3}
"""How often a request may fail in one way before it is given up; 1 for others, which would fail for ever. With waits of
.5, 1, 2, .. seconds, 8 times is a minute: a server that is started again."""
_ATTEMPTS_WHEN_DIVIDED: Mapping[Kind, int] = {**ATTEMPTS, "broken": 1}
_ATTEMPTS_AT_OPENING: Mapping[Kind, int] = {"busy": 3}
"""Whoever waits for a run to begin wants to know of a wrong address at once."""
_DIVIDED: frozenset[Kind] = frozenset({"bad_request", "broken", "too_much"})
"""Failures that one search of a request may have brought upon the others."""
_BUSY_STATUSES = frozenset({429, 502, 503, 504})
_BAD_REQUEST_STATUSES = frozenset({400, 413, 422})
_LOCKED_STATUSES = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})


async def open_remote(
    url: str,
    *,
    token: str | None,
    timeout: float = TIMEOUT_S,  # noqa: ASYNC109 - of each request, not of this call
    top_k: int = 3,
    first_wait_s: float = FIRST_WAIT_S,
) -> RemoteRetriever:
    """The retriever at an address like `http://host:8001`, asked once so that what is wrong is known before a run.

    token: sent as `Authorization: Bearer TOKEN`, and nowhere else. timeout: seconds until a request without an answer
    is given up. top_k: how many passages will be asked for. first_wait_s: seconds before a request is sent again; they
    double from time to time. Raises InputError, saying what to mend. To be closed.
    """
    server = _Server(_address(url), _checked_token(token), timeout, first_wait_s)
    try:
        greeting = await server.greeting()
        retriever = RemoteRetriever(server, greeting)
        await retriever._probe(top_k)
    except _Failed as failed:
        await server.close()
        raise InputError(f"the retriever {server.url} cannot be used: {failed}. {failed.mend()}") from failed
    except BaseException:
        await server.close()
        raise
    return retriever


class RemoteRetriever:
    """A `Retriever` over HTTP, opened by `open_remote`.

    identity: a server of ours has its index's; another one has `http:` and its address, which says nothing about what
    it finds: see `warning`. Results are kept, equal searches are asked for once. Of one event loop at a time.
    """

    def __init__(self, server: _Server, greeting: _Greeting | None) -> None:
        self.url = server.url
        self.foreign = greeting is None
        """Whether the server tells no identity, so that nobody notices when it finds something else."""
        self.identity = greeting.identity if greeting else f"http:{self.url}"
        self.passages = greeting.passages if greeting else None
        """How many the server searches; None if it does not tell."""
        self._server = server
        self._most = min(MAX_BATCH, greeting.max_queries) if greeting else MAX_BATCH
        self._latest = LatestResults()
        self._failed_in_a_row = 0
        self._open: dict[tuple[str, int], _Search] = {}
        """Searches without an answer yet, in flight or waiting."""
        self._waiting: deque[_Search] = deque()
        self._carriers: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"RemoteRetriever({self.url!r}, identity={self.identity!r})"

    @property
    def warning(self) -> str | None:
        """What a user should know about the server; None if there is nothing."""
        if not self.foreign:
            return None
        return (
            f"{self.url} does not tell which index it serves: that it finds the same to the end of the run, "
            "and when the run is continued, is up to you"
        )

    async def retrieve(self, query: str, top_k: int) -> list[Passage]:
        """At most `top_k` passages in the server's order. Raises RetrievalError, and EndpointLost when that happens for
        the fifth time in a row."""
        check_query(query, top_k)
        key = (query, top_k)
        latest = self._latest.get(query, top_k)
        if latest is not None:
            return latest
        search = self._open.get(key)
        if search is None:
            search = self._open[key] = _Search(query, top_k, asyncio.get_running_loop().create_future())
            self._waiting.append(search)
            self._send()
        search.wanted_by += 1
        try:
            return list(await asyncio.shield(search.found))  # who goes away takes nothing from others
        finally:
            search.wanted_by -= 1
            if not search.wanted_by and not search.sent and self._open.get(key) is search:
                del self._open[key]

    async def _probe(self, top_k: int) -> None:
        """One search, nothing kept. Raises _Failed."""
        [found] = await self._ask([_PROBE], top_k, _ATTEMPTS_AT_OPENING)
        _passages(found, top_k)

    async def close(self) -> None:
        """Let the connections go; whoever still waits gets a RetrievalError."""
        carriers = list(self._carriers)
        for carrier in carriers:
            carrier.cancel()
        await asyncio.gather(*carriers, return_exceptions=True)
        for search in self._waiting:
            self._conclude(search, self._closed())
        self._waiting.clear()
        await self._server.close()

    # -- which searches go together ------------------------------------------------------------------------------

    def _send(self) -> None:
        """One more carrier, if there may be one. It looks for searches when it starts, so those begun together go
        together."""
        if len(self._carriers) < MAX_IN_FLIGHT:
            carrier = asyncio.create_task(self._carry())
            self._carriers.add(carrier)
            carrier.add_done_callback(self._carriers.discard)

    async def _carry(self) -> None:
        """Request after request, as long as searches wait."""
        try:
            while batch := self._next_batch():
                try:
                    await self._settle(batch, ATTEMPTS)
                except asyncio.CancelledError:
                    for search in batch:
                        self._conclude(search, self._closed())
                    raise
                except Exception as error:  # noqa: BLE001 - a fault of ours, told to all who would wait for ever
                    for search in batch:
                        self._conclude(search, error)
        finally:
            self._carriers.discard(asyncio.current_task())

    def _next_batch(self) -> list[_Search]:
        """The searches that have waited longest, of one top_k; those that nobody waits for any more are dropped."""
        batch: list[_Search] = []
        others: list[_Search] = []
        while self._waiting and len(batch) < self._most:
            search = self._waiting.popleft()
            if not search.wanted_by:
                continue
            if batch and search.top_k != batch[0].top_k:
                others.append(search)
                continue
            search.sent = True
            batch.append(search)
        self._waiting.extendleft(reversed(others))
        return batch

    async def _settle(self, batch: list[_Search], attempts: Mapping[Kind, int]) -> None:
        """Every search of a batch concluded. Where one may have failed them all, halves are asked for, down to it."""
        try:
            lists = await self._ask([each.query for each in batch], batch[0].top_k, attempts)
        except _Failed as failed:
            if failed.kind in _DIVIDED and len(batch) > 1:
                middle = len(batch) // 2
                await self._settle(batch[:middle], _ATTEMPTS_WHEN_DIVIDED)
                await self._settle(batch[middle:], _ATTEMPTS_WHEN_DIVIDED)
                return
            self._failed_in_a_row += failed.kind not in _DIVIDED
            for search in batch:
                self._conclude(search, self._given_up(failed))
            return
        self._failed_in_a_row = 0
        for search, found in zip(batch, lists, strict=True):
            try:
                self._conclude(search, _passages(found, search.top_k))
            except _Failed as failed:
                self._conclude(search, self._given_up(failed))

    def _conclude(self, search: _Search, outcome: tuple[Passage, ...] | Exception) -> None:
        """Tell all who wait for a search, once."""
        key = (search.query, search.top_k)
        if self._open.get(key) is search:
            del self._open[key]
        if search.found.done():
            return
        if isinstance(outcome, Exception):
            search.found.set_exception(outcome)
            search.found.exception()  # seen, even if everybody has gone away
            return
        self._latest.keep(search.query, search.top_k, outcome)
        search.found.set_result(outcome)

    def _closed(self) -> RetrievalError:
        return RetrievalError(f"the retriever {self.url} was closed before it answered. Open it again")

    # -- one request ---------------------------------------------------------------------------------------------

    async def _ask(self, queries: Sequence[str], top_k: int, attempts: Mapping[Kind, int]) -> list[Any]:
        """One list for each query, not yet looked into. Raises _Failed after so many attempts."""
        sent = [query.encode("utf-8", "replace").decode() for query in queries]  # JSON knows no half characters
        body = orjson.dumps({"queries": sent, "topk": top_k, "return_scores": True})
        answer = _decoded(await self._server.exchange("POST", "/retrieve", body, attempts))
        lists = answer.get("result") if isinstance(answer, dict) else None
        if not isinstance(answer, dict) or not isinstance(lists, list):
            raise _Failed("garbled", 'its answer is no {"result": [..]}')
        if not self.foreign and answer.get("identity") != self.identity:
            now = _identity(answer) or "one that it does not name"
            raise _Failed("garbled", f"the server now serves another index: {now}, not {self.identity}")
        if len(lists) != len(queries):
            raise _Failed("garbled", f"it gave {len(lists)} lists of passages for {len(queries)} queries")
        return lists

    def _given_up(self, failed: _Failed) -> RetrievalError | EndpointLost:
        """The searches' error, or the run's: each question would buy its first steps in vain."""
        times = f" after {failed.attempts} attempts" if failed.attempts > 1 else ""
        if self._failed_in_a_row >= LOST_AFTER:
            return EndpointLost(
                f"the retriever {self.url} gave no passages, {self._failed_in_a_row} times in a row{times}: {failed}. "
                f"{failed.mend()}, then run the same command"
            )
        return RetrievalError(f"the retriever {self.url} gave no passages{times}: {failed}. {failed.mend()}")


@dataclass(eq=False, slots=True)
class _Search:
    """A query that somebody waits for. wanted_by: how many. sent: in a request, or answered."""

    query: str
    top_k: int
    found: asyncio.Future[tuple[Passage, ...]]
    wanted_by: int = 0
    sent: bool = False


@dataclass(frozen=True, slots=True)
class _Greeting:
    """What a server of ours tells about itself."""

    identity: str
    passages: int | None
    max_queries: int


class _Failed(Exception):
    """A request without an answer. asked_to_wait: seconds, if the server said so. attempts: how many there were."""

    def __init__(self, kind: Kind, message: str, *, status: int = 0, asked_to_wait: float | None = None) -> None:
        super().__init__(message)
        self.kind, self.status, self.asked_to_wait = kind, status, asked_to_wait
        self.attempts = 1

    def mend(self) -> str:
        """What to do next."""
        if self.status in _LOCKED_STATUSES:
            return f"Set {TOKEN_VARIABLE} to the token that the server was started with"
        advice: dict[Kind, str] = {
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
class _Trials:
    """The attempts of one request so far. allowed: failures by kind; 1 of those that are not named."""

    allowed: Mapping[Kind, int]
    first_wait_s: float
    failures: Counter[Kind] = field(default_factory=Counter)
    hopeless: bool = False
    _asked_to_wait: float = 0.0

    def note(self, failed: _Failed) -> None:
        self.failures[failed.kind] += 1
        failed.attempts = self.failures.total()
        self.hopeless = self.failures[failed.kind] >= self.allowed.get(failed.kind, 1)
        self._asked_to_wait = failed.asked_to_wait or 0.0

    def wait(self, state: RetryCallState) -> float:
        """Seconds to the next attempt: 1, 2, 4, .. times the first wait and some jitter, but no less than the server
        asks for, within reason."""
        own = wait_exponential(multiplier=self.first_wait_s)(state) + wait_random(0, self.first_wait_s)(state)
        return min(MAX_WAIT_S, max(own, self._asked_to_wait))


# -- the server --------------------------------------------------------------------------------------------------


@dataclass
class _Server:
    """An address and how it is asked: the token, the seconds that an answer may take, the first wait."""

    url: str
    token: str | None = field(repr=False)
    timeout: float
    first_wait_s: float
    _opened: tuple[asyncio.AbstractEventLoop, ClientSession] | None = field(default=None, repr=False)

    async def greeting(self) -> _Greeting | None:
        """What a server of ours tells; None of another one. Raises _Failed."""
        try:
            answer = _decoded(await self.exchange("GET", "/health", None, _ATTEMPTS_AT_OPENING))
        except _Failed as failed:
            if failed.kind in ("unreachable", "busy", "slow") or failed.status in _LOCKED_STATUSES:
                raise
            return None  # it has no such path, or means something else by it
        identity = _identity(answer)
        if not identity:
            return None
        limits = answer.get("limits")
        most = limits.get("max_queries") if isinstance(limits, dict) else None
        return _Greeting(identity, _count(answer.get("passages")), _count(most) or MAX_BATCH)

    async def exchange(self, method: str, path: str, body: bytes | None, attempts: Mapping[Kind, int]) -> bytes:
        """The body of a successful answer, asked for again where that may help. Raises _Failed."""
        trials = _Trials(attempts, self.first_wait_s)

        async def attempt() -> bytes:
            try:
                return await self._once(method, path, body)
            except _Failed as failed:
                trials.note(failed)
                raise

        retrying = AsyncRetrying(
            retry=retry_if_exception_type(_Failed),
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
            raise _Failed("unreachable", f"no connection within {min(CONNECT_S, self.timeout):g} s") from error
        except TimeoutError as error:
            raise _Failed("slow", f"no answer within {self.timeout:g} s") from error
        except (ClientError, OSError, ValueError) as error:  # ValueError: bytes that are no HTTP
            raise _Failed("unreachable", self._clean(str(error)) or type(error).__name__) from error
        if response.status != HTTPStatus.OK:
            raise self._failure(response, content)
        return content

    def _failure(self, response: ClientResponse, content: bytes) -> _Failed:
        """What a status other than 200 means, in the server's words."""
        status, said = response.status, self._clean(_said(content))
        moved_to = response.headers.get("Location")
        if moved_to and status < HTTPStatus.BAD_REQUEST:
            said = f"moved to {self._clean(moved_to)}; give the address it moved to"
        kind: Kind = "refused"
        if status in _BUSY_STATUSES:
            kind = "busy"
        elif status in _BAD_REQUEST_STATUSES:
            kind = "bad_request"
        elif status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            kind = "broken"
        wait = retry_after({"retry-after": response.headers.get("Retry-After", "")})
        return _Failed(
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
    """The body, as far as anybody would want to read it. Raises _Failed for a longer one."""
    content = bytearray()
    async for chunk in response.content.iter_any():
        content += chunk
        if len(content) > MAX_ANSWER_BYTES:
            response.close()
            raise _Failed("too_much", f"its answer is longer than {MAX_ANSWER_BYTES} bytes")
    return bytes(content)


# -- addresses and tokens ----------------------------------------------------------------------------------------


def _address(url: str) -> str:
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


def _checked_token(token: str | None) -> str | None:
    if token is not None and not (token and token.isascii() and token.isprintable() and " " not in token):
        raise InputError(f"{TOKEN_VARIABLE} is empty or holds characters that no token has; copy it again")
    return token


# -- what a server says, believed as far as it was checked --------------------------------------------------------


def _decoded(content: bytes) -> Any:
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        raise _Failed("garbled", "its answer is no JSON") from None


def _said(content: bytes) -> str:
    """The error text of a body: ours, that of FastAPI's servers, or the body's beginning."""
    try:
        body: object = orjson.loads(content)
    except orjson.JSONDecodeError:
        body = None
    said = body.get("error") or body.get("detail") or body if isinstance(body, dict) else None
    return str(said or content[: 4 * MAX_SAID].decode("utf-8", "replace"))


def _identity(answer: object) -> str:
    """The identity in an answer of ours; empty if there is none that could be one."""
    said = answer.get("identity") if isinstance(answer, dict) else None
    return said if isinstance(said, str) and said.isprintable() and len(said) <= MAX_IDENTITY else ""


def _count(said: object) -> int | None:
    return said if isinstance(said, int) and not isinstance(said, bool) and said > 0 else None


def _passages(found: object, top_k: int) -> tuple[Passage, ...]:
    """One query's passages, `top_k` at most. Raises _Failed for what is none."""
    if not isinstance(found, list):
        raise _Failed("garbled", "what it found for a query is no list")
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
        raise _Failed("garbled", f"{where} is no document")
    if document.get("id") is None:
        raise _Failed(
            "garbled",
            f"{where} has no id, by which passages are told apart: some servers (Search-R1's BM25 and web search) "
            "leave it out. Serve the corpus with reasonrag index serve",
        )
    if score is None:
        score = 0.0
    if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
        raise _Failed("garbled", f"{where} has a score that is no number")
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
        raise _Failed("garbled", str(error)) from error
    except orjson.JSONEncodeError as error:  # nested too deep
        raise _Failed("garbled", f"{where} cannot be read") from error
    return Passage(id=read.id, title=read.title, text=read.text, score=score)
