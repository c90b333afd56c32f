"""What a step brings to light: gold passages that a query finds or evidence reports; without gold passages, a passage
or evidence that holds a gold answer.

Decides a step's `progress`, which only guides the search: it changes no outcome, no label and no prompt. String match;
uses no model. Does not know trees.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from preference import equivalent_steps
from preference.answer_scores import VERDICTS, comparable
from reasonrag.agent.agent import AgentStep, State
from reasonrag.agent.grounding import is_in_evidence, reports
from reasonrag.data.corpus import Passage
from reasonrag.data.questions import Question

SHOWN = 0.5
"""Of a finding that is in the passages shown; the other half comes with the evidence that reports it."""
FACTS = 2
"""Findings that an answer is taken to need where no gold passages are known: the least of a multi-hop question."""
ANSWER = "answer"


def same_step(step: AgentStep, other: AgentStep, after: State | None, after_other: State | None) -> bool:
    """Whether two siblings say the same, or are queries that show the agent the same passages. after: the states they
    lead to, where those are known."""
    if equivalent_steps(step, other):
        return True
    if after is None or after_other is None or not after.action == after_other.action == "read":
        return False
    return [each.id for each in after.passages] == [each.id for each in after_other.passages]


def progress(question: Question, step: AgentStep, after: State | None) -> float | None:
    """Share of what an answer needs that a step newly brings to light, in [0, 1]; None for answers, where it is
    unknown, and where neither gold passages nor a gold answer other than yes and no are known.

    after: the state a query leads to.
    """
    needed = len(question.gold.keys) if question.gold else FACTS if _names(question) else 0
    if step.parse_error or not needed:
        return None
    if step.action_type == "evidence":
        before = {each for said in step.state.evidence for each in _reported(question, said, step.state.read)}
        return len(_reported(question, step.content or "", step.state.passages) - before) / needed
    if step.action_type != "query" or after is None or after.action != "read":
        return None
    return SHOWN * len(_shown(question, after.passages) - _shown(question, step.state.read)) / needed


def facts_missing(question: Question, state: State) -> int:
    """Gold passages from which no evidence on the path reports; at least 1, also where none are known."""
    if question.gold is None:
        return 1
    reported = {each for said in state.evidence for each in _reported(question, said, state.read)}
    return max(1, len(question.gold.keys - reported))


def gold_found(question: Question, step: AgentStep, after: State | None) -> int | None:
    """Number of gold passages that a query found first on its path, or that evidence reports; None where that is
    unknown."""
    if question.gold is None:
        return None
    if step.action_type == "evidence":
        return len(_reported(question, step.content or "", step.state.passages))
    if step.action_type != "query" or after is None or after.action != "read":
        return None
    return len(question.gold.found_in(after.passages) - question.gold.found_in(step.state.read))


def _names(question: Question) -> list[str]:
    """The gold answers that passages can hold."""
    return [each for each in question.golden_answers if comparable(each) not in (*VERDICTS, "")]


def _shown(question: Question, passages: Sequence[Passage]) -> frozenset[str]:
    if question.gold:
        return question.gold.found_in(passages)
    return _holding(question, (f"{each.title} {each.text}" for each in passages))


def _reported(question: Question, evidence: str, passages: Sequence[Passage]) -> frozenset[str]:
    if question.gold:
        return question.gold.found_in(each for each in passages if reports(evidence, each))
    return _holding(question, [evidence])


def _holding(question: Question, texts: Iterable[str]) -> frozenset[str]:
    said = list(texts)
    return frozenset({ANSWER} if any(is_in_evidence(each, said) for each in _names(question)) else ())
