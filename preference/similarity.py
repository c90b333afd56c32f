"""How alike two texts are, by their words; when two steps say the same."""

from __future__ import annotations

import re
from typing import Protocol

from preference.answer_scores import normalize_answer
from preference.records import ActionType

NEARLY_THE_SAME = 0.9
"""Similarity from which two queries or pieces of evidence say the same, if their telling words agree as well."""
_TELLING = re.compile(r"[^\W_]*\d[^\W_]*|\b[A-Z][^\W_]*|\b(?:no|not|nor|never|none|neither|without)\b|n't\b")
"""Words of which a single one makes a difference: numbers, names, negations."""


class StepContent(Protocol):
    """A step, as far as what it says goes."""

    @property
    def action_type(self) -> ActionType | None: ...
    @property
    def content(self) -> str | None: ...


def words_of(text: str) -> frozenset[str]:
    """The different words after SQuAD normalisation."""
    return frozenset(normalize_answer(text).split())


def jaccard(words: frozenset[str], others: frozenset[str]) -> float:
    """Jaccard index, in [0, 1]; 1 where neither has any."""
    return len(words & others) / len(words | others) if words | others else 1.0


def similarity(text: str, other: str) -> float:
    """Jaccard index of the words of two texts."""
    return jaccard(words_of(text), words_of(other))


def folded(text: str) -> str:
    """The text whatever its case and spaces: equal for two steps that say the same to the letter."""
    return " ".join(text.split()).casefold()


def equivalent_steps(step: StepContent, other: StepContent) -> bool:
    """Whether two steps of one state differ in words that do not matter, if at all: equal answers, near-equal queries
    and evidence. A failed step says nothing that another could say."""
    if step.content is None or other.content is None or step.action_type != other.action_type:
        return False
    text, another = normalize_answer(step.content), normalize_answer(other.content)
    if text == another:
        return bool(text) or step.content == other.content
    if step.action_type == "answer" or similarity(text, another) < NEARLY_THE_SAME:
        return False
    return set(_TELLING.findall(step.content)) == set(_TELLING.findall(other.content))
