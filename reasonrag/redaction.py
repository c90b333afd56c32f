"""No secret in anything that is written or shown.

A secret is the value of an environment variable whose name says so (OPENAI_API_KEY, HF_TOKEN, ..), the password of a
proxy, and anything that looks like an OpenAI or Hugging Face key.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from urllib.parse import unquote
from urllib.request import getproxies

SECRET_NAME = re.compile(r"(?:^|_)(?:KEY|TOKEN|SECRET|PASSWORD)$")
SHORTEST = 6
"""Shorter values are no secrets, and replacing them would spoil ordinary text."""
_LOOKS_LIKE_A_KEY = re.compile(r"\b(?:sk-(?=[\w-]*\d)[\w-]{16,}|hf_[A-Za-z0-9]{30,})")
_PASSWORD = re.compile(r"^(?:\w+://)?[^/@]*?:([^/@]*)@")
HIDDEN = "[secret]"


def redact(text: str, known: Sequence[str] | None = None) -> str:
    """The text with every secret replaced by `[secret]`. `known`: the result of `secrets`, where it is at hand."""
    for secret in secrets() if known is None else known:
        text = text.replace(secret, HIDDEN)
    return _LOOKS_LIKE_A_KEY.sub(HIDDEN, text)


def secrets() -> list[str]:
    """What the environment holds now; longest first, so that none is left half."""
    values = {value.strip() for name, value in os.environ.items() if SECRET_NAME.search(name)}
    for proxy in getproxies().values():
        password = _PASSWORD.search(proxy)
        values |= {password[1], unquote(password[1])} if password else set()
    return sorted((value for value in values if len(value) >= SHORTEST), key=len, reverse=True)
