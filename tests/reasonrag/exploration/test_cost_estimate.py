"""What a run will take, before it is paid for: from a rehearsal that sends no request."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import reasonrag as package
from mcts import RECIPES
from preference import read_rollouts
from reasonrag.exploration.cost_estimate import CostEstimate, estimate
from reasonrag.llm.expected_usage import REHEARSED, VERBOSE_REPLY_TOKENS, Range
from reasonrag.llm.prices import find_price, price_list

SMALL: dict[str, Any] = {"dataset": "atlas", "set": {"search.simulations": 2}, "run": "runs/a"}
TOTALS = ("calls", "requests", "prompt_tokens", "completion_tokens")


def ranges(found: CostEstimate) -> Iterator[tuple[str, Range]]:
    for name in (*TOTALS, "hours", "dollars"):
        each = getattr(found, name)
        if each is not None:
            yield name, each


def test_nobody_is_asked_and_no_key_is_needed() -> None:
    """No key is set here and no network is there; nothing is left behind where the run would be."""
    found = estimate(model="gpt-4o", limit=30, **SMALL)
    assert (found.measured_questions, found.questions) == (REHEARSED, 30)
    assert (found.model, found.recipe, found.prices_as_of) == ("gpt-4o", "economy", price_list())
    assert found.dollars is not None
    assert found.dollars.low > 0
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("recipe", "flags"),
    [
        *((recipe, {"limit": 3}) for recipe in RECIPES if recipe != "chains"),
        ("chains", {"limit": 3, "set": {"search.group": 2}}),
        *(
            (recipe, {"set": {"search.simulations": 1, "search.siblings": 1}})
            for recipe in ("economy", "released", "ragym")
        ),
    ],
)
def test_the_low_end_is_never_above_the_high_one(recipe: str, flags: dict[str, Any]) -> None:
    """Whatever the recipe and the limits; and everything is more than nothing."""
    found = estimate(model="gpt-4o", recipe=recipe, **(SMALL | {"limit": 10} | flags))
    for name, each in ranges(found):
        assert 0 < each.low <= each.high, name


def test_what_the_recipe_does_with_short_replies_lies_between_the_ends() -> None:
    """The offline teacher's own usage: each question of it, so that both ends hold what was rehearsed."""
    found = estimate(model="gpt-4o", limit=5, **SMALL)
    summary = package.generate(limit=5, **SMALL)
    trees = list(read_rollouts(Path(summary.run) / "rollouts.jsonl"))
    for name in TOTALS:
        each = getattr(found, name)
        assert each.low <= sum(getattr(tree.usage, name) for tree in trees) <= each.high, name
    assert found.completion_tokens.high >= VERBOSE_REPLY_TOKENS * found.calls.high


def test_a_teacher_that_reads_is_asked_as_often_as_it_and_a_reader_together() -> None:
    """Readings are beside the recipe's budget, by the teacher or by a reader of its own."""
    alone, both = (
        estimate(model="offline", agent="search-o1", limit=5, reader_model=reader, **SMALL)
        for reader in (None, "offline-student")
    )
    assert alone.calls.high == pytest.approx(both.calls.high)


def test_a_talkative_teacher_s_thoughts_make_prompts_longer() -> None:
    """The high end has longer replies in every later prompt too, not only more calls."""
    found = estimate(model="gpt-4o", limit=5, **SMALL)
    assert found.prompt_tokens.high / found.requests.high > found.prompt_tokens.low / found.requests.low


def test_dollars_are_the_tokens_at_the_model_s_price() -> None:
    """Nothing is hoped for from caches."""
    found = estimate(model="gpt-4o", limit=5, **SMALL)
    price = find_price("gpt-4o")
    assert price is not None
    assert found.dollars is not None
    assert found.dollars.low == pytest.approx(price.cost(found.prompt_tokens.low, found.completion_tokens.low))
    assert found.dollars.high == pytest.approx(price.cost(found.prompt_tokens.high, found.completion_tokens.high))


def test_a_model_without_a_price_has_dollars_where_it_is_given_by_hand() -> None:
    """Which is said; everything else is told all the same."""
    unpriced = estimate(model="my-own/model", limit=5, **SMALL)
    assert (unpriced.dollars, unpriced.calls.low > 0) == (None, True)
    found = estimate(model="my-own/model", limit=5, price="my-own/model=1,3", **SMALL)
    assert found.dollars is not None
    assert found.dollars.low == pytest.approx((found.prompt_tokens.low + 3 * found.completion_tokens.low) / 1e6)
    assert found.prices_as_of == "given by hand"


def test_hours_are_those_of_so_many_requests_in_flight() -> None:
    """Between one and four seconds a request."""
    found = estimate(model="gpt-4o", limit=5, concurrency=4, **SMALL)
    ends = found.requests.low / 4 / 3600, found.requests.high * 4 / 4 / 3600
    assert (found.hours.low, found.hours.high) == pytest.approx(ends)
