"""Which request goes next when only so many may be in flight, and to which address."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reasonrag.errors import CapReached, Interrupted
from reasonrag.llm.endpoint.rate_limits import FAILURES_TO_OPEN, HEADROOM, Pace, Rate, Sent
from reasonrag.llm.endpoint.scheduler import LOAD_BOUND, RequestScheduler


async def settle() -> None:
    """Let every task run until it waits."""
    for _ in range(10):
        await asyncio.sleep(0)


def scheduler(count: int) -> RequestScheduler:
    """One endpoint without limits, and so many requests in flight."""
    return RequestScheduler([Pace(most=count)], most=count)


class Crowd:
    """Requests at a scheduler, each until it is told what became of it."""

    def __init__(self, scheduler: RequestScheduler) -> None:
        self.scheduler = scheduler
        self.slots: list[Sent] = []
        """Those that were given, in order; `over` once they have ended."""
        self.served: list[int] = []
        """The tasks that they were given to."""
        self.most_in_flight = 0
        self.tasks: list[asyncio.Task[None]] = []
        self._ends: list[asyncio.Event] = []

    async def come(self, count: int = 1, *, priority: int = 0, tokens: float = 0.0, question: str = "") -> None:
        """So many requests more; they have their slots, or wait, when this returns."""
        for _ in range(count):
            self._ends.append(asyncio.Event())
            self.tasks.append(asyncio.create_task(self._hold(len(self.tasks), priority, tokens, question)))
        await settle()

    async def _hold(self, number: int, priority: int, tokens: float, question: str) -> None:
        slot = await self.scheduler.take(priority, tokens, question, {})
        self.slots.append(slot)
        self.served.append(number)
        self.most_in_flight = max(self.most_in_flight, self.scheduler.in_flight)
        try:
            await self._ends[number].wait()
        finally:
            self.scheduler.give_back(slot)

    def let_go(self, number: int) -> None:
        """The task with this number may end."""
        self._ends[number].set()

    async def end(self, number: int) -> None:
        """The slot with this number ends."""
        self.let_go(self.served[number])
        await settle()

    @property
    def lanes(self) -> list[int]:
        return [slot.lane for slot in self.slots]

    async def finish(self) -> None:
        """End all slots in the order of being given, and those that are given because of it."""
        number = 0
        while number < len(self.served):
            await self.end(number)
            number += 1
        await asyncio.wait_for(asyncio.gather(*self.tasks, return_exceptions=True), timeout=60)


async def served_in_order(priorities: Sequence[int]) -> list[int]:
    """The order in which waiters with these priorities get the only slot."""
    crowd = Crowd(scheduler(1))
    await crowd.come()
    for priority in priorities:
        await crowd.come(priority=priority)
    await crowd.finish()
    return [number - 1 for number in crowd.served[1:]]


@given(priorities=st.lists(st.integers(-3, 3), max_size=10))
def test_waiters_are_served_as_a_stable_sort_would_have_it(priorities: list[int]) -> None:
    """The smallest priority first, equal ones in the order of asking: older trees are finished before younger ones."""
    order = sorted(range(len(priorities)), key=lambda i: priorities[i])
    assert asyncio.run(served_in_order(priorities)) == order


async def test_a_turn_given_in_the_moment_of_cancelling_is_not_lost() -> None:
    """Whoever is cancelled between being given a slot and knowing it passes the slot on."""
    only, served = scheduler(1), []

    async def be_served(number: int) -> None:
        slot = await only.take(number, 0.0, "", {})
        served.append(number)
        only.give_back(slot)

    slot = await only.take(0, 0.0, "", {})
    first, second = (asyncio.create_task(be_served(number)) for number in (1, 2))
    await settle()
    only.give_back(slot)
    first.cancel()  # the slot is its own by now, but it has not run since
    await asyncio.wait([first, second], timeout=60)
    assert first.cancelled()
    assert (served, only.in_flight, only.paces[0].in_flight) == ([2], 0, 0)


ACTIONS = st.lists(st.tuples(st.sampled_from(["join", "join", "let go", "cancel"]), st.integers(0, 4)), max_size=25)


async def play(count: int, actions: Sequence[tuple[str, int]], pauses: Sequence[int]) -> Crowd:
    """Tasks that come, end and are cancelled in any order; then everybody who is left ends."""
    crowd = Crowd(scheduler(count))
    for (action, number), pause in zip(actions, pauses, strict=True):
        if action == "join":
            await crowd.come(priority=number)
        elif number < len(crowd.tasks):
            if action == "cancel":
                crowd.tasks[number].cancel()
            else:
                crowd.let_go(number)
            for _ in range(pause):
                await asyncio.sleep(0)
    await settle()
    for number in range(len(crowd.tasks)):
        crowd.let_go(number)
    await settle()
    await asyncio.wait_for(asyncio.gather(*crowd.tasks, return_exceptions=True), timeout=60)
    return crowd


@given(count=st.integers(1, 3), actions=ACTIONS, data=st.data())
def test_no_turn_is_ever_lost_or_doubled(count: int, actions: list[tuple[str, int]], data: st.DataObject) -> None:
    """Whoever comes, ends or is cancelled, and when: all who stay are served, and all slots are free at the end."""
    pauses = data.draw(st.lists(st.integers(0, 4), min_size=len(actions), max_size=len(actions)))

    async def played() -> Crowd:
        crowd = await play(count, actions, pauses)
        await crowd.come(count)  # as many as may be are served at once again
        assert crowd.scheduler.in_flight == count
        await crowd.finish()
        assert (crowd.scheduler.in_flight, crowd.scheduler.paces[0].in_flight) == (0, 0)
        return crowd

    crowd = asyncio.run(played())
    assert crowd.most_in_flight <= count
    stayed = [number for number, task in enumerate(crowd.tasks) if not task.cancelled()]
    assert set(stayed) <= set(crowd.served)
    assert len(set(crowd.served)) == len(crowd.served)


# -- several paces, and paces that wait -----------------------------------------------------------------------


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def take_down(pace: Pace, now: float) -> None:
    for _ in range(FAILURES_TO_OPEN):
        pace.sent(0, now)
        pace.failed(Sent(0, now), now=now)


@pytest.mark.parametrize(
    ("windows", "failed", "lanes"),
    [
        ([8, 8], {0: 1}, [1]),
        ([8, 8], {1: 1}, [0]),
        ([8, 1], {0: 1}, [1, 0]),
        ([8, 8], {}, [0, 1]),
        ([8, 8, 8], {0: 1, 1: 1}, [2, 2]),
        ([8, 8], {0: 2, 1: 1}, [1, 1]),
    ],
)
async def test_lanes_where_a_request_failed_are_avoided(
    windows: list[int], failed: dict[int, int], lanes: list[int]
) -> None:
    """It goes where it failed least often, however much busier that is; in the others if it must."""
    scheduler = RequestScheduler([Pace(most) for most in windows], most=16)
    assert [(await scheduler.take(0, 0.0, "", failed)).lane for _ in lanes] == lanes


async def test_a_request_that_waits_for_a_rate_is_woken_by_the_timer() -> None:
    """Nothing has to end first: 10 a second are allowed, and one second's worth at once."""
    crowd = Crowd(RequestScheduler([Pace(20, requests=Rate(600 / HEADROOM))], most=20))
    await crowd.come(12)
    assert len(crowd.slots) == 11
    assert crowd.scheduler.waiting_for == "rate limit"
    await asyncio.sleep(0.15)
    assert len(crowd.slots) == 12
    assert crowd.scheduler.waiting_for == ""
    await crowd.finish()


