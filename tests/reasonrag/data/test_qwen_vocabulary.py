"""Qwen2.5's vocabulary: the right file wherever it is, got once, by whatever installs packages here, or said to be
missing with what helps. The wheel of these tests is made here, so that they ask no network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from reasonrag.data.qwen_vocabulary import PACKAGE, qwen_vocabulary
from reasonrag.errors import InputError
from tests.helpers.qwen_files import vocabulary

found = vocabulary()
if found is None:
    pytest.skip("Qwen's vocabulary cannot be had here", allow_module_level=True)
CONTENT = found.read_bytes()
FETCH = """
import sys
sys.modules["dashscope"] = None
from reasonrag.data.qwen_vocabulary import qwen_vocabulary
print(qwen_vocabulary())
"""
UV = """#!/bin/sh
test "$1 $2 $3" = "pip install --python" || exit 9
python="$4"; shift 4
exec "$python" -m pip install "$@"
"""
"""A stand-in: pip, behind uv's own way to name the Python."""


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], Path]:
    """Make the only package that an installer finds, with this as its file; the cache is empty. Returns the cached
    file's place."""
    name, version = PACKAGE.split("==")
    monkeypatch.setitem(sys.modules, name, None)  # as if it were not installed
    cache, index = tmp_path / "cache", tmp_path / "index"
    index.mkdir()
    for variable, value in (
        ("XDG_CACHE_HOME", str(cache)),
        ("PIP_NO_INDEX", "1"),
        ("PIP_FIND_LINKS", str(index)),
        ("PIP_CONFIG_FILE", os.devnull),
        ("UV_NO_INDEX", "1"),
        ("UV_FIND_LINKS", str(index)),
    ):
        monkeypatch.setenv(variable, value)

    def make(content: bytes) -> Path:
        facts = f"{name}-{version}.dist-info"
        with zipfile.ZipFile(index / f"{name}-{version}-py3-none-any.whl", "w") as archive:
            archive.writestr(f"{name}/__init__.py", "raise AssertionError('nothing of the package is to be run')")
            archive.writestr(f"{name}/resources/qwen.tiktoken", content)
            archive.writestr(
                f"{facts}/METADATA",
                f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nRequires-Dist: there-is-no-such-package\n",
            )
            archive.writestr(f"{facts}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            archive.writestr(f"{facts}/RECORD", "")
        return cache / "reasonrag" / "qwen.tiktoken"

    return make


def test_it_is_got_once_with_a_line_that_says_what_and_from_where(
    wheel: Callable[[bytes], Path], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without what the package needs, and no module of the folder that the user is in takes the installer's place."""
    cached = wheel(CONTENT)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pip.py").write_text("raise AssertionError('that is no installer')")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert qwen_vocabulary() == cached
    assert cached.read_bytes() == CONTENT
    said = capsys.readouterr().err
    for each in ("pip fetches dashscope==2.0.2", "2.4 MB", "Apache 2.0", "package index", str(cached)):
        assert each in said
    assert said.count("\n") == 1
    assert list(cached.parent.iterdir()) == [cached]
    assert not list(tmp_path.glob("reasonrag-*")), "the rest of the package is removed"
    (tmp_path / "index" / "dashscope-2.0.2-py3-none-any.whl").unlink()
    assert qwen_vocabulary() == cached, "the second time nothing is asked"
    assert capsys.readouterr().err == ""


def test_a_damaged_file_in_the_cache_is_replaced(wheel: Callable[[bytes], Path]) -> None:
    cached = wheel(CONTENT)
    cached.parent.mkdir(parents=True)
    cached.write_bytes(CONTENT[:1000])
    assert qwen_vocabulary() == cached
    assert cached.read_bytes() == CONTENT


def test_an_installed_package_is_read_and_nothing_is_got(
    wheel: Callable[[bytes], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor is it imported. One with another file is passed over."""
    cached = wheel(CONTENT)
    monkeypatch.delitem(sys.modules, "dashscope")
    resources = tmp_path / "site" / "dashscope" / "resources"
    resources.mkdir(parents=True)
    (resources.parent / "__init__.py").write_text("raise AssertionError('that is slow')")
    (resources / "qwen.tiktoken").write_bytes(CONTENT)
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert qwen_vocabulary() == resources / "qwen.tiktoken"
    assert not cached.exists()
    assert capsys.readouterr().err == ""
    (resources / "qwen.tiktoken").write_bytes(CONTENT[:-1])
    assert qwen_vocabulary() == cached


def test_another_file_than_the_known_one_is_refused(wheel: Callable[[bytes], Path]) -> None:
    """What a package index hands out under the name is not trusted."""
    cached = wheel(CONTENT.replace(b"IQ==", b"Ig==", 1))
    with pytest.raises(InputError, match=r"no resources/qwen\.tiktoken with the known checksum"):
        qwen_vocabulary()
    assert not cached.exists()


def test_processes_that_get_it_at_once_all_have_it(wheel: Callable[[bytes], Path]) -> None:
    """Each by itself, and whoever is last replaces the same by the same."""
    cached = wheel(CONTENT)
    several = [subprocess.Popen([sys.executable, "-c", FETCH], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [each.communicate()[0].strip() for each in several] == [str(cached)] * 3
    assert cached.read_bytes() == CONTENT
    assert list(cached.parent.iterdir()) == [cached]


def test_without_a_network_it_says_what_helps(wheel: Callable[[bytes], Path]) -> None:
    cached = wheel(CONTENT)
    (cached.parents[2] / "index" / "dashscope-2.0.2-py3-none-any.whl").unlink()
    complaint = (
        r"pip could not fetch it \(ERROR: No matching.*pip install --no-deps dashscope==2.0.2.*--tokenizer FOLDER"
    )
    with pytest.raises(InputError, match=complaint):
        qwen_vocabulary()
    assert not cached.exists()


def test_without_an_installer_it_says_so(wheel: Callable[[bytes], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    wheel(CONTENT)
    monkeypatch.setitem(sys.modules, "pip", None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InputError, match="neither pip nor uv"):
        qwen_vocabulary()


def test_where_pip_is_missing_uv_is_asked_for_the_same(
    wheel: Callable[[bytes], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Environments that uv made have no pip."""
    cached = wheel(CONTENT)
    monkeypatch.setitem(sys.modules, "pip", None)
    uv = tmp_path / "bin" / "uv"
    uv.parent.mkdir()
    uv.write_text(UV)
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", f"{uv.parent}{os.pathsep}{os.environ['PATH']}")
    assert qwen_vocabulary() == cached


def test_a_cache_that_cannot_be_written_is_said(wheel: Callable[[bytes], Path], tmp_path: Path) -> None:
    cached = wheel(CONTENT)
    (tmp_path / "cache").write_text("a file in the place of the folder")
    with pytest.raises(
        InputError, match=rf"cannot write {re.escape(str(cached))}, .*XDG_CACHE_HOME names another place"
    ):
        qwen_vocabulary()
