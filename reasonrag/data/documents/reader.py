"""Documents read in a process of their own, within limits of size, time and memory.

Decides which files are documents, by the ends of their names. Knows no folder.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

from reasonrag.data.documents.document import Document, UnreadableError, name_of, plain_document
from reasonrag.data.documents.html import html_document, markdown_document
from reasonrag.data.documents.passages import passages_of
from reasonrag.data.documents.pdf import pdf_document
from reasonrag.processes.bounded import BoundedProcess, LimitError, WorkError
from reasonrag.processes.child_environment import child_environment

KINDS = {
    **dict.fromkeys((".md", ".markdown", ".mkd"), "Markdown"),
    **dict.fromkeys((".html", ".htm", ".xhtml"), "HTML"),
    **dict.fromkeys((".txt", ".text"), "plain text"),
    ".pdf": "PDF",
}
"""Kinds of documents, by suffix in lower case."""
FILE_BYTES, SECONDS, MEMORY_BYTES = 50_000_000, 300.0, 2 << 30
"""Of a document: its largest size, the longest time to read it, and memory beyond that of the process that reads."""
_SHOWN = 300
"""Characters of a cause: a parser may quote the document."""
MOST_TEXT = 20_000_000
"""Characters of text that a document may have: some 7,000 printed pages."""


class DocumentReader:
    """A process that reads documents, one at a time; started when it is needed. max_chars: of a passage's text."""

    def __init__(self, folder: Path, *, max_chars: int, seconds: float = SECONDS) -> None:
        self._process = BoundedProcess(
            reading,
            str(folder),
            max_chars,
            seconds=seconds,
            memory_bytes=MEMORY_BYTES,
            environment=child_environment(),
        )

    def read(self, path: str) -> list[tuple[str, str]]:
        """Title and text of the passages of a file below the folder. Raises UnreadableError."""
        try:
            answer = self._process.ask(path)
        except WorkError as error:
            raise UnreadableError(f"its parser {error}" if isinstance(error, LimitError) else str(error)) from error
        if "cause" in answer:
            raise UnreadableError(answer["cause"])
        return [(title, text) for title, text in answer["passages"]]

    def close(self) -> None:
        self._process.close()


# -- in the process ----------------------------------------------------------------------------------------------


def reading(folder: str, max_chars: int) -> Callable[[str], dict[str, Any]]:
    """What reads a document of the folder, by its path: its passages, or why there are none."""

    def read(path: str) -> dict[str, Any]:
        try:
            return {"passages": _read(folder, path, max_chars)}
        except UnreadableError as error:
            return {"cause": str(error)[:_SHOWN]}
        except OSError as error:
            return {"cause": error.strerror or str(error)}

    return read


def _read(folder: str, path: str, max_chars: int) -> list[tuple[str, str]]:
    content = _content(Path(folder) / path)
    if not content.strip():
        raise UnreadableError("empty")
    document = _document(content, path)
    if sum(len(section.text) for section in document.sections) > MOST_TEXT:
        raise UnreadableError(f"more than {MOST_TEXT // 10**6} million characters of text")
    passages = list(passages_of(document, max_chars=max_chars))
    if not passages:
        raise UnreadableError("no text")
    return passages


def _content(path: Path) -> bytes:
    # each on some systems only
    flags = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, os.O_RDONLY | flags)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UnreadableError("not a regular file")
        content = file.read(FILE_BYTES + 1)
    if len(content) > FILE_BYTES:
        raise UnreadableError(f"larger than {FILE_BYTES / 1e6:g} MB")
    return content


def _document(content: bytes, path: str) -> Document:
    name = name_of(os.fsencode(path).decode("utf-8", "backslashreplace"))
    parsers = {"PDF": pdf_document, "HTML": html_document, "Markdown": markdown_document, "plain text": plain_document}
    return parsers[KINDS[PurePosixPath(path).suffix.lower()]](content, name)