async def test_why_nothing_goes_is_said_with_its_end() -> None:
    """For a person who watches: the reason of the pace that is free first, and when that is."""
    clock = Clock()
    one, other = Pace(4, tokens=Rate(6000 / HEADROOM)), Pace(4)
    crowd = Crowd(RequestScheduler([one, other], most=8, clock=clock))
    await crowd.come(2, tokens=1_000)
    assert sorted(crowd.lanes) == [0, 1]
    other.refused(crowd.slots[1], retry_after=30.0, now=clock.now)
    await crowd.come(1)
    assert crowd.scheduler.waiting_for == "rate limit"
    assert crowd.scheduler.waiting_until == pytest.approx(clock.now + 9)
    one.refused(crowd.slots[0], retry_after=40.0, now=clock.now)
    await crowd.come(1)
    assert crowd.scheduler.waiting_for == "asked to wait"
    assert crowd.scheduler.waiting_until == pytest.approx(clock.now + 30)
    clock.now += 31
    await crowd.end(0)
    assert crowd.scheduler.waiting_for == ""
    assert crowd.lanes[2:] == [1, 1]
    await crowd.finish()


async def test_a_stop_tells_those_who_wait_and_lets_the_others_end() -> None:
    """The first reason holds, for those who come later too."""
    crowd = Crowd(scheduler(2))
    await crowd.come(4)
    crowd.scheduler.stop(Interrupted("Ctrl-C"))
    crowd.scheduler.stop(CapReached("max_calls", "later"))
    await settle()
    await crowd.come(1)
    assert [task.done() for task in crowd.tasks] == [False, False, True, True, True]
    await crowd.finish()
    assert [type(task.exception()) for task in crowd.tasks] == [type(None)] * 2 + [Interrupted] * 3
    assert (len(crowd.slots), crowd.scheduler.in_flight) == (2, 0)


