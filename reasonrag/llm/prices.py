"""Prices of models: one dated table, overridden by the user's prices. An unknown model has no price, not a guess."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

PRICES_AS_OF = "2026-06"
"""When the table was last compared with the published list prices (OpenAI's pricing page), which change."""


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars per million tokens.

    cached_in: for prompt tokens in the endpoint's prompt cache.
    batch_discount: share that a Batch API would save; reasonrag does not use one, but the estimate shows it.
    """

    tokens_in: float
    tokens_out: float
    cached_in: float
    batch_discount: float = 0.0

    def cost(self, prompt_tokens: float, completion_tokens: float, *, cached_tokens: float = 0) -> float:
        """The cost in dollars. `cached_tokens` are included in the prompt tokens."""
        fresh = prompt_tokens - cached_tokens
        return (fresh * self.tokens_in + cached_tokens * self.cached_in + completion_tokens * self.tokens_out) / 1e6


SELF_HOSTED = Price(0.0, 0.0, cached_in=0.0)
"""Price of an unlisted model at its own address."""
_BATCH = 0.5
PRICES: dict[str, Price] = {
    "gpt-4o": Price(2.50, 10.00, cached_in=1.25, batch_discount=_BATCH),
    "gpt-4o-2024-05-13": Price(5.00, 15.00, cached_in=5.00, batch_discount=_BATCH),
    "gpt-4o-mini": Price(0.15, 0.60, cached_in=0.075, batch_discount=_BATCH),
    "gpt-4.1": Price(2.00, 8.00, cached_in=0.50, batch_discount=_BATCH),
    "gpt-4.1-mini": Price(0.40, 1.60, cached_in=0.10, batch_discount=_BATCH),
    "gpt-4.1-nano": Price(0.10, 0.40, cached_in=0.025, batch_discount=_BATCH),
    "gpt-5": Price(1.25, 10.00, cached_in=0.125, batch_discount=_BATCH),
    "gpt-5-mini": Price(0.25, 2.00, cached_in=0.025, batch_discount=_BATCH),
    "gpt-5-nano": Price(0.05, 0.40, cached_in=0.005, batch_discount=_BATCH),
    "o4-mini": Price(1.10, 4.40, cached_in=0.275, batch_discount=_BATCH),
    "offline": Price(0.0, 0.0, cached_in=0.0),
    "offline-student": Price(0.0, 0.0, cached_in=0.0),
}
_SNAPSHOT = re.compile(r"-\d{4}-\d{2}-\d{2}$")


def find_price(model: str, *, tokens_in: float | None = None, tokens_out: float | None = None) -> Price | None:
    """The price of a model; None if unknown.

    A dated snapshot (`gpt-4o-2024-11-20`) has its model's price, unless it is listed itself.
    tokens_in, tokens_out: the user's prices, which override the table. An unknown model needs both.
    """
    listed = PRICES.get(model) or PRICES.get(_SNAPSHOT.sub("", model))
    if tokens_in is None and tokens_out is None:
        return listed
    if listed is None:
        if tokens_in is None or tokens_out is None:
            return None
        return Price(tokens_in, tokens_out, cached_in=tokens_in)
    if tokens_in is not None:
        listed = replace(listed, tokens_in=tokens_in, cached_in=tokens_in)
    return listed if tokens_out is None else replace(listed, tokens_out=tokens_out)
