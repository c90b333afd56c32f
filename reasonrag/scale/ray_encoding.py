"""Encoding on a Ray cluster: workers, each with an encoder of its own, write the pieces that they encode to files.

Decides what a worker needs and has to see before it begins, and what becomes of one that dies. A worker is told which
rows a piece has, reads the passages itself, and returns the name of the piece's file: nothing heavy goes through Ray.
Does not know how a cluster is found (`ray_cluster`), nor how an index is built.
"""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from reasonrag.errors import InputError, ReasonragError, RunStopped, first_line
from reasonrag.retrieval.dense.encoders import Encoder, EncoderChoice, EncoderSpec, Vectors, load_encoder, resolved
from reasonrag.retrieval.dense.index import AGREES, first_difference, probe_similarity
from reasonrag.retrieval.dense.piece_encoding import EncodingJob
from reasonrag.retrieval.dense.vector_store import Piece, Storable, read_slice, write_slice
from reasonrag.retrieval.settings import Precision
from reasonrag.scale.ray_cluster import ray_cluster

DEATHS_OF_A_PIECE = 3
"""Workers that may die over one piece before the build stops: a fourth would die of the same cause."""
SAID_EVERY_S = 60.0


class RayEncoding:
    """Where passages are encoded (`piece_encoding.Encoding`); leave it as a context manager to leave the cluster.

    corpus, directory: of the build, below the same paths on every machine. address, workers: see `IndexSettings`.
    """

    def __init__(
        self, corpus: Path, directory: Path, *, address: str | None, workers: int | None, say: Callable[[str], None]
    ) -> None:
        self.devices: tuple[str, ...] = ()
        self._corpus, self._directory = corpus.resolve(), directory.resolve()
        self._address, self._workers, self._say = address, workers, say
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def load(
        self, choice: EncoderChoice, *, devices: Sequence[str], precision: Precision | None, batch_size: int
    ) -> Encoder:
        """The encoder as a first worker has it. devices: `cpu` or `cuda`; none: GPUs, if the cluster has any. Raises
        InputError also for a cluster whose workers do not see the files of this machine."""
        self._ray = ray = self._opened.enter_context(ray_cluster(self._address, workers=self._workers or 1))
        there = ray.cluster_resources()
        self._kind = _kind(devices, gpus=int(there.get("GPU", 0)))
        self._most = self._workers or max(1, int(there.get("GPU" if self._kind == "cuda" else "CPU", 1)))
        choice = choice.model_copy(update={"model": resolved(choice.model)})
        with _stopping(ray), tempfile.NamedTemporaryFile(dir=self._directory.parent, prefix=".seen-") as marker:
            place = Place(self._corpus, *_size_and_time(self._corpus), Path(marker.name))
            loading = Loading(choice, self._kind, precision, batch_size)
            first = ray.remote(Worker).options(**self._needs()).remote(place, loading)
            found = first.look.remote()
            while not ray.wait([found], timeout=SAID_EVERY_S)[0]:
                self._say(f"waiting for a worker; free on the cluster: {_free(ray, self._kind)}")
            seen: Seen | str = ray.get(found)
        if isinstance(seen, str):
            raise InputError(seen)

        self.devices = (seen.device,)

        def lengths(texts: list[str]) -> list[int]:
            with _stopping(ray):
                return list(ray.get(first.lengths.remote(texts)))

        def embed(texts: list[str]) -> Vectors:
            with _stopping(ray):
                return np.asarray(ray.get(first.embed.remote(texts)))

        return Encoder(
            seen.spec, seen.precision, self.devices, embed, lengths, seen.at_once, close=lambda: ray.kill(first)
        )

    def pieces(
        self, job: EncodingJob, encoder: Encoder, owed: Sequence[Piece], reached: Callable[[int], None]
    ) -> Iterator[tuple[Piece, Storable]]:
        encoder.close()  # its GPU is needed
        if not owed:
            return
        job = replace(job, corpus=self._corpus, folder=job.folder.resolve(), slices=job.slices.resolve())
        job.slices.mkdir(exist_ok=True)
        used, done = set[str](), 0
        with _stopping(self._ray):
            for found in self._slices(job, owed):
                if isinstance(found, str):
                    raise InputError(found)
                path = job.slices / found.name
                try:
                    vectors = read_slice(path)
                except (OSError, ValueError) as error:
                    raise RunStopped(
                        f"a worker on {found.host} wrote {path}, which cannot be read here as it was written "
                        f"({first_line(error)}). All machines must share the file system of this folder; the same "
                        "command continues"
                    ) from error
                yield found.piece, vectors
                path.unlink(missing_ok=True)
                used.add(found.device)
                done += found.piece.stop - found.piece.start
                reached(done)
        self.devices = tuple(sorted(used))

    def _slices(self, job: EncodingJob, owed: Sequence[Piece]) -> Iterator[Slice | str]:
        """What `Worker.encode` returns of each piece, in any order."""
        from ray.util import ActorPool

        place = Place(job.corpus, job.corpus_bytes, job.corpus_mtime_ns, job.folder)
        loading = Loading(job.spec.choice, self._kind, job.precision, job.batch_size)
        worker = self._ray.remote(Worker).options(max_restarts=-1, max_task_retries=DEATHS_OF_A_PIECE, **self._needs())
        pool = ActorPool([worker.remote(place, loading, job) for _ in range(min(self._most, len(owed)))])
        yield from pool.map_unordered(lambda each, piece: each.encode.remote(piece), owed)

    def _needs(self) -> dict[str, int]:
        return {"num_gpus": 1} if self._kind == "cuda" else {"num_cpus": 1}


