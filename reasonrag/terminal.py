"""Text of others as a terminal may be given it: nothing in it can move the cursor, turn a line round or hide.

Decides which characters are shown as what they are called. Knows nothing of layout; markup is not its matter either:
text goes to rich as `Text`, or escaped.
"""

from __future__ import annotations

import unicodedata

_KEPT = "\n\u200c\u200d"
"""Line breaks, and the two joiners that Persian, Hindi and emoji need."""
_AS_A_LINE_BREAK = "\u0085\u2028\u2029"
_HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Unicode's controls, marks of direction and other invisible characters, halves of surrogate pairs, line separators."""
TAB = "    "


def shown(text: str) -> str:
    """The text with line breaks as they are, tabs as spaces, and every other control or invisible character named:
    ESC as `␛`, U+202E as `⟨U+202E⟩`."""
    text = text.replace("\r\n", "\n")
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return "".join(map(_shown, text))


def on_one_line(text: str) -> str:
    """The same, line breaks and runs of spaces as one space."""
    return " ".join(shown(text).split())


def _shown(character: str) -> str:
    if character in _KEPT:
        return character
    if character in _AS_A_LINE_BREAK:
        return "\n"
    if character == "\t":
        return TAB
    if unicodedata.category(character) not in _HIDDEN:
        return character
    code = ord(character)
    if code < 0x20:  # noqa: PLR2004 - the controls of ASCII, each of which has a picture
        return chr(0x2400 + code)
    return "␡" if character == "\x7f" else f"⟨U+{code:04X}⟩"


def dollars(amount: float) -> str:
    """An amount as a person reads it; small ones with four decimals."""
    return f"${amount:,.2f}" if amount >= 1 or amount == 0 else f"${amount:.4f}"
