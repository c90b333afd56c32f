"""Whether what a step says is supported by the passages read so far."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preference import ActionType
from reasonrag.corpora import Passage
from reasonrag.grounding import is_grounded

PASSAGES = (
    Passage("1", "Paris", "Paris is the capital of France. It lies on the River Seine, and has 2,102,650 inhabitants."),
    Passage("2", "Ada Lovelace", "Lovelace (born 10 December 1815) was a mathematician."),
)


@pytest.mark.parametrize(
    ("content", "grounded"),
    [
        ("Paris", True),
        ("the river seine", True),
        ("River Seine.", True),
        ("2,102,650", True),
        ("2102650", True),
        ("Ada Lovelace", True),
        ("France Paris", False),
        ("Sein", False),
        ("Lyon", False),
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
    ("action_type", "content"),
    [
        ("query", "Paris"),
        ("query", "Lyon"),
        ("answer", "yes"),
        ("answer", "No."),
        ("evidence", "None"),
        ("evidence", "none."),
        ("answer", "?!"),
    ],
)
def test_what_claims_nothing_of_the_passages_is_neither(action_type: ActionType, content: str) -> None:
    """The question has no meaning for queries, verdicts and evidence that reports nothing."""
    assert is_grounded(action_type, content, PASSAGES) is None
    assert is_grounded(action_type, content, ()) is None


@pytest.mark.parametrize("action_type", ["answer", "evidence"])
def test_nothing_is_grounded_in_no_passages(action_type: ActionType) -> None:
    """What is said before anything was read comes from memory."""
    assert is_grounded(action_type, "Paris", ()) is False


@settings(deadline=None)
@given(
    action_type=st.sampled_from(("query", "evidence", "answer")),
    content=st.text(max_size=30),
    texts=st.lists(st.text(max_size=30), max_size=3),
    more=st.text(max_size=30),
)
def test_reading_more_never_takes_support_away(
    action_type: ActionType, content: str, texts: list[str], more: str
) -> None:
    """Passages only add support, whatever the text; a meaningless question stays one."""
    passages = [Passage(str(i), "", text) for i, text in enumerate(texts)]
    before = is_grounded(action_type, content, passages)
    after = is_grounded(action_type, content, [*passages, Passage("more", "", more)])
    assert after is before or (before, after) == (False, True)


@settings(deadline=None)
@given(text=st.text(min_size=1, max_size=60), title=st.text(max_size=10))
def test_a_passage_supports_itself(text: str, title: str) -> None:
    """Evidence copied whole is never called unsupported."""
    assert is_grounded("evidence", text, [Passage("1", title, text)]) is not False
