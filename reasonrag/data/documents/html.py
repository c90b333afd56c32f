"""Web pages, Markdown and Word files as sections under headings.

Decides the titles of such documents, and what of their structure stays: paragraphs, lists, tables and code, as Markdown
without links and emphasis. What of a web page is its content, trafilatura decides. Knows no passage.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from io import BytesIO
from itertools import groupby
from typing import TYPE_CHECKING

from reasonrag.data.documents.document import Document, UnreadableError, decoded, on_one_line, sections_under

if TYPE_CHECKING:
    from lxml.html import HtmlElement

_NO_TEXT = (
    "//*[@hidden or @aria-hidden='true'] | //script | //style | //template | //noscript | //svg | //img"
    # of links that headings have to themselves
    " | //a[normalize-space()='#' or normalize-space()='¶' or normalize-space()='§' or normalize-space()='🔗']"
)
_HOLDS_TEXT = "self::div or self::section or self::main or self::article"
_INLINE = "a abbr b big br cite code data del em font i ins kbd label mark q s small span strong sub sup time u".split()
_WITHOUT_MARKS = "a b strong em i code del s sub sup".split()
_CHARSET = re.compile(
    rb"<(?:meta[^>]{0,200}charset|\?xml[^>]{0,200}encoding)\s*=\s*[\"']?([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE
)
_CHARSET_WITHIN = 4096
_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(?=[\w-]+:)(.*?)\n(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_TITLE_LINE = re.compile(r"^title:[ \t]*([^>|\s].*)$", re.MULTILINE)
_MARK, _IN_CODE = "\ue000", {"\n": "\ue001", " ": "\ue002", "\t": "\ue003"}
"""What begins the line of a heading, and what stands for white space of code while lines are told apart."""
_INNER = re.compile(f"{_MARK}\\d")
"""Of a heading in a list, a quotation or a table, which is a text there."""
_RULE = re.compile(r"---|\|(?: --- \|)+|\|(?:\s*\|)+")
"""A line, or what Markdown writes below or for a table's head."""
_SHORT = 250
"""Characters of content that trafilatura looks for before it takes what it finds."""
_WORD_STYLES = "p[style-name='Title'] => h1.title:fresh"


def html_document(content: bytes, name: str) -> Document:
    """A web page. Title: its only h1, else its <title> without the site's name, else `name`. Raises UnreadableError."""
    declared = _CHARSET.search(content[:_CHARSET_WITHIN])
    return page_document(decoded(content, declared=declared.group(1).decode("ascii") if declared else None), name)


