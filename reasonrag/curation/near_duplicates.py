"""Near-duplicate detection: when two questions are the same, word for word or paraphrased.

Decides by three rules, tried in order, on words alone (`Rule`). Questions are indexed as numbers, some hundreds of
bytes each, and others stream past them. Uses no embeddings: a rewritten or translated question is found only by its
answer and its names. Words are separated by white space and punctuation; in scripts without spaces only equal questions
are found.

Questions that differ in a name or year are different ("Who directed X?", "Who directed Y?"), so names, numbers and
negations must agree.
"""

from __future__ import annotations

import math
import re
import unicodedata
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import Stemmer

from preference.answer_scores import normalize_answer
from preference.candidates import question_key
from reasonrag.data.multiple_choice import without_options

Rule = Literal["question", "near_duplicate", "answer_and_entities"]
"""question: equal after SQuAD normalisation (`preference.candidates.question_key`).

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

# -- features of a question ------------------------------------------------------------------------------------

_WORD = re.compile(r"[^\W_]+")
_POSSESSIVE = re.compile(r"['\u2019\u2018`]s\b", re.IGNORECASE)
_APOSTROPHES = re.compile(r"['\u2019\u2018`]")
_ENDS_A_SENTENCE = re.compile(r"[.?!:]\s*$")
_LOOK_BACK = 8
"""Characters before a word that are searched for the end of a sentence."""
_ARTICLES = frozenset({"a", "an", "the"})
_PARTICLES = _ARTICLES | frozenset("and as at by for from in of on or to with".split())
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


class FeatureExtractor:
    """Extracts the features of questions; stems are cached."""

    def __init__(self) -> None:
        self._stemmer = Stemmer.Stemmer("english")

    def read(self, question: str, answers: Iterable[str]) -> QuestionFeatures:
        text = _APOSTROPHES.sub("", _POSSESSIVE.sub("", _without_accents(question)))
        spelled = [(match.group(), match.start()) for match in _WORD.finditer(text)]
        words = [word.casefold() for word, _ in spelled]
        bare = without_options(question)
        normalized = f" {normalize_answer(question)} "
        golden = {each for each in map(normalize_answer, answers) if each}
        return QuestionFeatures(
            key=question_key(question),
            in_order=(in_order := _in_order(words)),
            without_options=in_order if bare == question else self.read(bare, ()).in_order or in_order,
            stems=frozenset(self._stemmer.stemWords([each for each in words if each not in _COMMON])),
            all_stems=frozenset(self._stemmer.stemWords([each for each in words if each not in _ARTICLES])),
            names=frozenset(_names(text, spelled)) if any(map(str.islower, text)) else frozenset(),
            figures=frozenset(each for each in words if each in _NEGATIONS or any(map(str.isdigit, each))),
            asks=frozenset(_ASKING[each] for each in words if each in _ASKING),
            answers=frozenset(
                each for each in golden if each not in _SAYS_NOTHING and len(each) > 1 and f" {each} " not in normalized
            ),
            answer_words=frozenset(word for each in golden for word in each.split()),
        )


def _in_order(words: Sequence[str]) -> str:
    return " ".join("what" if each == "which" else each for each in words if each not in _ARTICLES)


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


# -- the index -------------------------------------------------------------------------------------------------


class QuestionIndex:
    """An index of questions, as numbers without texts, that finds duplicates of other questions."""

    def __init__(self) -> None:
        self._reader = FeatureExtractor()
        self._vocabulary: dict[str, int] = {}
        self._stems, self._all_stems, self._answers, self._answer_words = (_RaggedArray() for _ in range(4))
        self._names, self._figures, self._asks = array("q"), array("q"), array("q")
        self._by_key: dict[str, list[int]] = {}
        self._by_order: dict[int, list[int]] = {}
        self._by_answer: dict[int, list[int]] = {}
        self._by_rare_stem: dict[int, array[int]] | None = None
        self._frequency: list[int] = []

    def __len__(self) -> int:
        return len(self._names)

    def add(self, question: str, answers: Iterable[str]) -> None:
        """Add a question; its number is the length of the index before."""
        number, reading = len(self), self._reader.read(question, answers)
        self._by_rare_stem = None
        self._stems.append(self._vocabulary.setdefault(each, len(self._vocabulary)) for each in sorted(reading.stems))
        self._all_stems.append(map(hash, reading.all_stems))
        self._answers.append(map(hash, reading.answers))
        self._answer_words.append(map(hash, reading.answer_words))
        self._names.append(hash(reading.names))
        self._figures.append(hash(reading.figures))
        self._asks.append(hash(reading.asks))
        if not question.strip():
            return
        self._by_key.setdefault(reading.key, []).append(number)
        if reading.in_order:
            self._by_order.setdefault(hash(reading.in_order), []).append(number)
        if reading.without_options != reading.in_order:
            self._by_order.setdefault(_with_options(reading), []).append(number)
        for each in _entities_with_answers(reading):
            self._by_answer.setdefault(each, []).append(number)

    def same_as(self, question: str, answers: Iterable[str]) -> dict[int, tuple[Rule, float]]:
        """The numbers of all indexed questions that are the same, with the first rule that matches and the
        similarity."""
        if not question.strip():
            return {}
        reading = self._reader.read(question, answers)
        found: dict[int, tuple[Rule, float]] = dict.fromkeys(self._by_key.get(reading.key, ()), ("question", 1.0))
        for each in self._by_order.get(hash(reading.in_order), ()) if reading.in_order else ():
            if each not in found and not self._contradict(each, reading):
                found[each] = "near_duplicate", 1.0
        bare = (
            () if reading.without_options == reading.in_order else self._by_order.get(hash(reading.without_options), ())
        )
        for each in (*bare, *self._by_order.get(_with_options(reading), ())):
            if each not in found and not self._other_answers(each, reading):
                found[each] = "near_duplicate", 1.0
        stems = self._numbered(reading.stems)
        for each, similarity in self._alike(stems):
            if each not in found and self._nearly(each, reading, similarity):
                found[each] = "near_duplicate", similarity
        for key in _entities_with_answers(reading):
            for each in self._by_answer.get(key, ()):
                similarity = _jaccard(self._stems[each], stems)
                if each not in found and (len(reading.names) > 1 or similarity >= SINGLE_NAME_JACCARD):
                    found[each] = "answer_and_entities", similarity
        return found

    def _contradict(self, number: int, reading: QuestionFeatures) -> bool:
        """Whether both have golden answers without a common word."""
        theirs = self._answer_words[number]
        return bool(theirs and reading.answer_words) and theirs.isdisjoint(map(hash, reading.answer_words))

    def _other_answers(self, number: int, reading: QuestionFeatures) -> bool:
        """Whether both have golden answers, and neither's words contain the other's."""
        theirs, ours = self._answer_words[number], frozenset(map(hash, reading.answer_words))
        return bool(theirs and ours) and not (theirs <= ours or ours <= theirs)

    def _nearly(self, number: int, reading: QuestionFeatures, similarity: float) -> bool:
        names = self._names[number]
        if self._figures[number] != hash(reading.figures):
            return False
        if reading.names and names != _NO_WORDS and names != hash(reading.names):
            return False
        if not self._answers[number].isdisjoint(map(hash, reading.answers)):
            return similarity >= SAME_ANSWER_JACCARD
        if self._asks[number] != hash(reading.asks) or self._contradict(number, reading):
            return False
        return _jaccard(self._all_stems[number], frozenset(map(hash, reading.all_stems))) >= ALL_WORDS_JACCARD

    def _alike(self, stems: frozenset[int]) -> Iterator[tuple[int, float]]:
        """Questions whose stems have a Jaccard index of SAME_ANSWER_JACCARD or more.

        Exact, without comparing all pairs: with stems ordered from rare to frequent, two sets that share this much
        share one of the first few of each (prefix filtering: Chaudhuri, Ganti, Kaushik, ICDE 2006).
        """
        starting = self._rare_stems()
        known = sorted((self._frequency[stem], stem) for stem in stems if stem >= 0)
        unknown = len(stems) - len(known)  # rarer than all known ones
        few = max(0, _first_few(len(stems)) - unknown)
        for number in {each for _, stem in known[:few] for each in starting.get(stem, ())}:
            if SAME_ANSWER_JACCARD * len(stems) <= self._stems.length(number) <= len(stems) / SAME_ANSWER_JACCARD:
                similarity = _jaccard(self._stems[number], stems)
                if similarity >= SAME_ANSWER_JACCARD:
                    yield number, similarity

    def _numbered(self, stems: Iterable[str]) -> frozenset[int]:
        """Stems as numbers; stems that are not in the index get distinct negative numbers."""
        return frozenset(self._vocabulary.get(each, -1 - place) for place, each in enumerate(stems))

    def _rare_stems(self) -> dict[int, array[int]]:
        if self._by_rare_stem is None:
            counts = Counter(self._stems.flat)
            self._frequency = [counts[stem] for stem in range(len(self._vocabulary))]
            self._by_rare_stem = {}
            for number in range(len(self)):
                ordered = sorted((self._frequency[stem], stem) for stem in self._stems[number])
                for _, stem in ordered[: _first_few(len(ordered))]:
                    self._by_rare_stem.setdefault(stem, array("i")).append(number)
        return self._by_rare_stem


_NO_WORDS = hash(frozenset())


def _jaccard(one: frozenset[int], other: frozenset[int]) -> float:
    common = len(one & other)
    return common / ((len(one) + len(other) - common) or 1)


def _first_few(size: int) -> int:
    return size - math.ceil(SAME_ANSWER_JACCARD * size) + 1 if size else 0


def _with_options(reading: QuestionFeatures) -> int:
    """Lookup key of multiple choice questions by what they ask."""
    return hash(("options", reading.without_options))


def _entities_with_answers(reading: QuestionFeatures) -> Iterator[int]:
    """Lookup keys of rule answer_and_entities: names and numbers with each answer."""
    if reading.names:
        for each in reading.answers:
            yield hash((reading.names, reading.figures, each))


class _RaggedArray:
    """Many short lists of numbers in one flat array."""

    def __init__(self) -> None:
        self.flat = array("q")
        self._ends = array("q", [0])

    def append(self, numbers: Iterable[int]) -> None:
        self.flat.extend(numbers)
        self._ends.append(len(self.flat))

    def length(self, number: int) -> int:
        return self._ends[number + 1] - self._ends[number]

    def __getitem__(self, number: int) -> frozenset[int]:
        return frozenset(self.flat[self._ends[number] : self._ends[number + 1]])
