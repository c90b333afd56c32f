"""Models that are shut down, and what to try instead: reported successors.

None is ever asked silently: which model made a run is its identity. Knows no connection and no clock.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import date

_JANUARY, _DECEMBER = date(2027, 1, 14), date(2026, 12, 11)
_REPORTED = {
    **dict.fromkeys(("gpt-4o", "gpt-4.1"), (_JANUARY, ("gpt-6-luna", "gpt-6.1-sol"))),
    **dict.fromkeys(("gpt-4o-mini", "gpt-4.1-mini"), (_JANUARY, ("gpt-6-luna",))),
    **dict.fromkeys(("gpt-5", "o3"), (_DECEMBER, ("gpt-6-luna", "gpt-6.1-sol"))),
    **dict.fromkeys(("gpt-5-mini", "gpt-5-nano"), (_DECEMBER, ("gpt-6-luna",))),
}
"""The last day of a model of OpenAI's, and its successors, the likeliest first. By public copies of its list of 27
October 2026, not verified: one for January, two for December; one page names gpt-6.1-sol for the large models."""


def instead(model: str, listed: Collection[str]) -> tuple[str, str]:
    """What to try instead of a model, in words, and its reported successor: the first that the endpoint lists, or may
    have where it lists nothing; empty if none fits."""
    gateway, slash, name = model.rpartition("/")
    day, names = _REPORTED.get(re.sub(r"-\d{4}-\d{2}-\d{2}$", "", name), (None, ()))
    found = next((each for each in (gateway + slash + each for each in names) if each in listed or not listed), "")
    words = f"; it serves {', '.join(sorted(listed)[:10])}" if listed else ""
    if day:
        words += f". Reported on 27 October 2026, not verified: shutdown of {name} on {day:%d %B %Y}"
    return words + (f", followed by {found}" if found else ""), found
