"""What a failed request says: whether and when to ask again, and what keeps its address from being of use, in words.

Decides what a failure says about its address and what the user can do: of a model that is shut down, what to try
instead, which is never asked silently. Decides when a server's Retry-After is ignored: where it cannot be meant
(`web.retry_after`), where it is less than our own wait, and beyond `MAX_WAIT_S` where the address is not busy. A
busy one holds back all its requests by its pace (`rate_limits`). Knows no schedule and sends nothing.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Literal, TypeGuard

from reasonrag.llm.endpoint.error_objects import NO_CAPACITY, says
from reasonrag.llm.endpoint.http_client import AnswerTooLargeError, BadAnswerError
from reasonrag.web.retry_after import retry_after

if TYPE_CHECKING:
    from openai import APIStatusError
    from tenacity import AsyncRetrying, RetryCallState

MAX_ATTEMPTS = 8
"""Per request, not counting those that found its endpoint down. With waits of 1, 2, 4, .. s, that is minutes."""
FIRST_WAIT_S, MAX_WAIT_S = 1.0, 60.0
"""Wait before the second attempt, doubled for each further one."""

Trouble = Literal["busy", "scarce", "loading", "slow", "broken", "down"]
WORDS: dict[Trouble, tuple[str, str, str]] = {
    "busy": ("busy", "is up, but has refused every request for", "Later, or with a lower --concurrency or --rpm"),
    "scarce": ("without capacity", "is up, but has had no capacity for", "Later"),
    "loading": ("loading its model", "is up, but has been loading its model for", "Once that is done"),
    "slow": (
        "no answer within --timeout",
        "takes requests, but has answered none within --timeout for",
        "With a higher --timeout",
    ),
    "broken": ("answers with errors", "has answered with nothing but errors for", "Once its log shows why"),
    "down": ("down", "has not answered for", "Once it does"),
}
"""In the progress; after a long time; and when to continue."""
_SIGNS: dict[Trouble, re.Pattern[str]] = {
    "loading": re.compile(r"\b(loading|warming up|starting up|initiali[sz]ing|not ready)\b", re.IGNORECASE),
    "busy": re.compile(r"status (429|529)|\b(overloaded|capacity|too many|queue is full|busy)\b", re.IGNORECASE),
}
"""What servers say: llama.cpp "Loading model", Hugging Face "is currently loading", KServe "is not ready"."""
_DOWN_STATUSES = frozenset({408, 502, 503, 504, 529})
"""Statuses of an overloaded or absent server; other errors are about the request."""
_RETRIED_STATUSES = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS})
_JANUARY, _DECEMBER = date(2027, 1, 14), date(2026, 12, 11)
_REPORTED = {
    **dict.fromkeys(("gpt-4o", "gpt-4.1"), (_JANUARY, ("gpt-6-luna", "gpt-6.1-sol"))),
    **dict.fromkeys(("gpt-4o-mini", "gpt-4.1-mini"), (_JANUARY, ("gpt-6-luna",))),
    **dict.fromkeys(("gpt-5", "o3"), (_DECEMBER, ("gpt-6-luna", "gpt-6.1-sol"))),
    **dict.fromkeys(("gpt-5-mini", "gpt-5-nano"), (_DECEMBER, ("gpt-6-luna",))),
}
"""The last day of a model of OpenAI's, and its successors, the likeliest first. By public copies of its list of 27
October 2026, not verified: one for January, two for December; one page names gpt-6.1-sol for the large models."""


def trouble_of(error: Exception) -> Trouble:
    """What a failure that may pass says about its address."""
    if is_status(error):
        if error.status_code == HTTPStatus.TOO_MANY_REQUESTS and says(error, NO_CAPACITY):
            return "scarce"
        found: Trouble = "busy" if is_busy(error) else "down" if is_endpoint_failure(error) else "broken"
        return next((each for each, sign in _SIGNS.items() if sign.search(str(error))), found)
    return {"timeout": "slow", "connection": "down"}.get(error_cause(error), "broken")  # type: ignore[return-value]


def is_status(error: BaseException | None) -> TypeGuard[APIStatusError]:
    """Whether it is an answer of the endpoint; openai's class is loaded with the first request only."""
    return hasattr(error, "status_code")


