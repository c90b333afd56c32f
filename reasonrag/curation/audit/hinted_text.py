"""How well the chosen sides of hinted rows can be told from others by their words.

Decides which rows are compared, by what classifier, and when there are too few. A student that learns from hinted rows
should not learn how a hint sounds; where a simple classifier can tell the rows apart, so can the student. Holds hashed
words, never texts.
"""

from __future__ import annotations

import math
import random
from array import array
from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from preference.statistics import Z
from reasonrag.curation.audit.dataset_checks import clustered_mean
from reasonrag.curation.audit.report import HintedText, IntervalEstimate
from reasonrag.curation.audit.row_checks import HASHED_WORDS, RowFacts

FEWEST_ROWS, FEWEST_QUESTIONS = 50, 10
"""Of each kind; with fewer nothing is said."""
_MOST_ROWS = 2000
"""Of each kind: a sample by a fixed seed."""
_FOLDS = 5


class HintedRows:
    """A bounded sample of hinted and of other rows."""

    def __init__(self) -> None:
        self._kept: dict[bool, list[tuple[int, str, array[int]]]] = {True: [], False: []}
        self._seen: Counter[bool] = Counter()
        self._dice = random.Random(0)

    def add(self, facts: RowFacts) -> None:
        kind = facts.hinted
        kept, row = self._kept[kind], (facts.question, facts.chosen_type, facts.chosen_words)
        self._seen[kind] += 1
        if len(kept) < _MOST_ROWS:
            kept.append(row)
        elif (place := self._dice.randrange(self._seen[kind])) < _MOST_ROWS:
            kept[place] = row

    def compared(self) -> HintedText | None:
        """None without hinted rows."""
        if not self._kept[True]:
            return None
        found = HintedText(hinted=self._seen[True], others=self._seen[False])
        if any(
            len(rows) < FEWEST_ROWS or len({each[0] for each in rows}) < FEWEST_QUESTIONS
            for rows in self._kept.values()
        ):
            return found
        rows = [*self._kept[True], *self._kept[False]]
        hinted = np.arange(len(rows)) < len(self._kept[True])
        questions = np.array([each[0] for each in rows], dtype=np.uint64)
        scores = _scores(rows, hinted, questions)
        types = np.array([each[1] for each in rows])
        return found.model_copy(update={"auc": _auc(scores, hinted, types, questions)})


def _scores(
    rows: list[tuple[int, str, array[int]]], hinted: NDArray[np.bool_], questions: NDArray[np.uint64]
) -> NDArray[np.float64]:
    """Log odds of naive Bayes on the words that occur, each row by the rows of other questions."""
    occurs = np.zeros((len(rows), HASHED_WORDS), dtype=np.float32)
    for number, (_, _, words) in enumerate(rows):
        occurs[number, words] = 1
    fold = questions % np.uint64(_FOLDS)
    scores = np.zeros(len(rows))
    for each in range(_FOLDS):
        tested = fold == each
        rate = [
            (occurs[mine].sum(axis=0, dtype=np.float64) + 1) / (np.count_nonzero(mine) + 2)
            for mine in (~tested & hinted, ~tested & ~hinted)
        ]
        present, absent = np.log(rate[0] / rate[1]), np.log((1 - rate[0]) / (1 - rate[1]))
        scores[tested] = occurs[tested] @ (present - absent) + absent.sum()
    return scores


def _auc(
    scores: NDArray[np.float64], hinted: NDArray[np.bool_], types: NDArray[Any], questions: NDArray[np.uint64]
) -> IntervalEstimate | None:
    """Chance that a hinted row scores higher than another one of its action type, ties counting half; with an interval
    from both samples, clustered by question. None if no type has rows of both kinds."""
    placed: dict[bool, tuple[list[float], list[int]]] = {True: ([], []), False: ([], [])}
    for each in np.unique(types):
        mine = types == each
        if not (mine & hinted).any() or not (mine & ~hinted).any():
            continue
        for kind in (True, False):
            own, others = mine & (hinted == kind), np.sort(scores[mine & (hinted != kind)])
            below = np.searchsorted(others, scores[own], "left") + np.searchsorted(others, scores[own], "right")
            share = below / (2 * len(others))
            placed[kind][0].extend((share if kind else 1 - share).tolist())
            placed[kind][1].extend(questions[own].tolist())
    if not placed[True][0]:
        return None
    found = {
        kind: clustered_mean(np.array(shares), np.array(of, dtype=np.uint64)) for kind, (shares, of) in placed.items()
    }
    value = found[True].value
    error = math.hypot(*((each.high - each.value) / Z for each in found.values()))
    return IntervalEstimate(value=value, low=max(0.0, value - Z * error), high=min(1.0, value + Z * error))
