"""Hints for steps that are drawn with help: what may be named, and what a step names that its state does not.

Decides which gold passages' titles a hint may name, which sub-questions are read from a decomposition, and when a step
that was drawn with a hint names something unseen. String match on what the state's path has shown; uses no model. A
gold answer is never named. Does not know which states get help, nor what labels make of it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mcts.recipes import RescueName
from preference import normalize_answer
from preference.records import title_key
from reasonrag.agent.parsing import PLACEHOLDERS
from reasonrag.llm.extraction.words import STOP_WORDS, tagged

if TYPE_CHECKING:
    from reasonrag.agent.agent import State
    from reasonrag.data.questions import Question

PROMPTS_OF: dict[str | None, tuple[str, ...]] = {"gold-passages": ("hint",), "decompose": ("hint", "decompose")}
"""By rescue: the prompts that only it uses."""
SUB_QUESTIONS = 6
"""Most sub-questions that are read from a decomposition."""
SUB_QUESTION_CHARS = 300
LETTERS = 5
"""Answers of fewer letters are not searched for inside the words of a title."""

_DISAMBIGUATION = re.compile(r"\s*\([^()]*\)\s*$")
_TAG = re.compile(r"</?\w+>")
_SENTENCE = re.compile(r"(?<=[.!?:;])\s+|\n|\x00")
_WORD = re.compile(r"[^\W_]+(?:[.'’&][^\W_]+)*")  # noqa: RUF001 - as it is printed
_POSSESSIVE = re.compile(r"['’]s\b")  # noqa: RUF001
_JOINT = re.compile(r"[-–—/·・]")  # noqa: RUF001
_OPENERS = STOP_WORDS | frozenset(
    "i we you if so now next thus hence therefore because since but although while however once still nothing none "
    "search find need let look check try start step use based according given only another other each some any all "
    "question query evidence answer thoughts".split()
)
"""Words that begin a sentence with a capital and are no names."""


@dataclass(frozen=True, slots=True)
class Hint:
    """What a step is drawn with. lines: what the prompt shows, at least one."""

    kind: RescueName
    lines: tuple[str, ...]


def titles_to_hint(state: State) -> tuple[str, ...]:
    """Titles of gold passages that were not read on the path and are named in the state: in the question, a thought or
    a passage read. None without gold answers, and none where one of them may be the answer, as the others would tell
    it by elimination."""
    question, read, seen = state.question, {title_key(each.title) for each in state.read}, shown_in(state)
    if not question.golden_answers:
        return ()
    found = []
    for title in question.gold_titles:
        names = {_DISAMBIGUATION.sub("", title), title}
        if title_key(title) in read or not any(f" {name} " in seen for name in map(_normal, names) if name):
            continue
        if any(_may_be(title, gold) for gold in question.golden_answers):
            return ()
        found.append(title)
    return tuple(found)


def shown_in(state: State) -> str:
    """All that the path has shown, normalised and between blanks: the question, the thoughts and the passages read."""
    shown = [state.question.question, *state.thoughts, *(f"{each.title} {each.text}" for each in state.read)]
    return f" {' | '.join(map(_normal, shown))} "


def _normal(text: str) -> str:
    """Without tags, possessives, what joins words and accents, then as answers are compared."""
    return normalize_answer(_JOINT.sub(" ", _POSSESSIVE.sub("", _TAG.sub(" ", _without_accents(text)))))


def _without_accents(text: str) -> str:
    return "".join(each for each in unicodedata.normalize("NFKD", text) if not unicodedata.combining(each))


def _may_be(title: str, answer: str) -> bool:
    """Whether a title may name an answer: one stands in the other as whole words, the answer's letters in the
    title's whatever stands between them, or the title's last word, of a person the surname, in the answer."""
    name = _DISAMBIGUATION.sub("", title)
    for normal in (normalize_answer, _normal):
        gold, short = normal(answer), normal(name)
        within = [(gold, normal(title)), (normal(title), gold), (short, gold), (short.rpartition(" ")[2], gold)]
        if any(_stands_in(f" {whole} ", part) for part, whole in within if part):
            return True
    letters = _letters(answer)
    return letters == _letters(name) != "" or (len(letters) >= LETTERS and letters in _letters(title))


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, _without_accents(text).casefold()))


def sub_questions(reply: str) -> tuple[str, ...]:
    """The sub-questions in a reply, in order; those that are too long or copied from the instructions are left out."""
    said = dict.fromkeys(" ".join(each.split()) for each in tagged("subquestion", reply))
    kept = [each for each in said if 0 < len(each) <= SUB_QUESTION_CHARS and each.casefold() not in _COPIED]
    return tuple(kept[:SUB_QUESTIONS])


_COPIED = PLACEHOLDERS | {"what to look up"}


def names_unseen(said: str, state: State) -> bool:
    """Whether a reply names something that the state's path has not shown: a word with a capital or a digit, or in the
    query any word of a gold title or gold answer.

    Words in a row are one name, or several if each but one of two neighbours has more words: the words of a name that
    stand apart do not make it seen. A common word that begins a sentence is not taken for a name.

    Cannot see a name without a capital, or in a script without capitals, that stands outside the query, is spelled
    unlike the gold title and answers, or is in none of them; nor one whose words were all shown elsewhere.
    """
    said, seen = _without_accents(said), shown_in(state)
    return any(not _is_seen(name, seen) for name in _names(said)) or _guesses(said, state.question, seen)


def _guesses(said: str, question: Question, seen: str) -> bool:
    """Whether a query has a word of a gold title or gold answer that was not shown."""
    query = f" {' | '.join(map(_normal, tagged('query', said)))} "
    gold = [*(_DISAMBIGUATION.sub("", each) for each in question.gold_titles), *question.golden_answers]
    words = {word for each in gold for word in _normal(each).split()} - _OPENERS
    return any(_stands_in(query, word) and not _stands_in(seen, word) for word in words)


def _stands_in(text: str, word: str) -> bool:
    """As a whole word; anywhere in scripts without capitals, many of which put no blanks between words."""
    return f" {word} " in text or (word.lower() == word.upper() and not word.isascii() and word in text)


def _names(said: str) -> Iterator[list[str]]:
    """Runs of words with a capital or a digit, normalised."""
    for sentence in _SENTENCE.split(_JOINT.sub(" ", _POSSESSIVE.sub("", _TAG.sub("\x00", said)))):
        run: list[str] = []
        ends = 0
        for number, word in enumerate(_WORD.finditer(sentence)):
            text = word[0]
            named = any(each.isupper() or each.isdigit() for each in text)
            if named and number == 0 and text.casefold() in _OPENERS:
                named = False
            if run and (not named or sentence[ends : word.start()].strip()):
                yield run
                run = []
            if named and (normal := normalize_answer(text)):
                run.append(normal)
            ends = word.end()
        if run:
            yield run


def _is_seen(run: Sequence[str], seen: str) -> bool:
    """Whether the words of a run stand there: whole, or cut into names of which no two neighbours are single words."""
    start, single_before = 0, False
    while start < len(run):
        for end in range(len(run), start, -1):
            if f" {' '.join(run[start:end])} " in seen:
                break
        else:
            return False
        single = end - start == 1
        if single and single_before:
            return False
        start, single_before = end, single
    return True
