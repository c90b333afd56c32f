"""The Retriever protocol, and its implementation over an index on disk.

Decides which queries are valid, which searches share a batch, what is cached, and that passages are read from the
corpus by offset. Does not know how rows are ranked, nor how an index was built.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache
from typing import Protocol

from reasonrag.data.corpus import Corpus, Passage
from reasonrag.errors import InputError, RetrievalError
from reasonrag.retrieval.lexical.bm25 import BM25Index
from reasonrag.retrieval.ranking import Ranked, Ranking
from reasonrag.retrieval.settings import MAX_TOP_K

TOKEN_VARIABLE = "REASONRAG_RETRIEVER_TOKEN"  # noqa: S105 - its name, not its value
"""The environment variable with a retrieval server's token; not a flag, which other users could read."""
CHARACTERS_KEPT = 64 * 1024 * 1024
"""Most characters of queries and passages in the cache: what 15,000 searches of Wikipedia find by default. Siblings and
continuations of a tree often repeat a query."""
BESIDE = 250
"""Bytes of a query or passage beside its text, counted as characters: those without text are bounded, too."""
BATCH, BATCH_PASSAGES = 64, 6_400
"""Most queries searched together, as more gain little and delay the first; most passages of these, held at once."""
QUERY_BYTES = 32_768
"""Longest query in bytes; longer than any reply."""
_LANGUAGE = re.compile(r":analyser=\d+:([a-z]{2})\b")
"""Where the identity of BM25 has the languages of its corpus."""


class Retriever(Protocol):
    """Anything that finds passages for a query."""

    identity: str
    """Changes whenever the same query could find other passages; part of every run's configuration hash."""

    async def retrieve(self, query: str, top_k: int) -> list[Passage]:
        """At most `top_k` passages, best first, ties in corpus order. Raises RetrievalError, and RunStopped if no
        further search can succeed."""


def corpus_language(retriever: Retriever) -> str | None:
    """The commonest language of the corpus; None if no BM25, ours or behind a server of ours, says it."""
    found = _LANGUAGE.search(retriever.identity)
    return found[1] if found else None


def checked_query(query: str, top_k: int) -> str:
    """The query, without lone surrogates, which JSON and tokenizers do not take. Raises RetrievalError for a query or
    `top_k` that cannot be searched."""
    if not query.strip():
        raise RetrievalError("the query is empty", of_query=True)
    encoded = query.encode("utf-8", errors="replace")
    if len(encoded) > QUERY_BYTES:
        raise RetrievalError(f"the query has {len(encoded):,} bytes; the limit is {QUERY_BYTES:,}", of_query=True)
    if not 1 <= top_k <= MAX_TOP_K:
        raise RetrievalError(f"{top_k:,} passages were asked for; a search gives 1 to {MAX_TOP_K:,}")
    return encoded.decode()


class ResultCache:
    """The latest results, of at most so many characters."""

    def __init__(self, characters: int = CHARACTERS_KEPT) -> None:
        self._room = characters
        self._found: dict[tuple[str, int], tuple[Passage, ...]] = {}
        """The one that was used longest ago comes first."""
        self._lock = threading.Lock()

    def get(self, query: str, top_k: int) -> list[Passage] | None:
        with self._lock:
            if (found := self._found.pop((query, top_k), None)) is None:
                return None
            self._found[query, top_k] = found
            return list(found)

    def keep(self, query: str, top_k: int, passages: Sequence[Passage]) -> None:
        with self._lock:
            if (query, top_k) in self._found:
                return
            self._found[query, top_k] = tuple(passages)
            self._room -= _characters(query, passages)
            while self._room < 0:
                evicted = next(iter(self._found))
                self._room += _characters(evicted[0], self._found.pop(evicted))


def _characters(query: str, passages: Sequence[Passage]) -> int:
    return BESIDE + len(query) + sum(BESIDE + len(each.title) + len(each.text) for each in passages)


class IndexRetriever:
    """Passages of a corpus through an index of it.

    Queries that arrive while others are searched share the next batch; a lone query is never delayed.
    """

    def __init__(self, corpus: Corpus, index: Ranking) -> None:
        self.identity = index.identity
        self.passages = len(corpus)
        self._index = index
        self._latest = ResultCache()
        self._passage = lru_cache(maxsize=1024)(corpus.__getitem__)  # the queries of a tree find the same ones
        self._waiting: deque[tuple[str, int, Future[list[Passage]]]] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="reasonrag-search")

    def tokens(self, query: str) -> list[str]:
        """What BM25 searches for; nothing if it is not alone."""
        return [*self._index.searched(query)[0]] if isinstance(self._index, BM25Index) else []

    async def retrieve(self, query: str, top_k: int) -> list[Passage]:
        if self._index.instant:
            return self.search(query, top_k)
        query = checked_query(query, top_k)
        if (found := self._latest.get(query, top_k)) is not None:
            return found
        waiting: Future[list[Passage]] = Future()
        self._waiting.append((query, top_k, waiting))
        self._thread.submit(self._search_waiting)
        return await asyncio.wrap_future(waiting)

    def search(self, query: str, top_k: int) -> list[Passage]:
        """`retrieve` without an event loop. BM25 never finds passages that share no word with the query."""
        query = checked_query(query, top_k)
        found = self._latest.get(query, top_k)
        return found if found is not None else self._search([query], top_k)[query]

    def _search_waiting(self) -> None:
        """Search the waiting batch, of one depth; it may be empty if an earlier batch already served this query."""
        asked: list[tuple[str, Future[list[Passage]]]] = []
        top_k = self._waiting[0][1] if self._waiting else 0
        most = max(1, min(BATCH, BATCH_PASSAGES // max(1, top_k)))
        while len(asked) < most and self._waiting and self._waiting[0][1] == top_k:  # others: the next batch
            query, _, found = self._waiting.popleft()
            if found.set_running_or_notify_cancel():
                asked.append((query, found))
        if not asked:
            return
        try:
            results = self._search(list(dict.fromkeys(query for query, _ in asked)), top_k)
        except BaseException as error:  # noqa: BLE001 - handed to the waiting callers
            for _, found in asked:
                found.set_exception(error)
            return
        for query, found in asked:
            found.set_result(list(results[query]))

    def _search(self, queries: Sequence[str], top_k: int) -> dict[str, list[Passage]]:
        try:
            ranked = self._index.rank(queries, top_k)
            results = {query: self._passages(found) for query, found in zip(queries, ranked, strict=True)}
        except (RuntimeError, OSError, MemoryError) as error:  # of faiss, torch or the disk
            raise RetrievalError(f"the index could not be searched: {error}") from error
        except InputError as error:
            raise RetrievalError(f"{error}. The corpus was changed while it was searched") from error
        for query, passages in results.items():
            self._latest.keep(query, top_k, passages)
        return results

    def _passages(self, ranked: Ranked) -> list[Passage]:
        return [
            replace(self._passage(int(row)), score=round(float(score), 6), fallback=ranked.fallback)
            for row, score in zip(ranked.rows, ranked.scores, strict=True)
        ]
