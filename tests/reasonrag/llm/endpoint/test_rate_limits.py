"""How fast one endpoint is asked: rates, the window, Retry-After, the breaker, and what headers teach. The clock is the
test's own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasonrag.llm.endpoint.rate_limits import (
    BURST_S,
    DECREASE,
    FAILURES_TO_OPEN,
    FIRST_PAUSE_S,
    HEADROOM,
    LONGEST_PAUSE_S,
    Pace,
    Rate,
    Sent,
)

MINUTE = 60.0


def start(pace: Pace, count: int = 1, *, now: float = 0.0, tokens: float = 0.0) -> None:
    for _ in range(count):
        pace.sent(tokens, now)


def succeed(pace: Pace, *, now: float, expected: float = 0.0, tokens: float = 0.0) -> None:
    """A request that goes and is answered."""
    pace.sent(expected, now)
    pace.succeeded(Sent(expected, now), tokens=tokens, now=now)


def fail(pace: Pace, count: int = 1, *, now: float) -> None:
    """So many requests that go and come to nothing, one after the other."""
    for _ in range(count):
        pace.sent(0, now)
        pace.failed(Sent(0, now), now=now)


def wait_until_free(rate: Rate, now: float) -> float:
    """When something may be taken; a clock cannot tell times apart that differ by less than a microsecond."""
    while (seconds := rate.wait(now)) > 0:
        now += max(seconds, 1e-6)
    return now


def taken_greedily(
    rate: Rate, amounts: Sequence[float], *, gap: float = 0.0, until: float
) -> list[tuple[float, float]]:
    """Times and amounts, taken in turn again and again as soon as it is allowed, `gap` seconds apart at least."""
    now, taken = 1000.0, []
    end = now + until
    while True:
        now = wait_until_free(rate, now)
        if now >= end:
            return taken
        amount = amounts[len(taken) % len(amounts)]
        rate.take(amount, now)
        taken.append((now, amount))
        now += gap


def most_in_a_minute(taken: Sequence[tuple[float, float]]) -> float:
    most = inside = 0.0
    oldest = 0
    for now, amount in taken:
        inside += amount
        while taken[oldest][0] <= now - MINUTE:
            inside -= taken[oldest][1]
            oldest += 1
        most = max(most, inside)
    return most


# -- rates ---------------------------------------------------------------------------------------------------------


@given(
    limit=st.floats(5, 500),
    amounts=st.lists(st.floats(0.5, 20), min_size=1, max_size=5),
    gap=st.sampled_from([0.0, 0.05, 1.0]),
)
def test_a_rate_is_never_exceeded_over_a_minute(limit: float, amounts: list[float], gap: float) -> None:
    """In any 60 seconds: the used share of the limit, a second's worth of burst, and the amount that overran it."""
    taken = taken_greedily(Rate(limit), amounts, gap=gap, until=3 * MINUTE)
    burst = HEADROOM * limit / MINUTE * BURST_S
    assert most_in_a_minute(taken) <= HEADROOM * limit + burst + max(amounts) + 1e-3


@given(limit=st.floats(30, 2000), amounts=st.lists(st.floats(0.5, 3), min_size=1, max_size=5))
def test_a_rate_is_used_up(limit: float, amounts: list[float]) -> None:
    """Whoever takes as soon as allowed gets the whole of the limit but for the headroom."""
    taken = taken_greedily(Rate(limit), amounts, until=3 * MINUTE)
    assert sum(amount for _, amount in taken) >= 3 * HEADROOM * limit - max(amounts)


def test_requests_and_tokens_both_hold_a_request_back() -> None:
    """The longer wait counts."""
    pace = Pace(10, requests=Rate(60 / HEADROOM), tokens=Rate(6000 / HEADROOM))
    start(pace, tokens=50)
    assert pace.wait(0.0) == (0.0, "")
    start(pace, tokens=50)
    assert pace.wait(0.0) == (pytest.approx(1.0), "rate limit")  # 2 requests, 1 a second
    start(pace, tokens=900)
    assert pace.wait(0.0) == (pytest.approx(9.0), "rate limit")  # 1,000 tokens, 100 a second


def test_tokens_are_corrected_after_the_answer() -> None:
    """What was expected is replaced by what was used, in either direction; never more is given back than there is."""
    pace = Pace(10, tokens=Rate(6000 / HEADROOM))
    succeed(pace, now=0.0, expected=1_000, tokens=300)
    assert pace.wait(0.0)[0] == pytest.approx(2.0)
    succeed(pace, now=0.0, expected=0, tokens=200)
    assert pace.wait(0.0)[0] == pytest.approx(4.0)
    pace.succeeded(Sent(10_000, 0.0), tokens=0, now=0.0)
    start(pace, tokens=200)
    assert pace.wait(0.0)[0] == pytest.approx(1.0)


