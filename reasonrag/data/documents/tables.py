"""Tables of CSV and Excel files: a row is a section, its cells are lines of `key: value`.

Decides which row names the columns: the first with two cells or more. What stands above it is a heading. Formulas are
not computed: a cell has the value that was saved with it. Knows no passage.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from datetime import datetime
from io import BytesIO, StringIO
from typing import Any

from reasonrag.data.documents.document import Document, Section, UnreadableError, decoded, on_one_line

_DELIMITERS = ",;\t|"
_LOOKED_AT = 10_000
"""Characters of a CSV file by which its delimiter is told."""
_MOST_ROWS = 200_000


def csv_document(content: bytes, name: str) -> Document:
    """A CSV file, its delimiter one of comma, semicolon, tabulator and bar. Raises UnreadableError."""
    text = decoded(content)
    try:
        dialect: Any = csv.Sniffer().sniff(text[:_LOOKED_AT].rpartition("\n")[0] or text[:_LOOKED_AT], _DELIMITERS)
    except csv.Error:
        dialect = csv.excel
    try:
        return Document(name, list(_sections((), csv.reader(StringIO(text), dialect))))
    except csv.Error as error:
        raise UnreadableError(f"not a readable CSV file ({error})") from None


def sheets_document(content: bytes, name: str) -> Document:
    """An Excel file; a sheet's name is a heading where there are several. Raises UnreadableError."""
    from python_calamine import CalamineError, CalamineWorkbook, SheetTypeEnum

    try:
        book = CalamineWorkbook.from_filelike(BytesIO(content))
        sheets = [each.name for each in book.sheets_metadata if each.typ is SheetTypeEnum.WorkSheet]
        found = list[Section]()
        for sheet in sheets:
            heading = (sheet,) if len(sheets) > 1 else ()
            found += _sections(heading, book.get_sheet_by_name(sheet).to_python())
    except CalamineError as error:
        raise UnreadableError(f"not a readable Excel file ({error})") from None
    return Document(name, found)


def _sections(heading: tuple[str, ...], rows: Iterable[Iterable[object]]) -> Iterator[Section]:
    above, names, count = list[str](), list[str](), 0
    for row in rows:
        cells = [_shown(cell) for cell in row]
        filled = sum(map(bool, cells))
        if not names and filled > 1:
            names = cells
        elif not names:
            above += [cell for cell in cells if cell]
        elif filled:
            if (count := count + 1) > _MOST_ROWS:
                raise UnreadableError(f"more than {_MOST_ROWS:,} rows; split it, or leave out what is not asked about")
            wide = [*names, *[""] * (len(cells) - len(names))]
            lines = [f"{key}: {cell}" if key else cell for key, cell in zip(wide, cells, strict=False) if cell]
            yield Section((*heading, *above[:1]), "\n".join(lines))
    if not count and (names or above):  # a table of one row, or a column
        yield Section(heading, "\n".join([*above, " | ".join(filter(None, names))]).strip())


def _shown(cell: object) -> str:
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    if isinstance(cell, datetime) and not (cell.hour or cell.minute or cell.second):
        return cell.date().isoformat()
    return on_one_line(str(cell)) if cell is not None else ""
