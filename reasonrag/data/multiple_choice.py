"""Multiple choice: the options of a question, how its text names them, and which of them an answer names.

Decides that the options end the question's text as it is read, `.. Options: (A) aspirin (B) heparin`: every prompt,
record and check then has the text that was asked, and `options_of` reads the options back wherever that text is, also
in records written long ago. Option texts are outside text: one of them cannot begin another option, and prompts make
the whole question harmless as ever. Knows no model and no file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from string import ascii_uppercase
from typing import Any

from preference import normalize_answer

FEWEST, MOST = 2, len(ascii_uppercase)
_BEGIN = " Options: (A) "
_MARK = re.compile(r"\(([A-Z])\)")
_SPLIT = re.compile(r"(?:^| )\(([A-Z])\) ")
_AROUND_LETTERS = frozenset("and answer both boxed choice choices correct is option options or text the".split())
_LETTER_ALONE = re.compile(r"\W*[A-Za-z]\W*")
_LETTER = re.compile(
    r"\(([A-Z])\)|\b(?i:option|choice)\s+([A-Z])\b|(?:^\W*|\b(?i:answer|is)\b:?\s+)([A-Z])"
    r"(?=\s*(?:[).:,;]|-\s|$|(?i:because|since)\b))"
)
"""A letter that names an option within other words: `(B)`, `option B`, `B: aspirin`, `the answer is B.`"""


def spelled_out(record: dict[str, Any]) -> dict[str, Any]:
    """A question's record with its options in the question's text and its gold answers as the texts of options.

    Options are a list of texts or a mapping of the letters A, B, .. to texts, at `choices` (FlashRAG's name) or
    `options` (MedQA's), of the record or its metadata; gold answers are texts, letters or positions from 0. A record
    without options is returned as it is. Raises ValueError for malformed options and for a gold answer that is none of
    them.
    """
    places = [each for each in (record.get("metadata"), record) if isinstance(each, dict)]
    found = next(((name, each[name]) for name in ("choices", "options") for each in places if each.get(name)), None)
    if not found or not isinstance(record.get("question"), str):
        return record
    texts = _texts(*found)
    answers, question = record.get("golden_answers"), record["question"].rstrip()
    if isinstance(answers, list) and not all(isinstance(each, str) and not each.strip() for each in answers):
        record = record | {"golden_answers": [texts[_position(each, texts)] for each in answers]}
    if question and options_of(question) != [_shown(each) for each in texts]:
        listed = " ".join(f"({letter}) {_shown(each)}" for letter, each in zip(ascii_uppercase, texts, strict=False))
        record = record | {"question": f"{question} Options: {listed}"}
    return record


def _texts(name: str, given: object) -> list[str]:
    if isinstance(given, dict):
        letters = list(ascii_uppercase[: len(given)])
        if sorted(given) != letters:
            keys = ", ".join(map(str, given))
            raise ValueError(f"{name}: a mapping needs the keys A, B, .. without a gap, not {keys:.80}")
        given = [given[each] for each in letters]
    if not isinstance(given, list):
        raise ValueError(  # noqa: TRY004 - a validator's error
            f"{name}: must be a list of texts, or a mapping of the letters A, B, .. to texts"
        )
    for number, each in enumerate(given, start=1):
        if not isinstance(each, str) or not each.strip():
            raise ValueError(f"{name}: option {number} is {each!r:.80}, not a text; write it in quotation marks")
    if not FEWEST <= len(given) <= MOST:
        raise ValueError(
            f"{name}: there must be {FEWEST} to {MOST} options, not {len(given)}; add, or leave {name} out"
        )
    shown = [_shown(each) for each in given]
    if twice := next((each for each in shown if shown.count(each) > 1), None):
        raise ValueError(f"{name}: the option {twice!r:.80} is given twice; each must differ")
    return [each.strip() for each in given]


def _position(answer: object, texts: Sequence[str]) -> int:
    """The position of the option that a gold answer names."""
    if type(answer) is int:
        if not 0 <= answer < len(texts):
            raise ValueError(f"golden_answers {[answer]} are positions in choices, which has only {len(texts)} entries")
        return answer
    said = answer if isinstance(answer, str) else ""
    found = set(_same_text(_shown(said), [_shown(each) for each in texts]))
    if len(letter := said.strip().upper()) == 1 and letter in ascii_uppercase[: len(texts)]:
        found.add(ascii_uppercase.index(letter))
    if len(found) != 1:
        what = "names several of the choices" if found else "is none of the choices"
        raise ValueError(
            f"golden_answers: {answer!r:.80} {what}; write an option's text, its letter, or its position from 0"
        )
    return found.pop()


def _shown(text: str) -> str:
    """An option's text as the question names it: on one line, without what begins another option."""
    return _MARK.sub(r"[\1]", " ".join(text.split()))


def options_of(question: str) -> list[str]:
    """The options that a question's text ends with, A first; empty if there are none."""
    start = question.rfind(_BEGIN)
    if start < 0:
        return []
    _, *parts = _SPLIT.split(question[start + _BEGIN.index("(") :])
    letters, options = parts[::2], parts[1::2]
    listed = len(options) >= FEWEST and "".join(letters) == ascii_uppercase[: len(letters)]
    return options if listed and all(options) else []


def without_options(question: str) -> str:
    """The question without the options that its text ends with."""
    return question[: question.rfind(_BEGIN)] if options_of(question) else question


def choice_accuracy(question: str, golden_answers: Sequence[str], answer: str | None) -> float | None:
    """1.0 if the answer names a right option and no other, else 0.0; None of a question without options.

    golden_answers: texts of options; None too if they are none of them.
    """
    options = options_of(question)
    right = {options.index(gold) for gold in map(_shown, golden_answers) if gold in options}
    if not right:
        return None
    named = set() if answer is None else named_options(answer, options)
    return float(bool(named) and named <= right)


def in_words(question: str, answer: str) -> str:
    """An answer for comparison with gold answers and passages, which have no letters: the text of the option it names,
    if it is one; else the answer."""
    options = options_of(question)
    named = named_options(answer, options) if options else set()
    return options[named.pop()] if len(named) == 1 else answer


def named_options(answer: str, options: Sequence[str]) -> set[int]:
    """The positions of all options that an answer names, by letter (`B`, `(B)`, `B: aspirin`, `option B`) or by text.

    An answer that is the text of an option, but for what `normalize_answer` ignores, names it alone, and a letter
    alone is always a letter. Else the texts within it count as whole words, the longest first: `aspirin and heparin` is
    not also `aspirin`.
    """
    letters = ascii_uppercase[: len(options)]
    if not _LETTER_ALONE.fullmatch(answer) and (same := _same_text(_shown(answer), options)):
        return set(same)
    said = [each.upper() for each in re.findall(r"\w+", answer) if each.lower() not in _AROUND_LETTERS]
    if said and all(len(each) == 1 for each in said):
        return {letters.index(each) for each in said if each in letters}
    named: set[int] = set()
    rest = f" {normalize_answer(answer)} "
    for text in sorted({normalize_answer(each) for each in options} - {""}, key=len, reverse=True):
        if f" {text} " in rest:
            named |= {place for place, each in enumerate(options) if normalize_answer(each) == text}
            rest = rest.replace(f" {text} ", "  ")
    for each in sorted(options, key=len, reverse=True):  # `E. coli` is no letter
        answer = re.sub(rf"(?<!\w){re.escape(each)}(?!\w)", " ", answer, flags=re.IGNORECASE)
    marked = {next(filter(None, found)) for found in _LETTER.findall(answer)}
    return named | {letters.index(each) for each in marked if each in letters}


def _same_text(said: str, options: Sequence[str]) -> list[int]:
    """The positions of the options with this text, as strictly compared as some are found."""
    strictness: tuple[Callable[[str], str], ...] = (str, str.casefold, normalize_answer)
    for form in strictness:
        if form(said) and (found := [place for place, each in enumerate(options) if form(each) == form(said)]):
            return found
    return []
