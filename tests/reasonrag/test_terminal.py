"""What a terminal is given of hostile text."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasonrag.terminal import on_one_line, shown


@pytest.mark.parametrize(
    ("text", "harmless"),
    [
        ("plain text, ünïcode 漢字 [bold]", "plain text, ünïcode 漢字 [bold]"),
        ("\x1b[2J\x07\x00", "␛[2J␇␀"),
        ("\x9b31m\x7f", "⟨U+009B⟩31m␡"),
        ("a\u202eb\u2066c\u200e", "a⟨U+202E⟩b⟨U+2066⟩c⟨U+200E⟩"),
        ("zero\u200bwidth\ufeff \U000e0041", "zero⟨U+200B⟩width⟨U+FEFF⟩ ⟨U+E0041⟩"),
        ("half \ud800", "half ⟨U+D800⟩"),
        ("one\r\ntwo\rthree\u2028four\tfive", "one\ntwo␍three\nfour    five"),
        ("👨\u200d👩", "👨\u200d👩"),
    ],
)
def test_what_moves_the_cursor_or_hides_is_named(text: str, harmless: str) -> None:
    """And everything else stays as it is, joiners of emoji too."""
    assert shown(text) == harmless


@given(st.text(st.characters()))
def test_nothing_of_a_terminals_language_is_left(text: str) -> None:
    """But line breaks, and the two joiners; it can be encoded, and is shown alike once more."""
    found = shown(text)
    assert {unicodedata.category(each) for each in found if each not in "\n\u200c\u200d"}.isdisjoint(
        {"Cc", "Cf", "Cs", "Zl", "Zp"}
    )
    assert shown(found) == found
    found.encode()


def test_a_title_is_one_line() -> None:
    """However many it had."""
    assert on_one_line(" a\n\n b\u2028c\td ") == "a b c d"
