"""The files with rows in RAG_ProGuide's format, ours or others.

Decides which files of a directory are audited, and which part of the data each is. Does not know what rows mean.
"""

from __future__ import annotations

from pathlib import Path

from preference.export.formats import SplitName, pairs_files
from reasonrag.data.item_files import read_items
from reasonrag.errors import InputError
from reasonrag.files import ROLLOUTS, check_finished

_FOR_VALIDATION = ("validation", "valid", "val", "dev", "test", "eval")
_ROW = frozenset({"instruction", "input", "chosen", "rejected"})


def row_files(place: Path) -> list[tuple[Path, SplitName]]:
    """The files to audit, each with its part: `place` itself, or those of `find_row_files`.

    Raises InputError if there is none.
    """
    if place.is_file():
        return [(place, _part(place))]
    if not place.is_dir():
        raise InputError(f"there is no {place}; give a directory with RAG_ProGuide.json, or such a file")
    check_finished(place)
    found = find_row_files(place)
    if not found and (place / ROLLOUTS).is_file():
        raise InputError(
            f"{place} is a run, not a data set. First: reasonrag pairs {place} --out data/{place.resolve().name}"
        )
    if not found:
        raise InputError(
            f"{place} has no file with rows of RAG_ProGuide, a JSON list of objects with instruction, input, chosen "
            f"and rejected; make one with: reasonrag pairs RUN --out {place}"
        )
    return found


def find_row_files(directory: Path) -> list[tuple[Path, SplitName]]:
    """The two files of `reasonrag pairs`, or every file that begins with such a row; each with its part."""
    if ours := pairs_files(directory):
        return [(path, split) for split, path in ours.items()]
    places = [path for path in sorted(directory.iterdir()) if path.suffix in (".json", ".jsonl") and _begins(path)]
    return [(path, _part(path)) for path in places]


def _part(path: Path) -> SplitName:
    words = path.stem.lower().replace("-", ".").replace("_", ".").split(".")
    return "validation" if any(word in _FOR_VALIDATION for word in words) else "train"


def _begins(path: Path) -> bool:
    """Whether a file starts with such a row."""
    try:
        first = next(iter(read_items(path)), None)
    except InputError:
        return False
    return first is not None and isinstance(first.value, dict) and set(first.value) >= _ROW
