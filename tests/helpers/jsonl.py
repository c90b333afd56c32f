"""Files of JSON lines, as corpora and question files are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """Folders are made; the path is returned."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(orjson.dumps(each, option=orjson.OPT_APPEND_NEWLINE) for each in rows))
    return path


def write_lines(path: Path, *lines: bytes) -> Path:
    """Folders are made; the path is returned."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def write_passages(path: Path, passages: Iterable[tuple[str, str, str]]) -> Path:
    """passages: id, title and text of each."""
    return write_rows(path, ({"id": name, "contents": f"{title}\n{text}"} for name, title, text in passages))


def append_a_passage(corpus: Path) -> None:
    """One called `late`, at the end of a corpus."""
    with corpus.open("ab") as file:
        file.write(b'{"id": "late", "contents": "Late\\nA late passage."}\n')
