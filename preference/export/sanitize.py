"""Makes text inert for chat templates, trainers and terminals.

Decides what counts as a special token, a trainer's placeholder and a control character.
"""

from __future__ import annotations

import re

_SPECIAL_TOKEN = re.compile(r"<\|([^|<>]{1,64})\|>")
PLACEHOLDER = "{{idx}}"
"""LLaMA-Factory's templates replace it by a number anywhere in a user turn, even in a passage."""
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def plain_text(text: str) -> str:
    """The text without special tokens, placeholders and control characters."""
    if text.isprintable() and "<|" not in text and PLACEHOLDER not in text:  # nearly all
        return text
    return _SPECIAL_TOKEN.sub(lambda found: f"({found[1]})", _UNPRINTABLE.sub(" ", text)).replace(PLACEHOLDER, "(idx)")
