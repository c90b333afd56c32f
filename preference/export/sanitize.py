"""Text that no chat template, trainer or terminal reads as more than text.

Decides what is taken for a special token, for a place that a trainer fills in, and for a control character.
"""

from __future__ import annotations

import re

_SPECIAL_TOKEN = re.compile(r"<\|([^|<>]{1,64})\|>")
PLACEHOLDER = "{{idx}}"
"""What LLaMA-Factory's templates put a number for, in user turns, wherever it stands: in a passage too."""
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def plain_text(text: str) -> str:
    """Text in which no chat template finds a special token or a place to fill, and no terminal a control character."""
    return _SPECIAL_TOKEN.sub(r"(\1)", _UNPRINTABLE.sub(" ", text)).replace(PLACEHOLDER, "(idx)")
