"""What a step brings to light, and which queries are one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preference import ActionType
from reasonrag.agent.agent import AgentStep, State
from reasonrag.data.corpus import Passage
from reasonrag.data.questions import Question
from reasonrag.exploration.findings import gold_found, progress, same_step

FRANCE = Passage("1", "France", "France is a country. Its capital is Paris.", 2.0)
PARIS = Passage("2", "Paris", "Paris lies on the Seine.", 1.0)
ROME = Passage("3", "Rome", "Rome lies on the Tiber.", 0.5)
WITH_GOLD = Question(
    id="q1", question="On which river?", golden_answers=["Seine"], metadata={"gold_titles": ["France", "Paris"]}
)
WITHOUT = WITH_GOLD.model_copy(update={"metadata": {}})


def step(action_type: ActionType | None, content: str | None, *, state: State, **fields: Any) -> AgentStep:
    return AgentStep(state, (), f"<{action_type}>{content}", action_type, content, action_type == "answer", **fields)


def reading(*passages: Passage, question: Question = WITH_GOLD, before: tuple[str, ...] = ()) -> State:
    return State(question, "read", 1, ("<query>",), passages, passages, before)


def thinking(*read: Passage, question: Question = WITH_GOLD) -> State:
    return State(question, "think", 0, (), (), read)


@pytest.mark.parametrize(
    ("shown", "read", "expected"),
    [
        ((FRANCE, ROME), (), 0.25),  # one of two gold passages, shown and not yet reported
        ((FRANCE, PARIS), (), 0.5),
        ((ROME,), (), 0.0),
        ((FRANCE,), (FRANCE,), 0.0),  # not new
    ],
)
def test_a_query_has_half_of_what_its_passages_hold(
    *, shown: tuple[Passage, ...], read: tuple[Passage, ...], expected: float
) -> None:
    """The other half comes with the evidence."""
    asked = step("query", "France", state=thinking(*read))
    assert progress(WITH_GOLD, asked, reading(*shown)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("evidence", "before", "expected"),
    [
        ("Its capital is Paris.", (), 0.5),
        ("Its capital is Paris. Paris lies on the Seine.", (), 1.0),
        ("None", (), 0.0),
        ("Rome lies on the Tiber.", (), 0.0),
        ("Its capital is Paris.", ("Its capital is Paris.",), 0.0),  # said before
    ],
)
def test_evidence_has_the_gold_passages_that_it_newly_reports(
    evidence: str, before: tuple[str, ...], expected: float
) -> None:
    """As a share of all."""
    said = step("evidence", evidence, state=reading(FRANCE, PARIS, ROME, before=before))
    assert progress(WITH_GOLD, said, None) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("shown", "evidence", "of_query", "of_evidence"),
    [(PARIS, "Paris lies on the Seine.", 0.25, 0.5), (ROME, "Rome lies on the Tiber.", 0.0, 0.0)],
)
def test_without_gold_passages_a_gold_answer_that_is_held_is_one_of_two_findings(
    shown: Passage, evidence: str, of_query: float, of_evidence: float
) -> None:
    """A question that needs a search at all is taken to need two facts."""
    state = reading(shown, question=WITHOUT)
    assert progress(WITHOUT, step("query", "river", state=thinking(question=WITHOUT)), state) == of_query
    assert progress(WITHOUT, step("evidence", evidence, state=state), None) == of_evidence


@pytest.mark.parametrize(
    ("question", "asked", "after"),
    [
        (WITH_GOLD, step("answer", "Seine", state=thinking()), None),
        (WITH_GOLD, step("query", "France", state=thinking()), None),  # not searched
        (WITH_GOLD, step("query", "France", state=thinking()), State(WITH_GOLD, "conclude", 6)),
        (
            WITHOUT.model_copy(update={"golden_answers": ["yes"]}),
            step("evidence", "Yes.", state=reading(PARIS)),
            None,
        ),
    ],
)
def test_where_nothing_tells_progress_is_unknown(question: Question, asked: AgentStep, after: State | None) -> None:
    """Answers, queries that were never searched, and yes or no without gold passages."""
    assert progress(question, asked, after) is None


@given(st.lists(st.sampled_from([FRANCE, PARIS, ROME]), unique=True), st.text(max_size=30))
def test_progress_is_a_share(shown: list[Passage], evidence: str) -> None:
    """From 0 to 1, whatever is read and said; and it agrees with the count of gold passages where nothing was read."""
    state = reading(*shown)
    query, said = step("query", "q", state=thinking()), step("evidence", evidence, state=state)
    for asked, after in ((query, state), (said, None)):
        found = progress(WITH_GOLD, asked, after)
        assert found is not None
        assert 0 <= found <= 1
        assert (found > 0) == bool(gold_found(WITH_GOLD, asked, after))


def test_two_queries_that_show_the_same_passages_are_one() -> None:
    """In one order: a reader may prefer the first. Evidence and answers are compared by what they say alone."""
    one, other = (step("query", said, state=thinking()) for said in ("capital of France", "Gaul"))
    assert same_step(one, other, reading(FRANCE, PARIS), reading(FRANCE, PARIS))
    assert not same_step(one, other, reading(FRANCE, PARIS), reading(PARIS, FRANCE))
    assert not same_step(one, other, None, reading(FRANCE, PARIS))
    assert same_step(one, replace(other, content="Capital of France"), None, None)
    last = State(WITH_GOLD, "conclude", 6)
    assert not same_step(one, other, last, last)
