"""Streaming of JSON files: a list in any layout, JSON lines, or a mixture of both, one value at a time.

Decides what stands between two values, and what replaces invalid characters. A file may be larger than memory: the json
module reads one value after another out of a window of it. It is used because it reads the NaN and lone surrogates that
Python's own writer leaves behind, and says where a value ends. Does not know what the values mean.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import orjson

LONGEST_ITEM = 1 << 24
"""In characters; a longer one is skipped, and one of twice as many ends the reading. A row of RAG_ProGuide has some kB,
a tree of 1,000 steps with three passages each some MB; a value of nothing but brackets takes 20 times its bytes once it
is read."""
_DECODER = json.JSONDecoder()
_BLANKS = re.compile(r"[ \t\r\n]*")
_END_OF_WHAT_IS_CUT = re.compile(r"[\w.+\\-]*")
_SHOWN = 24


class MalformedFileError(ValueError):
    """A file is not JSON in one of these layouts, or is cut off; the message has file, line and cause."""


@dataclass(frozen=True, slots=True)
class JsonItem:
    """number: from 1. repaired: whether it held NaN, numbers without bound, or characters that no text may have; they
    are replaced by null, floats and the replacement character. too_long: whether it was skipped, being longer than
    allowed; its value is None."""

    number: int
    value: Any
    repaired: bool = False
    too_long: bool = False


def read_items(path: Path, *, longest: int = LONGEST_ITEM) -> Iterator[JsonItem]:
    """The values of a list, or the objects of JSON lines; in UTF-8. longest: characters of an item that is read.

    Raises MalformedFileError at the first malformed item, after yielding those before it, and OSError.
    """
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="\n") as file:
        if not path.is_file():
            raise MalformedFileError(f"{path} is a pipe or a device; write what it gives to a file")
        yield from _items(_Window(path, file, longest))


def _items(window: _Window) -> Iterator[JsonItem]:
    found = 0
    listed = False  # inside a list
    free = True  # a value may follow
    owed = False  # a value must follow, after a comma
    while sign := window.next_sign():
        if free and (sign == "{" or (listed and sign not in ",]}")):
            item = window.item(found + 1)
            if item is None:
                break
            yield item
            found += 1
            free, owed = not listed, False
            continue
        if sign == "," and listed and not free:
            free = owed = True
        elif sign == "]" and listed and not owed:
            listed, free = False, True
        elif sign == "[" and not listed:
            listed = free = True
        else:
            begins = window.text[window.place : window.place + _SHOWN]
            cause = f"neither a list of JSON objects nor JSON lines: after {found:,} items comes {begins!r}"
            raise window.malformed(window.place, cause)
        window.place += 1
    if sign or listed:
        raise MalformedFileError(f"{window.path} is cut off: it ends after {found:,} whole items")


class _Window:
    """The part of a file that is looked at: from `place` on, twice the longest item, or the rest of the file."""

    def __init__(self, path: Path, file: TextIO, longest: int) -> None:
        self.path = path
        self.text = ""
        self.place = 0
        self._file = file
        self._longest = longest
        self._line = 1
        self._ended = False

    def next_sign(self) -> str:
        """Go on to what is no blank, and return it; empty at the end of the file."""
        while True:
            blanks = _BLANKS.match(self.text, self.place)
            self.place = blanks.end() if blanks else self.place
            if self._ended or len(self.text) - self.place > 2 * self._longest:
                return self.text[self.place : self.place + 1]
            more = self._file.read(2 * self._longest)
            self._ended = not more
            self._line += self.text.count("\n", 0, self.place)
            self.text, self.place = self.text[self.place :] + more, 0

    def item(self, number: int) -> JsonItem | None:
        """The value that begins here; None if the file ends before it does."""
        try:
            value, end = _DECODER.raw_decode(self.text, self.place)
        except json.JSONDecodeError as error:
            cut = error.msg.startswith("Unterminated") or _END_OF_WHAT_IS_CUT.fullmatch(self.text, error.pos)
            if cut and self._ended:
                return None
            cause = f"has no end within {2 * self._longest:,} characters" if cut else f"is not JSON: {error.msg}"
            raise self.malformed(self.place if cut else error.pos, f"item {number:,} {cause}") from error
        except (RecursionError, ValueError) as error:
            cause = "is nested too deeply" if isinstance(error, RecursionError) else f"is not JSON: {error}"
            raise self.malformed(self.place, f"item {number:,} {cause}") from error
        written, self.place = self.text[self.place : end], end
        if end == len(self.text) and written[-1] not in '}]"':
            return None  # a number or a word, of which more may have followed
        if len(written) > self._longest:
            return JsonItem(number, None, too_long=True)
        try:
            return JsonItem(number, orjson.loads(written))
        except orjson.JSONDecodeError:  # NaN, lone surrogates, bytes that are no text
            if not written.isascii():
                value = json.loads(written.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))
            return JsonItem(number, _repaired(value), repaired=True)

    def malformed(self, place: int, cause: str) -> MalformedFileError:
        line = self._line + self.text.count("\n", 0, place)
        return MalformedFileError(f"{self.path}, line {line:,}: {cause}")


def _repaired(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int):
        if -(1 << 63) <= value < 1 << 64:
            return value
        return float(value) if abs(value) < 1 << 1023 else None  # as orjson reads them, except those beyond a float
    if isinstance(value, list):
        return [_repaired(each) for each in value]
    if isinstance(value, dict):
        return {_repaired(key): _repaired(each) for key, each in value.items()}
    return value
