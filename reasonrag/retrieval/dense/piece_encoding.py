"""Encoding a corpus piece by piece: what a piece needs, and the loop over pieces in this process.

Decides in which order and batches the passages of a piece are encoded, so that a piece has the same vectors wherever it
is encoded, on devices of one kind. Does not know how vectors are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

import numpy as np

from reasonrag.data.corpus import Corpus
from reasonrag.errors import InputError
from reasonrag.retrieval.dense.build_progress import row_ranges
from reasonrag.retrieval.dense.encoders import Encoder, EncoderChoice, EncoderSpec, Vectors, load_encoder
from reasonrag.retrieval.dense.manifest import OFFSETS
from reasonrag.retrieval.dense.vector_store import Piece, Storable
from reasonrag.retrieval.settings import Precision


@dataclass(frozen=True)
class EncodingJob:
    """What decides the vectors of a corpus, and where it lies.

    corpus_bytes, corpus_mtime_ns: of the corpus when it was scanned. folder: of the unfinished build. slices: the
    folder in it for pieces that other processes write; it is named after what decides the vectors. probe: see
    `index.encoded_probe`.
    """

    corpus: Path
    corpus_bytes: int
    corpus_mtime_ns: int
    folder: Path
    slices: Path
    spec: EncoderSpec
    precision: Precision
    batch_size: int
    probe: str

    def open_corpus(self) -> Corpus:
        return Corpus(self.corpus, np.load(self.folder / OFFSETS, mmap_mode="r"))

    def encoded(
        self, piece: Piece, corpus: Corpus, encoder: Encoder, reached: Callable[[int], None] = lambda _: None
    ) -> Vectors:
        """The vectors of a piece. reached: called with the passages of it that are encoded. Raises InputError if the
        corpus has changed since it was scanned, or the encoder fails."""
        now = self.corpus.stat()
        if (now.st_size, now.st_mtime_ns) != (self.corpus_bytes, self.corpus_mtime_ns):
            raise InputError(
                f"the corpus {self.corpus} was changed while it was encoded: restore the file and run the "
                f"same command, or delete {self.folder}"
            )
        return _vectors([each.contents for each in corpus.read(piece.start, piece.stop)], encoder, reached)


Encoded: TypeAlias = Iterable[tuple[Piece, Storable]]


class Encoding(Protocol):
    """Where passages are encoded. `devices`: those that were used, once all pieces are encoded."""

    @property
    def devices(self) -> Sequence[str]: ...

    def load(
        self, choice: EncoderChoice, *, devices: Sequence[str], precision: Precision | None, batch_size: int
    ) -> Encoder:
        """As `load_encoder`; the encoder is used before the first piece."""
        ...

    def pieces(
        self, job: EncodingJob, encoder: Encoder, owed: Sequence[Piece], reached: Callable[[int], None]
    ) -> Encoded:
        """Every piece that is owed with its vectors, in any order. A piece is kept when the next is asked for.

        reached: called with the passages encoded so far. Raises as `EncodingJob.encoded`.
        """
        ...


class EncodingHere:
    """In this process, or those that the encoder starts for its devices."""

    devices: Sequence[str] = ()

    def load(
        self, choice: EncoderChoice, *, devices: Sequence[str], precision: Precision | None, batch_size: int
    ) -> Encoder:
        encoder = load_encoder(choice, devices=devices, precision=precision, batch_size=batch_size)
        self.devices = encoder.devices
        return encoder

    def pieces(
        self, job: EncodingJob, encoder: Encoder, owed: Sequence[Piece], reached: Callable[[int], None]
    ) -> Iterator[tuple[Piece, Vectors]]:
        corpus, done = job.open_corpus(), 0
        for piece in owed:
            yield piece, job.encoded(piece, corpus, encoder, lambda rows, done=done: reached(done + rows))  # type: ignore[misc]
            done += piece.stop - piece.start


def _vectors(texts: list[str], encoder: Encoder, reached: Callable[[int], None]) -> Vectors:
    """Encode longest texts first, so that batches have similar lengths, and a few batches at a time, to show
    progress."""
    order = sorted(range(len(texts)), key=lambda row: -len(texts[row]))
    vectors = np.empty((len(texts), encoder.spec.dimension), dtype=np.float32)
    for start, stop in row_ranges(len(texts), encoder.at_once):
        rows = order[start:stop]
        try:
            vectors[rows] = encoder.passages(texts[row] for row in rows)
        except RuntimeError as error:  # from torch, for example out of memory
            raise InputError(
                f"passages cannot be encoded: {next(iter(str(error).splitlines()), '')}. Try a smaller "
                "--batch-size; finished vectors are kept, and the same command continues"
            ) from error
        reached(stop)
    if not np.isfinite(vectors.astype(np.float16)).all():
        raise InputError(
            f"{encoder.spec.model} produces NaN or infinite vectors in {encoder.precision}; try --precision fp32"
        )
    return vectors
