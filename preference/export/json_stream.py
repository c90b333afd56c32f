"""Streaming of JSON files: a list in any layout, JSON lines, or a mixture of both, one value at a time.

Decides where a value begins and ends, and what replaces invalid characters. A file may be larger than memory, so it is
mapped, and values are cut out of the bytes, by counting brackets, before decoding. Streaming libraries refuse the NaN
and lone surrogates that Python's own writer leaves behind, and cannot continue after them. Does not know what the
values mean.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

import orjson

BLOCK = 1 << 20
"""Bytes in which a bracket is looked for at a time, as regular expressions remember what they have passed."""
LONGEST_ITEM = 1 << 24
"""In bytes; a longer one is skipped. A row of RAG_ProGuide has some kB, a tree of 1,000 steps with three passages each
some MB; a value of nothing but brackets takes 20 times its bytes once it is read."""
_UP_TO_A_BRACKET = re.compile(rb'(?:[^"{}\[\]]+|"[^"\\]*(?:\\.[^"\\]*)*")*', re.DOTALL)
"""The text between two brackets, including whole strings. No possessive quantifiers, which the first releases of Python
3.11 get wrong; there is no backtracking anyway, since no two parts can begin alike."""
_WORD = re.compile(rb"[^\s,\[\]{}\"]+")
_BLANKS = re.compile(rb"[ \t\r\n]*")
_NEWLINE = re.compile(rb"\n")
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
        if not path.is_file():
            raise MalformedFileError(f"{path} is a pipe or a device; write what it gives to a file")
        if path.stat().st_size:  # nothing can be mapped of an empty file
            with mmap(file.fileno(), 0, access=ACCESS_READ) as content:
                yield from _items(path, content, longest)


def _items(path: Path, content: mmap, longest: int) -> Iterator[JsonItem]:
    here = len(_BYTE_ORDER_MARK) if content[:3] == _BYTE_ORDER_MARK else 0
    found = 0
    listed = False  # inside a list
    free = True  # a value may follow
    owed = False  # a value must follow, after a comma
    while True:
        here = _after_blanks(content, here)
        sign = content[here : here + 1]
        if not sign:
            break
        if free and (sign == b"{" or (listed and sign not in b",]}")):
            end = _end_of_value(content, here)
            if end is None:
                if len(content) - here > longest:
                    raise _malformed(path, content, here, f"item {found + 1:,} has no end")
                break
            found += 1
            if end - here > longest:
                yield JsonItem(found, None, too_long=True)
            else:
                yield _decoded(path, content, here, end, found)
            here, free, owed = end, not listed, False
            continue
        if sign == b"," and listed and not free:
            free = owed = True
        elif sign == b"]" and listed and not owed:
            listed, free = False, True
        elif sign == b"[" and not listed:
            listed = free = True
        else:
            begins = content[here : here + _SHOWN].decode("utf-8", "replace")
            cause = f"neither a list of JSON objects nor JSON lines: after {found:,} items comes {begins!r}"
            raise _malformed(path, content, here, cause)
        here += 1
    if sign or listed:
        raise MalformedFileError(f"{path} is cut off: it ends after {found:,} whole items")


def _after_blanks(content: mmap, here: int) -> int:
    blanks = _BLANKS.match(content, here)
    return blanks.end() if blanks else here


def _end_of_value(content: mmap, here: int) -> int | None:
    """Where the value ends that begins here; None if the file ends before it does."""
    begins = content[here : here + 1]
    if begins == b'"':
        return _end_of_string(content, here + 1)
    if begins not in b"{[":
        word = _WORD.match(content, here)
        end = word.end() if word else here
        return end if end < len(content) else None
    depth = 0
    while here < len(content):
        between = _UP_TO_A_BRACKET.match(content, here, here + BLOCK)
        here = between.end() if between else here
        sign = content[here : here + 1]
        if sign == b'"':  # of a string that goes on beyond the block
            closed = _end_of_string(content, here + 1)
            if closed is None:
                return None
            here = closed
        elif sign and sign in b"{}[]":
            depth += 1 if sign in b"{[" else -1
            here += 1
            if not depth:
                return here
    return None


def _end_of_string(content: mmap, here: int) -> int | None:
    """Where the string ends that goes on here; None if the file ends before it does."""
    while (quote := content.find(b'"', here)) >= 0:
        escapes = quote
        while escapes > here and content[escapes - 1 : escapes] == b"\\":
            escapes -= 1
        here = quote + 1
        if (quote - escapes) % 2 == 0:
            return here
    return None


def _decoded(path: Path, content: mmap, here: int, end: int, number: int) -> JsonItem:
    value = content[here:end]
    try:
        return JsonItem(number, orjson.loads(value))
    except orjson.JSONDecodeError:
        pass  # NaN and lone surrogates are handled below
    try:
        return JsonItem(number, _repaired(json.loads(value.decode("utf-8", "replace"))), repaired=True)
    except RecursionError as error:
        raise _malformed(path, content, here, f"item {number:,} is nested too deeply") from error
    except ValueError as error:
        raise _malformed(path, content, here, f"item {number:,} is not JSON: {error}") from error


def _malformed(path: Path, content: mmap, place: int, cause: str) -> MalformedFileError:
    line = 1 + sum(1 for _ in _NEWLINE.finditer(content, 0, place))
    return MalformedFileError(f"{path}, line {line:,} (byte {place:,}): {cause}")


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