# -- the window ----------------------------------------------------------------------------------------------------


def test_a_round_of_answers_widens_the_window_by_one() -> None:
    """Additive increase, up to the most that may be in flight."""
    pace = Pace(16)
    pace.window = 4.0
    for expected in (5, 6, 7):
        for _ in range(int(pace.window) + 1):
            succeed(pace, now=1.0)
        assert expected - 0.3 <= pace.window <= expected + 0.3
    for _ in range(500):
        succeed(pace, now=1.0)
    assert pace.window == 16.0


def test_requests_of_one_round_that_are_refused_narrow_the_window_once() -> None:
    """Multiplicative decrease: what was sent before the decrease says nothing about the narrower window."""
    pace = Pace(64)
    start(pace, 64, now=1.0)
    for position in range(32):
        pace.refused(Sent(0, 1.0), retry_after=None, now=2.0 + position / 100)
    assert (pace.window, pace.in_flight) == (64 * DECREASE, 32)
    pace.refused(Sent(0, 3.0), retry_after=None, now=4.0)  # sent after the decrease
    assert pace.window == 64 * DECREASE * DECREASE


OUTCOMES = st.lists(st.sampled_from(["start", "start", "succeed", "refuse", "fail", "reject"]), max_size=60)


@given(most=st.integers(1, 8), outcomes=OUTCOMES)
def test_in_flight_is_counted_and_the_window_stays_within_its_bounds(most: int, outcomes: list[str]) -> None:
    """Whatever becomes of requests: 1 <= window <= most, and never more in flight than the window as it was then."""
    pace, now, in_flight = Pace(most), 0.0, 0
    for outcome in outcomes:
        now += 0.5
        if outcome == "start":
            if pace.wait(now)[0] == 0:
                assert in_flight < max(1, int(pace.window))
                pace.sent(0, now)
                in_flight += 1
        elif in_flight:
            in_flight -= 1
            if outcome == "succeed":
                pace.succeeded(Sent(0, now), tokens=0, now=now)
            elif outcome == "refuse":
                pace.refused(Sent(0, now - 0.5), retry_after=None, now=now)
            elif outcome == "fail":
                pace.failed(Sent(0, now - 0.5), now=now)
            else:
                pace.cancelled(Sent(0, now - 0.5))
        assert pace.in_flight == in_flight
        assert 1.0 <= pace.window <= most


def test_retry_after_holds_everybody_back() -> None:
    """As long as the endpoint asked for, and no shorter request of another answer cuts it."""
    pace = Pace(8)
    start(pace, 2, now=10.0)
    pace.refused(Sent(0, 10.0), retry_after=12.0, now=11.0)
    pace.refused(Sent(0, 10.0), retry_after=1.0, now=11.0)
    assert pace.wait(11.0) == (12.0, "asked to wait")
    assert pace.wait(22.5) == (0.5, "asked to wait")
    assert pace.wait(23.0) == (0.0, "")


# -- the breaker ---------------------------------------------------------------------------------------------------


def test_the_breaker_opens_after_failures_in_a_row() -> None:
    """One fewer does not open it; one success between starts the count again."""
    pace = Pace(8)
    fail(pace, FAILURES_TO_OPEN - 1, now=1.0)
    succeed(pace, now=2.0)
    fail(pace, FAILURES_TO_OPEN - 1, now=3.0)
    assert (pace.down_since, pace.wait(3.0)) == (None, (0.0, ""))
    fail(pace, now=4.0)
    assert pace.down_since == 4.0
    seconds, why = pace.wait(4.0)
    assert why == "endpoint down"
    assert 0.8 * FIRST_PAUSE_S <= seconds <= 1.2 * FIRST_PAUSE_S


@pytest.mark.parametrize(
    ("ends", "down"),
    [
        (lambda pace: pace.answered(Sent(0, 0.0)), None),
        (lambda pace: pace.refused(Sent(0, 2.0), retry_after=None, now=3.0), None),
        (lambda pace: pace.cancelled(Sent(0, 2.0)), 1.0),
    ],
    ids=["a 400", "too many", "withdrawn"],
)
def test_any_answer_shows_that_somebody_is_there(ends: Callable[[Pace], None], down: float | None) -> None:
    """It interrupts a row of failures, and closes a breaker; a request that is withdrawn says nothing."""
    pace = Pace(8)
    fail(pace, FAILURES_TO_OPEN - 1, now=1.0)
    start(pace)
    ends(pace)
    fail(pace, now=1.0)
    assert pace.down_since == down
    fail(pace, FAILURES_TO_OPEN, now=1.0)
    start(pace)
    ends(pace)
    assert pace.down_since == down


