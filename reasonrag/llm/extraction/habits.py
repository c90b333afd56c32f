"""The habits of a good teacher: one fact at a time, from the names in the question to the names that were found, and an
answer once the facts are there. Often right, never sure: it counts words and knows nothing.
"""

from __future__ import annotations

import math
import random
import re
from bisect import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from reasonrag.llm.extraction.parsed_prompt import ParsedPrompt

_MOST_TITLE = 1000
"""Characters kept of a passage's title, which is repeated before each of its sentences."""
_MOST_OF_A_CHOICE = 600
"""Characters of a question in which `A or B?` is looked for, in cubic time: twice the longest of our data sets."""
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'(0-9])")
WORD = re.compile(r"\w+")
_NAME = re.compile(r"\b[A-Z][\w'\u2019.-]*(?:(?: (?:of|the|and|de|von|van|for|&))* [A-Z0-9][\w'\u2019.-]*)*")
_YEAR = re.compile(r"\b[12]\d{3}\b")
_DATE = re.compile(
    r"\b(?:\d{1,2} )?(?:January|February|March|April|May|June|July|August|September|October|November|December)"
    r"(?: \d{1,2},)? \d{4}\b|\b1\d{3}\b|\b20\d{2}\b"
)
_NUMBER = re.compile(r"\b\d[\d,.]*\d\b|\b\d\b")
_NOUN = re.compile(
    r"\b(?:is|was|are|were) (?:an?|the) ([a-z][\w -]{2,40}?)(?=[.,;(]| (?:who|that|which|from|in|by|of|with)\b)"
)
_SPANS = (
    (re.compile(r"\bwhen\b|\bwhat year\b|\bwhich year\b|\bdate\b|\byear\b", re.IGNORECASE), _DATE, 2.5, -1.5),
    (re.compile(r"\bhow (?:many|much|old|long|far|tall)\b|\bpopulation\b", re.IGNORECASE), _NUMBER, 2.0, -2.0),
    (re.compile(r"\b(?:occupation|profession|genre|kind|type|sport)\b", re.IGNORECASE), _NOUN, 2.5, -0.8),
)
"""What a question asks for, which spans are of that kind, and their log-odds where it asks for them and elsewhere."""
_VERDICT_QUESTION = re.compile(r"(?:is|are|was|were|do|does|did|has|have|had|can|could)\b", re.IGNORECASE)
_EITHER_OR = re.compile(r"(?:,|:|between|\bor both\b)?\s*([^,:?]+?),? or ([^,?]+)\?")
_SUPERLATIVE_LOW = re.compile(r"\b(?:first|earlier|earliest|older|oldest)\b", re.IGNORECASE)
_DESCRIBED = re.compile(r"\b(?:the|an?) (\w+) (?:\w+ )?(?:of|who|that|where|whose|(?:in|on|at|by|to|from) which)\b")
"""A thing that a question describes instead of naming it: `the author of`, `the town where`."""
_ASKED_FOR = re.compile(r"(?:Who|What|Which)\b[\w ]{0,12} (?:is|was|are|were) the (?:\w+ ){1,2}?of\b")
"""A description of what the question asks for: nothing more is asked about the thing described."""
_KIND = re.compile(r"\b(?:which|what|how many) (\w+)", re.IGNORECASE)
"""What an answer is called."""
STOP_WORDS = frozenset(
    "a an the of in on at to for from by with and or as is are was were be been being do does did has have had it "
    "its this that these those he she his her him they their them who whom whose which what when where why how many "
    "much both same also not no yes than then there here into about between first later".split()
)
_PREPOSITIONS = frozenset("after against among around before during over through under until within".split())
_UNREACHED = 9
_SURE, _DECIDED = 4.0, 0.5
"""Log-odds of an answer of the right kind from evidence about the right thing, and of yes, no or one of two where the
evidence tells which."""


@dataclass(frozen=True)
class Proposal:
    """A possible reply, with its log-odds at temperature 1."""

    text: str
    logit: float


def draw(options: Sequence[Proposal], temperature: float, dice: random.Random) -> Proposal:
    """Sample by softmax over logits / temperature; the best at temperature 0. Never an empty option."""
    options = [option for option in options if option.text.strip()] or [Proposal("unknown", 0.0)]
    best = max(options, key=lambda option: option.logit)
    if temperature == 0:
        return best
    weights = [math.exp((option.logit - best.logit) / temperature) for option in options]
    return dice.choices(options, weights)[0]


def _best_of_each(options: Iterable[Proposal]) -> list[Proposal]:
    """Each text once, with its highest logit, in order of appearance."""
    best: dict[str, Proposal] = {}
    for option in options:
        key = option.text.casefold()
        if option.text and (key not in best or best[key].logit < option.logit):
            best[key] = option
    return list(best.values())


# -- words -----------------------------------------------------------------------------------------------------


