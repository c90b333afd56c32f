"""BM25 over title and text by bm25s: memory-mapped, English stems, no stop words.

Decides tokenisation and parameters. Does not know how passages are read, or how scores are written to disk.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from reasonrag.data.corpus import Corpus, scan_corpus
from reasonrag.errors import InputError
from reasonrag.files import build_lock, unwritable
from reasonrag.progress import SilentWatcher
from reasonrag.retrieval.dense.build_progress import READING, BuildWatcher, row_ranges
from reasonrag.retrieval.dense.manifest import (
    OFFSETS,
    BM25Manifest,
    FileDigest,
    check_replaceable,
    incomplete_index,
    put_in_place,
    write_manifest,
)
from reasonrag.retrieval.lexical.bm25_writer import Postings
from reasonrag.retrieval.ranking import LOADING, Ranked

BM25_K1 = 1.2
BM25_B = 0.75
"""Robertson's usual k1 and b; the figures in the tests and benchmarks were measured with them."""
CHUNK = 20_000
"""Passages tokenised at a time."""
SEARCHED_AT_ONCE = 50_000
"""Corpus size up to which a search is faster than handing it to a thread."""


class BM25Index:
    """An open index. Raises InputError if files are missing or damaged."""

    def __init__(self, directory: Path, manifest: BM25Manifest) -> None:
        import bm25s

        words = f"{manifest.stemmer}:{manifest.stopwords}"
        self.identity = f"bm25:{manifest.corpus_sha256[:16]}:k1={manifest.k1}:b={manifest.b}:{words}"
        self.instant = manifest.passages <= SEARCHED_AT_ONCE
        try:
            with LOADING:
                self._index = bm25s.BM25.load(directory, mmap=True, load_corpus=False)
        except (OSError, ValueError, EOFError) as error:
            raise incomplete_index(directory, manifest, error) from error
        self._tokens = _Tokenizer()

    def rank(self, queries: Sequence[str], depth: int) -> list[Ranked]:
        """Rows that share a word with each query, best first, ties in corpus order."""
        return [self._rank(query, depth) for query in queries]

    def _rank(self, query: str, depth: int) -> Ranked:
        tokens = [token for token in self._tokens([query])[0] if token in self._index.vocab_dict]
        if not tokens:
            return Ranked.empty()
        scores = self._index.get_scores(tokens)
        rows = np.flatnonzero(scores > 0)
        if len(rows) > depth:
            threshold = np.partition(scores[rows], len(rows) - depth)[len(rows) - depth]
            rows = rows[scores[rows] >= threshold]
        best = rows[np.argsort(-scores[rows], kind="stable")][:depth]
        return Ranked(best, scores[best].astype(np.float64))


def build_bm25(corpus: Path, directory: Path, watcher: BuildWatcher | None = None) -> BM25Manifest:
    """Build a BM25 index of `corpus` in `directory`; it replaces an older one once it is complete.

    Memory grows with the vocabulary, and by about 30 bytes per passage. One builder at a time: others wait. Runs that
    have the older index open keep it. Raises InputError for a bad corpus (see `scan_corpus`) and if `directory` cannot
    be written.
    """
    watcher = watcher or SilentWatcher()
    with build_lock(directory, say=watcher.say):
        return build_bm25_alone(corpus, directory, watcher)


def build_bm25_alone(corpus: Path, directory: Path, watcher: BuildWatcher) -> BM25Manifest:
    """`build_bm25` for a caller that holds the build lock. Built beside `directory`: files that are memory-mapped
    elsewhere are never overwritten."""
    if not corpus.is_file():
        raise InputError(f"there is no corpus {corpus}")
    stat = corpus.stat()  # before reading: a change while reading must make the index stale
    unfinished = directory.with_name(f".{directory.name}.building")
    try:
        check_replaceable(directory, corpus, "bm25")
        watcher.stage(READING, total=stat.st_size)
        scan = scan_corpus(corpus, advanced=watcher.reached, say=watcher.say)
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        _index_words(Corpus(corpus, scan.offsets), unfinished, watcher)
        np.save(unfinished / OFFSETS, scan.offsets)
        manifest = BM25Manifest(
            corpus=str(corpus.resolve()),
            corpus_sha256=scan.sha256,
            corpus_bytes=stat.st_size,
            corpus_mtime_ns=stat.st_mtime_ns,
            passages=len(scan.offsets),
            long_passages=scan.long_passages,
            k1=BM25_K1,
            b=BM25_B,
            stemmer="snowball-english",
            stopwords="bm25s-english",
            versions={name: version(name) for name in ("bm25s", "PyStemmer")},
            files={each.name: FileDigest.of(each) for each in sorted(unfinished.iterdir())},
        )
        write_manifest(manifest, unfinished)
        put_in_place(unfinished, directory)
    except OSError as error:
        raise unwritable(directory, error) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
        watcher.ended()
    return manifest


def _index_words(corpus: Corpus, directory: Path, watcher: BuildWatcher) -> None:
    """Index title and text of every passage into `directory`."""
    tokens = _Tokenizer()
    with Postings(directory) as postings:
        watcher.stage("counting words", total=len(corpus))
        for start, stop in row_ranges(len(corpus), CHUNK):
            counted = tokens([each.contents for each in corpus.read(start, stop)], as_numbers=True)
            postings.add(counted.ids, counted.vocab)
            watcher.reached(stop)
        if not postings.occurrences:
            raise InputError(f"{corpus.path} has no searchable words (stop words do not count)")
        watcher.stage("scoring words", total=postings.occurrences)
        postings.save(directory, k1=BM25_K1, b=BM25_B, advanced=watcher.reached)


class _Tokenizer:
    """English stemming without stop words. The stemmer keeps state, so one thread at a time."""

    def __init__(self) -> None:
        import Stemmer

        self._stemmer = Stemmer.Stemmer("english")
        self._lock = threading.Lock()

    def __call__(self, texts: list[str], *, as_numbers: bool = False) -> Any:
        """A list of stems for each text; as_numbers: bm25s' form, lists of ids and the vocabulary."""
        import bm25s

        with self._lock:
            return bm25s.tokenize(
                texts,
                stopwords="en",
                stemmer=self._stemmer,
                return_ids=as_numbers,
                show_progress=False,
            )
