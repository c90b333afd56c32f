"""HTML and Markdown as sections under headings.

Decides what of a page is its content: navigation, scripts, forms and what is hidden are not. Markdown is turned into
HTML first, so that both are read by one walk, which does not recurse: pages are hostile. Knows no passage.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reasonrag.data.documents.document import Document, Section, decoded, on_one_line

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser, LexborNode

_NO_CONTENT = frozenset(
    "head script style noscript template svg math canvas iframe object audio video nav footer button select textarea "
    "dialog".split()
)
_BESIDE_CONTENT = ("header", "aside")
"""Banners and side bars of a page that marks no part of it as its content; in such a part they belong to it."""
_NO_CONTENT_ROLES = frozenset(("navigation", "banner", "contentinfo", "search"))
_INLINE = frozenset(
    "a abbr b bdi bdo big br cite code data del dfn em font i img input ins kbd label mark q s samp small span strike "
    "strong sub sup time tt u var wbr".split()
)
_LINK_MARKS = ("#", "¶", "§", "🔗")
"""Texts of links that headings have to themselves."""
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_ITEM, _ROW, _CELLS, _CODE = "li", "tr", ("td", "th"), "pre"
_WHOLE = frozenset((_ITEM, _ROW, _CODE, *_HEADINGS))
"""Elements with one text, whatever stands in them."""
_CHARSET = re.compile(rb"<meta[^>]{0,200}charset\s*=\s*[\"']?([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)
_CHARSET_WITHIN = 4096
_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(?=[\w-]+:)(.*?)\n(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_TITLE_LINE = re.compile(r"^title:[ \t]*(.+)$", re.MULTILINE)


def html_document(content: bytes, name: str) -> Document:
    """An HTML page. Its title is its only h1, else its <title>, else `name`. Raises UnreadableError."""
    from selectolax.lexbor import LexborHTMLParser

    declared = _CHARSET.search(content[:_CHARSET_WITHIN])
    page = LexborHTMLParser(decoded(content, declared=declared.group(1).decode("ascii") if declared else None))
    titles = page.css("title")
    return _document(page, _title_of(page) or (on_one_line(titles[0].text()) if titles else "") or name)


def markdown_document(content: bytes, name: str) -> Document:
    """A Markdown page (CommonMark, with tables). Its title is that of its front matter, else its only h1, else `name`.
    Raises UnreadableError."""
    from markdown_it import MarkdownIt
    from selectolax.lexbor import LexborHTMLParser

    text = decoded(content)
    front = _FRONT_MATTER.match(text)
    given = _TITLE_LINE.search(front.group(1)) if front else None
    markdown = MarkdownIt("commonmark").enable("table")
    page = LexborHTMLParser(f"<body>{markdown.render(text[front.end() :] if front else text)}")
    return _document(page, (on_one_line(given[1].strip().strip("\"'")) if given else "") or _title_of(page) or name)


def _title_of(page: LexborHTMLParser) -> str:
    """The only h1."""
    top = page.css("h1")
    return on_one_line(" ".join(each.text for each in _sections(top[0]))) if len(top) == 1 else ""


def _document(page: LexborHTMLParser, title: str) -> Document:
    mains, articles = page.css("main, [role=main]"), page.css("article")
    content = mains[:1] or (articles if len(articles) == 1 else [])
    root = content[0] if content else page.body
    found = _sections(root, whole_page=not content) if root else []
    return Document(title, [Section(each.headings[each.headings[:1] == (title,) :], each.text) for each in found])


def _sections(root: LexborNode, *, whole_page: bool = False) -> list[Section]:
    """The text below a node. Paragraphs are parted by a blank line; items of lists and rows of tables by a line."""
    text, places = _Text(root.mem_id), {root.mem_id: (root.mem_id, "", root.mem_id)}
    for node in root.traverse(include_text=True):
        place = places.get(node.parent.mem_id) if node.parent else None
        if place is None:  # the root; or within what is no content
            continue
        if node.is_text_node:
            text.add(*place, node.text_content or "")
        elif node.is_element_node and _is_content(node, whole_page=whole_page):
            tag, (block, kind, _) = str(node.tag), place
            if tag in _WHOLE or (tag not in _INLINE and not kind):
                place = node.mem_id, tag if tag in _WHOLE else "", node.mem_id
            elif tag not in _INLINE:  # a paragraph of an item, a cell of a row, a line of code
                place = block, kind, node.mem_id
            if tag == "br":
                text.add(*place, "\n" if kind == _CODE else " ")
            elif tag not in _INLINE:  # what is before it ends, also if this has no text
                text.add(*place, " | " if tag in _CELLS else "")
            places[node.mem_id] = place
    text.end_section()
    return text.sections


def _is_content(node: LexborNode, *, whole_page: bool) -> bool:
    if node.tag in _NO_CONTENT or (whole_page and node.tag in _BESIDE_CONTENT):
        return False
    if node.tag == "a" and node.text().strip() in _LINK_MARKS:
        return False
    attributes = node.attributes
    hidden = "hidden" in attributes or attributes.get("aria-hidden") == "true"
    return not hidden and attributes.get("role") not in _NO_CONTENT_ROLES


@dataclass
class _Text:
    """Collects texts by their blocks."""

    _block: int
    """The element whose text is collected."""
    _part: int = 0
    _kind: str = ""
    """Its tag, of a heading, an item, a row or code; empty for another paragraph."""
    sections: list[Section] = field(default_factory=list)
    _headings: list[tuple[int, str]] = field(default_factory=list)
    _paragraphs: list[str] = field(default_factory=list)
    """Each with what parts it from the one before."""
    _after_line: bool = False
    _pieces: list[str] = field(default_factory=list)

    def add(self, block: int, kind: str, part: int, text: str) -> None:
        """part: the innermost element that is not inline."""
        if block != self._block:
            self._end_block()
            self._block, self._kind = block, kind
        elif part != self._part:
            self._pieces.append("\n" if kind == _CODE else " ")
        self._part = part
        self._pieces.append(text)

    def end_section(self) -> None:
        self._end_block()
        if self._paragraphs:
            text = "".join(self._paragraphs).strip("\n")
            self.sections.append(Section(tuple(heading for _, heading in self._headings), text))
            self._paragraphs.clear()

    def _end_block(self) -> None:
        raw, kind = "".join(self._pieces), self._kind
        self._pieces.clear()
        text = raw.strip("\n").rstrip() if kind == _CODE else on_one_line(raw)
        text = text.removeprefix("|").strip() if kind == _ROW else text
        if not text.strip(" |"):
            return
        if level := _HEADINGS.get(kind):
            self.end_section()
            self._headings = [each for each in self._headings if each[0] < level] + [(level, text)]
            return
        is_line = kind in (_ITEM, _ROW)
        mark = "- " if kind == _ITEM else ""
        self._paragraphs.append(("\n" if is_line and self._after_line else "\n\n") + mark + text)
        self._after_line = is_line
