"""Files that are replaced whole, by one process or by several at once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from preference.export.private_files import atomic_replacement, write_file


def test_a_failed_write_leaves_the_earlier_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"earlier")
    with pytest.raises(TypeError), atomic_replacement(path) as file:
        file.writelines([b"half", None])  # type: ignore[list-item]
    assert path.read_bytes() == b"earlier"
    assert [each.name for each in tmp_path.iterdir()] == ["a.json"]


def test_only_temporary_files_of_killed_processes_are_removed(tmp_path: Path) -> None:
    """Files of other names stay; a name may hold what means something in a pattern."""
    path = tmp_path / "[a]*.json"
    for name in (
        ".[a]*.json.1.tmp",
        ".[a]*.json.99999999.tmp",
        ".other.json.1.tmp",
        ".a.json.1.tmp",
        "[a]*.json.1.tmp",
    ):
        (tmp_path / name).write_bytes(b"half")
    write_file(path, b"whole")
    assert {each.name for each in tmp_path.iterdir()} == {
        *(path.name, ".other.json.1.tmp", ".a.json.1.tmp", "[a]*.json.1.tmp")
    }


@pytest.mark.skipif(os.name != "posix", reason="forks")
def test_two_processes_that_write_one_file_do_not_disturb_each_other(tmp_path: Path) -> None:
    """The last to end wins, whole."""
    path = tmp_path / "a.json"
    with atomic_replacement(path) as file:
        file.write(b"slow")
        child = os.fork()
        if child == 0:
            write_file(path, b"quick")
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert path.read_bytes() == b"quick"
    assert path.read_bytes() == b"slow"
    assert [each.name for each in tmp_path.iterdir()] == ["a.json"]
