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
    "a abbr b bdi bdo big cite code data del dfn em font i img input ins kbd label mark q s samp small span strike "
    "strong sub sup time tt u var wbr".split()
)
_LINK_MARKS = ("#", "¶", "§", "🔗")
"""Texts of links that headings have to themselves."""
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_LISTS = ("ul", "ol", "menu")
_CELLS = ("td", "th")
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
    return _document(page, on_one_line(titles[0].text()) if titles else "", name)


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
    title = on_one_line(given.group(1).strip().strip("\"'")) if given else ""
    return _document(page, title, name, own_title_first=bool(title))


def _document(page: LexborHTMLParser, title: str, name: str, *, own_title_first: bool = False) -> Document:
    mains, articles = page.css("main, [role=main]"), page.css("article")
    root = mains[0] if mains else articles[0] if len(articles) == 1 else page.body
    top = [_heading_of(each) for each in page.css("h1")]
    if len(top) == 1 and top[0] and not own_title_first:
        title = top[0]
    title = title or name
    walk = _Walk(whole_page=not mains and len(articles) != 1)
    if root is not None:
        walk.through(root)
    sections = [
        Section(headings[1:] if headings[:1] == (title,) else headings, text) for headings, text in walk.finished()
    ]
    return Document(title, sections)


def _heading_of(node: LexborNode) -> str:
    walk = _Walk(whole_page=False)
    walk.through(node)
    return on_one_line("".join(walk.inline))


@dataclass
class _Walk:
    """Collects the text of a page. Paragraphs are parted by a blank line; list items and rows of tables by a line."""

    whole_page: bool
    headings: list[tuple[int, str]] = field(default_factory=list)
    sections: list[tuple[tuple[str, ...], str]] = field(default_factory=list)
    paragraphs: list[tuple[str, bool]] = field(default_factory=list)
    """With whether each is a line of a list or a table."""
    inline: list[str] = field(default_factory=list)
    mark: str = ""
    """`- ` or a number, of the list item that begins."""
    numbers: list[int | None] = field(default_factory=list)
    """Items so far of the lists that are open; None for those without numbers."""
    in_row: bool = False
    in_pre: int = 0

    def through(self, root: LexborNode) -> None:
        open_nodes = [root]
        node = root.first_child
        while open_nodes:
            if node is None:
                left = open_nodes.pop()
                if open_nodes:
                    self._leave(str(left.tag))
                    node = left.next
            elif node.is_element_node and self._is_content(node):
                self._enter(str(node.tag))
                open_nodes.append(node)
                node = node.first_child
            else:
                if node.is_text_node:
                    self.inline.append(node.text_content or "")
                node = node.next

    def finished(self) -> list[tuple[tuple[str, ...], str]]:
        self._end_section()
        return self.sections

    def _is_content(self, node: LexborNode) -> bool:
        if node.tag in _NO_CONTENT or (self.whole_page and node.tag in _BESIDE_CONTENT):
            return False
        if node.tag == "a" and node.text().strip() in _LINK_MARKS:
            return False
        attributes = node.attributes
        hidden = "hidden" in attributes or attributes.get("aria-hidden") == "true"
        return not hidden and attributes.get("role") not in _NO_CONTENT_ROLES

    def _enter(self, tag: str) -> None:
        if tag in _INLINE:
            return
        if tag == "br":
            self.inline.append("\n" if self.in_pre else " ")
            return
        if tag == "table" or tag in _HEADINGS:
            self.in_row = False  # the table around it is one of layout
        self._end_paragraph()
        if tag in _LISTS:
            self.numbers.append(0 if tag == "ol" else None)
        elif tag == "li":
            self.mark = self._next_mark()
        elif tag == "tr":
            self.in_row = True
        elif tag == "pre":
            self.in_pre += 1

    def _leave(self, tag: str) -> None:
        if tag in _INLINE or tag == "br":
            return
        if tag in _CELLS:
            self.inline.append(" | ")
        elif tag in _HEADINGS:
            self._begin_section(_HEADINGS[tag])
        elif tag == "tr":
            self.in_row = False
        self._end_paragraph(line=tag in ("li", "tr"))
        if tag == "pre":
            self.in_pre -= 1
        elif tag == "li":
            self.mark = ""
        elif tag in _LISTS:
            self.numbers.pop()

    def _next_mark(self) -> str:
        count = self.numbers[-1] if self.numbers else None
        if count is None:
            return "- "
        self.numbers[-1] = count + 1
        return f"{count + 1}. "

    def _end_paragraph(self, *, line: bool = False) -> None:
        if self.in_row:  # a cell's paragraphs stay in its row
            self.inline.append(" ")
            return
        raw = "".join(self.inline)
        self.inline.clear()
        text = raw.strip("\n").rstrip() if self.in_pre else on_one_line(raw)
        text = text.removesuffix(" |")
        if text.strip(" |"):
            self.paragraphs.append((self.mark + text, line or bool(self.mark)))
            self.mark = ""

    def _begin_section(self, level: int) -> None:
        heading = on_one_line("".join(self.inline))
        self.inline.clear()
        if heading:
            self._end_section()
            self.headings = [each for each in self.headings if each[0] < level] + [(level, heading)]

    def _end_section(self) -> None:
        self._end_paragraph()
        text, after_line = [], False
        for paragraph, line in self.paragraphs:
            text += ["\n" if line and after_line else "\n\n", paragraph]
            after_line = line
        self.paragraphs.clear()
        if text:
            self.sections.append((tuple(heading for _, heading in self.headings), "".join(text[1:])))
