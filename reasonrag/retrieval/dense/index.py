"""Searching dense indexes: queries are encoded, faiss finds candidates, stored vectors give the final scores.

Decides how candidates are rescored, and which encoder an index opens for queries. Does not know models (`encoders`),
the vector files (`vector_pieces`), faiss (`faiss_index`) or how an index is built (`build`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from reasonrag.errors import InputError
from reasonrag.retrieval.dense.encoders import AGREES, Encoder, EncoderChoice, load_encoder, short_name
from reasonrag.retrieval.dense.faiss_index import STREAMED, FaissIndex, FaissVectors
from reasonrag.retrieval.dense.manifest import DenseManifest
from reasonrag.retrieval.dense.vector_pieces import StoredVectors, VectorRows
from reasonrag.retrieval.ranking import Ranked, best

SPARE = 32
"""Extra candidates beyond `depth`: matrix products differ in their last digits between batches, but the cut must not.
Final scores are computed one passage at a time."""
TIED = 2e-6
"""Scores that differ by less may swap order between batches."""
MORE = 16
"""Factor by which more candidates are examined if scores are tied at the cut."""
MOST_CANDIDATES = 20_000
"""Most candidates examined to resolve ties."""
MOST_ON_GPUS = 2048
"""Most candidates that faiss returns on a GPU."""


def stored_vectors(directory: Path, manifest: DenseManifest) -> VectorRows:
    """The vectors of a finished index. Raises InputError if they are missing or cut off."""
    path = directory / manifest.vectors
    return FaissVectors(path) if manifest.adopted else StoredVectors(path)


def open_encoder(manifest: DenseManifest, choice: EncoderChoice | None = None) -> Encoder:
    """The query encoder of an index: its own, or the chosen one with the index's settings."""
    given = choice.model_dump(exclude_none=True) if choice else {}
    return load_encoder(manifest.encoder.choice.model_copy(update=given), precision="fp32", alone=True)


class DenseIndex:
    """An open dense index.

    encoder: for queries; must be the one that encoded the passages, as the probe's vector tells, whatever its name.
        Raises InputError for another one, and for files that are missing or cut off. That files belong together is
        known by their digests in the manifest.
    """

    instant = False

    def __init__(self, directory: Path, manifest: DenseManifest, encoder: Encoder, *, gpu: bool = False) -> None:
        file, alike = manifest.file, encoder.similarity(manifest.probe)
        if alike < AGREES:
            raise InputError(
                f"the encoder {encoder.spec.model} is not the one {directory} was built with: the same query gets "
                f"another vector (cosine {alike:.3f}). Use --encoder {manifest.encoder.model}"
            )
        self._vectors = stored_vectors(directory, manifest)
        self._plan, self._encoder = file.plan, encoder
        self._most = 0 if file.plan.type not in STREAMED else MOST_ON_GPUS if gpu else MOST_CANDIDATES
        self._neighbours = FaissIndex(directory / file.file, file.plan, gpu=gpu)
        # the settings that decide a query's vector, without names and weights
        described = encoder.spec.model_dump_json(exclude={"model", "backend", "revision"})
        self.identity = (
            f"dense:{manifest.corpus_sha256[:16]}:{manifest.vectors_sha256[:16]}:{file.plan.type}:"
            f"{manifest.files[file.file].sha256[:8]}:nprobe={file.plan.nprobe},ef={file.plan.ef_search},"
            f"refine={file.plan.refine}:{short_name(encoder.spec.model)}:"
            f"{hashlib.sha256(described.encode()).hexdigest()[:8]}"
        )

    def rank(self, queries: Sequence[str], depth: int) -> list[Ranked]:
        """Rows by inner product with the query's vector, best first, ties in corpus order.

        A query whose vector is zero finds nothing. If the worst candidate ties with the last kept passage, more
        candidates are examined, because faiss' choice among equals varies between batches. Not for indexes that search
        only some cells or a graph: their choice does not vary, and a complete search is impossible anyway.
        """
        vectors = self._encoder.queries(queries)
        found = [Ranked.empty()] * len(vectors)
        asked, open_ones = depth * self._plan.refine + SPARE, np.flatnonzero(vectors.any(axis=1))
        while len(open_ones):
            candidates = self._neighbours.search(vectors[open_ones], asked)
            tied = []
            for query, rows in zip(open_ones.tolist(), candidates, strict=True):
                scores = (self._vectors.take(rows) * vectors[query]).sum(axis=1, dtype=np.float64)
                found[query] = best(rows, scores, depth)
                if len(rows) == asked < self._most and scores.min() >= found[query].scores[-1] - TIED:
                    tied.append(query)
            asked, open_ones = min(asked * MORE, self._most), np.array(tied, dtype=np.int64)
        return found
