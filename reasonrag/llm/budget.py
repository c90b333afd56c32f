"""Budgets: what was spent, what is reserved for requests in flight, and the caps on both together.

Decides a request's highest possible cost before it is sent. Models with different prices may share caps. Knows no
endpoint, no file and no tree.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from reasonrag.errors import CapReached
from reasonrag.llm.chat import MOST_BYTES_PER_TOKEN, ChatRequest, Completion
from reasonrag.llm.prices import Price
from reasonrag.terminal import dollars

TEMPLATE_TOKENS = 16
"""Tokens that a chat template adds to a prompt."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Sums over answers. `cached`: prompt tokens that the endpoint charged at its cached price. `reasoning`: completion
    tokens that are no part of an answer's text."""

    calls: int = 0
    requests: int = 0
    prompt: int = 0
    completion: int = 0
    cached: int = 0
    reasoning: int = 0

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(
            self.calls + other.calls,
            self.requests + other.requests,
            self.prompt + other.prompt,
            self.completion + other.completion,
            self.cached + other.cached,
            self.reasoning + other.reasoning,
        )

    @staticmethod
    def of(completions: Iterable[Completion]) -> Tokens:
        calls = requests = prompt = completion = cached = reasoning = 0
        for each in completions:
            calls += 1
            requests += each.requests
            prompt += each.prompt_tokens
            completion += each.completion_tokens
            cached += each.cached_tokens
            reasoning += each.reasoning_tokens
        return Tokens(calls, requests, prompt, completion, cached, reasoning)

    def cost(self, price: Price) -> float:
        """Dollars."""
        return price.cost(self.prompt, self.completion, cached_tokens=self.cached)


@dataclass(frozen=True, slots=True)
class Caps:
    """Limits of a run over all its sessions; None: no cap. `cost`: in dollars, needs a price."""

    cost: float | None = None
    calls: int | None = None
    tokens: int | None = None


@dataclass(slots=True)
class Reservation:
    """The most one request may use; `settle` replaces it by actual usage."""

    ledger: Ledger

    def settle(self, completions: Iterable[Completion]) -> None:
        delivered = list(completions)
        self.ledger.spent += Tokens.of(delivered)
        self.ledger.counts_bytes |= any(each.tokens_bounded and each.text for each in delivered)


@dataclass(slots=True)
class Ledger:
    """Spent and reserved tokens of one model. Together with the ledgers beside it, it never exceeds a cap, whatever the
    requests in flight will use."""

    price: Price | None = None
    caps: Caps = field(default_factory=Caps)
    spent: Tokens = field(default_factory=Tokens)
    """Everything the model has delivered to this run, earlier sessions included."""
    promised: Tokens = field(default_factory=Tokens)
    counts_bytes: bool = False
    """Whether bytes of replies count as tokens, since the endpoint does not report them: `max_tokens` is no bound
    then."""
    waiting: int = 0
    """Requests waiting because a cap is near."""
    _all: list[Ledger] = field(default_factory=list)
    """All ledgers under the same caps, including this one."""
    _settled: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._all.append(self)

    def beside(self, price: Price | None, spent: Tokens) -> Ledger:
        """The ledger of another model, under the same caps."""
        return Ledger(price, self.caps, spent, _all=self._all, _settled=self._settled)

    @property
    def cost(self) -> float | None:
        """Dollars spent by all models; None if one has no price."""
        costs = [None if each.price is None else each.spent.cost(each.price) for each in self._all]
        return None if None in costs else sum(cost for cost in costs if cost is not None)

    @asynccontextmanager
    async def reserve(self, request: ChatRequest) -> AsyncIterator[Reservation]:
        """Reserve a request's most expensive outcome while it is in flight.

        Near a cap it waits for requests that reserved more than they will use. Raises CapReached once the request could
        exceed the cap by itself.
        """
        while self._cap_crossed_by(bound := self._most(request), with_promised=True):
            if crossed := self._cap_crossed_by(bound, with_promised=False):
                raise crossed
            self._settled.clear()
            self.waiting += 1
            try:
                await self._settled.wait()
            finally:
                self.waiting -= 1
        self.promised += bound
        try:
            yield Reservation(self)
        finally:
            self.promised += Tokens(-bound.calls, -bound.requests, -bound.prompt, -bound.completion)
            self._settled.set()

    def _most(self, request: ChatRequest) -> Tokens:
        """Upper bound of a request's usage: no tokenizer makes more tokens of a text than it has bytes."""
        most = len(request.samples) * request.sampling.max_tokens
        return Tokens(
            calls=len(request.samples),
            requests=1,
            prompt=request.size + TEMPLATE_TOKENS,
            completion=most * MOST_BYTES_PER_TOKEN if self.counts_bytes else most,
        )

    def _cap_crossed_by(self, bound: Tokens, *, with_promised: bool) -> CapReached | None:
        """The cap that `bound` more tokens of this model could exceed; None if they fit."""
        caps, spent, total, cost = self.caps, Tokens(), Tokens(), 0.0
        for each in self._all:
            used = each.spent + each.promised if with_promised else each.spent
            used = used + bound if each is self else used
            spent, total = spent + each.spent, total + used
            cost += used.cost(each.price) if each.price else 0.0
        tokens = total.prompt + total.completion
        if caps.calls is not None and total.calls > caps.calls:
            return CapReached("max_calls", f"{spent.calls:,} of {caps.calls:,} calls are used", needed=total.calls)
        if caps.tokens is not None and tokens > caps.tokens:
            shown = f"{spent.prompt + spent.completion:,} of {caps.tokens:,} tokens are used"
            return CapReached("max_tokens", shown, needed=tokens)
        if caps.cost is not None and self.cost is not None and cost > caps.cost:
            return CapReached("max_cost", f"{dollars(self.cost)} of {dollars(caps.cost)} are spent", needed=cost)
        return None
