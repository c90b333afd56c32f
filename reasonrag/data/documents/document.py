"""What a document is, whatever its format: a title, and sections of text under headings; and its passages.

Decides how a title is chosen, how bytes become text, and how large passages are. Knows no file.
"""

from __future__ import annotations

import codecs
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

_ENCODINGS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_READ_AS = {"ascii": "cp1252", "iso8859-1": "cp1252", "utf-16": "utf-8", "utf-16-le": "utf-8", "utf-16-be": "utf-8"}
"""What pages mean by the encodings that they declare, as browsers read them (WHATWG, Encoding): pages that declare
Latin-1 have typographic quotes, and a declaration that can be read as ASCII is not in UTF-16."""
_LONGEST_TITLE_LINE = 100
"""Characters of a plain text's first line that can be its title."""
_SENTENCE_END = (".", ":", ";", ",", "!", "。")
PASSAGE_CHARS = 1000
"""Longest text of a passage: about 160 words of English. The published systems were trained with three passages of
Wikipedia of 100 words each; three of these make a read turn half as long again."""
BETWEEN_HEADINGS = " > "
_BLOCK_CHARS = 100_000
"""The splitter takes the square of a text's length in time."""
_LONGEST_TITLE = 200
_LONGEST_HEADING = 90


class UnreadableError(Exception):
    """A document without usable text; the message is the cause, in a few words."""


@dataclass(frozen=True)
class Section:
    """Text under headings, the outermost first; none before the first heading. Paragraphs are parted by blank lines."""

    headings: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class Document:
    """beside: texts of the file that are not its content, or are parts of its lines."""

    title: str
    sections: list[Section] = field(default_factory=list)
    beside: list[str] = field(default_factory=list)

    @property
    def lines(self) -> list[str]:
        return [line for section in self.sections for line in section.text.split("\n") if line.strip()]


def sections_under(parts: Iterable[tuple[float | None, str]], title: str) -> list[Section]:
    """The sections of a document. parts: its texts in order; a heading's with its rank, of which smaller ones are
    outer. A heading with nothing below it is a text: it may be all that is said."""
    path, sections, is_bare = list[tuple[float, str]](), list[Section](), False

    def add(headings: list[tuple[float, str]], text: str) -> None:
        names = tuple(name for _, name in headings)
        sections.append(Section(names[names[:1] == (title,) :], text))

    for rank, text in [*parts, (-math.inf, "")]:
        if rank is None:
            add(path, text)
            is_bare = False
            continue
        if is_bare and rank <= path[-1][0] and path[-1][1] != title:
            add(path[:-1], path[-1][1])
        path, is_bare = [each for each in path if each[0] < rank] + [(rank, text)], True
    return sections


def decoded(content: bytes, *, declared: str | None = None) -> str:
    """The text of a file, by its byte order mark, else the encoding that it declares, else UTF-8.

    No encoding is guessed: a wrong guess would go unnoticed into every prompt. Raises UnreadableError.
    """
    encoding = next((name for mark, name in _ENCODINGS if content.startswith(mark)), declared or "utf-8")
    try:
        encoding = _READ_AS.get(codecs.lookup(encoding).name, encoding) if encoding is declared else encoding
        text = content.decode(encoding)
    except LookupError:
        raise UnreadableError(f"unknown encoding {encoding[:40]!r}; convert it to UTF-8") from None
    except UnicodeError:
        advice = "convert it, for example by: iconv -f windows-1252 -t utf-8 OLD > NEW"
        raise UnreadableError(f"not {encoding.upper()} text; {advice}") from None
    if "\0" in text:
        raise UnreadableError("holds NUL bytes: a binary file, not text")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def plain_document(content: bytes, name: str) -> Document:
    """A plain text. Its title is a short first line with a blank line below, else `name`."""
    text = decoded(content).strip()
    first, _, rest = text.partition("\n")
    if rest.startswith("\n") and len(first) <= _LONGEST_TITLE_LINE and not first.rstrip().endswith(_SENTENCE_END):
        return Document(on_one_line(first), [Section((), rest.strip())])
    return Document(name, [Section((), text)])


def on_one_line(text: str) -> str:
    return " ".join(text.split())


def name_of(path: str) -> str:
    """A title from a path, for documents without one: `leave/parental-leave.md` is `parental leave`, `leave/index.html`
    is `leave`."""
    parts = [part for part in re.split(r"[/\\]", path) if part]
    stem = parts[-1].rpartition(".")[0] or parts[-1]
    if stem.casefold() in ("index", "readme") and len(parts) > 1:
        stem = parts[-2]
    return on_one_line(re.sub(r"[-_]+", " ", stem))


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
