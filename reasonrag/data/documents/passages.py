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
_BLOCK_CHARS = 100_000
"""The splitter takes the square of a text's length in time."""
_LONGEST_TITLE = 200
_LONGEST_HEADING = 90


def passages_of(document: Document, *, max_chars: int) -> Iterator[tuple[str, str]]:
    """Title and text of the passages of a document, in its order.

    A section is cut where paragraphs end, else lines, sentences or words, into pieces of about equal size; no passage
    spans two sections.
    """
    from semantic_text_splitter import TextSplitter

    for section in document.sections:
        title = _title(document.title, section.headings)
        for text in _blocks(section.text.strip()):
            pieces = -(-len(text) // max_chars)
            even = min(max_chars, -(-len(text) // pieces)) if pieces else max_chars
            for piece in TextSplitter((even, max_chars)).chunks(text) if pieces > 1 else [text] * pieces:
                yield title, piece


def _blocks(text: str) -> Iterator[str]:
    """A text in parts of at most `_BLOCK_CHARS`, cut between paragraphs, else lines or words."""
    start = 0
    while len(text) - start > _BLOCK_CHARS:
        middle, end = start + _BLOCK_CHARS // 2, start + _BLOCK_CHARS
        cuts = (text.rfind(mark, middle, end) for mark in ("\n\n", "\n", " "))
        cut = next((each for each in cuts if each > 0), end)
        yield text[start:cut].strip()
        start = cut
    yield text[start:].strip()


def _title(document: str, headings: tuple[str, ...]) -> str:
    path = [document, *(each for each in headings if each != document)]
    title = BETWEEN_HEADINGS.join(path)
    if len(title) > _LONGEST_TITLE:
        ends = path[:1] if len(path) == 1 else [path[0], path[-1]]
        title = BETWEEN_HEADINGS.join(_cut(each) for each in ends)
    return on_one_line(title)


def _cut(heading: str) -> str:
    return heading if len(heading) <= _LONGEST_HEADING else f"{heading[:_LONGEST_HEADING].rstrip()}.."
