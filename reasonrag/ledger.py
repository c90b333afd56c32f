"""What has been spent, what is promised to requests under way, and the caps that neither may cross.

Decides what a request may cost at most before it is sent. Knows no endpoint, no file and no tree.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from reasonrag.chat import ChatRequest, Completion
from reasonrag.errors import CapReached
from reasonrag.prices import Price, dollars

TEMPLATE_TOKENS = 16
"""What a chat template adds to a prompt."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Sums over answers. `cached`: prompt tokens that the endpoint charged at its cached price."""

    calls: int = 0
    requests: int = 0
    prompt: int = 0
    completion: int = 0
    cached: int = 0

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(
            self.calls + other.calls,
            self.requests + other.requests,
            self.prompt + other.prompt,
            self.completion + other.completion,
            self.cached + other.cached,
        )

    @staticmethod
    def of(completions: Iterable[Completion]) -> Tokens:
        total = Tokens()
        for each in completions:
            total += Tokens(1, each.requests, each.prompt_tokens, each.completion_tokens, each.cached_tokens)
        return total

    def cost(self, price: Price) -> float:
        """Dollars."""
        return price.cost(self.prompt, self.completion, cached_tokens=self.cached)


@dataclass(frozen=True, slots=True)
class Caps:
    """Most that a run may use, over all its sessions; None: no cap. `cost`: in dollars, needs a price."""

    cost: float | None = None
    calls: int | None = None
    tokens: int | None = None


@dataclass(slots=True)
class Reservation:
    """What one request may use at most; `settle` replaces it by what it used."""

    ledger: Ledger

    def settle(self, completions: Iterable[Completion]) -> None:
        self.ledger.spent += Tokens.of(completions)


@dataclass(slots=True)
class Ledger:
    """Spent and promised: together they never cross a cap, whatever the requests under way will use."""

    price: Price | None = None
    caps: Caps = field(default_factory=Caps)
    spent: Tokens = field(default_factory=Tokens)
    """Everything delivered to this run so far, earlier sessions included."""
    promised: Tokens = field(default_factory=Tokens)
    waiting: int = 0
    """Requests that wait because a cap is near."""
    _settled: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def cost(self) -> float | None:
        """Dollars spent; None without a price."""
        return None if self.price is None else self.spent.cost(self.price)

    @asynccontextmanager
    async def reserve(self, request: ChatRequest) -> AsyncIterator[Reservation]:
        """Promise a request its most expensive outcome for as long as it is under way.

        Near a cap it waits for requests that were promised more than they will use. Raises CapReached once the request
        could cross the cap by itself.
        """
        bound = _most(request)
        while self._cap_crossed_by(self.spent + self.promised + bound):
            if crossed := self._cap_crossed_by(self.spent + bound):
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

    def _cap_crossed_by(self, total: Tokens) -> CapReached | None:
        caps, spent = self.caps, self.spent
        tokens = total.prompt + total.completion
        if caps.calls is not None and total.calls > caps.calls:
            return CapReached("max_calls", f"{spent.calls:,} of {caps.calls:,} calls are used", needed=total.calls)
        if caps.tokens is not None and tokens > caps.tokens:
            used = f"{spent.prompt + spent.completion:,} of {caps.tokens:,} tokens are used"
            return CapReached("max_tokens", used, needed=tokens)
        if caps.cost is not None and self.price is not None and total.cost(self.price) > caps.cost:
            used = f"{dollars(spent.cost(self.price))} of {dollars(caps.cost)} are spent"
            return CapReached("max_cost", used, needed=total.cost(self.price))
        return None


def _most(request: ChatRequest) -> Tokens:
    """What a request can use: no tokenizer makes more tokens of a text than it has bytes."""
    return Tokens(
        calls=len(request.samples),
        requests=1,
        prompt=request.size + TEMPLATE_TOKENS,
        completion=len(request.samples) * request.sampling.max_tokens,
    )
