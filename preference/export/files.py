"""Atomic replacement of files, and the JSON layout used in them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import BinaryIO, cast

import orjson
from filelock import lock_descriptor

INDENTED = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
"""JSON for people to read."""
PRIVATE = 0o660
"""Permissions before the umask is taken off: texts of models and passages are for their owner and, if the umask lets
it, for the group (teams share runs), but for no other user."""


def open_private(path: Path, mode: str, *, buffering: int = 0) -> BinaryIO:
    """The file; one that is created gives others nothing (PRIVATE). Raises OSError."""
    return cast("BinaryIO", open(path, mode, buffering=buffering, opener=_private))


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, PRIVATE)


@contextmanager
def atomic_replacement(path: Path, *, shared: bool = False) -> Iterator[BinaryIO]:
    """A file that replaces `path` if the block ends without an exception, and is removed otherwise.

    Others can read it only if it is `shared`, as indexes and models are, and the umask lets them. A private one keeps
    what the group could do with its predecessor.
    What killed processes left of the same file goes, too: a living one holds the lock of its own.
    """
    _remove_leftovers(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb", opener=None if shared else _private) as file:
            if not shared:
                keep_permissions(path, temporary)
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


def keep_permissions(path: Path, successor: Path) -> None:
    """Let the group do with the successor of a file what it could do with the file, if it is there; others, nothing."""
    with suppress(FileNotFoundError):
        successor.chmod(0o600 | (path.stat().st_mode & 0o060))


def write_file(path: Path, content: bytes, *, shared: bool = False) -> None:
    """Replace `path` atomically. Raises OSError."""
    with atomic_replacement(path, shared=shared) as file:
        file.write(content)


def write_json(path: Path, content: object, *, shared: bool = False) -> None:
    """Replace `path` atomically by JSON that people read. Raises OSError."""
    write_file(path, orjson.dumps(content, option=INDENTED), shared=shared)
