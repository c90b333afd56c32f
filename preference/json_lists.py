"""A JSON list read entry by entry: a data set of gigabytes in the memory of its longest row.

Knows nothing of what the entries are. Python's own scanner reads them, which also takes what stricter ones refuse:
files of others hold lone surrogates and NaN.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

CHUNK = 1 << 20
LONGEST_ENTRY = 1 << 26
"""Characters. A list that is broken in the middle is noticed there, not at the end of the file."""
_SPACE = " \t\n\r"


class MalformedListError(ValueError):
    """A file is no JSON list; the message has file, row and cause."""


def read_list(path: Path) -> Iterator[Any]:
    """The entries of a JSON list in UTF-8, in order.

    Raises MalformedListError where the file stops being one; the entries before have been given by then. OSError.
    """
    with path.open(encoding="utf-8-sig") as file:
        try:
            yield from _Scanner(file, path).entries()
        except UnicodeDecodeError as error:
            raise MalformedListError(f"{path} is not text in UTF-8: {error}") from error


class _Scanner:
    def __init__(self, file: TextIO, path: Path) -> None:
        self._file = file
        self._path = path
        self._buffer = ""
        self._at = 0
        self._row = 0
        self._decode = json.JSONDecoder().raw_decode

    def entries(self) -> Iterator[Any]:
        self._expect("[")
        if self._next() == "]":
            self._at += 1
        else:
            while True:
                self._row += 1
                yield self._entry()
                if self._next() != ",":
                    break
                self._at += 1
            self._expect("]")
        if self._next():
            raise self._malformed("something follows the list")

    def _entry(self) -> Any:
        self._next()
        while True:
            try:
                entry, end = self._decode(self._buffer, self._at)
            except json.JSONDecodeError as error:
                if len(self._buffer) - self._at > LONGEST_ENTRY or not self._fill():
                    raise self._malformed(error.msg) from error
                continue
            except RecursionError as error:
                raise self._malformed("it is nested too deeply") from error
            # a number at the end of the buffer may go on: `1` as `1.5`, `1.`, `1e+`
            after = len(self._buffer) - end
            if after > len("e+") or not self._fill():
                self._at = len(self._buffer) - after
                return entry

    def _expect(self, sign: str) -> None:
        found = self._next()
        if found != sign:
            raise self._malformed(f"expected {sign!r}, found {found!r}" if found else f"it ends before {sign!r}")
        self._at += 1

    def _next(self) -> str:
        """The next character that is no space; empty at the end of the file."""
        while True:
            while self._at < len(self._buffer):
                if self._buffer[self._at] not in _SPACE:
                    return self._buffer[self._at]
                self._at += 1
            if not self._fill():
                return ""

    def _fill(self) -> bool:
        """More of the file behind what is left, as much again at least; whether there was any."""
        left = self._buffer[self._at :]
        more = self._file.read(max(CHUNK, len(left)))
        self._buffer, self._at = left + more, 0
        return bool(more)

    def _malformed(self, cause: str) -> MalformedListError:
        where = f"{self._path}, row {self._row}" if self._row else str(self._path)
        return MalformedListError(f"{where}: not a JSON list: {cause}")
