"""Files of many items: JSON in any layout (`preference.export.json_stream`), or Parquet.

Decides which of them a file is, and turns reading errors into messages for users.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

from preference.candidate_records import MalformedCandidatesError
from preference.export.json_stream import LONGEST_ITEM, JsonItem, MalformedFileError
from preference.export.json_stream import read_items as read_json
from preference.records import MalformedRolloutsError, TornLineError
from reasonrag.data.dataset_fields import LISTS
from reasonrag.errors import InputError, needs_extra
from reasonrag.files import reading

_ROWS = 1000
"""Rows of a Parquet file held in memory at a time."""
_PARQUET = b"PAR1"
_BEGINNING = 1 << 16
"""Bytes by which a file's form is told."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@contextmanager
def explained_records(out: object = "DIR") -> Iterator[None]:
    """Malformed rollouts and candidates as InputError, with the command that makes them again. out: the data set."""
    try:
        yield
    except TornLineError as error:
        raise InputError(f"{error}. A run was stopped there; the same generate command again mends the file") from error
    except MalformedRolloutsError as error:
        raise InputError(str(error)) from error
    except MalformedCandidatesError as error:
        raise InputError(f"{error}. Make it again of its runs: reasonrag pairs RUN --out {out}") from error


def read_items(path: Path) -> Iterator[JsonItem]:
    """The items of a file, one at a time. Raises InputError if it cannot be read, is damaged or cut off."""
    try:
        with reading(path):
            with path.open("rb") as file:
                packed = file.read(len(_PARQUET)) == _PARQUET
            yield from _rows(path) if packed else read_json(path)
    except MalformedFileError as error:
        raise InputError(f"{error}. Fetch or make the file again") from error


def _rows(path: Path) -> Iterator[JsonItem]:
    with needs_extra("hub", f"{path} is Parquet, which"):
        import pyarrow as pa
        import pyarrow.parquet as pq
    number = 0
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_ROWS):
                alone = [batch] if batch.nbytes <= LONGEST_ITEM else [batch.slice(row, 1) for row in range(len(batch))]
                for part in alone:
                    too_long = part.nbytes > LONGEST_ITEM
                    for row in [None] * len(part) if too_long else part.to_pylist():
                        number += 1
                        yield JsonItem(number, row, too_long=too_long)
    except (pa.ArrowException, ValueError) as error:
        raise InputError(f"{path} is damaged after row {number:,} ({error}); fetch it again") from error


def is_lines(path: Path) -> bool:
    """Whether a file is JSONL, and not a JSON list or Parquet, as far as its beginning shows."""
    with reading(path), path.open("rb") as file:
        beginning = file.read(_BEGINNING).removeprefix(_BYTE_ORDER_MARK).lstrip()
    return not beginning.startswith((_PARQUET, b"["))


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a file in any of these forms, as mappings; lists that are JSON text are read, but for those of JSONL.
    Raises InputError naming the first that cannot be read."""
    as_written = is_lines(path)
    for item in read_items(path):
        where = f"{path}, row {item.number:,}"
        if item.too_long:
            raise InputError(f"{where} is longer than {LONGEST_ITEM // 10**6} MB; correct or remove it")
        if item.repaired or not isinstance(item.value, dict):
            what = "has NaN or a character that JSON does not know" if item.repaired else "is not an object"
            raise InputError(f"{where} {what}; correct it")
        row = item.value
        yield row if as_written else {name: _cell(name, value, where) for name, value in row.items()}


def _cell(name: str, value: object, where: str) -> object:
    """A list or mapping that is written as JSON text; any other value as it is."""
    if name not in LISTS or not isinstance(value, str) or value[:1] not in ("[", "{"):
        return value
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError as error:
        if name == "answer" and value[-1] not in "]}":  # a text that begins with a bracket
            return value
        raise InputError(f"{where}: {name} is no list that can be read: {value!r:.80}; write it as JSON") from error
