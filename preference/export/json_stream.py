"""Streaming of JSON files: a list in any layout, JSON lines, or a mixture of both, one value at a time.

Decides where a value begins and ends, and what replaces invalid characters. A file may be larger than memory, so values
are cut out of the bytes before decoding; guessing the end of an object (the end of its line, or the first closing
brace) usually saves counting brackets. Streaming libraries refuse the NaN and lone surrogates that Python's own writer
leaves behind, and cannot continue after them. Does not know what the values mean.
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
_DEEPEST = 1 << 20
"""Deepest nesting of a skipped item; JSON parsers stop at a few thousand levels."""
_SIGN, _END_OF_STRING = re.compile(rb'["{}\[\]]'), re.compile(rb'["\\]')
_UP_TO_A_BRACKET = re.compile(rb'(?:[^"{}\[\]]+|"[^"\\]*(?:\\.[^"\\]*)*")*', re.DOTALL)
"""The text between two brackets, including whole strings. No possessive quantifiers, which the first releases of Python
3.11 get wrong; there is no backtracking anyway, since no two parts can begin alike."""
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
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
        self._tried = 0
        """File offset up to which lines are not tried as objects: they hold part of an item, or several."""
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
        number = self._found + 1
        item = self._on_a_line(number) or self._up_to_a_brace(number)
        if item is None:
            start, end = self._here, self._end_of_string() if sign == b'"' else self._end_of(sign)
            if end is None or end - start > self._longest:
                self._skip(sign)
                item = JsonItem(number, None, too_long=True)
            else:
                item = self._decoded(self._held[start:end], number, self._base + start)
                self._here = end
        self._found = number
        return item

    def _on_a_line(self, number: int) -> JsonItem | None:
        """The object on the rest of the line, if that is exactly one object."""
        if self._base + self._here < self._tried:
            return None
        end = self._held.find(b"\n", self._here)
        self._tried = self._base + (len(self._held) if end < 0 else end)
        if end < 0:
            return None
        line = self._held[self._here : end].rstrip(b", \t\r")
        return self._guessed(line, number) if line.endswith(b"}") else None

    def _up_to_a_brace(self, number: int) -> JsonItem | None:
        """The object up to the first closing brace, if that is one: a row without nested objects or braces in texts."""
        end = self._held.find(b"}", self._here) + 1
        return self._guessed(self._held[self._here : end], number) if end else None

    def _guessed(self, content: bytes, number: int) -> JsonItem | None:
        """The item these bytes may be. No proper prefix of an item is an item, so a match is certain."""
        if len(content) > self._longest:
            return None
        try:
            value = orjson.loads(content)
        except orjson.JSONDecodeError:
            return None
        self._here += len(content)
        return JsonItem(number, value)

    # -- where a value ends ------------------------------------------------------------------------------------

    # None: the item is too long

    def _end_of(self, sign: bytes) -> int | None:
        return self._end_of_brackets() if sign in b"{[" else self._end_of_word()

    def _end_of_brackets(self) -> int | None:
        depth, position = 0, self._here
        while True:
            position = _UP_TO_A_BRACKET.match(self._held, position).end()  # type: ignore[union-attr] # matches nothing
            sign = self._held[position : position + 1]
            if sign in (b"", b'"'):  # the end of the buffer, or an incomplete string
                if not self._read_more_of_it():
                    return None
                continue
            position += 1
            depth += 1 if sign in b"{[" else -1
            if not depth:
                return position

    def _end_of_string(self) -> int | None:
        while not (found := _STRING.match(self._held, self._here)):
            if not self._read_more_of_it():
                return None
        return found.end()

    def _end_of_word(self) -> int | None:
        while not (found := _WORD.match(self._held, self._here)) or found.end() == len(self._held):
            if not self._read_more_of_it():
                return None
        return found.end()

    def _read_more_of_it(self) -> bool:
        """Read as much again as the item has, so that a long string is rescanned only a few times; False if it is too
        long already."""
        held = len(self._held) - self._here
        if held > self._longest:
            return False
        if not self._read(held):
            raise self._cut_off()
        return True

    def _skip(self, sign: bytes) -> None:
        """Move past the item that begins here with this byte, holding a block of it at a time."""
        start, in_string = self._base + self._here, False
        opened = bytearray()
        while True:
            if sign not in b'"{[':
                ended = _WORD.match(self._held, self._here)
                self._here = ended.end() if ended else self._here
                if self._here < len(self._held):
                    return
            elif found := (_END_OF_STRING if in_string else _SIGN).search(self._held, self._here):
                self._here = found.end()
                match found[0]:
                    case b"\\":
                        self._here += len(self._next(1))
                    case b'"':
                        in_string = not in_string
                    case b"{" | b"[" as bracket if len(opened) < _DEEPEST:
                        opened += bracket
                    case bracket if bracket in b"{[" or opened.pop() != (b"{" if bracket == b"}" else b"[")[0]:
                        break
                if not opened and not in_string:
                    return
                continue
            self._base, self._held, self._here = self._base + len(self._held), b"", 0
            if not self._read():
                break
        raise self._malformed(start, f"item {self._found + 1:,} has no end")

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

    def _read(self, at_least: int = 0) -> bool:
        block = self._file.read(max(BLOCK, at_least))
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
