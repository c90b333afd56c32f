"""Encoding on a Ray cluster: workers, each with an encoder of its own, return the vectors of the pieces they are given.

Decides which device a worker has, and what becomes of one that dies. Passages and vectors travel through Ray, so the
machines need no common file system. Does not know how an index is built.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from reasonrag.errors import InputError
from reasonrag.retrieval.dense.build import EncodedPiece, encoded
from reasonrag.retrieval.dense.encoders import AGREES, Encoder, EncoderSpec, load_encoder
from reasonrag.retrieval.dense.vector_pieces import Piece
from reasonrag.retrieval.settings import Precision
from reasonrag.scale.ray_cluster import errors_of_workers, ray_cluster

DEATHS_OF_A_PIECE = 3
"""Workers that may die over one piece before the build stops: a fourth would die of the same cause."""


@dataclass(frozen=True)
class RayEncoding:
    """An `Encoding` by the workers of a cluster, one for each of its GPUs, else for each of its CPUs.

    workers: at most so many. batch_size: passages that a worker encodes at once.
    """

    workers: int | None
    batch_size: int

    def __call__(
        self,
        encoder: Encoder,
        owed: Iterable[Piece],
        texts: Callable[[Piece], list[str]],
        reached: Callable[[int], None],
    ) -> Iterator[EncodedPiece]:
        own = encoder.spec, encoder.precision, self.batch_size, encoder.probe()
        with ray_cluster(workers=self.workers or 1) as ray, errors_of_workers(ray, "a worker of the Ray cluster"):
            from ray.util import ActorPool

            resource, needs = ("GPU", "num_gpus") if ray.cluster_resources().get("GPU") else ("CPU", "num_cpus")
            most = self.workers or max(1, int(ray.cluster_resources().get(resource, 1)))
            kind = ray.remote(**{needs: 1}, max_restarts=-1, max_task_retries=DEATHS_OF_A_PIECE)(EncodingWorker)
            pieces = list(owed)
            pool = ActorPool([kind.remote(*own) for _ in pieces[:most]])
            for found in pool.map_unordered(lambda actor, piece: actor.encode.remote(piece, texts(piece)), pieces):
                reached(len(found.vectors))
                yield found


@dataclass
class EncodingWorker:
    """The actor of one worker. precision, probe: of the encoder of the process that builds the index."""

    spec: EncoderSpec
    precision: Precision
    batch_size: int
    probe: str

    @cached_property
    def encoder(self) -> Encoder:
        """Loaded when it is first needed, as a worker that fails at its start would be started again. Raises InputError
        for other weights than those of the probe."""
        found = load_encoder(self.spec.choice, precision=self.precision, batch_size=self.batch_size, alone=True)
        if found.similarity(self.probe) < AGREES:
            raise InputError(
                f"{self.spec.model} is another encoder on {socket.gethostname()} than here: the same query gets "
                "another vector. Give all machines the same files"
            )
        return found

    def encode(self, piece: Piece, texts: list[str]) -> EncodedPiece:
        return EncodedPiece(piece, encoded(texts, self.encoder), self.encoder.devices)
