"""A Qwen2 small enough for tests, made without a hub: tokenizer, chat template, configuration and random weights.

Runs in the environment of LLaMA-Factory (`make train-env`), whose packages it imports when it is asked for something;
tests import it for the names alone. What it makes answers like Qwen2.5 in everything that tokens depend on: how text is
split, which tokens are special, how turns are put together. By hand: python tests/helpers/tiny_qwen.py FOLDER
"""

from __future__ import annotations

import base64
import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
DEFAULT_SYSTEM = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
"""What Qwen2.5's template and LLaMA-Factory's `qwen` put where no system turn is given."""

CHAT_TEMPLATE = (
    "{% if messages[0]['role'] != 'system' %}<|im_start|>system\n" + DEFAULT_SYSTEM + "<|im_end|>\n{% endif %}"
    "{% for turn in messages %}<|im_start|>{{ turn['role'] }}\n{{ turn['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""ChatML as Qwen2.5 puts it together from turns without tools."""

SAMPLES = (
    "Question: Which river flows through the capital of France?\nPrevious Thoughts: So the next query is <query>",
    "capital of France</query>. Reference: <reference>Wikipedia Title: Paris\nParis lies on the Seine.\n\n</reference>",
    "Based on the query, the relevant evidence is <evidence>Paris lies on the Seine.</evidence>",
    "So the answer is <answer>the Seine, 777 km long</answer>. You answer the question step by step.",
    "Zürich, Kraków und São Paulo; 東京と京都; Москва и Казань.",
)
PROMPTS = Path(__file__).parents[2] / "reasonrag" / "prompts"
"""Merges are learned from these and the samples; any other text falls apart into bytes."""


def make_tiny_qwen(folder: Path) -> None:
    """Write a model with a vocabulary of its own, as `save_pretrained` does. Deterministic."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    tokenizer = _tokenizer(*_learned())
    tokenizer.save_pretrained(folder)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=32768,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    config.save_pretrained(folder)
    torch.manual_seed(0)
    Qwen2ForCausalLM(config).save_pretrained(folder)


def make_real_tokenizer(folder: Path, vocabulary: Path) -> None:
    """Write a tokenizer with Qwen's own vocabulary."""
    from transformers import Qwen2Config

    tokenizer = _tokenizer(*unpacked(vocabulary))
    tokenizer.save_pretrained(folder)
    Qwen2Config(eos_token_id=tokenizer.eos_token_id).save_pretrained(folder)


def _tokenizer(vocabulary: dict[str, int], merges: list[tuple[str, str]]) -> Any:
    """Qwen2's tokenizer over these merges, special tokens behind them."""
    from transformers import AddedToken, Qwen2Tokenizer

    tokenizer = Qwen2Tokenizer(vocab=vocabulary, merges=merges, unk_token=None)
    tokenizer.add_tokens([AddedToken(each, special=True, normalized=False) for each in SPECIAL_TOKENS])
    tokenizer.eos_token = "<|im_end|>"  # noqa: S105 - a token of a vocabulary
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def _learned() -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Byte-level merges, split as Qwen2 splits."""
    from tokenizers import Tokenizer, models, trainers
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import Qwen2Tokenizer

    learner = Tokenizer(models.BPE())
    backend = Qwen2Tokenizer().backend_tokenizer
    learner.normalizer, learner.pre_tokenizer = backend.normalizer, backend.pre_tokenizer
    trainer = trainers.BpeTrainer(vocab_size=1500, initial_alphabet=sorted(ByteLevel.alphabet()), show_progress=False)
    prompts = [path.read_text("utf-8") for path in sorted(PROMPTS.glob("*.txt"))]
    learner.train_from_iterator([*SAMPLES, *prompts], trainer)
    model = json.loads(learner.to_str())["model"]
    return model["vocab"], [tuple(each) for each in model["merges"]]


def unpacked(vocabulary: Path) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Vocabulary and merges of ranked tokens: a token is merged from the two parts that lower ranks make of it. Every
    byte is spelt as the printable letter that stands for it in a byte-level vocabulary (GPT-2's table)."""
    lines = map(bytes.split, vocabulary.read_bytes().splitlines())
    ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    letters = [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]

    def spelled(token: bytes) -> str:
        return "".join(letters[each] for each in token)

    merges = [tuple(map(spelled, _parts(token, ranks))) for token, rank in ranks.items() if len(token) > 1]
    return {spelled(token): rank for token, rank in ranks.items()}, merges  # type: ignore[return-value]


def _parts(token: bytes, ranks: dict[bytes, int]) -> list[bytes]:
    """What byte pair encoding makes of a token's bytes with the tokens that come before it."""
    parts = [bytes([each]) for each in token]
    limit = ranks[token]
    while len(parts) > 2:
        _, i = min((ranks.get(a + b, limit), i) for i, (a, b) in enumerate(pairwise(parts)))
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    return parts


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python tests/helpers/tiny_qwen.py FOLDER")
    make_tiny_qwen(Path(sys.argv[1]))