def sentences(text: str) -> list[str]:
    return _SENTENCE_END.split(text)


def names(text: str) -> list[str]:
    """Capitalised spans in order, without a capital that only begins the sentence as a common word."""
    found: dict[str, None] = {}
    for name in (_trim(match[0]) for match in _NAME.finditer(text)):
        if len(name) > 1 and name.casefold() not in STOP_WORDS:
            first, _, rest = name.partition(" ")
            found[rest if rest and first.casefold() in STOP_WORDS - {"the"} else name] = None
    return list(found)


def _trim(text: str) -> str:
    return text.strip(" .,;:'\"\u2019-")


def stems(text: str) -> frozenset[str]:
    """Words without stop words, cut to six letters: a stemmer good enough for overlap."""
    return frozenset(word[:6] for word in WORD.findall(text.casefold()) if word not in STOP_WORDS)


def share(part: frozenset[str], whole: frozenset[str]) -> float:
    return len(part & whole) / len(part) if part else 0.0


# -- questions ---------------------------------------------------------------------------------------------------


def wants_verdict(question: str) -> bool:
    """Whether yes or no is the answer."""
    return bool(_VERDICT_QUESTION.match(question))


@lru_cache(maxsize=64)
def two_of(question: str) -> tuple[str, ...]:
    """The two things of a choice, `A or B?`; empty if it is none. Kept, because one turn looks several times."""
    found = _EITHER_OR.search(question[:_MOST_OF_A_CHOICE])
    return tuple(_trim(each) for each in found.groups()) if found else ()


def _compares(question: str) -> bool:
    return wants_verdict(question) or bool(two_of(question))


def hops(question: str) -> int:
    """One for each thing that is described, and one for what is asked about the last of them."""
    if _compares(question):
        return 1
    return max(1, len(_DESCRIBED.findall(question)) + (not _ASKED_FOR.match(question)))


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
    named = names(prompt.question)
    if _compares(prompt.question):  # then `A and B` is two
        named = [each for name in named for each in re.split(r" and (?!the )", name)]
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


def _key(name: str) -> str:
    return name.casefold().removeprefix("the ")


def _missing(prompt: ParsedPrompt, chain: _Chain, distance: int) -> list[str]:
    """Up to two words of the question that no evidence has yet, those beside a name first. Of the things that are
    described, the `distance` ones beside the names are found."""
    question, read = prompt.question, stems(" ".join(prompt.evidence))
    starts = [question.find(name) for name in chain.named]
    marks = sorted(starts + [start + len(name) for start, name in zip(starts, chain.named, strict=True)])

    def from_a_name(position: int) -> int:
        after = bisect(marks, position)
        return min((abs(position - mark) for mark in marks[max(0, after - 1) : after + 1]), default=0)

    described = sorted(_DESCRIBED.finditer(question), key=lambda found: from_a_name(found.end()))
    skipped = STOP_WORDS | _PREPOSITIONS | {found[1] for found in described[:distance]}
    words = sorted(
        (from_a_name(word.start()), word[0])
        for word in WORD.finditer(question)
        if not word[0][0].isupper() and word[0] not in skipped
    )
    return [word for _, word in words if not stems(word) <= read][:2]


# -- queries ---------------------------------------------------------------------------------------------------


def queries(prompt: ParsedPrompt) -> list[Proposal]:
    """Possible next queries: unknown names, nearest to the answer first; less likely parts of them, or the question."""
    asked = {query.casefold() for query in prompt.said("query")}
    options = [Proposal(prompt.question.rstrip("?"), 0.3 - len(asked)), *_leads(prompt)]
    fresh = _best_of_each(option for option in options if option.text.casefold() not in asked)
    return fresh or [Proposal(prompt.question, -2.0)]


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
    """Sentences of the passages: about what was searched, with the next word of the question and a name or answer. One
    that does not name what it is about has the passage's title before it."""
    query = (prompt.said("query") or [prompt.question])[-1]
    chain, sought = _chain(prompt), query.casefold()
    reached = max((far for name, far in chain.distances.items() if name in sought), default=0)
    wanted, context = stems(query), stems(" ".join(_missing(prompt, chain, reached)[:1]))
    titled = [(rank, title[:_MOST_TITLE], text) for rank, (title, text) in enumerate(prompt.passages)]
    split = [(rank, title, each) for rank, title, text in titled for each in sentences(text)]
    options = []
    for rank, title, sentence in split:
        said, heading = stems(sentence), stems(title)
        logit = (
            4.0 * share(wanted, said | heading) + 2.5 * share(context, said | heading) + 2.5 * share(heading, wanted)
        )
        if two_of(prompt.question):
            logit += 2.0 * bool(_YEAR.search(sentence))
        elif reached + 1 < chain.hops:
            logit += 0.8 * any(not stems(name) <= wanted for name in names(sentence))
        else:
            fits = (fit for span, fit in _spans(sentence, prompt.question) if not stems(span) <= wanted)
            logit += max(fits, default=-1.0)
        quoted = sentence if title.casefold() in sentence.casefold() else f"{title}: {sentence}"
        options.append(Proposal(quoted, logit - 0.3 * rank))
    return options


