"""Small documents, as files of real programs hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from zipfile import ZIP_DEFLATED, ZipFile

from pypdf import PdfWriter
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject


def pdf(pages: Sequence[Sequence[str]], *, title: str = "", letters: bytes = b"") -> bytes:
    """A PDF with these lines on its pages: those that begin with # in larger letters, with ~ in smaller ones. letters:
    its font's ToUnicode table, if it has one."""
    writer = PdfWriter()
    font = DictionaryObject({NameObject(f"/{key}"): NameObject(f"/{value}") for key, value in _HELVETICA.items()})
    if letters:
        table = DecodedStreamObject()
        table.set_data(letters)
        font[NameObject("/ToUnicode")] = writer._add_object(table)
    for lines in pages:
        page = writer.add_blank_page(612, 792)
        content = DecodedStreamObject()
        shown = "".join(f"/F1 {_SIZES.get(line[0], 11)} Tf ({line.lstrip('#~ ')}) Tj 0 -24 Td " for line in lines)
        content.set_data(f"BT /F1 11 Tf 72 720 Td {shown}ET".encode("latin-1"))
        page[NameObject("/Contents")] = writer._add_object(content)
        fonts = DictionaryObject({NameObject("/F1"): font})
        page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
    if title:
        writer.add_metadata({"/Title": title})
    file = BytesIO()
    writer.write(file)
    return file.getvalue()


def docx(body: str, *, doctype: str = "") -> bytes:
    """A Word file of this XML: paragraphs and tables."""
    parts = {
        "_rels/.rels": _relation("officeDocument", "word/document.xml"),
        "word/document.xml": f'{doctype}<w:document xmlns:w="{_WORD}"><w:body>{body}</w:body></w:document>',
        "word/styles.xml": f'<w:styles xmlns:w="{_WORD}">{_style("Title")}{_style("Heading 2")}</w:styles>',
        "word/_rels/document.xml.rels": _relation("styles", "styles.xml"),
    }
    return zipped(parts)


def paragraph(text: str, style: str = "") -> str:
    """Of a Word file. style: such as Heading1."""
    named = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f"<w:p>{named}<w:r><w:t>{text}</w:t></w:r></w:p>"


def xlsx(sheets: Mapping[str, Sequence[Sequence[object]]]) -> bytes:
    """An Excel file with these rows on its sheets."""
    parts, listed, related = {"_rels/.rels": _relation("officeDocument", "xl/workbook.xml")}, "", ""
    for number, (name, rows) in enumerate(sheets.items(), start=1):
        listed += f'<sheet name="{name}" sheetId="{number}" r:id="r{number}"/>'
        related += _relation("worksheet", f"worksheets/sheet{number}.xml", number)
        lines = "".join(f"<row>{''.join(map(_cell, row))}</row>" for row in rows)
        parts[f"xl/worksheets/sheet{number}.xml"] = (
            f'<worksheet xmlns="{_SHEETS}"><sheetData>{lines}</sheetData></worksheet>'
        )
    book = f'<workbook xmlns="{_SHEETS}" xmlns:r="{_OFFICE}"><sheets>{listed}</sheets></workbook>'
    return zipped({**parts, "xl/workbook.xml": book, "xl/_rels/workbook.xml.rels": related})


def zipped(parts: Mapping[str, str]) -> bytes:
    file = BytesIO()
    with ZipFile(file, "w", ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            whole = (
                f'<Relationships xmlns="{_PACKAGE}">{content}</Relationships>' if name.endswith(".rels") else content
            )
            archive.writestr(name, f'<?xml version="1.0"?>{whole}')
    return file.getvalue()


def _relation(kind: str, target: str, number: int = 1) -> str:
    return f'<Relationship Id="r{number}" Type="{_OFFICE}/{kind}" Target="{target}"/>'


def _style(name: str) -> str:
    return f'<w:style w:type="paragraph" w:styleId="{name.replace(" ", "")}"><w:name w:val="{name}"/></w:style>'


def _cell(value: object) -> str:
    if isinstance(value, str):
        return f'<c t="inlineStr"><is><t>{value}</t></is></c>'
    return f"<c><v>{value}</v></c>"


_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"
_SHEETS = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_SIZES = {"#": 18, "~": 8}
_HELVETICA = {"Type": "Font", "Subtype": "Type1", "BaseFont": "Helvetica", "Encoding": "WinAnsiEncoding"}
