"""Which questions of a data set stand in an evaluation split, word for word or in other words.

Decides when two questions are the same: three rules, tried in order, on words alone (`Rule`). The questions of the data
set are held as numbers, some hundreds of bytes each; evaluation splits stream past them, so that neither their number
nor their order matters. Knows no embedding: a question that was rewritten from scratch, or translated, is not found,
unless its answer and the names in it are the same. Words are what white space and punctuation part; of scripts that
write without spaces only equal questions are found.

Two questions that ask for the same with a different name or year are two questions ("Who directed X?", "Who directed
Y?"), so names, numbers and negations must agree; and where both have golden answers that have nothing in common, only
the same words in the same order are called the same.
"""

from __future__ import annotations

import math
import re
import unicodedata
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import orjson
from pydantic import BaseModel

from preference.candidates import Origin, QuestionRecord, question_key, read_lines
from preference.exporting import QUESTIONS, replacing
from preference.scoring import normalize_answer
from reasonrag.errors import InputError, choices
from reasonrag.evaluation_splits import EvalSplit, EvalSplits, Unchecked, is_training_split

if TYPE_CHECKING:
    import Stemmer

CONTAMINATION = "contamination.jsonl"
ALL = "all"
"""What `--allow-eval` takes in place of a name for every split."""

Rule = Literal["question", "near_duplicate", "answer_and_entities"]
"""question: equal after SQuAD normalisation (`preference.candidates.question_key`), as the published duplicates are.

near_duplicate: the same words in the same order, whatever their case, accents and punctuation, articles apart; or names,
numbers and negations agree, and of the other words (stems; words that any question has do not count) so large a share
is common (Jaccard index): AGREEING where a golden answer is the same that neither question names, ALIKE, and the
same question words, where the answers tell nothing. Answers without a word in common: not the same.

answer_and_entities: the same names and numbers, some of them names, and a golden answer that is the same, that neither
question names, and that is neither yes, no, nor a single character. The rest of the words is free."""
RULES: tuple[Rule, ...] = ("question", "near_duplicate", "answer_and_entities")

AGREEING = 0.75
ALIKE = 0.9
LONE_NAME = 0.25
"""Thresholds, chosen by looking at what they flag in real data sets (benchmarks/RESULTS.md)."""


class Match(BaseModel):
    """The evaluation question of one split that is most like a question of the data set."""

    rule: Rule
    eval: str
    """Of the split: dataset/split."""
    eval_id: str
    similarity: float
    """1 by `question`; else the Jaccard index of the words' stems, in [0, 1]."""
    own_split: bool = False
    """Whether the question was drawn from this very split."""


class Flagged(BaseModel):
    """A question of the data set with its matches, one for each split at most: a line of contamination.jsonl."""

    question_id: str
    dataset: str
    split: str
    question_key: str
    dropped: bool = False
    """Whether its candidates are left out: a split that is not its own has it and was not allowed."""
    matches: list[Match]


# -- what of a question is compared ----------------------------------------------------------------------------

_WORD = re.compile(r"[^\W_]+")
_POSSESSIVE = re.compile(r"['\u2019\u2018`]s\b", re.IGNORECASE)
_APOSTROPHES = re.compile(r"['\u2019\u2018`]")
_ENDS_A_SENTENCE = re.compile(r"[.?!:]\s*$")
_LOOK_BACK = 8
"""Characters before a word that tell whether it begins a sentence."""
_ARTICLES = frozenset({"a", "an", "the"})
_PARTICLES = _ARTICLES | frozenset("and as at by for from in of on or to with".split())
"""Words that titles spell with and without a capital, so that it tells nothing."""
_ASKING = {"who": "who", "whom": "who", "whose": "whose", "where": "where", "when": "when", "why": "why", "how": "how"}
"""Question words that tell what is asked for; `what` and `which` tell nothing."""
_COMMON = _PARTICLES | frozenset(
    "am are be been being did do does had has have he how i is it its s she that there these they this those was we "
    "were what when where which who whom whose why you".split()
)
"""Words that any question may have."""
_NEGATIONS = frozenset("no not nor never none neither without".split())
_SAYS_NOTHING = frozenset({"", "yes", "no", "noanswer", "true", "false"})


