"""Bytes that are on disk, or are not there at all; and folders that are built by one process at a time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reasonrag.errors import InputError


def append_durably(descriptor: int, content: bytes, *, end: int, sync: bool = True) -> None:
    """Write all of `content` at the end of an unbuffered file and sync it; or leave the file ending at `end`.

    Raises OSError, of a full disk for one.
    """
    try:
        left = memoryview(content)
        while left:
            left = left[os.write(descriptor, left) :]
        if sync:
            os.fdatasync(descriptor)
    except OSError:
        os.ftruncate(descriptor, end)
        raise


@contextmanager
def building(directory: Path) -> Iterator[None]:
    """The right to build in `directory`, across processes; others wait. Raises InputError where that cannot be."""
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        lock = directory.with_name(f".{directory.name}.lock").open("wb")
    except OSError as error:
        raise unwritable(directory, error) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def unwritable(directory: Path, error: OSError) -> InputError:
    return InputError(f"cannot write {directory}: {error.strerror or error}. Choose another place for it")
