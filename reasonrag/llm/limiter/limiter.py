"""The limiter: which part of the caps and of the rate limits each rank of a run may use.

Pure state: no I/O and no clock, every time is passed in, in seconds, and none is earlier than the last. Decides that
what all ranks have spent and may still spend never exceeds a cap, and that the shares of a rate that may be in use
never exceed the limit. Does not know what a rank asks its models, nor how a report reaches it.

A rank reports its whole state, so that lost, doubled and late messages do no harm: a report counts only if it carries
the `turn` of the rank's latest lease; any other changes nothing, and is answered with that turn. A rank lowers what it
may use before it reports, and raises it only by the lease that answers the report.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Annotated, Literal, NamedTuple, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from reasonrag.errors import InputError
from reasonrag.llm.budget import CAPS, Amount, CapName, Caps
from reasonrag.llm.prices import Price
from reasonrag.ranks import MOST_RANKS
from reasonrag.web.client import LONGEST_RETRY_AFTER_S

LEASE_S = 5.0
"""How long a share of a rate may be used: some reports may be lost before a rank pauses."""
SILENT_S = 60.0
"""A rank that has not reported for so long is taken for dead: what it may still spend then counts as spent, until it
reports again."""
MOST_ADDRESSES = 64
"""Addresses and models of one rank."""
MOST_NAME = 500
"""Characters of an address with its model."""
MOST_KNOWN_ADDRESSES = 10_000
"""Of all ranks; those that no rank uses any more are forgotten first."""
RANKS_PER_OLD_REPORT = 20
"""The fair part of a rate is looked for anew when a twentieth of its ranks has reported: it costs time for each of
them. That the limit is kept does not depend on it."""
MOST_AMOUNT = 1e15
"""Largest number in a report: whole numbers are exact below it."""
NOTHING = Amount()
_ROUNDING = Amount(dollars=1e-9)
"""Sums of the same dollars in another order differ by less."""

_KINDS: tuple[Literal[0, 1], ...] = (0, 1)
"""Requests and tokens, as in `Rates`."""


def _possible(amount: Amount) -> Amount:
    if not all(0 <= each <= MOST_AMOUNT for each in amount):  # also refuses what is no number
        raise ValueError(f"must be from 0 to {MOST_AMOUNT:g}")
    return amount


Quantity: TypeAlias = Annotated[float, Field(ge=0, le=MOST_AMOUNT)]
Total: TypeAlias = Annotated[Amount, AfterValidator(_possible)]
RankName: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]


class Rates(NamedTuple):
    """Per minute; None: no limit is known."""

    requests: Quantity | None = None
    tokens: Quantity | None = None


NO_LIMITS = Rates()


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class AddressReport(_Message):
    """A rank's use of one address with one model.

    governed: whether the limits that the limiter was given apply here, beside what was learned. learned: limits in the
    endpoint's headers. held: the share that the rank goes by from now on; 0 once its lease has ended. demand: what it
    would send. pause: seconds left of what the endpoint asked this rank to wait.
    """

    governed: bool = False
    learned: Rates = NO_LIMITS
    held: Rates = Rates(0, 0)
    demand: tuple[Quantity, Quantity] = (0, 0)
    pause: float = Field(default=0.0, ge=0, le=LONGEST_RETRY_AFTER_S)


class Report(_Message):
    """The state of a rank. Amounts are totals of all its sessions and models.

    turn: of its latest lease; 0: it has none. spent: by its journal. held: that, and what it may still spend from now
    on without another lease: at least the most that its requests in flight may use, and no more while a request waits.
    least: that, and the most of the request that waits and needs least; None: none waits. wanted: what it would like to
    be allowed, about a second's work more. prices: dollars per million tokens in, out and in from the cache, by the
    name of the model in the journal; empty for the run's teacher.
    """

    rank: RankName
    turn: int = Field(default=0, ge=0, lt=2**63)
    spent: Total
    held: Total
    least: Total | None = None
    wanted: Total
    prices: dict[Annotated[str, Field(max_length=MOST_NAME)], tuple[Quantity, Quantity, Quantity]] = Field(
        default={}, max_length=MOST_ADDRESSES
    )
    addresses: dict[Annotated[str, Field(max_length=MOST_NAME)], AddressReport] = Field(
        default={}, max_length=MOST_ADDRESSES
    )


class Crossed(_Message):
    """A cap that a rank's waiting request could cross by itself. spent: of all ranks. needed: with that request."""

    cap: CapName
    spent: float
    limit: float
    needed: float


