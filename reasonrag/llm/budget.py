"""Budgets: what was spent, what is reserved for requests in flight, and the caps on both together.

Decides a request's highest cost before it is sent. Models of different prices may share caps. Knows no endpoint.
"""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from reasonrag.errors import CapReached
from reasonrag.llm.chat import MOST_BYTES_PER_TOKEN, ChatRequest, Completion
from reasonrag.llm.prices import Price
from reasonrag.llm.settings import BudgetSettings
from reasonrag.rendering import dollars

CAPS = ("max_calls", "max_tokens", "max_cost")
"""The settings of the caps."""
TEMPLATE_TOKENS = 16
"""Tokens that a chat template adds to a prompt."""


class Tokens(NamedTuple):
    """Sums over answers, of which all but the calls are fields of a `Completion`. cached_tokens: prompt tokens at the
    cached price. reasoning_tokens: completion tokens in no text."""

    calls: int = 0
    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0

    def __add__(self, other: Tokens) -> Tokens:  # type: ignore[override]
        return Tokens(*map(operator.add, self, other))

    def __sub__(self, other: Tokens) -> Tokens:
        return Tokens(*map(operator.sub, self, other))

    @staticmethod
    def of(completions: Iterable[Completion]) -> Tokens:
        every = list(map(_AMOUNTS_OF_A_REPLY, completions))
        return Tokens(len(every), *(every[0] if len(every) == 1 else map(sum, zip(*every, strict=True))))

    def cost(self, price: Price) -> float:
        """Dollars."""
        return price.cost(self.prompt_tokens, self.completion_tokens, cached_tokens=self.cached_tokens)


_AMOUNTS_OF_A_REPLY = operator.attrgetter(*Tokens._fields[1:])


@dataclass(frozen=True, slots=True)
class Caps:
    """Limits of a run over all its sessions; None: no cap. `cost`: in dollars, needs a price."""

    cost: float | None = None
    calls: int | None = None
    tokens: int | None = None

    @classmethod
    def of(cls, budget: BudgetSettings, parts: int = 1) -> Caps:
        """Of this process, which uses one of so many equal parts, rounded down."""
        return cls(
            None if budget.max_cost is None else budget.max_cost / parts,
            None if budget.max_calls is None else budget.max_calls // parts,
            None if budget.max_tokens is None else budget.max_tokens // parts,
        )


@dataclass(slots=True)
class _Shared:
    """What the ledgers under the same caps have in common."""

    ledgers: list[Ledger] = field(default_factory=list)
    waiting: int = 0
    """Requests that wait because a cap is near."""
    settled: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class Ledger:
    """Spent and reserved tokens of one model. With the ledgers beside it, it exceeds no cap, whatever requests use."""

    price: Price | None = None
    caps: Caps = field(default_factory=Caps)
    spent: Tokens = field(default_factory=Tokens)
    """Everything the model has delivered to this run, earlier sessions included."""
    promised: Tokens = field(default_factory=Tokens)
    counts_bytes: bool = False
    """Whether bytes of replies count as tokens, as the endpoint reports none: `max_tokens` is no bound then."""
    _shared: _Shared = field(default_factory=_Shared)

    def __post_init__(self) -> None:
        self._shared.ledgers.append(self)

    def beside(self, price: Price | None, spent: Tokens) -> Ledger:
        """The ledger of another model, under the same caps."""
        return Ledger(price, self.caps, spent, _shared=self._shared)

    @property
    def cost(self) -> float | None:
        """Dollars spent by all models; None if one has no price."""
        costs = [None if each.price is None else each.spent.cost(each.price) for each in self._shared.ledgers]
        return None if None in costs else sum(cost for cost in costs if cost is not None)

    @property
    def waiting_for(self) -> str:
        """What requests of all models wait for that have no room, for people; empty if none does."""
        return "a cap is near: one request at a time" if self._shared.waiting else ""

    async def reserve(self, request: ChatRequest) -> Tokens:
        """Reserve a request's most expensive outcome while it is in flight; `settle` replaces it by actual usage. The
        caller gives back what this returns.

        Near a cap it waits for requests that reserved more than they use. Raises CapReached if it alone could cross it.
        """
        if self.caps == Caps():
            return Tokens()  # nothing has to be kept free
        while self._cap_crossed_by(bound := self._most(request), with_promised=True):
            if refused := self._cap_crossed_by(bound, with_promised=False):
                raise refused
            self._shared.settled.clear()
            self._shared.waiting += 1
            try:
                await self._shared.settled.wait()
            finally:
                self._shared.waiting -= 1
        self.promised += bound
        return bound

    def give_back(self, bound: Tokens) -> None:
        """End what `reserve` began."""
        self.promised -= bound
        self._shared.settled.set()

    def settle(self, delivered: Sequence[Completion]) -> None:
        """Count what a request has delivered."""
        self.spent += Tokens.of(delivered)
        self.counts_bytes |= any(each.tokens_bounded and each.text for each in delivered)

    def _most(self, request: ChatRequest) -> Tokens:
        """Upper bound of a request's usage: no tokenizer makes more tokens of a text than it has bytes."""
        most = len(request.samples) * request.sampling.max_tokens
        return Tokens(
            calls=len(request.samples),
            requests=1,
            prompt_tokens=request.size + TEMPLATE_TOKENS,
            completion_tokens=most * MOST_BYTES_PER_TOKEN if self.counts_bytes else most,
        )

    def _total(self, bound: Tokens, *, promised: bool) -> tuple[float, float, float]:
        """What all models have spent, and are promised, and `bound` more tokens of this one: as `CAPS` count it."""
        calls, tokens, dollars = 0, 0, 0.0
        for each in self._shared.ledgers:
            used = each.spent + each.promised if promised else each.spent
            used += bound if each is self else Tokens()
            calls, tokens = calls + used.calls, tokens + used.prompt_tokens + used.completion_tokens
            dollars += used.cost(each.price) if each.price else 0.0
        return calls, tokens, dollars

    def _cap_crossed_by(self, bound: Tokens, *, with_promised: bool) -> CapReached | None:
        """The cap that `bound` more tokens of this model could exceed; None if they fit."""
        caps, total = self.caps, self._total(bound, promised=with_promised)
        cost = None if self.cost is None else caps.cost
        for cap, limit, needed in zip(CAPS, (caps.calls, caps.tokens, cost), total, strict=True):
            if limit is not None and needed > limit:
                spent = self._total(Tokens(), promised=False)[CAPS.index(cap)]
                used = f"{spent:,.0f} of {limit:,.0f} {cap.removeprefix('max_')} are used"
                told = f"{dollars(spent)} of {dollars(limit)} are spent" if cap == "max_cost" else used
                return CapReached(cap, told, needed=needed)
        return None
