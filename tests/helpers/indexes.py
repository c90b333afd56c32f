"""BM25 indexes for tests of what searches them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from reasonrag.progress import PlainBuildWatcher
from reasonrag.retrieval.opening import IndexPlace, open_index_places
from reasonrag.retrieval.retriever import IndexRetriever
from reasonrag.retrieval.settings import RetrievalSettings


def open_or_build(directory: Path, corpus: Path, *, say: Callable[[str], None] = lambda _: None) -> IndexRetriever:
    """The index of `corpus` in `directory`; built if it is missing or out of date."""
    return open_index_places([IndexPlace("bm25", directory, corpus)], RetrievalSettings(), PlainBuildWatcher(say))
