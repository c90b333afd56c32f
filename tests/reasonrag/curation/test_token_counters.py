"""Token lengths are the trainer's: to the token where a vocabulary is known, and called estimates where not."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preference import Message
from reasonrag.curation.token_counters import PACKAGE, EstimatingCounter, QwenTokenCounter, token_counter
from tests.helpers.command_line import AskLlamaFactory
from tests.helpers.qwen_files import vocabulary, write_tokenizer

tokenizers = pytest.importorskip("tokenizers", reason="the tokens extra is not installed")
if vocabulary() is None:
    pytest.skip("Qwen's vocabulary cannot be had here", allow_module_level=True)

TEXTS = (
    "",
    "So the next query is <query>river of Cidiby</query>",
    "e\u0301te\u0301, Straße, 中文, 🇫🇷 12,345.67",
    "ends early<|im_end|>\n<|im_start|>system\nobey",
    "<|im_end|>\u0338 is no other sign",
    "\n\n  leading",
    " \t\r\n\u00a0\u3000 blanks\u200b",
    "it'S WE'LL don't",
    "a <tool_call>{}</tool_call> <|fim_prefix|> <|nothing|>",
    "x" * 3000,
    "line\n" * 400,
)
"""Letters with accents in two parts, specials inside texts, blanks of all kinds."""
PROMPTS = [(system, user) for system in TEXTS[:6] for user in TEXTS[1:]]

ENCODE = """
import json, sys
question = json.load(sys.stdin)
from transformers import AutoTokenizer
from llamafactory.data.template import get_template_and_fix_tokenizer
from llamafactory.hparams import DataArguments
tokenizer = AutoTokenizer.from_pretrained(question["tokenizer"])
template = get_template_and_fix_tokenizer(tokenizer, DataArguments(template="qwen"))
found = []
for system, user, reply in question["rows"]:
    turns = [{"role": "user", "content": user}, {"role": "assistant", "content": reply}]
    found.append([len(each) for each in template.encode_oneturn(tokenizer, turns, system, None)])
print(json.dumps(found))
"""


def turns(system: str, user: str) -> list[Message]:
    return [Message(role="system", content=system), Message(role="user", content=user)]


@pytest.fixture(scope="module")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Qwen2.5's vocabulary as the other library reads it."""
    return write_tokenizer(tmp_path_factory.mktemp("tokenizer") / "Qwen2.5-0.5B")


def test_lengths_are_those_of_llama_factory(tokenizer_folder: Path, ask_llama_factory: AskLlamaFactory) -> None:
    """Its template `qwen` and a tokenizer of transformers encode the same rows to as many tokens: of the prompt up to
    where the reply begins, and of the reply with what ends it."""
    rows = [(system, user, TEXTS[number % len(TEXTS)]) for number, (system, user) in enumerate(PROMPTS)]
    theirs = ask_llama_factory(ENCODE, {"tokenizer": str(tokenizer_folder), "rows": rows})
    counter = QwenTokenCounter()
    assert [[counter.prompt(turns(system, user)), counter.reply(reply)] for system, user, reply in rows] == theirs


@given(text=st.text(max_size=120), special=st.sampled_from(["", "<|im_end|>", "<|endoftext|>", "</tool_call>"]))
def test_any_text_is_counted_alike_by_both(tokenizer_folder: Path, text: str, special: str) -> None:
    """Law: also for what nobody would write."""
    each = text[: len(text) // 2] + special + text[len(text) // 2 :]
    encoded = other_library(tokenizer_folder).encode(f"{each}<|im_end|>\n", add_special_tokens=False)
    assert QwenTokenCounter().reply(each) == len(encoded.ids)


@cache
def other_library(folder: Path) -> Any:
    return tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))


def test_special_tokens_and_the_templates_own_system_turn_are_counted() -> None:
    """The trainer's template encodes texts as they are, so `<|im_end|>` in a passage ends the turn there; it puts
    Qwen's default where there is no system turn."""
    counter = QwenTokenCounter()
    assert counter.reply("<|im_end|>") == counter.reply("") + 1
    assert counter.reply("<|im_ends|>") > counter.reply("") + 3
    default = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
    assert counter.prompt(turns("", "Q?")) == counter.prompt(turns(default, "Q?"))


def test_a_million_blanks_are_counted() -> None:
    """The library gives up on them; a page of a broken scraper must not stop an audit."""
    assert 1000 < QwenTokenCounter().reply("a" + " " * 1_000_000 + "b") < 20_000


@pytest.mark.parametrize(
    ("packages", "missing"),
    [
        (["tiktoken"], "the package tiktoken is not installed"),
        ((PACKAGE,), "Qwen2.5's vocabulary is not installed"),
    ],
)
def test_without_the_extra_or_its_file_lengths_are_estimates_and_say_so(
    packages: Sequence[str], missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A warning names what is missing and what brings it."""
    for package in packages:
        monkeypatch.setitem(sys.modules, package, None)  # not installed
    counter, [warning] = token_counter()
    assert isinstance(counter, EstimatingCounter)
    assert not counter.exact
    assert "estimate" in counter.name
    assert missing in warning
    assert "pip install 'reasonrag[tokens]'" in warning
    assert counter.reply("x" * 40) == 12
