"""Rows of RAG_ProGuide as Parquet, written in groups. Needs pyarrow, which the `hub` extra brings."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any, BinaryIO

from preference.export.formats import COLUMNS, Row

_GROUP = 1000
"""Rows held in memory before they are written."""


class ParquetRows:
    """A Parquet file written row by row; all files have the same column types, even for columns of nulls."""

    def __init__(self, file: BinaryIO, schema: Any = None) -> None:
        """schema: of pyarrow; needed for rows that are not RAG_ProGuide's."""
        import pyarrow.parquet as pq

        self.rows = 0
        self._waiting: list[Row] = []
        self._writer = pq.ParquetWriter(file, schema or proguide_schema())

    def write(self, row: Row) -> None:
        self._waiting.append(row)
        self.rows += 1
        if len(self._waiting) >= _GROUP:
            self._flush()

    def finish(self) -> None:
        self._flush()
        self.close()

    def close(self) -> None:
        """Close the file, complete or not; may be called twice."""
        self._writer.close()

    def _flush(self) -> None:
        import pyarrow as pa

        if self._waiting:
            self._writer.write_table(pa.Table.from_pylist(self._waiting, schema=self._writer.schema))
            self._waiting.clear()


def schema_of(rows: Iterable[Row]) -> Any:
    """The common column types of rows of any format. Raises pyarrow.ArrowInvalid."""
    import pyarrow as pa

    schema = pa.schema([])
    waiting: list[Row] = []
    for row in chain(rows, [None]):
        if row is not None:
            waiting.append(row)
        if waiting and (row is None or len(waiting) >= _GROUP):
            found = pa.Table.from_pylist(waiting).schema
            schema = pa.unify_schemas([schema, found], promote_options="permissive")
            waiting.clear()
    return schema


def proguide_schema() -> Any:
    """Column types of RAG_ProGuide with our columns, a schema of pyarrow."""
    import pyarrow as pa

    lists = {"list<string>": pa.list_(pa.string())}
    return pa.schema([(name, lists.get(kind) or pa.type_for_alias(kind)) for name, kind in COLUMNS.items()])
