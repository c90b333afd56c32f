"""Who goes next when only so many requests may be in flight, and work that succeeds or fails together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reasonrag.concurrency import Slots, together


async def settle() -> None:
    """Let every task run until it waits."""
    for _ in range(10):
        await asyncio.sleep(0)


class Line:
    """Tasks that each take a slot, note that they did, and hold it until they are let go."""

    def __init__(self, count: int) -> None:
        self.slots = Slots(count)
        self.served: list[int] = []
        self.most_in_flight = 0
        self.tasks: list[asyncio.Task[None]] = []
        self._gates: list[asyncio.Event] = []

    async def join(self, priority: int) -> None:
        """One more task; it has asked for its slot when this returns."""
        gate = asyncio.Event()
        self._gates.append(gate)
        self.tasks.append(asyncio.create_task(self._hold(len(self.tasks), priority, gate)))
        await settle()

    async def _hold(self, number: int, priority: int, gate: asyncio.Event) -> None:
        async with self.slots.slot(priority):
            self.served.append(number)
            self.most_in_flight = max(self.most_in_flight, self.slots.in_flight)
            await gate.wait()

    def let_go(self, number: int) -> None:
        self._gates[number].set()

    async def finish(self) -> None:
        """Let everybody go, one after the other in the order of being served."""
        done = 0
        while done < len(self.served):
            self.let_go(self.served[done])
            await settle()
            done += 1


async def served_in_order(priorities: Sequence[int]) -> list[int]:
    """The order in which waiters with these priorities get the only slot."""
    line = Line(1)
    await line.join(0)
    for priority in priorities:
        await line.join(priority)
    await line.finish()
    return [number - 1 for number in line.served[1:]]


@pytest.mark.parametrize(
    ("priorities", "order"),
    [
        ([], []),
        ([5], [0]),
        ([3, 1, 2], [1, 2, 0]),
        ([1, 1, 1], [0, 1, 2]),
        ([2, 1, 2, 1], [1, 3, 0, 2]),
        ([0, -1], [1, 0]),
    ],
)
async def test_the_smallest_priority_goes_first_and_equal_ones_in_order_of_asking(
    priorities: list[int], order: list[int]
) -> None:
    """Older trees are finished before younger ones are fed."""
    assert await served_in_order(priorities) == order


@settings(deadline=None, max_examples=50)
@given(priorities=st.lists(st.integers(-3, 3), max_size=10))
def test_waiters_are_served_as_a_stable_sort_would_have_it(priorities: list[int]) -> None:
    """The law behind the table."""
    order = sorted(range(len(priorities)), key=lambda i: priorities[i])
    assert asyncio.run(served_in_order(priorities)) == order


@pytest.mark.parametrize("count", [1, 2, 5])
async def test_no_more_are_in_flight_than_there_are_slots(count: int) -> None:
    """All slots are used, none is given twice."""
    line = Line(count)
    for priority in range(8):
        await line.join(priority)
    assert (line.slots.in_flight, line.served) == (count, list(range(count)))
    await line.finish()
    assert line.most_in_flight == count
    assert line.served == list(range(8))
    assert line.slots.in_flight == 0


async def test_a_slot_that_is_free_is_had_without_waiting() -> None:
    """Priority matters only among those who wait."""
    line = Line(2)
    await line.join(9)
    await line.join(9)
    assert line.served == [0, 1]
    await line.finish()


async def test_an_error_inside_gives_the_slot_back() -> None:
    """A failed request does not hold its place."""
    slots = Slots(1)
    with pytest.raises(ZeroDivisionError):
        async with slots.slot(0):
            raise ZeroDivisionError
    async with asyncio.timeout(5), slots.slot(0):
        assert slots.in_flight == 1


async def test_a_waiter_that_is_cancelled_is_passed_over() -> None:
    """The next in line gets the slot that it would have had."""
    line = Line(1)
    for priority in (0, 1, 2):
        await line.join(priority)
    line.tasks[1].cancel()
    await settle()
    assert line.served == [0]
    line.let_go(0)
    await settle()
    assert line.served == [0, 2]
    await line.finish()
    assert line.most_in_flight == 1


async def test_a_slot_handed_over_in_the_moment_of_cancelling_is_not_lost() -> None:
    """Whoever is cancelled between being given a slot and knowing it passes the slot on."""
    slots, served = Slots(1), []

    async def be_served(number: int) -> None:
        async with slots.slot(number):
            served.append(number)

    async with slots.slot(0):
        first, second = (asyncio.create_task(be_served(number)) for number in (1, 2))
        await settle()
    first.cancel()  # the slot is its own by now, but it has not run since
    await asyncio.wait([first, second], timeout=5)
    assert first.cancelled()
    assert (served, slots.in_flight) == ([2], 0)


ACTIONS = st.lists(st.tuples(st.sampled_from(["join", "join", "let go", "cancel"]), st.integers(0, 4)), max_size=25)


async def play(count: int, actions: Sequence[tuple[str, int]], pauses: Sequence[int]) -> Line:
    """Tasks that come, end and are cancelled in any order; then everybody who is left ends."""
    line = Line(count)
    for (action, number), pause in zip(actions, pauses, strict=True):
        if action == "join":
            await line.join(number)
        elif number < len(line.tasks):
            if action == "cancel":
                line.tasks[number].cancel()
            else:
                line.let_go(number)
            for _ in range(pause):
                await asyncio.sleep(0)
    await settle()
    for number in range(len(line.tasks)):
        line.let_go(number)
    await settle()
    await asyncio.wait_for(asyncio.gather(*line.tasks, return_exceptions=True), timeout=5)
    return line


@settings(deadline=None, max_examples=100)
@given(count=st.integers(1, 3), actions=ACTIONS, data=st.data())
def test_no_slot_is_ever_lost_or_doubled(count: int, actions: list[tuple[str, int]], data: st.DataObject) -> None:
    """Whoever comes, ends or is cancelled, and when: all who stay are served, and all slots are free at the end."""
    pauses = data.draw(st.lists(st.integers(0, 4), min_size=len(actions), max_size=len(actions)))

    async def played() -> Line:
        line = await play(count, actions, pauses)
        for _ in range(count):  # as many as there are slots are served at once again
            await line.join(0)
        assert line.slots.in_flight == count
        await line.finish()
        return line

    line = asyncio.run(played())
    assert line.most_in_flight <= count
    stayed = [number for number, task in enumerate(line.tasks) if not task.cancelled()]
    assert set(stayed) <= set(line.served)
    assert len(set(line.served)) == len(line.served)


# -- together --------------------------------------------------------------------------------------------------


async def after(turns: int, result: str) -> str:
    for _ in range(turns):
        await asyncio.sleep(0)
    return result


async def test_results_stand_in_order_whoever_is_first() -> None:
    """The caller can pair results with what it asked for."""
    assert await together(after(3, "a"), after(0, "b"), after(1, "c")) == ["a", "b", "c"]
    assert await together() == []


async def test_the_first_failure_is_raised_as_it_is_and_stops_the_others() -> None:
    """Nothing runs on, and costs, for a result that nobody will see."""
    cancelled: list[str] = []

    async def endless(name: str) -> str:
        try:
            return await after(10**9, name)
        except asyncio.CancelledError:
            cancelled.append(name)
            raise

    async def failing() -> str:
        await asyncio.sleep(0)
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await together(endless("a"), failing(), endless("b"))
    assert sorted(cancelled) == ["a", "b"]
