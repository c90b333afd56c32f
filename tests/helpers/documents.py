"""Small documents, as files of real programs hold them."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO

from pypdf import PdfWriter
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject


def pdf(pages: Sequence[Sequence[str]], *, title: str = "") -> bytes:
    """A PDF with these lines on its pages."""
    writer = PdfWriter()
    font = DictionaryObject({NameObject(f"/{key}"): NameObject(f"/{value}") for key, value in _HELVETICA.items()})
    for lines in pages:
        page = writer.add_blank_page(612, 792)
        content = DecodedStreamObject()
        shown = "".join(f"({line}) Tj 0 -14 Td " for line in lines)
        content.set_data(f"BT /F1 11 Tf 72 720 Td {shown}ET".encode("latin-1"))
        page[NameObject("/Contents")] = writer._add_object(content)
        fonts = DictionaryObject({NameObject("/F1"): font})
        page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
    if title:
        writer.add_metadata({"/Title": title})
    file = BytesIO()
    writer.write(file)
    return file.getvalue()


_HELVETICA = {"Type": "Font", "Subtype": "Type1", "BaseFont": "Helvetica", "Encoding": "WinAnsiEncoding"}
