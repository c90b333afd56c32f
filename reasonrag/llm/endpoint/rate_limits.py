"""Rate limits of one endpoint: requests and tokens per minute, an adaptive window, pauses and a circuit breaker.

Decides when the next request may be sent and why it must wait. Knows no clock, and not which requests wait.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field

BURST_S = 1.0
"""Burst capacity after a pause, in seconds of the rate."""
HEADROOM = 0.985
"""Share of a known limit that is used: clocks and networks are inexact, and a refused request loses time."""
DECREASE = 0.5
"""Factor on the window after a refusal (multiplicative decrease, once per round of requests)."""
FAILURES_TO_OPEN = 5
"""Failures in a row after which an endpoint counts as down."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
"""Pause between trials of an endpoint that is down; doubled each time."""
WINDOW_FULL, DOWN, ASKED_TO_WAIT = "window full", "endpoint down", "asked to wait"
"""Reasons to wait."""
MOST_DIGITS = 12
"""Most digits of a limit in a header; longer numbers are ignored."""


@dataclass(slots=True)
class Rate:
    """An allowance per minute. `limit` None: unlimited."""

    limit: float | None = None
    _level: float = 0.0
    """Used part of the burst; never below 0, above the burst while earlier requests wait."""
    _at: float = 0.0

    def _drain(self, now: float) -> float:
        """The level now, and the allowance per second."""
        per_second = HEADROOM * (self.limit or 0.0) / 60
        self._level = max(0.0, self._level - per_second * max(0.0, now - self._at))
        self._at = max(now, self._at)
        return per_second

    def wait(self, now: float) -> float:
        """Seconds until something may be taken."""
        if self.limit is None:
            return 0.0
        per_second = self._drain(now)
        return max(0.0, (self._level - per_second * BURST_S) / per_second)

    def take(self, amount: float, now: float) -> None:
        """Use an amount; a negative one is returned."""
        if self.limit is not None:
            self._drain(now)
            self._level = max(0.0, self._level + amount)


@dataclass(slots=True)
class Sent:
    """A request in flight. tokens: about so many. lane: of several paces, the position of the one that is told what
    becomes of it; over: whether that was told."""

    tokens: float
    at: float
    lane: int = 0
    over: bool = field(default=False, kw_only=True)


@dataclass(slots=True)
class Pace:
    """The state of one endpoint.

    most: most requests in flight. requests, tokens: limits per minute; learned from headers if not given. parts: of so
    many equal parts of what is learned, this is one.
    """

    most: int
    requests: Rate = field(default_factory=Rate)
    tokens: Rate = field(default_factory=Rate)
    parts: int = 1
    in_flight: int = 0
    window: float = 0.0
    paused_until: float = 0.0
    down_since: float | None = None
    busy_since: float | None = None
    """Since when every answer is a refusal; what they asked to wait is left out."""
    failures: int = 0
    """Number in a row."""
    asked_until: float = 0.0
    """Until when a refusal asked to wait."""
    _trial: bool = False
    """Whether a trial request is in flight, which tests whether the endpoint is back."""
    _pause: float = FIRST_PAUSE_S
    _decreased_at: float = 0.0
    _given: tuple[bool, bool] = (False, False)

    def __post_init__(self) -> None:
        self.window = float(self.most)
        self._given = (self.requests.limit is not None, self.tokens.limit is not None)

    @property
    def useless_since(self) -> float | None:
        """Since when it is down or refuses everything."""
        return self.busy_since if self.down_since is None else self.down_since

    def wait(self, now: float) -> tuple[float, str]:
        """Seconds until the next request may be sent, and why; infinity if it waits for another one to end."""
        if now < self.paused_until:
            return self.paused_until - now, DOWN if self.down_since is not None else ASKED_TO_WAIT
        if self._trial:
            return math.inf, DOWN
        if self.in_flight >= max(1, int(self.window)):
            return math.inf, WINDOW_FULL
        seconds = max(self.requests.wait(now), self.tokens.wait(now))
        return seconds, "rate limit" if seconds else ""

    def sent(self, tokens: float, now: float) -> None:
        """A request of about `tokens` tokens is sent."""
        self.in_flight += 1
        self._trial = self.down_since is not None
        self.requests.take(1, now)
        self.tokens.take(tokens, now)

    def succeeded(self, sent: Sent, *, tokens: float, now: float) -> None:
        """An answer arrived: the window grows by one request per round, and the breaker closes."""
        self.tokens.take(tokens - sent.tokens, now)
        if self.down_since is not None:
            self.paused_until = now
        self.answered(sent)
        self.window = min(float(self.most), self.window + 1 / self.window)

    def refused(self, sent: Sent, *, retry_after: float | None, now: float, too_many: bool = True) -> None:
        """Too many requests: wait for Retry-After, and shrink the window, unless it is not the rate that is refused."""
        busy_since = now if self.busy_since is None else self.busy_since
        self.answered(sent)
        self.busy_since = busy_since
        if retry_after is not None:
            self.busy_since += max(0.0, now + retry_after - max(now, self.asked_until))
            self.asked_until = max(self.asked_until, now + retry_after)
            self.paused_until = max(self.paused_until, now + retry_after)
        if too_many and sent.at >= self._decreased_at:  # requests of the same round share one decrease
            self.window = max(1.0, self.window * DECREASE)
            self._decreased_at = now

    def failed(self, sent: Sent, *, now: float) -> None:
        """No answer, or a server error. Several in a row open the breaker: then one trial at a time, ever rarer."""
        self._ended(sent)
        self.failures += 1
        opens = self.down_since is None and self.failures >= FAILURES_TO_OPEN
        if opens or self._was_trial(sent):
            self.down_since = now if opens else self.down_since
            self._trial = False
            self.paused_until = max(self.paused_until, now + self._pause * random.uniform(0.8, 1.2))
            self._pause = min(LONGEST_PAUSE_S, 2 * self._pause)

    def _ended(self, sent: Sent) -> None:
        self.in_flight -= 1
        sent.over = True

    def _was_trial(self, sent: Sent) -> bool:
        """Whether a request was sent after the breaker opened; older ones carry no news."""
        return self.down_since is not None and sent.at >= self.down_since

    def answered(self, sent: Sent) -> None:
        """Any answer that shows the endpoint is reachable: the breaker closes."""
        self._ended(sent)
        self.failures, self.down_since, self._pause, self._trial = 0, None, FIRST_PAUSE_S, False
        self.busy_since = None

    def cancelled(self, sent: Sent) -> None:
        """A cancelled request; it says nothing about the endpoint."""
        self._ended(sent)
        if self._was_trial(sent):
            self._trial = False

    def learn(self, headers: Mapping[str, str]) -> None:
        """Learn limits from x-ratelimit headers, unless they were given."""
        for position, (rate, kind) in enumerate(((self.requests, "requests"), (self.tokens, "tokens"))):
            limit = headers.get(f"x-ratelimit-limit-{kind}", "")
            if not self._given[position] and limit.isdecimal() and len(limit) <= MOST_DIGITS and int(limit) > 0:
                rate.limit = float(limit) / self.parts
