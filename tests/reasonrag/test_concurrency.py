"""Work that succeeds or fails together."""

from __future__ import annotations

import asyncio

import pytest

from reasonrag.concurrency import together
from reasonrag.errors import CapReached, RunStopped


async def after(slots: int, result: str) -> str:
    for _ in range(slots):
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


@pytest.mark.parametrize("position", [0, 1, 2])
async def test_what_ends_the_run_is_raised_before_any_other_failure(position: int) -> None:
    """A question's failure must not hide that no more may be asked, whichever came first."""
    reasons: list[Exception] = [ValueError("a"), ValueError("b")]
    reasons.insert(position, CapReached("max_cost", "spent"))

    async def failing(reason: Exception) -> str:
        try:
            await asyncio.sleep(0)
        finally:
            raise reason  # all of them fail, one after the other

    with pytest.raises(RunStopped, match="--max-cost: spent"):
        await together(*map(failing, reasons))
