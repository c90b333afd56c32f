"""Runs and data sets as Python objects: `reasonrag.load_rollouts` and `load_pairs`. Writes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from preference import RolloutRecord, read_rollouts
from preference.export.formats import Row, SplitName, pairs_files
from preference.export.parquet import proguide_schema, schema_of
from reasonrag.data.item_files import explained_records, read_items
from reasonrag.errors import InputError, needs_extra
from reasonrag.files import check_finished, reading, rollouts_in
from reasonrag.rendering import Part, Shown, Table, counted
from reasonrag.signatures import public_call

if TYPE_CHECKING:
    from datasets import Dataset  # brings pyarrow


class Rollouts:
    """The trees of a run, read from its file one at a time, in the order of the file.

    Iterating gives `RolloutRecord`s, as often as wished; `len` counts the questions, failed ones included.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __iter__(self) -> Iterator[RolloutRecord]:
        try:
            with explained_records(), reading(self.path):
                yield from read_rollouts(self.path)
        except InputError as error:
            raise error.with_traceback(None) from None

    def __len__(self) -> int:
        with reading(self.path), self.path.open("rb") as lines:
            return sum(1 for _ in lines)


class Pair(dict[str, Any], Shown):
    """A row of a data set, with the columns of RAG_ProGuide and ours."""

    def shown(self) -> Iterator[Part]:
        texts = ("question", "golden_answers", "input", "chosen", "rejected")
        rows = [(name, tuple(str(self[name]).splitlines())) for name in texts if name in self]
        numbers = ((name, self.get(name)) for name in ("chosen_reward", "rejected_reward", "margin", "confidence"))
        yield Table(f"pair {self.get('pair_id')}", [*rows, *numbers], texts=True)


class Pairs(list[Row], Shown):
    """The rows of a data set, each a `Pair`."""

    def shown(self) -> Iterator[Part]:
        names = ("question", "chosen_content", "rejected_content", "margin", "confidence")
        first = [[row.get(name) for name in names] for row in self[:10]]
        yield Table(f"the first {len(first)} of {counted(len(self), 'pair')}", first, names)

    def to_dataset(self) -> Dataset:
        """A `datasets.Dataset` with these rows; the column types are those that `publish` gives them.

        Raises InputError without the extra `hub`.
        """
        with needs_extra("hub", "to_dataset"):
            import pyarrow as pa
            from datasets import Dataset

            schema = schema_of(self) if any("history" in row for row in self) else proguide_schema()
        try:
            return Dataset(pa.Table.from_pylist(self, schema=schema))
        except pa.ArrowException as error:
            raise InputError(f"a row has a value of another type than its column: {error}") from None


@public_call()
def load_rollouts(run: str | Path) -> Rollouts:
    """The trees of a run, read one at a time.

    Raises InputError if there is no rollouts file; while iterating also for a line that is no record.

    Example:
        >>> trees = reasonrag.load_rollouts("runs/first")
        >>> len(trees)
        10
        >>> max(node.reward or 0 for tree in trees for node in tree.nodes) <= 1
        True

    Args:
        run: a run directory, or a rollouts file.
    """
    path = rollouts_in(Path(run))
    if not path.is_file():
        raise InputError(f"there is no {path}; give a run directory of reasonrag generate")
    return Rollouts(path)


@public_call()
def load_pairs(directory: str | Path, *, split: SplitName = "train") -> Pairs:
    """The pairs of a data set.

    Raises InputError if there are none, or the data set is unfinished.

    Example:
        >>> rows = reasonrag.load_pairs("data/first")
        >>> rows[0]["chosen_reward"] > rows[0]["rejected_reward"]
        True
        >>> rows.to_dataset().num_rows == len(rows)
        True

    Args:
        directory: a data set that `pairs` or `import_published` wrote.
        split: train, or validation.
    """
    check_finished(Path(directory))
    path = pairs_files(Path(directory)).get(split)
    if path is None:
        raise InputError(f"{directory} has no {split} pairs; give a data set of reasonrag pairs")
    rows = Pairs()
    for item in read_items(path):
        if not isinstance(item.value, dict):
            raise InputError(f"{path}, row {item.number}: this is not a JSON object; make the data set again")
        rows.append(Pair(item.value))
    return rows
