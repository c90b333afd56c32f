"""BM25 over title and text by bm25s: memory-mapped.

Decides parameters, and what a query without a known word finds. Does not know what a token is, how passages are read,
or how scores are written to disk.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import cached_property
from importlib.metadata import version
from pathlib import Path

import numpy as np

from reasonrag.data.corpus import Corpus, scan_corpus
from reasonrag.data.documents.language import LanguageCounts, recorded_languages
from reasonrag.errors import InputError
from reasonrag.files import unwritable
from reasonrag.progress import BuildWatcher, SilentWatcher
from reasonrag.retrieval.dense.manifest import (
    OFFSETS,
    BM25Manifest,
    FileDigest,
    check_replaceable,
    incomplete_index,
    put_in_place,
    write_manifest,
)
from reasonrag.retrieval.dense.vector_pieces import row_ranges
from reasonrag.retrieval.lexical.analysis import ANALYSER, QUIET, Analyser, SimilarWords, bm25s
from reasonrag.retrieval.lexical.bm25_writer import Postings
from reasonrag.retrieval.ranking import LOADING, Ranked

BM25_K1 = 1.2
BM25_B = 0.75
"""Robertson's usual k1 and b; the figures in the tests and benchmarks were measured with them."""
CHUNK = 20_000
"""Passages tokenised at a time."""
SAMPLED = 1000
"""Passages at most, evenly spread, by which the languages of a corpus are told."""
SEARCHED_AT_ONCE = 50_000
"""Corpus size up to which a search is faster than handing it to a thread."""


class BM25Index:
    """An open index. Raises InputError if files are missing or damaged."""

    def __init__(self, directory: Path, manifest: BM25Manifest) -> None:
        words = f"analyser={manifest.analyser}:{'+'.join(manifest.languages)}"
        self.identity = f"bm25:{manifest.corpus_sha256[:16]}:k1={manifest.k1}:b={manifest.b}:{words}"
        self.instant = manifest.passages <= SEARCHED_AT_ONCE
        try:
            with LOADING:
                self._index = bm25s().BM25.load(directory, mmap=True, load_corpus=False)
        except (OSError, ValueError, EOFError) as error:
            raise incomplete_index(directory, manifest, error) from error
        for name in ("data", "indices", "indptr"):  # mapped still, but slices cost less than those of a memmap
            self._index.scores[name] = np.asarray(self._index.scores[name])
        self._analyser = Analyser(manifest.languages)

    def rank(self, queries: Sequence[str], depth: int) -> list[Ranked]:
        """Rows that share a word with each query, or else a similar one; best first, ties in corpus order."""
        return [self._rank(query, depth) for query in queries]

    def searched(self, query: str) -> tuple[dict[str, float] | list[str], bool]:
        """The tokens that are searched for, and whether they are only similar to the query's, then with weights."""
        asked = self._analyser.query(query)
        words = [token for token in asked if not token.startswith(QUIET)]
        known = [token for token in words or asked if token in self._index.vocab_dict]
        if known or not words:
            return known, False
        return {similar: share for word in words for similar, share in self._similar.of(word).items()}, True

    @cached_property
    def _similar(self) -> SimilarWords:
        return SimilarWords(self._index.vocab_dict)

    def _rank(self, query: str, depth: int) -> Ranked:
        tokens, fallback = self.searched(query)
        if not tokens:
            return Ranked.empty()
        if isinstance(tokens, dict):
            scores = sum(share * self._index.get_scores([each]) for each, share in tokens.items())
        else:
            scores = self._index.get_scores(tokens)
        rows = np.flatnonzero(scores > 0)
        found = scores[rows]
        if len(rows) > depth:
            kept = found >= np.partition(found, len(rows) - depth)[len(rows) - depth]
            rows, found = rows[kept], found[kept]
        best = (-found).argsort(kind="stable")[:depth]
        return Ranked(rows[best], found[best].astype(np.float64), fallback)


def build_bm25(
    corpus: Path, directory: Path, watcher: BuildWatcher | None = None, languages: Sequence[str] = ()
) -> BM25Manifest:
    """Build a BM25 index of `corpus` in `directory`; it replaces an older one once it is complete. The caller holds the
    build lock.

    languages: of the corpus; none: those that `corpus build` wrote beside it, else those detected. Memory grows with
    the vocabulary, and by about 30 bytes per passage. Runs that have the older index open keep it: mapped files are
    never overwritten. Raises InputError for a bad corpus (`scan_corpus`) and if `directory` cannot be written."""
    watcher = watcher or SilentWatcher()
    stat = corpus.stat()  # before reading: a change while reading must make the index stale
    unfinished = directory.with_name(f".{directory.name}.building")
    try:
        check_replaceable(directory, corpus, "bm25")
        watcher.stage("reading the corpus", total=stat.st_size)
        scan = scan_corpus(corpus, advanced=watcher.reached, say=watcher.say)
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        passages = Corpus(corpus, scan.offsets)
        if not languages and not (languages := recorded_languages(corpus, scan.sha256)):
            counts = LanguageCounts()
            for row in range(0, len(passages), -(-len(passages) // SAMPLED)):
                counts.add(passages[row].contents)
            languages = counts.common
        _index_words(passages, unfinished, watcher, Analyser(languages))
        np.save(unfinished / OFFSETS, scan.offsets)
        manifest = BM25Manifest(
            corpus=str(corpus.resolve()),
            corpus_sha256=scan.sha256,
            corpus_bytes=stat.st_size,
            corpus_mtime_ns=stat.st_mtime_ns,
            passages=len(scan.offsets),
            k1=BM25_K1,
            b=BM25_B,
            analyser=ANALYSER,
            languages=tuple(languages),
            versions={name: version(name) for name in ("bm25s", "PyStemmer", "py3langid")},
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


def _index_words(corpus: Corpus, directory: Path, watcher: BuildWatcher, analyser: Analyser) -> None:
    """Index title and text of every passage into `directory`."""
    with Postings(directory) as postings:
        watcher.stage("counting words", total=len(corpus))
        for start, stop in row_ranges(len(corpus), CHUNK):
            postings.add(*analyser.passages(each.contents for each in corpus.read(start, stop)))
            watcher.reached(stop)
        if not postings.occurrences:
            raise InputError(f"{corpus.path} has no searchable words")
        watcher.stage("scoring words", total=postings.occurrences)
        postings.save(directory, k1=BM25_K1, b=BM25_B, advanced=watcher.reached)
