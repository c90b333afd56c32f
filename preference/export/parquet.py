"""Rows as Parquet, in groups. Needs pyarrow, which the `hub` extra brings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, BinaryIO

from preference.export.formats import COLUMNS, Row

_GROUP = 1000
"""Rows held in memory at a time."""


def write_parquet(rows: Iterable[Row], file: BinaryIO, schema: Any) -> None:
    """schema: the column types, of pyarrow; they hold even for columns of nulls."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetWriter(file, schema) as writer:
        for group in _groups(rows):
            writer.write_table(pa.Table.from_pylist(group, schema=schema))


def schema_of(rows: Iterable[Row]) -> Any:
    """The common column types of rows of any format. Raises pyarrow.ArrowInvalid."""
    import pyarrow as pa

    schema = pa.schema([])
    for group in _groups(rows):
        schema = pa.unify_schemas([schema, pa.Table.from_pylist(group).schema], promote_options="permissive")
    return schema


def proguide_schema() -> Any:
    """Column types of RAG_ProGuide with our columns, a schema of pyarrow."""
    import pyarrow as pa

    lists = {"list<string>": pa.list_(pa.string())}
    return pa.schema([(name, lists.get(kind) or pa.type_for_alias(kind)) for name, kind in COLUMNS.items()])


def _groups(rows: Iterable[Row]) -> Iterator[list[Row]]:
    left = iter(rows)
    while group := list(islice(left, _GROUP)):
        yield group