def test_a_trial_waits_for_no_request_of_before_the_outage() -> None:
    """Those that hang since then may hang for minutes after the endpoint is back."""
    pace = Pace(64)
    start(pace, 3, now=0.5)  # will hang
    fail(pace, FAILURES_TO_OPEN, now=1.0)
    now = pace.paused_until
    assert pace.wait(now) == (0.0, "")
    start(pace, now=now)
    pace.cancelled(Sent(0, now))  # another request may try now
    assert (pace.wait(now), pace.down_since) == ((0.0, ""), 1.0)
    start(pace, now=now)
    pace.failed(Sent(0, 0.5), now=now + 0.1)  # one of the old ones: says nothing about the trial
    assert pace.wait(now + 0.1) == (math.inf, "endpoint down")
    pace.succeeded(Sent(0, now + 0.2), tokens=0, now=now + 0.2)
    assert pace.wait(now + 0.2) == (0.0, "")


def test_what_it_asked_to_wait_is_no_time_without_use() -> None:
    """Refusals count from the first one; an answer ends it."""
    pace = Pace(8)
    assert pace.useless_since is None
    start(pace, 5, now=1.0)
    pace.refused(Sent(0, 1.0), retry_after=None, now=2.0)
    pace.refused(Sent(0, 1.0), retry_after=None, now=3.0)
    assert pace.useless_since == 2.0
    pace.refused(Sent(0, 1.0), retry_after=30.0, now=4.0)
    pace.refused(Sent(0, 1.0), retry_after=40.0, now=4.0)
    assert pace.useless_since == 42.0
    pace.succeeded(Sent(0, 5.0), tokens=0, now=5.0)
    assert pace.useless_since is None
    fail(pace, FAILURES_TO_OPEN, now=50.0)
    assert pace.useless_since == 50.0


def test_pauses_between_trials_double_up_to_the_longest() -> None:
    """With some jitter, so that many clients do not come back at once; after an answer they are short again."""
    pace = Pace(8)
    fail(pace, FAILURES_TO_OPEN, now=0.0)
    now, pauses = 0.0, []
    for _ in range(12):
        pauses.append(pace.wait(now)[0])
        now += pauses[-1] + 1e-6
        fail(pace, now=now)
    expected = [min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**number) for number in range(12)]
    for pause, middle in zip(pauses, expected, strict=True):
        assert 0.79 * middle <= pause <= 1.21 * middle
    assert len({pause / middle for pause, middle in zip(pauses, expected, strict=True)}) > 1
    succeed(pace, now=now)
    assert (pace.down_since, pace.failures, pace.wait(now)) == (None, 0, (0.0, ""))
    fail(pace, FAILURES_TO_OPEN, now=now)
    assert pace.wait(now)[0] <= 1.2 * FIRST_PAUSE_S


# -- what headers teach --------------------------------------------------------------------------------------------


def test_limits_are_learned_from_headers_where_they_were_not_given() -> None:
    """And followed when they change: a user may share an account."""
    pace, given = Pace(8), Pace(8, requests=Rate(100.0))
    start(pace, tokens=1e12)  # before there is a limit, nothing counts against it
    for each, requests in ((pace, 600.0), (given, 100.0)):
        each.learn({"x-ratelimit-limit-requests": "600", "x-ratelimit-limit-tokens": "30000"})
        assert (each.requests.limit, each.tokens.limit) == (requests, 30_000.0)
    pace.learn({"x-ratelimit-limit-requests": "500"})
    assert (pace.requests.limit, pace.tokens.limit, pace.wait(0.0)) == (500.0, 30_000.0, (0.0, ""))


@pytest.mark.parametrize("value", ["", "0", "-1", "many", "1.5", "60, 60;w=60", "inf", "9" * 5_000, "9" * 400])
def test_headers_that_name_no_limit_change_nothing(value: str) -> None:
    """Endpoints send all kinds of things."""
    pace = Pace(8, tokens=Rate(5.0))
    pace.learn({"x-ratelimit-limit-requests": value, "x-ratelimit-limit-tokens": value})
    assert (pace.requests.limit, pace.tokens.limit) == (None, 5.0)
