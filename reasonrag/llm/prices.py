"""What tokens cost: one dated table, and the user's own prices over it. An unknown model has no price, not a guess."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

PRICES_AS_OF = "2026-06"
"""When the table was last compared with published list prices (OpenAI's pricing page). Prices change: look there."""


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars per million tokens.

    cached_in: for prompt tokens that the endpoint found in its prompt cache.
    batch_discount: share that a Batch API takes off all of it; reasonrag does not use one, the estimate shows it.
    """

    tokens_in: float
    tokens_out: float
    cached_in: float
    batch_discount: float = 0.0

    def cost(self, prompt_tokens: float, completion_tokens: float, *, cached_tokens: float = 0) -> float:
        """Dollars. `cached_tokens` are among the prompt tokens."""
        fresh = prompt_tokens - cached_tokens
        return (fresh * self.tokens_in + cached_tokens * self.cached_in + completion_tokens * self.tokens_out) / 1e6


SELF_HOSTED = Price(0.0, 0.0, cached_in=0.0)
"""Of a model that is in no table and has an address of its own."""
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
    """The price of a model; None if it is not known.

    A dated snapshot (`gpt-4o-2024-11-20`) costs what its model costs, unless it is listed itself.
    tokens_in, tokens_out: the user's own, over the table. For an unknown model both are needed.
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