# -- answers ---------------------------------------------------------------------------------------------------


def early_answers(prompt: ParsedPrompt) -> list[Proposal]:
    """An answer is likely once the facts are there, and rare before; after many searches it is a guess."""
    options, sure = answers(prompt), _DECIDED if _compares(prompt.question) else _SURE
    known = max(each.logit for each in options) > sure
    by = 3.0 if known else -3.0 + 0.9 * len(prompt.said("query"))
    return [Proposal(each.text, each.logit + by) for each in options]


def answers(prompt: ParsedPrompt) -> list[Proposal]:
    """Possible answers: yes or no, one of the compared things, or a span of the evidence."""
    question = prompt.question
    chain, asked = _chain(prompt), stems(question)
    if wants_verdict(question):
        return _verdicts(chain, asked)
    if choice := two_of(question):
        return _compared(prompt, choice)
    called = _KIND.search(question)
    kind = stems(called[1]) if called else frozenset()
    options = []
    for sentence, distance in chain.about:
        support = share(asked, stems(sentence)) + (2.0 if distance == chain.hops - 1 else -1.0)
        for span, fit in _spans(sentence, question):
            if not stems(span) <= asked:
                beside = 1.0 * bool(kind & _beside(span, sentence))
                subject = 2.0 * (chain.distance(span) <= distance < _UNREACHED)
                logit = support + fit + _kinship(span, sentence, asked) + beside - subject
                options.append(Proposal(span, logit))
    guesses = [Proposal(name, -1.0) for name in names(question)] or [Proposal("unknown", -1.0)]
    return _best_of_each(options) or guesses


def _verdicts(chain: _Chain, asked: frozenset[str]) -> list[Proposal]:
    """Yes if evidence about the two things in question names the same, else no; unsure with evidence about one."""
    shared = [
        {
            _key(name)
            for sentence, _ in chain.about
            if each in sentence
            for name in names(sentence)
            if name not in chain.named and _closeness(name, sentence, asked)
        }
        for each in chain.named[:2]
    ]
    if len(shared) < 2 or not all(shared):
        return [Proposal("yes", 0.0), Proposal("no", 0.0)]
    lean = 0.9 if shared[0] & shared[1] else -0.9
    return [Proposal("yes", lean), Proposal("no", -lean)]


def _compared(prompt: ParsedPrompt, options: Sequence[str]) -> list[Proposal]:
    """Which of two has the lower (or higher) year in the evidence; unsure without both."""
    first, second = (_year_beside(option.casefold(), prompt.evidence) for option in options)
    if first is None or second is None or first == second:
        return [Proposal(option, 0.0) for option in options]
    wanted = (first < second) != bool(_SUPERLATIVE_LOW.search(prompt.question))
    return [Proposal(option, 1.5 if i == wanted else -1.0) for i, option in enumerate(options)]


def _year_beside(name: str, evidence: Sequence[str]) -> int | None:
    """The first year in the latest evidence that mentions `name`."""
    found = (_YEAR.search(each, each.casefold().index(name)) for each in reversed(evidence) if name in each.casefold())
    return next((int(year[0]) for year in found if year), None)


def _spans(sentence: str, question: str) -> list[tuple[str, float]]:
    """Candidate answers in a sentence, with how well their kind fits the question: dates, numbers, nouns and names."""
    found, asked = list[tuple[str, float]](), False
    for wanted, kind, fitting, other in _SPANS:
        fits = bool(wanted.search(question))
        found += [(match[kind.groups], fitting if fits else other) for match in kind.finditer(sentence)]
        asked |= fits
    return found + [(name, -0.5 if asked else 0.8) for name in names(sentence)]


def _closeness(span: str, sentence: str, asked: frozenset[str]) -> float:
    """Up to 1 for a span whose neighbouring words are words of the question."""
    return min(1.0, 0.5 * len(stems("".join(_around(span, sentence))) & asked))


def _kinship(span: str, sentence: str, asked: frozenset[str]) -> float:
    """Up to 2 for a span among words of the question; most if one is right beside it."""
    return _closeness(span, sentence, asked) + bool(asked & _beside(span, sentence))


def _beside(span: str, sentence: str) -> frozenset[str]:
    """The words before and after a span; `in` is passed over."""
    before, after = (WORD.findall(each) for each in _around(span, sentence))
    return stems(" ".join([word for word in before if word != "in"][-1:] + after[:1]))


def _around(span: str, sentence: str) -> tuple[str, str]:
    """What is near a span in its sentence, before and behind it."""
    start = sentence.find(span)
    end = start + len(span)
    return sentence[max(0, start - 40) : start], sentence[end : end + 30]
