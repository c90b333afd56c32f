"""Tokenizers that are made without the Hub: one of words, and Qwen2.5's: the vocabulary as we get it, the rules as its
own file has them. It is a second implementation of what `reasonrag.curation.token_counters` counts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reasonrag.curation import token_counters
from reasonrag.curation.token_counters import qwen_vocabulary
from reasonrag.errors import InputError
from tests.helpers.tiny_qwen import unpacked


def vocabulary() -> Path | None:
    """Qwen2.5's vocabulary; None where it cannot be had, which what needs it is skipped for."""
    try:
        return qwen_vocabulary()
    except InputError:
        return None


def write_tokenizer(folder: Path) -> Path:
    """Write `tokenizer.json` and what transformers needs beside it; return the folder."""
    tokenizers = pytest.importorskip("tokenizers", reason="the tokens extra is not installed")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(*unpacked(qwen_vocabulary())))
    tokenizer.normalizer = tokenizers.normalizers.NFC()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [
            tokenizers.pre_tokenizers.Split(tokenizers.Regex(token_counters._QWEN_PATTERN), behavior="isolated"),
            tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [tokenizers.AddedToken(each, normalized=False) for each in token_counters._QWEN_TOKENS if each.startswith("<|")]
    )
    tokenizer.add_tokens([tokenizers.AddedToken(each, normalized=False) for each in ("<tool_call>", "</tool_call>")])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": 131072,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def folder_with(template: str, folder: Path) -> Path:
    """A tokenizer of words with this template."""
    vocabulary = {word: number for number, word in enumerate(["<?>", "<user>", "<system>", "<go>", "hello", "world"])}
    split = {"type": "WhitespaceSplit"}
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<?>"}
    folder.mkdir()
    (folder / "tokenizer.json").write_text(
        json.dumps({"version": "1.0", "added_tokens": [], "model": model, "pre_tokenizer": split})
    )
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    (folder / "chat_template.jinja").write_text(template)
    return folder
