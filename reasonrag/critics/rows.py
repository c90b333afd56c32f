"""The rows that a critic is trained on: from a data set's pairs, without the questions of a fold.

Decides which questions are in which fold, by a hash of the question alone. Knows no trainer and no tokens.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from preference.candidate_records import QuestionRecord, question_key, read_lines
from preference.export.formats import PAIRS_FILE, SplitName, messages_of, pairs_files
from preference.export.summary import QUESTIONS
from reasonrag.errors import InputError
from reasonrag.training.llamafactory.dataset_info import rows_in


@dataclass(frozen=True)
class Fold:
    """One of `count` parts of the questions, from 1; a critic of it is trained on the other parts."""

    number: int
    count: int

    def holds(self, key: str) -> bool:
        """key: `question_key` of the question."""
        lot = int.from_bytes(hashlib.sha256(f"fold {key}".encode()).digest()[:8])
        return lot % self.count == self.number - 1


@dataclass(frozen=True)
class CriticRows:
    """Rows as `training_script` takes them. questions: keys of theirs. labels: what they were labelled by."""

    rows: list[dict[str, Any]]
    questions: frozenset[str]
    labels: frozenset[str]


def critic_files(data: Path) -> list[Path]:
    """The files that a critic is trained on. Raises InputError where they are missing."""
    files = pairs_files(data)
    if "train" not in files:
        raise InputError(
            f"{data} has no {PAIRS_FILE}, which a critic is trained on: reasonrag pairs {data} --out {data}"
        )
    return [*files.values()]


def read_rows(data: Path, split: SplitName, fold: Fold | None) -> CriticRows:
    """The rows of a split, but for the questions of the fold. Raises InputError for a damaged file."""
    path = pairs_files(data).get(split)
    rows, questions, labels = [], set[str](), set[str]()
    keys = {each.question_id: question_key(each.question) for each in read_lines(data / QUESTIONS, QuestionRecord)}
    for row in rows_in(path) if path else ():
        try:
            key = question_key(row["question"]) if "question" in row else keys[row["question_id"]]
            if fold and fold.holds(key):
                continue
            rows.append(_pair(row))
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path}: a row has no {error}; make it again: reasonrag pairs") from error
        questions.add(key)
        labels.add(str(row.get("label")))
    return CriticRows(rows, frozenset(questions), frozenset(labels))


def _pair(row: dict[str, Any]) -> dict[str, Any]:
    found = {"state": messages_of(row), "chosen": row["chosen"], "rejected": row["rejected"]}
    margin = float(row["margin"] or 0.0) * (-1 if row.get("flipped") else 1)  # `pairs --flip` exchanged the sides
    return found | {"margin": max(0.0, margin)}  # a judge may disagree with the values, and an import has none
