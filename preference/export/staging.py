"""A data set's files, made in a folder apart and then put in place together.

Decides the order in which they replace the earlier ones, so that a process may be killed between any two of them: no
question then stands both in a file to train on and in one to validate with, readers are told, and the same command
ends as if it had never been killed. Knows neither rows nor summaries.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import orjson

from preference.export.files import keep_permissions
from preference.export.formats import FORMATS, SPLITS
from preference.export.summary import CANDIDATES, DATASET_INFO_FILE, QUESTIONS, SUMMARY

UNFINISHED = "UNFINISHED.reasonrag"
"""The name of the file that comes last while the others are put in place: where it exists, they do not belong together.
A single rename ends that."""
LAST = (DATASET_INFO_FILE, CANDIDATES, QUESTIONS)
"""Put in place after everything else, in this order. Candidates come after the summary, which knows their judge, and
questions decide from which runs a data set was made: a repeated command finds what the first one found."""
_PREFIX = ".sources-"
_ROW_FILES = {split: {each.file_name(split) for each in FORMATS.values()} for split in SPLITS}


@contextmanager
def staging_folder(out: Path) -> Iterator[Path]:
    """An empty folder below `out`, which goes at the end, and with it those of killed processes: there must be no
    other writer of `out`. Raises OSError."""
    out.mkdir(parents=True, exist_ok=True)
    for left in out.glob(f"{_PREFIX}*"):
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=out, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def put_in_place(staged: Path, out: Path, *, obsolete: Collection[str] = (), last: Sequence[str] = LAST) -> None:
    """Move the files of `staged` to `out`, and remove what an earlier export wrote and this one does not.

    Files for validation go before others come, and come after those for training; the summary comes first, as it says
    which files are ours. obsolete: other files of `out` to be removed. last: names in the order in which they come
    last. Raises OSError; the same files may then be staged and put in place again.
    """
    names = {each.name for each in staged.iterdir()}
    earlier = files_of_formats(out)
    held_out = _ROW_FILES["validation"]

    def turn(name: str) -> tuple[int, str]:
        return last.index(name) + 3 if name in last else 2 if name in held_out else int(name != SUMMARY), name

    for name in names:
        keep_permissions(out / name, staged / name)
    *before, end = sorted(names, key=turn)
    (staged / end).replace(out / UNFINISHED)
    for name in sorted({*(earlier - names), *(held_out & (earlier | names)), *obsolete}):
        (out / name).unlink(missing_ok=True)
    for name in before:
        (staged / name).replace(out / name)
    (out / UNFINISHED).replace(out / end)
    (out / UNFINISHED).unlink(missing_ok=True)  # a rename leaves both of two names of one file


def is_unfinished(directory: Path) -> bool:
    """Whether a process is putting files in place there, or was killed while it did."""
    return (directory / UNFINISHED).is_file()


def files_of_formats(out: Path) -> set[str]:
    """The files an earlier export wrote, by its summary; nothing else below `out` may be removed."""
    try:
        files = set(orjson.loads((out / SUMMARY).read_bytes())["files"])
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError):
        return set()
    return set().union(*_ROW_FILES.values()) & files
