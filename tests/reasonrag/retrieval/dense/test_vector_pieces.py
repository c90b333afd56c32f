"""Vectors on disk: what survives a kill, and that what is read is what was written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasonrag.errors import InputError
from reasonrag.retrieval.dense.build_watcher import row_ranges
from reasonrag.retrieval.dense.vector_pieces import ENCODED, PIECE, VECTORS, StoredVectors, VectorWriter

ROWS, DIMENSION = 2 * PIECE + 100, 4


def made_up(rows: int = ROWS, dimension: int = DIMENSION) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((rows, dimension)).astype(np.float32)


def write(directory: Path, pieces: list[int] | None = None) -> str:
    """Write some of the pieces, all by default; the digest of what is there."""
    vectors = made_up().astype(np.float16)
    with VectorWriter(directory, rows=ROWS, dimension=DIMENSION) as writer:
        for number, start, stop in list(writer.owed()):
            if pieces is None or number in pieces:
                writer.write(number, vectors[start:stop])
        return writer.sha256


def test_what_is_read_is_what_was_written_in_fp16(tmp_path: Path) -> None:
    """By stretch and by row, and by NumPy itself: the file is a plain one."""
    write(tmp_path)
    stored = StoredVectors(tmp_path / VECTORS)
    expected = made_up().astype(np.float16)
    assert (stored.rows, stored.dimension) == (ROWS, DIMENSION)
    assert np.array_equal(stored.read(0, ROWS), expected.astype(np.float32))
    assert np.array_equal(stored.read(PIECE - 3, PIECE + 3), expected[PIECE - 3 : PIECE + 3].astype(np.float32))
    rows = np.array([ROWS - 1, 0, PIECE])
    assert np.array_equal(stored.take(rows), expected[rows].astype(np.float32))
    assert np.array_equal(np.load(tmp_path / VECTORS), expected)


@pytest.mark.parametrize("first", [[], [0], [1], [0, 1], [2], [0, 1, 2]])
def test_pieces_that_are_on_disk_are_not_owed_again(first: list[int], tmp_path: Path) -> None:
    """Whatever was written before, going on ends with the same bytes and the same digest."""
    whole, again = tmp_path / "whole", tmp_path / "again"
    whole.mkdir()
    again.mkdir()
    write(again, first)
    with VectorWriter(again, rows=ROWS, dimension=DIMENSION) as writer:
        assert [number for number, _, _ in writer.owed()] == [number for number in range(3) if number not in first]
        assert writer.encoded == sum(
            stop - start for n, (start, stop) in enumerate(row_ranges(ROWS, PIECE)) if n in first
        )
    assert write(again) == write(whole)
    assert (again / VECTORS).read_bytes() == (whole / VECTORS).read_bytes()


def test_a_line_that_was_torn_by_a_kill_makes_its_piece_owed(tmp_path: Path) -> None:
    """The line is written after the piece is synced; half a line is no line."""
    digest = write(tmp_path)
    log = (tmp_path / ENCODED).read_bytes()
    (tmp_path / ENCODED).write_bytes(log[:-10])
    with VectorWriter(tmp_path, rows=ROWS, dimension=DIMENSION) as writer:
        assert [number for number, _, _ in writer.owed()] == [2]
    assert write(tmp_path) == digest


def test_vectors_that_are_cut_off_are_refused(tmp_path: Path) -> None:
    """Not read as fewer vectors."""
    write(tmp_path)
    whole = (tmp_path / VECTORS).read_bytes()
    for left in (0, 50, 1000):
        (tmp_path / VECTORS).write_bytes(whole[:left])
        with pytest.raises(InputError, match=r"vectors\.npy cannot be read .*delete the index and build it again"):
            StoredVectors(tmp_path / VECTORS)


@given(rows=st.integers(0, 100), size=st.integers(1, 30))
def test_stretches_cover_every_row_once_and_in_order(rows: int, size: int) -> None:
    """None is empty and none is longer than asked."""
    found = list(row_ranges(rows, size))
    assert [row for start, stop in found for row in range(start, stop)] == list(range(rows))
    assert all(0 < stop - start <= size for start, stop in found)
