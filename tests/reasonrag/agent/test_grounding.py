"""Whether what a step says is supported by the passages read so far."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preference import ActionType
from reasonrag.agent.support import is_grounded, is_in_evidence, reports
from reasonrag.data.corpus import Passage

PASSAGES = (
    Passage("1", "Paris", "Paris is the capital of France. It lies on the River Seine, and has 2,102,650 inhabitants."),
    Passage("2", "Ada Lovelace", "Lovelace (born 10 December 1815) was a mathematician."),
)


@pytest.mark.parametrize(
    ("content", "grounded"),
    [
        ("Paris", True),
        ("the river seine", True),
        ("2,102,650", True),
        ("2102650", True),
        ("Ada Lovelace", True),
        ("France Paris", False),
        ("Sein", False),
        ("capital mathematician", False),
    ],
)
def test_an_answer_is_grounded_if_a_passage_holds_it_as_whole_words(content: str, *, grounded: bool) -> None:
    """Titles count; case, punctuation and articles do not."""
    assert is_grounded("answer", content, PASSAGES) is grounded


@pytest.mark.parametrize(
    ("content", "grounded"),
    [
        ("Paris is the capital of France.", True),
        ("Paris: It lies on the River Seine", True),
        ("The capital of France is Paris.", True),
        ("Paris is the capital of France. Lovelace was a mathematician.", True),
        ("It was Paris that has been on the Seine.", True),
        ("Paris is the capital of France. ", True),  # nothing after the full stop is no sentence
        ("Paris is the capital of France. ?! Paris.", True),
        ("Paris is the capital of Spain.", False),
        ("Paris is the capital of France. It has an opera.", False),
        ("Lovelace was born in Paris.", False),
        ("Par.", False),  # part of a word
        ("He is his.", False),  # little words support anything
    ],
)
def test_evidence_is_grounded_if_each_sentence_is_in_some_passage(content: str, *, grounded: bool) -> None:
    """Word order and little words may differ; no sentence may take its words from two passages."""
    assert is_grounded("evidence", content, PASSAGES) is grounded


@pytest.mark.parametrize(
    ("action_type", "content", "read", "before_reading"),
    [
        ("query", "Paris", None, None),
        ("answer", "yes", None, False),
        ("answer", "?!", None, False),
        ("answer", "Paris", True, False),
        ("evidence", "None", None, None),
        ("evidence", "Paris", True, False),
    ],
)
def test_what_claims_nothing_of_the_passages_is_neither_and_no_answer_is_grounded_before_anything_was_read(
    action_type: ActionType, content: str, *, read: bool | None, before_reading: bool | None
) -> None:
    """The question has no meaning for queries, verdicts and evidence that reports nothing. An answer without reading
    comes from memory, or from chance, whatever it says; a verdict as well."""
    assert is_grounded(action_type, content, PASSAGES) is read
    assert is_grounded(action_type, content, ()) is before_reading


@pytest.mark.parametrize(
    ("answer", "evidence", "held"),
    [
        ("Seine", ["Paris lies on the Seine."], True),
        ("the seine", ["None", "Paris lies on the Seine."], True),
        ("Paris lies", ["Paris lies on the Seine."], True),
        ("Sein", ["Paris lies on the Seine."], False),  # part of a word
        ("Paris Seine", ["Paris lies on the Seine."], False),
        ("Paris Rome", ["in Paris", "Rome is a city"], False),  # from two pieces of evidence
        ("Seine", [], False),
        ("none", ["None"], False),
        ("yes", ["Both are rivers."], None),
        ("yes", [], False),
        ("no", ["None"], False),  # nothing was reported from which it could follow
    ],
)
def test_an_answer_is_in_evidence_if_a_report_before_it_holds_it_as_whole_words(
    answer: str, evidence: list[str], *, held: bool | None
) -> None:
    """Verdicts are neither, once anything was reported: whether they follow, no string tells."""
    assert is_in_evidence(answer, evidence) is held


@pytest.mark.parametrize(
    ("evidence", "reported"),
    [
        ("Paris is the capital of France.", "1"),
        ("Lovelace was a mathematician. Paris has an opera.", "2"),
        ("Paris is the capital of France. Lovelace was a mathematician.", "12"),
        ("Lovelace was born in Paris.", ""),
        ("None", ""),
        ("?!", ""),
    ],
)
def test_evidence_reports_a_passage_that_holds_one_of_its_sentences(evidence: str, reported: str) -> None:
    """One sentence is enough, whatever the others say; evidence that reports nothing says nothing of any passage."""
    passages = (*PASSAGES, Passage("3", "None", "None of them was chosen."))
    assert "".join(each.id for each in passages if reports(evidence, each)) == reported


@given(text=st.text(min_size=1, max_size=60), title=st.text(max_size=10))
def test_a_passage_supports_itself(text: str, title: str) -> None:
    """Evidence copied whole is never called unsupported."""
    assert is_grounded("evidence", text, [Passage("1", title, text)]) is not False
