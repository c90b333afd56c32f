"""The Retriever protocol, and its implementation over an index on disk.

Decides which queries are valid, which searches share a batch, what is cached, and that passages are read from the
corpus by offset. Does not know how rows are ranked, nor how an index was built.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections import OrderedDict, deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from typing import Protocol

from reasonrag.data.corpus import Corpus, Passage
from reasonrag.errors import InputError, RetrievalError
from reasonrag.retrieval.lexical.bm25 import BM25Index
from reasonrag.retrieval.ranking import Ranked, Ranking
from reasonrag.retrieval.settings import MAX_TOP_K

TOKEN_VARIABLE = "REASONRAG_RETRIEVER_TOKEN"  # noqa: S105 - its name, not its value
"""The environment variable with a retrieval server's token; not a flag, which other users could read."""
SEARCHES_KEPT = 4096
"""Most results in the cache: siblings and continuations of a tree often repeat a query."""
CHARACTERS_KEPT = 64 * 1024 * 1024
"""Most characters of passages in the cache: five times what so many searches of Wikipedia find by default."""
BATCH, BATCH_PASSAGES = 64, 6_400
"""Most queries searched together, as more gain little and delay the first ones; and most of their passages, which are
in memory at once."""
QUERY_BYTES = 32_768
"""Longest query in bytes; longer than any reply."""
_LANGUAGE = re.compile(r":analyser=\d+:([a-z]{2})\b")
"""Where the identity of BM25 has the languages of its corpus."""


class RetrieverUnavailable(RetrievalError):
    """A server does not answer, or not yet: the same search may succeed later."""


class Retriever(Protocol):
    """Anything that finds passages for a query."""

    identity: str
    """Changes whenever the same query could find other passages; part of every run's configuration hash."""

    async def retrieve(self, query: str, top_k: int) -> list[Passage]:
        """At most `top_k` passages, best first, ties in corpus order. Raises RetrievalError, and RunStopped if no
        further search can succeed."""
        ...


def corpus_language(retriever: Retriever) -> str | None:
    """The commonest language of the corpus; None if no BM25, ours or behind a server of ours, says it."""
    return _language_in(retriever.identity)


@cache
def _language_in(identity: str) -> str | None:
    found = _LANGUAGE.search(identity)
    return found[1] if found else None


def check_query(query: str, top_k: int) -> None:
    """Raises RetrievalError for a query or `top_k` that cannot be searched."""
    if not query.strip():
        raise RetrievalError("the query is empty", of_query=True)
    size = len(query.encode("utf-8", errors="replace"))
    if size > QUERY_BYTES:
        raise RetrievalError(f"the query has {size:,} bytes; the limit is {QUERY_BYTES:,}", of_query=True)
    if not 1 <= top_k <= MAX_TOP_K:
        raise RetrievalError(f"{top_k:,} passages were asked for; a search gives 1 to {MAX_TOP_K:,}")


class ResultCache:
    """A cache of the latest results, in which the oldest are evicted first. size: results; characters: of all their
    passages."""

    def __init__(self, size: int = SEARCHES_KEPT, *, characters: int = CHARACTERS_KEPT) -> None:
        self._size, self._most_characters = size, characters
        self._characters = 0
        self._found: OrderedDict[tuple[str, int], tuple[Passage, ...]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, query: str, top_k: int) -> list[Passage] | None:
        with self._lock:
            found = self._found.get((query, top_k))
            if found is not None:
                self._found.move_to_end((query, top_k))
        return None if found is None else list(found)

    def keep(self, query: str, top_k: int, passages: Sequence[Passage]) -> None:
        with self._lock:
            self._characters -= _characters(self._found.get((query, top_k), ()))
            self._found[query, top_k] = tuple(passages)
            self._characters += _characters(passages)
            while len(self._found) > self._size or self._characters > self._most_characters:
                _, evicted = self._found.popitem(last=False)
                self._characters -= _characters(evicted)


