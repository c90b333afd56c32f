"""The sub-questions of a question, with their answers and the passages that hold these.

Reads MuSiQue's form, whose questions come with their paragraphs, and `metadata.question_decomposition` over a corpus.
Decides which passages a step is shown, and why a question cannot be used. Knows no agent and no model.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from preference.answer_scores import VERDICTS, comparable, label_em
from preference.stratified_sample import seeded_uniform
from reasonrag.agent.support import SHORTEST_ALIAS, as_words, is_supported
from reasonrag.curation.left_out import needed
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


class SubQuestion(NamedTuple):
    """question: with earlier answers in place of their numbers. names: the answer, then its aliases. shown: the passage
    that holds the answer among others, as a search would show them."""

    question: str
    names: tuple[str, ...]
    shown: tuple[Passage, ...]


def names(text: str, answer: Iterable[str]) -> bool:
    """Whether a text has an answer, by one of its names, in any case or form of a date, a number or a person's name; a
    name of a letter or two as it is written. A yes or no is in no text."""

    def has(name: str) -> bool:
        plain = comparable(name)
        if plain in VERDICTS or not plain:
            return False
        if len(plain) < SHORTEST_ALIAS and not plain.isdigit():  # `us` is no country
            return bool(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text))
        return is_supported("", name, [text]) is True or as_words(name) in as_words(text)

    return any(map(has, answer))


class Passages:
    """The passages that sub-questions refer to: those of a question, else of a corpus. most: characters of a text."""

    identity = "decompositions"

    def __init__(self, corpus: Path | None, questions: Iterable[Question], most: int | None = None) -> None:
        self._rows, self._most = dict[str, int](), most
        self._place = f"among the paragraphs{' or in the corpus' if corpus else '; one of a corpus needs --corpus'}"
        wanted = {str(step["support_id"]) for each in questions for step in _steps(each) if "support_id" in step}
        if corpus and wanted:
            scan = scan_corpus(corpus)
            self.identity += f":{scan.sha256[:16]}"
            self._corpus = Corpus(corpus, scan.offsets)
            self._rows = {each.id: row for row, each in enumerate(self._corpus) if each.id in wanted}

    def _of(self, question: Question, step: Mapping[str, Any]) -> tuple[Passage | None, list[Passage]]:
        """The supporting passage, and others that do not support another step."""
        given = question.metadata.get("paragraphs")
        name = "paragraph_support_idx" if isinstance(given, list) else "support_id"
        near, key = dict[str, Passage](), str(step.get(name))
        if isinstance(given, list):
            whole = [each for each in given if isinstance(each, dict) and each.get("idx") is not None]
            for each in whole:
                title, text = joined(each.get("title")), joined(each.get("paragraph_text"))
                near[str(each["idx"])] = Passage(f"{question.id}:{each['idx']}", title, text)
        elif key in self._rows:
            start, end = max(0, self._rows[key] - AROUND), min(len(self._corpus), self._rows[key] + AROUND + 1)
            near = {each.id: each for each in self._corpus.read(start, end)}
        if self._most is not None:
            near = {place: replace(each, text=cut(each.text, self._most)) for place, each in near.items()}
        used = {str(each.get(name)) for each in _steps(question)}
        return near.get(key), [each for place, each in near.items() if place not in used]

    def sub_questions(self, question: Question, top_k: int, seed: int, most: int) -> list[SubQuestion]:
        """At most so many. Raises LeftOut."""
        found, steps = list[SubQuestion](), needed(_steps(question), "no_decomposition", f"it has no {FORM}")
        count, aliases = len(steps), _aliases(question)
        needed(count <= most, "too_many_steps", f"{count} sub-questions, and --max-steps has room for {most}")
        for number, step in enumerate(steps, start=1):
            where = f"sub-question {number} of {count}"
            asked, answer = joined(step.get("question")), joined(step.get("answer"))
            needed(asked and answer, "malformed", f"{where} has no text as its question or as its answer")
            for other in map(int, _REFERENCE.findall(asked)):
                needed(0 < other <= count, "no_such_step", f"{where} refers to #{other}, which is not there")
                needed(other < number, "cycle", f"{where} refers to #{other}, which does not come before it")
            whole = _REFERENCE.sub(lambda other: found[int(other[1]) - 1].names[0], asked)
            called = (answer, *(aliases if label_em(answer, question.golden_answers) else ()))
            there, others = self._of(question, step)
            key = step.get("paragraph_support_idx", step.get("support_id"))
            held = needed(there, "no_passage", f"{where}: its passage {key!r} is not {self._place}")
            told = comparable(answer) in VERDICTS or names(f"{held.title}. {held.text}", called)
            needed(told, "answer_not_in_passage", f"{where}: its answer {answer!r} is not in {held.title!r}")
            found.append(SubQuestion(whole, called, _drawn(held, others, top_k, f"{question.id}:{number}", seed)))
        return found


def _drawn(held: Passage, others: Iterable[Passage], top_k: int, step: str, seed: int) -> tuple[Passage, ...]:
    def by_lot(passages: Iterable[Passage], of: str) -> list[Passage]:
        return sorted(passages, key=lambda each: seeded_uniform(f"{of}:{step}:{each.id}", seed=seed))

    return tuple(by_lot([held, *by_lot(others, "drawn")[: top_k - 1]], "shown"))


def refuse_later_answers(question: Question, subs: list[SubQuestion], told: Iterable[tuple[str, str, str]]) -> None:
    """Raises LeftOut for a thought or search with an answer that comes later. told: kind, content and thought of the
    2n + 1 steps. What stands in the question, in earlier steps or in what a step reports is known."""
    due = [(2 * number, each.names) for number, each in enumerate(subs, start=1)]
    due += [(2 * len(subs) + 1, tuple(_aliases(question)))] if gold_is_apart(question, subs) else []
    known = question.question
    for number, (kind, content, thought) in enumerate(told, start=1):
        new = f"{thought}\n{content}"
        known += f"\n{content}" if kind == "evidence" else ""
        for place, called in due:
            early = place > number and names(new, called) and not names(known, called)
            needed(not early, "later_answer", f"step {number} has the answer of step {place}, {', '.join(called[:1])}")
        known += f"\n{new}"


def gold_is_apart(question: Question, subs: Iterable[SubQuestion]) -> bool:
    """Whether no sub-question's answer is a gold answer."""
    return not any(label_em(each.names[0], question.golden_answers) for each in subs)


def _aliases(question: Question) -> list[str]:
    """The gold answers, but for abbreviations that are words as well: `it` for Italian, `us`."""
    return [each for each in question.golden_answers if len(comparable(each)) >= SHORTEST_ALIAS or each.isdigit()]


def _steps(question: Question) -> Sequence[Mapping[str, Any]]:
    given = question.metadata.get(FIELD)
    return [each if isinstance(each, dict) else {} for each in given] if isinstance(given, list) else []
