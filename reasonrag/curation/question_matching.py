"""Near-duplicate detection: when two questions are the same, word for word or paraphrased.

Decides by three rules, tried in order, on words alone (`Rule`). Questions are indexed by their words, and others
stream past them. Uses no embeddings: a rewritten or translated question is found only by its
answer and its names. Words are separated by white space and punctuation; in scripts without spaces only equal questions
are found.

Questions that differ in a name or year are different ("Who directed X?", "Who directed Y?"), so names, numbers and
negations must agree.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from sys import intern
from typing import Literal, TypeAlias

import Stemmer

from preference.answer_scores import ARTICLES, normalize_answer
from preference.candidate_records import question_key
from preference.similarity import jaccard
from reasonrag.data.multiple_choice import without_options

Rule = Literal["question", "near_duplicate", "answer_and_entities"]
"""question: equal after SQuAD normalisation (`preference.candidate_records.question_key`).

near_duplicate: the same words in the same order, ignoring case, accents, punctuation and articles; of multiple choice
also with other options or none, where the words of one's golden answers contain the other's or one has none. Or names,
numbers and negations agree and the Jaccard index of the stems is high enough: SAME_ANSWER_JACCARD over content words
where a golden answer is shared; ALL_WORDS_JACCARD over all words, with the same question words, where the answers are
not informative. Never where both have golden answers without a word in common.

answer_and_entities: the same names and numbers, at least one name, and the same golden answer; with a single name the
content words must also share SINGLE_NAME_JACCARD. Other words are ignored.

