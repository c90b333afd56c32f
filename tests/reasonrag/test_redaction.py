"""No secret survives in a text: neither those of the environment nor anything that looks like a key."""

from __future__ import annotations

import html
import json
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reasonrag.redaction import (
    HIDDEN,
    SHORTEST,
    excerpt,
    hide_in,
    keep_secret,
    keys_in,
    mask_secrets,
    redact,
    spellings,
)

OPENAI_KEY = "sk-proj-" + "aB3_d-" * 8
HF_TOKEN = "hf_" + "AbCdEfGh" * 4


NAMED_LIKE_SECRETS = [
    *("OPENAI_API_KEY", "KEY", "DB_PASSWORD", "CLIENT_SECRET", "TOKEN"),
    *("OPENAIKEY", "HFTOKEN", "GITHUBTOKEN", "MYSECRET", "PGPASSWORD", "MYSQL_PWD", "SMTP_PASS", "GITHUB_PAT"),
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "GOOGLE_APPLICATION_CREDENTIALS"),
    *("OPENAI_API_KEYS", "OPENAI_API_KEY_2", "OPENAI_API_KEY2", "HF_TOKEN_WRITE", "SECRET_KEY_BASE"),
    *("openai_api_key", "npm_config__authToken", "GPG_PASSPHRASE", "DB_PASSWD", "CREDENTIAL_JSON"),
    *("OPENAI_API_KEY_PERSONAL", "API_KEY_OPENAI", "APIKEY_OPENAI", "KEY_OPENAI", "TOKEN_OPENAI", "DBPASS", "JWT"),
    *("GITHUB_TOKEN_RW", "OPENAI_CREDS", "AZURE_STORAGE_CONNECTION_STRING", "DB_CONN_STR", "SENTRY_DSN", "DBPWD"),
    *("PAT_GITHUB", "SECRETS_OF_MINE", "ssh_private_key_pem", "PASSWORD2_OLD", "VAULT_PASSCODE", "API_TOKEN_9_EU"),
    *("ConnectionStrings__Main", "GITHUB_PATS", "MY_PWDS"),
]
OTHERS = [
    *("MONKEY", "MAX_TOKENS", "KEYBOARD", "TOKENIZERS_PARALLELISM", "SECRETARY", "KEY_FILE", "PWD", "OLDPWD"),
    *("HF_HOME", "HF_TOKEN_PATH", "AWS_REGION", "AWS_PROFILE", "WANDB_PROJECT", "SSH_ASKPASS", "TOKEN_LIMIT"),
    *("VLLM_MAX_TOKENS", "PASSENGER_APP_ENV", "COMPASS_DIR", "COMPASS", "BYPASS_PROXY", "PYTHONPATH", "TURKEY"),
    *("SSH_AUTH_SOCK", "KEYBOARD_LAYOUT", "GNOME_KEYRING_CONTROL", "CREDENTIALS_DIRECTORY", "SACRED_DB", "PATH"),
    *("KEY_VAULT_NAME", "TOKEN_ENDPOINT", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "PASSPORT", "SSL_KEY_FILES"),
    *("SSH_ASKPASS_REQUIRE", "eos_token", "uld_token_merge_strategy"),
]


