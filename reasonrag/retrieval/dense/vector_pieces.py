"""Vectors on disk: fp16, one row per passage, written in pieces so that a kill loses at most one piece.

`vectors.npy` is a plain NumPy file with its final size from the beginning; `encoded.jsonl` beside it has a line with
the SHA-256 of every finished piece. Knows neither encoders nor how vectors are compared.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import orjson

from reasonrag.errors import InputError
from reasonrag.files import append_durably
from reasonrag.retrieval.ranking import LOADING

VECTORS = "vectors.npy"
ENCODED = "encoded.jsonl"
PIECE = 4096
"""Passages per checkpoint: about 25 s on a CPU, 2 s on a GPU; large enough for sorting by length to pay off."""


class Piece(NamedTuple):
    """Consecutive passages that are encoded together. stop: the row after the last."""

    number: int
    start: int
    stop: int


class VectorRows(Protocol):
    """Vectors that can be read by row, as fp32."""

    rows: int
    dimension: int

    def read(self, start: int, stop: int) -> npt.NDArray[np.float32]:
        """[stop - start, dimension]"""

    def take(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """[len(rows), dimension], in the order of `rows`."""


class StoredVectors:
    """A finished `vectors.npy`. Searched rows are memory-mapped and shared; whole ranges are read around the map, so
    that they never count as this process' memory. Raises InputError for a file that is missing or cut off."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with LOADING:
                self._mapped = np.load(path, mmap_mode="r")
            self.rows, self.dimension = self._mapped.shape
        except (OSError, ValueError, EOFError) as error:
            raise InputError(
                f"the vectors {path} cannot be read ({error}); delete the index and build it again"
            ) from error
        self._begin = path.stat().st_size - self._mapped.nbytes

    def read(self, start: int, stop: int) -> npt.NDArray[np.float32]:
        begin, numbers = self._begin + 2 * start * self.dimension, (stop - start) * self.dimension
        content = np.fromfile(self.path, dtype=np.float16, count=numbers, offset=begin)
        return content.reshape(-1, self.dimension).astype(np.float32)

    def take(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        return np.asarray(self._mapped[rows], dtype=np.float32)


class VectorWriter(AbstractContextManager["VectorWriter"]):
    """Writes vectors in `directory`, resuming after a kill.

    A piece counts once it and its line are synced. Raises OSError if writing fails.
    """

    def __init__(self, directory: Path, *, rows: int, dimension: int) -> None:
        self.rows, self.dimension = rows, dimension
        self._vectors = (directory / VECTORS).open("r+b" if (directory / VECTORS).exists() else "w+b")
        header: dict[str, Any] = {"descr": "<f2", "fortran_order": False, "shape": (rows, dimension)}
        np.lib.format.write_array_header_1_0(self._vectors, header)
        self._begin = self._vectors.tell()
        self._vectors.truncate(self._begin + 2 * rows * dimension)
        self._log = (directory / ENCODED).open("a+b", buffering=0)
        self._done = dict(self._finished())

    def __exit__(self, *_: object) -> None:
        self._vectors.close()
        self._log.close()

    @property
    def encoded(self) -> int:
        """Passages whose vectors are on disk."""
        return sum(stop - start for number, start, stop in self._pieces() if number in self._done)

    def owed(self) -> Iterator[Piece]:
        """Every missing piece, in order."""
        return (each for each in self._pieces() if each.number not in self._done)

    def write(self, number: int, vectors: npt.NDArray[np.float16], *, seconds: float = 0.0) -> None:
        """Store a piece. seconds: time that it took."""
        content, seconds = vectors.tobytes(), round(seconds, 3)
        self._vectors.seek(self._begin + 2 * self.dimension * number * PIECE)
        self._vectors.write(content)
        self._vectors.flush()
        os.fsync(self._vectors.fileno())
        sha256 = hashlib.sha256(content).hexdigest()
        line = orjson.dumps({"piece": number, "sha256": sha256, "seconds": seconds}) + b"\n"
        append_durably(self._log.fileno(), line, end=self._log.seek(0, os.SEEK_END))
        self._done[number] = sha256, seconds

    @property
    def sha256(self) -> str:
        """Digest over all pieces' digests: identifies the vectors."""
        digests = [digest for _, (digest, _) in sorted(self._done.items())]
        return hashlib.sha256("".join(digests).encode()).hexdigest()

    @property
    def seconds(self) -> float:
        """Encoding time over all sessions."""
        return sum(seconds for _, seconds in self._done.values())

    def _pieces(self) -> Iterator[Piece]:
        return (Piece(number, *rows) for number, rows in enumerate(row_ranges(self.rows, PIECE)))

    def _finished(self) -> Iterator[tuple[int, tuple[str, float]]]:
        """Digest and seconds of the finished pieces. A torn or damaged line is dropped: its piece is encoded again."""
        self._log.seek(0)
        content = self._log.read()
        whole = content.rfind(b"\n") + 1
        os.ftruncate(self._log.fileno(), whole)
        for line in content[:whole].splitlines():
            try:
                record = orjson.loads(line)
                yield int(record["piece"]), (str(record["sha256"]), float(record["seconds"]))
            except (KeyError, TypeError, ValueError):
                continue


def row_ranges(rows: int, size: int = 16_384) -> Iterator[tuple[int, int]]:
    """(start, stop) of consecutive ranges that cover all rows."""
    return ((start, min(start + size, rows)) for start in range(0, rows, size))