@dataclass(frozen=True, slots=True)
class Reading:
    """What of a question is compared.

    in_order: all words but articles, joined. stems, all_stems: of the words that not every question has, and of all but
    articles. names: words with a
    capital that is not due to their place, as they are spelled but for case; none where case tells nothing. figures:
    words with a digit, and negations. answers: golden ones, normalised, that could tell something. answer_words: of all
    golden answers.
    """

    key: str
    in_order: str
    stems: frozenset[str]
    all_stems: frozenset[str]
    names: frozenset[str]
    figures: frozenset[str]
    asks: frozenset[str]
    answers: frozenset[str]
    answer_words: frozenset[str]


class Reader:
    """Takes questions apart. Each word is stemmed once."""

    def __init__(self) -> None:
        import Stemmer

        self._stemmer: Stemmer.Stemmer = Stemmer.Stemmer("english")

    def read(self, question: str, answers: Iterable[str]) -> Reading:
        text = _APOSTROPHES.sub("", _POSSESSIVE.sub("", _without_accents(question)))
        spelled = [(match.group(), match.start()) for match in _WORD.finditer(text)]
        words = [word.casefold() for word, _ in spelled]
        normalized = f" {normalize_answer(question)} "
        golden = {each for each in map(normalize_answer, answers) if each}
        return Reading(
            key=question_key(question),
            in_order=" ".join("what" if each == "which" else each for each in words if each not in _ARTICLES),
            stems=frozenset(self._stemmer.stemWords([each for each in words if each not in _COMMON])),
            all_stems=frozenset(self._stemmer.stemWords([each for each in words if each not in _ARTICLES])),
            names=frozenset(_names(text, spelled)) if any(map(str.islower, text)) else frozenset(),
            figures=frozenset(each for each in words if each in _NEGATIONS or any(map(str.isdigit, each))),
            asks=frozenset(_ASKING[each] for each in words if each in _ASKING),
            answers=frozenset(
                each
                for each in golden
                if each not in _SAYS_NOTHING and len(each) > 1 and f" {each} " not in normalized
            ),
            answer_words=frozenset(word for each in golden for word in each.split()),
        )


def _without_accents(text: str) -> str:
    """One form of each character; Latin, Greek and Cyrillic letters without their accents."""
    parts = unicodedata.normalize("NFKD", text)
    return unicodedata.normalize("NFC", "".join(each for each in parts if not "\u0300" <= each <= "\u036f"))


def _names(text: str, spelled: Sequence[tuple[str, int]]) -> Iterator[str]:
    """Words with a capital, but for particles and for common words where a sentence begins."""
    for number, (word, start) in enumerate(spelled):
        lower = word.casefold()
        if not word[0].isupper() or lower in _PARTICLES:
            continue
        begins = number == 0 or _ENDS_A_SENTENCE.search(text[max(0, start - _LOOK_BACK) : start])
        if not (begins and lower in _COMMON):
            yield lower


# -- the questions of a data set -------------------------------------------------------------------------------


