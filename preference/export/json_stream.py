"""Streaming of JSON files: a list in any layout, JSON lines, or a mixture of both, one value at a time.

Decides where a value begins and ends, and what replaces invalid characters. A file may be larger than memory, so values
are cut out of the bytes, by counting brackets, before decoding. Streaming libraries refuse the NaN and lone surrogates
that Python's own writer leaves behind, and cannot continue after them. Does not know what the values mean.
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

BLOCK = 1 << 20
LONGEST_ITEM = 1 << 24
"""In bytes; a longer one is skipped. A row of RAG_ProGuide has some kB, a tree of 1,000 steps with three passages each
some MB; a value of nothing but brackets takes 20 times its bytes once it is read."""
_UP_TO_A_BRACKET = re.compile(rb'(?:[^"{}\[\]]+|"[^"\\]*(?:\\.[^"\\]*)*")*', re.DOTALL)
"""The text between two brackets, including whole strings. No possessive quantifiers, which the first releases of Python
3.11 get wrong; there is no backtracking anyway, since no two parts can begin alike."""
_IN_A_STRING = re.compile(rb'[^"\\]*(?:\\.[^"\\]*)*', re.DOTALL)
_WORD = re.compile(rb"[^\s,\[\]{}\"]+")
_BLANKS = re.compile(rb"[ \t\r\n]*")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SHOWN = 24


class MalformedFileError(ValueError):
    """A file is not JSON in one of these layouts, or is cut off; the message has file, position and cause."""


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
    """The values of a list, or the objects of JSON lines; in UTF-8. longest: bytes of an item that is read.

    Raises MalformedFileError at the first malformed item, after yielding those before it, and OSError.
    """
    with path.open("rb") as file:
        yield from _ItemReader(path, file, longest).items()


class _ItemReader:
    """Finds where values begin and end. Holds the current value, if it is not too long, and a block or two of what
    follows."""

    def __init__(self, path: Path, file: BinaryIO, longest: int) -> None:
        self._path = path
        self._file = file
        self._longest = longest
        self._held = b""
        self._base = 0
        """File offset of the buffer."""
        self._here = 0
        """Offset in the buffer."""
        self._found = 0

    def items(self) -> Iterator[JsonItem]:
        self._here = len(_BYTE_ORDER_MARK) if self._next(3) == _BYTE_ORDER_MARK else 0
        listed = False  # inside a list
        free = True  # a value may follow
        owed = False  # a value must follow, after a comma
        while True:
            self._skip_blanks()
            sign = self._next(1)
            if not sign:
                if listed:
                    raise self._cut_off()
                return
            if sign == b"," and listed and not free:
                free = owed = True
                self._here += 1
            elif sign == b"]" and listed and not owed:
                listed, free = False, True
                self._here += 1
            elif sign == b"[" and not listed:
                listed = free = True
                self._here += 1
            elif free and (sign == b"{" or (listed and sign not in b",]}")):
                yield self._item(sign)
                free, owed = not listed, False
            else:
                raise self._unexpected()

    def _item(self, sign: bytes) -> JsonItem:
        """The value that begins here with this byte; moves past it."""
        if self._here > BLOCK:
            self._base += self._here
            self._held, self._here = self._held[self._here :], 0
        number, start = self._found + 1, self._base + self._here
        content = self._cut_out(sign)
        item = JsonItem(number, None, too_long=True) if content is None else self._decoded(content, number, start)
        self._found = number
        return item

    def _cut_out(self, sign: bytes) -> bytes | None:
        """The bytes of the value that begins here with this byte; None, and little of them held, if they are too many.
        Moves past it."""
        start, depth, in_string, whole = self._base + self._here, 0, sign == b'"', True
        position = self._here + in_string
        while True:
            if sign not in b'"{[':
                found = _WORD.match(self._held, position)
                position = found.end() if found else position
                ended = position < len(self._held)
            else:
                between = _IN_A_STRING if in_string else _UP_TO_A_BRACKET
                position = between.match(self._held, position).end()  # type: ignore[union-attr] # matches nothing, too
                mark = self._held[position : position + 1]
                if mark == b'"':  # of a string that is not whole yet, the first or the last
                    in_string = not in_string
                elif mark in (b"{", b"["):
                    depth += 1
                elif mark in (b"}", b"]"):
                    depth -= 1
                position += bool(mark) and mark != b"\\"
                ended = mark not in (b"", b"\\") and not depth and not in_string
                if not ended and position < len(self._held) and mark != b"\\":
                    continue
            if ended or position - self._here > self._longest:
                whole = whole and position - self._here <= self._longest
                content = self._held[self._here : position] if whole else None
                self._here = position
                if ended:
                    return content
                self._base, self._held = self._base + position, self._held[position:]
                self._here = position = 0
            if not self._read():
                raise self._cut_off() if whole else self._malformed(start, f"item {self._found + 1:,} has no end")

    # -- bytes -------------------------------------------------------------------------------------------------

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

    def _read(self) -> bool:
        block = self._file.read(BLOCK)
        self._held += block
        return bool(block)

    # -- what it says ------------------------------------------------------------------------------------------

    def _decoded(self, content: bytes, number: int, place: int) -> JsonItem:
        try:
            return JsonItem(number, orjson.loads(content))
        except orjson.JSONDecodeError:
            pass  # NaN and lone surrogates are handled below
        try:
            return JsonItem(number, _repaired(json.loads(content.decode("utf-8", "replace"))), repaired=True)
        except RecursionError as error:
            raise self._malformed(place, f"item {number:,} is nested too deeply") from error
        except ValueError as error:
            raise self._malformed(place, f"item {number:,} is not JSON: {error}") from error

    def _cut_off(self) -> MalformedFileError:
        return MalformedFileError(f"{self._path} is cut off: it ends after {self._found:,} whole items")

    def _unexpected(self) -> MalformedFileError:
        begins = self._next(_SHOWN).decode("utf-8", "replace")
        cause = f"neither a list of JSON objects nor JSON lines: after {self._found:,} items comes {begins!r}"
        return self._malformed(self._base + self._here, cause)

    def _malformed(self, place: int, cause: str) -> MalformedFileError:
        with self._path.open("rb") as file:
            line, left = 1, place
            while left and (block := file.read(min(BLOCK, left))):
                line, left = line + block.count(b"\n"), left - len(block)
        return MalformedFileError(f"{self._path}, line {line:,} (byte {place:,}): {cause}")


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
