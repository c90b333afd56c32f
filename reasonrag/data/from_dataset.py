"""`reasonrag.from_dataset`: questions of a `datasets.Dataset`, or of any rows, as a question file.

Answers are read as from published question files. Asks nothing of the Hub.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson
from pydantic import ValidationError

from preference.export.files import atomic_replacement
from preference.records import first_error
from reasonrag.data.questions import Question
from reasonrag.errors import InputError, choices
from reasonrag.files import writing
from reasonrag.signatures import public_call


@public_call()
def from_dataset(
    rows: Iterable[Mapping[str, Any]],
    path: str | Path,
    *,
    question: str = "question",
    golden_answers: str | None = "golden_answers",
    id: str | None = "id",  # noqa: A002 - the column's name
) -> Path:
    """Write the questions of a `datasets.Dataset` as a question file, for `questions=` of `generate`; returns its path.

    A column `metadata`, FlashRAG's, is kept. Raises InputError, and leaves what is there, if the file cannot be written
    or a row lacks a column or a question.

    Example:
        >>> rows = [{"text": "Where was Ada Lovelace born?", "answer": "London"}]  # or datasets.load_dataset(..)
        >>> print(reasonrag.from_dataset(rows, "mine.jsonl", question="text", golden_answers="answer", id=None))
        mine.jsonl

    Args:
        rows: a `datasets.Dataset`, or any rows by column name.
        path: the JSONL file to write; one that is there is replaced.
        question: column of the questions.
        golden_answers: column of the gold answers: a text, a list of texts, or `{"text": [..]}`, as SQuAD has them.
            None: there are none, so generate with `outcome="judge"`.
        id: column of the ids. None, or no such column: `q0`, `q1`, ..
    """
    place, seen = Path(path), set[str]()
    columns = {"question": question} | ({"golden_answers": golden_answers} if golden_answers else {})
    with writing(place), atomic_replacement(place) as file:
        for number, row in enumerate(rows):
            if not isinstance(row, Mapping):
                raise InputError(f"row {number} is not a mapping; of a DatasetDict pass one split, as dataset['train']")
            read = _question(row, number, columns, f"q{number}" if id is None or row.get(id) is None else row[id])
            if read.id in seen:
                raise InputError(f"row {number}: an earlier row has the id {read.id!r}; give another `id`, or None")
            seen.add(read.id)
            try:
                file.write(orjson.dumps(read.model_dump(exclude={"origin"})) + b"\n")
            except TypeError as error:
                raise InputError(f"row {number}: its metadata is not valid JSON ({error}); remove it") from error
        if not seen:
            raise InputError("there is no row, so there is no question to write")
    return place


def _question(row: Mapping[str, Any], number: int, columns: Mapping[str, str], name: object) -> Question:
    """columns: the row's name of each field."""
    for column in columns.values():
        if column not in row:
            raise InputError(f"row {number} has no column {column!r}; {choices(column, row)}")
    record = {"id": name, "question": row[columns["question"]], "metadata": row.get("metadata") or {}}
    answers = {"answer": row[columns["golden_answers"]]} if "golden_answers" in columns else {}
    try:
        return Question.model_validate(record | answers)
    except ValidationError as error:
        raise InputError(f"row {number}: {first_error(error)}") from error
