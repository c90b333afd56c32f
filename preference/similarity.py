"""Similarity of two texts by their words, and when two steps are equivalent."""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable
from functools import lru_cache
from typing import Protocol

from preference.answer_scores import comparable
from preference.records import ActionType

NEARLY_THE_SAME = 0.9
"""Similarity from which two queries or pieces of evidence are equivalent, if their telling words agree too."""
LEAST_IN_COMMON = 0.5
"""Of what two steps reveal: where less is the same, they reveal different things."""
_TELLING = re.compile(r"[^\W_]*\d[^\W_]*|\b[A-Z][^\W_]*|\b(?:no|not|nor|never|none|neither|without)\b|n't\b")
"""Words that change the meaning on their own: numbers, names, negations."""


class StepContent(Protocol):
    """The content of a step."""

    @property
    def action_type(self) -> ActionType | None: ...
    @property
    def content(self) -> str | None: ...


@lru_cache(maxsize=4096)
def words_of(text: str) -> frozenset[str]:
    """The different words that count for labels."""
    return frozenset(comparable(text).split())


def jaccard(words: frozenset[Hashable], others: frozenset[Hashable]) -> float:
    """Jaccard index, in [0, 1]; 1 if both are empty."""
    common = len(words & others)
    either = len(words) + len(others) - common
    return common / either if either else 1.0


def overlap(shown: Collection[Hashable], others: Collection[Hashable]) -> float:
    """The share, in [0, 1], of what two steps show that both show: from `LEAST_IN_COMMON` on, below it 0."""
    share = jaccard(frozenset(shown), frozenset(others)) if shown and others else 0.0
    return share if share >= LEAST_IN_COMMON else 0.0


def similarity(text: str, other: str) -> float:
    """Jaccard index of the words of two texts."""
    return jaccard(words_of(text), words_of(other))


def folded(text: str) -> str:
    """The text without differences of case and spaces."""
    return " ".join(text.split()).casefold()


def equivalent_steps(step: StepContent, other: StepContent) -> bool:
    """Whether two steps of one state say the same: equal answers, near-equal queries and evidence. A failed step is
    equivalent to no other."""
    if step.content is None or other.content is None or step.action_type != other.action_type:
        return False
    text, another = comparable(step.content), comparable(other.content)
    if text == another:
        return bool(text) or step.content == other.content
    if step.action_type == "answer" or similarity(step.content, other.content) < NEARLY_THE_SAME:
        return False
    return set(_TELLING.findall(step.content)) == set(_TELLING.findall(other.content))
