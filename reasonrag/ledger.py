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

TOKENS_PER_CHARACTER = 0.5
"""For the bound on a prompt that nobody has counted yet: twice what English has. Denser prompts are learned."""
TEMPLATE_TOKENS = 16
"""What a chat template adds to a prompt at most, about."""
LEARNED_SLACK = 1.1
"""How much denser than the densest prompt so far the next one may be."""


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
    characters: int

    def settle(self, completions: Iterable[Completion]) -> None:
        used = Tokens.of(completions)
        self.ledger.spent += used
        density = (used.prompt - TEMPLATE_TOKENS) / max(1, self.characters)
        self.ledger.densest = max(self.ledger.densest, LEARNED_SLACK * density)


@dataclass(slots=True)
class Ledger:
    """Spent and promised: together they never cross a cap, whatever the requests under way will use."""

    price: Price | None = None
    caps: Caps = field(default_factory=Caps)
    spent: Tokens = field(default_factory=Tokens)
    """Everything delivered to this run so far, earlier sessions included."""
    promised: Tokens = field(default_factory=Tokens)
    densest: float = TOKENS_PER_CHARACTER
    """Tokens per character to expect of a prompt at most."""
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
        characters = sum(len(message.content) for message in request.messages)
        while self._cap_crossed_by(self.spent + self.promised + (bound := self._bound(request, characters))):
            if crossed := self._cap_crossed_by(self.spent + bound):
                raise crossed
            self._settled.clear()
            await self._settled.wait()
        self.promised += bound
        try:
            yield Reservation(self, characters)
        finally:
            self.promised += Tokens(-bound.calls, -bound.requests, -bound.prompt, -bound.completion)
            self._settled.set()

    def _bound(self, request: ChatRequest, characters: int) -> Tokens:
        return Tokens(
            calls=len(request.samples),
            requests=1,
            prompt=int(characters * self.densest) + TEMPLATE_TOKENS,
            completion=len(request.samples) * request.sampling.max_tokens,
        )

    def _cap_crossed_by(self, total: Tokens) -> CapReached | None:
        caps, spent = self.caps, self.spent
        if caps.calls is not None and total.calls > caps.calls:
            return CapReached("max_calls", f"{spent.calls:,} of {caps.calls:,} calls are used")
        if caps.tokens is not None and total.prompt + total.completion > caps.tokens:
            return CapReached("max_tokens", f"{spent.prompt + spent.completion:,} of {caps.tokens:,} tokens are used")
        if caps.cost is not None and self.price is not None and total.cost(self.price) > caps.cost:
            return CapReached("max_cost", f"{dollars(spent.cost(self.price))} of {dollars(caps.cost)} are spent")
        return None
