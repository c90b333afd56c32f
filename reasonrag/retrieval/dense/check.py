"""Checks of dense indexes against their manifest: hashes, rows, and recall against an exact search."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from reasonrag.errors import InputError
from reasonrag.retrieval.dense.build_progress import BuildWatcher, row_ranges
from reasonrag.retrieval.dense.faiss_index import open_faiss_index
from reasonrag.retrieval.dense.index import SPARE, stored_vectors
from reasonrag.retrieval.dense.manifest import DenseManifest, damaged_files
from reasonrag.retrieval.dense.vector_store import VectorRows
from reasonrag.retrieval.ranking import best
from reasonrag.retrieval.settings import IndexType


@dataclass(frozen=True)
class RecallAgainstExact:
    """Recall of an approximate index against an exact search. queries: number of corpus passages used as queries."""

    index_type: IndexType
    queries: int
    at: int
    recall: float


def recall_against_exact(
    directory: Path, manifest: DenseManifest, index_type: IndexType, *, queries: int, at: int, seed: int = 0
) -> RecallAgainstExact:
    """Recall@`at` of an index type against an exact search over all stored vectors, both with the index's search
    settings.

    The queries are stored vectors plus noise of half their length in a random direction.
    """
    file, vectors = manifest.file_of(index_type, directory), stored_vectors(directory, manifest)
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.choice(vectors.rows, size=min(queries, vectors.rows), replace=False))
    asked = vectors.take(rows)
    noise = rng.standard_normal(asked.shape).astype(np.float32)
    noise *= np.linalg.norm(asked, axis=1, keepdims=True) / np.linalg.norm(noise, axis=1, keepdims=True)
    asked = np.asarray(asked + noise / 2, dtype=np.float32)
    exact = _exact(vectors, asked, at)
    opened = open_faiss_index(directory / file.file, file.plan)
    found = opened.search(asked, at * file.plan.refine + SPARE)
    hits = 0
    for query, candidates, truth in zip(asked, found, exact, strict=True):
        kept = best(candidates, (vectors.take(candidates) * query).sum(axis=1, dtype=np.float64), at)
        hits += len(np.intersect1d(kept.rows, truth))
    return RecallAgainstExact(index_type, len(rows), at, hits / max(1, exact.size))


def _exact(vectors: VectorRows, queries: npt.NDArray[np.float32], at: int) -> npt.NDArray[np.int64]:
    """The rows of the best vectors of each query, [n, at], by exhaustive search."""
    at = min(at, vectors.rows)
    scores: npt.NDArray[np.float32] = np.empty((len(queries), 0), dtype=np.float32)
    rows = np.empty((len(queries), 0), dtype=np.int64)
    for start, stop in row_ranges(vectors.rows):
        block: npt.NDArray[np.float32] = queries @ vectors.read(start, stop).T
        scores = np.hstack([scores, block])
        rows = np.hstack([rows, np.broadcast_to(np.arange(start, stop), (len(queries), stop - start))])
        kept: npt.NDArray[np.int64] = np.argpartition(-scores, at - 1, axis=1)[:, :at]
        scores, rows = np.take_along_axis(scores, kept, axis=1), np.take_along_axis(rows, kept, axis=1)
    return rows


def check_dense(
    directory: Path, manifest: DenseManifest, *, queries: int, at: int, watcher: BuildWatcher
) -> tuple[dict[str, str], list[RecallAgainstExact]]:
    """Faults of an index's files, by file, and the recall of every intact type."""
    watcher.say(f"reading the files of {directory}")
    faults = damaged_files(directory, manifest, manifest.all_files)
    recalls: list[RecallAgainstExact] = []
    vectors = manifest.vectors or manifest.read_back_from or ""
    try:
        if vectors not in faults:
            stored_vectors(directory, manifest)
    except InputError as error:
        faults[vectors] = str(error)
    if vectors in faults:
        return faults, []
    for index_type, file in manifest.indexes.items():
        if file.file in faults:
            continue
        watcher.say(f"searching {file.file}")
        try:
            opened = open_faiss_index(directory / file.file, file.plan)
            if (opened.rows, opened.dimension) != (manifest.passages, manifest.encoder.dimension):
                what = f"has {opened.rows:,} rows, the manifest says {manifest.passages:,}"
                faults[file.file] = f"{directory / file.file} {what}. {manifest.remedy(directory, file.file)}"
                continue
            recalls.append(recall_against_exact(directory, manifest, index_type, queries=queries, at=at))
        except InputError as error:
            faults[file.file] = str(error)
    return faults, recalls
