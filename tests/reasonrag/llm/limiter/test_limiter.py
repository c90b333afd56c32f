"""Whatever is lost, doubled or late, whoever dies: no cap and no rate is exceeded, and nobody starves."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reasonrag.errors import InputError
from reasonrag.llm.budget import Amount, Caps
from reasonrag.llm.limiter.limiter import (
    LEASE_S,
    SILENT_S,
    Account,
    AddressReport,
    Lease,
    Limiter,
    Rates,
    Report,
    fair_share,
)

CAPS = Caps(calls=30, tokens=2_500, cost=0.3)
WHERE = "http://host/v1 model"
LIMIT = 600.0
RANKS = ("0", "1", "2")


def calls(number: float) -> Amount:
    """So many calls, each with 90 tokens and for 1.1 cents at most."""
    return Amount(number, 90 * number, 0.011 * number)


def first_lease(limiter: Limiter, report: Report, now: float = 0.0) -> Lease:
    """The lease of a rank that learns its turn first."""
    return limiter.lease(report.model_copy(update={"turn": limiter.lease(report, now).turn}), now)


# -- a rank by the rules of the protocol ---------------------------------------------------------------------------


@dataclass
class Rank:
    """Sends what its lease allows. In flight are the most that requests may use; now: its own clock, which is the
    limiter's in these tests."""

    name: str
    spent: Amount = Amount()  # noqa: RUF009 - immutable
    in_flight: list[float] = field(default_factory=list)
    needs: float = 0.0
    granted: Amount = Amount()  # noqa: RUF009
    turn: int = 0
    share: float = 0.0
    until: float = 0.0
    demand: float = 600.0
    sent: tuple[Report, float] | None = None
    """The report whose answer it waits for, and when it was sent."""
    crossed: bool = False

    @property
    def busy(self) -> Amount:
        return self.spent + calls(sum(self.in_flight))

    def live_share(self, now: float) -> float:
        return self.share if now < self.until else 0.0

    def report(self, now: float) -> Report:
        self.send()
        least = self.busy + calls(self.needs) if self.needs else None
        wanted = (least or self.busy) + calls(5)
        held = self.busy if least else self.granted.at_most(wanted).at_least(self.busy)
        self.granted = held
        addresses = {
            WHERE: AddressReport(governed=True, held=Rates(self.live_share(now), None), demand=(self.demand, 0))
        }
        made = Report(
            rank=self.name, turn=self.turn, spent=self.spent, held=held, least=least, wanted=wanted, addresses=addresses
        )
        self.sent = made, now
        return made

    def take(self, report: Report, lease: Lease) -> None:
        if self.sent is None or self.sent[0] is not report:
            return  # it has given up waiting for this answer
        self.turn, at = lease.turn, self.sent[1]
        self.sent = None
        if lease.counted:
            self.granted, self.crossed = lease.allowed, lease.crossed is not None
            self.share, self.until = lease.addresses[WHERE].share.requests or 0.0, at + lease.seconds

    def send(self) -> None:
        """The request that it needs, if it has room."""
        if self.needs and (self.busy + calls(self.needs)).within(self.granted):
            self.in_flight.append(self.needs)
            self.needs = 0

    def settle(self, share: float) -> None:
        if self.in_flight:
            self.spent += calls(round(self.in_flight.pop(0) * share))

    def die(self) -> Rank:
        """Itself, started again from its journal."""
        return Rank(self.name, self.spent, demand=self.demand)


