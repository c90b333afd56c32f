"""What could be the answer: names, dates, numbers and nouns of the evidence, or one of two compared things."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from reasonrag.llm.extraction.parsed_prompt import ParsedPrompt
from reasonrag.llm.extraction.words import Proposal, names, sentences, stems, trim

_MOST_TITLE = 1000
"""Characters kept of a passage's title, which is repeated before each of its sentences."""
_MOST_OF_A_CHOICE = 600
"""Characters of a question in which `A or B?` is looked for, in cubic time: twice the longest of our data sets."""
_DATE = re.compile(
    r"\b(?:\d{1,2} )?(?:January|February|March|April|May|June|July|August|September|October|November|December)"
    r"(?: \d{1,2},)? \d{4}\b|\b1\d{3}\b|\b20\d{2}\b"
)
_NUMBER = re.compile(r"\b\d[\d,.]*\d\b|\b\d\b")
_NOUN = re.compile(
    r"\b(?:is|was|are|were) (?:an?|the) ([a-z][\w -]{2,40}?)(?=[.,;(]| (?:who|that|which|from|in|by|of|with)\b)"
)
_VERDICT_QUESTION = re.compile(r"(?:is|are|was|were|do|does|did|has|have|had|can|could)\b", re.IGNORECASE)
_EITHER_OR = re.compile(r"(?:,|:|between|\bor both\b)?\s*([^,:?]+?),? or ([^,?]+)\?")
_SUPERLATIVE_LOW = re.compile(r"\b(?:first|earlier|earliest|older|oldest)\b", re.IGNORECASE)


def passage_sentences(prompt: ParsedPrompt) -> Iterator[tuple[int, str, str]]:
    """Rank and title of a passage, and a sentence of it."""
    for rank, (title, text) in enumerate(prompt.passages):
        for sentence in sentences(text):
            yield rank, title[:_MOST_TITLE], sentence


def with_title(sentence: str, title: str) -> str:
    """The sentence as evidence, which names what it is about."""
    return sentence if title.casefold() in sentence.casefold() else f"{title}: {sentence}"


def wants_verdict(question: str) -> bool:
    """Whether yes or no is the answer."""
    return bool(_VERDICT_QUESTION.match(question))


@lru_cache(maxsize=64)
def two_of(question: str) -> tuple[str, ...]:
    """The two things of a choice, `A or B?`; empty if it is none. Kept, because one turn looks several times."""
    found = _EITHER_OR.search(question[:_MOST_OF_A_CHOICE])
    return tuple(trim(each) for each in found.groups()) if found else ()


def compared(prompt: ParsedPrompt, options: Sequence[str]) -> list[Proposal]:
    """Which of two has the lower (or higher) year in the evidence; unsure without both."""
    years = [_year_beside(option, prompt.evidence) for option in options]
    if years[0] is None or years[1] is None or years[0] == years[1]:
        return [Proposal(option, 0.0) for option in options]
    lower_first = years[0] < years[1]
    wanted = 0 if lower_first == bool(_SUPERLATIVE_LOW.search(prompt.question)) else 1
    return [Proposal(option, 1.5 if i == wanted else -1.0) for i, option in enumerate(options)]


def _year_beside(name: str, evidence: Sequence[str]) -> int | None:
    """The first year in the latest evidence that mentions `name`."""
    for text in reversed(evidence):
        if name.casefold() in text.casefold():
            year = re.search(r"\b[12]\d{3}\b", text[text.casefold().index(name.casefold()) :])
            if year:
                return int(year[0])
    return None


def spans(sentence: str, question: str) -> list[tuple[str, float]]:
    """Candidate answers in a sentence, with how well their kind fits the question."""
    lowered = question.casefold()
    wants_date = bool(re.search(r"\bwhen\b|\bwhat year\b|\bwhich year\b|\bdate\b|\byear\b", lowered))
    wants_number = bool(re.search(r"\bhow (?:many|much|old|long|far|tall)\b|\bpopulation\b", lowered))
    wants_thing = bool(re.search(r"\boccupation\b|\bprofession\b|\bgenre\b|\bkind\b|\btype\b|\bsport\b", lowered))
    found = [(match[0], 2.5 if wants_date else -1.5) for match in _DATE.finditer(sentence)]
    found += [(match[0], 2.0 if wants_number else -2.0) for match in _NUMBER.finditer(sentence)]
    found += [(match[1], 2.5 if wants_thing else -0.8) for match in _NOUN.finditer(sentence)]
    name_fit = -0.5 if wants_date or wants_number or wants_thing else 0.8
    return found + [(name, name_fit) for name in names(sentence)]


def closeness(span: str, sentence: str, asked: frozenset[str]) -> float:
    """Up to 1 for a span whose neighbouring words are words of the question."""
    start = sentence.find(span)
    around = sentence[max(0, start - 40) : start] + sentence[start + len(span) : start + len(span) + 30]
    return min(1.0, 0.5 * len(stems(around) & asked))
