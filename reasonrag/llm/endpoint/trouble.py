"""What keeps an address from being of use, in words, by a request that failed.

Decides what a failure says about its address and what the user can do: of a model that is shut down, what to try
instead, which is never asked silently. Knows no schedule (`retries`) and sends nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from datetime import date, datetime, timedelta
from http import HTTPStatus
from typing import Literal

from reasonrag.llm.endpoint.error_objects import NO_CAPACITY, says
from reasonrag.llm.endpoint.retries import error_cause, is_busy, is_endpoint_failure, is_status

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
    return words + (f", followed by {found}" if found else ""), found
