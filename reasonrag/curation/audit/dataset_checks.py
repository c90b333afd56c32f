"""The checks and statistics of all rows together, held as columns of 80 bytes per row.

Decides what a length bias and a leak between training and validation are. Knows no texts: rows
come as `RowFacts`.
"""

from __future__ import annotations

from array import array
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from preference.statistics import effective_sample_size, wilson
from reasonrag.curation.audit.catalogue import BIAS, CheckName
from reasonrag.curation.audit.report import RowExample
from reasonrag.curation.audit.row_checks import RowFacts

Column: TypeAlias = NDArray[Any]
_COLUMNS = (
    *("instruction", "state", "question", "prompt_tokens", "chosen_tokens", "rejected_tokens"),
    *("gold_in_system", "file", "row", "part"),
)
_NONE: Column = np.zeros(0, np.intp)


class RowColumns:
    """Numbers of the rows that can be trained on, in order."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self._arrays: dict[str, array[int]] = {name: array("Q") for name in _COLUMNS}

    def __len__(self) -> int:
        return len(self._arrays["state"])

    def add(self, facts: RowFacts, *, file: str, row: int, part: int) -> None:
        """part: 0 for training, 1 for validation."""
        if file not in self.files:
            self.files.append(file)
        place = {"file": self.files.index(file), "row": row, "part": part}
        for name, column in self._arrays.items():
            column.append(place[name] if name in place else getattr(facts, name))

    def __getitem__(self, name: str) -> Column:
        return np.frombuffer(self._arrays[name], dtype=np.uint64)

    def tokens(self, name: str) -> NDArray[np.int64]:
        return self[f"{name}_tokens"].astype(np.int64)

    def example(self, position: int) -> RowExample:
        return RowExample(file=self.files[self._arrays["file"][position]], row=self._arrays["row"][position])


def check_all_rows(columns: RowColumns) -> dict[CheckName, Column]:
    """Positions of the rows found by comparing rows with each other, by check."""
    if not len(columns):
        return {}
    return {
        "state_in_both_parts": _in_both(columns["state"], columns["part"]),
        "question_in_both_parts": _in_both(columns["question"], columns["part"]),
        "gold_in_system_turn": _in_own_system_turn(columns),
        "length_bias": _biased(columns),
    }


def _in_both(keys: Column, part: Column) -> Column:
    """Validation rows whose key also occurs in training."""
    return np.flatnonzero((part == 1) & np.isin(keys, keys[part == 0]))


def _in_own_system_turn(columns: RowColumns) -> Column:
    """Rows with a golden answer in a system turn that only one question has."""
    flagged = columns["gold_in_system"] == 1
    if not flagged.any() or len(np.unique(columns["question"])) == 1:
        return _NONE
    instructions = columns["instruction"]
    some = np.isin(instructions, instructions[flagged])
    pairs = np.unique(np.stack([instructions[some], columns["question"][some]]), axis=1)
    turns, questions = np.unique(pairs[0], return_counts=True)
    return np.flatnonzero(flagged & np.isin(instructions, turns[questions == 1]))


def _biased(columns: RowColumns) -> Column:
    """Rows whose shorter side is the more frequent one, if its share of the rows that differ is a bias; else none."""
    sign = _sign_of_gap(columns)
    unequal, often = sign != 0, 1 if sign.sum() >= 0 else -1
    biased = unequal.any() and _lowest_share(sign[unequal] == often, columns["question"][unequal]) > BIAS
    return np.flatnonzero(sign == often) if biased else _NONE


def _lowest_share(holds: Column, clusters: Column) -> float:
    """The lower end of Wilson's interval of a share, at the effective sample size.

    That follows from how much the share varies between clusters; at most the number of rows, at least what Kish's
    formula gives for identical rows within each cluster.
    """
    share, rows = float(np.mean(holds)), len(holds)
    _, which, sizes = np.unique(clusters, return_inverse=True, return_counts=True)
    spread = np.bincount(which.ravel(), weights=holds.astype(float) - share)
    least = effective_sample_size(rows, float(np.sum(sizes.astype(float) ** 2))) or 0.0
    variance = float(np.sum(spread**2)) / rows**2
    varied = share * (1 - share) / variance if len(sizes) > 1 and variance > 0 else 0.0
    return wilson(share, min(rows, max(least, varied)))[0]


def _sign_of_gap(columns: RowColumns) -> Column:
    """1 where the chosen side is shorter, -1 where the rejected one is."""
    return np.asarray(np.sign(columns.tokens("rejected") - columns.tokens("chosen")))


def chosen_shorter(columns: RowColumns) -> float | None:
    sign = _sign_of_gap(columns)
    return float(np.mean(sign[sign != 0] == 1)) if sign.any() else None