@pytest.mark.parametrize("name", [*NAMED_LIKE_SECRETS, *OTHERS])
def test_a_value_is_hidden_whose_variable_is_named_like_a_secret(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it stands, and however often; a name that only contains such a word is no secret's."""
    monkeypatch.setenv(name, "open-sesame.42")
    shown = HIDDEN if name in NAMED_LIKE_SECRETS else "open-sesame.42"
    assert redact("401: open-sesame.42 is wrong") == f"401: {shown} is wrong"
    assert redact("http://me:open-sesame.42@host/v1?k=open-sesame.42") == f"http://me:{shown}@host/v1?k={shown}"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("postgres://me:open-sesame.42@host/db", "open-sesame.42"),
        ("redis://:open%2Dsesame.42@host", "open-sesame.42"),
        ("ghp_" + "aB3d" * 9, "ghp_" + "aB3d" * 9),
        ("AKIAABCDEFGHIJKLMNOP", "AKIAABCDEFGHIJKLMNOP"),
        ("glpat-aB3d9aB3d9aB3d9aB3d9", "glpat-aB3d9aB3d9aB3d9aB3d9"),
    ],
)
def test_a_value_that_is_a_key_by_its_shape_is_hidden(value: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under any name: a password in an address, a key of a service."""
    monkeypatch.setenv("OF_NO_TELLING_NAME", value)
    assert redact(f"said {shown}.") == f"said {HIDDEN}."


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("OPENAI_API_KEY", value) for value in ("", "none", "x" * (SHORTEST - 1))),
        *(("OF_NO_TELLING_NAME", f"{begun}me/it") for begun in ("https://host/@", "file:///", "a://[", "git@host:")),
    ],
)
def test_short_values_and_addresses_without_password_hide_nothing(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many put `none` or `EMPTY` where a local server needs no key; a host is an ordinary word."""
    monkeypatch.setenv(name, value)
    text = f"none of the {'x' * 10} matters on the host, /me/it, git"
    assert redact(text) == text
    assert len(value) >= SHORTEST or not spellings(value), "its base64 may be long enough, but is that of a word"


def test_a_secret_within_another_leaves_no_half(monkeypatch: pytest.MonkeyPatch) -> None:
    """The longer one is hidden first; the shorter is as short as one can be."""
    assert len("sesame") == SHORTEST
    monkeypatch.setenv("A_KEY", "sesame")
    monkeypatch.setenv("B_KEY", "open-sesame-now")
    assert redact("open-sesame-now, sesame") == f"{HIDDEN}, {HIDDEN}"


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        (f"Incorrect API key provided: {OPENAI_KEY}.", f"Incorrect API key provided: {HIDDEN}."),
        (f"Bearer {HF_TOKEN}", f"Bearer {HIDDEN}"),
        (f"a\n{OPENAI_KEY}\nb", f"a\n{HIDDEN}\nb"),
        (OPENAI_KEY * 2, HIDDEN),
        ("sk-" + "0" * 16, HIDDEN),
    ],
)
def test_what_looks_like_a_key_is_hidden(text: str, hidden: str) -> None:
    """Even if it is in no variable: an endpoint may repeat another one's."""
    assert redact(text) == hidden


@pytest.mark.parametrize(
    "text",
    [
        "sk-short",
        "a task-oriented-question-answering-system",
        "He played risk-taking-2-players, a sk-8 board game, in AKIAK, Alaska.",
        "See https://en.wikipedia.org/wiki/Key_(cryptography)#Public: it was 12:30@noon.",
        "-----BEGIN PUBLIC KEY-----",
        'eyJ is how base 64 of {" begins. hf_transfer is a package; ghp_ is a prefix.',
        "The xoxo-ending song, AIza, and ya29.",
    ],
)
def test_ordinary_text_holds_no_key(text: str) -> None:
    """What names keys, or begins like one, is none."""
    assert keys_in(text, []) == []
    assert mask_secrets(text, []) == text


# -- what servers make of a key ----------------------------------------------------------------------------------

ENCODINGS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "as a path": quote,
    "as a part of a query": lambda key: quote(key, safe=""),
    "as a form": quote_plus,
    "as a path in lower case": lambda key: re.sub("%..", lambda found: found[0].lower(), quote(key, safe="")),
    "each byte": lambda key: "".join(f"%{byte:02X}" for byte in key.encode()),
    "HTML": html.escape,
    "HTML without quotes": lambda key: html.escape(key, quote=False),
    "HTML by numbers": lambda key: "".join(f"&#{ord(each)};" for each in key),
    "JSON": lambda key: json.dumps(key)[1:-1],
    "JSON with slashes escaped": lambda key: json.dumps(key)[1:-1].replace("/", "\\/"),
    "JSON, escaped": lambda key: "".join(each if each.isalnum() else f"\\u{ord(each):04x}" for each in key),
    "repr": lambda key: repr(key)[1:-1],
}
KEYS = (
    st.text(st.characters(codec="ascii", min_codepoint=32), min_size=8, max_size=40)
    .map(str.strip)
    .filter(lambda key: len(key) >= 8)
)


def holds_a_part(text: str, secret: str) -> bool:
    """Whether the text holds eight characters of the secret in a row."""
    return any(secret[start : start + 8] in text for start in range(len(secret) - 7))


