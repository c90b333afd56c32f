"""Scores of an answer against gold answers, for reports and for labels. Each is the best over all gold answers.

Reports are compared with those of others: `exact_match`, `cover_em`, `f1_score`, `token_precision` and `token_recall`
have SQuAD's normalisation and FlashRAG's yes/no rule; `builder_f1` and `prorag_f1` are the F1 of published codes.
Labels go by meaning: `label_em`, `label_cover_em`, `label_f1` and `evident_f1` compare what is `comparable`. Does not
know where the answer came from.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, filterfalse

ARTICLES = frozenset({"a", "an", "the"})
_ARTICLES = re.compile(rf"\b({'|'.join(sorted(ARTICLES))})\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
VERDICTS = ("yes", "no")
"""Answers, normalised, that no string match finds in a text."""
_ONLY_WHOLE = frozenset({*VERDICTS, "noanswer"})
COVERED, NOT_COVERED = 0.5, 0.4
"""`evident_f1` of an answer that contains a gold answer is at least the first, that of any other at most the second:
however many words a wrong answer shares, a right one in more words outranks it."""


@lru_cache(maxsize=1 << 12)
def normalize_answer(text: str) -> str:
    """Lower case, without ASCII punctuation, English articles and extra white space (SQuAD 1.1)."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(answer: str, golden_answers: Iterable[str]) -> float:
    """1.0 if the normalised answer equals a normalised gold answer, else 0.0."""
    normalized = normalize_answer(answer)
    return float(any(normalized == normalize_answer(gold) for gold in golden_answers))


def cover_em(answer: str, golden_answers: Iterable[str]) -> float:
    """1.0 if a normalised gold answer occurs, as whole words, in the normalised answer, else 0.0."""
    padded = f" {normalize_answer(answer)} "
    return float(any(gold and f" {gold} " in padded for gold in map(normalize_answer, golden_answers)))


def f1_score(answer: str, golden_answers: Iterable[str]) -> float:
    """Token F1 in [0, 1]. A yes, no or noanswer on either side scores only if both sides are the same."""
    normalized = normalize_answer(answer)
    return max((normalized_f1(normalized, normalize_answer(gold)) for gold in golden_answers), default=0.0)


def token_precision(answer: str, golden_answers: Iterable[str]) -> float:
    """Share of the answer's tokens that a gold answer has, in [0, 1], with the rule of `f1_score` for yes and no.

    As in FlashRAG the best gold answer is that of this score; the best of recall or F1 may be another one.
    """
    return max((_pair_overlap(answer, gold)[0] for gold in golden_answers), default=0.0)


def token_recall(answer: str, golden_answers: Iterable[str]) -> float:
    """Share of a gold answer's tokens that the answer has, in [0, 1]; the best gold answer as in `token_precision`."""
    return max((_pair_overlap(answer, gold)[1] for gold in golden_answers), default=0.0)


def builder_f1(answer: str, golden_answers: Iterable[str]) -> float:
    """Token F1 in [0, 1] as ReasonRAG's published pair builder computes it: as `f1_score`, but articles count."""
    said, *golds = (" ".join(text.lower().translate(_PUNCTUATION).split()) for text in (answer, *golden_answers))
    return max((normalized_f1(said, gold) for gold in golds), default=0.0)


def prorag_f1(answer: str, golden_answers: Iterable[str]) -> float:
    """Token F1 in [0, 1] as ProRAG's published search computes it, the best of all gold answers: lower case, split on
    white space, nothing else; punctuation and articles count, and there is no rule for yes and no."""
    tokens = answer.lower().split()
    return max((_token_f1(tokens, gold.lower().split()) for gold in golden_answers), default=0.0)


def _pair_overlap(answer: str, gold: str) -> tuple[float, float]:
    left, right = normalize_answer(answer), normalize_answer(gold)
    return (0.0, 0.0) if _verdicts_differ(left, right) else _overlap(left.split(), right.split())


@lru_cache(maxsize=1 << 12)  # a tree's answers are few, and are scored by several measures
def normalized_f1(left: str, right: str) -> float:
    """Token F1 of two texts that are normalised, by whatever rule."""
    return 0.0 if _verdicts_differ(left, right) else _token_f1(left.split(), right.split())


def _verdicts_differ(left: str, right: str) -> bool:
    return left != right and (left in _ONLY_WHOLE or right in _ONLY_WHOLE)


def _token_f1(left: Sequence[str], right: Sequence[str]) -> float:
    precision, recall = _overlap(left, right)
    return 2 * precision * recall / (precision + recall) if precision else 0.0


def _overlap(left: Sequence[str], right: Sequence[str]) -> tuple[float, float]:
    """Precision and recall of the tokens on the left."""
    common = (Counter(left) & Counter(right)).total()
    return (common / len(left), common / len(right)) if common else (0.0, 0.0)


