"""Expected usage: what a job will ask of a model, as ranges, before it is asked.

Decides what the low and the high end mean. Knows no job: how its usage was measured is the caller's to say.
"""

from __future__ import annotations

import math
import operator
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from pydantic import BaseModel

from preference import Message
from reasonrag.llm.budget import Caps, Tokens
from reasonrag.llm.chat import estimate_tokens
from reasonrag.llm.prices import Price

VERBOSE_REPLY_TOKENS = 100
"""Reply length of a verbose teacher: the 12 of ReasonRAG's published GPT-4o trees have 393 characters on average."""
FEWEST_TOKENS = 4 / 4.5
"""Tokens of a prompt for one that was estimated at four characters each. Prompts of HotpotQA and MuSiQue have 4.3 and
4.4 characters a token in Qwen2.5's vocabulary; larger vocabularies have more."""
REHEARSED = 20
"""Most items of a job that are rehearsed."""
Item = TypeVar("Item")


class Range(BaseModel):
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.low:,.0f} to {self.high:,.0f}"

    def times(self, low: float, high: float) -> Range:
        return Range(low=low * self.low, high=high * self.high)

    def __add__(self, other: Range) -> Range:
        return Range(low=self.low + other.low, high=self.high + other.high)


@dataclass(frozen=True)
class ExpectedUsage:
    """Lower and upper estimate of some usage."""

    calls: Range
    requests: Range
    prompt_tokens: Range
    completion_tokens: Range

    @classmethod
    def mean_of(cls, usages: Sequence[Tokens]) -> ExpectedUsage:
        """The mean of measured usages, plus and minus two standard errors."""
        rows = [(each.calls, each.requests, each.prompt_tokens, each.completion_tokens) for each in usages]
        return cls(*map(_confidence, zip(*rows, strict=True)))

    @classmethod
    def of_replies(cls, prompts: Sequence[Sequence[Message]], *, lines: int, shortest: int) -> ExpectedUsage:
        """Of a reply to each prompt, with so many lines in all. shortest: tokens of a line at the low end; at the high
        end all lines are verbose, and each reply is repaired, in a prompt that holds it, too."""
        tokens = sum(estimate_tokens(turn.content) for each in prompts for turn in each)
        requests = Range(low=len(prompts), high=2 * len(prompts))
        replies = Range(low=shortest * lines, high=2 * VERBOSE_REPLY_TOKENS * lines)
        return cls(requests, requests, Range(low=FEWEST_TOKENS * tokens, high=3 * tokens), replies)

    @classmethod
    def rehearsed(cls, usages: Sequence[Tokens], *, scale: float, thoughts: float) -> ExpectedUsage:
        """The mean of usages that the offline teacher rehearsed.

        low: two standard errors below, with replies as short as its own, and prompts in FEWEST_TOKENS. high: `scale`
        times as many calls, with a verbose teacher's replies, also in prompts. thoughts: earlier replies in a prompt.
        """
        measured, total = cls.mean_of(usages), sum(usages, start=Tokens())
        calls = max(measured.calls.high, scale * total.calls / len(usages))
        requests = max(measured.requests.high, scale * total.requests / len(usages))
        longer = max(0.0, VERBOSE_REPLY_TOKENS - total.completion_tokens / max(1, total.calls))
        prompts = scale * measured.prompt_tokens.high + requests * thoughts * longer
        replies = max(scale * measured.completion_tokens.high, calls * VERBOSE_REPLY_TOKENS)
        return cls(
            calls=Range(low=measured.calls.low, high=calls),
            requests=Range(low=measured.requests.low, high=requests),
            prompt_tokens=Range(low=FEWEST_TOKENS * measured.prompt_tokens.low, high=prompts),
            completion_tokens=Range(low=measured.completion_tokens.low, high=replies),
        )

    def times(self, low: float, high: float) -> ExpectedUsage:
        """The usage of `low` to `high` times as much."""
        return ExpectedUsage(*(each.times(low, high) for each in vars(self).values()))

    def with_reasoning(self, max_tokens: int) -> ExpectedUsage:
        """The usage of a model that reasons before it answers: its replies may take the whole token limit."""
        replies = self.completion_tokens
        most = max(replies.high, self.calls.high * max_tokens)
        return replace(self, completion_tokens=Range(low=replies.low, high=most))

    def __add__(self, other: ExpectedUsage) -> ExpectedUsage:
        return ExpectedUsage(*map(operator.add, vars(self).values(), vars(other).values()))

    def share_within(self, caps: Caps, spent: Tokens) -> tuple[float, float]:
        """The shares of the low and of the high end that caps on calls and tokens leave room for."""
        low = high = 1.0
        for cap, used, expected in (
            (caps.calls, spent.calls, self.calls),
            (caps.tokens, spent.prompt_tokens + spent.completion_tokens, self.prompt_tokens + self.completion_tokens),
        ):
            if cap is not None:
                left = max(0, cap - used)
                low, high = min(low, left / max(expected.low, 1)), min(high, left / max(expected.high, 1))
        return low, high

    def dollars(self, price: Price) -> Range:
        prompt, completion = self.prompt_tokens, self.completion_tokens
        return Range(low=price.cost(prompt.low, completion.low), high=price.cost(prompt.high, completion.high))


def spread(items: Iterable[Item], count: int) -> list[Item]:
    """Up to `REHEARSED` of the `count` items, evenly spaced: the first ones may be alike."""
    wanted = min(count, REHEARSED)
    chosen = {number * count // wanted for number in range(wanted)}
    return [each for number, each in enumerate(items) if number in chosen]


def sum_of_dollars(ranges: Iterable[Range | None]) -> Range | None:
    """None if one of them is unknown."""
    found = list(ranges)
    return None if None in found else sum((each for each in found if each), start=Range(low=0.0, high=0.0))


def _confidence(values: Sequence[float]) -> Range:
    """The mean plus and minus two standard errors, but not below half the least; half to double for a single value."""
    mean = statistics.mean(values)
    if len(values) == 1:
        return Range(low=mean / 2, high=2 * mean)
    error = 2 * statistics.stdev(values) / math.sqrt(len(values))
    return Range(low=max(min(values) / 2, mean - error), high=mean + error)
