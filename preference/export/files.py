"""Atomic replacement of files, and the JSON layout used in them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import BinaryIO

import orjson
from filelock import lock_descriptor

INDENTED = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
"""JSON for people to read."""


@contextmanager
def atomic_replacement(path: Path) -> Iterator[BinaryIO]:
    """A file that replaces `path` if the block ends without an exception, and is removed otherwise.

    What killed processes left of the same file goes, too: a living one holds the lock of its own.
    """
    _remove_leftovers(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            with suppress(OSError):  # a file system without locks
                lock_descriptor(file.fileno(), blocking=False)
            yield file
            file.flush()
            os.fsync(file.fileno())
            if os.name != "nt":  # which replaces no file that is open
                temporary.replace(path)
        if os.name == "nt":
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _remove_leftovers(path: Path) -> None:
    for left in path.parent.glob(f".{escape(path.name)}.*.tmp"):
        with suppress(OSError):
            with left.open("ab") as file:
                dead = lock_descriptor(file.fileno(), blocking=False)
            if dead:
                left.unlink(missing_ok=True)


def write_file(path: Path, content: bytes) -> None:
    """Replace `path` atomically. Raises OSError."""
    with atomic_replacement(path) as file:
        file.write(content)


def write_json(path: Path, content: object) -> None:
    """Replace `path` atomically by JSON that people read. Raises OSError."""
    write_file(path, orjson.dumps(content, option=INDENTED))
