"""Texts of models and passages are for their owner and the group, as the umask has it, and for no other user."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.helpers.command_line import Reasonrag

pytestmark = pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX")

SMALL = ("--dataset", "atlas", "--limit", 8)
SHARED = ("indexes/",)
"""Folders whose files others may read as the umask says."""


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.mark.parametrize(("mask", "private", "public"), [(0o002, 0o660, 0o664), (0o077, 0o600, 0o600)])
def test_other_users_cannot_read_what_commands_write(
    reasonrag: Reasonrag, mask: int, private: int, public: int
) -> None:
    """Journal, rollouts, failures, data sets, samples for review and reports; indexes follow the umask."""
    with umask(mask):
        for words in (
            ["generate", *SMALL, "--run", "runs/a"],
            ["pairs", "runs/a", "--out", "data/a"],
            ["audit", "data/a"],
            ["evaluate", *SMALL, "--run", "runs/e"],
            ["evaluate", *SMALL, "--run", "runs/f"],
            ["compare", "runs/e", "runs/f", "--out", "runs/c"],
            ["view", "data/a", "--out", "page.html"],
            ["review", "data/a", "--out", "sample.csv"],
            ["review", "data/a", "--out", "tasks.json"],
        ):
            done = reasonrag(*words)
            assert done.status == 0, done.err
    files = [path for path in Path().rglob("*") if path.is_file() and path.name != ".lock" and path.stat().st_size]
    found = {path.as_posix(): stat.S_IMODE(path.stat().st_mode) for path in files}
    shared = {name for name in found if name.startswith(SHARED)}
    written = {Path(name).name for name in found.keys() - shared}
    assert {
        "journal.jsonl",
        "rollouts.jsonl",
        "candidates.jsonl",
        "sample.csv",
        "tasks.json",
        "predictions.jsonl",
        "page.html",
    } <= written
    assert {name: oct(each) for name, each in found.items() if each != (public if name in shared else private)} == {}
    assert shared
