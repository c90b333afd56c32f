"""How alike two texts are, by their words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preference import NEARLY_THE_SAME, similarity

NINE = "birth place of Ada Lovelace who wrote first program"


@pytest.mark.parametrize(
    ("text", "other", "expected"),
    [
        ("Ada Lovelace", "Ada Lovelace", 1.0),
        ("The birthplace of Ada Lovelace?", "birthplace of ada lovelace", 1.0),  # case, articles, punctuation
        ("Lovelace, Ada", "Ada Lovelace", 1.0),  # order
        ("Ada Ada Lovelace", "Ada Lovelace", 1.0),  # repetition
        ("capital of France", "capital of Italy", 0.5),  # 2 of 4
        ("Ada Lovelace", "Ada", 0.5),
        ("Ada", "Bob", 0.0),
        ("Ada", "", 0.0),
        ("", "", 1.0),
        ("The", "?!", 1.0),  # no words on either side
    ],
)
def test_similarity_is_the_share_of_words_in_common(text: str, other: str, expected: float) -> None:
    """Words in both over words in either, after SQuAD normalisation."""
    assert similarity(text, other) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ("birth place of Ada Lovelace, who wrote the first program?", True),
        (f"{NINE} ever", True),  # 9 of 10
        ("death place of Ada Lovelace who wrote first program", False),  # 8 of 10
        ("birth place of Ada Lovelace who wrote", False),  # 7 of 9
    ],
)
def test_one_other_word_among_nine_is_another_thing(other: str, *, expected: bool) -> None:
    """It may change what is found; one word more does not."""
    assert (similarity(NINE, other) >= NEARLY_THE_SAME) == expected


@given(text=st.text(), other=st.text())
def test_similarity_has_no_direction(text: str, other: str) -> None:
    """In [0, 1], the same both ways, and 1 for a text with itself."""
    assert 0 <= similarity(text, other) == similarity(other, text) <= 1
    assert similarity(text, text) == 1
