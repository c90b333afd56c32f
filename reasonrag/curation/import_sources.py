"""Opens the published files to import, and finds whether they hold trees or pairs."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from preference.export.json_stream import JsonItem
from preference.published.rows import is_row
from preference.published.trees import is_tree
from reasonrag.data.compressed import is_on_the_hub, plain_file
from reasonrag.data.item_files import read_items
from reasonrag.errors import InputError
from reasonrag.files import reading

ImportKind = Literal["trees", "pairs"]
Say = Callable[[str], None]
PROGRESS_INTERVAL_S = 10.0


class ImportSource(BaseModel):
    """A file that was read. name: as given."""

    name: str
    sha256: str
    bytes: int
    items: int = 0


@dataclass(frozen=True)
class ImportFile:
    """A file to import. path: the local file, unpacked or downloaded."""

    source: ImportSource
    path: Path


@dataclass(frozen=True)
class ImportFiles:
    """say: receives progress every `PROGRESS_INTERVAL_S`."""

    files: list[ImportFile]
    say: Say

    def items(self) -> Iterator[tuple[JsonItem, str, str]]:
        """All items, each with a name for its place and the SHA-256 of its file."""
        told = time.monotonic()
        for source, path in ((each.source, each.path) for each in self.files):
            for item in read_items(path):
                source.items += 1
                if time.monotonic() - told > PROGRESS_INTERVAL_S:
                    told = time.monotonic()
                    self.say(f"read {source.items:,} of {source.name}")
                yield item, f"{Path(source.name).name}:{item.number}", source.sha256


def find_sources(given: Sequence[str | Path], scratch: Path, say: Say) -> ImportFiles:
    if not given:
        raise InputError("give at least one file to import")
    files: list[ImportFile] = []
    for each in given:
        source = Path(each)
        if source.is_dir():
            raise InputError(f"{each} is a folder; name its files, such as {each}/chunk_*/reward_*.json")
        if not is_on_the_hub(source) and not source.is_file():
            raise InputError(f"there is no {each} to import")
        files.append(_file(str(each), plain_file(source, scratch, say=say)))
    return ImportFiles(files, say)


def _file(name: str, path: Path) -> ImportFile:
    with reading(path), path.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
        return ImportFile(ImportSource(name=name, sha256=digest, bytes=content.tell()), path)


def common_kind(files: Sequence[ImportFile]) -> ImportKind:
    kinds = {file.source.name: _kind_of(file) for file in files}
    if len(set(kinds.values())) > 1:
        trees = next(name for name, kind in kinds.items() if kind == "trees")
        rows = next(name for name, kind in kinds.items() if kind == "pairs")
        raise InputError(f"{trees} holds trees and {rows} pairs; import them one after the other, each with its --out")
    return next(iter(kinds.values()))


def _kind_of(file: ImportFile) -> ImportKind:
    """The kind of the first item that is recognised."""
    keys: list[str] = []
    item: JsonItem | None = None
    for item in read_items(file.path):
        if is_row(item.value):
            return "pairs"
        if is_tree(item.value):
            return "trees"
        if isinstance(item.value, dict):
            keys = keys or [str(key)[:40] for key in list(item.value)[:8]]
    if item is None:
        raise InputError(f"{file.source.name} is empty; it should hold trees or pairs, as a JSON list or as JSON lines")
    raise InputError(
        f"{file.source.name} holds neither trees (objects with question, golden_answers and output of "
        "intermediate_node_*) nor pairs (with chosen and rejected); its first object has "
        f"{', '.join(keys) or 'nothing'}"
    )
