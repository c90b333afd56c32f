"""Which parameters of a request an endpoint refuses, and what going without each means.

Endpoints name a refused parameter in a dict or a list of errors, by `param`, `field` or `loc`, or only in a sentence,
quoted or not; with status 400 or 422. What is left out costs the run something, which is said once. Knows no
connection; `OneAddress` keeps what was refused.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING

from reasonrag.llm.endpoint.error_objects import decoded, is_refusal, leaves

if TYPE_CHECKING:
    from openai import APIStatusError

DISPENSABLE: dict[str, str] = {
    "top_logprobs": "the model's replies then have none",
    "logprobs": "the model's replies then have none",
    "top_p": "replies are sampled with the model's own top_p",
    "seed": "the same request may get another reply",
    "stop": "text after the closing tag is cut off here, but paid for",
    "n": "each sibling is a request of its own and pays for its prompt",
    "temperature": "replies are sampled at the model's own temperature",
    "max_tokens": "max_completion_tokens is sent instead",
}
"""Parameters that a request can do without, least missed first, and what leaving them out means."""
RENAMED = {"max_tokens": "max_completion_tokens"}
"""What is sent instead of a refused parameter. A request always has a limit, as its cost is bounded by it."""
_NAMING = ("param", "field", "loc")
"""Keys under which an error names a parameter, perhaps as a path: `body.seed`, `["body", "seed"]`."""
_OUT_OF_RANGE = re.compile(r"\b(large|small|range|exceeds?|at (most|least)|(less|greater|more) than)\b", re.IGNORECASE)
_UNSUPPORTED = re.compile(r"\b(unsupported|not (supported|permitted|allowed)|un(known|recognized))\b", re.IGNORECASE)
"""Of a parameter, not of its value. A token limit that is too large under one name is so under the other, which some
endpoints ignore: no request would have a limit any more."""
_BARE = {
    "n": r"(?<![\w'-])n(?=\s*(?:[:=>.,)]|$|(?:must|should|is|greater|larger)\b))",
    "stop": r"(?<![\w'-])stop(?=\s*(?:[:=.,)]|$|(?:is|are|must|should|sequences?|strings?|tokens?|parameter)\b))",
}
"""Patterns of names that could be ordinary words, too."""


def refused_parameters(error: APIStatusError, sent: Collection[str]) -> list[str]:
    """The parameters to leave out after a refusal: those it names by a key, else the least missed of those in its
    sentences; empty if it names none that was sent and can be left out."""
    if not is_refusal(error):
        return []
    found = list(leaves(decoded(error.response.content)))
    said = "\n".join(value for _, value in found if isinstance(value, str)) or str(error)
    of_a_value = _OUT_OF_RANGE.search(said) and not _UNSUPPORTED.search(said)
    dispensable = [each for each in DISPENSABLE if each in sent and not (each in RENAMED and of_a_value)]
    paths = [re.findall(r"[^.\[\]]+", value) for key, value in found if key in _NAMING and isinstance(value, str)]
    names = [[part for part in path if not part.isdigit()] for path in paths]
    if named := {path[-1] for path in names if path and path != ["None"]}:  # LiteLLM says "None", one-api ""
        return [each for each in dispensable if each in named]
    quoted = set(re.findall(r"[`'\"](\w+)\\*[`'\"]", said))  # with a backslash where one error quotes another
    mentioned = [each for each in dispensable if each in quoted] or [
        each for each in dispensable if re.search(_BARE.get(each, rf"(?<![\w-]){each}(?![\w-])"), said)
    ]
    return mentioned[:1]  # a sentence may name another that is fine, as in "temperature and top_p cannot both be set"
