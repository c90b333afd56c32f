"""The sub-questions of a question, with their answers and the passages that hold these.

Reads MuSiQue's form, whose questions come with their paragraphs, and `metadata.question_decomposition` over a corpus.
Decides which passages a step is shown, and why a question cannot be used. Knows no agent and no model.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from preference.answer_scores import VERDICTS, comparable, label_em
from preference.filters import seeded_uniform
from reasonrag.agent.support import SHORTEST_ALIAS, is_supported
from reasonrag.data.corpus import Corpus, Passage, scan_corpus
from reasonrag.data.dataset_fields import joined
from reasonrag.data.questions import Question
from reasonrag.retrieval.passage_length import cut

FIELD = "question_decomposition"
FORM = (
    f"{FIELD}, a list of {{question, answer, paragraph_support_idx}} beside paragraphs, as MuSiQue has it, or "
    f"metadata.{FIELD}, a list of {{question, answer, support_id}}, with --corpus"
)
AROUND = 20
"""Passages before and after the supporting one in a corpus, among which the others are drawn: a corpus that was made of
questions' paragraphs keeps those of a question together."""
_REFERENCE = re.compile(r"#(\d{1,3})\b")
Cause = Literal[
    "no_decomposition", "malformed", "no_such_step", "cycle", "no_passage", "answer_not_in_passage", "too_many_steps",
    "unreadable", "counts_differ", "repeated_query", "later_answer", "no_step",
]  # fmt: skip
CAUSES: tuple[Cause, ...] = get_args(Cause)
"""Why a question gives no rows; docs/reference/formats/warm-up.md says what each means."""


class LeftOut(Exception):
    def __init__(self, cause: Cause, message: str) -> None:
        super().__init__(message)
        self.cause = cause


class SubQuestion(NamedTuple):
    """question: with earlier answers in place of their numbers. names: the answer, then its aliases. shown: the passage
    that holds the answer among others, as a search would show them."""

    question: str
    names: tuple[str, ...]
    shown: tuple[Passage, ...]

    @property
    def answer(self) -> str:
        return self.names[0]


def names(text: str, answer: Iterable[str]) -> bool:
    """Whether a text has an answer, by one of its names, in any case or form of a date, a number or a person's name. A
    yes or no is in no text."""
    return any(is_supported("", each, [text]) is True for each in answer)


