"""Finds the published files to import: their order, and whether they hold trees or pairs."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from preference.export.json_stream import JsonItem
from preference.export.summary import CANDIDATES
from preference.published.rows import is_row
from preference.published.trees import is_tree
from reasonrag.data.compressed import is_on_the_hub, plain_file
from reasonrag.data.item_files import read_items
from reasonrag.errors import InputError
from reasonrag.files import ROLLOUTS, reading

ImportKind = Literal["trees", "pairs"]
Say = Callable[[str], None]
_OF_THE_PIPELINE = re.compile(r"(reward|final|intermediate)_([0-9]+)\.json")
MOST_COMPLETE_FIRST = ("reward", "final", "intermediate")
"""Kinds of files with the same trees, the most complete first; of a folder's files with one number only one is read."""
PROGRESS_INTERVAL_S = 10.0


class ImportSource(BaseModel):
    """A file that was read. name: as given, or as found below a given folder."""

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
    passed_over: list[str]
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
        raise InputError("give at least one file or folder to import")
    files: list[ImportFile] = []
    passed_over: list[str] = []
    for each in given:
        source = Path(each)
        if is_on_the_hub(source):
            files.append(_file(str(each), plain_file(source, scratch, say=say)))
        elif source.is_dir():
            chosen, others = _pipeline_files(source)
            files.extend(_file(str(path), path) for path in chosen)
            passed_over.extend(map(str, others))
        elif source.is_file():
            files.append(_file(str(each), plain_file(source, scratch, say=say)))
        else:
            raise InputError(f"there is no {each} to import")
    once: dict[str, ImportFile] = {}
    for file in files:
        if file.source.sha256 in once:
            passed_over.append(file.source.name)
        once.setdefault(file.source.sha256, file)
    return ImportFiles(list(once.values()), passed_over, say)


def _file(name: str, path: Path) -> ImportFile:
    with reading(path), path.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
        return ImportFile(ImportSource(name=name, sha256=digest, bytes=content.tell()), path)


def _pipeline_files(folder: Path) -> tuple[list[Path], list[Path]]:
    """The files of trees below a folder: those to read, and those with the same trees."""
    found: dict[tuple[str, int], dict[str, Path]] = {}
    for path in folder.rglob("*.json"):
        if match := _OF_THE_PIPELINE.fullmatch(path.name):
            found.setdefault((str(path.parent), int(match[2])), {})[match[1]] = path
    if not found:
        if (folder / ROLLOUTS).exists() or (folder / CANDIDATES).exists():
            raise InputError(f"{folder} was made by reasonrag and needs no import: reasonrag pairs {folder} --out DIR")
        raise InputError(
            f"{folder} holds no trees of the published pipeline (chunk_*/final_*.json, intermediate_*.json or "
            "reward_*.json); name other files explicitly"
        )
    chosen: list[Path] = []
    others: list[Path] = []
    for place in sorted(found, key=lambda place: (natural_order(place[0]), place[1])):
        first, *rest = (found[place][name] for name in MOST_COMPLETE_FIRST if name in found[place])
        chosen.append(first)
        others.extend(rest)
    return chosen, others


def natural_order(name: str) -> list[tuple[bool, int, str]]:
    """Sort key under which chunk_10 comes after chunk_9."""
    return [(each.isdecimal(), int(each) if each.isdecimal() else 0, each) for each in re.split(r"([0-9]+)", name)]


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
