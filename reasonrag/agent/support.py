"""Grounding and support: whether what was read supports a step, and whether reported evidence supports an answer.

Decides by string rules, without a model. An answer may follow from several pieces of evidence: by an alias, another
form of a name, number or date, a comparison of two things that the question names, a yes or no about them, a
difference, a sum or a count. The rules read no meaning: they say that the evidence covers what the answer needs, not
that it is right. Evidence is untrusted, so what is read of it is bounded.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations, groupby

from preference import ActionType
from preference.answer_scores import ARTICLES, VERDICTS, comparable, holds, label_em
from reasonrag.data.corpus import Passage

SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_LITTLE_WORDS = frozenset(
    "of in on at to for from by with and or as is are was were be been it its this that these those he she his her "
    "they their who which has have had also".split()
)
LONGEST_QUESTION, LONGEST_ANSWER, LONGEST_PIECE = 1000, 200, 4000
"""What the rules look at, in characters."""
MOST_PIECES, MOST_NUMBERS, MOST_NAMES = 8, 40, 8
"""Of the evidence the last pieces, and different numbers; of the question names, and pairs of them."""
SHORTEST_ALIAS = 3
"""Characters: a shorter alias (US, he) is too often a word."""
_FEWEST = 2
"""Numbers that can be compared, and things that can be counted."""


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
    cannot tell whether they follow; `is_supported` knows more forms, and what follows from several pieces.
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


# -- support ----------------------------------------------------------------------------------------------------


def is_supported(
    question: str,
    answer: str,
    evidence: Iterable[str],
    golden_answers: Sequence[str] = (),
    passages: Sequence[Passage] = (),
) -> bool | None:
    """Whether evidence reported before an answer supports it. None for a yes or no about anything but two things that
    the question names, once anything was reported: no string tells whether it follows.

    golden_answers: aliases of each other, for an answer that equals one of them. passages: read so far; evidence also
        names what the title of a passage names that it reports from.
    """
    pieces = reported(evidence)
    literally = is_in_evidence(answer, pieces)
    pieces = [each[:LONGEST_PIECE] for each in pieces[-MOST_PIECES:]]
    if not pieces or len(answer) > LONGEST_ANSWER:
        return literally
    found, asked = _reported(tuple(pieces)), _asked(question)
    pairs = _compared(asked)

    def about() -> _Evidence:
        return _reported(tuple(_titled(each, passages) for each in pieces)) if passages else found

    if comparable(answer) in VERDICTS:
        return any(map(about().names_both, pairs)) if pairs else None
    alternatives = (_compared(asked, _OR) or pairs) if _ORDER.search(asked) else []
    if chosen_from := [pair for pair in alternatives if _is_one_of(answer, pair)]:
        return found.compares(asked) and any(map(about().names_both, chosen_from))
    if literally:
        return True
    named = _names_in(asked)
    forms = [answer]
    if label_em(answer, golden_answers):
        forms += (each for each in golden_answers if len(comparable(each)) >= SHORTEST_ALIAS)
    return (
        any(map(found.holds, forms))
        or found.has_date(answer)
        or found.names_person(answer)
        or ((not named or any(map(about().names, named))) and found.amounts_to(answer, asked))
    )


_OF_TIME = "older|oldest|younger|youngest|elder|earlier|earliest|later|latest|first|last|before|after|sooner|newer"
_TIME = re.compile(rf"\b({_OF_TIME}|recently)\b", re.IGNORECASE)
"""Words of an order that only dates, years and ages tell."""
_ORDER = re.compile(
    rf"\b({_OF_TIME}|longer|longest|shorter|shortest|larger|largest|bigger|biggest|smaller|smallest|taller|tallest"
    r"|higher|highest|lower|lowest|farther|further|closer|greater|greatest|fewer|fewest|more|most|less|least)\b",
    re.IGNORECASE,
)
_QUANTITY = re.compile(
    r"\b(how (?:many|much|long|old|far|tall|big)|difference|total|combined|altogether|sum|number|age)\b", re.IGNORECASE
)
_DIFFERENCE = re.compile(
    r"\b(difference|older|younger|more|fewer|less|longer|shorter|taller|higher|larger|smaller|earlier|later|after|before"
    r"|between|apart|how old|how long|age|years?)\b",
    re.IGNORECASE,
)
_SUM = re.compile(r"\b(total|combined|altogether|together|sum|both)\b", re.IGNORECASE)
_SHARED = re.compile(r"\b(both|same|common|shared?)\b", re.IGNORECASE)


# -- the question ---------------------------------------------------------------------------------------------------

_JOINED, _OR = re.compile(r",? (?:and|or) "), re.compile(r",? or ")
_LITTLE = frozenset("a an the of de la le du der von van and in on at for to with from & - vs. v.".split())
_OPENS_A_QUESTION = frozenset(
    "are is was were do does did have has had can could will would which who whom whose what where when why how "
    "between among both of in at on for".split()
)
_SKIPPED = 5
"""Most words before the second name: `director of the film`."""
_BREAKS = (",", ":", ";", "?", "!")


def _folded(text: str) -> str:
    return " ".join(text[:LONGEST_PIECE].split())


@lru_cache(maxsize=256)
def _asked(question: str) -> str:
    """The question on one line, without options and what stands in brackets."""
    asked = _folded(question[:LONGEST_QUESTION]).partition(" Options: (")[0]
    return re.sub(r" ?\([^()]*\)", "", asked)


@lru_cache(maxsize=256)
def _compared(asked: str, joined: re.Pattern[str] = _JOINED) -> list[tuple[str, str]]:
    """The names on both sides of every `and` and `or`; without any, the first two of a question what things share."""
    pairs = [
        (left, right)
        for joint in joined.finditer(asked)
        if (left := _last_name(asked[: joint.start()].split())) and (right := _first_name(asked[joint.end() :].split()))
    ]
    names = _names_in(asked) if not pairs and joined is _JOINED and _SHARED.search(asked) else []
    return pairs[:MOST_NAMES] or ([(names[0], names[1])] if len(names) > 1 else [])


def _last_name(words: list[str]) -> str:
    """The name that ends the words: capitalised words, numbers, and little words between them."""
    name: list[str] = []
    for place, word in reversed([*enumerate(words)]):
        broken = name and word.endswith(_BREAKS)
        opens = place == 0 and word.lower() in _OPENS_A_QUESTION
        if broken or opens or not (_is_capital(word) or (name and word in _LITTLE)):
            break
        name.insert(0, word)
    return _trimmed(name)


def _first_name(words: list[str]) -> str:
    """The first name in the words, at most some words from their beginning."""
    start = next((place for place, word in enumerate(words[: _SKIPPED + 1]) if _is_capital(word)), len(words))
    name: list[str] = []
    for word in words[start:]:
        if not (_is_capital(word) or word in _LITTLE):
            break
        name.append(word)
        if word.endswith(_BREAKS):
            break
    return _trimmed(name)


def _is_capital(word: str) -> bool:
    first = _MARKS.sub("", word)[:1]
    return first.isupper() or first.isdigit()


def _trimmed(name: list[str]) -> str:
    while name and name[0] in _LITTLE:
        name = name[1:]
    while name and name[-1] in _LITTLE:
        name = name[:-1]
    return " ".join(name).strip(' ,:;?!."“”')


def _is_one_of(answer: str, pair: tuple[str, str]) -> bool:
    said = as_words(answer)
    return any(said in name or name in said for each in pair if (name := as_words(each)).strip())


_MARKS = re.compile(r"[^\w]+")


def as_words(name: str) -> str:
    """A name padded with blanks, to match whole words: normalised, without accents, each mark a blank, its
    numbers up to 99 in figures."""
    letters = _MARKS.sub(" ", name)
    if not letters.isascii():
        letters = "".join(each for each in unicodedata.normalize("NFKD", letters) if not unicodedata.combining(each))
    return _in_figures(comparable(letters))


# -- other forms of an answer ---------------------------------------------------------------------------------------

_UNITS = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen".split()
_UNITS += "seventeen eighteen nineteen".split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_FIGURES = (
    {word: str(n) for n, word in enumerate(_UNITS)}
    | {
        ten + unit: str(10 * tens + n)  # normalised, twenty-one is twentyone
        for tens, ten in enumerate(_TENS, start=2)
        for n, unit in enumerate(["", *_UNITS[1:10]])
    }
)


def _in_figures(normalized: str) -> str:
    """Padded with blanks, to match whole words, its numbers up to 99 in figures."""
    return f" {' '.join(_FIGURES.get(word, word) for word in normalized.split())} "


_MONTHS = "january february march april may june july august september october november december".split()
_MONTH = "(?P<month>" + "|".join(f"{each[:3]}(?:{each[3:]})?" for each in _MONTHS) + r")\.?"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_YEAR = r"(?P<year>\d{4})"
_DATES = [
    re.compile(rf"\b{form}\b", re.IGNORECASE | re.ASCII)  # no letter but a-z folds to one of a month
    for form in (
        rf"{_DAY}(?: of)? {_MONTH},? {_YEAR}",
        rf"{_MONTH} {_DAY},? {_YEAR}",
        rf"{_YEAR}-(?P<month>\d{{2}})-{_DAY}",
        rf"{_MONTH},? {_YEAR}",
    )
]
_Date = tuple[int, int, int | None]


def _as_date(found: re.Match[str]) -> _Date:
    parts = found.groupdict()
    month = parts["month"].lower()
    number = int(month) if month.isdigit() else next(n for n, each in enumerate(_MONTHS, 1) if each[:3] == month[:3])
    return int(parts["year"]), number, int(parts["day"]) if parts.get("day") else None


_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


def _numbers(text: str) -> list[float]:
    """The different numbers in a text, in figures or words, in order."""
    figures = [float(each.replace(",", "")) for each in _NUMBER.findall(text)]
    return list(dict.fromkeys([*figures, *(float(_FIGURES[w]) for w in comparable(text).split() if w in _FIGURES)]))


# -- the evidence ---------------------------------------------------------------------------------------------------

_LISTED = re.compile(r", and |, | and ")


@dataclass(frozen=True)
class _Evidence:
    """Pieces of evidence that report something, each on one line."""

    pieces: tuple[str, ...]

    @cached_property
    def _normalized(self) -> tuple[str, ...]:
        return tuple(_in_figures(comparable(each)) for each in self.pieces)

    @cached_property
    def _plain(self) -> tuple[str, ...]:
        return tuple(map(as_words, self.pieces))

    @cached_property
    def _words(self) -> tuple[list[str], ...]:
        return tuple([word.strip(",.;:()\"'") for word in each.split()] for each in self.pieces)

    @cached_property
    def _all_numbers(self) -> list[float]:
        return list(dict.fromkeys(number for each in self.pieces for number in _numbers(each)))[:MOST_NUMBERS]

    def holds(self, text: str) -> bool:
        """Whether a piece has the text as whole words; numbers up to 99 may be in figures or words."""
        wanted = _in_figures(comparable(text))
        return bool(wanted.strip()) and any(wanted in each for each in self._normalized)

    def names(self, thing: str) -> bool:
        """Whether a piece names it: by its words in order, or all of several in any; a person in another form."""
        wanted = as_words(thing)
        words = set(wanted.split())
        return bool(words) and (
            any(wanted in each or (len(words) > 1 and words <= set(each.split())) for each in self._plain)
            or self.names_person(thing)
        )

    def names_both(self, pair: tuple[str, str]) -> bool:
        """Whether it names both things; of a person the last name is enough, where it tells the two apart."""
        lasts = [_surname(each) for each in pair]
        apart = lasts[0] != lasts[1]
        return all(
            self.names(each) or (apart and last and any(last in words for words in self._words))
            for each, last in zip(pair, lasts, strict=True)
        )

    def compares(self, asked: str) -> bool:
        """Whether it can tell an order: one in time needs two numbers, or evidence that compares by itself."""
        said = any(f" {word.lower()} " in each for word in _TIME.findall(asked) for each in self._normalized)
        numbers = sum(len(_NUMBER.findall(each)) for each in self.pieces)
        return said or numbers >= _FEWEST or not _TIME.search(asked)

    def has_date(self, answer: str) -> bool:
        """Whether it has the date that the answer is, in any format, at least to the same precision."""
        if not (wanted := [_as_date(found) for form in _DATES if (found := form.fullmatch(answer.strip(" .")))]):
            return False
        dates = {_as_date(found) for each in self.pieces for form in _DATES for found in form.finditer(each)}
        return any(date == wanted[0] or (*date[:2], None) == wanted[0] for date in dates)

    def names_person(self, name: str) -> bool:
        """Whether it has the name with other middle names: with initials in their place, or without them."""
        wanted = name.strip(" ,.").split()
        if not 1 < len(wanted) <= 5 or not all(_is_name(each) for each in wanted):  # noqa: PLR2004 - words of a name
            return False
        return any(
            _is_same_person(wanted, words[start : end + 1])
            for words in self._words
            for end, last in enumerate(words)
            if last == wanted[-1]
            for start in range(max(0, end - 4), end)
        )

    def amounts_to(self, answer: str, asked: str) -> bool:
        """Whether the number that was asked for is a difference, a sum or a count of what it has."""
        numbers = _numbers(answer)
        if len(numbers) != 1 or not _QUANTITY.search(asked):
            return False
        differs, sums = _DIFFERENCE.search(asked), _SUM.search(asked)
        for one, other in combinations(self._all_numbers, 2):
            if (differs and abs(one - other) == numbers[0]) or (sums and one + other == numbers[0]):
                return True
        return numbers[0] in {_listed(each) for piece in self.pieces for each in SENTENCE_END.split(piece)}


@lru_cache(maxsize=2048)  # siblings have read the same
def _reported(pieces: tuple[str, ...]) -> _Evidence:
    return _Evidence(tuple(map(_folded, pieces)))


def _titled(piece: str, passages: Sequence[Passage]) -> str:
    """A piece of evidence after the titles of the passages that it reports from."""
    titles = [each.title for each in passages if reports(piece, each)]
    return ": ".join([*titles, piece])


def _names_in(asked: str) -> list[str]:
    """Names in a question, of one capitalised word or several, without its first word."""
    runs = groupby(asked.split()[1:], key=lambda word: _MARKS.sub("", word)[:1].isupper())
    return [_trimmed(list(words)) for capital, words in runs if capital][:MOST_NAMES]


def _listed(sentence: str) -> int | None:
    """How many names a sentence lists; None if fewer than two."""
    parts = _LISTED.split(sentence)
    names = [place == 0 or each[:1].isupper() for place, each in enumerate(parts)]
    return len(parts) if len(parts) >= _FEWEST and all(names) else None


def _surname(name: str) -> str:
    """The last name of what may be a person; empty for other names."""
    words = name.split()
    person = 1 < len(words) <= 3 and all(map(_is_name, words)) and len(words[-1]) > SHORTEST_ALIAS  # noqa: PLR2004
    return words[-1] if person else ""


def _is_name(word: str) -> bool:
    return word[:1].isupper() and _MARKS.sub("", word).isalpha()


def _is_same_person(wanted: Sequence[str], said: Sequence[str]) -> bool:
    if not all(map(_is_name, said)) or wanted[-1] != said[-1] or not _alike(wanted[0], said[0]):
        return False
    left, right = wanted[1:-1], said[1:-1]
    return not left or not right or (len(left) == len(right) and all(map(_alike, left, right)))


def _alike(left: str, right: str) -> bool:
    """Equal, or one the initial of the other."""
    left, right = left.rstrip("."), right.rstrip(".")
    return left == right or (1 in (len(left), len(right)) and left[:1] == right[:1])