class HeldQuestions:
    """Questions as numbers, to be asked which of them another question is. Texts are not kept."""

    def __init__(self) -> None:
        self._reader = Reader()
        self._vocabulary: dict[str, int] = {}
        self._stems, self._all_stems, self._answers, self._answer_words = (_Lists() for _ in range(4))
        self._names, self._figures, self._asks = array("q"), array("q"), array("q")
        self._by_key: dict[str, list[int]] = {}
        self._by_order: dict[int, list[int]] = {}
        self._by_answer: dict[int, list[int]] = {}
        self._by_rare_stem: dict[int, array[int]] | None = None
        self._frequency: list[int] = []

    def __len__(self) -> int:
        return len(self._names)

    def add(self, question: str, answers: Iterable[str]) -> None:
        """One more; its number is how many were there before."""
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
        for each in _entities_with_answers(reading):
            self._by_answer.setdefault(each, []).append(number)

    def same_as(self, question: str, answers: Iterable[str]) -> dict[int, tuple[Rule, float]]:
        """The numbers of all that are the same question, by the first rule that says so, and how alike they are."""
        if not question.strip():
            return {}
        reading = self._reader.read(question, answers)
        found: dict[int, tuple[Rule, float]] = {each: ("question", 1.0) for each in self._by_key.get(reading.key, ())}
        for each in self._by_order.get(hash(reading.in_order), ()) if reading.in_order else ():
            if each not in found and not self._contradict(each, reading):
                found[each] = "near_duplicate", 1.0
        for each, similarity in self._alike(reading):
            if each not in found and self._nearly(each, reading, similarity):
                found[each] = "near_duplicate", similarity
        for key in _entities_with_answers(reading):
            for each in self._by_answer.get(key, ()):
                similarity = self._similarity(each, reading)
                if each not in found and (len(reading.names) > 1 or similarity >= LONE_NAME):
                    found[each] = "answer_and_entities", similarity
        return found

    def _contradict(self, number: int, reading: Reading) -> bool:
        """Whether both have golden answers, and those have no word in common."""
        theirs = self._answer_words[number]
        return bool(theirs and reading.answer_words) and theirs.isdisjoint(map(hash, reading.answer_words))

    def _nearly(self, number: int, reading: Reading, similarity: float) -> bool:
        names = self._names[number]
        if self._figures[number] != hash(reading.figures):
            return False
        if reading.names and names != _NO_WORDS and names != hash(reading.names):
            return False
        if not self._answers[number].isdisjoint(map(hash, reading.answers)):
            return similarity >= AGREEING
        if self._asks[number] != hash(reading.asks) or self._contradict(number, reading):
            return False
        return _jaccard(self._all_stems[number], frozenset(map(hash, reading.all_stems))) >= ALIKE

    def _alike(self, reading: Reading) -> Iterator[tuple[int, float]]:
        """All whose stems are alike by AGREEING or more.

        Exact, without comparing all with all: ordered from rare to frequent, two sets that share so much share one of
        the first few of each (prefix filtering: Chaudhuri, Ganti, Kaushik, ICDE 2006).
        """
        starting = self._rare_stems()
        known = sorted(
            (self._frequency[stem], stem)
            for stem in (self._vocabulary.get(each) for each in reading.stems)
            if stem is not None
        )
        unknown = len(reading.stems) - len(known)  # rarer than all others
        few = max(0, _first_few(len(reading.stems)) - unknown)
        for number in sorted({each for _, stem in known[:few] for each in starting.get(stem, ())}):
            similarity = self._similarity(number, reading)
            if similarity >= AGREEING:
                yield number, similarity

    def _similarity(self, number: int, reading: Reading) -> float:
        # a stem that no question held has is not the same as any other, so each gets a number below 0
        ours = (self._vocabulary.get(each, -1 - place) for place, each in enumerate(reading.stems))
        return _jaccard(self._stems[number], frozenset(ours))

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
    return size - math.ceil(AGREEING * size) + 1 if size else 0


def _entities_with_answers(reading: Reading) -> Iterator[int]:
    """What rule answer_and_entities looks up: names and numbers with each answer."""
    if reading.names:
        for each in reading.answers:
            yield hash((reading.names, reading.figures, each))


class _Lists:
    """Many short lists of numbers in one array."""

    def __init__(self) -> None:
        self.flat = array("q")
        self._ends = array("q", [0])

    def append(self, numbers: Iterable[int]) -> None:
        self.flat.extend(numbers)
        self._ends.append(len(self.flat))

    def __getitem__(self, number: int) -> frozenset[int]:
        return frozenset(self.flat[self._ends[number] : self._ends[number + 1]])


