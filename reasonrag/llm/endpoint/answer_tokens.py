"""What an answer says of its tokens, which may be anything: how many there are, and their log-probabilities.

Decides what is believed. A count that is missing or too small for the bytes is replaced by the bytes; log-probabilities
are left out unless their tokens are exactly the reply's. Knows no prices and no budget.
"""

from __future__ import annotations

import codecs
import math
from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

from reasonrag.llm.chat import MOST_BYTES_PER_TOKEN, Completion, TokenLogprob, tokens_within

NEAR = 0.95
"""Share of the token limit from which one of several replies counts as cut, as its tokens are an estimate."""
_MOST_COUNTED = 10**9
"""Tokens; no request has more, and the sums of a run have to fit into its files."""
_DECIMALS = 6
"""Of a log-probability that are kept: a journal is read often, and no threshold needs more."""
_LEAST = -9999.0
"""Lower ones count as this, which vLLM gives for a probability of 0: sums stay finite."""


def usage_of(said: object, *, prompt_size: int, reply_size: int) -> dict[str, Any]:
    """The cost of a request: the bytes are an upper bound of a count. Prompt and reply are checked separately.
    prompt_size, reply_size: in bytes."""
    usage = said if isinstance(said, dict) else {}
    counted = _count(usage.get("prompt_tokens"))
    prompt_told = counted > 0 and counted * MOST_BYTES_PER_TOKEN >= prompt_size
    prompt = counted if prompt_told else prompt_size
    completion, reasoning = _completion_tokens(usage, prompt_tokens=prompt)
    reply_told = _is_count(usage.get("completion_tokens")) and completion * MOST_BYTES_PER_TOKEN >= reply_size
    cached = _detail(usage, "prompt_tokens_details", "cached_tokens") if prompt_told else 0
    return {
        "requests": 1,
        "prompt_tokens": prompt,
        "completion_tokens": completion if reply_told else max(completion, reply_size),
        "reasoning_tokens": reasoning,
        "cached_tokens": min(cached, prompt),
        "tokens_bounded": not (prompt_told and reply_told),
        **({"prompt_counted": counted, "prompt_bytes": prompt_size} if counted else {}),
    }


def with_limit(usage: object, replies: list[Completion], max_tokens: int, *, parts: int) -> list[Completion]:
    """The replies, with what usage says of the limit: of several, each has its part of the tokens by characters, and
    `NEAR` the limit is at it. A count of bytes or characters, or one too small for the bytes, says nothing."""
    usage = usage if isinstance(usage, dict) else {}
    said = usage.get("completion_tokens")
    if not _is_count(said) or said < NEAR * max_tokens:
        return replies  # as most
    texts = [each.text + each.reasoning for each in replies]
    size, length = sum(len(each.encode()) for each in texts), sum(map(len, texts))
    if said in (size, length) or said * MOST_BYTES_PER_TOKEN < size:
        return replies
    most = parts * max_tokens
    said = said if said == most else said - _detail(usage, "completion_tokens_details", "reasoning_tokens")
    seen = parts > 1 and said <= size  # more than a token a byte: of reasoning that is not given
    near = [seen and said * len(each) >= NEAR * max_tokens * max(1, length) for each in texts]
    return [
        reply.model_copy(update={"at_limit": True}) if said >= most or cut else reply
        for reply, cut in zip(replies, near, strict=True)
    ]


def _completion_tokens(usage: Mapping[str, Any], *, prompt_tokens: int) -> tuple[int, int]:
    """The completion tokens that are billed, and those of them that are reasoning.

    xAI and Gemini leave the reasoning out of `completion_tokens`, but not out of `total_tokens`
    (https://github.com/vercel/ai/pull/12425, https://github.com/router-for-me/CLIProxyAPI/issues/5733).
    """
    completion = _count(usage.get("completion_tokens"))
    reasoning = _detail(usage, "completion_tokens_details", "reasoning_tokens")
    said = completion + reasoning if reasoning > completion else completion  # then it is no part of it
    billed = max(said, _count(usage.get("total_tokens")) - prompt_tokens)
    return billed, min(billed, max(reasoning, billed - completion))


def _is_count(said: object) -> TypeGuard[float]:
    """Whether a value is a possible token count."""
    return isinstance(said, int | float) and not isinstance(said, bool) and 0 <= said <= _MOST_COUNTED


def _count(said: object) -> int:
    """A token count; 0 for anything else."""
    return int(said) if _is_count(said) else 0


def _detail(usage: Mapping[str, Any], details: str, name: str) -> int:
    told = usage.get(details)
    return _count(told.get(name)) if isinstance(told, dict) else 0


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