def page_document(text: str, name: str) -> Document:
    """A web page, as text."""
    import trafilatura
    from trafilatura.metadata import extract_title
    from trafilatura.settings import use_config

    page = _parsed(text)
    title = _title_of(page) or on_one_line(extract_title(page) or "") or name
    texts = {on_one_line(each) for each in page.itertext()}
    _keep_structure(page)
    config = use_config()  # below this it takes whatever text there is, without headings
    config.set("DEFAULT", "MIN_EXTRACTED_SIZE", str(min(_SHORT, len(on_one_line(page.text_content())) // 16)))
    content = trafilatura.extract(page, output_format="html", include_comments=False, config=config)
    found = _document(_parsed(content) if content else page, title)
    return replace(found, beside=sorted(texts.difference(found.lines)))


def markdown_document(content: bytes, name: str) -> Document:
    """A Markdown page (CommonMark, with tables). Its title is that of its front matter, else its only h1, else `name`.
    Raises UnreadableError."""
    from markdown_it import MarkdownIt

    text = decoded(content)
    front = _FRONT_MATTER.match(text)
    given = _TITLE_LINE.search(front.group(1)) if front else None
    page = _parsed(MarkdownIt("commonmark").enable("table").render(text[front.end() :] if front else text))
    return _document(page, (on_one_line(given[1].strip().strip("\"'")) if given else "") or _title_of(page) or name)


def word_document(content: bytes, name: str) -> Document:
    """A Word file (docx). Its title is its only paragraph of style Title, else of style Heading 1, else `name`; its
    running heads, comments and pictures are left out. Raises UnreadableError."""
    from xml.parsers.expat import ExpatError
    from zipfile import BadZipFile

    import mammoth

    try:
        found = mammoth.convert_to_html(
            BytesIO(content), style_map=_WORD_STYLES, convert_image=lambda _: [], external_file_access=False
        )
    except (BadZipFile, ExpatError, KeyError, ValueError) as error:
        raise UnreadableError(f"not a readable Word file ({error})") from error
    page = _parsed(found.value)
    titles = page.xpath("//h1[@class='title']")
    title = on_one_line(titles[0].text_content()) if len(titles) == 1 else _title_of(page)
    if len(titles) == 1:
        titles[0].drop_tree()
    return _document(page, title or name)


def _parsed(text: str) -> HtmlElement:
    """A page without what has no text. Lines end where elements do."""
    from lxml import etree, html

    # huge: else it stops, without a word, at 10 MB of a text and at 256 levels
    parser = html.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True, huge_tree=True)
    content = text.replace(_MARK, "").encode()
    try:
        page = html.document_fromstring(content or b"<body>", parser=parser, ensure_head_body=True)
    except etree.ParserError:  # it has nothing but comments
        page = html.document_fromstring(b"<body>", parser=parser, ensure_head_body=True)
    for each in page.xpath(_NO_TEXT):
        each.drop_tree()
    for each in page.xpath("//h1//br"):
        each.tail = f" {each.tail or ''}"
    for piece in page.xpath("//text()[contains(., '\n') and not(ancestor::pre)]"):
        setattr(piece.getparent(), "text" if piece.is_text else "tail", piece.replace("\n", " "))
    return page


def _title_of(page: HtmlElement) -> str:
    """The only h1."""
    top = page.xpath("//h1")
    return on_one_line(top[0].text_content()) if len(top) == 1 else ""


def _keep_structure(page: HtmlElement) -> None:
    """What trafilatura would lose: all but paragraphs of a page that marks no content, what stands in tables for
    layout, lists in cells, forms, lines of code, captions, and text beside a paragraph that is in none."""
    if not page.xpath("//main | //article | //*[@role='main']"):
        content, body = page.body, page.makeelement("body")
        content.tag = "main"
        content.addprevious(body)
        body.append(content)
    for each in page.xpath("//form | //figcaption"):  # some servers write a form around each page
        each.tag = "div" if each.tag == "form" else "p"
    for table in page.xpath("//table[descendant::table or descendant::h1 or descendant::h2 or descendant::h3]"):
        for part in table.xpath(". | ./* | ./tr/* | ./*/tr | ./*/tr/*"):
            part.tag = "div"
    for block in page.xpath("//table//*[self::p or self::div or self::ul or self::ol or self::li]"):
        block.tag, block.tail = "span", f" {block.tail or ''}"
    for lines in page.xpath("//pre[not(code)]"):
        lines.tag, code = "code", lines.makeelement("pre")
        lines.addprevious(code)
        code.tail, lines.tail = lines.tail, None
        code.append(lines)
    for parent in page.xpath(f"//*[{_HOLDS_TEXT}][p or pre or table or ul or ol or h1 or h2 or h3 or h4]"):
        _part_paragraphs(parent)


def _part_paragraphs(parent: HtmlElement) -> None:
    """Text of an element that holds paragraphs becomes paragraphs."""
    run, before, parent.text = None, parent.text, None

    def begin(text: str | None, place: Callable[[HtmlElement], None]) -> HtmlElement:
        found = parent.makeelement("p")
        found.text = text
        place(found)
        return found

    children = parent.getchildren()
    if (before or "").strip():
        run = begin(before, partial(parent.insert, 0))
    for child in children:
        if child.tag in _INLINE:
            if run is None:
                run = begin(None, child.addprevious)
            run.append(child)
        else:
            after, child.tail, run = child.tail, None, None
            if (after or "").strip():
                run = begin(after, child.addnext)


def _document(page: HtmlElement, title: str) -> Document:
    """Its text under its headings."""
    from lxml import html
    from markdownify import markdownify

    for code in page.xpath("//pre[not(.//pre)]"):
        text = code.text_content().strip("\n").translate(str.maketrans(_IN_CODE))
        code.clear(keep_tail=True)
        code.tag, code.text = "p", text
    for outer in page.xpath("//pre"):
        outer.tag = "div"
    for heading in page.xpath("//h1 | //h2 | //h3 | //h4 | //h5 | //h6"):
        heading.text, heading.tag = f"{_MARK}{heading.tag[1]}{heading.text or ''}", "p"
    text = markdownify(
        html.tostring(page.body, encoding="unicode"), bullets="-", strip=_WITHOUT_MARKS,
        escape_asterisks=False, escape_underscores=False, escape_misc=False,
    )  # fmt: skip
    back = str.maketrans({code: space for space, code in _IN_CODE.items()})
    lines = (line.rstrip().translate(back) for line in text.split("\n") if not _RULE.fullmatch(line.rstrip()))
    return Document(title, sections_under(_parts(lines), title))


def _parts(lines: Iterable[str]) -> Iterator[tuple[float | None, str]]:
    """Headings with their level, and texts."""
    for is_heading, group in groupby(lines, key=lambda line: line.startswith(_MARK)):
        if is_heading:
            yield from ((float(line[1]), on_one_line(line[2:])) for line in group if line[2:].strip())
        elif text := _INNER.sub("", "\n".join(group).strip("\n")):
            yield None, text
