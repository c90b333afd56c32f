"""Grouped-query attention of one new token a row, without copies of the keys.

Several query heads share the keys and values of one head. transformers repeats those for every query head before it
calls torch, which at decoding is most of the work: with 64 rows of 600 tokens, SmolLM2-135M takes 1.2 s for a step, and
.2 s where the query heads of a group stand as rows of one small matrix instead (two CPU cores, bfloat16).
Decides nothing else: prompts are read by transformers' own attention. Knows no batches and no cache.
"""

from __future__ import annotations

from typing import Any

import torch

NAME = "reasonrag_grouped_sdpa"
"""What transformers calls it."""


def share_keys(model: Any) -> None:
    """Let a model use this attention, if it uses torch's (`sdpa`) now."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    if getattr(model.config.get_text_config(), "_attn_implementation", None) != "sdpa":
        return
    AttentionInterface.register(NAME, _attend)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    model.set_attn_implementation(NAME)


def _attend(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, *, scaling: float | None = None, **options: Any
) -> tuple[Any, None]:
    """query: [rows, heads, tokens, size]; key, value: [rows, groups, columns, size]; attention_mask: [rows, 1, tokens,
    columns], or None if every column counts. Returns [rows, tokens, heads, size], as transformers expects."""
    rows, heads, tokens, size = query.shape
    groups = key.shape[1]
    if tokens > 1 or heads == groups:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        found: tuple[Any, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **options
        )
        return found
    query = query.reshape(rows, groups, heads // groups, size)
    if attention_mask is not None:
        attention_mask = attention_mask.expand(-1, -1, heads // groups, -1)
    attended = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=attention_mask, scale=scaling
    )
    return attended.reshape(rows, 1, heads, size), None
