"""Files of many JSON objects, one at a time: a list, JSON lines, or both in one another's place; and Parquet.

Decides where an object begins and ends, and what becomes of bytes that JSON has no room for. A list of trees may be
larger than memory, so objects are cut out of the bytes before they are decoded; the libraries that stream JSON refuse
the NaN and the lone surrogates that Python's own writer leaves behind, and cannot go on after them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from reasonrag.errors import InputError

_BLOCK = 1 << 20
_ROWS = 1000
"""Rows of a Parquet file that are in memory at a time."""
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|["{}\[\]]', re.DOTALL)
"""A whole string, a quote whose string is not whole yet, or a bracket."""
_BLANKS = re.compile(rb"[ \t\r\n]*")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_PARQUET = b"PAR1"
_SHOWN = 24


@dataclass(frozen=True)
class Item:
    """number: from 1 on. mended: whether it held NaN, or characters that no text may have, which are replaced."""

    number: int
    value: Any
    mended: bool = False


def read_items(path: Path) -> Iterator[Item]:
    """The objects of a file. Raises InputError where it is damaged, cut off, empty or holds anything else."""
    try:
        with path.open("rb") as file:
            if file.read(len(_PARQUET)) == _PARQUET:
                yield from _rows(path)
                return
            file.seek(0)
            number = 0
            for number, (place, content) in enumerate(_Cutter(path, file).objects(), start=1):
                yield _decoded(content, number, f"{path}, object {number} at byte {place:,}")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    if not number:
        raise InputError(f"{path} is empty; it should hold trees or pairs, as a JSON list or as JSON lines")


def _rows(path: Path) -> Iterator[Item]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise InputError(f"{path} is Parquet, which needs the hub extra: pip install 'reasonrag[hub]'") from error
    number = 0
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_ROWS):
                for row in batch.to_pylist():
                    number += 1
                    yield Item(number, row)
    except (pa.ArrowException, ValueError) as error:
        raise InputError(f"{path} is damaged after row {number:,} ({error}); fetch it again") from error
    if not number:
        raise InputError(f"{path} has no rows")


def _decoded(content: bytes, number: int, where: str) -> Item:
    try:
        return Item(number, orjson.loads(content))
    except orjson.JSONDecodeError:
        pass  # what Python's own writer leaves behind is read below
    try:
        return Item(number, _mended(json.loads(content.decode("utf-8", "replace"))), mended=True)
    except json.JSONDecodeError as error:
        raise InputError(f"{where} is not JSON ({error}); fetch the file again") from error
    except (RecursionError, ValueError) as error:
        raise InputError(f"{where} cannot be read ({error})") from error


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int):
        if -(1 << 63) <= value < 1 << 64:
            return value
        return float(value) if abs(value) < 1 << 1023 else None  # as orjson reads them, but for those beyond a float
    if isinstance(value, list):
        return [_mended(each) for each in value]
    if isinstance(value, dict):
        return {_mended(key): _mended(each) for key, each in value.items()}
    return value


class _Cutter:
    """Finds where objects begin and end. Holds the object at hand, and a block or two of what follows."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path = path
        self._file = file
        self._held = b""
        self._base = 0
        """Place in the file of what is held."""
        self._here = 0
        """Place in what is held."""
        self._found = 0

    def objects(self) -> Iterator[tuple[int, bytes]]:
        """Place and bytes of each."""
        self._here = len(_BYTE_ORDER_MARK) if self._next(3) == _BYTE_ORDER_MARK else 0
        listed = False  # whether this is inside a list
        free = True  # whether an object may follow
        owed = False  # whether one must, because a comma was read
        while True:
            self._skip_blanks()
            sign = self._next(1)
            if sign == b"{" and free:
                yield self._object()
                free, owed = not listed, False
            elif not sign and not listed:
                return
            elif not sign:
                raise self._cut_off()
            elif sign == b"[" and not listed:
                listed = free = True
                self._here += 1
            elif sign == b"]" and listed and not owed:
                listed, free = False, True
                self._here += 1
            elif sign == b"," and listed and not free:
                free = owed = True
                self._here += 1
            else:
                raise self._unexpected()

    def _object(self) -> tuple[int, bytes]:
        """The object that begins here; what follows is next."""
        if self._here > _BLOCK:
            self._base += self._here
            self._held, self._here = self._held[self._here :], 0
        place = self._base + self._here
        start, end = self._here, self._end_of_object()
        self._here = end
        self._found += 1
        return place, self._held[start:end]

    def _end_of_object(self) -> int:
        depth, position = 0, self._here
        while True:
            token = _TOKEN.search(self._held, position)
            if token is None or token[0] == b'"':
                position = len(self._held) if token is None else token.start()
                if not self._read(len(self._held) - self._here):  # doubled, so that a long string is not read often
                    raise self._cut_off()
                continue
            position = token.end()
            if token[0] in b"{[":
                depth += 1
            elif token[0] in b"}]":
                depth -= 1
                if depth == 0:
                    return position

    def _skip_blanks(self) -> None:
        while True:
            if blanks := _BLANKS.match(self._held, self._here):
                self._here = blanks.end()
            if self._here < len(self._held) or not self._read():
                return

    def _next(self, length: int) -> bytes:
        while len(self._held) < self._here + length and self._read():
            pass
        return self._held[self._here : self._here + length]

    def _read(self, at_least: int = 0) -> bool:
        block = self._file.read(max(_BLOCK, at_least))
        self._held += block
        return bool(block)

    def _cut_off(self) -> InputError:
        return InputError(f"{self._path} is cut off: it ends after {self._found:,} whole objects. Fetch it again")

    def _unexpected(self) -> InputError:
        begins = self._next(_SHOWN).decode("utf-8", "replace")
        return InputError(
            f"{self._path} is no list of JSON objects: after {self._found:,} of them, at byte "
            f"{self._base + self._here:,}, it goes on with {begins!r}"
        )
