"""The text of a PDF, as sections under headings.

Decides how lines of pages become paragraphs, which are headings, and which are running heads. A page without text (a
scan) has none here: nothing is recognised from pictures. Knows no passage.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from io import BytesIO
from itertools import groupby
from math import hypot
from typing import TYPE_CHECKING, Any, NamedTuple

from reasonrag.data.documents.document import Document, UnreadableError, on_one_line, sections_under

if TYPE_CHECKING:
    from pypdf import PageObject, PdfReader

_FEWEST_PAGES = 4
"""A line on more than half of fewer pages may be no running head, unless it is smaller than the text."""
_MOST_RUNNING_HEADS = 3
"""Lines at each end of a page."""
_FULL_LINE, _FEWEST_CHARS = 0.75, 40
"""A line that is shorter, as a share of the longest or in characters, ends a paragraph."""
_LARGER, _LONGEST_HEADING = 1.12, 120
"""Of a heading: its size, of that of the text, and its characters."""
_HYPHENATED = re.compile(r"(?<=[^\W\d_])-\r(?=[^\W\d_A-Z])")
_NO_TITLE = re.compile(
    r"(?i)untitled|anonymous|microsoft word|^(word )?document\s*\d*$|\.(docx?|pptx?|xlsx?|pdf|indd|tex|html?)$|^\W*$"
)
"""Titles that programs write, not people."""


class _Line(NamedTuple):
    text: str
    size: float
    """Of most of its characters, in points."""


def pdf_document(content: bytes, name: str) -> Document:
    """A PDF. Its title is the largest heading if that is on the first page, else that of its metadata, else `name`.
    Raises UnreadableError."""
    from pypdf import PdfReader
    from pypdf.errors import DependencyError, FileNotDecryptedError, PyPdfError

    try:
        reader = PdfReader(BytesIO(content))
        pages = [_lines(page) for page in reader.pages]
        given = _title(reader)
    except (DependencyError, FileNotDecryptedError):
        raise UnreadableError("encrypted; save it without a password") from None
    except PyPdfError as error:
        raise UnreadableError(f"not a readable PDF ({error})") from None
    sizes = Counter[float]()
    for line in (line for page in pages for line in page):
        sizes[line.size] += len(line.text)
    if not sizes:
        raise UnreadableError(
            f"no text on {len(pages):,} pages: scanned? Run a text recognition first, such as ocrmypdf"
        )
    text_size = sizes.most_common(1)[0][0]
    heads = _taken_running_heads(pages, text_size)
    lines = [line for page in pages for line in page]
    parts = list(_parts(lines, text_size))
    first = {-line.size for page in pages[:1] for line in page}
    largest = min((rank for rank, _ in parts if rank is not None), default=None)
    top = next((text for rank, text in parts if rank == largest), None) if largest in first else None
    title = top or given or name
    return Document(title, sections_under(parts, title), heads)


def _lines(page: PageObject) -> list[_Line]:
    """The lines of a page that have text."""
    found, sizes, pieces = list[_Line](), Counter[float](), list[str]()

    def add(text: str, page_matrix: list[float], matrix: list[float], _font: Any, size: float) -> None:
        shown = round(size * hypot(*matrix[2:4]) * hypot(*page_matrix[2:4]), 1)
        for number, piece in enumerate(text.replace("\0", "").split("\n")):
            if number:
                end()
            pieces.append(piece)
            sizes[shown] += len(piece.strip())

    def end() -> None:
        if text := "".join(pieces).strip():
            found.append(_Line(text, sizes.most_common(1)[0][0]))
        pieces.clear()
        sizes.clear()

    page.extract_text(visitor_text=add)
    end()
    return found


def _title(reader: PdfReader) -> str:
    title = on_one_line(str(reader.metadata.title or "")) if reader.metadata else ""
    return "" if _NO_TITLE.search(title) else title


def _is_heading(line: _Line, text_size: float) -> bool:
    larger = line.size >= _LARGER * text_size and len(line.text) <= _LONGEST_HEADING
    return larger and any(map(str.isalpha, line.text))


def _parts(lines: list[_Line], text_size: float) -> Iterator[tuple[float | None, str]]:
    """Headings with their negative size, and texts. Headings of one size that follow each other are one."""
    full = max(_FEWEST_CHARS, _FULL_LINE * max((len(line.text) for line in lines), default=0))
    ranked = [(-line.size if _is_heading(line, text_size) else None, line.text) for line in lines]
    for rank, group in groupby(ranked, key=lambda each: each[0]):
        texts = [text for _, text in group]
        yield rank, " ".join(texts) if rank else _text(texts, full)


def _taken_running_heads(pages: list[list[_Line]], text_size: float) -> list[str]:
    """Takes first and last lines from pages that more than half of them have, numbers apart. Of few pages only those
    that are smaller than the text, and of one page only the first: notes stand at its end."""
    few, taken = len(pages) < _FEWEST_PAGES, dict[str, None]()
    for end in (0,) if len(pages) == 1 else (0, -1):
        for _ in range(_MOST_RUNNING_HEADS):
            ends = [lines for lines in pages if lines and (not few or lines[end].size < text_size)]
            shapes = Counter(_shape(lines[end].text) for lines in ends)
            for lines in ends:
                if shapes[_shape(lines[end].text)] * 2 > len(pages):
                    taken[lines.pop(end).text] = None
    return list(taken)


def _shape(line: str) -> str:
    return re.sub(r"\d+", "0", on_one_line(line))


def _text(lines: list[str], full: float) -> str:
    """The paragraphs of these lines."""
    joined = "".join(line + ("\r" if len(line) >= full else "\n") for line in lines)  # \r: where a line was full
    return _HYPHENATED.sub("", joined).replace("\r", " ").strip()
