"""The habits of a good teacher: one fact at a time, from the names in the question to the names that were found, and an
answer once the facts are there. Often right, never sure: it counts words and knows nothing.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from reasonrag.llm.extraction.parsed_prompt import ParsedPrompt
from reasonrag.llm.extraction.words import (
    STOP_WORDS,
    WORD,
    Proposal,
    best_of_each,
    names,
    raised,
    sentences,
    share,
    stems,
    trim,
)

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
_DESCRIBED = re.compile(r"\b(?:the|an?) (\w+) (?:\w+ )?(?:of|who|that|where|whose|(?:in|on|at|by|to|from) which)\b")
"""A thing that a question describes instead of naming it: `the author of`, `the town where`."""
_ASKED_FOR = re.compile(r"(?:Who|What|Which)\b[\w ]{0,12} (?:is|was|are|were) the (?:\w+ ){1,2}?of\b")
"""A description of what the question asks for: nothing more is asked about the thing described."""
_KIND = re.compile(r"\b(?:which|what|how many) (\w+)", re.IGNORECASE)
"""What an answer is called."""
_BOTH = re.compile(r" and (?!the )")
_YEAR = re.compile(r"\b[12]\d{3}\b")
_PREPOSITIONS = frozenset("after against among around before during over through under until within".split())
_UNREACHED = 9
_SURE = 4.0
"""Log-odds of an answer of the right kind, from evidence about the right thing."""
_DECIDED = 0.5
"""Log-odds of yes, no or one of two where the evidence tells which."""


@dataclass(frozen=True)
class _Chain:
    """How far the evidence leads from the names in the question.

    named: the names in the question. distances: of names: 0 in the question, 1 where found in evidence about those, and
    so on. found: the other names, with the sentence that they were first found in. about: each sentence of the evidence
    with the distance of the name that it is about, `_UNREACHED` if that is unknown. hops: facts to be found in turn.
    """

    named: list[str]
    distances: Mapping[str, int]
    found: Mapping[str, str]
    about: list[tuple[str, int]]
    hops: int

    def distance(self, name: str) -> int:
        return self.distances.get(_key(name), _UNREACHED)


def _chain(prompt: ParsedPrompt) -> _Chain:
    named = _asked_about(prompt.question)
    distances = {_key(name): 0 for name in named}
    found: dict[str, str] = {}
    about = []
    for sentence in (each for evidence in prompt.evidence for each in sentences(evidence)):
        inside = names(sentence)
        nearest = next((distances[_key(name)] for name in inside if _key(name) in distances), _UNREACHED)
        about.append((sentence, nearest))
        for name in inside:
            if distances.get(_key(name)) != 0:
                found.setdefault(name, sentence)
            if nearest < _UNREACHED:
                distances.setdefault(_key(name), nearest + 1)
    return _Chain(named, distances, found, about, hops(prompt.question))


def hops(question: str) -> int:
    """One for each thing that is described, and one for what is asked about the last of them."""
    if _compares(question):
        return 1
    described = len(_DESCRIBED.findall(question))
    return max(1, described + (not _ASKED_FOR.match(question)))


def _compares(question: str) -> bool:
    return wants_verdict(question) or bool(two_of(question))


def _asked_about(question: str) -> list[str]:
    """Names in the question; `A and B` is two where things are compared."""
    found = names(question)
    return [each for name in found for each in _BOTH.split(name)] if _compares(question) else found


def _key(name: str) -> str:
    return name.casefold().removeprefix("the ")


def _missing(prompt: ParsedPrompt, chain: _Chain, distance: int) -> list[str]:
    """Up to two words of the question that no evidence has yet, those beside a name first. Of the things that are
    described, the `distance` ones beside the names are found."""
    question, read = prompt.question, stems(" ".join(prompt.evidence))
    starts = [question.find(name) for name in chain.named]
    marks = sorted(starts + [start + len(name) for start, name in zip(starts, chain.named, strict=True)])
    described = sorted(_DESCRIBED.finditer(question), key=lambda found: _nearest(found.end(), marks))
    skipped = STOP_WORDS | _PREPOSITIONS | {found[1] for found in described[:distance]}
    words = sorted(
        (_nearest(word.start(), marks), word[0])
        for word in WORD.finditer(question)
        if not word[0][0].isupper() and word[0] not in skipped
    )
    return [word for _, word in words if not stems(word) <= read][:2]


def _nearest(position: int, marks: list[int]) -> int:
    """Distance to the nearest of the sorted marks."""
    after = bisect(marks, position)
    return min((abs(position - mark) for mark in marks[max(0, after - 1) : after + 1]), default=0)


# -- queries ---------------------------------------------------------------------------------------------------


def queries(prompt: ParsedPrompt) -> list[Proposal]:
    """Possible next queries: unknown names, nearest to the answer first; less likely parts of them, or the question."""
    asked = {query.casefold() for query in prompt.said("query")}
    options = [Proposal(prompt.question.rstrip("?"), 0.3 - len(asked)), *_leads(prompt)]
    return best_of_each(option for option in options if option.text.casefold() not in asked) or [
        Proposal(prompt.question, -2.0)
    ]


def _leads(prompt: ParsedPrompt) -> Iterator[Proposal]:
    chain, asked = _chain(prompt), stems(prompt.question)
    known = {_key(name) for sentence, _ in chain.about for name in names(sentence)[:1]}
    missing: dict[int, list[str]] = {}
    for name in dict.fromkeys([*chain.named, *chain.found]):
        distance = chain.distance(name)
        if _key(name) in known or distance > chain.hops or (distance and _compares(prompt.question)):
            logit = -1.5
        else:
            logit = 2.5 + min(distance, 2) if distance < chain.hops else -0.5
            logit += _kinship(name, chain.found[name], asked) if name in chain.found else 0.0
        yield Proposal(name, logit)
        if distance not in missing:
            missing[distance] = _missing(prompt, chain, distance)
        for rank, word in enumerate(missing[distance]):
            yield Proposal(f"{name} {word}", logit - 0.4 - rank)
        if " " in name:
            yield Proposal(name.split()[-1], logit - 1.5)


# -- evidence --------------------------------------------------------------------------------------------------


def quotes(prompt: ParsedPrompt) -> list[Proposal]:
    """Sentences of the passages: about what was searched, with the next word of the question and a name or answer."""
    query = (prompt.said("query") or [prompt.question])[-1]
    chain, sought = _chain(prompt), query.casefold()
    reached = max((far for name, far in chain.distances.items() if name in sought), default=0)
    wanted, context = stems(query), stems(" ".join(_missing(prompt, chain, reached)[:1]))
    options = []
    for rank, title, sentence in passage_sentences(prompt):
        said, heading = stems(sentence), stems(title)
        logit = (
            4.0 * share(wanted, said | heading) + 2.5 * share(context, said | heading) + 2.5 * share(heading, wanted)
        )
        if two_of(prompt.question):
            logit += 2.0 * bool(_YEAR.search(sentence))
        elif reached + 1 < chain.hops:
            logit += 0.8 * any(not stems(name) <= wanted for name in names(sentence))
        else:
            fits = (fit for span, fit in spans(sentence, prompt.question) if not stems(span) <= wanted)
            logit += max(fits, default=-1.0)
        options.append(Proposal(with_title(sentence, title), logit - 0.3 * rank))
    return options


# -- answers ---------------------------------------------------------------------------------------------------


def early_answers(prompt: ParsedPrompt) -> list[Proposal]:
    """An answer is likely once the facts are there, and rare before; after many searches it is a guess."""
    options, sure = answers(prompt), _DECIDED if _compares(prompt.question) else _SURE
    known = max(each.logit for each in options) > sure
    return raised(options, 3.0 if known else -3.0 + 0.9 * len(prompt.said("query")))


def answers(prompt: ParsedPrompt) -> list[Proposal]:
    """Possible answers: yes or no, one of the compared things, or a span of the evidence."""
    question = prompt.question
    chain, asked = _chain(prompt), stems(question)
    if wants_verdict(question):
        return _verdicts(chain, asked)
    if choice := two_of(question):
        return compared(prompt, choice)
    called = _KIND.search(question)
    kind = stems(called[1]) if called else frozenset()
    options = []
    for sentence, distance in chain.about:
        support = share(asked, stems(sentence)) + (2.0 if distance == chain.hops - 1 else -1.0)
        for span, fit in spans(sentence, question):
            if not stems(span) <= asked:
                beside = 1.0 * bool(kind & _beside(span, sentence))
                subject = 2.0 * (chain.distance(span) <= distance < _UNREACHED)
                logit = support + fit + _kinship(span, sentence, asked) + beside - subject
                options.append(Proposal(span, logit))
    guesses = [Proposal(name, -1.0) for name in names(question)] or [Proposal("unknown", -1.0)]
    return best_of_each(options) or guesses


def _verdicts(chain: _Chain, asked: frozenset[str]) -> list[Proposal]:
    """Yes if evidence about the two things in question names the same, else no; unsure with evidence about one."""
    shared = [
        {
            _key(name)
            for sentence, _ in chain.about
            if each in sentence
            for name in names(sentence)
            if name not in chain.named and closeness(name, sentence, asked)
        }
        for each in chain.named[:2]
    ]
    if len(shared) < 2 or not all(shared):
        return [Proposal("yes", 0.0), Proposal("no", 0.0)]
    lean = 0.9 if shared[0] & shared[1] else -0.9
    return [Proposal("yes", lean), Proposal("no", -lean)]


def _kinship(span: str, sentence: str, asked: frozenset[str]) -> float:
    """Up to 2 for a span among words of the question; most if one is right beside it."""
    return closeness(span, sentence, asked) + bool(asked & _beside(span, sentence))


def _beside(span: str, sentence: str) -> frozenset[str]:
    """The words before and after a span; `in` is passed over."""
    start = sentence.find(span)
    end = start + len(span)
    before = [word for word in WORD.findall(sentence[max(0, start - 40) : start]) if word != "in"]
    return stems(" ".join(before[-1:] + WORD.findall(sentence[end : end + 30])[:1]))


# -- what could be the answer: names, dates, numbers and nouns of the evidence, or one of two compared things -------


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
