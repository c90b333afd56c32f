"""The gold passages of a question: which its data set names, and whether a passage is one of them.

Decides which of a question's fields names them, and when a passage of a gold title is another paragraph. Reads the
forms of HotpotQA, 2WikiMultiHopQA and MuSiQue. For checks and scores, never for a prompt.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from preference.records import title_key
from reasonrag.data.dataset_fields import joined, mappings, of_context

if TYPE_CHECKING:
    from reasonrag.data.corpus import Passage

_PIECE, _COMPARED = 12, 20_000
"""Letters of the runs by which texts are compared, and the most that are compared of a text."""


def gold_passages(metadata: Mapping[str, Any]) -> GoldPassages | None:
    """By `gold_ids`, else by `gold_titles`, else by the titles of `supporting_facts` (HotpotQA and 2WikiMultiHopQA) or
    of supporting `paragraphs` (MuSiQue), whose texts count, too; None if the metadata name none."""
    if ids := _names(metadata.get("gold_ids")):
        return GoldPassages("id", ids)
    facts = [title for title, _ in _facts(metadata)] or [each.get("title") for each in _supporting(metadata)]
    titles = _names(metadata.get("gold_titles") or facts)
    return GoldPassages("title", titles, gold_texts(metadata)) if titles else None


def _names(listed: object) -> tuple[str, ...]:
    """The distinct names of a list, numbers as text; empty for anything else, since metadata may hold anything."""
    if not isinstance(listed, list):
        return ()
    return tuple(dict.fromkeys(str(each) for each in listed if isinstance(each, str | int) and str(each).strip()))


@dataclass(frozen=True)
class GoldPassages:
    """The passages a question's answer rests on, as named by its data set; for checks, never for a prompt."""

    by: Literal["id", "title"]
    names: tuple[str, ...]
    texts: tuple[tuple[str, str], ...] = ()
    """Title key and text of gold paragraphs: of such a title, only passages with most of such a text count."""

    def found_in(self, passages: Iterable[Passage]) -> frozenset[str]:
        """Keys of the gold passages among these, titles by `title_key`: several passages of one title are one."""
        return self.keys & {self.key(each) for each in passages}

    def has(self, passage: Passage) -> bool:
        """Whether this is one of them."""
        return self.key(passage) in self.keys

    def only_by_title(self, passage: Passage) -> bool:
        """Whether a passage has a gold title and the text of another paragraph."""
        key = title_key(passage.title)
        texts = [text for title, text in self.texts if title == key]
        return self.by == "title" and bool(texts) and not any(_mostly_same(passage.text, text) for text in texts)

    @cached_property
    def keys(self) -> frozenset[str]:
        """One key per gold passage."""
        return frozenset(self.names) if self.by == "id" else frozenset(map(title_key, self.names))

    def key(self, passage: Passage) -> str:
        """The key this passage would have as a gold passage; empty for another paragraph of a gold title."""
        if self.by == "id":
            return passage.id
        return "" if self.only_by_title(passage) else title_key(passage.title)


def _mostly_same(text: str, other: str) -> bool:
    """Whether half of the shorter of two texts is in the other: corpora cut articles in different places."""
    one, two = _pieces(text), _pieces(other)
    return one == two or 2 * len(one & two) > min(len(one), len(two))


def _pieces(text: str) -> frozenset[str]:
    """All runs of some letters, of the beginning of a long text."""
    letters = "".join(re.findall(r"\w", unicodedata.normalize("NFKC", text[:_COMPARED]).casefold()))
    return frozenset(letters[start : start + _PIECE] for start in range(max(1, len(letters) - _PIECE + 1)))


def gold_texts(metadata: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Title key and text of gold paragraphs whose title alone does not tell them from others: the supporting
    `paragraphs`, and those of a title that `context` has twice that have the sentence of a supporting fact."""
    found = [(each.get("title"), joined(each.get("paragraph_text"))) for each in _supporting(metadata)]
    near, facts = list(of_context(metadata.get("context"))), _facts(metadata)
    keys = [title_key(joined(title)) for title, _ in near]
    for key, (title, sentences) in zip(keys, near, strict=True):
        wanted = [number for fact, number in facts if title_key(joined(fact)) == key]
        if wanted and keys.count(key) > 1 and isinstance(sentences, list):
            fits = all(isinstance(each, int) and each < len(sentences) for each in wanted)
            found += [(title, joined(sentences))] if fits else []
    return tuple((title_key(joined(title)), text) for title, text in found if text)


def _facts(metadata: Mapping[str, Any]) -> list[tuple[object, object]]:
    """Titles and numbers of sentences: {"title": [..], "sent_id": [..]}, [[title, number], ..], or titles alone."""
    facts = metadata.get("supporting_facts")
    if isinstance(facts, dict):
        titles, numbers = facts.get("title"), facts.get("sent_id")
        if not isinstance(titles, list):
            return []
        numbers = numbers if isinstance(numbers, list) and len(numbers) == len(titles) else [None] * len(titles)
        return list(zip(titles, numbers, strict=True))
    found: list[tuple[object, object]] = []
    for each in facts if isinstance(facts, list) else ():
        match each:
            case [title, number, *_]:
                found.append((title, number))
            case {"title": title}:
                found.append((title, each.get("sent_id")))
            case str():
                found.append((each, None))
    return found


def _supporting(metadata: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The paragraphs marked as supporting, else those whose `idx` a step of `question_decomposition` names."""
    near = mappings(metadata.get("paragraphs"))
    if marked := [each for each in near if each.get("is_supporting") is True]:
        return marked
    named = [each.get("paragraph_support_idx") for each in mappings(metadata.get("question_decomposition"))]
    return [each for each in near if each.get("idx") is not None and each["idx"] in named]
