"""Qwen2.5's vocabulary: where it is read from, and that no other file is taken for it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from reasonrag.curation.token_counters import PACKAGE, SHA256, qwen_vocabulary
from reasonrag.errors import InputError
from reasonrag.files import file_digest


def test_the_file_is_that_of_qwens_makers_and_no_package_is_imported_for_it() -> None:
    loaded = set(sys.modules)
    assert file_digest(qwen_vocabulary()) == SHA256
    assert PACKAGE not in set(sys.modules) - loaded


@pytest.mark.parametrize("content", [b"", b"IQ== 0\n"])
def test_another_file_in_its_place_is_not_read(content: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A package of that name may be another one, or a later version: lengths would be wrong silently."""
    place = tmp_path / PACKAGE / "resources" / "qwen.tiktoken"
    place.parent.mkdir(parents=True)
    place.write_bytes(content)
    (tmp_path / PACKAGE / "__init__.py").touch()
    monkeypatch.delitem(sys.modules, PACKAGE, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    with pytest.raises(InputError, match=r"not installed.*pip install 'reasonrag\[tokens\]'"):
        qwen_vocabulary()