An answer is informative if it is not yes, no or a single character, and neither question contains it."""
RULES: tuple[Rule, ...] = ("question", "near_duplicate", "answer_and_entities")

SAME_ANSWER_JACCARD = 0.75
ALL_WORDS_JACCARD = 0.9
SINGLE_NAME_JACCARD = 0.25
"""Thresholds, chosen by inspecting what they flag in real data sets (benchmarks/RESULTS.md)."""

_WORD = re.compile(r"[^\W_]+")
_POSSESSIVE = re.compile(r"['\u2019\u2018`]s\b", re.IGNORECASE)
_APOSTROPHES = re.compile(r"['\u2019\u2018`]")
_ENDS_A_SENTENCE = re.compile(r"[.?!:]\s*$")
_LOOK_BACK = 8
"""Characters before a word that are searched for the end of a sentence."""
_PARTICLES = ARTICLES | frozenset("and as at by for from in of on or to with".split())
"""Words that titles spell with and without a capital, so their case is uninformative."""
_ASKING = {"who": "who", "whom": "who", "whose": "whose", "where": "where", "when": "when", "why": "why", "how": "how"}
"""Question words that determine the kind of answer; `what` and `which` do not."""
_COMMON = _PARTICLES | frozenset(
    "am are be been being did do does had has have he how i is it its s she that there these they this those was we "
    "were what when where which who whom whose why you".split()
)
"""Words that any question may contain; not content words."""
_OPENING = _COMMON | frozenset(
    "about according after against all although among another around because before besides between both but can could "
    "despite during each either excluding find following give given if including into list many may might more most "
    "must name neither no not off one only other out over per regarding shall should since so some than then though "
    "through throughout till toward two under unless until up upon via what whats when whether which while whos will "
    "within without would yet".split()
)
"""Words that are capitalised only because they start a sentence."""
_NEGATIONS = frozenset("no not nor never none neither without".split())
_STEMMER = Stemmer.Stemmer("english")
_SAYS_NOTHING = frozenset({"", "yes", "no", "noanswer", "true", "false"})


@dataclass(frozen=True, slots=True)
class QuestionFeatures:
    """The features of a question that are compared.

    in_order: all words but articles, joined. without_options: the same, of a multiple choice without its options.
    stems, all_stems: of content words, and of all words but articles. names: words capitalised for another reason than
    their position, lower-cased; empty if case is uninformative. figures: words with a digit, and negations. answers:
    informative golden answers, normalised. answer_words: words of all golden answers.
    """

    key: str
    in_order: str
    without_options: str
    stems: frozenset[str]
    all_stems: frozenset[str]
    names: frozenset[str]
    figures: frozenset[str]
    asks: frozenset[str]
    answers: frozenset[str]
    answer_words: frozenset[str]


def read_features(question: str, answers: Iterable[str]) -> QuestionFeatures:
    text = _APOSTROPHES.sub("", _POSSESSIVE.sub("", _without_accents(question)))
    spelled = [(match.group(), match.start()) for match in _WORD.finditer(text)]
    words = [intern(word.casefold()) for word, _ in spelled]
    in_order = " ".join("what" if each == "which" else each for each in words if each not in ARTICLES)
    bare = without_options(question)
    normalized = f" {normalize_answer(question)} "
    golden = {each for each in map(normalize_answer, answers) if each}
    return QuestionFeatures(
        key=question_key(question),
        in_order=in_order,
        without_options=in_order if bare == question else read_features(bare, ()).in_order or in_order,
        stems=_stems(each for each in words if each not in _COMMON),
        all_stems=_stems(each for each in words if each not in ARTICLES),
        names=frozenset(_names(text, spelled)) if any(map(str.islower, text)) else frozenset(),
        figures=frozenset(each for each in words if each in _NEGATIONS or any(map(str.isdigit, each))),
        asks=frozenset(_ASKING[each] for each in words if each in _ASKING),
        answers=frozenset(
            each for each in golden if each not in _SAYS_NOTHING and len(each) > 1 and f" {each} " not in normalized
        ),
        answer_words=frozenset(word for each in golden for word in each.split()),
    )


def _stems(words: Iterable[str]) -> frozenset[str]:
    return frozenset(map(intern, _STEMMER.stemWords(list(words))))


def _without_accents(text: str) -> str:
    """Text in NFC with the accents of Latin, Greek and Cyrillic letters removed."""
    if text.isascii():
        return text
    parts = unicodedata.normalize("NFKD", text)
    return unicodedata.normalize("NFC", "".join(each for each in parts if not "\u0300" <= each <= "\u036f"))


def _names(text: str, spelled: Sequence[tuple[str, int]]) -> Iterator[str]:
    """Capitalised words, without particles and without common words at the start of a sentence."""
    for number, (word, start) in enumerate(spelled):
        lower = word.casefold()
        if not any(map(str.isupper, word)) or lower in _PARTICLES:
            continue
        begins = number == 0 or _ENDS_A_SENTENCE.search(text[max(0, start - _LOOK_BACK) : start])
        if not (begins and lower in _OPENING):
            yield lower


class QuestionIndex:
    """An index of questions that finds duplicates of other questions."""

    def __init__(self) -> None:
        self._held: list[QuestionFeatures] = []
        self._by_key, self._by_order, self._by_options = (defaultdict[str, list[int]](list) for _ in range(3))
        self._by_answer: defaultdict[_Fact, list[int]] = defaultdict(list)
        self._by_rare_stem: dict[str, list[int]] | None = None
        self._frequency: Counter[str] = Counter()

    def add(self, question: str, answers: Iterable[str]) -> None:
        """Add a question; its number is the length of the index before."""
        number, reading = len(self._held), read_features(question, answers)
        self._by_rare_stem = None
        self._held.append(reading)
        if not question.strip():
            return
        self._by_key[reading.key].append(number)
        if reading.in_order:
            self._by_order[reading.in_order].append(number)
        if reading.without_options != reading.in_order:
            self._by_options[reading.without_options].append(number)
        for each in _facts(reading):
            self._by_answer[each].append(number)

    def same_as(self, question: str, answers: Iterable[str]) -> dict[int, tuple[Rule, float]]:
        """The numbers of the indexed questions that are the same, with the first rule that says so and a similarity."""
        if not question.strip():
            return {}
        reading = read_features(question, answers)
        found: dict[int, tuple[Rule, float]] = dict.fromkeys(self._by_key.get(reading.key, ()), ("question", 1.0))
        for each in self._by_order.get(reading.in_order, ()):
            if each not in found and not _contradict(self._held[each], reading):
                found[each] = "near_duplicate", 1.0
        bare = self._by_order if reading.without_options != reading.in_order else {}
        for each in (*bare.get(reading.without_options, ()), *self._by_options.get(reading.without_options, ())):
            if each not in found and not _other_answers(self._held[each], reading):
                found[each] = "near_duplicate", 1.0
        for each, similarity in self._alike(reading.stems):
            if each not in found and _nearly(self._held[each], reading, similarity):
                found[each] = "near_duplicate", similarity
        for fact in _facts(reading):
            for each in self._by_answer.get(fact, ()):
                similarity = jaccard(self._held[each].stems, reading.stems)
                if each not in found and (len(reading.names) > 1 or similarity >= SINGLE_NAME_JACCARD):
                    found[each] = "answer_and_entities", similarity
        return found

    def _alike(self, stems: frozenset[str]) -> Iterator[tuple[int, float]]:
        """Questions whose stems have a Jaccard index of SAME_ANSWER_JACCARD or more.

        Exact, without comparing all pairs: with stems ordered from rare to frequent, two sets that share this much
        share one of the first few of each (prefix filtering: Chaudhuri, Ganti, Kaushik, ICDE 2006).
        """
        if self._by_rare_stem is None:
            self._frequency = Counter(stem for each in self._held for stem in each.stems)
            starting = defaultdict[str, list[int]](list)
            for number, each in enumerate(self._held):
                for stem in self._rarest(each.stems):
                    starting[stem].append(number)
            self._by_rare_stem = dict(starting)
        for number in {each for stem in self._rarest(stems) for each in self._by_rare_stem.get(stem, ())}:
            similarity = jaccard(self._held[number].stems, stems)
            if similarity >= SAME_ANSWER_JACCARD:
                yield number, similarity

    def _rarest(self, stems: frozenset[str]) -> list[str]:
        """So many that two sets which are alike share one of them."""
        few = len(stems) - math.ceil(SAME_ANSWER_JACCARD * len(stems)) + 1
        return sorted(stems, key=lambda stem: (self._frequency[stem], stem))[:few]


_Fact: TypeAlias = tuple[frozenset[str], frozenset[str], str]
"""Names and numbers, with an answer: what rule answer_and_entities compares."""


def _facts(reading: QuestionFeatures) -> list[_Fact]:
    return [(reading.names, reading.figures, each) for each in reading.answers] if reading.names else []


def _contradict(one: QuestionFeatures, other: QuestionFeatures) -> bool:
    """Whether both have golden answers without a common word."""
    return bool(one.answer_words and other.answer_words) and one.answer_words.isdisjoint(other.answer_words)


def _other_answers(one: QuestionFeatures, other: QuestionFeatures) -> bool:
    """Whether both have golden answers, and neither's words contain the other's."""
    ours, theirs = one.answer_words, other.answer_words
    return bool(ours and theirs) and not (theirs <= ours or ours <= theirs)


def _nearly(one: QuestionFeatures, other: QuestionFeatures, similarity: float) -> bool:
    if one.figures != other.figures or (one.names and other.names and one.names != other.names):
        return False
    if not one.answers.isdisjoint(other.answers):
        return similarity >= SAME_ANSWER_JACCARD
    if one.asks != other.asks or _contradict(one, other):
        return False
    return jaccard(one.all_stems, other.all_stems) >= ALL_WORDS_JACCARD
