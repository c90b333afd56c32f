"""A retriever on another machine: `reasonrag index serve`, or any server of Search-R1's protocol.

Decides what is retried and when, when a search fails, and that every part of an answer is validated. Our own server
reports its index's identity, which becomes this retriever's: a run over it is the same run as one over the index
itself. Does not know how passages are found.

A search is a request: a server that gains by it searches together what arrives together, as ours does. Proxies of the
environment are ignored: a retriever is expected on one's own network.
"""

from __future__ import annotations

import orjson

from reasonrag.data.corpus import Passage
from reasonrag.errors import EndpointLost, InputError, RetrievalError
from reasonrag.retrieval.retriever import ResultCache, check_query
from reasonrag.retrieval.search_r1 import (
    FIRST_WAIT_S,
    GARBLED,
    REJECTED,
    SearchFailed,
    SearchServer,
    checked_address,
    checked_token,
    identity_of,
    parsed_passages,
)

TIMEOUT_S = 60.0
"""Timeout of one request; raise it for a server with a large index and no accelerator."""
LOST_AFTER = 5
"""Failed requests in a row, each after all its attempts, that end the run: a minute without a server."""
_MOST_REJECTED = 20
"""After this many different queries that were rejected in a row, none is blamed alone."""
PROBE = "Who wrote Hamlet?"
"""The first query sent to a server; it need not find anything."""


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
        retriever = RemoteRetriever(server, await server.identity())
        await retriever.probe(top_k)
    except SearchFailed as failed:
        await server.close()
        raise InputError(f"the retriever {server.url} cannot be used: {failed}") from failed
    except BaseException:
        await server.close()
        raise
    return retriever


class RemoteRetriever:
    """A `Retriever` over HTTP, opened by `open_remote`.

    identity: the index's for our own server; else `http:` and the address, which says nothing about the index: see
        `warning`. Usable from one event loop at a time.
    """

    def __init__(self, server: SearchServer, identity: str | None) -> None:
        self.url = server.url
        self.foreign = identity is None
        """Whether the server reports no identity, so that a changed index goes unnoticed."""
        self.identity = identity or f"http:{self.url}"
        self._server = server
        self._latest = ResultCache()
        self._failed_in_a_row = 0
        self._rejected: set[str] = set()
        """Queries since the last answer."""

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
        latest = self._latest.get(query, top_k)
        if latest is not None:
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

    async def probe(self, top_k: int) -> None:
        """One search, not cached. Raises SearchFailed."""
        parsed_passages(await self._search(PROBE, top_k, opening=True), top_k)

    async def close(self) -> None:
        """Close the connections."""
        await self._server.close()

    async def _search(self, query: str, top_k: int, *, opening: bool = False) -> object:
        """The list of one request, as it came. Raises SearchFailed after the allowed attempts."""
        sent = query.encode("utf-8", "replace").decode()  # JSON has no lone surrogates
        body = orjson.dumps({"queries": [sent], "topk": top_k, "return_scores": True})
        answer = await self._server.ask("POST", "/retrieve", body, opening=opening)
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
        """The error of the search, or of the whole run: otherwise each question would pay for its first steps in
        vain."""
        self._failed_in_a_row += not failed.cause.of_query
        self._rejected |= {query} if failed.cause is REJECTED else set()
        times = f" after {failed.attempts} attempts" if failed.attempts > 1 else ""
        message = f"the retriever {self.url} gave no passages{times}: {failed}"
        if self._failed_in_a_row >= LOST_AFTER:
            return EndpointLost(f"{message}. It failed {LOST_AFTER} times in a row; then run the same command")
        return RetrievalError(message, of_query=0 < len(self._rejected) < _MOST_REJECTED)