async def test_a_stop_and_a_cancellation_together_disturb_nobody() -> None:
    """Who is told to stop in the moment of being cancelled is cancelled."""
    crowd = Crowd(scheduler(1))
    await crowd.come(2)
    crowd.scheduler.stop(Interrupted("Ctrl-C"))
    crowd.tasks[1].cancel()
    await settle()
    assert crowd.tasks[1].cancelled()
    await crowd.finish()
    assert crowd.scheduler.in_flight == 0


# -- questions and their addresses -------------------------------------------------------------------------------

ADDRESSES = [f"http://10.0.0.{number}:8000/v1" for number in range(1, 5)]
QUESTIONS = [f"q{number}" for number in range(400)]


def of_questions(addresses: Sequence[str], *, most: int = 64, clock: Callable[[], float] | None = None) -> Crowd:
    paces = [Pace(most) for _ in addresses]
    return Crowd(RequestScheduler(paces, most=most, addresses=addresses, clock=clock or Clock()))


async def homes(addresses: Sequence[str], questions: Sequence[str] = QUESTIONS) -> dict[str, str]:
    """Where each question goes when nothing else is under way."""
    crowd = of_questions(addresses)
    for number, question in enumerate(questions):
        await crowd.come(question=question)
        await crowd.end(number)
    return {question: addresses[lane] for question, lane in zip(questions, crowd.lanes, strict=True)}


@settings(max_examples=10)
@given(
    addresses=st.lists(st.sampled_from([f"http://node{each}/v1" for each in range(9)]), unique=True, min_size=2),
    data=st.data(),
)
def test_an_address_that_leaves_or_comes_moves_its_own_questions_only(
    addresses: list[str], data: st.DataObject
) -> None:
    """Whichever it is, and in whatever order the others are named."""
    gone = data.draw(st.sampled_from(addresses))
    left = data.draw(st.permutations([each for each in addresses if each != gone]))
    before, after = (asyncio.run(homes(each, QUESTIONS[:60])) for each in (addresses, left))
    assert {question for question in before if before[question] != after[question]} == {
        question for question, home in before.items() if home == gone
    }


