"""Log-probabilities that came with a reply, where they can be believed.

Decides which tokens are exactly the reply's. Anything may stand in an answer; what cannot be believed is left out.
"""

from __future__ import annotations

import codecs
import math
from collections.abc import Iterator, Mapping
from typing import Any

from reasonrag.llm.chat import Completion, TokenLogprob, tokens_within

_DECIMALS = 6
"""Of a log-probability that are kept: a journal is read often, and no threshold needs more."""
_LEAST = -9999.0
"""Lower ones count as this, which vLLM gives for a probability of 0: sums stay finite."""


def tokens_of(choice: Mapping[str, Any], reply: Completion) -> tuple[TokenLogprob, ...] | None:
    """The tokens of exactly the reply's text, by `logprobs.content`; None where what is listed cannot be believed.

    Each entry has a token's text (or its bytes, as a character may be several tokens) and a finite number of at most 0.
    Endpoints also list tokens of the reasoning before the text and of the stop string after it.
    """
    listed = choice.get("logprobs")
    listed = listed.get("content") if isinstance(listed, dict) else None
    try:
        tokens = tuple(_whole_characters(listed)) if isinstance(listed, list) else ()
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError):  # anything may stand there
        return None
    said = "".join(each.text for each in tokens)
    start = said.rfind(reply.text) if reply.reasoning else said.find(reply.text)
    return tokens_within(tokens, start, start + len(reply.text)) if tokens and start >= 0 else None


def _whole_characters(listed: list[Any]) -> Iterator[TokenLogprob]:
    """The entries as text; those of one character are one token, with their numbers' sum. May raise any error."""
    decoder, total = codecs.getincrementaldecoder("utf-8")(), 0.0
    for entry in listed:
        number, written = entry["logprob"], entry.get("bytes")
        if isinstance(number, bool) or not isinstance(number, int | float) or not -math.inf < number <= 0:
            raise ValueError("not a log-probability")
        total += max(number, _LEAST)
        raw = bytes(written) if isinstance(written, list) else entry["token"].encode("utf-8", "replace")
        if text := decoder.decode(raw):
            yield TokenLogprob(text, round(total, _DECIMALS))
            total = 0.0
