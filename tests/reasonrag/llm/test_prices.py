"""What tokens cost: the bundled price list, the user's own prices, and models without a known price."""

from __future__ import annotations

import subprocess
import sys

import pytest
from genai_prices.data_snapshot import DataSnapshot, set_custom_snapshot

import reasonrag
from reasonrag.errors import InputError
from reasonrag.llm.model_spec import ModelSpec
from reasonrag.llm.prices import Price, find_price, find_provider
from reasonrag.llm.settings import LimitSettings, ModelSettings

GPT_4O = Price(2.50, 10.00, cached_in=1.25)
FREE = Price(0.0, 0.0, cached_in=0.0)
OPENAI, ANTHROPIC = "https://api.openai.com/v1", "https://api.anthropic.com/v1"
GATEWAY = "https://gateway.example.org/v1"


@pytest.mark.parametrize(
    ("model", "price"),
    [
        ("gpt-4o-2024-11-20", GPT_4O),  # a dated snapshot costs what its model costs
        ("claude-sonnet-4-5-20250929", Price(3.0, 15.0, cached_in=0.3)),  # the first of two tiers
        ("gemini-2.5-pro", Price(1.25, 10.0, cached_in=0.125)),
        ("deepseek-chat", Price(0.27, 1.10, cached_in=0.07)),  # half of it at night
        ("offline", FREE),
        ("offline-student", FREE),
        ("gpt-4o-2024", None),
        ("openai/gpt-4o", None),
        ("text-embedding-3-large", None),  # a price of prompts alone
        ("", None),
    ],
)
def test_a_model_costs_what_is_listed_or_nobody_knows(model: str, price: Price | None) -> None:
    """A name that is only similar has no price: a wrong one would be worse than none."""
    assert find_price(model) == price


@pytest.mark.parametrize(
    ("model", "addresses", "price"),
    [
        ("gpt-4o", [GATEWAY], GPT_4O),  # a proxy, a gateway or a simulator: by the name
        ("gpt-4o", ["https://mine.openai.azure.com/openai/v1/"], GPT_4O),  # which has the provider's own prices
        ("llama-3.3-70b-versatile", [], None),
        ("llama-3.3-70b-versatile", ["https://api.groq.com/openai/v1"], Price(0.59, 0.79, cached_in=0.59)),
        ("llama-3.3-70b-versatile", [GATEWAY, "https://api.groq.com/openai/v1"], Price(0.59, 0.79, cached_in=0.59)),
        ("gpt-oss-20b", ["https://api.cerebras.ai/v1"], None),  # known by name, but not of this one
        ("gpt-4o", [ANTHROPIC], None),
        ("sonar", ["https://api.perplexity.ai"], None),  # tokens are not all it costs
        ("offline", [GATEWAY], FREE),
    ],
)
def test_the_provider_whose_address_is_asked_decides(model: str, addresses: list[str], price: Price | None) -> None:
    """At an unknown address the name decides."""
    assert find_price(model, addresses=addresses) == price


@pytest.mark.parametrize(
    ("extra_body", "price"),
    [
        ({"service_tier": "flex"}, Price(0.625, 5.00, cached_in=0.0625)),
        ({"service_tier": "default", "reasoning_effort": "low"}, find_price("gpt-5")),
        ({"service_tier": "of my own"}, find_price("gpt-5")),
    ],
)
def test_a_service_tier_has_its_own_price(extra_body: dict[str, object], price: Price) -> None:
    """One that the list does not know costs what is usual."""
    assert find_price("gpt-5", extra_body=extra_body) == price


def test_without_an_address_the_one_of_the_environment_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_price("llama-3.3-70b-versatile") is None
    monkeypatch.setenv("OPENAI_BASE_URL", "https://api.groq.com/openai/v1")
    assert find_price("llama-3.3-70b-versatile") is not None
    assert find_price("gpt-4o") is None
    assert find_price("gpt-4o", addresses=[OPENAI]) == GPT_4O


def test_a_server_of_ones_own_is_no_seller() -> None:
    """A self-hosted model may be free; the price of a provider's unlisted model is unknown."""
    assert find_provider([GATEWAY, OPENAI])
    assert not find_provider([GATEWAY, "http://127.0.0.1:8000/v1", ""])


def test_a_user_s_own_price_stands_over_the_list() -> None:
    """Nothing is known of a discount on cached tokens at a price that was given; 0 is a price."""
    own = ModelSettings(price=["gpt-4o=2,9", "org/mine:8b=v=0,0"])
    for name, price in (("gpt-4o", Price(2.0, 9.0, cached_in=2.0)), ("org/mine:8b=v", FREE)):
        assert ModelSpec.of(own, LimitSettings(), name).price == price


@pytest.mark.parametrize("word", ["gpt-4o", "gpt-4o=1", "gpt-4o=1,2,3", "=1,2", "gpt-4o=-1,2", "gpt-4o=1,inf"])
def test_a_price_is_a_model_and_two_numbers(word: str) -> None:
    with pytest.raises(InputError, match="`price`: it takes NAME=IN,OUT"):
        reasonrag.generate(price=word, run="runs/none")


def test_prices_are_those_of_the_package_whatever_a_process_has_fetched() -> None:
    """The version that a run records has to say what its prices were."""
    set_custom_snapshot(DataSnapshot(providers=[], from_auto_update=True))
    try:
        assert find_price("gpt-4o", addresses=[OPENAI]) == GPT_4O
    finally:
        set_custom_snapshot(None)


def test_a_price_is_found_without_any_socket_and_the_list_is_read_only_then() -> None:
    code = """
import socket, sys
def refused(*_, **__):
    raise AssertionError("a price asked the network")
socket.socket.__init__ = socket.getaddrinfo = socket.create_connection = refused
from reasonrag.llm.prices import find_price, price_list
price_list()
assert "genai_prices" not in sys.modules
print(find_price("gpt-5", addresses=["https://api.openai.com/v1"]).tokens_out)
import threading
assert threading.active_count() == 1
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "10.0\n"
