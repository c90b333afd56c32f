"""Bytes that are on disk, or are not there at all."""

from __future__ import annotations

import os


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
