"""What several tests need alike is made once for all test processes, by whichever comes first.

A thing is a folder below the session's temporary folder. Others wait at its lock while it is made, then only read it;
a test that changes something takes a copy.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest


@contextmanager
def held(path: Path) -> Iterator[None]:
    """One test process at a time."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def session_folder(factory: pytest.TempPathFactory) -> Path:
    """The same for every worker of xdist."""
    base = factory.getbasetemp()
    return base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base


@dataclass(frozen=True)
class Shared:
    """home: where the folders are, one for each name."""

    home: Path

    def folder(self, name: str, make: Callable[[], object]) -> Path:
        """The folder that `make` fills as its working directory, once. Not to be changed by a test.

        name: of this content; all who ask for one name must make the same. Half a folder, left by a `make` that
        failed, is made anew.
        """
        place, done = self.home / name, self.home / f".{name}.done"
        with held(self.home / f".{name}.lock"):
            if not done.exists():
                shutil.rmtree(place, ignore_errors=True)
                place.mkdir(parents=True)
                with chdir(place):
                    make()
                done.touch()
        return place

    def copy(self, name: str, make: Callable[[], object]) -> Path:
        """The same content in the working directory, to be changed at will."""
        here = Path.cwd()
        shutil.copytree(self.folder(name, make), here, dirs_exist_ok=True, symlinks=True)
        return here
