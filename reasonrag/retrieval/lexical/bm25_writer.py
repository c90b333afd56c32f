"""Writes BM25's score matrix in bm25s' file format, out of core: for corpora larger than memory.

bm25s builds its index from all tokens at once, with about 3 kB of memory per passage. Here documents come in chunks;
each chunk's postings are written to disk sorted by token, then merged, one range of tokens at a time. The scores are
bit-identical, and bm25s searches them; the same documents give the same bytes, in chunks of any size. Knows tokens and
numbers, no passages.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from reasonrag.retrieval.lexical.analysis import QUIET, bm25s

MERGED_AT_ONCE = 4_000_000
"""Occurrences in memory while merging, about 60 bytes each."""
_NAMES = ("token", "document", "count")
_DATA, _INDICES, _INDPTR = "data.csc.index.npy", "indices.csc.index.npy", "indptr.csc.index.npy"


class Postings(AbstractContextManager["Postings"]):
    """How often each token occurs in each document.

    scratch: a directory for temporary files; about 12 bytes per occurrence.
    """

    def __init__(self, scratch: Path) -> None:
        self.vocabulary: dict[str, int] = {}
        """Number of each token, in order of first appearance."""
        self._frequencies = np.zeros(0, dtype=np.int64)
        self._lengths: list[npt.NDArray[np.int32]] = []
        self._chunks: list[tuple[int, int]] = []
        self._paths = [scratch / f"postings.{name}" for name in _NAMES]
        self._files = [path.open("w+b") for path in self._paths]
        self.documents = 0

    def __exit__(self, *_: object) -> None:
        for file, path in zip(self._files, self._paths, strict=True):
            file.close()
            path.unlink(missing_ok=True)

    def add(self, ids: Sequence[Sequence[int]], words: dict[str, int]) -> None:
        """Add documents: a list of token ids each, and the vocabulary, both in order of appearance. Tokens that begin
        with QUIET count for no length."""
        sizes = np.fromiter(map(len, ids), dtype=np.int32, count=len(ids))
        flat = np.fromiter(chain.from_iterable(ids), dtype=np.int64, count=int(sizes.sum()))
        vocabulary = self.vocabulary
        known = np.array([vocabulary.setdefault(word, len(vocabulary)) for word in words], dtype=np.int64)
        heard = np.array([not word.startswith(QUIET) for word in words], dtype=bool)
        documents = np.repeat(np.arange(len(ids), dtype=np.int64), sizes)
        lengths = np.bincount(documents[heard[flat]], minlength=len(ids)).astype(np.int32)
        # one number for token and document: sorting it groups occurrences in merge order
        both, counts = np.unique(known[flat] * len(ids) + documents, return_counts=True)
        tokens = both // max(1, len(ids))
        before, seen = self._frequencies, np.bincount(tokens, minlength=len(vocabulary))
        self._frequencies = seen + np.pad(before, (0, len(seen) - len(before)))
        begin = self._chunks[-1][1] if self._chunks else 0
        for file, column in zip(self._files, (tokens, both % max(1, len(ids)) + self.documents, counts), strict=True):
            column.astype(np.int32).tofile(file)
        self._chunks.append((begin, begin + len(both)))
        self._lengths.append(lengths)
        self.documents += len(ids)

    def save(
        self,
        directory: Path,
        *,
        k1: float,
        b: float,
        advanced: Callable[[int], object] = lambda _: None,
        at_once: int = MERGED_AT_ONCE,
    ) -> None:
        """Write the index into `directory`, ready for `bm25s.BM25.load`.

        advanced: called with how many of `occurrences` are merged. at_once: how many are held while merging.
        """
        for file in self._files:
            file.flush()
        # vocabulary and parameters through bm25s; its arrays are overwritten
        index: Any = bm25s().BM25(k1=k1, b=b)
        index.index([["anything"]], show_progress=False)
        index.scores["num_docs"] = self.documents
        index.vocab_dict = self.vocabulary | {"": len(self.vocabulary)}
        index.save(directory)
        starts = np.concatenate([[0], np.cumsum(self._frequencies)])
        np.save(directory / _INDPTR, starts)
        lengths = np.concatenate(self._lengths)
        mean = np.float64(lengths.sum() / len(lengths)) or np.float64(1)
        saturation = k1 * ((1 - b) + b * lengths / mean)
        # Lucene's IDF, bm25s' default: Kamphuis et al., ECIR 2020
        rare = [(self.documents - each + 0.5) / (each + 0.5) for each in self._frequencies.tolist()]
        idf = np.array([math.log(1 + each) for each in rare], dtype=np.float32)
        with (directory / _DATA).open("wb") as data, (directory / _INDICES).open("wb") as indices:
            _begin(data, self.occurrences, np.dtype(np.float32))
            _begin(indices, self.occurrences, np.dtype(np.int32))
            for first, last in self._ranges(at_once):
                tokens, documents, counts = self._between(first, last)
                frequency = counts.astype(np.float32)
                (idf[tokens] * (frequency / (saturation[documents] + frequency))).astype(np.float32).tofile(data)
                documents.tofile(indices)
                advanced(int(starts[last]))

    @property
    def occurrences(self) -> int:
        """Number of (token, document) pairs."""
        return self._chunks[-1][1] if self._chunks else 0

    def _ranges(self, at_once: int) -> Iterator[tuple[int, int]]:
        """(first, last) token of ranges that fit in memory; a token that does not fit is its own range."""
        ends, first = np.cumsum(self._frequencies), 0
        while first < len(ends):
            before = ends[first - 1] if first else 0
            last = max(first + 1, int(np.searchsorted(ends, before + at_once, side="right")))
            yield first, last
            first = last

    def _between(self, first: int, last: int) -> tuple[npt.NDArray[np.int32], ...]:
        """Tokens in [first, last) with their documents and counts, sorted by token, then document."""
        columns: list[list[npt.NDArray[np.int32]]] = [[], [], []]
        for begin, end in self._chunks:
            if begin == end:
                continue
            all_tokens = np.memmap(self._paths[0], dtype=np.int32, mode="r", offset=4 * begin, shape=(end - begin,))
            low, high = np.searchsorted(all_tokens, np.array([first, last], dtype=np.int32))
            for column, path in zip(columns, self._paths, strict=True):
                column.append(np.fromfile(path, dtype=np.int32, count=high - low, offset=4 * (begin + low)))
        tokens, documents, counts = (np.concatenate(column) for column in columns)
        order = np.argsort(tokens, kind="stable")  # chunks are in document order
        return tokens[order], documents[order], counts[order]


def _begin(file: IO[bytes], length: int, dtype: np.dtype[Any]) -> None:
    """Write the header of a NumPy file whose data follow."""
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (length,)}
    np.lib.format.write_array_header_1_0(file, header)
    file.flush()
    os.lseek(file.fileno(), 0, os.SEEK_END)
