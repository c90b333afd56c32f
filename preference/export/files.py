"""Atomic replacement of files, and the JSON layout used in them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import orjson

INDENTED = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
"""JSON for people to read."""


@contextmanager
def atomic_replacement(path: Path) -> Iterator[BinaryIO]:
    """A file that replaces `path` if the block ends without an exception, and is removed otherwise."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_file(path: Path, content: bytes) -> None:
    """Replace `path` atomically. Raises OSError."""
    with atomic_replacement(path) as file:
        file.write(content)


def write_json(path: Path, content: object) -> None:
    """Replace `path` atomically by JSON that people read. Raises OSError."""
    write_file(path, orjson.dumps(content, option=INDENTED))
