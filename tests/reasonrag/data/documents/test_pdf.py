"""PDF: lines become paragraphs, running heads go, and the outline gives the headings."""

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


def test_the_outline_gives_the_headings() -> None:
    """From where its line stands on its page; from the next page on, if it has none. The title is the metadata's."""
    pages = [["Preface", "1 Leave", "28 days."], ["More.", "2 Sickness", "Call.", "Leave"], ["End."]]
    outline = [(0, "Leave"), (1, "2 Sickness"), (1, "Nowhere")]
    found = pdf_document(pdf(pages, title="Handbook", outline=outline), "n")
    assert found.title == "Handbook"
    assert [(each.headings, each.text) for each in found.sections] == [
        ((), "Preface"),
        (("Leave",), "28 days.\nMore."),
        (("2 Sickness",), "Call.\nLeave"),
        (("Nowhere",), "End."),
    ]
    at_once = pdf_document(pdf([["Leave", "28 days."]], outline=[(0, "Leave")]), "n")
    assert at_once.sections == [Section(("Leave",), "28 days.")]
    assert pdf_document(pdf(pages, title="Microsoft Word - Doc1.docx"), "n").title == "n"


def test_what_cannot_be_read_says_why() -> None:
    """Scans need a text recognition, which is another program's work."""
    for content, cause in (
        (pdf([[], []]), "no text on 2 pages: scanned"),
        (b"%PDF-1.4 nope", "not a readable PDF"),
    ):
        with pytest.raises(UnreadableError, match=cause):
            pdf_document(content, "n")
