"""What may be spent: no cap is ever crossed, whatever the requests under way will use, and none stops too early."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preference import Message
from reasonrag.errors import CapReached, ModelError
from reasonrag.llm.budget import Caps, Ledger, Tokens
from reasonrag.llm.chat import ChatRequest, Completion, Sampling
from reasonrag.llm.prices import Price
from reasonrag.llm.settings import BudgetSettings
from tests.reasonrag.llm.endpoint.test_scheduler import settle

PRICE = Price(2.0, 8.0, cached_in=0.5)
TEMPLATE = 16
"""Tokens that a chat template may add to a prompt."""


def request(*, characters: int = 100, draws: int = 1, max_tokens: int = 50) -> ChatRequest:
    return ChatRequest(
        messages=(Message(role="user", content="x" * characters),),
        sampling=Sampling(temperature=1.0, top_p=1.0, max_tokens=max_tokens),
        samples=tuple(range(draws)),
        seeds=tuple(range(draws)),
    )


def answer(*, prompt: int = 0, completion: int = 0, cached: int = 0) -> Completion:
    return Completion(
        text="", finish_reason="stop", prompt_tokens=prompt, completion_tokens=completion, cached_tokens=cached
    )


def most_of(asked: ChatRequest) -> Tokens:
    """What a request may use at most: no text has more tokens than bytes."""
    size = sum(len(message.content.encode()) for message in asked.messages)
    draws = len(asked.samples)
    return Tokens(draws, 1, size + TEMPLATE, draws * asked.sampling.max_tokens)


def crossed(total: Tokens, caps: Caps) -> set[str]:
    """Which caps so many tokens cross."""
    tokens = total.prompt_tokens + total.completion_tokens
    used = {"max_calls": total.calls, "max_tokens": tokens, "max_cost": total.cost(PRICE)}
    allowed = {"max_calls": caps.calls, "max_tokens": caps.tokens, "max_cost": caps.cost}
    return {name for name, most in allowed.items() if most is not None and used[name] > most}


# -- what was used -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "dollars"),
    [
        (Tokens(), 0.0),
        (Tokens(prompt_tokens=1_000_000), 2.0),
        (Tokens(completion_tokens=1_000_000), 8.0),
        (Tokens(prompt_tokens=1_000_000, cached_tokens=1_000_000), 0.5),
        (Tokens(9, 3, 1_000_000, 500_000, cached_tokens=400_000), 1.2 + 0.2 + 4.0),
    ],
)
def test_cached_prompt_tokens_cost_the_cached_price(tokens: Tokens, dollars: float) -> None:
    """They are among the prompt tokens; calls and requests cost nothing by themselves."""
    assert tokens.cost(PRICE) == pytest.approx(dollars)
    assert Ledger(PRICE, spent=tokens).cost == pytest.approx(dollars)
    assert Ledger(spent=tokens).cost is None


# -- caps as laws --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ask:
    """A request, when it comes, how long it takes, and which shares of its bounds it uses; None: it fails."""

    request: ChatRequest
    comes: int
    takes: int
    uses: tuple[float, float, float] | None


ASKS = st.lists(
    st.builds(
        Ask,
        request=st.builds(
            request, characters=st.integers(0, 400), draws=st.integers(1, 4), max_tokens=st.integers(1, 100)
        ),
        comes=st.integers(0, 8),
        takes=st.integers(0, 8),
        uses=st.none() | st.tuples(*[st.floats(0, 1)] * 3),
    ),
    min_size=1,
    max_size=12,
)
CAPS = st.builds(
    Caps,
    cost=st.none() | st.floats(0, 0.006),
    calls=st.none() | st.integers(0, 20),
    tokens=st.none() | st.integers(0, 2_000),
)


@asynccontextmanager
async def reserving(ledger: Ledger, request: ChatRequest) -> AsyncIterator[Ledger]:
    reserved = await ledger.reserve(request)
    try:
        yield ledger
    finally:
        ledger.give_back(reserved)


async def make(ask: Ask, ledger: Ledger) -> CapReached | None:
    """The request as it goes by, watching the ledger at every turn; the cap that kept it from going."""
    for _ in range(ask.comes):
        await asyncio.sleep(0)
    try:
        async with reserving(ledger, ask.request) as reservation:
            for _ in range(ask.takes):
                assert not crossed(ledger.spent + ledger.promised, ledger.caps)
                await asyncio.sleep(0)
            reservation.settle(reply_to(ask))
    except CapReached as reached:
        possible = ledger.spent + most_of(ask.request)
        if reached.cap not in crossed(possible, ledger.caps):
            raise AssertionError("the request could not have crossed the cap") from reached
        return reached
    except ModelError:
        pass
    return None


def reply_to(ask: Ask) -> list[Completion]:
    """Answers that use so much of what the request may."""
    if ask.uses is None:
        raise ModelError("nothing came", cause="connection")
    bound = most_of(ask.request)
    prompt, completion = int(ask.uses[0] * bound.prompt_tokens), int(ask.uses[1] * bound.completion_tokens)
    first = answer(prompt=prompt, completion=completion, cached=int(ask.uses[2] * prompt))
    return [first, *[Completion(text="", finish_reason="stop", requests=0)] * (bound.calls - 1)]


async def make_all(asks: Sequence[Ask], ledger: Ledger) -> list[CapReached | None]:
    """All of them at the same time; nobody waits for ever."""
    return await asyncio.wait_for(asyncio.gather(*(make(each, ledger) for each in asks)), timeout=60)


@given(asks=ASKS, caps=CAPS, spent=st.builds(Tokens, calls=st.integers(0, 5), prompt_tokens=st.integers(0, 300)))
def test_no_cap_is_ever_crossed(asks: list[Ask], caps: Caps, spent: Tokens) -> None:
    """Whatever comes at the same time, and whatever it uses below its bounds or fails: what is spent and promised stays
    within the caps at every moment, and a cap is named only by a request that could cross it by itself."""
    ledger = Ledger(PRICE, caps, spent=spent)
    already = crossed(spent, caps)
    stopped = asyncio.run(make_all(asks, ledger))
    if already:
        assert all(stopped)
        assert ledger.spent == spent
    else:
        assert not crossed(ledger.spent, caps)
    assert ledger.promised == Tokens()


# -- near a cap ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("caps", "used", "goes"),
    [
        (Caps(tokens=200), answer(prompt=20, completion=10), True),  # each may use 116 + 50
        (Caps(tokens=200), answer(prompt=66, completion=50), False),
        (Caps(cost=0.000_800), answer(prompt=20, completion=10), True),  # each may cost 0.000632
        (Caps(cost=0.000_800), answer(prompt=66, completion=50), False),
        (Caps(calls=1), answer(), False),
    ],
)
async def test_near_a_cap_a_request_waits_for_those_that_were_promised_more_than_they_use(
    caps: Caps, used: Completion, *, goes: bool
) -> None:
    """It goes when they end cheaply, and is stopped when they do not: never before that is known."""
    ledger = Ledger(PRICE, caps)
    asked = request(characters=100, max_tokens=50)

    async def second() -> None:
        async with reserving(ledger, asked):
            assert ledger.promised == most_of(asked)

    async with reserving(ledger, asked) as first:
        waiting = asyncio.create_task(second())
        await settle()
        assert not waiting.done()
        assert ledger.promised == most_of(asked)
        first.settle([used])
        await settle()
        assert not waiting.done()  # not before the first has ended
    if goes:
        await asyncio.wait_for(waiting, timeout=60)
    else:
        with pytest.raises(CapReached):
            await asyncio.wait_for(waiting, timeout=60)
    assert ledger.promised == Tokens()


async def test_a_request_that_is_cancelled_while_it_waits_was_promised_nothing() -> None:
    """Its place near the cap is free for others."""
    ledger = Ledger(caps=Caps(calls=1))

    async def wait() -> None:
        async with reserving(ledger, request()):
            raise AssertionError

    async with reserving(ledger, request()):
        waiting = asyncio.create_task(wait())
        await settle()
        waiting.cancel()
        await asyncio.wait([waiting])
        assert ledger.promised.calls == 1
    assert ledger.promised == Tokens()


@pytest.mark.parametrize(
    ("caps", "cap", "flag", "used"),
    [
        (Caps(calls=1_200), "max_calls", "--max-calls", "1,200 of 1,200 calls are used"),
        (Caps(tokens=30_010), "max_tokens", "--max-tokens", "30,000 of 30,010 tokens are used"),
        (Caps(cost=0.12), "max_cost", "--max-cost", "$0.12 of $0.12 are spent"),
        (Caps(cost=0.0), "max_cost", "--max-cost", "$0.12 of $0.00 are spent"),
    ],
)
async def test_a_cap_that_is_reached_is_named_with_what_was_used_of_it(
    caps: Caps, cap: str, flag: str, used: str
) -> None:
    """The flag to raise, how much there was, and exit status 3."""
    ledger = Ledger(PRICE, caps, spent=Tokens(1_200, 600, 20_000, 10_000))
    with pytest.raises(CapReached) as info:
        async with reserving(ledger, request()):
            pass
    assert (info.value.cap, str(info.value)) == (cap, f"{flag}: {used}; the next request could cross it")
    assert (info.value.exit_status, info.value.cause) == (3, "cap")


@pytest.mark.parametrize(("characters", "draws", "max_tokens"), [(0, 1, 1), (100, 1, 50), (101, 1, 50), (1000, 4, 512)])
async def test_a_request_is_promised_its_most_expensive_outcome(characters: int, draws: int, max_tokens: int) -> None:
    """A token for each byte, as a character may be several tokens; a template's few; every draw at its longest."""
    ledger, asked = Ledger(caps=Caps(calls=10)), request(characters=characters, draws=draws, max_tokens=max_tokens)
    dense = replace(asked, messages=(Message(role="user", content="中" * characters),))
    for each, size in ((asked, characters), (dense, 3 * characters)):
        async with reserving(ledger, each):
            assert ledger.promised == Tokens(draws, 1, size + TEMPLATE, draws * max_tokens)


@pytest.mark.parametrize(
    ("given", "parts", "caps"),
    [
        (BudgetSettings(), 8, Caps()),
        (BudgetSettings(max_cost=40.0, max_calls=100, max_tokens=1_000), 8, Caps(5.0, 12, 125)),
        (BudgetSettings(max_calls=3), 4, Caps(calls=0)),
        (BudgetSettings(max_cost=1.0, max_calls=7, max_tokens=9), 1, Caps(1.0, 7, 9)),
    ],
)
def test_equal_parts_of_caps_are_together_no_more_than_the_caps(given: BudgetSettings, parts: int, caps: Caps) -> None:
    assert Caps.of(given, parts) == caps
