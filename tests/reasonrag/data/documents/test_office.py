"""Word, Excel, CSV and e-mail: titles, headings, rows as `key: value`, and what a file says that is none."""

from __future__ import annotations

from collections.abc import Callable
from email.message import EmailMessage

import pytest

from reasonrag.data.documents.document import Document, Section, UnreadableError
from reasonrag.data.documents.html import word_document
from reasonrag.data.documents.mail import mail_document
from reasonrag.data.documents.tables import csv_document, sheets_document
from tests.helpers.documents import docx, paragraph, xlsx


def test_a_word_file_has_its_styles_headings_and_its_tables_rows() -> None:
    row = "<w:tr>{}</w:tr>".format("".join(f"<w:tc>{paragraph(text)}</w:tc>" for text in ("Basic", "12.30")))
    body = [
        paragraph("Leave", "Title"),
        paragraph("28 days.  # 1 counts"),
        paragraph("# 1 is no heading"),
        paragraph("Parents", "Heading2"),
        paragraph("14 months."),
        f"<w:tbl>{row}</w:tbl>",
    ]
    found = word_document(docx("".join(body)), "n")
    assert found.title == "Leave"
    assert found.sections == [
        Section((), "28 days. # 1 counts\n\n# 1 is no heading"),
        Section(("Parents",), "14 months.\n\n| Basic | 12.30 |"),
    ]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("Tariff,Premium\nBasic,12.30\n,\nTop,20\n", ["Tariff: Basic\nPremium: 12.30", "Tariff: Top\nPremium: 20"]),
        ("Tarif;Beitrag\nBasis;12,30\n", ["Tarif: Basis\nBeitrag: 12,30"]),
        ('a,b\n"x, y","one\ntwo"\n', ["a: x, y\nb: one two"]),
        ("a,b\n1,2,3\n", ["a: 1\nb: 2\n3"]),
        ("annual_premium_eur,b\n1_2,2\n", ["annual premium eur: 1_2\nb: 2"]),
        ("one column\nof text\n", ["one column\nof text"]),
        ("Preis\n1,20\n2,30\n", ["Preis\n1,20\n2,30"]),
        ("# by a tool, version 3\nsep=;\na;b\n1;2\n", ["a: 1\nb: 2"]),
        ("Prices\nwithout VAT\na\tb\n1\t2\n3\t4\n", ["without VAT", "a: 1\nb: 2", "a: 3\nb: 4"]),
        ('a,b\n"He said ""hi, you""",2\n', ['a: He said "hi, you"\nb: 2']),
    ],
)
def test_a_row_of_a_csv_file_is_a_section(text: str, rows: list[str]) -> None:
    """Its columns are named by the first row; empty cells and rows say nothing; what has no name stands alone."""
    assert [each.text for each in csv_document(text.encode(), "n").sections] == rows


def test_sheets_are_headings_where_there_are_several_and_lines_above_a_table_too() -> None:
    prices = [["Prices of 2026"], ["Tariff", "Euros", "From"], ["Basic", 12, ""], ["Top", 20.5, "May"]]
    assert sheets_document(xlsx({"Prices": prices}), "n") == Document("n", [
        Section(("Prices of 2026",), "Tariff: Basic\nEuros: 12"),
        Section(("Prices of 2026",), "Tariff: Top\nEuros: 20.5\nFrom: May"),
    ])  # fmt: skip
    both = sheets_document(xlsx({"Prices": prices, "Offices": [["City", "Floor"], ["Bonn", 2]]}), "n")
    assert both.sections[-1] == Section(("Offices",), "City: Bonn\nFloor: 2")


def test_an_e_mail_says_who_wrote_to_whom_and_when() -> None:
    """Its attachments are not read."""
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "a@x.example", "b@x.example", "Leave"
    message["Date"] = "Mon, 02 Mar 2026 09:15:00 +0100"
    message.set_content("28 days.")
    message.add_attachment(b"secret", maintype="text", subtype="plain", filename="plan.txt")
    head = "From: a@x.example, To: b@x.example, Date: Mon, 02 Mar 2026 09:15:00 +0100"
    assert mail_document(bytes(message), "n") == Document("Leave", [Section((), f"{head}\n\n28 days.")])


def test_an_e_mail_is_read_in_its_own_encoding_and_its_page_only_if_that_has_text() -> None:
    message = EmailMessage()
    message["Subject"] = "Gruß"
    message.set_content("Zahle 500 €.", charset="utf-8")
    message.add_alternative("<img src=a.png>", subtype="html")
    assert mail_document(bytes(message), "n") == Document("Gruß", [Section((), "Zahle 500 €.")])
    head = b"Subject: a\r\nContent-Type: text/plain; charset=iso-8859-1\r\n\r\n"
    assert mail_document(head + b"\x93ja\x94\r\nnein", "n").sections == [Section((), "\u201cja\u201d\nnein")]


LAUGHS = '<!DOCTYPE d [<!ENTITY a "aaaaaaaaaa">{}]>'.format(
    "".join(f'<!ENTITY {chr(98 + i)} "{f"&{chr(97 + i)};" * 10}">' for i in range(9))
)


@pytest.mark.parametrize(
    ("read", "content", "cause"),
    [
        (word_document, b"PK no zip", "not a readable Word file"),
        (word_document, docx(paragraph("&j;"), doctype=LAUGHS), "amplification"),
        (sheets_document, b"PK no zip", "not a readable Excel file"),
        (mail_document, b"Subject: x\n\n", "a message without text"),
    ],
)
def test_what_is_no_readable_file_says_why(read: Callable[[bytes, str], Document], content: bytes, cause: str) -> None:
    with pytest.raises(UnreadableError, match=cause):
        read(content, "n")


def test_nothing_outside_a_word_file_is_read() -> None:
    """An entity that names a file is nothing."""
    outside = docx(paragraph("&x; text"), doctype='<!DOCTYPE d [<!ENTITY x SYSTEM "file:///etc/passwd">]>')
    assert word_document(outside, "n").sections == [Section((), "text")]
