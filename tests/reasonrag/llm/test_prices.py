"""What tokens cost: the table, what a user says instead, and models that nobody has a price of."""

from __future__ import annotations

import re

import pytest

from reasonrag.llm.prices import PRICES, PRICES_AS_OF, Price, find_price

GPT_4O = Price(2.50, 10.00, cached_in=1.25, batch_discount=0.5)
OLD_GPT_4O = Price(5.00, 15.00, cached_in=5.00, batch_discount=0.5)


@pytest.mark.parametrize(
    ("model", "price"),
    [
        ("gpt-4o", GPT_4O),
        ("gpt-4o-2024-11-20", GPT_4O),  # a dated snapshot costs what its model costs
        ("gpt-4o-2024-05-13", OLD_GPT_4O),  # unless it is listed itself
        ("gpt-4o-mini-2024-07-18", PRICES["gpt-4o-mini"]),
        ("gpt-4.1-2025-04-14", PRICES["gpt-4.1"]),
        ("offline", Price(0.0, 0.0, cached_in=0.0)),
        ("gpt-4o-audio-preview", None),  # another model, not a snapshot
        ("gpt-4o-2024", None),
        ("gpt-4o-2024-11-20-mine", None),
        ("2024-11-20", None),
        ("openai/gpt-4o", None),
        ("GPT-4o", None),
        ("meta-llama/Llama-3.1-8B-Instruct", None),
        ("", None),
    ],
)
def test_a_model_costs_what_is_listed_or_nobody_knows(model: str, price: Price | None) -> None:
    """A name that is only similar has no price: a wrong one would be worse than none."""
    assert find_price(model) == price


@pytest.mark.parametrize(
    ("model", "tokens_in", "tokens_out", "price"),
    [
        ("mine", 0.3, 0.9, Price(0.3, 0.9, cached_in=0.3)),
        ("mine", 0.0, 0.0, Price(0.0, 0.0, cached_in=0.0)),
        ("mine", 0.3, None, None),
        ("mine", None, 0.9, None),
        ("gpt-4o", 2.0, None, Price(2.0, 10.0, cached_in=2.0, batch_discount=0.5)),
        ("gpt-4o", None, 9.0, Price(2.5, 9.0, cached_in=1.25, batch_discount=0.5)),
        ("gpt-4o", 0.0, 0.0, Price(0.0, 0.0, cached_in=0.0, batch_discount=0.5)),
        ("gpt-4o-2024-11-20", 2.0, 9.0, Price(2.0, 9.0, cached_in=2.0, batch_discount=0.5)),
    ],
)
def test_a_user_s_own_prices_stand_over_the_table(
    model: str, tokens_in: float | None, tokens_out: float | None, price: Price | None
) -> None:
    """Each for itself where the model is listed, both where it is not. Nothing is known of a discount on cached tokens
    at a price that was given; 0 is a price."""
    assert find_price(model, tokens_in=tokens_in, tokens_out=tokens_out) == price


@pytest.mark.parametrize(
    ("prompt", "completion", "cached", "dollars"),
    [
        (0, 0, 0, 0.0),
        (1_000_000, 0, 0, 2.5),
        (0, 1_000_000, 0, 10.0),
        (1_000_000, 0, 1_000_000, 1.25),
        (1_000_000, 100_000, 400_000, 0.6 * 2.5 + 0.4 * 1.25 + 1.0),
        (1, 0, 0, 2.5e-6),
    ],
)
def test_dollars_are_per_million_tokens(prompt: int, completion: int, cached: int, dollars: float) -> None:
    """Cached tokens are among the prompt tokens, and not paid twice."""
    assert GPT_4O.cost(prompt, completion, cached_tokens=cached) == pytest.approx(dollars)


@pytest.mark.parametrize("model", sorted(PRICES))
def test_every_price_in_the_table_is_possible(model: str) -> None:
    """Cached tokens never cost more than fresh ones, and a reply never less than its prompt."""
    price = PRICES[model]
    assert 0 <= price.cached_in <= price.tokens_in <= price.tokens_out
    assert 0 <= price.batch_discount < 1


def test_the_table_says_of_when_it_is() -> None:
    """Year and month."""
    assert re.fullmatch(r"20\d\d-(0[1-9]|1[0-2])", PRICES_AS_OF)