def _characters(passages: Sequence[Passage]) -> int:
    return sum(len(each.title) + len(each.text) for each in passages)


class IndexRetriever:
    """Passages of a corpus through an index of it.

    Queries that arrive while others are searched share the next batch; a lone query is never delayed.
    """

    def __init__(self, corpus: Corpus, index: Ranking) -> None:
        self.identity = index.identity
        self.passages = len(corpus)
        self._corpus, self._index = corpus, index
        self._latest = ResultCache()
        self._waiting: deque[tuple[str, int, Future[list[Passage]]]] = deque()
        self._thread: ThreadPoolExecutor | None = None

    def tokens(self, query: str) -> list[str]:
        """What BM25 searches for; nothing if it is not alone."""
        return [*self._index.searched(query)[0]] if isinstance(self._index, BM25Index) else []

    async def retrieve(self, query: str, top_k: int) -> list[Passage]:
        if self._index.instant:
            return self.search(query, top_k)
        check_query(query, top_k)
        found = self._latest.get(query, top_k)
        return found if found is not None else await asyncio.wrap_future(self._submit(query, top_k))

    def search(self, query: str, top_k: int) -> list[Passage]:
        """`retrieve` without an event loop. BM25 never finds passages that share no word with the query."""
        check_query(query, top_k)
        found = self._latest.get(query, top_k)
        return found if found is not None else self._search([query], top_k)[query]

    def _submit(self, query: str, top_k: int) -> Future[list[Passage]]:
        found: Future[list[Passage]] = Future()
        self._waiting.append((query, top_k, found))
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="reasonrag-search")
        self._thread.submit(self._search_waiting)
        return found

    def _search_waiting(self) -> None:
        """Search the waiting batch, of one depth; it may be empty if an earlier batch already served this query."""
        asked: list[tuple[str, Future[list[Passage]]]] = []
        top_k = self._waiting[0][1] if self._waiting else 0
        most = max(1, min(BATCH, BATCH_PASSAGES // max(1, top_k)))
        while len(asked) < most and self._waiting and self._waiting[0][1] == top_k:  # others: the next batch
            query, _, found = self._waiting.popleft()
            if found.set_running_or_notify_cancel():
                asked.append((query, found))
        outcomes = self._outcomes(list(dict.fromkeys(query for query, _ in asked)), top_k) if asked else {}
        for query, found in asked:
            outcome = outcomes[query]
            if isinstance(outcome, BaseException):
                found.set_exception(outcome)
            else:
                found.set_result(list(outcome))

    def _outcomes(self, queries: list[str], top_k: int) -> dict[str, list[Passage] | BaseException]:
        """Result or error of each query: one failure does not fail the others."""
        try:
            return dict(self._search(queries, top_k))
        except BaseException as error:  # noqa: BLE001 - handed to the waiting callers
            if len(queries) == 1:
                return {queries[0]: error}
        return {query: outcome for each in queries for query, outcome in self._outcomes([each], top_k).items()}

    def _search(self, queries: Sequence[str], top_k: int) -> dict[str, list[Passage]]:
        sent = {query: query.encode("utf-8", errors="replace").decode() for query in queries}  # no lone surrogates
        try:
            ranked = self._index.rank(list(sent.values()), top_k)
            results = {query: self._passages(found) for query, found in zip(queries, ranked, strict=True)}
        except (RuntimeError, OSError, MemoryError) as error:  # of faiss, torch or the disk
            raise RetrievalError(f"the index could not be searched: {error}") from error
        for query, passages in results.items():
            self._latest.keep(query, top_k, passages)
        return results

    def _passages(self, ranked: Ranked) -> list[Passage]:
        return [
            replace(self._passage(int(row)), score=round(float(score), 6), fallback=ranked.fallback)
            for row, score in zip(ranked.rows, ranked.scores, strict=True)
        ]

    def _passage(self, row: int) -> Passage:
        try:
            return self._corpus[row]
        except InputError as error:
            raise RetrievalError(f"{error}. The corpus was changed while it was searched") from error
