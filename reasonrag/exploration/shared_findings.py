"""What a step brings to light: gold passages that a query finds or evidence reports; without gold passages, a passage
or evidence that holds a gold answer. And how much of that two siblings have in common.

Decides a step's `progress`, which only guides the search: it changes no outcome, no label and no prompt. Decides which
siblings reveal the same: their continuations are counted together. String match; uses no model. Does not know trees.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeGuard

from preference.answer_scores import VERDICTS, comparable
from preference.similarity import equivalent_steps, jaccard, overlap
from reasonrag.agent.agent import AgentStep
from reasonrag.agent.state import State
from reasonrag.agent.support import SENTENCE_END, is_in_evidence, reports
from reasonrag.data.corpus import Passage
from reasonrag.data.gold_passages import GoldPassages
from reasonrag.data.questions import Question

SHOWN = 0.5
"""Of a finding that is in the passages shown; the other half comes with the evidence that reports it."""
FACTS = 2
"""Findings that an answer is taken to need where no gold passages are known: the least of a multi-hop question."""


def same_step(step: AgentStep, other: AgentStep, after: State | None, after_other: State | None) -> bool:
    """Whether two siblings say the same, or are queries that show the agent the same passages. after: the states they
    lead to, where those are known."""
    if equivalent_steps(step, other):
        return True
    return _reads(after) and _reads(after_other) and _keys(after.passages) == _keys(after_other.passages)


def in_common(step: AgentStep, other: AgentStep, after: State | None, after_other: State | None, of: Useful) -> float:
    """The share, in [0, 1], of what two siblings reveal that they have in common; 0 where they reveal different things,
    else at least one half.

    Two queries reveal the same if they show the same of the useful passages that no evidence has reported yet, or none
    of these; where it is not known which are useful, if half of all that they show is the same. Two pieces of evidence
    reveal the same if their new sentences from useful passages are the same; where none are known, all new ones. Of
    steps that reveal the same useful things, the other half of the share is the overlap of all that they show or say.
    after: the states that queries lead to, where those are known. of: the useful passages.
    """
    if step.action_type == other.action_type == "evidence":
        said, also = _sentences(step.content), _sentences(other.content)
        news = of.news(step)
        if news is None or news != of.news(other):
            return 0.0
        return (1 + jaccard(said, also)) / 2 if of.known or (said and also) else 0.0
    if not _reads(after) or not _reads(after_other):
        return 0.0
    shown, by_other = frozenset(_keys(after.passages)), frozenset(_keys(after_other.passages))
    if not of.known:
        return overlap(shown, by_other)
    return (1 + jaccard(shown, by_other)) / 2 if of.unreported(after) == of.unreported(after_other) else 0.0


def _reads(after: State | None) -> TypeGuard[State]:
    return after is not None and after.reads


def _told(passages: Iterable[Passage], evidence: Sequence[str]) -> list[tuple[str, str]]:
    """The contents of passages from which some evidence reports."""
    return _keys(each for each in passages if any(reports(said, each) for said in evidence))


def _keys(passages: Iterable[Passage]) -> list[tuple[str, str]]:
    return [(each.title, each.text) for each in passages]


@lru_cache(maxsize=4096)
def _sentences(evidence: str | None) -> frozenset[str]:
    return frozenset(map(comparable, SENTENCE_END.split(evidence or ""))) - {"", "none"}


@dataclass(frozen=True)
class Useful:
    """The passages that right answers rest on: gold passages where these are known, else by contents; None: unknown."""

    gold: GoldPassages | None
    contents: frozenset[tuple[str, str]] | None = None

    @property
    def known(self) -> bool:
        return self.gold is not None or self.contents is not None

    def has(self, passage: Passage) -> bool:
        return self.gold.has(passage) if self.gold else (passage.title, passage.text) in (self.contents or ())

    def among(self, passages: Iterable[Passage]) -> frozenset[tuple[str, str]]:
        return frozenset(_keys(filter(self.has, passages)))

    def unreported(self, state: State) -> frozenset[tuple[str, str]]:
        """Those that a read turn shows and from which no evidence before it reports."""
        return self.among(state.passages).difference(_told(filter(self.has, state.read), state.evidence))

    def news(self, step: AgentStep) -> frozenset[str] | None:
        """The sentences of evidence that no earlier evidence holds, without titles in front of them; from useful
        passages where these are known. None if one is in no passage: in other words it may say anything."""
        before = [each for said in step.state.evidence for each in _sentences(said)]
        found = set()
        for each in _sentences(step.content):
            places = [passage for passage in step.state.passages if reports(each, passage)]
            if not places:
                return None
            if not any(each in said for said in before) and (not self.known or any(map(self.has, places))):
                found.add(each.removeprefix(comparable(places[0].title)).strip())
        return frozenset(found - {""})


def rested_on(answers: Sequence[State]) -> frozenset[tuple[str, str]] | None:
    """Contents of the passages that right answers rest on: those from which evidence reports before at least a third of
    them; None without any.

    answers: the states in which right answers were given. Measured with a teacher that knows the gold passages: a
    third of them names nearly the same passages as useful; one of them also names what was read by mistake.
    """
    found = Counter(each for state in answers for each in set(_told(state.read, state.evidence)))
    useful = frozenset(each for each, count in found.items() if 3 * count >= len(answers))
    return useful or None


def progress(question: Question, step: AgentStep, after: State | None, *, at_once: bool = False) -> float | None:
    """Share of what an answer needs that a step newly brings to light, in [0, 1]; None for answers, where it is
    unknown, and where neither gold passages nor a gold answer other than yes and no are known.

    after: the state a query leads to. at_once: whether no evidence is reported, so that what is shown is all there is.
    """
    needed = len(question.gold.keys) if question.gold else FACTS if _names(question) else 0
    found = _revealed(question, step, after)
    if step.parse_error or not needed or found is None:
        return None
    if step.action_type == "evidence":
        before = {each for said in step.state.evidence for each in _reported(question, said, step.state.read)}
        return len(found - before) / needed
    return (1.0 if at_once else SHOWN) * len(found) / needed


def gold_found(question: Question, step: AgentStep, after: State | None) -> int | None:
    """How many gold passages a query finds first on its path, or evidence reports; None where that is unknown."""
    found = _revealed(question, step, after) if question.gold else None
    return None if found is None else len(found)


def _names(question: Question) -> list[str]:
    """The gold answers that passages can hold."""
    return [each for each in question.golden_answers if comparable(each) not in (*VERDICTS, "")]


def _revealed(question: Question, step: AgentStep, after: State | None) -> frozenset[str] | None:
    """What evidence reports, or a query shows first on its path; None if it is neither, or it is not known where it
    leads."""
    if step.action_type == "evidence":
        return _reported(question, step.content or "", step.state.passages)
    if step.action_type != "query" or not _reads(after):
        return None
    return _shown(question, after.passages) - _shown(question, step.state.read)


def _shown(question: Question, passages: Sequence[Passage]) -> frozenset[str]:
    if question.gold:
        return question.gold.found_in(passages)
    return _holding(question, (f"{each.title} {each.text}" for each in passages))


def _reported(question: Question, evidence: str, passages: Sequence[Passage]) -> frozenset[str]:
    if question.gold:
        return question.gold.found_in(each for each in filter(question.gold.has, passages) if reports(evidence, each))
    return _holding(question, [evidence])


def _holding(question: Question, texts: Iterable[str]) -> frozenset[str]:
    said = list(texts)
    return frozenset({"answer"} if any(is_in_evidence(each, said) for each in _names(question)) else ())
