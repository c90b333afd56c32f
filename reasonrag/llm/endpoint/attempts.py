"""The attempts of one request: how long a failed one waits before the next, and when no other is made.

Decides when a server's Retry-After is ignored: where it cannot be meant (`web.client.retry_after`), where it is less
than our own wait, and beyond `MAX_WAIT_S` where the address is not busy. A busy one holds back all its requests by its
pace (`rate_limits`). Knows no address and sends nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reasonrag.llm.endpoint.trouble import asked_to_wait, is_busy

if TYPE_CHECKING:
    from tenacity import AsyncRetrying, RetryCallState

MAX_ATTEMPTS = 8
"""Per request, not counting those that found its endpoint down. With waits of 1, 2, 4, .. s, that is minutes."""
FIRST_WAIT_S, MAX_WAIT_S = 1.0, 60.0
"""Wait before the second attempt, doubled for each further one."""


@dataclass(slots=True)
class Attempts:
    """Those of one request so far."""

    counted: int = 0
    """Attempts that count against the request, not against an endpoint that is down."""
    while_down: int = 0
    """Attempts that found their endpoint down."""
    failed: Counter[int] = field(default_factory=Counter)
    """Failed attempts by lane; another one may do better."""

    def retrying(
        self,
        passes: Callable[[BaseException], bool],
        *,
        first_wait: float,
        paced: bool,
        sleep: Callable[[float], Awaitable[None]],
        report: Callable[[RetryCallState], None],
    ) -> AsyncRetrying:
        """Attempts with waits between them, until one succeeds or too many have failed. passes: whether an error may.
        paced: whether the pace of a busy address holds its requests back for as long as it asks."""
        from tenacity import AsyncRetrying, retry_if_exception, wait_exponential, wait_random

        backoff = wait_exponential(multiplier=first_wait, max=MAX_WAIT_S) + wait_random(0, first_wait)

        def wait(state: RetryCallState) -> float:
            error = state.outcome.exception() if state.outcome else None
            most = MAX_WAIT_S if not is_busy(error) else 0.0 if paced else math.inf
            return max(backoff(state), min(most, asked_to_wait(error)))

        return AsyncRetrying(
            stop=lambda _: self.counted >= MAX_ATTEMPTS,
            retry=retry_if_exception(passes),
            wait=wait,
            sleep=sleep,
            before_sleep=report,
            reraise=True,
        )
