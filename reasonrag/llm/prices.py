"""Prices of models: those of the package genai-prices, overridden by the user's. An unknown model has none.

Decides which of a model's prices counts. Never asks the network: prices change with the package, and on its dates.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from reasonrag.llm.offline import NAME, STUDENT
from reasonrag.llm.settings import parse_price

if TYPE_CHECKING:
    from genai_prices.data_snapshot import DataSnapshot
    from genai_prices.types import ModelInfo, Provider, TieredPrices


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars per million tokens. cached_in: for prompt tokens in the endpoint's prompt cache."""

    tokens_in: float
    tokens_out: float
    cached_in: float

    def cost(self, prompt_tokens: float, completion_tokens: float, *, cached_tokens: float = 0) -> float:
        """The cost in dollars. `cached_tokens` are included in the prompt tokens."""
        fresh = prompt_tokens - cached_tokens
        return (fresh * self.tokens_in + cached_tokens * self.cached_in + completion_tokens * self.tokens_out) / 1e6


SELF_HOSTED = Price(0.0, 0.0, cached_in=0.0)
"""Price of an unlisted model at its own address, and of the offline teacher."""


def price_list() -> str:
    """The package and its version, whose prices `find_price` knows."""
    return f"genai-prices {version('genai-prices')}"


def find_price(
    model: str, *, addresses: Sequence[str] = (), extra_body: Mapping[str, Any] | None = None
) -> Price | None:
    """The list price of a model; None if unknown.

    addresses: where it is asked; none: OPENAI_BASE_URL. The provider at the first known one decides, else the model's
        name: a gateway has the prices of those behind it.
    extra_body: further fields of its requests, of which `service_tier` may have prices of its own.
    """
    if model in (NAME, STUDENT):
        return SELF_HOSTED
    found: ModelInfo | None = None
    if provider := find_provider(addresses or [os.environ.get("OPENAI_BASE_URL", "")]):
        # its own price or none: that of another provider would be a guess
        found = provider.find_model(model, all_providers=_snapshot().providers)
    else:
        with suppress(LookupError):
            found = _snapshot().find_provider_model(model, None, None, None)[1]
    if found is None:
        return None
    today = datetime.now(UTC)
    hours = [today.replace(hour=hour, minute=30) for hour in range(24)]
    # some are cheaper at night; a cap has to hold at any hour
    hour = max(hours, key=lambda each: _first_tier(found.get_prices(each).output_mtok) or 0)
    usual = found.get_prices(hour, {"service_tier": str((extra_body or {}).get("service_tier"))})
    tokens_in, tokens_out = _first_tier(usual.input_mtok), _first_tier(usual.output_mtok)
    if tokens_in is None or tokens_out is None or usual.requests_kcount:  # a price per request is none per token
        return None
    cached_in = _first_tier(usual.cache_read_mtok)
    return Price(tokens_in, tokens_out, cached_in=tokens_in if cached_in is None else cached_in)


def prices_given(words: Iterable[str]) -> dict[str, Price]:
    """The prices of `NAME=IN,OUT` words, by name."""
    parsed = map(parse_price, words)
    return {name: Price(tokens_in, tokens_out, cached_in=tokens_in) for name, tokens_in, tokens_out in parsed}


def _first_tier(price: Decimal | TieredPrices | None) -> float | None:
    """Higher tiers begin at prompts of 32,000 tokens and more, mostly at 200,000; an agent's prompts are shorter."""
    return None if price is None else float(price if isinstance(price, Decimal) else price.base)


def find_provider(addresses: Sequence[str]) -> Provider | None:
    """The first provider with prices at one of these addresses."""
    for address in addresses:
        with suppress(LookupError):
            return _snapshot().find_provider(None, None, address)
    return None


@cache
def _snapshot() -> DataSnapshot:
    """The package's bundled snapshot, even if this process has updated its prices. Loaded when first needed."""
    from genai_prices.data import providers
    from genai_prices.data_snapshot import DataSnapshot

    return DataSnapshot(providers, from_auto_update=False)
