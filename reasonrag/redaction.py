"""No secret in anything that is written or shown.

A secret is the value of an environment variable whose name says so (OPENAI_API_KEY, HF_TOKEN, ..), and anything that
looks like an OpenAI or Hugging Face key.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

SECRET_NAME = re.compile(r"(?:^|_)(?:KEY|TOKEN|SECRET|PASSWORD)$")
SHORTEST = 6
"""Shorter values are no secrets, and replacing them would spoil ordinary text."""
_LOOKS_LIKE_A_KEY = re.compile(r"\b(?:sk-(?=[\w-]*\d)[\w-]{16,}|hf_[A-Za-z0-9]{30,})")
HIDDEN = "[secret]"


def redact(text: str, known: Sequence[str] | None = None) -> str:
    """The text with every secret replaced by `[secret]`. `known`: the result of `secrets`, where it is at hand."""
    for secret in secrets() if known is None else known:
        text = text.replace(secret, HIDDEN)
    return _LOOKS_LIKE_A_KEY.sub(HIDDEN, text)


def secrets() -> list[str]:
    """What the environment holds now; longest first, so that none is left half."""
    values = {value for name, value in os.environ.items() if SECRET_NAME.search(name) and len(value) >= SHORTEST}
    return sorted(values, key=len, reverse=True)
