"""What keeps an address from being of use, in words: it is busy, loads its model, is slow or broken, or is down.

Decides what a failure says about its address and what the user can do. Knows no request and no schedule.
"""

from __future__ import annotations

import os
import re
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Literal

from reasonrag.llm.endpoint.http_client import error_cause, is_endpoint_failure
from reasonrag.web.client import retry_after

Trouble = Literal["busy", "loading", "slow", "broken", "down"]
STATES: dict[Trouble, str] = {
    "busy": "busy",
    "loading": "loading its model",
    "slow": "no answer within --timeout",
    "broken": "answers with errors",
    "down": "down",
}
"""As the progress shows them."""
LASTING: dict[Trouble, tuple[str, str]] = {
    "busy": ("is up, but has refused every request for", "Later, or with a lower --concurrency or --rpm, "),
    "loading": ("is up, but has been loading its model for", "Once that is done, "),
    "slow": ("takes requests, but has answered none within --timeout for", "With a higher --timeout, "),
    "broken": ("has answered with nothing but errors for", "Once its log shows why, "),
    "down": ("has not answered for", "Once it does, "),
}
"""What is said after a long time of it, and when to continue."""
_OVERLOADED = 529
_LOADING = re.compile(r"\b(loading|warming up|starting up|initiali[sz]ing|not ready)\b", re.I)
"""What servers say before they answer: llama.cpp "Loading model", Hugging Face "is currently loading", KServe "is not
ready"."""
_BUSY = re.compile(r"\b(overloaded|capacity|too (many|busy)|queue is full|busy)\b", re.I)


def trouble_of(error: Exception) -> Trouble:
    """What a failure that may pass says about its address."""
    from openai import APIStatusError

    if not isinstance(error, APIStatusError):
        causes: dict[str, Trouble] = {"timeout": "slow", "connection": "down"}
        return causes.get(error_cause(error), "broken")
    said = str(error)
    if _LOADING.search(said):
        return "loading"
    if is_busy(error) or error.status_code == _OVERLOADED or _BUSY.search(said):
        return "busy"
    return "down" if is_endpoint_failure(error) else "broken"


def is_busy(error: Exception) -> bool:
    """Whether an address answers, but refuses the request for now: too many requests, or another refusal of the kind
    that says how long."""
    from openai import APIStatusError

    if not isinstance(error, APIStatusError):
        return False
    asks = is_endpoint_failure(error) and retry_after(error.response.headers) is not None
    return asks or error.status_code == HTTPStatus.TOO_MANY_REQUESTS


def state_of(error: Exception) -> str:
    """The trouble as the progress shows it, with what the network or the status says."""
    from openai import APIStatusError

    trouble = trouble_of(error)
    if isinstance(error, APIStatusError):
        said = f"status {error.status_code}"
    else:
        number = getattr(error.__cause__, "errno", None)
        said = os.strerror(number).lower() if isinstance(number, int) and number > 0 else ""
    return f"{STATES[trouble]} ({said})" if said else STATES[trouble]


def clock_time(seconds: float) -> str:
    """The local time after some seconds from now: `15:40`, `Fri 03:40` of another day."""
    now = datetime.now().astimezone()
    then = now + timedelta(seconds=seconds)
    return f"{then:%H:%M}" if then.date() == now.date() else f"{then:%a %H:%M}"


def seconds_text(seconds: float) -> str:
    """`2 hours`, `10 minutes`, or seconds where they are few."""
    if seconds >= 2 * 3600:
        return f"{seconds / 3600:.3g} hours"
    return f"{seconds / 60:.0f} minutes" if seconds >= 2 * 60 else f"{seconds:g} seconds"
