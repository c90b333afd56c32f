"""Keeps secrets out of everything that is written or shown.

A secret is the value of an environment variable with a telling name (OPENAI_API_KEY, HFTOKEN, ..) or the shape of a
key, the password or a query value of an address that was given, the password of any address in the environment, and
anything that looks like an OpenAI or Hugging Face key. Known secrets are also recognised as servers echo them:
URL-encoded, in base64, escaped for HTML or JSON. Checks of data sets go further: keys of many services, and passwords
in addresses. Child processes get an environment without secrets.
"""

from __future__ import annotations

import json
import os
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from html import escape
from typing import Any
from urllib.parse import quote_plus, unquote, unquote_plus, urlsplit
from urllib.request import getproxies

SECRET_NAME = re.compile(
    r"(?i)((?<!MON|TUR|DON|HOC|JOC|HIS)KEY|(?<!EOS_|PAD_)(?<!STOP_)TOKEN|SECRET|(?<!SA)CRED(ENTIAL)?|JWT|DSN"
    r"|CONN(ECTION)?_?STR(ING)?|PASS(WORD|WD|PHRASE|CODE)|(?<!COM|SUR|ASK)(?<!BY)(?<!TRES)PASS"
    r"|(?<!OLD)(?<=[A-Z_])PWD|(?<![A-Z])PAT)((?<!TOKEN)S)?(?![A-Z])(?!.*_(FILE|PATH|DIR|DIRECTORY|UR[LI]|ENDPOINT|HOST"
    r"|PORT|NAME|TYPE|POLICY|STRATEGY|LIMIT|BUDGET|COUNT|BYTE|SIZE|LEN|LENGTH|RATE)S?$)"
)
"""Names of variables and settings whose values are secrets: a word that says so, wherever it stands, in OPENAI_API_KEY,
TOKEN_OPENAI and DBPASS; not in MAX_TOKENS, KEY_FILE, MONKEY."""
SHORTEST = 6
"""Shorter values are not treated as secrets: replacing them would spoil ordinary text."""
_LOOKS_LIKE_A_KEY = re.compile(r"\b(?:sk-(?=[\w-]*\d)[\w-]{16,}|hf_[A-Za-z0-9]{30,})")
_WORDS = re.compile(r"(?=.{0,20}\Z)(?:[A-Z]?[a-z]+|[A-Z]+)(?:[-_ ](?:[A-Z]?[a-z]+|[A-Z]+))*")
"""No longer than a word gets; letters in any case may be a key."""
HIDDEN = "[secret]"
_BEYOND = 1 << 16
"""Characters beyond a cut that are redacted too: longer than any key, but bounded for texts of any size."""

API_VERSION = "api-version"
"""The query parameter of Azure's dated addresses (Microsoft's reference of Azure OpenAI's REST API): no secret."""
_NAMES_A_KEY = re.compile(r"key|token|secret|pass|pwd|sig|auth|code|cred", re.I)
"""Names of query parameters whose values are secrets even if they are ordinary words."""
_USER = re.compile(r"^(?:[A-Za-z][\w+.-]*://)?(.*)@", re.S)
_UP_TO_THE_FIRST_AT = re.compile(r"^(?:[A-Za-z][\w+.-]*://)?(.*?)@", re.S)
_of_given_addresses: set[str] = set()
"""Secrets in the addresses that this process was given as settings."""

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
    text = _hide(text, secrets() if known is None else known)
    # the test is fast: the pattern takes a microsecond for 60 characters
    return _LOOKS_LIKE_A_KEY.sub(HIDDEN, text) if "sk-" in text or "hf_" in text else text


def _hide(text: str, known: Sequence[str]) -> str:
    for secret in known:
        text = text.replace(secret, HIDDEN)
    return text


def excerpt(text: str, most: int, known: Sequence[str] | None = None) -> str:
    """The first `most` characters of a text without its secrets; the last ones if `most` is negative. Redacted before
    it is cut, since half of a key would not be recognised."""
    if most < 0:
        return redact(text[most - _BEYOND :], known)[most:]
    return redact(text[: most + _BEYOND], known)[:most]


def secrets() -> list[str]:
    """The secrets in the environment and the given addresses now, each in every spelling; longest first, so that none
    is replaced in part."""
    values = {value.strip() for name, value in os.environ.items() if is_secret(name, value)} | _of_given_addresses
    for name, value in os.environ.items():
        values |= _secrets_of_address(value) if name.upper().endswith(("BASE_URL", "DSN")) else set()
        values |= {password_in(value), unquote(password_in(value))}
    for proxy in getproxies().values():
        values |= _passwords_of_address(proxy)
    return sorted({each for value in values for each in spellings(value)}, key=len, reverse=True)


def is_secret(name: str, value: str) -> bool:
    """Whether a variable is a secret, by its name or by the shape of its value."""
    shaped = SECRET_NAME.search(name) or set(keys_in(value, ())) - {"password_in_address"}
    return bool(shaped) and len(value.strip()) >= SHORTEST