@dataclass
class World:
    limiter: Limiter = field(default_factory=lambda: Limiter(CAPS, Rates(LIMIT), now=0.0))
    ranks: dict[str, Rank] = field(default_factory=lambda: {name: Rank(name) for name in RANKS})
    underway: list[Report] = field(default_factory=list)
    answers: list[tuple[Report, Lease]] = field(default_factory=list)
    now: float = 0.0
    starts: int = 1

    def step(self, action: str, name: str, number: int) -> None:
        rank = self.ranks[name]
        match action:
            case "need":
                rank.needs = rank.needs or 1 + number % 4
            case "exchange":
                self.exchange(rank)
            case "report":
                self.underway.append(rank.report(self.now))
            case "arrive" | "arrive twice" if self.underway:
                place = number % len(self.underway)
                report = self.underway[place] if action == "arrive twice" else self.underway.pop(place)
                self.answers.append((report, self.limiter.lease(report, self.now)))
            case "answer" if self.answers:
                report, lease = self.answers.pop(number % len(self.answers))
                self.ranks[report.rank].take(report, lease)
            case "lose" if self.underway:
                self.underway.pop(number % len(self.underway))
            case "lose answer" if self.answers:
                self.answers.pop(number % len(self.answers))
            case "send":
                rank.send()
            case "settle":
                rank.settle(number % 5 / 4)
            case "wait":
                self.now += number % 8
            case "die":
                self.ranks[name] = rank.die()
            case "kill limiter":
                self.kill_limiter()

    def kill_limiter(self) -> None:
        """Started again from what its file has: spent and allowed of each rank."""
        self.starts += 1
        kept = {name: Account(each.spent, each.allowed) for name, each in self.limiter.accounts.items()}
        self.limiter = Limiter(CAPS, Rates(LIMIT), kept, first_turn=10**6 * self.starts, now=self.now)

    def exchange(self, rank: Rank) -> None:
        """Nothing is lost, and it may need two reports."""
        for _ in range(2):
            report = rank.report(self.now)
            rank.take(report, self.limiter.lease(report, self.now))

    def round(self, *, settles: float) -> None:
        """Every rank works for a second, and nothing is lost."""
        self.now += 1
        for rank in self.ranks.values():
            while rank.in_flight:
                rank.settle(settles)
            self.exchange(rank)
            rank.needs = rank.needs or 2
            rank.send()

    def check(self) -> None:
        used = sum((each.busy for each in self.ranks.values()), start=Amount())
        assert used.within(Amount(CAPS.calls or 0, CAPS.tokens or 0, (CAPS.cost or 0) + 1e-6))
        assert sum(each.live_share(self.now) for each in self.ranks.values()) <= LIMIT + 1e-6


ACTIONS = (
    *("need", "report", "arrive", "arrive twice", "answer", "lose", "lose answer", "send", "settle", "wait", "die"),
    *("kill limiter", "exchange", "exchange", "exchange", "need", "send"),
)
STEPS = st.lists(st.tuples(st.sampled_from(ACTIONS), st.sampled_from(RANKS), st.integers(0, 20)), max_size=120)


def lived(steps: Sequence[tuple[str, str, int]]) -> World:
    world = World()
    for each in steps:
        world.step(*each)
        world.check()
    return world


@settings(max_examples=500, deadline=None)
@given(steps=STEPS)
def test_no_cap_and_no_rate_is_exceeded_whatever_is_lost_doubled_or_late_and_whoever_dies(
    steps: list[tuple[str, str, int]],
) -> None:
    """In any order of reports, answers, requests, deaths of ranks and of the limiter; messages of the dead, too."""
    lived(steps)


@settings(max_examples=25, deadline=None)
@given(steps=STEPS, settles=st.sampled_from([0.0, 0.5, 1.0]), killed=st.booleans())
def test_whatever_went_before_every_rank_ends_by_the_cap_once_all_is_spent(
    steps: list[tuple[str, str, int]], settles: float, *, killed: bool
) -> None:
    """What is left then is less than a request needs; and each rank had a part of it until then."""
    world = lived(steps)
    if killed:
        world.kill_limiter()
    before = {name: rank.spent.calls for name, rank in world.ranks.items()}
    for _ in range(400):
        world.round(settles=settles)
        world.check()
        if all(each.crossed for each in world.ranks.values()):
            break
    spent = sum(each.spent.calls for each in world.ranks.values())
    if settles:
        assert all(each.crossed for each in world.ranks.values())
        fit = 27  # calls for $0.30, which is the cap that is met first
        assert fit - 4 < spent <= fit
        assert fit - sum(before.values()) < 20 or all(
            each.spent.calls > before[name] for name, each in world.ranks.items()
        )
    else:  # nothing is ever used
        assert not any(each.crossed for each in world.ranks.values())


