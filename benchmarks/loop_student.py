"""The student of the loop before it has learned anything: a Qwen2 of 0.6 million parameters that reads whole words.

Run in LLaMA-Factory's environment: `python loop_student.py FOLDER --texts FILE.. --names FILE --seed N`. Decides
vocabulary, shape and first weights. A name is one token, however many words it has: a model of this size copies one
token, and often not two in a row. Replies survive encoding and decoding but for spaces beside tags, which the agent's
parser removes.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
UNKNOWN = "<unk>"
WORDS = r'"\w+":|"search"|<\|?/?\w+\|?>|\w+|[^\w\s]'
"""A key of JSON or the name of a tool with its quotes, a tag, a word with digits, or one mark; spaces and line breaks
only separate."""
CHAT_TEMPLATE = (
    "{% for turn in messages %}<|im_start|>{{ turn['role'] }}\n{{ turn['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_student(
    folder: Path, texts: list[str], names: Sequence[str] = (), *, width: int, layers: int, heads: int, seed: int
) -> None:
    """Tokenizer of exactly these names and words, and random weights, as `save_pretrained` writes them."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    tokenizer = make_tokenizer(texts, names)
    tokenizer.save_pretrained(folder)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=1024,
        rope_theta=10_000.0,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    torch.manual_seed(seed)
    model = Qwen2ForCausalLM(config)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(folder)
    print(f"{folder}: {model.num_parameters():,} parameters, {len(tokenizer)} words")


def make_tokenizer(texts: list[str], names: Sequence[str] = ()) -> Any:
    """A tokenizer whose tokens are the names and the words of `texts`, whatever stands between them."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    split = pre_tokenizers.Split(Regex(WORDS), behavior="removed", invert=True)
    words = {word for text in texts for word, _ in split.pre_tokenize_str(text)}
    vocabulary = [UNKNOWN, *sorted(words - {*SPECIAL_TOKENS, UNKNOWN}), *SPECIAL_TOKENS]
    backend = Tokenizer(models.WordLevel({word: number for number, word in enumerate(vocabulary)}, UNKNOWN))
    backend.pre_tokenizer = split
    backend.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        unk_token=UNKNOWN,
        pad_token="<|endoftext|>",  # noqa: S106 - a token of a vocabulary
        eos_token="<|im_end|>",  # noqa: S106
        additional_special_tokens=["<|im_start|>"],
        clean_up_tokenization_spaces=False,
        padding_side="right",
    )
    tokenizer.add_tokens([AddedToken(each, single_word=True, normalized=False) for each in names])
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--texts", type=Path, nargs="+", required=True)
    arguments.add_argument("--names", type=Path, help="names that are one token each, a line each")
    arguments.add_argument("--width", type=int, default=128)
    arguments.add_argument("--layers", type=int, default=3)
    arguments.add_argument("--heads", type=int, default=4)
    arguments.add_argument("--seed", type=int, default=0)
    given = arguments.parse_args()
    make_student(
        given.folder,
        [each.read_text("utf-8") for each in given.texts],
        given.names.read_text("utf-8").splitlines() if given.names else [],
        width=given.width,
        layers=given.layers,
        heads=given.heads,
        seed=given.seed,
    )