# -- a data set ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question of the data set, as far as its line in contamination.jsonl goes."""

    question_id: str
    key: str
    origin: Origin

    def drawn_from(self, split: EvalSplit) -> bool:
        """Whether it comes from that split: by the name of its own, or because it is the very file."""
        own = self.origin.dataset, self.origin.split
        named = split.name == "/".join(own) and not is_training_split(self.origin.split)
        return named or self.origin.revision == split.sha256


def questions_in(data_set: Path, splits: Iterable[EvalSplit]) -> list[Flagged]:
    """The questions of a data set that stand in evaluation splits, in its order; none of them is dropped by this.

    data_set: a folder with questions.jsonl. The splits are read one after the other, each once. Raises InputError for a
    split that cannot be read, MalformedCandidatesError for a bad line of the data set, OSError if it is not there.
    """
    held, asked = _hold(data_set / QUESTIONS)
    found: dict[int, dict[str, Match]] = {}
    for split in splits if len(held) else ():
        for other in split.read():
            for number, (rule, similarity) in held.same_as(other.question, other.answers).items():
                match = Match(
                    rule=rule,
                    eval=split.name,
                    eval_id=other.id,
                    similarity=round(similarity, 4),
                    own_split=asked[number].drawn_from(split),
                )
                of_question = found.setdefault(number, {})
                of_question[split.name] = min(of_question.get(split.name, match), match, key=_closest_first)
    return [
        Flagged(
            question_id=asked[number].question_id,
            dataset=asked[number].origin.dataset,
            split=asked[number].origin.split,
            question_key=asked[number].key,
            matches=[matches[name] for name in sorted(matches)],
        )
        for number, matches in sorted(found.items())
    ]


def _closest_first(match: Match) -> tuple[bool, int, float, str]:
    return match.own_split, RULES.index(match.rule), -match.similarity, match.eval_id


def _hold(questions: Path) -> tuple[HeldQuestions, list[_Asked]]:
    """All questions, those that several runs asked once."""
    held, asked, origins = HeldQuestions(), [], dict[Origin, Origin]()
    seen: set[tuple[str, str, str, str]] = set()
    for record in read_lines(questions, QuestionRecord):
        origin = Origin(dataset=record.origin.dataset, split=record.origin.split, revision=record.origin.revision)
        each = _Asked(record.question_id, question_key(record.question), origins.setdefault(origin, origin))
        identity = (each.key, each.question_id, origin.dataset, origin.split)
        if identity not in seen:
            seen.add(identity)
            asked.append(each)
            held.add(record.question, record.golden_answers)
    return held, asked


# -- the gate --------------------------------------------------------------------------------------------------


class Contamination(BaseModel):
    """What was compared and what came of it: `contamination` of the summary of `pairs`. Counts are of questions."""

    checked: list[EvalSplit] = []
    unchecked: list[Unchecked] = []
    """Splits that are known, and that nothing was compared with."""
    questions: int = 0
    """That stand in a split which is not their own."""
    matched: dict[Rule, int] = {}
    """Those, by the first rule that says so."""
    matched_by_split: dict[str, int] = {}
    """Those; one that stands in two splits counts in both."""
    own_split: dict[str, int] = {}
    """Drawn from an evaluation split themselves, and found in it. Not dropped for that."""
    allowed: list[str] = []
    """What --allow-eval named."""
    kept: int = 0
    """Of the questions, those that stand in allowed splits only."""
    dropped: int = 0
    """Of the questions, those whose candidates are left out as `contaminated`."""


@dataclass(frozen=True)
class Gate:
    """Who may pass. contaminated: keys of the questions that may not."""

    summary: Contamination
    flagged: list[Flagged] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def contaminated(self) -> frozenset[str]:
        return frozenset(each.question_key for each in self.flagged if each.dropped)

    def write(self, out: Path) -> None:
        """`contamination.jsonl` below `out`; empty where nothing was found. Raises OSError."""
        with replacing(out / CONTAMINATION) as file:
            for each in self.flagged:
                file.write(orjson.dumps(each.model_dump(), option=orjson.OPT_APPEND_NEWLINE))


