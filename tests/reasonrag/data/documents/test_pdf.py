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


def test_the_title_is_the_metadatas_unless_a_program_wrote_it() -> None:
    pages = [["Leave", "28 days."]]
    assert pdf_document(pdf(pages, title="Handbook"), "n").title == "Handbook"
    assert pdf_document(pdf(pages, title="Microsoft Word - Doc1.docx"), "n").title == "n"


def test_what_cannot_be_read_says_why() -> None:
    """Scans need a text recognition, which is another program's work."""
    for content, cause in (
        (pdf([[], []]), "no text on 2 pages: scanned"),
        (b"%PDF-1.4 nope", "not a readable PDF"),
    ):
        with pytest.raises(UnreadableError, match=cause):
            pdf_document(content, "n")
