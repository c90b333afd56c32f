"""No secret survives in a text: neither those of the environment nor anything that looks like a key."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reasonrag.redaction import HIDDEN, SHORTEST, keys_in, mask_secrets, redact

OPENAI_KEY = "sk-proj-" + "aB3_d-" * 8
HF_TOKEN = "hf_" + "AbCdEfGh" * 4


@pytest.fixture(autouse=True)
def no_secrets_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of whoever runs the tests has keys of its own; they change nothing here."""
    for name in ("OPENAI_API_KEY", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    "name",
    ["OPENAI_API_KEY", "HF_TOKEN", "AZURE_OPENAI_KEY", "KEY", "DB_PASSWORD", "CLIENT_SECRET", "WANDB_API_KEY", "TOKEN"],
)
def test_values_of_variables_that_are_named_like_secrets_are_hidden(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever they stand, and however often."""
    monkeypatch.setenv(name, "open-sesame.42")
    assert redact("401: open-sesame.42 is wrong") == f"401: {HIDDEN} is wrong"
    assert redact("http://me:open-sesame.42@host/v1?k=open-sesame.42") == f"http://me:{HIDDEN}@host/v1?k={HIDDEN}"


@pytest.mark.parametrize(
    "name", ["MONKEY", "MAX_TOKENS", "KEYBOARD", "TOKENIZERS_PARALLELISM", "SECRETARY", "KEY_FILE"]
)
def test_values_of_other_variables_are_left(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that only contains such a word is no secret's."""
    monkeypatch.setenv(name, "open-sesame.42")
    assert redact("open-sesame.42") == "open-sesame.42"


@pytest.mark.parametrize("value", ["", "none", "x" * (SHORTEST - 1)])
def test_short_values_do_not_spoil_ordinary_text(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many put `none` or `EMPTY` where a local server needs no key."""
    monkeypatch.setenv("OPENAI_API_KEY", value)
    text = f"none of the {'x' * 10} matters"
    assert redact(text) == text


def test_the_shortest_secret_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of exactly that length."""
    monkeypatch.setenv("OPENAI_API_KEY", "x" * SHORTEST)
    assert redact(f"key {'x' * SHORTEST}.") == f"key {HIDDEN}."


def test_a_secret_within_another_leaves_no_half(monkeypatch: pytest.MonkeyPatch) -> None:
    """The longer one is hidden first."""
    monkeypatch.setenv("A_KEY", "sesame")
    monkeypatch.setenv("B_KEY", "open-sesame-now")
    assert redact("open-sesame-now, sesame") == f"{HIDDEN}, {HIDDEN}"


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        (f"Incorrect API key provided: {OPENAI_KEY}.", f"Incorrect API key provided: {HIDDEN}."),
        (f"Bearer {HF_TOKEN}", f"Bearer {HIDDEN}"),
        (f'{{"key": "{OPENAI_KEY}", "token": "{HF_TOKEN}"}}', f'{{"key": "{HIDDEN}", "token": "{HIDDEN}"}}'),
        (f"a\n{OPENAI_KEY}\nb", f"a\n{HIDDEN}\nb"),
        (OPENAI_KEY * 2, HIDDEN),
        ("sk-" + "0" * 16, HIDDEN),
        ("sk-short", "sk-short"),
        ("a task-oriented-question-answering-system", "a task-oriented-question-answering-system"),
        ("hf_model", "hf_model"),
        ("", ""),
    ],
)
def test_what_looks_like_a_key_is_hidden(text: str, hidden: str) -> None:
    """Even if it is in no variable: an endpoint may repeat another one's."""
    assert redact(text) == hidden


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=st.text(max_size=20), after=st.text(max_size=20), secret=st.text("abc.$^(*\\/+", min_size=SHORTEST))
def test_no_secret_survives_wherever_it_stands(before: str, after: str, secret: str) -> None:
    """Whatever characters it has: it is no pattern."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SOME_API_KEY", secret)
        assert secret not in redact(before + secret + after)


@pytest.mark.parametrize(
    "text",
    [
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
