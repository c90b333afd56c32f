"""Tokenizers that are made without the Hub: one of words, and Qwen2.5's: the vocabulary as we get it, the rules as its
own file has them. It is a second implementation of what `reasonrag.curation.token_counters` counts."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from reasonrag.curation import token_counters
from reasonrag.data.qwen_vocabulary import qwen_vocabulary
from reasonrag.errors import InputError


def vocabulary() -> Path | None:
    """Qwen2.5's vocabulary; None where it cannot be had, which what needs it is skipped for."""
    try:
        return qwen_vocabulary()
    except InputError:
        return None


def write_tokenizer(folder: Path) -> Path:
    """Write `tokenizer.json` and what transformers needs beside it; return the folder."""
    tokenizers = pytest.importorskip("tokenizers", reason="the tokens extra is not installed")
    lines = map(bytes.split, qwen_vocabulary().read_bytes().splitlines())
    ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
    letters = _letters()
    spelled = {token: "".join(letters[byte] for byte in token) for token in ranks}
    merges = []
    for token in sorted(ranks, key=ranks.__getitem__):
        cuts = [(token[:i], token[i:]) for i in range(1, len(token))]
        known = [(left, right) for left, right in cuts if left in ranks and right in ranks]
        merges += [(spelled[a], spelled[b]) for a, b in sorted(known, key=lambda two: (ranks[two[0]], ranks[two[1]]))]
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.BPE({spelled[token]: rank for token, rank in ranks.items()}, merges)
    )
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


def _letters() -> list[str]:
    """The printable letter that stands for each byte in a byte-level vocabulary (GPT-2's table)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


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
