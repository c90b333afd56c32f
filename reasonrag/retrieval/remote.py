"""A retriever on another machine: `reasonrag index serve`, or any server that speaks Search-R1's protocol.

Decides which searches go together in a request, which are asked again and when, what is given up, and what of an answer
is believed: nothing that was not checked. A server of ours tells its index's identity, which then is this retriever's:
a run over it is the same run as one over the index itself. Does not know how passages are found.

Searches that wait go together as soon as one of a few requests may go, so a lone search is never kept waiting, and many
are few requests. Proxies of the environment are not used: a retriever is a machine of one's own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from reasonrag.data.corpus import Passage
from reasonrag.errors import EndpointLost, InputError, RetrievalError
from reasonrag.retrieval.retriever import LatestResults, check_query
from reasonrag.retrieval.search_r1 import (
    ATTEMPTS,
    ATTEMPTS_AT_OPENING,
    FIRST_WAIT_S,
    MAX_BATCH,
    FailureKind,
    SearchFailed,
    SearchServer,
    ServerInfo,
    checked_address,
    checked_token,
    decoded,
    identity_of,
    passages_of,
)

TIMEOUT_S = 60.0
"""For the answer to one request. A server that takes longer, with a large index and no accelerator, is given more."""
LOST_AFTER = 5
"""Requests in a row that were given up, after all their attempts, until the run is: without a server some minutes."""
MAX_IN_FLIGHT = 4
"""Requests at a time: one is searched while others travel."""
_PROBE = "Who wrote Hamlet?"
"""What a server is asked first: it need not find anything."""

_ATTEMPTS_WHEN_DIVIDED: Mapping[FailureKind, int] = {**ATTEMPTS, "broken": 1}
_DIVIDED: frozenset[FailureKind] = frozenset({"bad_request", "broken", "too_much"})
"""Failures that one search of a request may have brought upon the others."""


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
    double from time to time. Raises InputError, saying what to do. Must be closed.
    """
    server = SearchServer(checked_address(url), checked_token(token), timeout, first_wait_s)
    try:
        server_info = await server.server_info()
        retriever = RemoteRetriever(server, server_info)
        await retriever._probe(top_k)
    except SearchFailed as failed:
        await server.close()
        raise InputError(f"the retriever {server.url} cannot be used: {failed}. {failed.advice()}") from failed
    except BaseException:
        await server.close()
        raise
    return retriever


class RemoteRetriever:
    """A `Retriever` over HTTP, opened by `open_remote`.

    identity: a server of ours has its index's; another one has `http:` and its address, which says nothing about what
    it finds: see `warning`. Results are kept, equal searches are asked for once. Of one event loop at a time.
    """

    def __init__(self, server: SearchServer, server_info: ServerInfo | None) -> None:
        self.url = server.url
        self.foreign = server_info is None
        """Whether the server tells no identity, so that nobody notices when it finds something else."""
        self.identity = server_info.identity if server_info else f"http:{self.url}"
        self.passages = server_info.passages if server_info else None
        """How many the server searches; None if it does not tell."""
        self._server = server
        self._most = min(MAX_BATCH, server_info.max_queries) if server_info else MAX_BATCH
        self._latest = LatestResults()
        self._failed_in_a_row = 0
        self._open: dict[tuple[str, int], _PendingSearch] = {}
        """Searches without an answer yet, in flight or waiting."""
        self._waiting: deque[_PendingSearch] = deque()
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
            search = self._open[key] = _PendingSearch(query, top_k, asyncio.get_running_loop().create_future())
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
        """One search, nothing kept. Raises SearchFailed."""
        [found] = await self._ask([_PROBE], top_k, ATTEMPTS_AT_OPENING)
        passages_of(found, top_k)

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

    def _next_batch(self) -> list[_PendingSearch]:
        """The searches that have waited longest, of one top_k; those that nobody waits for any more are dropped."""
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
        """Every search of a batch concluded. Where one may have failed them all, halves are asked for, down to it."""
        try:
            lists = await self._ask([each.query for each in batch], batch[0].top_k, attempts)
        except SearchFailed as failed:
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
                self._conclude(search, passages_of(found, search.top_k))
            except SearchFailed as failed:
                self._conclude(search, self._given_up(failed))

    def _conclude(self, search: _PendingSearch, outcome: tuple[Passage, ...] | Exception) -> None:
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

    async def _ask(self, queries: Sequence[str], top_k: int, attempts: Mapping[FailureKind, int]) -> list[Any]:
        """One list for each query, not yet looked into. Raises SearchFailed after so many attempts."""
        sent = [query.encode("utf-8", "replace").decode() for query in queries]  # JSON knows no half characters
        body = orjson.dumps({"queries": sent, "topk": top_k, "return_scores": True})
        answer = decoded(await self._server.exchange("POST", "/retrieve", body, attempts))
        lists = answer.get("result") if isinstance(answer, dict) else None
        if not isinstance(answer, dict) or not isinstance(lists, list):
            raise SearchFailed("garbled", 'its answer is no {"result": [..]}')
        if not self.foreign and answer.get("identity") != self.identity:
            now = identity_of(answer) or "one that it does not name"
            raise SearchFailed("garbled", f"the server now serves another index: {now}, not {self.identity}")
        if len(lists) != len(queries):
            raise SearchFailed("garbled", f"it gave {len(lists)} lists of passages for {len(queries)} queries")
        return lists

    def _given_up(self, failed: SearchFailed) -> RetrievalError | EndpointLost:
        """The searches' error, or the run's: each question would buy its first steps in vain."""
        times = f" after {failed.attempts} attempts" if failed.attempts > 1 else ""
        if self._failed_in_a_row >= LOST_AFTER:
            return EndpointLost(
                f"the retriever {self.url} gave no passages, {self._failed_in_a_row} times in a row{times}: {failed}. "
                f"{failed.advice()}, then run the same command"
            )
        return RetrievalError(f"the retriever {self.url} gave no passages{times}: {failed}. {failed.advice()}")


@dataclass(eq=False, slots=True)
class _PendingSearch:
    """A query that somebody waits for. wanted_by: how many. sent: in a request, or answered."""

    query: str
    top_k: int
    found: asyncio.Future[tuple[Passage, ...]]
    wanted_by: int = 0
    sent: bool = False
