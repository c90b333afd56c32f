"""Expected usage: ends that hold what was measured, scale with the work, and stop at caps."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as some

from reasonrag.llm.budget import Caps, Tokens
from reasonrag.llm.expected_usage import FEWEST_TOKENS, VERBOSE_REPLY_TOKENS, ExpectedUsage, Range
from reasonrag.llm.prices import Price

usages = some.lists(
    some.builds(
        lambda requests, more, prompt, completion: Tokens(requests + more, requests, prompt, completion),
        some.integers(1, 500),
        some.integers(0, 500),
        some.integers(1, 10**6),
        some.integers(0, 10**5),
    ),
    min_size=1,
    max_size=20,
)
PRICE = Price(2.5, 10.0, cached_in=1.25)


def means(of: list[Tokens]) -> list[float]:
    return [statistics.mean(each[place] for each in of) for place in range(4)]


@given(usages, some.floats(1, 10), some.floats(0, 5))
def test_the_mean_that_was_measured_lies_between_the_ends(of: list[Tokens], scale: float, thoughts: float) -> None:
    """Of a plain measurement and of a rehearsal, whose prompts may be fewer tokens than it took them for."""
    measured, rehearsed = ExpectedUsage.mean_of(of), ExpectedUsage.rehearsed(of, scale=scale, thoughts=thoughts)
    for plain, bound, mean in zip(vars(measured).values(), vars(rehearsed).values(), means(of), strict=True):
        assert plain.low <= mean + 1e-6
        assert mean <= plain.high + 1e-6
        assert bound.low <= plain.low
        assert plain.high <= bound.high + 1e-6
    assert rehearsed.prompt_tokens.low == FEWEST_TOKENS * measured.prompt_tokens.low
    assert rehearsed.calls.low == measured.calls.low
    if len(of) == 1:  # which says nothing of how much others differ
        assert measured.calls == Range(low=of[0].calls / 2, high=2 * of[0].calls)
    assert rehearsed.completion_tokens.high >= VERBOSE_REPLY_TOKENS * rehearsed.calls.high


@given(usages, some.integers(0, 1000), some.integers(0, 1000))
def test_usage_and_cost_grow_in_proportion_to_the_work(of: list[Tokens], low: int, more: int) -> None:
    """Owed questions of which some may be answered already: the ends count them apart."""
    each = ExpectedUsage.mean_of(of)
    one, many = each.dollars(PRICE), each.times(low, low + more).dollars(PRICE)
    assert one is not None
    assert many is not None
    assert (many.low, many.high) == (pytest.approx(low * one.low), pytest.approx((low + more) * one.high))
    assert each + each == each.times(2, 2)


@given(usages, some.integers(0, 10**4), some.integers(0, 10**7))
def test_no_end_is_above_what_the_caps_leave(of: list[Tokens], calls: int, tokens: int) -> None:
    """Caps on calls and on tokens; what is spent already counts."""
    each = ExpectedUsage.mean_of(of).times(10, 10)
    spent = Tokens(calls=calls // 2, prompt_tokens=tokens // 2)
    left = each.times(*each.share_within(Caps(calls=calls, tokens=tokens), spent))
    assert left.calls.high <= calls - calls // 2 + 1e-6
    assert left.prompt_tokens.high + left.completion_tokens.high <= tokens - tokens // 2 + 1e-6
    assert each.share_within(Caps(), spent) == (1.0, 1.0)