def gate(data_set: Path, splits: EvalSplits, *, allowed: Sequence[str] = ()) -> Gate:
    """Compare a data set with evaluation splits and decide which questions are left out.

    allowed: names of splits whose questions are kept, or ALL. Raises InputError for a name that nobody knows, and as
    `questions_in`.
    """
    splits.found.sort(key=lambda each: (each.name, each.sha256))
    splits.missing.sort(key=lambda each: (each.name, each.path))
    _check_names(allowed, splits, data_set)
    flagged = [
        each.model_copy(update={"dropped": any(_shuts_out(match, allowed) for match in each.matches)})
        for each in questions_in(data_set, splits.found)
    ]
    summary = _summary(flagged, splits, allowed)
    return Gate(summary, flagged, _warnings(summary, flagged))


def _shuts_out(match: Match, allowed: Collection[str]) -> bool:
    return not match.own_split and match.eval not in allowed and ALL not in allowed


def _check_names(allowed: Sequence[str], splits: EvalSplits, data_set: Path) -> None:
    if not set(allowed) - {ALL}:
        return
    origins = {(each.origin.dataset, each.origin.split) for each in read_lines(data_set / QUESTIONS, QuestionRecord)}
    own = {"/".join(each) for each in origins if not is_training_split(each[1])}
    known = {each.name for each in (*splits.found, *splits.missing)} | own | {ALL}
    for name in allowed:
        if name not in known:
            raise InputError(f"--allow-eval {name}: nothing was compared with a split so called; {choices(name, known)}")


def _summary(flagged: Sequence[Flagged], splits: EvalSplits, allowed: Sequence[str]) -> Contamination:
    first_rule: dict[str, int] = {}
    by_split: dict[str, set[str]] = {}
    own: dict[str, set[str]] = {}
    for each in flagged:
        for match in each.matches:
            key, rule = each.question_key, RULES.index(match.rule)
            (own if match.own_split else by_split).setdefault(match.eval, set()).add(key)
            if not match.own_split:
                first_rule[key] = min(rule, first_rule.get(key, rule))
    rules = Counter(first_rule.values())
    dropped = {each.question_key for each in flagged if each.dropped}
    return Contamination(
        checked=splits.found,
        unchecked=splits.missing,
        questions=len(first_rule),
        matched={rule: rules[number] for number, rule in enumerate(RULES)},
        matched_by_split={name: len(keys) for name, keys in sorted(by_split.items())},
        own_split={name: len(keys) for name, keys in sorted(own.items())},
        allowed=sorted(set(allowed)),
        kept=len(first_rule.keys() - dropped),
        dropped=len(dropped),
    )


def _warnings(summary: Contamination, flagged: Sequence[Flagged]) -> list[str]:
    """What one would regret, and what to do."""
    found = []
    if not summary.checked:
        found.append(
            "no evaluation split was at hand, so nobody knows whether these questions stand in one: give --eval FILE, "
            "a folder with <dataset>/<split>.jsonl, or hub"
        )
    found += [
        f"not compared with {each.name} ({each.path}): {each.reason}. Give --eval FILE if you have it elsewhere"
        for each in summary.unchecked
    ]
    by_name = {f"{each.dataset}/{each.split}" for each in flagged}
    found += [
        f"{count} questions were drawn from {name} itself: keep their pairs out of training, or never evaluate on it"
        for name, count in summary.own_split.items()
        if name not in by_name  # of those the summary warns already
    ]
    if summary.dropped:
        where = ", ".join(f"{name} {count}" for name, count in summary.matched_by_split.items())
        found.append(
            f"{summary.dropped} questions stand in an evaluation split and were left out ({where}): see "
            f"{CONTAMINATION}; --allow-eval NAME keeps those of a split that you will never evaluate on"
        )
    if summary.kept:
        found.append(
            f"{summary.kept} questions that stand in an evaluation split were kept, because of --allow-eval "
            f"{', '.join(summary.allowed)}: never evaluate on it"
        )
    return found