class AddressLease(_Message):
    """share: what the rank may send per minute. pause: seconds during which no rank sends anything."""

    share: Rates
    pause: float = 0.0


class Lease(_Message):
    """What a rank may use. counted: whether the report did; if not, nothing but turn and caps is told.

    allowed: the total that it may have spent or promised, where there is a cap. seconds: how long the shares may be
    used, by the rank's clock from when it sent its report. caps: of all ranks together.
    """

    turn: int
    counted: bool
    caps: Caps
    allowed: Total = NOTHING
    crossed: Crossed | None = None
    addresses: dict[str, AddressLease] = {}
    seconds: float = LEASE_S


@dataclass(slots=True)
class Account:
    """What the limiter knows of a rank. turn: 0 until its first report. journaled: tokens in its journal by model,
    whose dollars are not known before a rank reports its prices. used: what counts as spent, which is all that it may
    have spent while it is silent."""

    spent: Amount = NOTHING
    allowed: Amount = NOTHING
    turn: int = 0
    seen_at: float = -math.inf
    journaled: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)
    used: Amount = NOTHING


class _Sum:
    """The exact sum of numbers that change one at a time; a sum of floats would drift. Infinite ones are counted."""

    __slots__ = ("_finite", "_infinite")

    def __init__(self) -> None:
        self._finite, self._infinite = Fraction(), 0

    def change(self, before: float, after: float) -> None:
        if before == after:
            return
        self._infinite += math.isinf(after) - math.isinf(before)
        self._finite += _finite(after) - _finite(before)

    def __float__(self) -> float:
        return math.inf if self._infinite else float(self._finite)


def _finite(number: float) -> Fraction:
    return Fraction(0 if math.isinf(number) else number)


class _AmountSum:
    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts = tuple(_Sum() for _ in NOTHING)

    def change(self, before: Amount, after: Amount) -> None:
        for part, old, new in zip(self._parts, before, after, strict=True):
            part.change(old, new)

    @property
    def amount(self) -> Amount:
        return Amount(*map(float, self._parts))


@dataclass(frozen=True, slots=True)
class _Share:
    """held: the most that the rank may use until `ends_at`."""

    held: tuple[float, float]
    demand: tuple[float, float]
    ends_at: float


@dataclass(slots=True)
class _FairLevel:
    """What `fair_level` said of a limit. reports: so many more go by it."""

    limit: float
    most: float
    spare: float
    reports: int


