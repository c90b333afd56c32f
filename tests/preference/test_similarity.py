"""How alike two texts are, by their words, and when two steps say the same."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preference import ActionType
from preference.similarity import equivalent_steps, similarity

NINE = "birth place of Ada Lovelace who wrote first program"


@pytest.mark.parametrize(
    ("text", "other", "expected"),
    [
        ("The birthplace of Ada Lovelace?", "Lovelace, Ada: birthplace of", 1.0),  # case, order, articles, punctuation
        ("capital of France", "the capital of all Italy", 2 / 5),
        ("富士山の標高", "富士山", 0.5),  # letters, where words have no spaces
    ],
)
def test_similarity_is_the_share_of_words_in_common(text: str, other: str, expected: float) -> None:
    """Words in both over words in either."""
    assert similarity(text, other) == pytest.approx(expected)


@given(text=st.text(), other=st.text())
def test_similarity_has_no_direction(text: str, other: str) -> None:
    """In [0, 1], the same both ways, and 1 for a text with itself."""
    assert 0 <= similarity(text, other) == similarity(other, text) <= 1
    assert similarity(text, text) == 1


@dataclass(frozen=True)
class Said:
    action_type: ActionType | None
    content: str | None


BORN = "Ada Lovelace was born in London on 10 December 1815 as the only child of Lord Byron and Anne Milbanke"


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (BORN, True),
        (BORN.replace(" only ", " sole "), True),  # 18 of 20 words
        (BORN.replace(" only child ", " sole daughter "), False),  # 17 of 21
        (BORN.replace("the only", "only a"), True),  # articles
        (BORN.replace("1815", "1816"), False),
        (f"{BORN} 1792", False),  # 19 of 20, but a number more
        (f"{BORN} Wentworth", False),  # a name more
        (BORN.replace("was born", "was not born"), False),
        (BORN.replace("was born", "wasn't born"), False),
        (BORN.replace(" and Anne", " without Anne"), False),
        (BORN.lower(), True),  # equal after normalisation
    ],
)
@pytest.mark.parametrize("action_type", ["query", "evidence"])
def test_near_equal_texts_say_the_same_if_their_numbers_names_and_negations_agree(
    action_type: ActionType, other: str, *, same: bool
) -> None:
    """A single one of those makes another fact of nearly the same words; in either direction."""
    step, another = Said(action_type, BORN), Said(action_type, other)
    assert equivalent_steps(step, another) == equivalent_steps(another, step) == same


@pytest.mark.parametrize(
    ("step", "other", "same"),
    [
        (Said("answer", "The Lovelace"), Said("answer", "lovelace."), True),
        (Said("answer", BORN), Said("answer", f"{BORN} indeed"), False),  # near is not enough
        (Said("answer", "Lovelace, Ada"), Said("answer", "Ada Lovelace"), False),
        (Said("answer", "!?"), Said("answer", "..."), False),  # no words: only if it is the same text
        (Said("answer", "!?"), Said("answer", "!?"), True),
        (Said("answer", "€145"), Said("answer", "145 EUR"), True),
        (Said("answer", "C++"), Said("answer", "C"), False),
        (Said("query", "Ada"), Said("answer", "Ada"), False),  # two types never say the same
        (Said(None, None), Said(None, None), False),  # a failed step says nothing that another could say
        (Said("query", None), Said("query", None), False),
    ],
)
def test_answers_say_the_same_if_they_are_equal_after_normalisation(step: Said, other: Said, *, same: bool) -> None:
    """As exact match has it."""
    assert equivalent_steps(step, other) == same
