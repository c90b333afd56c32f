"""The text of a PDF.

Decides how lines of pages become paragraphs, and which lines are running heads. A page without text (a scan) has none
here: nothing is recognised from pictures. Knows no passage.
"""

from __future__ import annotations

import re
from collections import Counter
from io import BytesIO
from typing import TYPE_CHECKING

from reasonrag.data.documents.document import Document, Section, UnreadableError, on_one_line

if TYPE_CHECKING:
    from pypdf import PdfReader

_FEWEST_PAGES = 4
"""A line on more than half of fewer pages may be no running head."""
_MOST_RUNNING_HEADS = 3
"""Lines at each end of a page."""
_FULL_LINE, _FEWEST_CHARS = 0.75, 40
"""A line that is shorter, as a share of the longest or in characters, ends a paragraph."""
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
        title = _title(reader) or name
    except FileNotDecryptedError:
        raise UnreadableError("encrypted; save it without a password") from None
    except PyPdfError as error:
        raise UnreadableError(f"not a readable PDF ({error})") from None
    if not any(pages):
        raise UnreadableError(f"no text on {count:,} pages: scanned? Run a text recognition first, such as ocrmypdf")
    return Document(title, [Section((), _text([line for page in pages for line in page]))])


def _title(reader: PdfReader) -> str:
    title = on_one_line(str(reader.metadata.title or "")) if reader.metadata else ""
    return "" if _NO_TITLE.search(title) else title


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


def _text(lines: list[str]) -> str:
    """The paragraphs of these lines."""
    full = max(_FEWEST_CHARS, _FULL_LINE * max(map(len, lines), default=0))
    joined = "".join(line + ("\r" if len(line) >= full else "\n") for line in lines)  # \r: where a line was full
    return _HYPHENATED.sub("", joined).replace("\r", " ").strip()
