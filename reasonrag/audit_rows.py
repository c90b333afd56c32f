"""Rows of RAG_ProGuide from files: ours and anybody's, one at a time wherever they stand on lines of their own.

Decides which files of a directory are audited, and what part of the data each is. Knows nothing of what rows mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from preference.formats import FORMATS, SplitName
from reasonrag.errors import InputError
from reasonrag.runs import ROLLOUTS

_FOR_VALIDATION = ("validation", "valid", "val", "dev", "test", "eval")
_ROW = frozenset({"instruction", "input", "chosen", "rejected"})
_OURS = tuple(FORMATS["proguide"].file_name(split) for split in ("train", "validation"))


@dataclass(frozen=True)
class RowFile:
    """A file of rows, and whether they are for training or validation."""

    path: Path
    part: SplitName


def row_files(place: Path) -> list[RowFile]:
    """The files to audit: `place` itself, the two of `reasonrag pairs`, or every file that begins with such a row.

    Raises InputError where there is none.
    """
    if place.is_file():
        return [RowFile(place, _part(place))]
    if not place.is_dir():
        raise InputError(f"there is no {place}; give a directory with RAG_ProGuide.json, or such a file")
    ours = [place / name for name in _OURS if (place / name).is_file()]
    found = ours or [path for path in sorted(place.iterdir()) if path.suffix in (".json", ".jsonl") and _begins(path)]
    if not found and (place / ROLLOUTS).is_file():
        raise InputError(
            f"{place} is a run, no data set. First: reasonrag pairs {place} --out data/{place.resolve().name}"
        )
    if not found:
        raise InputError(
            f"{place} has no file with rows of RAG_ProGuide, a JSON list of objects with instruction, input, chosen "
            f"and rejected; make one with: reasonrag pairs RUN --out {place}"
        )
    return [RowFile(path, _part(path)) for path in found]


def _part(path: Path) -> SplitName:
    words = path.stem.lower().replace("-", ".").replace("_", ".").split(".")
    return "validation" if any(word in _FOR_VALIDATION for word in words) else "train"


def _begins(path: Path) -> bool:
    """Whether the first row of a file is one."""
    try:
        first = next(iter(read_rows(path)), None)
    except InputError:
        return False
    return isinstance(first, dict) and set(first) >= _ROW


def read_rows(path: Path) -> Iterator[Any]:
    """Everything that stands where a row should be.

    A list with a row on each line, and lines without a list, are read line by line; a list laid out otherwise is read
    whole. Raises InputError for a file that is neither.
    """
    try:
        with path.open("rb") as file:
            first = next((line for line in file if line.strip()), b"")
            if not _on_lines(first, file):
                yield from _whole(path)
                return
            file.seek(0)
            yield from _lines(path, file)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error


def _on_lines(first: bytes, file: BinaryIO) -> bool:
    """Whether the first row stands on a line of its own. first: the first line that is not blank."""
    line = _row_of(first) or _row_of(next((line for line in file if line.strip()), b""))
    try:
        return isinstance(orjson.loads(line), dict)
    except orjson.JSONDecodeError:
        return not line and first.strip() in (b"[", b"[]", b"")


def _row_of(line: bytes) -> bytes:
    """The row on a line, without the list around it."""
    return line.strip().removeprefix(b"\xef\xbb\xbf").removeprefix(b"[").removesuffix(b"]").strip().strip(b",").strip()


def _lines(path: Path, file: BinaryIO) -> Iterator[Any]:
    for number, line in enumerate(file, start=1):
        row = _row_of(line)
        if not row:
            continue
        try:
            yield orjson.loads(row)
        except orjson.JSONDecodeError as error:
            raise InputError(
                f"{path}, line {number} is no JSON object: {error}. If the file was cut off, fetch or make it again"
            ) from error


def _whole(path: Path) -> Iterator[Any]:
    try:
        rows = orjson.loads(path.read_bytes().removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError as error:
        raise InputError(f"{path} is no JSON: {error}") from error
    if not isinstance(rows, list):
        raise InputError(f"{path} is no list of rows, but one {type(rows).__name__}")
    yield from rows
