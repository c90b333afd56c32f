"""A rank spends and sends what was lent to it, whatever happens to its reports."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from preference import Message
from reasonrag.errors import CapReached, EndpointLost, InputError, Interrupted, RunStopped
from reasonrag.llm.budget import Amount, Caps
from reasonrag.llm.chat import ChatModel, ChatRequest, Completion, Sampling
from reasonrag.llm.endpoint.endpoint import EndpointModel, Limits
from reasonrag.llm.journal import open_journal
from reasonrag.llm.limiter.client import LimiterAway, LimiterTransport, limited
from reasonrag.llm.limiter.limiter import Lease, Rates, Report
from reasonrag.llm.limiter.state_file import KeptLimiter, open_limiter
from reasonrag.llm.model_spec import ModelSpec
from reasonrag.llm.models import Models
from reasonrag.llm.prices import Price
from reasonrag.llm.servers.behaviour import EndpointBehaviour
from reasonrag.llm.servers.simulator import serving

SAMPLING = Sampling(temperature=1.0, top_p=1.0, max_tokens=50)
PRICE = Price(2.0, 8.0, cached_in=0.5)
PATIENCE_S = 60.0


async def until(true: Callable[[], bool]) -> None:
    """Wait for what another task is about to do."""
    async with asyncio.timeout(PATIENCE_S):
        while not true():  # noqa: ASYNC110 - the state is what is tested
            await asyncio.sleep(0.01)


def request(number: int, *, draws: int = 1) -> ChatRequest:
    return ChatRequest(
        messages=(Message(role="user", content=f"Question: {number}"),),
        sampling=SAMPLING,
        samples=tuple(range(draws)),
        seeds=tuple(range(draws)),
        question_id=str(number),
    )


class Cheap:
    """A model that answers when its gate is open, for a tenth of what it may cost."""

    name = "cheap"

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.asked = 0

    async def complete(self, request: ChatRequest) -> Sequence[Completion]:
        self.asked += 1
        await self.gate.wait()
        first = Completion(text="a", finish_reason="stop", prompt_tokens=5, completion_tokens=5)
        return [first, *[Completion(text="b", finish_reason="stop", requests=0)] * (len(request.samples) - 1)]

    async def check(self) -> None:
        """It is always there."""

    async def close(self) -> None:
        """It holds nothing open."""


@asynccontextmanager
async def rank(
    folder: Path,
    transport: LimiterTransport,
    model: ChatModel,
    *,
    price: Price | None = PRICE,
    patience: float = PATIENCE_S,
    said: list[str] | None = None,
) -> AsyncIterator[Models]:
    """The models of a rank, whose folder bears its name."""
    spec = ModelSpec(model.name, SAMPLING, Limits(8, timeout=20), price=price)
    async with AsyncExitStack() as opened:
        journal = await opened.enter_async_context(open_journal(folder / "journal.jsonl"))
        models = Models.journaled(journal, Caps(), (spec, model))
        say = (said if said is not None else []).append
        await opened.enter_async_context(limited(models, transport, rank=folder.name, say=say, patience=patience))
        yield models
        await models.drain()


class Flaky:
    """A way to the limiter that loses every third message or answer, and delivers others twice or late."""

    shown, own_command = "a flaky way", False

    def __init__(self, kept: KeptLimiter, seed: int) -> None:
        self._kept, self._random = kept, random.Random(seed)
        self._late: list[Report] = []

    async def lease(self, report: Report) -> Lease:
        await asyncio.sleep(0)
        fate = self._random.choice(["well", "well", "twice", "report lost", "answer lost", "late"])
        if fate == "report lost":
            raise LimiterAway(fate)
        if fate == "late":
            self._late.append(report)
            raise LimiterAway(fate)
        lease = await self._kept.lease(report)
        if fate == "twice":
            await self._kept.lease(report)
        while self._late:
            await self._kept.lease(self._late.pop())
        if fate == "answer lost":
            raise LimiterAway(fate)
        return lease


# -- caps ----------------------------------------------------------------------------------------------------------


async def until_stopped(models: Models, start: int) -> RunStopped:
    """Four requests at a time, again and again."""

    async def work(number: int) -> None:
        while True:
            await models.main.complete(request(number))
            number += 4

    try:
        async with asyncio.TaskGroup() as group:
            for number in range(start, start + 4):
                group.create_task(work(number))
    except ExceptionGroup as failed:
        stopped = failed.exceptions[0]
        assert isinstance(stopped, RunStopped)
        return stopped
    raise AssertionError


@pytest.mark.parametrize("caps", [Caps(calls=20), Caps(cost=0.001)], ids=str)
async def test_ranks_end_by_the_cap_on_all_of_them_over_a_flaky_way(tmp_path: Path, caps: Caps) -> None:
    """Never above it together, whatever is in flight; and not before little is left of it."""
    first, second = Cheap(), Cheap()
    first.gate.set()
    second.gate.set()
    async with open_limiter(tmp_path, caps, Rates()) as kept, AsyncExitStack() as stack:
        ranks = [
            await stack.enter_async_context(rank(tmp_path / "ranks" / name, Flaky(kept, place), model))
            for place, (name, model) in enumerate((("00000", first), ("00001", second)))
        ]
        cap = Amount(caps.calls or math.inf, caps.tokens or math.inf, caps.cost or math.inf)

        async def watch() -> None:
            while True:
                total = sum((each.main.ledger.total(promised=True) for each in ranks), start=Amount())
                assert total.within(cap + Amount(dollars=1e-8))
                await asyncio.sleep(0)

        watching = asyncio.create_task(watch())
        async with asyncio.timeout(PATIENCE_S):
            stops = await asyncio.gather(*(until_stopped(each, place) for place, each in enumerate(ranks)))
        watching.cancel()
        spent = sum((each.main.ledger.total(promised=False) for each in ranks), start=Amount())
    assert all(isinstance(each, CapReached) for each in stops)
    one = Amount(1, 80, 80 * 8e-6)  # the most that a request may use
    assert not (spent + one).within(cap)


async def test_near_the_cap_a_rank_waits_for_what_another_has_in_flight(tmp_path: Path) -> None:
    """It goes when that settles for less. The message tells what all have used, and how far to raise the cap."""
    slow, quick = Cheap(), Cheap()
    quick.gate.set()
    async with (
        open_limiter(tmp_path, Caps(calls=5), Rates()) as kept,
        rank(tmp_path / "00000", kept, slow) as one,
        rank(tmp_path / "00001", kept, quick) as other,
    ):
        held = asyncio.create_task(one.main.complete(request(0, draws=4)))
        await until(lambda: slow.asked > 0)
        waits = asyncio.create_task(other.main.complete(request(1, draws=2)))
        await until(lambda: other.waiting_for == "room under the caps that this process holds")
        held.cancel()  # it is paid for all the same
        slow.gate.set()
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(CapReached) as info:
                await waits
            await one.drain()
    assert (str(info.value), info.value.needed) == (
        "--max-calls: 4 of 5 calls are used; the next request could cross it",
        6,
    )
    assert info.value.raised == {"--max-calls": "12"}


async def test_ctrl_c_ends_a_request_that_waits_for_other_ranks(tmp_path: Path) -> None:
    slow = Cheap()
    async with (
        open_limiter(tmp_path, Caps(calls=4), Rates()) as kept,
        rank(tmp_path / "00000", kept, slow) as one,
        rank(tmp_path / "00001", kept, Cheap()) as other,
    ):
        held = asyncio.create_task(one.main.complete(request(0, draws=4)))
        await until(lambda: slow.asked > 0)
        waits = asyncio.create_task(other.main.complete(request(1)))
        await until(lambda: other.waiting_for != "")
        other.stop(Interrupted("interrupted"))
        with pytest.raises(Interrupted):
            await asyncio.wait_for(waits, PATIENCE_S)
        slow.gate.set()
        await held


async def test_what_a_rank_did_not_use_is_given_back_at_its_end(tmp_path: Path) -> None:
    model = Cheap()
    model.gate.set()
    async with open_limiter(tmp_path, Caps(calls=10, cost=1.0), Rates()) as kept:
        async with rank(tmp_path / "00000", kept, model) as models:
            await models.main.complete(request(0))
        account = kept.limiter.accounts["00000"]
    assert (account.spent.calls, account.allowed) == (1, account.spent)


async def test_a_cap_on_the_cost_needs_a_price(tmp_path: Path) -> None:
    async with open_limiter(tmp_path, Caps(cost=1.0), Rates()) as kept:
        with pytest.raises(InputError, match="needs the price of cheap"):
            async with rank(tmp_path / "00000", kept, Cheap(), price=None):
                raise AssertionError


# -- a limiter that is away ------------------------------------------------------------------------------------------


class Leaving:
    """A limiter that answers until it is gone."""

    shown, own_command = "http://node1:8002", True

    def __init__(self, kept: KeptLimiter) -> None:
        self._kept, self.gone = kept, False

    async def lease(self, report: Report) -> Lease:
        if self.gone:
            raise LimiterAway("connection refused")
        return await self._kept.lease(report)


async def test_a_limiter_that_stays_away_ends_the_run_once_patience_is_over(tmp_path: Path) -> None:
    """Requests that wait are stopped by it, and the same command continues."""
    async with open_limiter(tmp_path, Caps(calls=0), Rates()) as kept:
        way = Leaving(kept)
        async with rank(tmp_path / "00000", way, Cheap(), patience=0.0) as models:
            way.gone = True
            waits = asyncio.create_task(models.main.complete(request(0)))
            with pytest.raises(EndpointLost, match="the limiter at http://node1:8002 has not answered for 0 seconds"):
                await asyncio.wait_for(waits, PATIENCE_S)


async def test_a_limiter_that_is_away_at_the_start_is_waited_for_and_told_of(tmp_path: Path) -> None:
    said = list[str]()
    async with open_limiter(tmp_path, Caps(), Rates()) as kept:
        way = Leaving(kept)
        way.gone = True

        class Said(list[str]):
            def append(self, message: str) -> None:
                said.append(message)
                way.gone = False

        async with rank(tmp_path / "00000", way, Cheap(), said=Said()):
            pass
    away, again = said
    assert away.startswith("the limiter at http://node1:8002 does not answer (connection refused): nothing is sent")
    assert again == "the limiter at http://node1:8002 answers again"


# -- rates -----------------------------------------------------------------------------------------------------------


async def test_ranks_share_the_limit_that_one_of_them_learned(tmp_path: Path) -> None:
    """All of them at one address, by what the endpoint's headers say; and nothing is sent without a lease."""
    async with serving(EndpointBehaviour(rpm=600)) as (base_url, _), AsyncExitStack() as stack:
        kept = await stack.enter_async_context(open_limiter(tmp_path, Caps(), Rates()))
        endpoints = [EndpointModel("offline", Limits(8, timeout=60), base_urls=[base_url]) for _ in range(2)]
        for each in endpoints:
            stack.push_async_callback(each.close)
        for place, each in enumerate(endpoints):
            await stack.enter_async_context(rank(tmp_path / f"0000{place}", kept, each))
        [(_, first)], [(_, second)] = (each.paces for each in endpoints)
        assert (first.requests.limit, second.requests.limit) == (None, None)
        await endpoints[0].check()
        assert first.wait(endpoints[0].scheduler.clock()) == (math.inf, "limiter")  # of a lease that knew no limit
        await until(lambda: None not in (first.requests.limit, second.requests.limit))
        for _ in range(100):
            assert (first.requests.limit or 0) + (second.requests.limit or 0) <= 600
            await asyncio.sleep(0.01)
