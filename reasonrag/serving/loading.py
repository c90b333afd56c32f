"""A model's folder in memory: where it runs, in which dtype, with which tokenizer and which tokens that end a reply.

Decides nothing about requests. No code that a folder brings is run.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reasonrag.errors import InputError
from reasonrag.model_folder import ModelFolder
from reasonrag.redaction import excerpt
from reasonrag.serving.chat_template import open_tokenizer

SMALL = 30_000_000
"""Parameter count up to which one CPU thread and float32 are fastest: two threads spend more time waiting for each
other than working, and far more if another process uses their core."""
_END_OF_TURN = "<|im_end|>"
"""Always ends a reply: models trained on ChatML write it, and some configurations omit it."""
_BFLOAT16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
"""Flags of /proc/cpuinfo, of x86 and Arm."""


@dataclass
class LoadedModel:
    """A causal language model or, if `ends` is None, a critic.

    tokenizer_source: the folder, or the model on the Hub, that the tokenizer is of. context: most tokens of prompt and
    reply together. ends: tokens that end a reply.
    """

    folder: ModelFolder
    model: Any
    tokenizer: Any
    tokenizer_source: str
    context: int
    ends: frozenset[int] | None


def load(folder: ModelFolder, *, base: str | None = None) -> LoadedModel:
    """Load weights and tokenizer, onto a GPU where torch sees one; an adapter is merged into its base model.

    base: overrides the base model that an adapter names. On a GPU in the configuration's dtype, or bfloat16. On a CPU
        in bfloat16 where it multiplies that and the model is not small, else in float32. Raises InputError.
    """
    import torch
    import transformers

    source = (base or folder.base_model) if folder.is_adapter else str(folder.path)
    if source is None:
        raise InputError(f"{folder.path} is an adapter that does not name its base model; give --base")
    tokenizer_source = str(folder.path) if folder.has_tokenizer else source
    scores = folder.is_classifier
    kind = transformers.AutoModelForSequenceClassification if scores else transformers.AutoModelForCausalLM
    try:
        tokenizer = open_tokenizer(tokenizer_source)
        model = kind.from_pretrained(source, torch_dtype="auto", trust_remote_code=False)
        if folder.is_adapter:
            from peft import PeftModel

            model = PeftModel.from_pretrained(model, str(folder.path)).merge_and_unload()
    except Exception as error:  # the libraries raise many types for damaged files
        where = f"{folder.path} on {source}" if folder.is_adapter else source
        what = f"{type(error).__name__}: {excerpt(' '.join(str(error).split()), 500)}"
        raise InputError(f"cannot load {where}: {what}") from error
    if scores:
        if model.config.num_labels != 1:
            raise InputError(f"{source} is no critic: it has {model.config.num_labels} labels, a critic has one")
        config = model.config.get_text_config()
        if config.pad_token_id is not None and config.pad_token_id == tokenizer.eos_token_id:
            raise InputError(
                f"{source}: its pad token is its end token {tokenizer.eos_token!r}, so its training did not read that; "
                "train it with another pad token (pad_token_id in its config.json)"
            )
        config.pad_token_id = None  # so that the score is of the last token, whatever that is
    elif not tokenizer.chat_template:
        raise InputError(
            f"the tokenizer of {tokenizer_source} has no chat template; copy chat_template.jinja from its base model"
        )
    small = model.num_parameters() < SMALL
    if torch.cuda.is_available():
        place, dtype = "cuda", torch.float16 if model.dtype == torch.float16 else torch.bfloat16
    else:
        place, dtype = "cpu", torch.bfloat16 if not small and multiplies_bfloat16() else torch.float32
        if small and "OMP_NUM_THREADS" not in os.environ:
            torch.set_num_threads(1)
    cast_weights(model, dtype)
    config = model.config.get_text_config()
    context = getattr(config, "max_position_embeddings", None) or min(tokenizer.model_max_length, 1 << 15)
    ends = None if scores else _ends(model, tokenizer)
    return LoadedModel(folder, model.to(place).eval(), tokenizer, tokenizer_source, int(context), ends)


def cast_weights(model: Any, dtype: Any) -> None:
    """Give a model's weights another dtype. Its buffers keep theirs, as when transformers loads it in that dtype:
    frequencies of rotary positions in bfloat16 are wrong by up to .3 %, at position 500 by .7 radians."""
    for weights in model.parameters():
        weights.data = weights.data.to(dtype)


def multiplies_bfloat16() -> bool:
    """Whether the CPU has instructions for products of bfloat16; without them, float32 is faster."""
    said = Path("/proc/cpuinfo")  # of Linux
    return said.is_file() and not _BFLOAT16_FLAGS.isdisjoint(said.read_text("utf-8", "replace").split())


def _ends(model: Any, tokenizer: Any) -> frozenset[int]:
    """Tokens that end a reply: from the generation settings, the tokenizer, and the end of a ChatML turn."""
    said = [model.generation_config.eos_token_id, model.config.get_text_config().eos_token_id, tokenizer.eos_token_id]
    said.append(tokenizer.get_vocab().get(_END_OF_TURN))
    return frozenset(
        int(each) for some in said if some is not None for each in (some if isinstance(some, list) else [some])
    )
