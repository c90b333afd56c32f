"""What LLaMA-Factory truncates at a `cutoff_len`, and the smallest one at which it truncates nothing.

Knows token counts and the trainer's rule; neither texts nor tokenizers.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

TokenCounts = NDArray[np.int64]

STEP: Final = 64
"""Cutoffs are multiples of this, which suits the tiles of a GPU's matrix units."""
TRAINERS_DEFAULT: Final = 2048
"""LLaMA-Factory's default `cutoff_len`."""
CUTOFFS: Final = (512, 1024, 2048, 4096, 8192, 16_384, 32_768)


class Cutoff(BaseModel):
    """How many rows are cut at a `cutoff_len`."""

    cutoff_len: int
    truncated: int
    """Rows that lose any tokens."""
    prompt_cut: int
    """Rows that lose the end of their prompt: the question's last part and the header before the reply."""


def kept_tokens(prompt: TokenCounts, reply: TokenCounts, cutoff_len: int) -> tuple[TokenCounts, TokenCounts]:
    """Tokens kept of prompts and of replies; both are cut at their end.

    reply: of the longer of the two. Source: LLaMA-Factory 0.9.5, data/processor/processor_utils.py, infer_seqlen, with
    the same floating-point operations.
    """
    total = np.maximum(prompt + reply, 1)
    in_proportion = (cutoff_len * (reply / total)).astype(np.int64)
    room = np.where(
        reply * 2 < cutoff_len, cutoff_len, np.where(prompt * 2 < cutoff_len, cutoff_len - prompt, in_proportion)
    )
    reply_left = np.minimum(room, reply)
    return np.minimum(np.maximum(cutoff_len - reply_left, 0), prompt), reply_left


def count_cut_rows(prompt: TokenCounts, reply: TokenCounts, cutoff_len: int) -> Cutoff:
    """How many rows are cut at a `cutoff_len`."""
    prompt_left, reply_left = kept_tokens(prompt, reply, cutoff_len)
    prompt_cut = int(np.count_nonzero(prompt_left < prompt))
    truncated = int(np.count_nonzero((prompt_left < prompt) | (reply_left < reply)))
    return Cutoff(cutoff_len=cutoff_len, truncated=truncated, prompt_cut=prompt_cut)


def advised_cutoff(prompt: TokenCounts, reply: TokenCounts) -> int:
    """The smallest multiple of `STEP` at which nothing is cut. Raises ValueError without rows."""
    longest = int((prompt + reply).max())
    return max(STEP, -(-longest // STEP) * STEP)
