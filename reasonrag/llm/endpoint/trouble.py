"""What a failed request says: whether another attempt may help, of what use its address is, and how long a run waits.

Decides which failures may pass, how many attempts there are, and when a server's Retry-After is ignored: where it
cannot be meant (`web.retry_after`), where it is less than our own wait, and beyond `MAX_WAIT_S` where the address is
not busy, as a busy one holds back all its requests by its pace (`rate_limits`). Decides what the user can do: of a
model that is shut down, what to try instead, which is never asked silently. Where no address is of use, the waits that
they ask for, the time without an answer, and whether what they lack is capacity decide when the run ends. Sends
nothing, and knows no schedule.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Literal, TypeGuard

from reasonrag.errors import EndpointLost, WaitTooLong
from reasonrag.llm.endpoint.address_behaviour import OneAddress
from reasonrag.llm.endpoint.error_objects import NO_CAPACITY, says
from reasonrag.llm.endpoint.http_client import AnswerTooLargeError, BadAnswerError, clean
from reasonrag.web.client import retry_after

if TYPE_CHECKING:
    from openai import APIStatusError

MAX_ATTEMPTS = 8
"""Per request, not counting those that found its endpoint down. With waits of 1, 2, 4, .. s, that is minutes."""
FIRST_WAIT_S, MAX_WAIT_S = 1.0, 60.0
"""Wait before the second attempt, doubled for each further one."""
_RETRIED_STATUSES = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS})
_DOWN_STATUSES = frozenset({408, 502, 503, 504, 529})
"""Statuses of an overloaded or absent server; other errors are about the request."""
MAX_DOWN_S = 600.0
"""The run ends when no endpoint has answered for this long, what they asked to wait left out; paid answers are kept."""
LONG_WAIT_S = 300.0
"""Waits that the user is told of."""

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
_JANUARY, _DECEMBER = date(2027, 1, 14), date(2026, 12, 11)
_REPORTED = {
    **dict.fromkeys(("gpt-4o", "gpt-4.1"), (_JANUARY, ("gpt-6-luna", "gpt-6.1-sol"))),
    **dict.fromkeys(("gpt-4o-mini", "gpt-4.1-mini"), (_JANUARY, ("gpt-6-luna",))),
    **dict.fromkeys(("gpt-5", "o3"), (_DECEMBER, ("gpt-6-luna", "gpt-6.1-sol"))),
    **dict.fromkeys(("gpt-5-mini", "gpt-5-nano"), (_DECEMBER, ("gpt-6-luna",))),
}
"""The last day of a model of OpenAI's, and its successors, the likeliest first. By public copies of its list of 27
October 2026, not verified: one for January, two for December; one page names gpt-6.1-sol for the large models."""


def asked_to_wait(error: BaseException | None) -> float:
    """The seconds of its Retry-After; 0 without one."""
    return (retry_after(error.response.headers) or 0.0) if is_status(error) else 0.0


def heeded_wait(error: BaseException | None, *, paced: bool) -> float:
    """The seconds of its Retry-After that the next attempt waits. paced: whether the pace of a busy address holds its
    requests back for as long as it asks."""
    most = MAX_WAIT_S if not is_busy(error) else 0.0 if paced else math.inf
    return min(most, asked_to_wait(error))


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


@dataclass(slots=True)
class Attempts:
    """Those of one request so far."""

    counted: int = 0
    """Attempts that count against the request, not against an endpoint that is down."""
    while_down: int = 0
    """Attempts that found their endpoint down."""
    failed: Counter[int] = field(default_factory=Counter)
    """Failed attempts by lane; another one may do better."""


def is_status(error: BaseException | None) -> TypeGuard[APIStatusError]:
    """Whether it is an answer of the endpoint; openai's class is loaded with the first request only."""
    return hasattr(error, "status_code")


def is_endpoint_failure(error: BaseException) -> bool:
    """Whether the failure is about the endpoint as a whole: unreachable, timed out or overloaded."""
    if is_status(error):
        return error.status_code in _DOWN_STATUSES
    return error_cause(error) in ("connection", "timeout")


def error_cause(error: BaseException) -> str:
    """One word for counting: connection, timeout, http_429, bad_answer, too_large, .."""
    from openai import APIConnectionError, APITimeoutError

    if is_status(error):
        return f"http_{error.status_code}"
    if isinstance(error, APIConnectionError):
        late = isinstance(error, APITimeoutError) and "connect" not in str(error.__cause__ or error).lower()
        return "timeout" if late else "connection"
    return "too_large" if isinstance(error, AnswerTooLargeError) else "bad_answer"


def error_message(error: BaseException) -> str:
    """The message of the innermost error that has one, cleaned."""
    return clean(str(error.__cause__ or error) or str(error) or type(error).__name__)


def trouble_of(error: Exception) -> Trouble:
    """What a failure that may pass says about its address."""
    if is_status(error):
        if error.status_code == HTTPStatus.TOO_MANY_REQUESTS and says(error, NO_CAPACITY):
            return "scarce"
        found: Trouble = "busy" if is_busy(error) else "down" if is_endpoint_failure(error) else "broken"
        return next((each for each, sign in _SIGNS.items() if sign.search(str(error))), found)
    return {"timeout": "slow", "connection": "down"}.get(error_cause(error), "broken")  # type: ignore[return-value]


def is_account_refused(error: Exception) -> bool:
    """Whether all requests will fail: the key is refused, or the account is empty."""
    return is_status(error) and error.status_code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.PAYMENT_REQUIRED)


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
    return clean(words + (f", followed by {found}" if found else "")), found


@dataclass(slots=True)
class Patience:
    """That of a session with a model. shown: its addresses. silence, wait: seconds without an answer, and of a wait
    that an address asks for or a lack of capacity makes, which end the run."""

    shown: str
    silence: float
    wait: float
    useless_since: float | None = None
    """When the first of all failures since the last answer came."""
    scarce_at: float = -math.inf
    """When an address last had no room for a tier, and was well otherwise."""

    def heed(
        self,
        error: Exception,
        address: OneAddress,
        addresses: Sequence[OneAddress],
        now: float,
        *,
        tell: Callable[[str], None],
    ) -> None:
        """Note a failure of an address, and tell of a long wait. Raises WaitTooLong, EndpointLost."""
        since = self.useless_since = now if self.useless_since is None else self.useless_since
        address.trouble = state_of(error)
        asked, paces, most = asked_to_wait(error), [each.pace for each in addresses], self.wait
        self.scarce_at = now if trouble_of(error) == "scarce" else self.scarce_at
        wait = f"asks to wait {seconds_text(asked)}, until {clock_time(asked)}"
        until, silence = min(each.asked_until for each in paces), self.silence
        if now - self.scarce_at <= silence:  # what lacked of late is capacity
            silence = max(silence, most)
        if asked and until > now and until - since > most:
            allowed = f"longer than max_wait allows ({most / 60:g} minutes): {error_message(error)}"
            raise WaitTooLong(f"{self.shown} {wait}, {allowed}. Run the same command then to continue") from error
        if asked >= LONG_WAIT_S and now + asked >= address.told_until + LONG_WAIT_S:
            address.told_until = now + asked
            tell(wait)
        if all(each.useless_since is not None and now - each.useless_since > silence for each in paces):
            _, lasts, then = WORDS[trouble_of(error)]
            message = f"{self.shown} {lasts} {seconds_text(silence)}: {error_message(error)}"
            kind = WaitTooLong if trouble_of(error) == "scarce" else EndpointLost
            raise kind(f"{message}. {then}, run the same command to continue") from error