# -- for labels -----------------------------------------------------------------------------------------------------

_FOLDED = (
    dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-")
    | dict.fromkeys("\u2018\u2019\u201a\u201b\u02bc\u00b4`", "'")
    | dict.fromkeys("\u201c\u201d\u201e\u00ab\u00bb", '"')
    | {"\u2044": "/"}
)
"""Dashes, quotes and the slash of fractions. (`½` is 1/2 after NFKC.)"""
_TO_FOLD = re.compile(f"[{''.join(_FOLDED)}]")  # ten times as fast as str.translate, as few are there
_CURRENCIES = {"€": "eur", "$": "usd", "£": "gbp", "¥": "jpy"}
_MONEY_FIRST = re.compile(
    rf"(?<!\w)([-+]?)([{''.join(_CURRENCIES)}]|(?<!\d\s)(?:{'|'.join(_CURRENCIES.values())})\b)\s*([-+]?\d[\d.,']*)"
)
_BARE_POINT = re.compile(r"\.(?<![\w.,]\.)(?=\d)")
_BOXED = re.compile(r"\\boxed\s*\{((?:[^{}]|\{[^{}]*\})*)\}")
_NARROW_BLANK = re.compile("(?<=\\d)[\u00a0\u2009\u202f](?=\\d{3}(?!\\d))")
"""Between thousands."""
_AROUND = "\u00b0.,;:!?\"'()[]{}<>*_~\u2026\u3001\u3002\u30fb\u00b7"
_QUANTITY = re.compile(r"([-+]?)(\d[\d.,']*)(%|[^\W\d_]{1,4}|°[^\W\d_]?)?")
_SUFFIXES = frozenset({"st", "nd", "rd", "th", "s"})
"""Of ordinals and decades, which are no units."""
_TWO_WAYS = re.compile(r"(?<![\d.,'])([1-9]\d{0,2})\.(\d{3})(?![.,']?\d)")
"""A point before three digits, which stands before thousands in `_THOUSANDS_BY_POINT`."""
_THOUSANDS_BY_POINT = frozenset("az ca da de el es eu hr id is it mk nl pt ro sl sr tr vi".split())
"""Languages that write 1.450 for 1450 (Unicode's CLDR, number symbols)."""
_RANGE = re.compile(r"\d[\d.,']*(?:-\d[\d.,']*)+")
_SIGNED = re.compile(r"[^\W_]+[+#]+|[^\W\d_]{1,2}-+")
"""Names whose signs count: C++, C#, blood type O-."""
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\U00020000-\U0003ffff]"
)
"""Letters of scripts without spaces: Thai, Lao, Burmese, Khmer, kana and Han. Each is a word."""


@lru_cache(maxsize=1 << 14)  # the same answers and passages are compared again and again
def comparable(text: str) -> str:
    """What of a text counts for labels, words with a blank between them; empty where it is marks alone, as `?!` is.

    NFKC, case, dashes, quotes, `\\boxed{}` and punctuation do not count. Signs, decimal points and what C++ and C# end
    with do, and thousands are joined: 1,450 is 1450, 14,5 is 14.5, 1.450 is 1.45. €145 is 145 eur. Articles count only
    at the end, as in `type A`. Of scripts without spaces every letter is a word.
    """
    folded = _BOXED.sub(lambda found: f" {found[1]} ", text)
    if not folded.isascii():
        folded = unicodedata.normalize("NFKC", _NARROW_BLANK.sub("", folded))
        folded = _TO_FOLD.sub(lambda found: _FOLDED[found[0]], folded)
    folded = folded.replace("`", "'").casefold().replace("us$", "$")
    if any(sign in folded or code in folded for sign, code in _CURRENCIES.items()):
        folded = _MONEY_FIRST.sub(r"\1\3 \2 ", folded)
    folded = _BARE_POINT.sub("0.", folded)
    for sign, code in _CURRENCIES.items():
        folded = folded.replace(sign, f" {code} ")
    folded = folded if folded.isascii() else _UNSPACED.sub(lambda found: f" {found[0]} ", folded)
    words = list(chain.from_iterable(map(_told, folded.split())))
    return " ".join([*filterfalse(ARTICLES.__contains__, words[:-1]), *words[-1:]])


@lru_cache(maxsize=1 << 16)  # most of a text's words were in others before
def _told(chunk: str) -> tuple[str, ...]:
    return tuple(_words(chunk.strip(_AROUND)))


def _words(chunk: str) -> Iterator[str]:
    """The words of what stands between two blanks, marks around it left out."""
    if chunk.isalpha():
        yield chunk
    elif quantity := _QUANTITY.fullmatch(chunk):
        sign, digits, unit = quantity.groups()
        number = f"{'-' * (sign == '-')}{_number(digits)}"
        yield from [number + unit] if unit in _SUFFIXES else [number, *_unit(unit)]
    elif _RANGE.fullmatch(chunk):
        yield from map(_number, chunk.split("-"))
    elif _SIGNED.fullmatch(chunk):
        yield chunk
    elif word := _without_marks(chunk):
        yield from [word] if word == chunk else _words(word)


