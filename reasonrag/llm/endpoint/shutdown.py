"""Models that are shut down: the day that a list of models names, and what to try instead.

Decides which values are a day, when it is near, and which successor is named. None is ever asked silently: which model
made a run is its identity. Knows no connection and no clock.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any, TypeAlias

from reasonrag.rendering import counted

Listed: TypeAlias = Mapping[str, Mapping[str, Any]]
"""What an endpoint says of each model in its list."""
NEAR_DAYS = 60
_FIRST_DAY = date(2020, 6, 11)
"""Of the first such API. What names an earlier one means none: zero, an epoch."""
_JANUARY, _DECEMBER = date(2027, 1, 14), date(2026, 12, 11)
_REPORTED = {
    **dict.fromkeys(("gpt-4o", "gpt-4.1"), (_JANUARY, ("gpt-6-luna", "gpt-6.1-sol"))),
    **dict.fromkeys(("gpt-4o-mini", "gpt-4.1-mini"), (_JANUARY, ("gpt-6-luna",))),
    **dict.fromkeys(("gpt-5", "o3"), (_DECEMBER, ("gpt-6-luna", "gpt-6.1-sol"))),
    **dict.fromkeys(("gpt-5-mini", "gpt-5-nano"), (_DECEMBER, ("gpt-6-luna",))),
}
"""The last day of a model of OpenAI's, and its successors, the likeliest first. By public copies of its list of 27
October 2026, not verified: one for January, two for December; one page names gpt-6.1-sol for the large models."""


def shutdown_day(said: object) -> date | None:
    """The day that a `shutdown_date` names, in ISO 8601 or in seconds since 1970; None if it names none."""
    try:
        if isinstance(said, str):
            day = datetime.fromisoformat(said.strip()).date()
        else:
            number = float(said) if isinstance(said, int | float) else 0.0
            day = datetime.fromtimestamp(number, UTC).date()
    except (ValueError, OverflowError, OSError):
        return None
    return day if day >= _FIRST_DAY else None


def warning(model: str, listed: Listed, today: date) -> str:
    """That the list names a day for the model which is near or past; empty if it does not."""
    day = shutdown_day(listed.get(model, {}).get("shutdown_date"))
    if day is None or (left := (day - today).days) > NEAR_DAYS:
        return ""
    return f"shutdown date {day}, " + (f"in {counted(left, 'day')}" if left >= 0 else f"{counted(-left, 'day')} ago")


def instead(model: str, listed: Listed, today: date) -> tuple[str, str]:
    """What to try instead of a model, in words, and its reported successor: the first that the endpoint lists, or may
    have where it lists nothing; empty if none fits."""
    gateway, slash, name = model.rpartition("/")
    day, names = _REPORTED.get(re.sub(r"-\d{4}-\d{2}-\d{2}$", "", name), (None, ()))
    present = [each for each in sorted(listed) if not warning(each, listed, today)]
    found = next((each for each in (gateway + slash + each for each in names) if each in present or not listed), "")
    words = f"; it serves {', '.join(present[:10])}" if present else ""
    if day:
        words += f". Reported on 27 October 2026, not verified: shutdown of {name} on {day:%d %B %Y}"
    return words + (f", followed by {found}" if found else ""), found
