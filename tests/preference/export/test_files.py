"""Who can read a file that was written or replaced."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from preference.export.files import atomic_replacement, open_private, write_file
from preference.export.staging import put_in_place

pytestmark = pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX")


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(("before", "after"), [(0o600, 0o600), (0o644, 0o640), (0o640, 0o640), (0o664, 0o660)])
def test_a_file_that_is_written_again_is_never_wider(tmp_path: Path, before: int, after: int) -> None:
    """Whatever the umask is by now: who closed a file to the group keeps it closed, and a team's stays the team's."""
    staged, out = tmp_path / "staged", tmp_path / "out"
    staged.mkdir()
    out.mkdir()
    for place in (out / "summary.json", out / "rows.jsonl"):
        place.write_bytes(b"{}")
        place.chmod(before)
        (staged / place.name).write_bytes(b"{}")
    with umask(0o022):
        write_file(out / "summary.json", b"{}")
        assert mode(out / "summary.json") == after
        put_in_place(staged, out)
    assert {mode(each) for each in out.iterdir()} == {after}


def test_a_file_that_is_appended_to_keeps_its_mode(tmp_path: Path) -> None:
    """What somebody has opened is theirs to close."""
    path = tmp_path / "journal.jsonl"
    with umask(0o022):
        open_private(path, "ab").close()
        assert mode(path) == 0o640
        path.chmod(0o644)
        open_private(path, "ab").close()
    assert mode(path) == 0o644


def test_a_shared_file_goes_by_the_umask(tmp_path: Path) -> None:
    """As indexes and models do."""
    with umask(0o022), atomic_replacement(tmp_path / "manifest.json", shared=True):
        pass
    assert mode(tmp_path / "manifest.json") == 0o644