@settings(max_examples=25, deadline=None)
@given(steps=STEPS, demands=st.lists(st.floats(0, 2 * LIMIT), min_size=3, max_size=3))
def test_whatever_went_before_each_rank_soon_has_its_fair_share_of_the_rate(
    steps: list[tuple[str, str, int]], demands: list[float]
) -> None:
    """What it demands, or at least an equal part; and no more than all have is given."""
    world = lived(steps)
    for rank, demand in zip(world.ranks.values(), demands, strict=True):
        rank.demand = demand
    for _ in range(int(LEASE_S) + 4):
        world.round(settles=1.0)
        world.check()
    for each in world.ranks.values():
        assert each.live_share(world.now) >= min(each.demand, LIMIT / len(RANKS)) - 1e-6


@given(demands=st.lists(st.floats(0, 1e6), min_size=1, max_size=9), limit=st.floats(0, 1e6))
def test_fair_shares_are_within_the_limit_and_leave_nobody_short_for_one_who_has_more(
    demands: list[float], limit: float
) -> None:
    shares = [fair_share(each, demands[:place] + demands[place + 1 :], limit) for place, each in enumerate(demands)]
    assert sum(shares) <= limit * (1 + 1e-9)
    for share, demand in zip(shares, demands, strict=True):
        assert share >= min(demand, limit / len(demands)) * (1 - 1e-9)


# -- caps ----------------------------------------------------------------------------------------------------------


def asking(rank: str, *, spent: float = 0, held: float = 0, least: float | None = None, wanted: float = 0) -> Report:
    return Report(
        rank=rank,
        spent=Amount(spent),
        held=Amount(held),
        least=None if least is None else Amount(least),
        wanted=Amount(max(wanted, held, least or 0)),
    )


def test_a_dead_ranks_unsettled_lease_counts_as_spent_until_the_rank_reports_again() -> None:
    """Then its journal is the truth."""
    limiter = Limiter(Caps(calls=10))
    first_lease(limiter, asking("dead", least=8, wanted=8))
    waits = first_lease(limiter, asking("other", least=4))
    assert (waits.allowed.calls, waits.crossed) == (0, None)  # the first may still settle
    stopped = limiter.lease(asking("other", least=4).model_copy(update={"turn": waits.turn}), SILENT_S)
    assert stopped.crossed is not None
    assert (stopped.crossed.cap, stopped.crossed.spent, stopped.crossed.needed) == ("max_calls", 8, 12)
    first_lease(limiter, asking("dead", spent=2, held=2), SILENT_S)
    again = first_lease(limiter, asking("other", least=4), SILENT_S)
    assert (again.allowed.calls, again.crossed) == (4, None)


def test_who_waits_longest_is_served_first() -> None:
    """A rank with small needs does not take what a larger one waits for."""
    limiter = Limiter(Caps(calls=10))
    busy = first_lease(limiter, asking("busy", held=0, least=8))
    large = first_lease(limiter, asking("large", least=6))
    small = first_lease(limiter, asking("small", least=1))
    assert (busy.allowed.calls, large.allowed.calls, small.allowed.calls) == (8, 0, 0)
    first_lease(limiter, asking("busy", spent=3, held=3))
    assert first_lease(limiter, asking("small", least=1)).allowed.calls == 1  # both fit now
    assert first_lease(limiter, asking("large", least=6)).allowed.calls == 6


def test_dollars_of_journals_count_as_soon_as_a_rank_reports_the_prices() -> None:
    """A rank that is complete never reports again, and what it cost is not forgotten."""
    complete = Account(Amount(5, 3_000), Amount(5, 3_000), journaled={"": (2_000, 1_000, 500), "judge": (10**6, 0, 0)})
    limiter = Limiter(Caps(cost=1.0), accounts={"complete": complete})
    report = asking("other", least=0).model_copy(update={"prices": {"": (2.0, 8.0, 0.5), "judge": (0.25, 1.0, 0.25)}})
    first_lease(limiter, report)
    assert limiter.spent(0.0).dollars == pytest.approx(0.0015 * 2 + 0.0005 * 0.5 + 0.008 + 0.25)


def test_without_caps_everything_is_allowed() -> None:
    lease = first_lease(Limiter(Caps()), asking("0", least=1e9, wanted=2e9))
    assert (lease.allowed.calls, lease.crossed) == (2e9, None)


