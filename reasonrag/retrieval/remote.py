"""A retriever on another machine: `reasonrag index serve`, or any server of Search-R1's protocol.

Decides which searches share a request, what is retried and when, when a search fails, and that every part of an answer
is validated. Our own server reports its index's identity, which becomes this retriever's: a run over it is the same run
as one over the index itself. Does not know how passages are found.

Waiting searches are sent together as soon as a request slot is free, so a lone search is never delayed, and many share
few requests. Proxies of the environment are ignored: a retriever is expected on one's own network.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from reasonrag.data.columns import UnreadColumns
from reasonrag.data.corpus import Passage
from reasonrag.errors import EndpointLost, InputError, RetrievalError
from reasonrag.retrieval.retriever import ResultCache, RetrieverUnavailable, check_query
from reasonrag.retrieval.search_r1 import (
    ATTEMPTS,
    ATTEMPTS_AT_OPENING,
    FIRST_WAIT_S,
    MAX_BATCH,
    PASSING,
    FailureKind,
    SearchFailed,
    SearchServer,
    ServerInfo,
    checked_address,
    checked_token,
    identity_of,
    parsed_passages,
)

TIMEOUT_S = 60.0
"""Timeout of one request; raise it for a server with a large index and no accelerator."""
LOST_AFTER = 5
"""Failed requests in a row, each after all its attempts, that end the run: some minutes without a server."""
_MOST_REJECTED = 20
"""After this many rejected searches in a row, no query is blamed alone."""
MAX_IN_FLIGHT = 4
"""Requests at a time: one is searched while others are in transit."""
PROBE = "Who wrote Hamlet?"
"""The first query sent to a server; it need not find anything."""

_ATTEMPTS_WHEN_DIVIDED: Mapping[FailureKind, int] = {**ATTEMPTS, "broken": 1}
_DIVIDED: frozenset[FailureKind] = frozenset({"bad_request", "broken", "too_much"})
"""Failures that a single search may have caused for its whole request."""


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
    server = SearchServer(checked_address(url), checked_token(token), timeout, first_wait_s)
    try:
        server_info = await server.server_info()
        retriever = RemoteRetriever(server, server_info)
        await retriever.probe(top_k)
    except SearchFailed as failed:
        await server.close()
        raise InputError(f"the retriever {server.url} cannot be used: {failed}. {failed.advice()}") from failed
    except BaseException:
        await server.close()
        raise
    return retriever


class RemoteRetriever:
    """A `Retriever` over HTTP, opened by `open_remote`.

    identity: the index's for our own server; else `http:` and the address, which says nothing about the index: see
        `warning`. Equal searches are sent once. Usable from one event loop at a time.
    """

    def __init__(self, server: SearchServer, server_info: ServerInfo | None) -> None:
        self.url = server.url
        self.foreign = server_info is None
        """Whether the server reports no identity, so that a changed index goes unnoticed."""
        self.identity = server_info.identity if server_info else f"http:{self.url}"
        self.passages = server_info.passages if server_info else None
        """Number of passages on the server; None if it does not report it."""
        self.unread: str | None = None
        """A notice that names what of its passages is not read, as far as the probe found any."""
        self._server = server
        self._most = min(MAX_BATCH, server_info.max_queries) if server_info else MAX_BATCH
        self._latest = ResultCache()
        self._failed_in_a_row = self._rejected_in_a_row = 0
        self._open: dict[tuple[str, int], _PendingSearch] = {}
        """Unanswered searches, in flight or waiting."""
        self._waiting: deque[_PendingSearch] = deque()
        self._carriers: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"RemoteRetriever({self.url!r}, identity={self.identity!r})"

    @property
    def warning(self) -> str | None:
        """A warning about the server for the user, or None."""
        if not self.foreign:
            return None
        return (
            f"{self.url} does not report which index it serves: make sure that it does not change during the run "
            "or before the run is resumed"
        )

    async def retrieve(self, query: str, top_k: int) -> list[Passage]:
        """At most `top_k` passages in the server's order. Raises RetrievalError, and EndpointLost for the fifth failure
        in a row."""
        check_query(query, top_k)
        key = (query, top_k)
        latest = self._latest.get(query, top_k)
        if latest is not None:
            return latest
        search = self._open.get(key)
        if search is None:
            search = self._open[key] = _PendingSearch(query, top_k, asyncio.get_running_loop().create_future())
            self._waiting.append(search)
            self._send()
        search.wanted_by += 1
        try:
            return list(await asyncio.shield(search.found))  # a cancelled caller does not cancel the others
        finally:
            search.wanted_by -= 1
            if not search.wanted_by and not search.sent and self._open.get(key) is search:
                del self._open[key]

    async def probe(self, top_k: int) -> None:
        """One search, not cached. Raises SearchFailed."""
        [found] = await self._ask([PROBE], top_k, ATTEMPTS_AT_OPENING)
        unread = UnreadColumns()
        parsed_passages(found, top_k, unread)
        self.unread = unread.notice(f"passages of {self.url}")

    async def close(self) -> None:
        """Close the connections; callers still waiting get a RetrievalError."""
        carriers = list(self._carriers)
        for carrier in carriers:
            carrier.cancel()
        await asyncio.gather(*carriers, return_exceptions=True)
        for search in self._waiting:
            self._conclude(search, self._closed())
        self._waiting.clear()
        await self._server.close()

    # -- batching ------------------------------------------------------------------------------

    def _send(self) -> None:
        """Start one more carrier task, if allowed. It collects searches when it starts, so those begun together share a
        request."""
        if len(self._carriers) < MAX_IN_FLIGHT:
            carrier = asyncio.create_task(self._carry())
            self._carriers.add(carrier)
            carrier.add_done_callback(self._carriers.discard)

    async def _carry(self) -> None:
        """Send requests as long as searches wait."""
        try:
            while batch := self._next_batch():
                try:
                    await self._settle(batch, ATTEMPTS)
                except asyncio.CancelledError:
                    for search in batch:
                        self._conclude(search, self._closed())
                    raise
                except Exception as error:  # noqa: BLE001 - a bug of ours, reported to callers that would wait forever
                    for search in batch:
                        self._conclude(search, error)
        finally:
            self._carriers.discard(asyncio.current_task())

    def _next_batch(self) -> list[_PendingSearch]:
        """The longest-waiting searches with one top_k; abandoned ones are dropped."""
        batch: list[_PendingSearch] = []
        others: list[_PendingSearch] = []
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

    async def _settle(self, batch: list[_PendingSearch], attempts: Mapping[FailureKind, int]) -> None:
        """Resolve every search of a batch. If one search may have failed them all, bisect down to it."""
        try:
            lists = await self._ask([each.query for each in batch], batch[0].top_k, attempts)
        except SearchFailed as failed:
            if failed.kind in _DIVIDED and len(batch) > 1:
                middle = len(batch) // 2
                await self._settle(batch[:middle], _ATTEMPTS_WHEN_DIVIDED)
                await self._settle(batch[middle:], _ATTEMPTS_WHEN_DIVIDED)
                return
            self._failed_in_a_row += failed.kind not in _DIVIDED
            self._rejected_in_a_row += failed.kind in ("bad_request", "too_much")
            for search in batch:
                self._conclude(search, self._given_up(failed))
            return
        self._failed_in_a_row = self._rejected_in_a_row = 0
        for search, found in zip(batch, lists, strict=True):
            try:
                self._conclude(search, parsed_passages(found, search.top_k))
            except SearchFailed as failed:
                self._conclude(search, self._given_up(failed))

    def _conclude(self, search: _PendingSearch, outcome: tuple[Passage, ...] | Exception) -> None:
        """Resolve a search for all its callers, once."""
        key = (search.query, search.top_k)
        if self._open.get(key) is search:
            del self._open[key]
        if search.found.done():
            return
        if isinstance(outcome, Exception):
            search.found.set_exception(outcome)
            search.found.exception()  # marked as retrieved, even if no caller is left
            return
        self._latest.keep(search.query, search.top_k, outcome)
        search.found.set_result(outcome)

    def _closed(self) -> RetrievalError:
        return RetrievalError(f"the retriever {self.url} was closed before it answered. Open it again")

    # -- one request ---------------------------------------------------------------------------------------------

    async def _ask(self, queries: Sequence[str], top_k: int, attempts: Mapping[FailureKind, int]) -> list[Any]:
        """One unvalidated list for each query. Raises SearchFailed after the allowed attempts."""
        sent = [query.encode("utf-8", "replace").decode() for query in queries]  # JSON has no lone surrogates
        body = orjson.dumps({"queries": sent, "topk": top_k, "return_scores": True})
        answer = await self._server.ask("POST", "/retrieve", body, attempts)
        lists = answer.get("result") if isinstance(answer, dict) else None
        if not isinstance(answer, dict) or not isinstance(lists, list):
            raise SearchFailed("garbled", 'its answer is not {"result": [..]}')
        if not self.foreign and answer.get("identity") != self.identity:
            now = identity_of(answer) or "one without an identity"
            raise SearchFailed("garbled", f"the server now serves another index: {now}, not {self.identity}")
        if len(lists) != len(queries):
            raise SearchFailed("garbled", f"it gave {len(lists)} lists of passages for {len(queries)} queries")
        return lists

    def _given_up(self, failed: SearchFailed) -> RetrievalError | EndpointLost:
        """The error of the searches, or of the whole run: otherwise each question would pay for its first steps in
        vain."""
        times = f" after {failed.attempts} attempts" if failed.attempts > 1 else ""
        if self._failed_in_a_row >= LOST_AFTER:
            return EndpointLost(
                f"the retriever {self.url} gave no passages, {self._failed_in_a_row} times in a row{times}: {failed}. "
                f"{failed.advice()}, then run the same command"
            )
        message = f"the retriever {self.url} gave no passages{times}: {failed}. {failed.advice()}"
        if failed.kind in PASSING:
            return RetrieverUnavailable(message)
        return RetrievalError(message, of_query=0 < self._rejected_in_a_row < _MOST_REJECTED)


@dataclass(eq=False, slots=True)
class _PendingSearch:
    """An unanswered query. wanted_by: number of waiting callers. sent: in a request, or answered."""

    query: str
    top_k: int
    found: asyncio.Future[tuple[Passage, ...]]
    wanted_by: int = 0
    sent: bool = False
