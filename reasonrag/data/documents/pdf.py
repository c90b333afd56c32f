"""The text of a PDF as sections, under the headings of its outline.

Decides how lines of pages become paragraphs, and which lines are running heads. A page without text (a scan) has none
here: nothing is recognised from pictures. Knows no passage.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from io import BytesIO
from typing import TYPE_CHECKING, Any

from reasonrag.data.documents.document import Document, Section, UnreadableError, on_one_line

if TYPE_CHECKING:
    from pypdf import PdfReader

_FEWEST_PAGES = 4
"""A line on more than half of fewer pages may be no running head."""
_MOST_RUNNING_HEADS = 3
"""Lines at each end of a page."""
_FULL_LINE, _FEWEST_CHARS = 0.75, 40
"""A line that is shorter, as a share of the longest of its section or in characters, ends a paragraph."""
_HYPHENATED = re.compile(r"(?<=[^\W\d_])-\r(?=[^\W\d_A-Z])")
_NO_TITLE = re.compile(r"(?i)untitled|microsoft word|\.(docx?|pptx?|xlsx?|pdf|indd|tex|html?)$|^\W*$")
"""Titles that programs write, not people."""


def pdf_document(content: bytes, name: str) -> Document:
    """A PDF. Its title is that of its metadata, else `name`. Raises UnreadableError."""
    from pypdf import PdfReader
    from pypdf.errors import FileNotDecryptedError, PyPdfError

    try:
        reader = PdfReader(BytesIO(content))
        count = len(reader.pages)
        pages = _without_running_heads([page.extract_text() for page in reader.pages])
        headings = list(_outline(reader, reader.outline))
        title = _title(reader) or name
    except FileNotDecryptedError:
        raise UnreadableError("encrypted; save it without a password") from None
    except PyPdfError as error:
        raise UnreadableError(f"not a readable PDF ({error})") from None
    if not any(pages):
        raise UnreadableError(f"no text on {count:,} pages: scanned? Run a text recognition first, such as ocrmypdf")
    return Document(title, list(_sections(pages, headings, title)))


def _title(reader: PdfReader) -> str:
    title = on_one_line(str(reader.metadata.title or "")) if reader.metadata else ""
    return "" if _NO_TITLE.search(title) else title


def _outline(reader: PdfReader, entries: Iterable[Any], level: int = 1) -> Iterator[tuple[int, int, str]]:
    """Page, level from 1 and text of the headings in the outline, in its order."""
    for entry in entries:
        if isinstance(entry, list):
            yield from _outline(reader, entry, level + 1)
        elif (page := reader.get_destination_page_number(entry)) is not None:
            yield page, level, on_one_line(entry.title or "")


def _without_running_heads(pages: list[str]) -> list[list[str]]:
    """The lines of each page, without first and last ones that more than half of the pages have, numbers apart."""
    lined = [[line.strip() for line in page.replace("\0", "").split("\n") if line.strip()] for page in pages]
    if len(lined) < _FEWEST_PAGES:
        return lined
    for end in (0, -1) * _MOST_RUNNING_HEADS:
        shapes = Counter(_shape(lines[end]) for lines in lined if lines)
        running = {shape for shape, pages_with in shapes.items() if pages_with * 2 > len(lined)}
        for lines in lined:
            if lines and _shape(lines[end]) in running:
                del lines[end]
    return lined


def _shape(line: str) -> str:
    return re.sub(r"\d+", "0", on_one_line(line))


def _sections(pages: list[list[str]], headings: list[tuple[int, int, str]], title: str) -> Iterator[Section]:
    """The text, cut where a line is a heading of the outline; after its page, if no line is."""
    on_page: dict[int, dict[str, int]] = {}
    for at, (number, _, text) in enumerate(headings):
        on_page.setdefault(number, {}).setdefault(_key(text), at)
    path: list[tuple[int, str]] = []
    lines: list[str] = []
    reached = 0
    for number, page in enumerate(pages):
        here = on_page.get(number, {})
        for line in [*page, None]:
            at = max(here.values(), default=-1) if line is None else here.get(_key(line), -1)
            if at >= reached:
                yield from _section(path, lines, title)
                for _, level, text in headings[reached : at + 1]:
                    path = [each for each in path if each[0] < level] + [(level, text)]
                lines, reached = [], at + 1
            elif line is not None:
                lines.append(line)
    yield from _section(path, lines, title)


def _section(path: list[tuple[int, str]], lines: list[str], title: str) -> Iterator[Section]:
    headings = tuple(text for _, text in path)
    full = max(_FEWEST_CHARS, _FULL_LINE * max(map(len, lines), default=0))
    joined = "".join(line + ("\r" if len(line) >= full else "\n") for line in lines)  # \r: where a line was full
    if text := _HYPHENATED.sub("", joined).replace("\r", " ").strip():
        yield Section(headings[1:] if headings[:1] == (title,) else headings, text)


def _key(line: str) -> str:
    """What a heading and its line have in common: letters, without the number before them."""
    return re.sub(r"[\W\d_]+", "", line).casefold()
