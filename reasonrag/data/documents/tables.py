"""Tables of CSV and Excel files: a row is a section, its cells are lines of `key: value`.

Decides which row names the columns: the first that is as full as most and has no figure. What stands above it is a
heading, and a text. Formulas are not computed: a cell has the value that was saved with it. Knows no passage.
"""

from __future__ import annotations

import csv
import statistics
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from io import BytesIO
from itertools import zip_longest

from reasonrag.data.documents.document import Document, Section, UnreadableError, decoded, on_one_line

_DELIMITERS = ",;\t|"
_LOOKED_AT = 50
"""Rows by which delimiter and columns are told."""
_MOST_ROWS, _MOST_EXACT = 200_000, 1e15


def csv_document(content: bytes, name: str) -> Document:
    """A CSV file, its delimiter one of comma, semicolon, tabulator and bar. Raises UnreadableError."""
    lines = [f"{line}\n" for line in decoded(content).split("\n")]
    while lines and lines[0].startswith(("#", "sep=")):  # of the program that wrote it
        del lines[0]
    csv.field_size_limit(max(csv.field_size_limit(), len(content)))
    tried = {each: list(csv.reader(lines[:_LOOKED_AT], delimiter=each)) for each in _DELIMITERS}
    delimiter = max(tried, key=lambda each: _fits(tried[each]))
    is_one_column = _fits(tried[delimiter]) == (0, 0)
    rows = [[line] for line in lines] if is_one_column else list(csv.reader(lines, delimiter=delimiter))
    return Document(name, list(_sections((), rows)))


def _fits(rows: list[list[str]]) -> tuple[int, int]:
    """How many rows are as wide as most are, and how wide; nothing where that is one cell, or the first of them has a
    figure: a comma in one."""
    usual = statistics.mode([len(row) for row in rows if row] or [1])
    alike = [row for row in rows if len(row) == usual]
    return (len(alike), usual) if usual > 1 and not any(map(str.isdecimal, alike[0])) else (0, 0)


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


def _sections(heading: tuple[str, ...], rows: Sequence[Iterable[object]]) -> Iterator[Section]:
    if len(rows) > _MOST_ROWS:
        raise UnreadableError(f"more than {_MOST_ROWS:,} rows; split it, or leave out what is not asked about")
    table = [cells for cells in ([_shown(cell) for cell in row] for row in rows) if any(cells)]
    usual = max(2, statistics.mode([_filled(cells) for cells in table[:_LOOKED_AT]] or [0]))
    heads = (
        number
        for number, cells in enumerate(table)
        if _filled(cells) >= usual and not any(map(str.isdecimal, cells))  # which are figures, not names
    )
    head = next(heads, None)
    if head is None or head == len(table) - 1:
        yield Section(heading, "\n".join(" | ".join(filter(None, cells)) for cells in table))
        return
    above = [" | ".join(filter(None, cells)) for cells in table[:head]]
    heading = (*heading, *above[:1])
    if above[1:]:
        yield Section(heading, "\n".join(above[1:]))
    names = [name.replace("_", " ") for name in table[head]]  # so that a search finds their words
    for cells in table[head + 1 :]:
        named = zip_longest(names, cells, fillvalue="")
        yield Section(heading, "\n".join(f"{name}: {cell}" if name else cell for name, cell in named if cell))


def _filled(cells: Iterable[str]) -> int:
    return sum(map(bool, cells))


def _shown(cell: object) -> str:
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < _MOST_EXACT:
        return str(int(cell))
    if isinstance(cell, datetime) and not (cell.hour or cell.minute or cell.second):
        return cell.date().isoformat()
    return on_one_line(str(cell)) if cell is not None else ""
