"""Web pages, Markdown and Word files as sections under headings.

Decides the titles of such documents, and what of their structure stays: paragraphs, lists, tables and code, as Markdown
without links and emphasis. What of a web page is its content, trafilatura decides. Knows no passage.
"""

from __future__ import annotations

import re
from dataclasses import replace
from io import BytesIO
from typing import TYPE_CHECKING

from reasonrag.data.documents.document import Document, Section, UnreadableError, decoded, on_one_line

if TYPE_CHECKING:
    from lxml.html import HtmlElement

_NO_TEXT = (
    "//*[@hidden or @aria-hidden='true'] | //script | //style | //template | //noscript | //svg | //img"
    # of links that headings have to themselves
    " | //a[normalize-space()='#' or normalize-space()='¶' or normalize-space()='§' or normalize-space()='🔗']"
)
_WITHOUT_MARKS = "a b strong em i code del s sub sup".split()
_CHARSET = re.compile(rb"<meta[^>]{0,200}charset\s*=\s*[\"']?([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)
_CHARSET_WITHIN = 4096
_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(?=[\w-]+:)(.*?)\n(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_TITLE_LINE = re.compile(r"^title:[ \t]*(.+)$", re.MULTILINE)
_HEADING, _FENCE, _RULE = re.compile(r"(#{1,6}) +(.+)"), "```", re.compile(r"[|-][|\s-]+")
_SHORT = 250
"""Characters of content that trafilatura looks for before it takes what it finds."""
_WORD_STYLES = "p[style-name='Title'] => h1:fresh"


def html_document(content: bytes, name: str) -> Document:
    """A web page. Its title is its only h1, else its <title> without the site's name, else `name`. Raises
    UnreadableError."""
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
    """A Word file (docx). Its title is its only paragraph of style Title or Heading 1, else `name`; its running heads,
    comments and pictures are left out. Raises UnreadableError."""
    from xml.parsers.expat import ExpatError
    from zipfile import BadZipFile

    import mammoth

    try:
        found = mammoth.convert_to_html(BytesIO(content), style_map=_WORD_STYLES, external_file_access=False)
    except (BadZipFile, ExpatError, KeyError, ValueError) as error:
        raise UnreadableError(f"not a readable Word file ({error})") from error
    page = _parsed(found.value)
    return _document(page, _title_of(page) or name)


def _parsed(text: str) -> HtmlElement:
    """A page without what has no text. Lines end where elements do."""
    from lxml import html

    parser = html.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True)
    page = html.document_fromstring(text.encode() if text.strip() else b"<body></body>", parser=parser)
    for each in page.xpath(_NO_TEXT):
        each.drop_tree()
    for piece in page.xpath("//text()[contains(., '\n') and not(ancestor::pre)]"):
        setattr(piece.getparent(), "text" if piece.is_text else "tail", piece.replace("\n", " "))
    return page


def _title_of(page: HtmlElement) -> str:
    """The only h1."""
    top = page.xpath("//h1")
    return on_one_line(top[0].text_content()) if len(top) == 1 else ""


def _keep_structure(page: HtmlElement) -> None:
    """What trafilatura would lose: all but paragraphs of a page that marks no content, what stands in tables for
    layout, lists in cells, forms, and lines of code."""
    if not page.xpath("//main | //article | //*[@role='main']"):
        content, body = page.body, page.makeelement("body")
        content.tag = "main"
        content.addprevious(body)
        body.append(content)
    for form in page.xpath("//form"):  # of a whole page, as some servers write them
        form.tag = "div"
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


def _document(page: HtmlElement, title: str) -> Document:
    """Its text under its headings."""
    from lxml import html
    from markdownify import ATX, markdownify

    body = page.body if page.body is not None else page
    text = markdownify(
        html.tostring(body, encoding="unicode"), heading_style=ATX, bullets="-", strip=_WITHOUT_MARKS,
        escape_asterisks=False, escape_underscores=False, escape_misc=False,
    )  # fmt: skip
    path, lines, sections, is_code = list[tuple[int, str]](), list[str](), list[Section](), False

    def end() -> None:
        headings = tuple(heading for _, heading in path)
        if found := "\n".join(lines).strip("\n"):
            sections.append(Section(headings[headings[:1] == (title,) :], found))
        lines.clear()

    for line in text.split("\n"):
        if line.startswith(_FENCE):
            is_code = not is_code
        elif not is_code and (heading := _HEADING.fullmatch(line)):
            end()
            path = [each for each in path if each[0] < len(heading[1])] + [(len(heading[1]), on_one_line(heading[2]))]
        elif is_code or not _RULE.fullmatch(line):
            lines.append(line.rstrip())
    end()
    return Document(title, sections)
