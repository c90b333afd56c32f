"""Retries of a request: which failures may pass, how many attempts there are, and the wait between them.

Decides when a server's Retry-After is ignored: where it cannot be meant (`web.retry_after`), where it is less than our
own wait, and beyond `MAX_WAIT_S` where the address is not busy. A busy one holds back all its requests by its pace
(`rate_limits`). Knows no schedule and sends nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, TypeGuard

from preference.export.sanitize import plain_text
from reasonrag.llm.endpoint.http_client import MOST_SAID, AnswerTooLargeError, BadAnswerError
from reasonrag.redaction import excerpt
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


def clean(text: str) -> str:
    """A message without keys, which some endpoints echo, and without control characters, of bounded length."""
    return excerpt(plain_text(text.encode("utf-8", "replace").decode("utf-8")), MOST_SAID)
