"""What has been spent, what is promised to requests under way, and the caps that neither may cross.

Decides what a request may cost at most before it is sent. Models with prices of their own may share caps. Knows no
endpoint, no file and no tree.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from reasonrag.errors import CapReached
from reasonrag.llm.chat import ChatRequest, Completion
from reasonrag.llm.prices import Price
from reasonrag.terminal import dollars

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
    """What one model has spent and was promised; with those of the ledgers beside it, it never crosses a cap, whatever
    the requests under way will use."""

    price: Price | None = None
    caps: Caps = field(default_factory=Caps)
    spent: Tokens = field(default_factory=Tokens)
    """Everything the model has delivered to this run so far, earlier sessions included."""
    promised: Tokens = field(default_factory=Tokens)
    waiting: int = 0
    """Requests that wait because a cap is near."""
    _all: list[Ledger] = field(default_factory=list)
    """The ledgers under the same caps, this one included."""
    _settled: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._all.append(self)

    def beside(self, price: Price | None, spent: Tokens) -> Ledger:
        """The ledger of another model, under the same caps."""
        return Ledger(price, self.caps, spent, _all=self._all, _settled=self._settled)

    @property
    def cost(self) -> float | None:
        """Dollars that all models have spent; None where one has no price."""
        costs = [None if each.price is None else each.spent.cost(each.price) for each in self._all]
        return None if None in costs else sum(cost for cost in costs if cost is not None)

    @asynccontextmanager
    async def reserve(self, request: ChatRequest) -> AsyncIterator[Reservation]:
        """Promise a request its most expensive outcome for as long as it is under way.

        Near a cap it waits for requests that were promised more than they will use. Raises CapReached once the request
        could cross the cap by itself.
        """
        bound = _most(request)
        while self._cap_crossed_by(bound, with_promised=True):
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

    def _cap_crossed_by(self, bound: Tokens, *, with_promised: bool) -> CapReached | None:
        """The cap that this model could cross by using so much more."""
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


def _most(request: ChatRequest) -> Tokens:
    """What a request can use: no tokenizer makes more tokens of a text than it has bytes."""
    return Tokens(
        calls=len(request.samples),
        requests=1,
        prompt=request.size + TEMPLATE_TOKENS,
        completion=len(request.samples) * request.sampling.max_tokens,
    )
