"""What keeps an address from being of use, by a request that failed, and how long a run waits for it.

Decides what a failure says about its address and what the user can do: of a model that is shut down, what to try
instead, which is never asked silently. Where no address is of use, the waits that they ask for, the time without an
answer, and whether what they lack is capacity decide when the run ends. Knows no attempts (`retries`), sends nothing.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from http import HTTPStatus
from typing import Literal

from reasonrag.errors import EndpointLost, WaitTooLong
from reasonrag.llm.endpoint.address_behaviour import OneAddress
from reasonrag.llm.endpoint.error_objects import NO_CAPACITY, says
from reasonrag.llm.endpoint.retries import (
    asked_to_wait,
    clean,
    error_cause,
    error_message,
    is_busy,
    is_endpoint_failure,
    is_status,
)

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