# -- rates ---------------------------------------------------------------------------------------------------------


def using(rank: str, address: AddressReport) -> Report:
    return asking(rank).model_copy(update={"addresses": {WHERE: address}})


def test_a_limit_is_learned_from_whichever_rank_saw_it_and_a_given_one_goes_before() -> None:
    """Given ones are for the addresses of the main model; another model's are learned."""
    limiter = Limiter(Caps(), Rates(requests=60))
    lease = first_lease(limiter, using("0", AddressReport(governed=True, learned=Rates(90, 1_000), demand=(1e6, 1e6))))
    assert lease.addresses[WHERE].share == Rates(60, 1_000)
    lease = first_lease(limiter, using("1", AddressReport()))
    assert lease.addresses[WHERE].share == Rates(0, 0)  # until the first has confirmed a lower share
    other = first_lease(Limiter(Caps(), Rates(requests=60)), using("0", AddressReport(demand=(5, 5))))
    assert other.addresses[WHERE].share == Rates(None, None)


def test_a_share_is_given_to_another_rank_only_when_it_was_given_up_or_its_lease_has_ended() -> None:
    limiter = Limiter(Caps(), Rates(requests=60))
    greedy = AddressReport(governed=True, demand=(1e6, 0))
    first = first_lease(limiter, using("0", greedy))
    assert first.addresses[WHERE].share.requests == 60
    assert first_lease(limiter, using("1", greedy), 1.0).addresses[WHERE].share.requests == 0
    lower = first_lease(limiter, using("0", greedy.model_copy(update={"held": Rates(60, None)})), 2.0)
    assert lower.addresses[WHERE].share.requests == 30
    assert first_lease(limiter, using("1", greedy), 2.1).addresses[WHERE].share.requests == 0  # not confirmed
    assert first_lease(limiter, using("1", greedy), 2.0 + LEASE_S).addresses[WHERE].share.requests == 60


def test_a_retry_after_of_one_rank_slows_all() -> None:
    limiter = Limiter(Caps())
    first_lease(limiter, using("0", AddressReport(pause=10.0)), 0.0)
    assert first_lease(limiter, using("1", AddressReport()), 4.0).addresses[WHERE].pause == pytest.approx(6.0)
    assert first_lease(limiter, using("1", AddressReport()), 11.0).addresses[WHERE].pause == 0.0


# -- bounds --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("turn", [0, 1, 2, 4, 99])
def test_a_report_counts_only_with_the_turn_of_the_ranks_latest_lease(turn: int) -> None:
    """A late, doubled or made-up one changes nothing, and is answered with that turn."""
    limiter = Limiter(Caps(calls=10))
    lease = first_lease(limiter, asking("0", least=4))
    lease = limiter.lease(asking("0", held=4, wanted=8).model_copy(update={"turn": lease.turn}), 0.0)
    assert lease.turn == 3
    before = deepcopy(limiter.accounts)
    late = limiter.lease(asking("0", wanted=1).model_copy(update={"turn": turn}), 1.0)
    assert (late.counted, late.turn, limiter.accounts) == (False, 3, before)


def test_a_limiter_that_is_started_again_counts_no_report_made_for_the_earlier_one() -> None:
    earlier = Limiter(Caps(calls=10), first_turn=7)
    lease = first_lease(earlier, asking("0", least=4))
    limiter = Limiter(Caps(calls=10), accounts=earlier.accounts, first_turn=1_000)
    for turn in range(lease.turn + 1):
        assert not limiter.lease(asking("0").model_copy(update={"turn": turn}), 0.0).counted
    assert limiter.accounts["0"].allowed.calls >= 4


def test_addresses_are_bounded_and_those_out_of_use_are_forgotten() -> None:
    limiter = Limiter(Caps())

    def report(number: int, now: float) -> Lease:
        addresses = {f"{number}-{each}": AddressReport() for each in range(64)}
        return first_lease(limiter, asking(str(number)).model_copy(update={"addresses": addresses}), now)

    for number in range(156):
        report(number, 0.0)
    with pytest.raises(InputError, match="10,000 addresses"):
        report(156, 0.0)
    assert report(156, LEASE_S + 1).counted