@given(moves=st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=40), lanes=st.integers(2, 4))
def test_a_question_stays_at_its_address_as_far_as_the_bound_on_load_allows(
    moves: list[tuple[int, bool]], lanes: int
) -> None:
    """Requests come and end in any order: one goes elsewhere exactly if its own address has 1.25 times the mean, and
    nowhere beyond that."""

    async def played() -> None:
        addresses = ADDRESSES[:lanes]
        home = await homes(addresses, QUESTIONS[:6])
        crowd = of_questions(addresses)
        paces = crowd.scheduler.paces
        for question, ends in moves:
            going = [number for number, slot in enumerate(crowd.slots) if not slot.over]
            if ends and going:
                await crowd.end(going[question % len(going)])
                continue
            before = [pace.in_flight for pace in paces]
            bound = LOAD_BOUND * (sum(before) + 1) / lanes
            await crowd.come(question=QUESTIONS[question])
            lane, own = crowd.lanes[-1], addresses.index(home[QUESTIONS[question]])
            assert before[lane] < bound
            assert (lane == own) == (before[own] < bound)
        await crowd.finish()

    asyncio.run(played())


@pytest.mark.parametrize("trouble", ["full", "paused", "rate limit", "down"])
async def test_questions_of_an_address_that_cannot_take_them_go_on_elsewhere_and_come_back(trouble: str) -> None:
    """At once, each to the next address of its own; those of other addresses stay."""
    clock = Clock()
    home = await homes(ADDRESSES)
    second = await homes(ADDRESSES[1:])
    crowd = of_questions(ADDRESSES, clock=clock)
    own = crowd.scheduler.paces[0]
    if trouble == "full":
        own.window = 1.0
        own.sent(0, clock.now)
    elif trouble == "paused":
        own.sent(0, clock.now)
        own.refused(Sent(0, clock.now), retry_after=30.0, now=clock.now)
    elif trouble == "rate limit":
        own.requests.limit = 60.0
        own.requests.take(10, clock.now)
    else:
        take_down(own, clock.now)
    for number, question in enumerate(QUESTIONS[:40]):
        await crowd.come(question=question)
        await crowd.end(number)
    expected = [second[each] if home[each] == ADDRESSES[0] else home[each] for each in QUESTIONS[:40]]
    assert [ADDRESSES[lane] for lane in crowd.lanes] == expected
    assert crowd.scheduler.waiting_for == ""
    clock.now += 60
    if trouble == "full":
        own.cancelled(Sent(0, clock.now))
    if trouble == "down":
        await crowd.come()
        own.answered(crowd.slots[-1])
        await crowd.end(40)
    mine = next(question for question in QUESTIONS if home[question] == ADDRESSES[0])
    await crowd.come(question=mine)
    assert crowd.lanes[-1] == 0
    await crowd.finish()


async def test_an_address_that_is_down_is_tried_by_one_request_of_any_question() -> None:
    """Also if no open question is its own, and though other addresses are free; whoever failed there tries no more."""
    clock = Clock()
    home = await homes(ADDRESSES)
    crowd = of_questions(ADDRESSES, clock=clock)
    dead = crowd.scheduler.paces[0]
    take_down(dead, clock.now)
    foreign = [question for question in QUESTIONS if home[question] != ADDRESSES[0]]
    await crowd.come(question=foreign[0])
    assert 0 not in crowd.lanes
    clock.now = dead.paused_until
    again = await crowd.scheduler.take(0, 0.0, foreign[1], {0: 1})
    assert again.lane != 0
    crowd.scheduler.give_back(again)
    for question in foreign[1:6]:
        await crowd.come(question=question)
    assert crowd.lanes.count(0) == 1
    assert crowd.lanes[1] == 0
    dead.failed(crowd.slots[1], now=clock.now)
    await crowd.end(1)
    for question in foreign[6:12]:
        await crowd.come(question=question)
    assert crowd.lanes.count(0) == 1
    await crowd.finish()
