"""A data set's files, written to a staging folder and then moved in place together.

Decides the order of the moves, so that a kill between any two of them leaves no question in both training and
validation files, readers refuse the data set, and the same command completes it. Knows neither rows nor summaries.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from preference.export.formats import FORMATS, SPLITS
from preference.export.private_files import keep_permissions
from preference.export.summary import CANDIDATES, DATASET_INFO_FILE, HELD_OUT, QUESTIONS, SUMMARY, summary_of

UNFINISHED = "UNFINISHED.reasonrag"
"""Present while files are moved in place: the last file, under this name. Its renaming completes the data set."""
LAST = (DATASET_INFO_FILE, CANDIDATES, QUESTIONS)
"""Moved after everything else, in this order. The summary, which records the judge, comes before the candidates; the
questions, which record the source runs, come last, so a repeated command finds what the first one found."""
_PREFIX = ".sources-"
_ROW_FILES = {split: {each.file_name(split) for each in FORMATS.values()} for split in SPLITS}


@contextmanager
def staging_folder(out: Path) -> Iterator[Path]:
    """An empty folder below `out`, removed at the end; those of killed processes are removed first, so the caller must
    be the only writer of `out`. Raises OSError."""
    out.mkdir(parents=True, exist_ok=True)
    for left in out.glob(f"{_PREFIX}*"):
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=out, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def put_in_place(staged: Path, out: Path, *, obsolete: Collection[str] = (), last: Sequence[str] = LAST) -> list[str]:
    """Move the files of `staged` to `out`, and remove what an earlier export wrote and this one does not: it is named.

    Order: remove validation files, move the summary (which lists the files of the export), training files, validation
    files, then `last` in their order. obsolete: other files and folders of `out` to remove; nothing else goes but what
    the summary there lists. A folder replaces the one of its name. Raises OSError; the same files may then be staged
    and moved again.
    """
    names = {each.name for each in staged.iterdir()}
    held_out = _ROW_FILES["validation"]
    earlier = {HELD_OUT}.union(*_ROW_FILES.values()) & summary_of(out).files.keys()
    gone = sorted(name for name in earlier - names if (out / name).exists())

    def turn(name: str) -> tuple[int, str]:
        return last.index(name) + 3 if name in last else 2 if name in held_out else int(name != SUMMARY), name

    for name in names:
        if (staged / name).is_file():
            keep_permissions(out / name, staged / name)
    *before, end = sorted(names, key=turn)
    (staged / end).replace(out / UNFINISHED)
    for name in sorted({*gone, *(held_out & (earlier | names)), *obsolete}):
        if name in obsolete and (out / name).is_dir() and not (out / name).is_symlink():
            shutil.rmtree(out / name)
        else:
            (out / name).unlink(missing_ok=True)
    for name in before:
        if (staged / name).is_dir():
            shutil.rmtree(out / name, ignore_errors=True)
        (staged / name).replace(out / name)
    (out / UNFINISHED).replace(out / end)
    (out / UNFINISHED).unlink(missing_ok=True)  # os.rename does nothing if both names are hard links to one file
    return gone


def is_unfinished(directory: Path) -> bool:
    """Whether a process is moving files in place there, or was killed while doing so."""
    return (directory / UNFINISHED).is_file()
