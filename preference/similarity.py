"""How alike two texts are, by their words."""

from __future__ import annotations

from preference.scoring import normalize_answer

NEARLY_THE_SAME = 0.9
"""Similarity from which two steps say the same. One other word among nine is less: it may change what is found."""


def similarity(text: str, other: str) -> float:
    """Jaccard index of the words after SQuAD normalisation, in [0, 1]; 1 where neither has any."""
    words, others = set(normalize_answer(text).split()), set(normalize_answer(other).split())
    return len(words & others) / len(words | others) if words | others else 1.0
