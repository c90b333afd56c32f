"""Documents are read in a process that is ended where it exceeds a limit; the next one is read by another."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reasonrag.data.documents.document import UnreadableError
from reasonrag.data.documents.reader import DocumentReader
from tests.helpers.documents import docx, paragraph

ENDLESS = "<p>x</p>" * 500_000
"""Its parser needs a minute."""


def test_a_document_that_takes_too_long_ends_its_process_and_no_other(tmp_path: Path) -> None:
    """Nothing that a file holds can stop the command."""
    (tmp_path / "endless.html").write_text(ENDLESS)
    (tmp_path / "a.md").write_text("# A\n\ntext")
    reader = DocumentReader(tmp_path, max_chars=200, seconds=1.5)
    try:
        with pytest.raises(UnreadableError, match=r"took more than 1\.5 s"):
            reader.read("endless.html")
        assert reader.passages(reader.read("a.md")) == [("A", "text")]
    finally:
        reader.close()


def test_after_a_document_that_takes_too_much_memory_others_are_read(tmp_path: Path) -> None:
    """A small file may unpack to gigabytes."""
    (tmp_path / "bomb.docx").write_bytes(docx(paragraph("A" * 1000) * 100_000))
    (tmp_path / "a.docx").write_bytes(docx(paragraph("text")))
    reader = DocumentReader(tmp_path, max_chars=200, memory_bytes=64 << 20)
    try:
        with pytest.raises(UnreadableError, match=r"its parser (took more than 64 MiB of memory|crashed)"):
            reader.read("bomb.docx")
        assert reader.passages(reader.read("a.docx")) == [("a", "text")]
    finally:
        reader.close()


def test_what_is_no_readable_document_says_why(tmp_path: Path) -> None:
    """One process reads them all: a cause is no crash."""
    (tmp_path / "large.txt").write_bytes(b"a" * 50_000_001)
    (tmp_path / "empty.md").write_text(" \n")
    (tmp_path / "pictures.html").write_text("<img src=a.png><script>x</script>")
    (tmp_path / "binary.txt").write_bytes(b"a\0b")
    os.mkfifo(tmp_path / "pipe.md")
    (tmp_path / "link.md").symlink_to(tmp_path / "empty.md")
    causes = {
        "large.txt": "larger than 50 MB",
        "empty.md": "empty",
        "pictures.html": "no text",
        "binary.txt": "holds NUL bytes: a binary file, not text",
        "pipe.md": "not a regular file",
        "link.md": "Too many levels of symbolic links",
        "nowhere.md": "No such file or directory",
    }
    reader = DocumentReader(tmp_path, max_chars=200)
    try:
        for name, cause in causes.items():
            with pytest.raises(UnreadableError) as refused:
                reader.read(name)
            assert str(refused.value) == cause
    finally:
        reader.close()
