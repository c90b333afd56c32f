"""Grounding: whether the passages read so far support a step's content, by string match. Uses no model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from preference import ActionType
from preference.answer_scores import ARTICLES, VERDICTS, comparable, holds
from reasonrag.data.corpus import Passage

SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_LITTLE_WORDS = frozenset(
    "of in on at to for from by with and or as is are was were be been it its this that these those he she his her "
    "they their who which has have had also".split()
)


def is_grounded(action_type: ActionType, content: str, passages: Iterable[Passage]) -> bool | None:
    """Support of a step's content by passages (their titles included), as labels compare them.

    An answer is grounded if it occurs in a passage as whole words; evidence if for each of its sentences some passage
    contains the sentence, or all of its words except function words. An answer given before anything was read is never
    grounded. None where grounding does not apply: queries, yes and no after some reading, and evidence that reports
    nothing.
    """
    said = "" if action_type == "query" else comparable(content)
    read = [*passages][::-1]  # evidence mostly reports from the last ones
    if action_type == "answer" and not read:
        return False
    if said in (*VERDICTS, "none", ""):
        return None
    if action_type == "answer" and said.rpartition(" ")[2] in ARTICLES:
        return any(holds(f"{each.title} {each.text}", content) for each in read)
    if action_type == "answer":
        return any(f" {said} " in _normalized(each.title, each.text) for each in read)
    sentences = filter(None, _sentences(content))
    return all(any(_holds(_normalized(each.title, each.text), said) for each in read) for said in sentences)


def grounded_by_evidence(
    evidence: Iterable[str], passages: Sequence[Passage], *, grounded: bool | None, held: bool | None
) -> bool | None:
    """The grounding of an answer that passages do not contain but evidence may support: it rests on them if every piece
    of that evidence does.

    grounded: by `is_grounded`. held: whether evidence supports the answer.
    """
    if not held or grounded is not False:
        return grounded
    return all(is_grounded("evidence", each, passages) is not False for each in evidence)


def is_in_evidence(answer: str, evidence: Iterable[str]) -> bool | None:
    """Whether an answer occurs, as whole words as labels compare them, in evidence reported before it.

    Evidence is all an answering turn sees of the passages. None for yes and no once anything was reported: string match
    cannot tell whether they follow; `support` knows more forms, and what follows from several pieces.
    """
    pieces = reported(evidence)
    if comparable(answer) in VERDICTS and pieces:
        return None
    return any(holds(each, answer) for each in pieces)


def reported(evidence: Iterable[str]) -> list[str]:
    """The evidence without that which reports nothing (`None`)."""
    return [each for each in evidence if comparable(each) not in ("", "none")]


@lru_cache(maxsize=1 << 14)  # a tree asks this of the same evidence and passages again and again
def reports(evidence: str, passage: Passage) -> bool:
    """Whether evidence reports from a passage: the passage contains at least one of its sentences, by the same rule.

    Evidence that reports nothing (`None`) reports from no passage.
    """
    if comparable(evidence) == "none":
        return False
    source = _normalized(passage.title, passage.text)
    return any(_holds(source, each) for each in _sentences(evidence))


@lru_cache(maxsize=4096)
def _sentences(text: str) -> tuple[str, ...]:
    return tuple(map(_sentence, SENTENCE_END.split(text)))


def _sentence(text: str) -> str:
    """What counts of a sentence, which may end after an initial: `William A.`"""
    said, _, last = comparable(text).rpartition(" ")
    return said if last in ARTICLES else f"{said} {last}".strip()


@lru_cache(maxsize=4096)
def _normalized(title: str, text: str) -> str:
    """Normalised and padded with blanks, to match whole words; cached, because siblings read the same passages."""
    return f" {comparable(f'{title} {text}')} "


def _holds(source: str, sentence: str) -> bool:
    if f" {sentence} " in source:
        return True
    telling = _telling(sentence)
    return bool(telling) and all(map(source.__contains__, telling))


@lru_cache(maxsize=4096)
def _telling(sentence: str) -> tuple[str, ...]:
    """Its words except function words, padded as a source is."""
    return tuple(f" {each} " for each in sentence.split() if each not in _LITTLE_WORDS)
