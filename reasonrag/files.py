"""Durable appends, folders locked for one writer, and the names of a run's files."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from reasonrag.errors import InputError, StorageError

CONFIG, ROLLOUTS, FAILURES, JOURNAL = "config.json", "rollouts.jsonl", "failures.jsonl", "journal.jsonl"
VIEW_PAGE = "view.html"
"""The page that `view` writes beside what it shows."""
TUNING, TRIALS = "tuning.json", "trials"
"""Files of a `tune` directory, which has no rollouts."""


@contextmanager
def only_writer(directory: Path, *, flag: str = "--run") -> Iterator[None]:
    """Lock a directory for writing, creating it if needed. Raises InputError if that fails or another process holds the
    lock.

    flag: the flag that names the directory."""
    with _lock_file(directory / ".lock", directory) as lock:
        if not _locked(lock, directory):
            raise InputError(f"{directory} is being written by another reasonrag; wait for it or choose another {flag}")
        yield


def rollouts_in(run: Path) -> Path:
    """The rollouts file of a run directory; a file is returned unchanged."""
    return run if run.is_file() else run / ROLLOUTS


def file_digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def append_durably(descriptor: int, content: bytes, *, end: int, sync: bool = True) -> None:
    """Write all of `content` at the end of an unbuffered file and sync it; or leave the file ending at `end`.

    Raises OSError, for example if the disk is full.
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
def build_lock(directory: Path, *, say: Callable[[str], None] = lambda _: None) -> Iterator[None]:
    """Lock `directory` for building, across processes; others wait, with a message. Raises InputError if it cannot be
    locked."""
    if not directory.name:
        raise InputError(f"{directory} cannot hold an index; give it a directory of its own")
    with _lock_file(directory.with_name(f".{directory.name}.lock"), directory) as lock:
        if not _locked(lock, directory):
            say(f"waiting for another process that builds {directory}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _lock_file(path: Path, directory: Path) -> BinaryIO:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("wb")
    except OSError as error:
        raise unwritable(directory, error) from error


def _locked(lock: BinaryIO, directory: Path) -> bool:
    """Lock it, unless another process has."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:  # a file system without locks
        raise unwritable(directory, error) from error
    return True


@contextmanager
def reading(what: object, *, missing: str | None = None) -> Iterator[None]:
    """Explain what cannot be read, by an InputError. missing: the message for a file that is not there."""
    try:
        yield
    except OSError as error:
        if missing and isinstance(error, FileNotFoundError):
            raise InputError(missing) from error
        raise InputError(f"cannot read {what}: {error.strerror or error}") from error


@contextmanager
def writing(what: object) -> Iterator[None]:
    """Explain what cannot be written, by an InputError."""
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot write {what}: {error.strerror or error}") from error


@contextmanager
def storing(path: Path, advice: str = "Make room and run the same command again") -> Iterator[None]:
    """Explain why a running session cannot write what it has made, by a StorageError."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}. {advice}") from error


def unwritable(directory: Path, error: OSError) -> InputError:
    return InputError(f"cannot write {directory}: {error.strerror or error}. Choose another place for it")
