"""Keeps secrets out of everything that is written or shown.

A secret is the value of an environment variable with a telling name (OPENAI_API_KEY, HF_TOKEN, ..), a proxy's password,
and anything that looks like an OpenAI or Hugging Face key. Checks of data sets go further: keys of many services, and
passwords in addresses.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote
from urllib.request import getproxies

SECRET_NAME = re.compile(r"(?:^|_)(?:KEY|TOKEN|SECRET|PASSWORD)$")
SHORTEST = 6
"""Shorter values are not treated as secrets: replacing them would spoil ordinary text."""
_LOOKS_LIKE_A_KEY = re.compile(r"\b(?:sk-(?=[\w-]*\d)[\w-]{16,}|hf_[A-Za-z0-9]{30,})")
_PASSWORD = re.compile(r"^(?:\w+://)?[^/@]*?:([^/@]*)@")
HIDDEN = "[secret]"

KEY_SHAPES: dict[str, tuple[tuple[str, ...], re.Pattern[str]]] = {
    "openai": (("sk-",), re.compile(r"\bsk-(?=[\w-]*\d)[\w-]{16,}")),
    "huggingface": (("hf_",), re.compile(r"\bhf_[A-Za-z0-9]{30,}")),
    "aws": (("AKIA", "ASIA"), re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b")),
    "github": (
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
        re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{22,})"),
    ),
    "gitlab": (("glpat-",), re.compile(r"\bglpat-[\w-]{20,}")),
    "google": (("AIza", "ya29."), re.compile(r"\b(?:AIza[\w-]{35}|ya29\.[\w-]{20,})")),
    "slack": (
        ("xox", "hooks.slack.com"),
        re.compile(r"\bxox[abeoprs]-[\w-]{10,}|hooks\.slack\.com/services/[\w/]{20,}"),
    ),
    "stripe": (("_live_",), re.compile(r"\b[rs]k_live_[A-Za-z0-9]{16,}")),
    "json_web_token": (("eyJ",), re.compile(r"\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,}")),
    "private_key": (("PRIVATE KEY",), re.compile(r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----")),
    "password_in_address": (("://",), re.compile(r"\b[A-Za-z][\w+.-]{1,15}://[^\s/:@]{1,64}:[^\s/@]{4,128}@[\w.-]")),
}
"""Shape of keys by service: substrings of which one must occur (a fast test), and the pattern."""
_SIGNS = tuple((sign, kind) for kind, (signs, _) in KEY_SHAPES.items() for sign in signs)


def redact(text: str, known: Sequence[str] | None = None) -> str:
    """The text with every secret replaced by `[secret]`. `known`: the result of `secrets`, if already computed."""
    for secret in secrets() if known is None else known:
        text = text.replace(secret, HIDDEN)
    return _LOOKS_LIKE_A_KEY.sub(HIDDEN, text)


def excerpt(text: str, most: int, known: Sequence[str] | None = None) -> str:
    """The first `most` characters of a text without its secrets: redacted before it is cut, since the beginning of a
    key at the end would not be recognised."""
    return redact(text, known)[:most]


def secrets() -> list[str]:
    """The secrets in the environment now; longest first, so that none is replaced in part."""
    values = {value.strip() for name, value in os.environ.items() if SECRET_NAME.search(name)}
    for proxy in getproxies().values():
        password = _PASSWORD.search(proxy)
        values |= {password[1], unquote(password[1])} if password else set()
    return sorted((value for value in values if len(value) >= SHORTEST), key=len, reverse=True)


def keys_in(text: str, known: Sequence[str]) -> list[str]:
    """Kinds of secrets that a text holds: names of `KEY_SHAPES`, and `environment` for one of the `known`.

    known: the result of `secrets`. The secrets themselves are not returned.
    """
    hinted = dict.fromkeys([kind for sign, kind in _SIGNS if sign in text])
    kinds = [kind for kind in hinted if KEY_SHAPES[kind][1].search(text)]
    return [*kinds, "environment"] if [secret for secret in known if secret in text] else kinds


def mask_secrets(text: str, known: Sequence[str]) -> str:
    """The text with everything that `keys_in` finds replaced."""
    for secret in known:
        text = text.replace(secret, HIDDEN)
    for _, shape in KEY_SHAPES.values():
        text = shape.sub(HIDDEN, text)
    return text


# -- parsed JSON values: in raw JSON an escaped line break can hide the start of a key ---------------------------


def line_holds_key(line: str, value: object, known: Sequence[str]) -> bool:
    """Whether a text in a JSON line looks like a key. value: the parsed line; known: the result of `secrets`."""
    hinted = any(sign in line for sign, _ in _SIGNS) or any(secret in line for secret in known)
    return hinted and bool(keys_in("\n".join(texts_in(value)), known))


def texts_in(value: object) -> Iterator[str]:
    """Every text inside a value, at any depth; not the keys of objects."""
    left = [value]
    while left:
        each = left.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, Mapping):
            left.extend(each.values())
        elif isinstance(each, list):
            left.extend(each)


def mask_secrets_in(value: Any, known: Sequence[str]) -> Any:
    """The value with `mask_secrets` applied to every text."""
    if isinstance(value, str):
        return mask_secrets(value, known)
    if isinstance(value, Mapping):
        return {key: mask_secrets_in(each, known) for key, each in value.items()}
    return [mask_secrets_in(each, known) for each in value] if isinstance(value, list | tuple) else value