class Passages:
    """The passages of a corpus that sub-questions refer to; without a corpus there are only those of the questions.

    most: characters of a passage's text; None: all of them.
    """

    identity = "decompositions"

    def __init__(self, corpus: Path | None, questions: Iterable[Question], most: int | None = None) -> None:
        self._rows, self._most = dict[str, int](), most
        wanted = {str(step["support_id"]) for each in questions for step in _steps(each) if "support_id" in step}
        if corpus and wanted:
            scan = scan_corpus(corpus)
            self.identity += f":{scan.sha256[:16]}"
            self._corpus = Corpus(corpus, scan.offsets)
            self._rows = {each.id: row for row, each in enumerate(self._corpus) if each.id in wanted}

    def of(self, question: Question, step: Mapping[str, Any]) -> tuple[Passage | None, list[Passage]]:
        """The supporting passage, and others that do not support another step."""
        given, index = question.metadata.get("paragraphs"), step.get("paragraph_support_idx")
        if isinstance(given, list):
            near = [(each, _paragraph(question, each)) for each in given if isinstance(each, dict)]
            held = [passage for each, passage in near if index is not None and each.get("idx") == index]
            supporting = {each.get("paragraph_support_idx") for each in _steps(question)}
            others = [passage for each, passage in near if each.get("idx") not in supporting]
            return next(iter(held), None), others
        row = self._rows.get(str(step.get("support_id")))
        if row is None:
            return None, []
        there = self._corpus.read(max(0, row - AROUND), min(len(self._corpus), row + AROUND + 1))
        used = {str(each.get("support_id")) for each in _steps(question)}
        return self._corpus[row], [each for each in there if each.id not in used]

    def sub_questions(self, question: Question, top_k: int, seed: int, most: int) -> list[SubQuestion]:
        """At most so many. Raises LeftOut."""
        steps, found = list(_steps(question)), list[SubQuestion]()
        if not steps:
            raise LeftOut("no_decomposition", f"it has no {FORM}")
        if len(steps) > most:
            raise LeftOut("too_many_steps", f"{len(steps)} sub-questions, and --max-steps has room for {most}")
        for number, step in enumerate(steps, start=1):
            where = f"sub-question {number} of {len(steps)}"
            asked, answer = (joined(step.get(name)) for name in ("question", "answer"))
            if not (asked and answer):
                raise LeftOut("malformed", f"{where} has no text as its question or as its answer")
            for other in map(int, _REFERENCE.findall(asked)):
                if not 0 < other <= len(steps):
                    raise LeftOut("no_such_step", f"{where} refers to #{other}, which is not there")
                if other >= number:
                    raise LeftOut("cycle", f"{where} refers to #{other}, which does not come before it")
            whole = _REFERENCE.sub(lambda other: found[int(other[1]) - 1].answer, asked)
            called = (answer, *(_aliases(question) if label_em(answer, question.golden_answers) else ()))
            held, others = self.of(question, step)
            if held is None:
                raise LeftOut("no_passage", f"{where} names no passage that is there: it needs {FORM}")
            held, *others = [self._cut(each) for each in (held, *others)]
            if comparable(answer) not in VERDICTS and not names(f"{held.title}. {held.text}", called):
                raise LeftOut("answer_not_in_passage", f"{where}: its answer {answer!r} is not in {held.title!r}")

            def lot(passage: Passage, of: str, place: int = number) -> float:
                return seeded_uniform(f"{of}:{question.id}:{place}:{passage.id}", seed=seed)

            drawn = [held, *sorted(others, key=lambda each: lot(each, "drawn"))[: top_k - 1]]
            shown = tuple(sorted(drawn, key=lambda each: lot(each, "shown")))
            found.append(SubQuestion(whole, called, shown))
        return found

    def _cut(self, passage: Passage) -> Passage:
        return passage if self._most is None else replace(passage, text=cut(passage.text, self._most))


def later_answer(question: Question, subs: list[SubQuestion], said: Iterable[tuple[str, str]]) -> str | None:
    """The first step whose thought or search has an answer that comes later, in words; None without one.

    said: thought and content of the 2n + 1 steps. What stands in the question, in earlier steps or in what a step
    reports is known.
    """
    due = [(2 * number, each.names) for number, each in enumerate(subs, start=1)]
    if gold_is_apart(question, subs):
        due.append((2 * len(subs) + 1, tuple(_aliases(question))))
    known = question.question
    for number, (thought, content) in enumerate(said, start=1):
        new = f"{thought}\n{content}"
        known += f"\n{content}" if number % 2 == 0 else ""
        for place, called in due:
            if place > number and names(new, called) and not names(known, called):
                return f"step {number} of {2 * len(subs) + 1} has the answer of step {place}, {called[0]!r}"
        known += f"\n{new}"
    return None


def gold_is_apart(question: Question, subs: Iterable[SubQuestion]) -> bool:
    """Whether no sub-question's answer is a gold answer."""
    return not any(label_em(each.answer, question.golden_answers) for each in subs)


def _aliases(question: Question) -> list[str]:
    """The gold answers, but for abbreviations that are words as well: `it` for Italian, `us`."""
    return [each for each in question.golden_answers if len(comparable(each)) >= SHORTEST_ALIAS or each.isdigit()]


def _steps(question: Question) -> Iterator[dict[str, Any]]:
    given = question.metadata.get(FIELD)
    yield from (each if isinstance(each, dict) else {} for each in (given if isinstance(given, list) else ()))


def _paragraph(question: Question, given: Mapping[str, Any]) -> Passage:
    return Passage(f"{question.id}:{given.get('idx')}", joined(given.get("title")), joined(given.get("paragraph_text")))
