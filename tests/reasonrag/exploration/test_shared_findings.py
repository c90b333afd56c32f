"""What a step brings to light, and which queries are one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from preference import ActionType
from reasonrag.agent.agent import AgentStep
from reasonrag.agent.state import State
from reasonrag.data.corpus import Passage
from reasonrag.data.questions import Question
from reasonrag.exploration.shared_findings import Useful, in_common, progress, rested_on, same_step

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
        (WITHOUT.model_copy(update={"golden_answers": ["yes"]}), step("evidence", "Yes.", state=reading(PARIS)), None),
    ],
)
def test_where_nothing_tells_progress_is_unknown(question: Question, asked: AgentStep, after: State | None) -> None:
    """Answers, queries that were never searched, and yes or no without gold passages."""
    assert progress(question, asked, after) is None


def test_two_queries_that_show_the_same_passages_are_one() -> None:
    """In one order: a reader may prefer the first; without ids, by their text. Evidence and answers are compared by
    what they say alone."""
    one, other = (step("query", said, state=thinking()) for said in ("capital of France", "Gaul"))
    assert same_step(one, other, reading(FRANCE, PARIS), reading(FRANCE, PARIS))
    assert not same_step(one, other, reading(FRANCE, PARIS), reading(PARIS, FRANCE))
    assert not same_step(one, other, None, reading(FRANCE, PARIS))
    france, paris = (replace(each, id="") for each in (FRANCE, PARIS))
    assert same_step(one, other, reading(france), reading(france))
    assert not same_step(one, other, reading(france), reading(paris))
    assert same_step(one, other._replace(content="Capital of France"), None, None)
    last = State(WITH_GOLD, "conclude", 6)
    assert not same_step(one, other, last, last)


# -- what siblings have in common ---------------------------------------------------------------------------------

OSLO = Passage("4", "Oslo", "Oslo lies on a fjord.", 0.4)
GOLD, UNKNOWN = Useful(WITH_GOLD.gold), Useful(None)
RESTED = Useful(None, frozenset((each.title, each.text) for each in (FRANCE, PARIS)))
MANY = [Passage(str(number), f"Town {number}", "A town.") for number in range(50)]
NO_IDS = [replace(each, id="") for each in (FRANCE, PARIS, ROME, OSLO)]
ONE_ID = [replace(each, id="doc") for each in (FRANCE, PARIS)]
CAPITAL, COUNTRY, SEINE, TIBER = (
    "Its capital is Paris.",
    "France is a country.",
    "Paris lies on the Seine.",
    "Rome lies on the Tiber.",
)


@pytest.mark.parametrize(
    ("shown", "other", "reported", "of", "share"),
    [
        # one half, and half of the overlap of all that they show
        pytest.param([FRANCE, ROME], [FRANCE, OSLO], (), GOLD, 2 / 3, id="one gold passage beside other passages"),
        pytest.param([FRANCE, ROME], [ROME, FRANCE], (), GOLD, 1.0, id="the same passages in another order"),
        pytest.param([FRANCE, ROME], [PARIS, ROME], (), GOLD, 0.0, id="another gold passage"),
        pytest.param([FRANCE, PARIS], [FRANCE, ROME], (SEINE,), GOLD, 2 / 3, id="more, but reported before"),
        pytest.param([FRANCE, PARIS], [ROME], (SEINE, CAPITAL), GOLD, 0.5, id="only what was reported before"),
        pytest.param([FRANCE], [PARIS], (TIBER,), GOLD, 0.0, id="evidence that reported no gold passage"),
        pytest.param(
            [ROME, OSLO, MANY[0]], [ROME, OSLO, MANY[1]], (), GOLD, 0.75, id="none, and half of them the same"
        ),
        pytest.param([ROME, OSLO], [OSLO, FRANCE], (), GOLD, 0.0, id="a gold passage in one of them"),
        pytest.param([], [], (), GOLD, 1.0, id="nothing in either"),
        pytest.param([FRANCE, ROME], [FRANCE, OSLO], (), RESTED, 2 / 3, id="one passage that right answers rest on"),
        pytest.param([FRANCE, PARIS, ROME], [FRANCE, PARIS, OSLO], (), UNKNOWN, 0.5, id="half of all passages"),
        pytest.param(MANY[:37], MANY[12:49], (), UNKNOWN, 25 / 49, id="25 of 49 passages"),
        pytest.param([], [], (), UNKNOWN, 0.0, id="no passages, of unknown use"),
        pytest.param(NO_IDS[::2], NO_IDS[::3], (), GOLD, 2 / 3, id="one gold title without ids"),
        pytest.param([ONE_ID[0]], [ONE_ID[1]], (), UNKNOWN, 0.0, id="a server that gives all passages one id"),
    ],
)
def test_two_queries_have_in_common_what_they_newly_show(
    shown: list[Passage], other: list[Passage], reported: tuple[str, ...], of: Useful, share: float
) -> None:
    """Whichever came first. Nothing, where one was not searched or ends the path."""
    state = thinking(FRANCE, PARIS, ROME)._replace(evidence=reported)
    one, two = (step("query", said, state=state) for said in ("capital of France", "Gaul"))
    after, also = (reading(*each)._replace(read=(*state.read, *each), evidence=reported) for each in (shown, other))
    assert in_common(one, two, after, also, of) == in_common(two, one, also, after, of) == pytest.approx(share)
    for unknown in (None, State(WITH_GOLD, "conclude", 6)):
        assert in_common(one, two, after, unknown, of) == in_common(one, two, unknown, also, of) == 0


@pytest.mark.parametrize(
    ("said", "other", "before", "of", "share"),
    [
        pytest.param(CAPITAL, "France: its capital is Paris.", (), GOLD, 0.5, id="a title in front"),
        pytest.param(CAPITAL, f"{SEINE} {CAPITAL}", (), GOLD, 0.0, id="a sentence of another gold passage more"),
        pytest.param(CAPITAL, f"{SEINE} {CAPITAL}", (SEINE,), GOLD, 0.75, id="that sentence more, reported before"),
        pytest.param(CAPITAL, f"{TIBER} {CAPITAL}", (), GOLD, 0.75, id="a sentence more of no gold passage"),
        pytest.param(CAPITAL, "Its capital is.", (), GOLD, 0.0, id="a sentence, and its beginning without the fact"),
        pytest.param("Paris lies.", SEINE, (), UNKNOWN, 0.0, id="a beginning without the fact, of unknown use"),
        pytest.param(CAPITAL, COUNTRY, (), GOLD, 0.0, id="two sentences of one gold passage"),
        pytest.param(CAPITAL, f"{COUNTRY} {CAPITAL}", (COUNTRY,), GOLD, 0.75, id="both, the other reported before"),
        pytest.param("None", "The French capital city is Paris.", (), GOLD, 0.0, id="none, and a fact in other words"),
        pytest.param("None", TIBER, (), UNKNOWN, 0.0, id="none, and a sentence of unknown use"),
        pytest.param("None", CAPITAL, (), GOLD, 0.0, id="none, and a sentence of a gold passage"),
        pytest.param(CAPITAL, TIBER, (CAPITAL,), GOLD, 0.5, id="what was reported before, and nothing"),
        pytest.param(CAPITAL, f"{TIBER} {CAPITAL}", (), UNKNOWN, 0.0, id="a sentence more, of unknown use"),
        pytest.param("", CAPITAL, (), UNKNOWN, 0.0, id="empty evidence"),
    ],
)
def test_two_pieces_of_evidence_have_in_common_what_they_newly_report(
    said: str, other: str, before: tuple[str, ...], of: Useful, share: float
) -> None:
    """Whichever came first; and nothing with a query, an answer, or a step that failed."""
    state = reading(FRANCE, PARIS, ROME, before=before)
    one, two = (step("evidence", each, state=state) for each in (said, other))
    assert in_common(one, two, None, None, of) == in_common(two, one, None, None, of) == pytest.approx(share)
    for action_type in ("query", "answer", None):
        stranger = step(action_type, said, state=state)
        assert in_common(one, stranger, None, None, of) == in_common(stranger, stranger, None, None, of) == 0


def right(*evidence: str) -> State:
    return thinking(FRANCE, PARIS, ROME, *NO_IDS)._replace(evidence=evidence)


@pytest.mark.parametrize(
    ("answers", "ids"),
    [
        pytest.param([right(CAPITAL), right(CAPITAL, SEINE)], {"1", "2"}, id="every passage reported from"),
        pytest.param([*[right(CAPITAL)] * 2, right(CAPITAL, TIBER)], {"1", "3"}, id="from one by a third of them"),
        pytest.param([*[right(CAPITAL)] * 3, right(CAPITAL, TIBER)], {"1"}, id="from one by a fourth of them"),
        pytest.param([], None, id="no right answers"),
    ],
)
def test_right_answers_rest_on_what_a_third_of_them_reported(answers: list[State], ids: set[str] | None) -> None:
    """By their contents, with ids or without."""
    contents = {each.id: (each.title, each.text) for each in (FRANCE, PARIS, ROME)}
    assert rested_on(answers) == (None if ids is None else {contents[each] for each in ids})