# -- in a worker -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """What a worker must find under the same paths as the machine that asks. marker: a file or folder of the build."""

    corpus: Path
    corpus_bytes: int
    corpus_mtime_ns: int
    marker: Path

    def check(self) -> None:
        """Raises InputError."""
        shared = "Every machine must have it under this path, on a file system that they share"
        try:
            same = _size_and_time(self.corpus) == (self.corpus_bytes, self.corpus_mtime_ns)
        except OSError:
            same = False
        if not same:
            raise InputError(f"a worker on {socket.gethostname()} does not see this corpus at {self.corpus}. {shared}")
        if not self.marker.exists():
            raise InputError(
                f"a worker on {socket.gethostname()} does not see the build's files in {self.marker.parent}. {shared}"
            )
        if not os.access(self.marker.parent, os.W_OK):
            raise InputError(f"a worker on {socket.gethostname()} may not write in {self.marker.parent}")


@dataclass(frozen=True)
class Loading:
    choice: EncoderChoice
    kind: Literal["cpu", "cuda"]
    precision: Precision | None
    batch_size: int

    def encoder(self) -> Encoder:
        return load_encoder(
            self.choice,
            devices=["cuda:0" if self.kind == "cuda" else "cpu"],  # Ray shows a worker no GPU but its own
            precision=self.precision,
            batch_size=self.batch_size,
            alone=True,
        )


@dataclass(frozen=True)
class Seen:
    """The encoder of a worker."""

    spec: EncoderSpec
    precision: Precision
    device: str
    at_once: int


@dataclass(frozen=True)
class Slice:
    """A piece that was encoded. name: of its file in `EncodingJob.slices`."""

    piece: Piece
    name: str
    device: str
    host: str


class Worker:
    """Encodes pieces in a process of the cluster. What is wrong is returned, not raised: Ray would raise a traceback of
    its own, and start the worker again.

    job: None in the first worker, which encodes only the probe.
    """

    def __init__(self, place: Place, loading: Loading, job: EncodingJob | None = None) -> None:
        self._fault, self._job = "", job
        try:
            place.check()
            self._encoder = loading.encoder()
            if job:
                self._check_encoder(job)
                self._corpus = job.open_corpus()
        except (ReasonragError, OSError) as error:
            self._fault = str(error)
        self._device = _device(loading.kind)

    def _check_encoder(self, job: EncodingJob) -> None:
        """Raises InputError for other weights than the first worker's."""
        differs = first_difference(job.spec, self._encoder.spec) if self._encoder.spec != job.spec else ""
        if not differs and probe_similarity(job.probe, self._encoder) < AGREES:
            differs = "other weights"
        if differs:
            raise InputError(
                f"{job.spec.model} is another encoder on {socket.gethostname()} than in the first worker ({differs})"
            )

    def look(self) -> Seen | str:
        """Its encoder, or why it cannot work."""
        if self._fault:
            return self._fault
        return Seen(self._encoder.spec, self._encoder.precision, self._device, self._encoder.at_once)

    def lengths(self, texts: list[str]) -> list[int]:
        return self._encoder.lengths(texts)

    def embed(self, texts: list[str]) -> Vectors:
        return self._encoder.embed(texts)

    def encode(self, piece: Piece) -> Slice | str:
        """Where the piece's vectors are, or why there are none."""
        if self._fault or not self._job:
            return self._fault
        try:
            vectors = self._job.encoded(piece, self._corpus, self._encoder)
            name = write_slice(self._job.slices, piece.number, vectors)
        except (ReasonragError, OSError) as error:
            return str(error)
        return Slice(piece, name, self._device, socket.gethostname())


def _device(kind: Literal["cpu", "cuda"]) -> str:
    if kind == "cpu":
        return "cpu"
    import torch

    return str(torch.cuda.get_device_name(0))


# -- here ------------------------------------------------------------------------------------------------------


def _kind(devices: Sequence[str], *, gpus: int) -> Literal["cpu", "cuda"]:
    if len(devices) > 1 or not set(devices) <= {"cpu", "cuda"}:
        raise InputError("with --on ray --device is cpu or cuda: each worker has the GPU that Ray gives it")
    return "cuda" if "cuda" in devices or (gpus and not devices) else "cpu"


def _size_and_time(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def _free(ray: Any, kind: Literal["cpu", "cuda"]) -> str:
    name = "GPU" if kind == "cuda" else "CPU"
    return f"{ray.available_resources().get(name, 0):g} of {ray.cluster_resources().get(name, 0):g} {name}s"


@contextmanager
def _stopping(ray: Any) -> Iterator[None]:
    """What Ray raises, as the end of this session."""
    try:
        yield
    except ray.exceptions.RayError as error:
        cause = error
        while isinstance(cause.__cause__, Exception):
            cause = cause.__cause__
        raise RunStopped(
            f"a worker of the Ray cluster could not go on: {first_line(cause).rstrip('.')}. Ray's logs on its machine "
            "say more; every machine needs this version of reasonrag, with the embed extra. Finished vectors are kept, "
            "and the same command continues"
        ) from error