def asked_to_wait(error: BaseException | None) -> float:
    """The seconds of its Retry-After; 0 without one."""
    return (retry_after(error.response.headers) or 0.0) if is_status(error) else 0.0


def is_busy(error: BaseException | None) -> bool:
    """Whether an address is there and refuses requests for now: too many, or another status with a Retry-After."""
    if not is_status(error):
        return False
    asks = is_endpoint_failure(error) and asked_to_wait(error) > 0
    return asks or error.status_code == HTTPStatus.TOO_MANY_REQUESTS


def is_retryable(error: BaseException) -> bool:
    """Whether a retry could help: no connection, timeouts, rate limits, server errors and garbled bodies."""
    if is_status(error):
        return error.status_code in _RETRIED_STATUSES or error.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR
    return error_cause(error) in ("connection", "timeout") or type(error) is BadAnswerError


def is_endpoint_failure(error: BaseException) -> bool:
    """Whether the failure is about the endpoint as a whole: unreachable, timed out or overloaded."""
    if is_status(error):
        return error.status_code in _DOWN_STATUSES
    return error_cause(error) in ("connection", "timeout")


def is_account_refused(error: Exception) -> bool:
    """Whether all requests will fail: the key is refused, or the account is empty."""
    return is_status(error) and error.status_code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.PAYMENT_REQUIRED)


def error_cause(error: BaseException) -> str:
    """One word for counting: connection, timeout, http_429, bad_answer, too_large, .."""
    from openai import APIConnectionError, APITimeoutError

    if is_status(error):
        return f"http_{error.status_code}"
    if isinstance(error, APIConnectionError):
        late = isinstance(error, APITimeoutError) and "connect" not in error_message(error).lower()
        return "timeout" if late else "connection"
    return "too_large" if isinstance(error, AnswerTooLargeError) else "bad_answer"


def error_message(error: BaseException) -> str:
    """The message of the innermost error that has one."""
    return str(error.__cause__ or error) or str(error) or type(error).__name__


def state_of(error: Exception) -> str:
    """The trouble as the progress shows it, with what the network or the status says."""
    number, status = getattr(error.__cause__, "errno", None), getattr(error, "status_code", None)
    said = f"status {status}" if status else os.strerror(number).lower() if number else ""
    return WORDS[trouble_of(error)][0] + (f" ({said})" if said else "")


def clock_time(seconds: float) -> str:
    """The local time after some seconds from now: `15:40`, `Fri 03:40` of another day."""
    then = datetime.now().astimezone() + timedelta(seconds=seconds)
    return f"{then:%H:%M}" if then.date() == datetime.now().astimezone().date() else f"{then:%a %H:%M}"


def seconds_text(seconds: float) -> str:
    """`2 hours`, `10 minutes`, or seconds where they are few."""
    if seconds >= 2 * 3600:
        return f"{seconds / 3600:.3g} hours"
    return f"{seconds / 60:.0f} minutes" if seconds >= 2 * 60 else f"{seconds:g} seconds"


def instead_of(model: str, listed: Collection[str]) -> tuple[str, str]:
    """What to try instead of a model, in words, and its successor: the first that is listed or, with no list, known."""
    gateway, slash, name = model.rpartition("/")
    day, names = _REPORTED.get(re.sub(r"-\d{4}-\d{2}-\d{2}$", "", name), (None, ()))
    found = next((each for each in (gateway + slash + each for each in names) if each in listed or not listed), "")
    words = f"; it serves {', '.join(sorted(listed)[:10])}" if listed else ""
    if day:
        words += f". Reported on 27 October 2026, not verified: shutdown of {name} on {day:%d %B %Y}"
    return words + (f", followed by {found}" if found else ""), found


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
