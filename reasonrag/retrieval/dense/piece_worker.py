"""A worker in another process, perhaps on another machine, that encodes pieces of a corpus and writes them to files.

It is told which rows a piece has, reads the passages itself, and returns the name of the piece's file. Does not know
what started it, nor how an index is built.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from functools import cached_property

from reasonrag.data.corpus import Corpus
from reasonrag.errors import InputError
from reasonrag.retrieval.dense.encoders import Encoder, EncoderChoice, EncoderSpec, Vectors, load_encoder
from reasonrag.retrieval.dense.index import AGREES, first_difference, probe_similarity
from reasonrag.retrieval.dense.piece_encoding import EncodingJob
from reasonrag.retrieval.dense.vector_store import Piece, write_slice
from reasonrag.retrieval.settings import Precision


@dataclass(frozen=True)
class Slice:
    """A piece that was encoded. name: of its file in `EncodingJob.slices`."""

    piece: Piece
    name: str
    device: str
    host: str


@dataclass
class Worker:
    """Encodes pieces. device: of torch. job: None in the first worker, which encodes only the probe."""

    choice: EncoderChoice
    device: str
    precision: Precision | None
    batch_size: int
    job: EncodingJob | None = None

    @cached_property
    def _encoder(self) -> Encoder:
        """Loaded when it is first needed, as a worker that fails at its start would be started again. Raises InputError
        for other weights than the first worker's."""
        size = self.batch_size
        found = load_encoder(self.choice, devices=[self.device], precision=self.precision, batch_size=size, alone=True)
        if job := self.job:
            differs = first_difference(job.spec, found.spec) if found.spec != job.spec else ""
            if not differs and probe_similarity(job.probe, found) < AGREES:
                differs = "other weights"
            if differs:
                here = socket.gethostname()
                raise InputError(f"{job.spec.model} is another encoder on {here} than in the first worker ({differs})")
        return found

    @cached_property
    def _corpus(self) -> Corpus:
        assert self.job  # noqa: S101 - it encodes pieces
        return self.job.open_corpus()

    def look(self) -> tuple[EncoderSpec, Precision, str, int]:
        """Its encoder: what it is, the device, and how many passages it encodes at once."""
        return self._encoder.spec, self._encoder.precision, self._device_name, self._encoder.at_once

    @property
    def _device_name(self) -> str:
        if self.device == "cpu":
            return self.device
        import torch

        return str(torch.cuda.get_device_name(0))

    def lengths(self, texts: list[str]) -> list[int]:
        return self._encoder.lengths(texts)

    def embed(self, texts: list[str]) -> Vectors:
        return self._encoder.embed(texts)

    def encode(self, piece: Piece) -> Slice:
        """Where the piece's vectors are."""
        assert self.job  # noqa: S101
        vectors = self.job.encoded(piece, self._corpus, self._encoder)
        name = write_slice(self.job.slices, piece.number, vectors)
        return Slice(piece, name, self._device_name, socket.gethostname())