@lru_cache(maxsize=256)
def spellings(secret: str) -> frozenset[str]:
    """A secret and how servers may echo it: URL-encoded, in base64, escaped for HTML or JSON. None below SHORTEST."""
    if len(secret) < SHORTEST:
        return frozenset()
    found = {secret, quote_plus(secret, errors="replace"), escape(secret), escape(secret, quote=False)}
    found |= {json.dumps(secret)[1:-1], json.dumps(secret)[1:-1].replace("/", "\\/"), repr(secret)[1:-1]}
    for kept in ("-_.~/", "-_.~", "-_.*", "", None):
        for form in ("%{:02X}", "%{:02x}", "\\u{:04X}", "\\u{:04x}", "\\x{:02x}", "&#{};", "&#x{:X};", "&#x{:x};"):
            found.add("".join(_escaped(each, form, kept) for each in secret))
    for shift in range(3):  # offset of its start within a group of three bytes, as in base64("user:key")
        whole = b64encode(bytes(shift) + secret.encode("utf-8", "replace")).decode()
        # the characters that do not depend on the bytes before and after the secret
        stable = whole[-(-shift * 8 // 6) : (shift + len(secret.encode("utf-8", "replace"))) * 8 // 6]
        found |= {stable, quote_plus(stable), stable.translate(str.maketrans("+/", "-_"))}
    return frozenset(each for each in found if len(each) >= SHORTEST)


def is_word(value: str) -> bool:
    """Whether a key or password may be ordinary words, as servers that need none are given (`ollama`, `lm-studio`), and
    so stand in names and texts for other reasons."""
    return bool(_WORDS.fullmatch(value))


def _escaped(character: str, form: str, kept: str | None) -> str:
    """A character escaped by `form`, unless it is a letter, a digit or one of `kept`. kept None: always escape."""
    if kept is not None and (character in kept or (character.isascii() and character.isalnum())):
        return character
    codes = character.encode("utf-8", "replace") if form[0] == "%" or "x{:02" in form else [ord(character)]
    return "".join(form.format(code) for code in codes)


def keep_secret(address: str) -> None:
    """Redact the password and the query values of an address from now on."""
    _of_given_addresses.update(_secrets_of_address(address))


def _secrets_of_address(address: str) -> set[str]:
    """Passwords and query values, as written and decoded. Ordinary words are left out unless the parameter's
    name suggests a secret, and so is API_VERSION."""
    found = _passwords_of_address(address)
    query = address.partition("?")[2].partition("#")[0]
    for name, _, value in (each.partition("=") for each in query.split("&")):
        if name != API_VERSION and (_NAMES_A_KEY.search(name) or not is_word(value)):
            found |= {value, unquote(value), unquote_plus(value)}
    return found


def password_in(value: str) -> str:
    """The password, if a variable's value is an address that has one."""
    try:
        return urlsplit(value).password or ""
    except ValueError:
        return ""


def _passwords_of_address(address: str) -> set[str]:
    """The password of an address, with or without scheme, as written and decoded. A user without password is a key."""
    found = set()
    for until in (_USER, _UP_TO_THE_FIRST_AT):  # a password may have an @ itself
        if user := until.match(address):
            name, colon, password = user[1].partition(":")
            value = password if colon else name
            found |= {value, unquote(value)} if colon or not is_word(name) else set()
    return found


def keys_in(text: str, known: Sequence[str]) -> list[str]:
    """Kinds of secrets that a text holds: names of `KEY_SHAPES`, and `environment` for one of the `known`, ordinary
    words excepted.

    known: the result of `secrets`. The secrets themselves are not returned.
    """
    hinted = dict.fromkeys([kind for sign, kind in _SIGNS if sign in text])
    kinds = [kind for kind in hinted if KEY_SHAPES[kind][1].search(text)]
    return [*kinds, "environment"] if any(each in text and not is_word(each) for each in known) else kinds


def mask_secrets(text: str, known: Sequence[str]) -> str:
    """The text with everything that `keys_in` finds replaced."""
    text = _hide(text, known)
    for _, shape in KEY_SHAPES.values():
        text = shape.sub(HIDDEN, text)
    return text


# -- parsed JSON values: in raw JSON an escaped line break can hide the start of a key ---------------------------


def texts_in(value: object) -> Iterator[str]:
    """Every text inside a value, at any depth; not the keys of objects."""
    return (text for _, _, text in _places_of_texts([value]))


def _places_of_texts(value: object) -> Iterator[tuple[Any, Any, str]]:
    """Every text inside a value, with what it stands in and where in that."""
    left = [value]
    while left:
        each: Any = left.pop()
        for place, item in each.items() if isinstance(each, Mapping) else enumerate(each):
            if isinstance(item, str):
                yield each, place, item
            elif isinstance(item, Mapping | list):
                left.append(item)


def hide_in(value: object, known: Sequence[str]) -> None:
    """Replace the `known` secrets in every text inside a parsed value, in place; not in the keys of objects. What only
    looks like a key stays, as passages may contain such text."""
    for holder, place, text in _places_of_texts([value]):
        holder[place] = _hide(text, known)


def mask_secrets_in(value: Any, known: Sequence[str]) -> Any:
    """The value with `mask_secrets` applied to every text."""
    if isinstance(value, str):
        return mask_secrets(value, known)
    if isinstance(value, Mapping):
        return {key: mask_secrets_in(each, known) for key, each in value.items()}
    return [mask_secrets_in(each, known) for each in value] if isinstance(value, list | tuple) else value