@pytest.mark.parametrize("name", ENCODINGS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(key=KEYS, before=st.text(max_size=20), after=st.text(max_size=20))
def test_a_key_is_recognised_as_servers_echo_it(name: str, key: str, before: str, after: str) -> None:
    """Escaped for an address, a page or JSON, whatever characters it has: it is no pattern."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SOME_API_KEY", key)
        assert ENCODINGS[name](key) not in redact(before + ENCODINGS[name](key) + after)


@given(key=KEYS, before=st.binary(max_size=9), after=st.binary(max_size=9), safe=st.booleans())
def test_a_key_is_recognised_inside_of_base64(key: str, before: bytes, after: bytes, safe: bool) -> None:
    """Wherever it stands in what was encoded, as in `Basic base64(user:key)`: what is left decodes to single characters
    at its ends."""
    encode = urlsafe_b64encode if safe else b64encode
    encoded = encode(before + key.encode() + after).decode()
    stable = max((each for each in spellings(key) if each in encoded), key=len)
    assert len(stable) * 6 > 8 * len(key) - 2 * 8
    assert stable not in redact(encoded, list(spellings(key)))


# -- redacted first, then cut ------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [30, -30])
@pytest.mark.parametrize("name", ["as it is", "JSON, escaped", "each byte"])
def test_no_part_of_a_key_is_left_at_a_cut(most: int, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it is cut, at the end or at the beginning."""
    monkeypatch.setenv("SOME_API_KEY", OPENAI_KEY)
    key = ENCODINGS[name](OPENAI_KEY)
    for before in range(40):
        text = "." * before + key + "." * (39 - before)
        assert not holds_a_part(excerpt(text, most), key)
        assert not holds_a_part(excerpt("." * 200_000 + text if most < 0 else text + "." * 200_000, most), key)


def test_an_excerpt_of_an_ordinary_text_is_its_beginning_or_end() -> None:
    """And a short text is whole."""
    cut = [excerpt(text, most) for text, most in (("abcdef", 3), ("abcdef", -3), ("abc", 9), ("abc", -9))]
    assert cut == ["abc", "def", "abc", "abc"]


# -- addresses ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "hidden"),
    [
        ("https://host/v1?key=s3cret-query", ["s3cret-query"]),
        ("https://host/v1?api-version=2024-10-21&sig=a%2Fb%2Bcdef", ["a%2Fb%2Bcdef", "a/b+cdef"]),
        ("https://host/v1?token=sesamesesame", ["sesamesesame"]),
        ("user:s3cret-pass@host/v1", ["s3cret-pass"]),
        ("http://user:s3cret/pass@host/v1", ["s3cret/pass"]),
        ("http://user:s3c@ret-pass@host/v1", ["s3c@ret-pass"]),
        ("http://user:s3cret%40pass@host:80", ["s3cret%40pass", "s3cret@pass"]),
        ("http://s3cret-0@host", ["s3cret-0"]),
        ("http://[user:s3cret-bracket@host", ["s3cret-bracket"]),
    ],
)
def test_secrets_of_a_given_address_are_hidden(address: str, hidden: list[str]) -> None:
    """In every text, like a key of the environment."""
    assert all(redact(f"no {each}!") != f"no {HIDDEN}!" for each in hidden)
    keep_secret(address)
    assert all(redact(f"no {each}!") == f"no {HIDDEN}!" for each in hidden)


@pytest.mark.parametrize(
    "address", ["https://host:8000/v1?api-version=2024-10-21", "http://h/v1?team=research", "http://user@host/v1"]
)
def test_an_ordinary_word_in_an_address_is_not_a_secret(address: str) -> None:
    """Replies may hold it."""
    keep_secret(address)
    text = "8000, v1, 2024-10-21, research, user and host"
    assert redact(text) == text


@pytest.mark.parametrize("name", ["OPENAI_BASE_URL", "REASONRAG_JUDGE_BASE_URL", "SENTRY_DSN"])
def test_the_query_of_an_address_in_the_environment_is_hidden(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is no argument that other users of the machine can see."""
    monkeypatch.setenv(name, "https://host/v1?key=s3cret-s3cret")
    assert redact("wrong key s3cret-s3cret") == f"wrong key {HIDDEN}"


def test_secrets_in_a_parsed_value_are_hidden_at_any_depth() -> None:
    """However deep it is nested; what only looks like a key is left, as passages name some."""
    value: Any = {"a": ["s3cret-s3cret", 1, None, {"b": f"x s3cret-s3cret {HF_TOKEN}"}]}
    hide_in(value, ["s3cret-s3cret"])
    assert value == {"a": [HIDDEN, 1, None, {"b": f"x {HIDDEN} {HF_TOKEN}"}]}
    deep: Any = "s3cret-s3cret"
    for _ in range(5000):
        deep = [deep]
    hide_in(deep, ["s3cret-s3cret"])
    while isinstance(deep, list):
        [deep] = deep
    assert deep == HIDDEN
