"""Documents read in a process of their own, within limits of size, time and memory.

Decides which files are documents, by the ends of their names. Knows no folder.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from typing import Any, cast

from reasonrag.data.documents.document import Document, Section, UnreadableError, name_of, passages_of, plain_document
from reasonrag.data.documents.html import html_document, markdown_document, word_document
from reasonrag.data.documents.mail import mail_document
from reasonrag.data.documents.pdf import pdf_document
from reasonrag.data.documents.tables import csv_document, sheets_document
from reasonrag.processes.bounded import BoundedProcess, LimitError, WorkError
from reasonrag.processes.children import child_environment

_PARSERS: dict[str, tuple[Callable[[bytes, str], Document], str]] = {
    "Markdown": (markdown_document, ".md .markdown .mkd"),
    "HTML": (html_document, ".html .htm .xhtml"),
    "plain text": (plain_document, ".txt .text"),
    "PDF": (pdf_document, ".pdf"),
    "Word": (word_document, ".docx"),
    "Excel": (sheets_document, ".xlsx .xls .ods"),
    "CSV": (csv_document, ".csv .tsv"),
    "e-mail": (mail_document, ".eml"),
}
KINDS = {suffix: kind for kind, (_, suffixes) in _PARSERS.items() for suffix in suffixes.split()}
"""Kinds of documents, by suffix in lower case."""
FILE_BYTES, SECONDS, MEMORY_BYTES = 50_000_000, 300.0, 2 << 30
"""Of a document: its largest size, the longest time to read it, and memory beyond that of the process that reads."""
_SHOWN = 300
"""Characters of a cause: a parser may quote the document."""
MOST_TEXT = 20_000_000
"""Characters of text that a document may have: some 7,000 printed pages."""


class DocumentReader:
    """A process that reads documents, one at a time; started when it is needed. max_chars: of a passage's text."""

    def __init__(
        self, folder: Path, *, max_chars: int, seconds: float = SECONDS, memory_bytes: int = MEMORY_BYTES
    ) -> None:
        self._process = BoundedProcess(
            reading, str(folder), max_chars, seconds=seconds, memory_bytes=memory_bytes, environment=child_environment()
        )

    def read(self, path: str) -> Document:
        """A file below the folder. Raises UnreadableError."""
        answer = self._asked(path)
        if "cause" in answer:
            raise UnreadableError(answer["cause"])
        return as_document(answer)

    def passages(self, document: Document) -> list[tuple[str, str]]:
        """Title and text of its passages. Raises UnreadableError."""
        return [(title, text) for title, text in self._asked(asdict(document))["passages"]]

    def close(self) -> None:
        self._process.close()

    def _asked(self, thing: str | dict[str, Any]) -> dict[str, Any]:
        try:
            return cast("dict[str, Any]", self._process.ask(thing))
        except WorkError as error:
            what = str(error) if isinstance(error, LimitError) else f"failed ({error})"
            raise UnreadableError(f"its parser {what}") from error


def kind_of(path: str) -> str:
    return KINDS[PurePosixPath(path).suffix.lower()]


def as_document(fields: dict[str, Any]) -> Document:
    """From its fields in JSON."""
    sections = [Section(tuple(each["headings"]), each["text"]) for each in fields["sections"]]
    return Document(fields["title"], sections, fields["beside"])


# -- in the process ----------------------------------------------------------------------------------------------


def reading(folder: str, max_chars: int) -> Callable[[str | dict[str, Any]], dict[str, Any]]:
    """What reads a document of the folder by its path, or says why there is none; and what cuts one into passages."""

    def answer(thing: str | dict[str, Any]) -> dict[str, Any]:
        if not isinstance(thing, str):
            return {"passages": list(passages_of(as_document(thing), max_chars=max_chars))}
        try:
            return asdict(_read(folder, thing))
        except UnreadableError as error:
            return {"cause": str(error)[:_SHOWN]}
        except OSError as error:
            return {"cause": error.strerror or str(error)}

    return answer


def _read(folder: str, path: str) -> Document:
    content = _content(Path(folder) / path)
    if not content.strip():
        raise UnreadableError("empty")
    name = name_of(os.fsencode(path).decode("utf-8", "backslashreplace"))
    parse, _ = _PARSERS[kind_of(path)]
    document = parse(content, name)
    if sum(len(section.text) for section in document.sections) > MOST_TEXT:
        raise UnreadableError(f"more than {MOST_TEXT // 10**6} million characters of text")
    if not any(section.text.strip() for section in document.sections):
        raise UnreadableError("no text")
    return document


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
