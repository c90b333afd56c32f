"""Encoding on a Ray cluster: workers, each with an encoder of its own, write the pieces that they encode to files.

Decides what becomes of a worker that dies. A worker is told which rows a piece has, reads the passages itself, and
returns the name of the piece's file: nothing heavy goes through Ray. Does not know how an index is built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np

from reasonrag.errors import InputError, RunStopped, first_line
from reasonrag.retrieval.dense.encoders import Encoder, EncoderChoice, resolved
from reasonrag.retrieval.dense.piece_encoding import EncodingJob
from reasonrag.retrieval.dense.piece_worker import Worker
from reasonrag.retrieval.dense.vector_store import Piece, Storable, read_slice
from reasonrag.retrieval.settings import Precision
from reasonrag.scale.ray_cluster import errors_of_workers, ray_cluster

DEATHS_OF_A_PIECE = 3
"""Workers that may die over one piece before the build stops: a fourth would die of the same cause."""


class RayEncoding(ExitStack):
    """Where passages are encoded (`piece_encoding.Encoding`); leave it as a context manager to leave the cluster.

    address, workers: see `IndexSettings`.
    """

    def __init__(self, *, address: str | None, workers: int | None, say: Callable[[str], None]) -> None:
        super().__init__()
        self.devices: tuple[str, ...] = ()
        self._address, self._workers, self._say = address, workers, say

    def load(
        self, choice: EncoderChoice, *, devices: Sequence[str], precision: Precision | None, batch_size: int
    ) -> Encoder:
        """The encoder as a first worker has it. devices: `cpu` or `cuda`; none: GPUs, if the cluster has any."""
        if len(devices) > 1 or not set(devices) <= {"cpu", "cuda"}:
            raise InputError("with --on ray --device is cpu or cuda: each worker has the GPU that Ray gives it")
        self._ray = ray = self.enter_context(ray_cluster(self._address, workers=self._workers or 1))
        there = ray.cluster_resources()
        self._on_gpus = "cuda" in devices or (bool(there.get("GPU")) and not devices)
        resource = "GPU" if self._on_gpus else "CPU"
        self._most = self._workers or max(1, int(there.get(resource, 1)))
        self._choice = choice.model_copy(update={"model": resolved(choice.model)})
        first = self._worker(precision, batch_size)

        def answer(of: Any) -> Any:
            while not ray.wait([of], timeout=60)[0]:
                free = f"{ray.available_resources().get(resource, 0):g} of {there.get(resource, 0):g} {resource}s"
                self._say(f"waiting for a worker; free on the cluster: {free}")
            with errors_of_workers(ray, "a worker of the Ray cluster"):
                return ray.get(of)

        spec, precision, device, at_once = answer(first.look.remote())
        self.devices = (device,)
        return Encoder(
            spec,
            precision,
            self.devices,
            lambda texts: np.asarray(answer(first.embed.remote(texts))),
            lambda texts: list(answer(first.lengths.remote(texts))),
            at_once,
            close=lambda: ray.kill(first),
        )

    def pieces(
        self, job: EncodingJob, encoder: Encoder, owed: Sequence[Piece], reached: Callable[[int], None]
    ) -> Iterator[tuple[Piece, Storable]]:
        from ray.util import ActorPool

        encoder.close()  # its GPU is needed
        job = replace(job, corpus=job.corpus.resolve(), folder=job.folder.resolve(), slices=job.slices.resolve())
        job.slices.mkdir(exist_ok=True)
        used, done = set[str](), 0
        with errors_of_workers(self._ray, "a worker of the Ray cluster"):
            pool = ActorPool([self._worker(job.precision, job.batch_size, job) for _ in owed[: self._most]])
            for found in pool.map_unordered(lambda each, piece: each.encode.remote(piece), owed) if owed else ():
                piece, path = found.piece, job.slices / found.name
                try:
                    vectors = read_slice(path)
                except (OSError, ValueError) as error:
                    raise RunStopped(
                        f"a worker on {found.host} wrote {path}, which cannot be read here as it was written "
                        f"({first_line(error)}). All machines must share the file system of this folder; the same "
                        "command continues"
                    ) from error
                yield piece, vectors
                path.unlink(missing_ok=True)
                used.add(found.device)
                done += piece.stop - piece.start
                reached(done)
        self.devices = tuple(sorted(used))

    def _worker(self, precision: Precision | None, batch_size: int, job: EncodingJob | None = None) -> Any:
        needs = {"num_gpus": 1} if self._on_gpus else {"num_cpus": 1}
        if job:  # Ray starts it again, and asks it again
            needs |= {"max_restarts": -1, "max_task_retries": DEATHS_OF_A_PIECE}
        device = "cuda:0" if self._on_gpus else "cpu"  # Ray shows a worker no other GPU
        return self._ray.remote(Worker).options(**needs).remote(self._choice, device, precision, batch_size, job)
