"""PDF: lines become paragraphs, and running heads go."""

from __future__ import annotations

import pytest

from reasonrag.data.documents.document import Section, UnreadableError
from reasonrag.data.documents.pdf import pdf_document
from tests.helpers.documents import pdf

FULL = "this line of the page is as long as the others are, so it goes on"


def test_full_lines_are_joined_and_short_ones_end_a_paragraph() -> None:
    """Words that were divided at the end of a line are whole again."""
    found = pdf_document(pdf([[FULL, f"{FULL[:-5]} divi-", "ded here.", "- an item", "- another"]]), "n")
    assert found.sections == [Section((), f"{FULL} {FULL[:-5]} divided here.\n- an item\n- another")]
    assert found.title == "n"


def test_running_heads_are_left_out() -> None:
    """First and last lines that more than half of the pages have, numbers apart."""
    texts = ["one", "two", "three", "four", "five"]
    pages = [["ACME confidential", text, "ACME GmbH", f"Page {i}"] for i, text in enumerate(texts)]
    pages[2] = ["three"]
    assert pdf_document(pdf(pages), "n").sections == [Section((), "\n".join(texts))]
    assert "confidential" in pdf_document(pdf(pages[:3]), "n").sections[0].text


def test_larger_lines_are_headings_and_the_largest_on_the_first_page_is_the_title() -> None:
    """What stands above it in smaller letters, and on one page of two, is a running head."""
    days, months = "Everyone has 28 days of leave.", "Parents have 14 months."
    pages = [["~ACME handbook", "~page 1", "# Leave", days], ["~ACME handbook", "~page 2", months]]
    found = pdf_document(pdf(pages, title="(anonymous)"), "n")
    assert (found.title, found.sections) == ("Leave", [Section((), f"{days}\n{months}")])
    assert found.beside == ["ACME handbook", "page 1", "page 2"]
    assert pdf_document(pdf(pages[:1]), "n").sections == [Section((), days)]
    noted = pdf_document(pdf([["# Leave", days, "~1 in a whole year"]]), "n")
    assert noted.sections == [Section((), f"{days}\n1 in a whole year")]


def test_without_headings_the_title_is_the_metadatas_unless_a_program_wrote_it() -> None:
    pages = [["Leave", "28 days."]]
    assert pdf_document(pdf(pages, title="Handbook"), "n").title == "Handbook"
    for placeholder in ("Microsoft Word - Doc1.docx", "(anonymous)", "untitled", "Word Document"):
        assert pdf_document(pdf(pages, title=placeholder), "n").title == "n"


def test_what_cannot_be_read_says_why() -> None:
    """Scans need a text recognition, which is another program's work."""
    for content, cause in (
        (pdf([[], []]), "no text on 2 pages: scanned"),
        (b"%PDF-1.4 nope", "not a readable PDF"),
    ):
        with pytest.raises(UnreadableError, match=cause):
            pdf_document(content, "n")
