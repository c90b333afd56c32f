"""HTML and Markdown: what of a page is its content, and under which headings it stands."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reasonrag.data.documents.document import Document, UnreadableError
from reasonrag.data.documents.html import html_document, markdown_document

Page = tuple[str, str, list[tuple[tuple[str, ...], str]]]
"""As it is written, its title, and its sections: under which headings what text stands."""
HTML: list[Page] = [
    ("<p>Hello</p>", "a name", [((), "Hello")]),
    ("<title>T | Intranet</title><h1>T</h1><p>a<b>b</b> c<p>d", "T", [((), "ab c\n\nd")]),
    ("<title>T</title><h1>One</h1>a<h1>Two</h1>b", "T", [(("One",), "a"), (("Two",), "b")]),
    ("<h1>T</h1><h2>A</h2>a<h3>B</h3>b<h2>C</h2>c", "T", [(("A",), "a"), (("A", "B"), "b"), (("C",), "c")]),
    ("<h1>T<a href=#t>#</a></h1><h2>C#<a href=#c>¶</a></h2>a", "T", [(("C#",), "a")]),
    ("<h1>T</h1>a<br>b<ul><li>c<li><p>d</p></ul>e", "T", [((), "a b\n\n- c\n- d\n\ne")]),
    ("<ol><li>a<ul><li>x</ul><li>b</ol>", "a name", [((), "- a\n- x\n- b")]),
    ("<table><tr><th>Site<th>Gate<tr><td><p>Berlin</p><td>9</table>", "a name", [((), "Site | Gate\nBerlin | 9")]),
    ("<table><tr><td><h2>Old</h2><p>a</p><table><tr><td>x<td>y</table>b</table>", "a name", [
        (("Old",), "a\nx | y\nb"),
    ]),
    ("<table><tr><th><th>2020<th><tr><td><td></table>", "a name", [((), "| 2020 |")]),
    ("<div>a<hr>b<p></p>c</div><ul><li><p>d</p>e<li>f<hr>g</ul>", "a name", [((), "a\n\nb\n\nc\n\n- d e\n- f g")]),
    ("<pre>a  b\n # c\n</pre><pre><div>d</div><div> e</div></pre>", "a name", [((), "a  b\n # c\n\nd\n e")]),
    ("<nav>n</nav><header>h</header><aside>s</aside><p hidden>y</p>a<footer>f</footer>", "a name", [
        ((), "a"),
    ]),
    ("<p>out</p><main><header><h1>T</h1></header><p>in</p><aside>note</aside></main>", "T", [((), "in\n\nnote")]),
    ("<div role=navigation>n</div><div aria-hidden=true>x</div><form><p>a<script>b</script></form>", "a name", [
        ((), "a"),
    ]),
    ("<p>1 &lt; 2 &amp; <!-- c -->3</p>", "a name", [((), "1 < 2 & 3")]),
    ("", "a name", []),
]  # fmt: skip
MARKDOWN: list[Page] = [
    ("# T\n\na [b](http://c) ![d](e)", "T", [((), "a b")]),
    ('---\ntitle: "T"\ntags: [a]\n---\n# T\n\na', "T", [((), "a")]),
    ("---\ntitle: X\n---\n# T\n\na", "X", [(("T",), "a")]),
    ("T\n=\n\nA\n-\n\n```sh\n# no heading\n```\n", "T", [(("A",), "# no heading")]),
    ("# T\n\n1. a\n2. b\n\n| x | y |\n|---|---|\n| 1 | 2 |", "T", [((), "- a\n- b\nx | y\n1 | 2")]),
    ("\ufeff# T\r\n\r\na\r\nb", "T", [((), "a b")]),
    ("---\n\na\n\n---\n\nb", "a name", [((), "a\n\nb")]),
    ("a <b>c</b> <script>x</script>", "a name", [((), "a c")]),
]


@pytest.mark.parametrize(
    ("read", "page"), [*((html_document, each) for each in HTML), *((markdown_document, each) for each in MARKDOWN)]
)
def test_the_content_of_a_page_stands_under_its_headings(read: Callable[[bytes, str], Document], page: Page) -> None:
    """Navigation, scripts and what is hidden are left out; lists and tables keep their lines. Of Markdown addresses and
    markup are gone; a comment in a code block is no heading; the title of the front matter counts."""
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