def _without_marks(chunk: str) -> str:
    """Its letters with their accents and vowel signs, its symbols beyond ASCII, its digits and what is between two."""
    kept = []
    for place, letter in enumerate(chunk):
        between = chunk[place - 1 : place].isdigit() and chunk[place + 1 : place + 2].isdigit()
        kind = unicodedata.category(letter)[0]
        if letter.isalnum() or between or kind == "M" or (kind == "S" and not letter.isascii()):
            kept.append(letter)
    return "".join(kept)


def _unit(unit: str | None) -> list[str]:
    if unit == "%":
        return ["percent"]
    return [unit.removeprefix("°")] if unit and unit != "°" else []


def _number(digits: str) -> str:
    """A number without what separates thousands or ends it; as it stands where that is unclear."""
    digits = digits.rstrip(".,'")
    marks = re.findall("[.,']", digits)
    whole, mark, rest = digits.rpartition(marks[-1]) if marks else (digits, "", "")
    inner = set(marks[:-1])
    if mark and len(rest) == 3 and inner <= {mark} and (mark != "." or inner) and _grouped(whole, mark):  # noqa: PLR2004
        whole, rest = digits.replace(mark, ""), ""
    elif mark:
        if mark == "'" or mark in inner or len(inner) > 1 or (inner and not _grouped(whole, *inner)):
            return digits
        whole = re.sub("[.,']", "", whole)
    elif digits.startswith("0") and len(digits) > 1:
        return digits
    rest = rest.rstrip("0")
    return f"{whole}.{rest}" if rest else whole


def _grouped(whole: str, mark: str) -> bool:
    """Whether the digits before a mark can be those before thousands: 1 and 12,345, but neither 0 nor 1234."""
    return bool(re.fullmatch(rf"[1-9]\d{{0,2}}(?:{re.escape(mark)}\d{{3}})*", whole))


def in_language(text: str, language: str | None) -> str:
    """The text, its numbers written so that `comparable` reads them as this language means them: German 1.450 as 1450.
    language: by ISO 639-1."""
    return _TWO_WAYS.sub(r"\1\2", text) if language in _THOUSANDS_BY_POINT else text


def label_em(answer: str, golden_answers: Iterable[str]) -> float:
    """1.0 if the answer is `comparable` to a gold answer word by word, else 0.0."""
    said = comparable(answer)
    return float(bool(said) and any(said == comparable(gold) for gold in golden_answers))


def label_cover_em(answer: str, golden_answers: Iterable[str]) -> float:
    """1.0 if the words of a gold answer stand in the answer one after another, else 0.0."""
    return float(any(holds(answer, gold) for gold in golden_answers))


def label_f1(answer: str, golden_answers: Iterable[str]) -> float:
    """F1 in [0, 1] of the words that are `comparable`; 1.0 wherever `label_em` is.

    A yes, no or noanswer on either side scores only if both are the same. A gold answer of one number, perhaps with a
    unit or a name, scores only where the answer has that number: 2.5 mg is no half of 25 mg.
    """
    said = comparable(answer)
    return max((_label_f1(said, comparable(gold)) for gold in golden_answers), default=0.0)


def _label_f1(said: str, gold: str) -> float:
    words = gold.split()
    numbers = [each for each in words if each.lstrip("-")[:1].isdigit()]
    if len(numbers) == 1 and len(words) <= 2 and numbers[0] not in said.split():  # noqa: PLR2004 - a number and a word
        return 0.0
    return normalized_f1(said, gold)


def evident_f1(answer: str, golden_answers: Sequence[str]) -> float:
    """`label_f1` of an answer that its evidence holds, at least `COVERED` if it contains a gold answer. A yes or no in
    other words contains none: "no" begins many a reply that says nothing."""
    f1 = label_f1(answer, golden_answers)
    named = [each for each in golden_answers if comparable(each) not in VERDICTS]
    right = label_em(answer, golden_answers) or label_cover_em(answer, named)
    return max(f1, COVERED) if right else min(f1, NOT_COVERED)


def holds(text: str, answer: str) -> bool:
    """Whether the words of an answer stand in a text one after another. One that ends in what is an article elsewhere,
    as blood type A does, must stand there letter by letter."""
    said = comparable(answer)
    if said.rpartition(" ")[2] in ARTICLES:
        stands = re.search(rf"(?<!\w){re.escape(answer.strip(_AROUND + ' '))}(?!\w)", text)
        return bool(stands) or said == comparable(text)
    return bool(said) and f" {said} " in f" {comparable(text)} "
