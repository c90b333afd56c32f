"""Untrusted YAML, TOML, JSON and flags: too large, too deep or too long ones end in a short message."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from reasonrag.data.yaml_text import MOST_CHARACTERS, read_yaml
from reasonrag.files import SMALL_FILE
from tests.helpers.command_line import Reasonrag

BOMB = "a0: &a0 x\n" + "".join(f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 10))
"""Nine levels of nine aliases: 400 million values."""
DIGITS = "1" * 5000
HUGE = ":".join(["1"] * 9999)
"""A number of base 60."""
NESTED = "[" * 20_000
DOTTED = f"[generate]\n{'a.' * 30_000}a = 1\n"
"""Python's TOML reader takes 5 GB for it."""
GENERATE = ("generate", "--model", "offline", "--dataset", "atlas", "--limit", 1, "--run", "r")
MEMORY = 1_500_000_000
"""Address space of a command, in bytes; most of it is what the libraries reserve."""


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (BOMB, r"line 2: \*a0: aliases are not read; write the value itself"),
        ("a: " + NESTED, "it is nested too deeply"),
        ("a: " + "[" * 2000 + "]" * 2000, "it is nested too deeply"),
        (f"a: {DIGITS}", "a value cannot be read .*4300 digits"),
        ("a: 2020-99-99", "a value cannot be read"),
        ("a: !!bool maybe", "a value cannot be read"),
        ("a: 1\nb: 2\na: 3", "line 3: duplicate key 'a'"),
        ("{[1]: 2}", "line 1: found unhashable key"),
        ("a: b: c", "line 1: mapping values are not allowed here"),
        ("a: " + "x" * MOST_CHARACTERS, "it has 65,539 characters, more than 65,536"),
        ("a: \x00", "unacceptable character"),
    ],
)
def test_yaml_beyond_its_bounds_is_refused_with_the_line(text: str, cause: str) -> None:
    """By a ValueError, whatever PyYAML raises."""
    with pytest.raises(ValueError, match=cause):
        read_yaml(text)


@pytest.mark.parametrize(
    ("file", "content", "command"),
    [
        ("c.yaml", BOMB, ("doctor", "c.yaml")),
        ("c.yaml", "a: " + HUGE, ("doctor", "c.yaml")),
        ("c.yaml", "#" * (SMALL_FILE + 1), ("doctor", "c.yaml")),
        ("mine.yaml", BOMB, (*GENERATE, "--recipe", "mine.yaml")),
        ("mine.yaml", f"search: {{? {HUGE} : 1}}", (*GENERATE, "--recipe", "mine.yaml")),
        ("reasonrag.toml", f"[generate]\na = {NESTED[:1900]}", GENERATE),
        ("reasonrag.toml", f"[generate]\nlimit = {DIGITS[:1900]}{DIGITS}", GENERATE),
        ("reasonrag.toml", "[generate]\nseed = 0x" + "f" * 1900, GENERATE),
        ("reasonrag.toml", f"[generate]\nextra_body.{'a.' * 900}a = 1", GENERATE),
        ("reasonrag.toml", "# ..\n" * 20_000, GENERATE),
        ("m/config.json", NESTED, ("doctor", "--set", "model_name_or_path=m")),
        ("m/config.json", '{"hidden_size": ' + DIGITS + "}", ("doctor", "--set", "model_name_or_path=m")),
        ("m/config.json", '{"a": "' + "x" * SMALL_FILE + '"}', ("doctor", "--set", "model_name_or_path=m")),
        (
            "m/adapter_config.json",
            '{"base_model_name_or_path": "../m/../m"}',
            ("doctor", "--set", "model_name_or_path=m"),
        ),
        ("d/dataset_info.json", NESTED, ("train", "smoke-cpu-dpo-lora", "--data", "d", "--dry-run")),
        ("r/config.json", NESTED, GENERATE),
        ("p/think.txt", "x" * (SMALL_FILE + 1), (*GENERATE, "--prompts", "p")),
        ("none", "", (*GENERATE, "--extra-body", NESTED)),
        ("none", "", (*GENERATE, "--max-calls", DIGITS)),
        *(
            ("none", "", ("train", "smoke-cpu-dpo-lora", "--data", "d", "--set", f"x={value}"))
            for value in (NESTED, "&a [*a]", "2020-99-99")
        ),
        *(("none", "", (*GENERATE, "--set", f"search.simulations={value}")) for value in (NESTED, DIGITS, HUGE)),
        ("none", "", ("tune", "--run", "t", "--vary", f"search.simulations={HUGE}")),
    ],
)
def test_what_cannot_be_parsed_ends_in_a_short_message(
    file: str, content: str, command: tuple[object, ...], reasonrag: Reasonrag
) -> None:
    """Exit status 2, no traceback, and nothing of a page of digits."""
    Path(file).parent.mkdir(exist_ok=True)
    Path(file).write_text(content)
    if file == "r/config.json":
        Path("r/rollouts.jsonl").touch()
    done = reasonrag(*command)
    assert (done.status, done.out) == (2, "")
    assert "error: " in done.err
    assert "Traceback" not in done.err
    assert len(done.err) < 1200, len(done.err)


@pytest.mark.parametrize(("variable", "value"), [("LIMIT", DIGITS), ("MAX_COST", "1e999"), ("EXTRA_BODY", NESTED)])
def test_an_environment_variable_that_cannot_be_parsed_is_named(
    variable: str, value: str, reasonrag: Reasonrag, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"REASONRAG_{variable}", value)
    done = reasonrag("generate", "--model", "offline", "--dataset", "atlas", "--run", "r")
    assert done.status == 2, done
    assert f"error: REASONRAG_{variable}" in done.err
    assert len(done.err) < 1200


@pytest.mark.parametrize(
    ("file", "content", "command"), [("c.yaml", BOMB, ("doctor", "c.yaml")), ("reasonrag.toml", DOTTED, ("doctor",))]
)
def test_a_bomb_is_refused_before_it_takes_memory(file: str, content: str, command: tuple[str, ...]) -> None:
    """In a process that may not have much."""
    Path(file).write_text(content)

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

    words = [sys.executable, "-m", "reasonrag", *command]
    done = subprocess.run(words, capture_output=True, text=True, check=False, preexec_fn=limited)
    assert done.returncode == 2, done.stderr[-500:]
    assert done.stderr.count("\n") == 1
    assert json.dumps(done.stderr).startswith(f'"error: {file}')
