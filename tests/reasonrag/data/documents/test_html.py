"""HTML and Markdown: what of a page is its content, and under which headings it stands."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reasonrag.data.documents.document import Document, UnreadableError
from reasonrag.data.documents.html import html_document, markdown_document

Page = tuple[str, str, list[tuple[tuple[str, ...], str]]]
"""As it is written, its title, and its sections: under which headings what text stands."""
FIRST = "Everyone has 28 days of leave a year, and days that are left over lapse at the end of March."
LONG = f"<p>{FIRST}</p>"
HTML: list[Page] = [
    ("<p>Hello</p>", "a name", [((), "Hello")]),
    ("<title>T | Intranet</title><h1>T</h1><p>a<b>b</b>\nc<p>d", "T", [((), "ab c\n\nd")]),
    ("<title>T</title><h1>One</h1>a<h1>Two</h1>b", "T", [(("One",), "a"), (("Two",), "b")]),
    ("<h1>T</h1><h2>A</h2>a<h3>B</h3>b<h2>C</h2>c", "T", [(("A",), "a"), (("A", "B"), "b"), (("C",), "c")]),
    ("<h1>T<a href=#t>#</a></h1><h2>C#<a href=#c>¶</a></h2>a", "T", [(("C#",), "a")]),
    ("<ol><li>a<ul><li>x</ul><li>b</ol>", "a name", [((), "- a\n  - x\n- b")]),
    ("<table><tr><th>Site<th>Gate<tr><td><p>Berlin</p><td>9</table>", "a name", [
        ((), "| Site | Gate |\n| Berlin | 9 |"),
    ]),
    (f"<h1>T</h1>{LONG}<table><tr><td>x<td><ul><li>one<li>two</ul></table>{LONG}", "T", [
        ((), f"{FIRST}\n\n| x | one two |\n\n{FIRST}"),
    ]),
    (f"<h1>T</h1>{LONG}<pre>a  b\n # c\n</pre>{LONG}", "T", [((), f"{FIRST}\n\na  b\n # c\n\n{FIRST}")]),
    (f"<nav>Menu</nav><header>Banner</header><p hidden>y</p>{LONG}<footer>Imprint</footer>", "a name", [((), FIRST)]),
    (f"<form><div class=menu><a href=a>Menu</a></div><div class=content><h1>T</h1>{LONG}</div></form>", "T", [
        ((), FIRST),
    ]),
    (f"<table><tr><td><a href=a>Menu</a><td><h1>T</h1>{LONG}<ul><li>a<li>b</ul></table>", "T", [
        ((), f"{FIRST}\n\n- a\n- b"),
    ]),
    (f"<main><h1>T</h1>{LONG}<div>Fee is <b>5</b> EUR: <p>per person</p> rest</div></main>", "T", [
        ((), f"{FIRST}\n\nFee is 5 EUR:\n\nper person\n\nrest"),
    ]),
    (f"{'<div>' * 300}<p>deep</p>{'</div>' * 300}<p>after</p>", "a name", [((), "deep\n\nafter")]),
    ("<frameset><frame src=a></frameset>", "a name", []),
    ("<!-- c -->", "a name", []),
    ("<p>1 &lt; 2 &amp; <!-- c -->3 <script>x</script></p>", "a name", [((), "1 < 2 & 3")]),
    ("", "a name", []),
]  # fmt: skip
MARKDOWN: list[Page] = [
    ("# T\n\na [b](http://c) ![d](e) **f**", "T", [((), "a b f")]),
    ('---\ntitle: "T"\ntags: [a]\n---\n# T\n\na', "T", [((), "a")]),
    ("---\ntitle: X\n---\n# T\n\na", "X", [(("T",), "a")]),
    ("T\n=\n\nA\n-\n\n```sh\n# no heading\n```\n", "T", [(("A",), "# no heading")]),
    ("# T\n\n1. a\n2. b\n\n| x | y |\n|---|---|\n| 1 | 2 |", "T", [((), "1. a\n2. b\n\n| x | y |\n| 1 | 2 |")]),
    ("\ufeff# T\r\n\r\na\r\nb", "T", [((), "a b")]),
    ("# T\n\n- ## a\n\n> ## b", "T", [((), "- a\n\n> b")]),
    ("# T\n\na\n\n## Call 112", "T", [((), "a"), ((), "Call 112")]),
    ("# T\n\n````\n```\n# a\n````\n\n## B\n\n\\# c", "T", [((), "```\n# a"), (("B",), "# c")]),
    ("a <b>c</b> <script>x</script>", "a name", [((), "a c")]),
]


@pytest.mark.parametrize(
    ("read", "page"), [*((html_document, each) for each in HTML), *((markdown_document, each) for each in MARKDOWN)]
)
def test_the_content_of_a_page_stands_under_its_headings(read: Callable[[bytes, str], Document], page: Page) -> None:
    """Navigation, scripts and what is hidden are left out; lists, tables and code keep their lines, also where a table
    or a form holds the whole page. Addresses and emphasis are gone; a comment in a code block is no heading."""
    document = read(page[0].encode(), "a name")
    assert (document.title, [(each.headings, each.text) for each in document.sections]) == page[1:]


def test_a_declared_encoding_counts_and_none_is_guessed() -> None:
    """A wrong guess would go unnoticed into every prompt."""
    page = "<p>München</p>".encode("latin-1")
    assert html_document(b'<meta charset="iso-8859-1">' + page, "n").sections[0].text == "München"
    quoted = "<meta charset=latin1><p>“München”</p>".encode("cp1252")  # as browsers read it
    assert html_document(quoted, "n").sections[0].text == "“München”"
    assert html_document("<meta charset=utf-16><p>München</p>".encode(), "n").sections[0].text == "München"
    with pytest.raises(UnreadableError, match="not UTF-8 text; convert it"):
        html_document(page, "n")
    with pytest.raises(UnreadableError, match="unknown encoding 'klingon'"):
        html_document(b"<meta charset=klingon>" + page, "n")
    assert markdown_document("# Ü".encode("utf-16"), "n").title == "Ü"
    with pytest.raises(UnreadableError, match="NUL bytes"):
        markdown_document(b"a\0b", "n")