@dataclass(slots=True)
class _Address:
    """held: sums over the shares, of which those that end first come first."""

    governed: bool = False
    learned: Rates = NO_LIMITS
    paused_until: float = -math.inf
    shares: OrderedDict[str, _Share] = field(default_factory=OrderedDict)
    held: tuple[_Sum, _Sum] = field(default_factory=lambda: (_Sum(), _Sum()))
    levels: list[_FairLevel | None] = field(default_factory=lambda: [None, None])

    def put(self, rank: str, share: _Share) -> None:
        self.shares[rank] = share
        for total, each in zip(self.held, share.held, strict=True):
            total.change(0.0, each)

    def drop(self, rank: str) -> None:
        if share := self.shares.pop(rank, None):
            for total, each in zip(self.held, share.held, strict=True):
                total.change(each, 0.0)

    def drop_ended(self, now: float) -> None:
        while self.shares and next(iter(self.shares.values())).ends_at <= now:
            self.drop(next(iter(self.shares)))

    def fair_share(self, kind: Literal[0, 1], demand: float, limit: float) -> float:
        """As `fair_share` beside the others' demands, which among many ranks may be a few reports old."""
        level = self.levels[kind]
        if level is None or level.limit != limit or level.reports < 1:
            demands = [each.demand[kind] for each in self.shares.values()]
            most, spare = fair_level([demand, *demands], limit)
            level = self.levels[kind] = _FairLevel(limit, most, spare, len(demands) // RANKS_PER_OLD_REPORT)
        else:
            level.reports -= 1
        return min(demand, level.most) + level.spare


class Limiter:
    """See the module's docstring.

    caps: of all ranks together. rates: of each address and model that a rank calls governed; what is None there is
    learned. accounts: of ranks that were here before; their earlier shares may be in use for LEASE_S seconds from now.
    first_turn: one that no earlier limiter of this run has given, such as a large random number.
    """

    def __init__(
        self,
        caps: Caps,
        rates: Rates = NO_LIMITS,
        accounts: Mapping[str, Account] | None = None,
        *,
        first_turn: int = 1,
        now: float = 0.0,
    ) -> None:
        self.caps, self.rates = caps, rates
        self.accounts = dict(accounts or {})
        self._live = OrderedDict(self.accounts)
        """Those that are not silent, those that reported longest ago first."""
        self._used, self._allowed = _AmountSum(), _AmountSum()
        for each in self.accounts.values():
            each.turn, each.seen_at, each.used = 0, now, each.spent
            self._used.change(NOTHING, each.used)
            self._allowed.change(NOTHING, each.allowed)
        self._unpriced = [each for each in self.accounts.values() if each.journaled]
        self._most = Amount(*(math.inf if each is None else each for each in (caps.calls, caps.tokens, caps.cost)))
        self._first_turn = first_turn
        self._shares_known_at = now + LEASE_S if self.accounts else now
        self._addresses: dict[str, _Address] = {}
        self._line: dict[str, Amount] = {}
        """What waiting ranks need beyond what they hold, the one that waits longest first."""

    def lease(self, report: Report, now: float) -> Lease:
        """The answer to a report. Raises InputError for more ranks or addresses than there may be."""
        rank = self.accounts.get(report.rank)
        turn = (rank and rank.turn) or self._first_turn
        if report.turn != turn:
            return Lease(turn=turn, counted=False, caps=self.caps)
        if rank is None:
            if len(self.accounts) >= MOST_RANKS:
                raise InputError(f"there are {MOST_RANKS:,} ranks already; give each rank its own name")
            rank = self.accounts[report.rank] = Account()
        self._check_addresses(report, now)
        self._price(report.prices)
        rank.turn, rank.seen_at, rank.journaled = turn + 1, now, {}
        self._live[report.rank] = rank
        self._live.move_to_end(report.rank)
        self._find_silent(now)
        self._set(rank, report.spent, NOTHING)
        crossed = self._crossed(report, now)
        self._set(rank, report.spent, self._allow(report, now, crossed=crossed is not None))
        for name in self._addresses.keys() - report.addresses.keys():
            self._addresses[name].drop(report.rank)
        addresses = {name: self._address(name, report.rank, each, now) for name, each in report.addresses.items()}
        return Lease(
            turn=rank.turn,
            counted=True,
            caps=self.caps,
            allowed=rank.allowed,
            crossed=crossed,
            addresses=addresses,
        )

    # -- caps -------------------------------------------------------------------------------------

    def spent(self, now: float) -> Amount:
        """Of all ranks; see `Account.used`."""
        self._find_silent(now)
        return self._used.amount

    def _find_silent(self, now: float) -> None:
        while self._live and now - (first := next(iter(self._live.values()))).seen_at >= SILENT_S:
            self._live.popitem(last=False)
            self._set(first, first.spent, first.allowed, used=first.allowed)

    def _set(self, rank: Account, spent: Amount, allowed: Amount, *, used: Amount | None = None) -> None:
        """used: None: what is spent."""
        used = spent if used is None else used
        self._used.change(rank.used, used)
        self._allowed.change(rank.allowed, allowed)
        rank.spent, rank.allowed, rank.used = spent, allowed, used

    def _price(self, prices: Mapping[str, tuple[float, float, float]]) -> None:
        """Count the dollars of journals without them, now that the prices are known."""
        if not prices:
            return
        for each in self._unpriced:
            known = [(Price(*prices[name]), tokens) for name, tokens in each.journaled.items() if name in prices]
            cost = sum(
                price.cost(prompt, completion, cached_tokens=cached) for price, (prompt, completion, cached) in known
            )
            spent = each.spent.at_least(Amount(dollars=cost))
            allowed = each.allowed.at_least(spent)
            self._set(each, spent, allowed, used=spent if each.used == each.spent else allowed)
            each.journaled = {}
        self._unpriced = []

    def _crossed(self, report: Report, now: float) -> Crossed | None:
        """The cap that the waiting request could cross by itself, whatever the others settle."""
        if report.least is None:
            return None
        need, spent = report.least - report.held, self.spent(now)
        for name, used, more, most in zip(CAPS, spent, need, self._most, strict=True):
            if used + more > most:
                return Crossed(cap=name, spent=used, limit=most, needed=used + more)
        return None

    def _allow(self, report: Report, now: float, *, crossed: bool) -> Amount:
        """The total that a rank may have spent or promised, while its account has nothing: at least what it holds, all
        that its next request needs or nothing of it, and then a fair part of what is left."""
        left = self._most - self._allowed.amount
        least = report.least or report.held
        line = (name for name in self._line if now - self.accounts[name].seen_at < LEASE_S)
        first = next(line, report.rank)
        kept = NOTHING if first == report.rank else self._line[first]
        if report.least is None or crossed:
            self._line.pop(report.rank, None)
        if not least.within(left - kept + _ROUNDING):
            if report.least is not None and not crossed:
                self._line[report.rank] = report.least - report.held
            return report.held
        self._line.pop(report.rank, None)
        free = (left - kept - least).times(1 / (len(self._live) + 1))
        return least + (report.wanted - least).at_least(NOTHING).at_most(free)

    # -- rates ------------------------------------------------------------------------------------

    def _check_addresses(self, report: Report, now: float) -> None:
        if len(self._addresses.keys() | report.addresses.keys()) <= MOST_KNOWN_ADDRESSES:
            return
        self._addresses = {
            name: each
            for name, each in self._addresses.items()
            if each.paused_until > now or any(share.ends_at > now for share in each.shares.values())
        }
        if len(self._addresses.keys() | report.addresses.keys()) > MOST_KNOWN_ADDRESSES:
            raise InputError(f"the ranks have more than {MOST_KNOWN_ADDRESSES:,} addresses and models")

    def _address(self, name: str, rank: str, asked: AddressReport, now: float) -> AddressLease:
        """A rank's share at one address."""
        address = self._addresses.setdefault(name, _Address())
        address.governed |= asked.governed
        address.learned = Rates(
            *(new if new is not None else old for new, old in zip(asked.learned, address.learned, strict=True))
        )
        if asked.pause:
            address.paused_until = max(address.paused_until, now + asked.pause)
        address.drop(rank)
        address.drop_ended(now)
        shares: list[float | None] = []
        for kind in _KINDS:
            given = self.rates[kind] if address.governed else None
            limit = address.learned[kind] if given is None else given
            held = asked.held[kind]
            share = None
            if limit is not None:
                fair = address.fair_share(kind, asked.demand[kind], limit)
                share = min(fair, limit - float(address.held[kind]))
                if now < self._shares_known_at and held is not None:
                    share = min(share, held)
                share = max(0.0, share)
            shares.append(share)
        requests, tokens = (
            max(math.inf if each is None else each for each in pair) for pair in zip(asked.held, shares, strict=True)
        )
        address.put(rank, _Share((requests, tokens), asked.demand, ends_at=now + LEASE_S))
        return AddressLease(share=Rates(*shares), pause=max(0.0, address.paused_until - now))


def fair_share(demand: float, others: Sequence[float], limit: float) -> float:
    """A rank's part of a limit: what it demands, or an equal part of what those leave who demand less (max-min fair).
    What no rank demands is divided into one part more than there are ranks, for the next that comes."""
    most, spare = fair_level([demand, *others], limit)
    return min(demand, most) + spare


def fair_level(demands: Collection[float], limit: float) -> tuple[float, float]:
    """The most that a rank has of a limit, and what each has beside its demand; see `fair_share`."""
    left = limit
    for position, each in enumerate(sorted(demands)):
        part = left / (len(demands) - position)
        if each > part:
            return part, 0.0
        left -= each
    return math.inf, left / (len(demands) + 1)
