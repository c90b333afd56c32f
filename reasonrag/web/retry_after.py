"""How long a server asks to wait, and when its word cannot be meant. Knows no request, and does not wait."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

LONGEST_RETRY_AFTER_S = 24 * 3600.0
"""A daily limit says no more; a longer time is a mistake."""


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a server asks to wait, by Retry-After-Ms or Retry-After (a number or a date). None without a time to
    come, and for one that cannot be meant: then the caller's own back-off applies."""
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        asked = headers.get(name, "")
        try:
            seconds = float(asked) * unit
        except ValueError:
            try:
                seconds = (parsedate_to_datetime(asked) - datetime.now(UTC)).total_seconds()
            except (ValueError, TypeError, OverflowError):  # OverflowError: a year of 20 digits
                continue
        if 0 < seconds <= LONGEST_RETRY_AFTER_S:
            return seconds
    return None
