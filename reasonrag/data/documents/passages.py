"""Documents become passages: title and heading path in the first line, then text up to a size.

Decides titles and sizes. Knows neither files nor formats.
"""

from __future__ import annotations

from collections.abc import Iterator

from reasonrag.data.documents.document import Document, on_one_line

PASSAGE_CHARS = 1000
"""Longest text of a passage: about 160 words of English. The published systems were trained with three passages of
Wikipedia of 100 words each; three of these make a read turn half as long again."""
BETWEEN_HEADINGS = " > "
_LONGEST_TITLE = 200
_LONGEST_HEADING = 90


def passages_of(document: Document, *, max_chars: int) -> Iterator[tuple[str, str]]:
    """Title and text of the passages of a document, in its order.

    A section is cut where paragraphs end, else lines, sentences or words, into pieces of about equal size; no passage
    spans two sections.
    """
    from semantic_text_splitter import TextSplitter

    for section in document.sections:
        title, text = _title(document.title, section.headings), section.text.strip()
        pieces = -(-len(text) // max_chars)
        even = min(max_chars, -(-len(text) // pieces)) if pieces else max_chars
        for piece in TextSplitter((even, max_chars)).chunks(text) if pieces > 1 else [text] * pieces:
            yield title, piece


def _title(document: str, headings: tuple[str, ...]) -> str:
    path = [document, *(each for each in headings if each != document)]
    title = BETWEEN_HEADINGS.join(path)
    if len(title) > _LONGEST_TITLE:
        ends = path[:1] if len(path) == 1 else [path[0], path[-1]]
        title = BETWEEN_HEADINGS.join(_cut(each) for each in ends)
    return on_one_line(title)


def _cut(heading: str) -> str:
    return heading if len(heading) <= _LONGEST_HEADING else f"{heading[:_LONGEST_HEADING].rstrip()}.."
