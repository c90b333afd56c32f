"""Opens the published files to import, and finds whether they hold trees or pairs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from pydantic import BaseModel

from preference.export.json_stream import JsonItem
from preference.published.rows import is_row
from preference.published.trees import is_tree
from reasonrag.data.compressed import on_the_hub, plain_file
from reasonrag.data.item_files import read_items
from reasonrag.errors import InputError
from reasonrag.files import reading

ImportKind = Literal["trees", "pairs"]
Say = Callable[[str], None]


class ImportSource(BaseModel):
    """A file that was read. name: as given."""

    name: str
    sha256: str
    bytes: int
    items: int = 0


FoundFile: TypeAlias = tuple[ImportSource, Path]
"""A file to import, and where it is on this machine, unpacked or downloaded."""


def items_of(found: Sequence[FoundFile]) -> Iterator[tuple[JsonItem, str, str]]:
    """All items, each with a name for its place and the SHA-256 of its file; counts them."""
    for source, path in found:
        for item in read_items(path):
            source.items += 1
            yield item, f"{Path(source.name).name}:{item.number}", source.sha256


def find_sources(given: Sequence[str | Path], scratch: Path, say: Say) -> list[FoundFile]:
    if not given:
        raise InputError("give at least one file to import")
    files: list[FoundFile] = []
    for each in given:
        source = Path(each)
        if source.is_dir():
            raise InputError(f"{each} is a folder; name its files, such as {each}/chunk_*/reward_*.json")
        if not on_the_hub(source) and not source.is_file():
            raise InputError(f"there is no {each} to import")
        files.append(_file(str(each), plain_file(source, scratch, say=say)))
    return files


def _file(name: str, path: Path) -> FoundFile:
    with reading(path), path.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
        return ImportSource(name=name, sha256=digest, bytes=content.tell()), path


def common_kind(found: Sequence[FoundFile]) -> ImportKind:
    """Raises InputError for a file that holds neither kind, and for files of both."""
    kinds = {_kind_of(source, path): source.name for source, path in found}
    if len(kinds) > 1:
        raise InputError(
            f"{kinds['trees']} holds trees and {kinds['pairs']} pairs; import them one after the other, each with its "
            "--out"
        )
    return next(iter(kinds))


def _kind_of(source: ImportSource, path: Path) -> ImportKind:
    """The kind of the first item that is recognised."""
    for item in read_items(path):
        if is_row(item.value):
            return "pairs"
        if is_tree(item.value):
            return "trees"
    raise InputError(
        f"{source.name} holds neither trees (objects with question, golden_answers and output of "
        "intermediate_node_*) nor pairs (with chosen and rejected), as a JSON list or as JSON lines"
    )
