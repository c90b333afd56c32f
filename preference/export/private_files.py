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
"""Mode of new files, less the umask: the group may read them, as teams share runs; other users may not, since they
hold texts of models and passages."""


def open_private(path: Path, mode: str, *, buffering: int = 0) -> BinaryIO:
    """Open a file; a new one has mode PRIVATE less the umask. Raises OSError."""
    return cast("BinaryIO", open(path, mode, buffering=buffering, opener=_private))


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, PRIVATE)


@contextmanager
def atomic_replacement(path: Path, *, shared: bool = False) -> Iterator[BinaryIO]:
    """A file that replaces `path` if the block ends without an exception, and is removed otherwise.

    shared: mode 0666 less the umask, as for indexes and models; else PRIVATE, or for the group the mode of the replaced
    file. Temporary files that killed processes left are removed; those of running processes are locked.
    """
    _remove_leftovers(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with _locked_new(temporary, shared=shared) as file:
            if not shared:
                keep_permissions(path, temporary)
            yield file
            file.flush()
            os.fsync(file.fileno())
            if os.name != "nt":  # Windows cannot replace an open file
                temporary.replace(path)
        if os.name == "nt":
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _locked_new(temporary: Path, *, shared: bool) -> BinaryIO:
    """Opened anew where another process took it for a leftover before it was locked."""
    while True:
        file = open(temporary, "wb", opener=None if shared else _private)  # noqa: SIM115 - the caller's
        try:
            if lock_descriptor(file.fileno(), blocking=False) and temporary.exists():
                return file
        except OSError:  # a file system without locks
            return file
        file.close()


def _remove_leftovers(path: Path) -> None:
    for left in path.parent.glob(f".{escape(path.name)}.*.tmp"):
        with suppress(OSError):
            with left.open("ab") as file:
                dead = lock_descriptor(file.fileno(), blocking=False)
            if dead:
                left.unlink(missing_ok=True)


def keep_permissions(path: Path, successor: Path) -> None:
    """Give the replacement of a file its group permissions, if it exists, and other users none."""
    with suppress(FileNotFoundError):
        successor.chmod(0o600 | (path.stat().st_mode & 0o060))


def write_file(path: Path, content: bytes, *, shared: bool = False) -> None:
    """Replace `path` atomically. Raises OSError."""
    with atomic_replacement(path, shared=shared) as file:
        file.write(content)


def write_json(path: Path, content: object, *, shared: bool = False) -> None:
    """Replace `path` atomically by JSON that people read. Raises OSError."""
    write_file(path, orjson.dumps(content, option=INDENTED), shared=shared)
