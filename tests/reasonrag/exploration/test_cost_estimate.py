"""What a run will take, before it is paid for: from a rehearsal that asks nobody, or from a pilot that is kept."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import reasonrag as package
from mcts import RECIPES
from preference import read_rollouts
from reasonrag.errors import ModelError
from reasonrag.exploration.cost_estimate import CostEstimate, estimate
from reasonrag.exploration.display import show_estimate
from reasonrag.llm.chat import ChatRequest, Completion
from reasonrag.llm.expected_usage import REHEARSED, VERBOSE_REPLY_TOKENS, Range
from reasonrag.llm.offline import OfflineTeacher
from reasonrag.llm.prices import find_price, price_list
from tests.helpers.command_line import Reasonrag
from tests.helpers.processes import simulated_endpoint

pytestmark = pytest.mark.slow


@pytest.fixture
def failing() -> Iterator[str]:
    """Base URL of an endpoint that fails on most requests, for ever, and on those of every question."""
    with simulated_endpoint("--fault", "same-500=0.7", "--fault-seed", "1") as base_url:
        yield base_url


SMALL: dict[str, Any] = {"dataset": "atlas", "simulations": 2, "run": "runs/a"}
TOTALS = ("calls", "requests", "prompt_tokens", "completion_tokens")


class Teacher(OfflineTeacher):
    """The offline teacher under another name, noting what it is asked."""

    def __init__(self, name: str = "gpt-4o") -> None:
        super().__init__(name=name)
        self.requests: list[ChatRequest] = []

    async def complete(self, request: ChatRequest) -> Sequence[Completion]:
        self.requests.append(request)
        return await super().complete(request)

    @property
    def keys(self) -> list[str]:
        return [each.key(position, model=self.name) for each in self.requests for position in range(len(each.samples))]


def ranges(found: CostEstimate) -> Iterator[tuple[str, Range]]:
    for name in (*TOTALS, "hours", "dollars"):
        each = getattr(found, name)
        if each is not None:
            yield name, each


def test_an_estimate_shows_the_cost_of_each_model(capsys: pytest.CaptureFixture[str]) -> None:
    show_estimate(estimate(model="gpt-4o", value_model="gpt-4o-mini", limit=2, **SMALL))
    told = capsys.readouterr().out
    for row in ("cost of gpt-4o", "cost of gpt-4o-mini"):
        assert row in told
    show_estimate(estimate(model="gpt-4o", limit=2, **SMALL))
    assert "cost of" not in capsys.readouterr().out


# -- without a pilot -----------------------------------------------------------------------------------------------


def test_without_a_pilot_nobody_is_asked_and_no_key_is_needed() -> None:
    """No key is set here and no network is there; nothing is left behind where the run would be."""
    found = estimate(model="gpt-4o", limit=30, **SMALL)
    assert (found.measured_by, found.measured_questions, found.questions) == ("rehearsal", REHEARSED, 30)
    assert (found.model, found.recipe, found.prices_as_of) == ("gpt-4o", "economy", price_list())
    assert found.spent_dollars is None
    assert found.dollars is not None
    assert found.dollars.low > 0
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("recipe", "flags"),
    [
        *((recipe, {"limit": 3}) for recipe in RECIPES),
        ("economy", {"rpm": 60, "tpm": 1_000}),
        *((recipe, {"simulations": 1, "siblings": 1}) for recipe in ("economy", "released", "ragym")),
    ],
)
def test_the_low_end_is_never_above_the_high_one(recipe: str, flags: dict[str, Any]) -> None:
    """Whatever the recipe and the limits; and everything is more than nothing."""
    found = estimate(model="gpt-4o", recipe=recipe, **(SMALL | {"limit": 10} | flags))
    for name, each in ranges(found):
        assert 0 < each.low <= each.high, name


def test_what_the_recipe_does_with_short_replies_lies_between_the_ends() -> None:
    """The offline teacher's own usage: each question of it, so that both ends hold what was rehearsed."""
    found = estimate(model="gpt-4o", limit=5, **SMALL)
    summary = package.generate(limit=5, **SMALL)
    trees = list(read_rollouts(Path(summary.run) / "rollouts.jsonl"))
    for name in TOTALS:
        each = getattr(found, name)
        assert each.low <= sum(getattr(tree.usage, name) for tree in trees) <= each.high, name
    assert found.completion_tokens.high >= VERBOSE_REPLY_TOKENS * found.calls.high


def test_a_talkative_teacher_s_thoughts_make_prompts_longer() -> None:
    """The high end has longer replies in every later prompt too, not only more calls."""
    found = estimate(model="gpt-4o", limit=5, **SMALL)
    assert found.prompt_tokens.high / found.requests.high > found.prompt_tokens.low / found.requests.low


def test_dollars_are_the_tokens_at_the_model_s_price() -> None:
    """Nothing is hoped for from caches."""
    found = estimate(model="gpt-4o", limit=5, **SMALL)
    price = find_price("gpt-4o")
    assert price is not None
    assert found.dollars is not None
    assert found.dollars.low == pytest.approx(price.cost(found.prompt_tokens.low, found.completion_tokens.low))
    assert found.dollars.high == pytest.approx(price.cost(found.prompt_tokens.high, found.completion_tokens.high))


def test_a_model_without_a_price_has_no_dollars() -> None:
    """Everything else is told all the same."""
    found = estimate(model="my-own/model", limit=5, **SMALL)
    assert found.dollars is None
    assert found.calls.low > 0


def test_prices_by_hand_stand_over_the_table() -> None:
    """And are said to."""
    found = estimate(model="my-own/model", limit=5, price_in=1.0, price_out=3.0, **SMALL)
    assert found.dollars is not None
    assert found.dollars.low == pytest.approx((found.prompt_tokens.low + 3 * found.completion_tokens.low) / 1e6)
    assert found.prices_as_of == "given by hand"


def test_no_more_questions_are_counted_than_there_are() -> None:
    """--limit is only an upper bound."""
    assert estimate(model="gpt-4o", **SMALL).questions == estimate(model="gpt-4o", limit=10**6, **SMALL).questions


@pytest.mark.parametrize(
    ("flags", "limited_by"),
    [
        ({}, "concurrency"),
        ({"rpm": 10**7, "tpm": 10**9}, "concurrency"),
        ({"rpm": 1}, "requests per minute"),
        ({"tpm": 100}, "tokens per minute"),
        ({"rpm": 1, "tpm": 10**9}, "requests per minute"),
        ({"rpm": 10**7, "tpm": 100}, "tokens per minute"),
    ],
)
def test_the_tightest_limit_decides_the_hours(flags: dict[str, Any], limited_by: str) -> None:
    """And is named."""
    found = estimate(model="gpt-4o", limit=5, concurrency=4, **SMALL, **flags)
    assert found.limited_by == limited_by
    tokens = found.prompt_tokens.high + found.completion_tokens.high
    high = {
        "concurrency": found.requests.high * 4.0 / 4 / 3600,
        "requests per minute": found.requests.high / 60,
        "tokens per minute": tokens / 100 / 60,
    }
    assert found.hours.high == pytest.approx(high[limited_by])


def test_caps_on_the_run_do_not_cut_the_rehearsal_short() -> None:
    """They limit what is spent; what the whole run would take is asked here."""
    free = estimate(model="gpt-4o", limit=5, **SMALL)
    assert estimate(model="gpt-4o", limit=5, max_calls=1, max_tokens=1, max_cost=0.01, **SMALL) == free


# -- with a pilot --------------------------------------------------------------------------------------------------


def test_a_pilot_is_a_part_of_the_run() -> None:
    """Nothing of it is asked again when the run goes on, and the run ends as if there had been none."""
    pilot, rest, whole = Teacher(), Teacher(), Teacher()
    found = estimate(pilot=2, chat_model=pilot, limit=6, **SMALL)
    assert (found.measured_by, found.measured_questions, found.questions) == ("pilot", 2, 6)
    package.generate(chat_model=rest, limit=6, **SMALL)
    package.generate(chat_model=whole, limit=6, **(SMALL | {"run": "runs/whole"}))
    assert pilot.requests
    assert not set(pilot.keys) & set(rest.keys)
    assert sorted(pilot.keys + rest.keys) == sorted(whole.keys)
    assert Path("runs/a/rollouts.jsonl").read_bytes() == Path("runs/whole/rollouts.jsonl").read_bytes()


def test_a_pilot_says_what_it_has_cost_and_what_the_rest_will() -> None:
    """The mean of what was measured lies in every range."""
    found = estimate(pilot=3, chat_model=Teacher(), limit=9, **SMALL)
    trees = list(read_rollouts(Path("runs/a/rollouts.jsonl")))
    price = find_price("gpt-4o")
    assert price is not None
    for name, each in ranges(found):
        assert 0 <= each.low <= each.high, name
    for name in TOTALS:
        each, measured = getattr(found, name), sum(getattr(tree.usage, name) for tree in trees)
        assert each.low <= 3 * measured <= each.high, name
    spent = [sum(getattr(tree.usage, name) for tree in trees) for name in ("prompt_tokens", "completion_tokens")]
    assert found.spent_dollars == pytest.approx(price.cost(*spent))


def test_a_pilot_of_one_question_is_taken_for_half_to_double() -> None:
    """One value says nothing about how much others differ."""
    found = estimate(pilot=1, chat_model=Teacher(), limit=10, **SMALL)
    [tree] = read_rollouts(Path("runs/a/rollouts.jsonl"))
    assert (found.calls.low, found.calls.high) == (5 * tree.usage.calls, 20 * tree.usage.calls)


def test_a_pilot_that_is_repeated_costs_nothing_more() -> None:
    """Its questions are done: the same estimate, and nobody is asked."""
    first = estimate(pilot=2, chat_model=Teacher(), limit=6, **SMALL)
    again = Teacher()
    assert estimate(pilot=2, chat_model=again, limit=6, **SMALL) == first
    assert not again.requests


def test_a_pilot_of_a_model_without_a_price_has_cost_nobody_knows_what() -> None:
    """Tokens are measured all the same."""
    found = estimate(pilot=2, chat_model=Teacher("my-own/model"), limit=6, **SMALL)
    assert (found.dollars, found.spent_dollars) == (None, None)
    assert found.prompt_tokens.low > 0


PILOT: list[object] = ["generate", "--limit", 6, "--max-calls-per-question", 24, "--concurrency", 1, "--run", "runs/a"]
PILOT += ["--dry-run", "--pilot", 3]


def test_a_pilot_that_a_cap_stops_leaves_with_status_3_and_the_command_that_continues(reasonrag: Reasonrag) -> None:
    """Without a tree there is no estimate; with some it says that it is of fewer. The command then goes on."""
    nothing = reasonrag(*PILOT, "--max-calls", 5)
    assert nothing.status == 3
    assert "stopped: the pilot explored no question" in nothing.err
    continuing = shlex.split(nothing.err.partition("continue with: ")[2])
    assert continuing[:-1] == ["reasonrag", *map(str, PILOT), "--max-calls"]
    assert int(continuing[-1]) > 5
    some = reasonrag(*PILOT, "--max-calls", 45)
    assert (some.status, bool(re.search("measured on [12] questions? of this run", some.out))) == (3, True)
    assert "the pilot stopped early" in some.out
    assert "continue with: reasonrag generate" in some.err
    told = reasonrag(*PILOT, "--max-calls", 45, "--json")
    assert (told.status, json.loads(told.out)["stopped"]["cause"]) == (3, "cap")
    whole = reasonrag(*PILOT, "--max-calls", 1000)
    assert (whole.status, "measured on 3 questions" in whole.out) == (0, True)


class FailsOnce(OfflineTeacher):
    """The offline teacher, which has no answer to its first question."""

    def __init__(self) -> None:
        super().__init__(name="gpt-4o")
        self._never = ""

    async def complete(self, request: ChatRequest) -> Sequence[Completion]:
        self._never = self._never or request.question_id
        if request.question_id == self._never:
            raise ModelError("no answer to this one", cause="http_500")
        return await super().complete(request)


def test_a_pilot_says_how_many_of_its_questions_failed() -> None:
    """The others are measured."""
    found = estimate(pilot=3, chat_model=FailsOnce(), limit=6, **SMALL)
    assert (found.failed, found.measured_questions, found.stopped) == (1, 2, None)


def test_a_pilot_whose_questions_all_fail_leaves_with_status_1(reasonrag: Reasonrag, failing: str) -> None:
    """As the run itself would; the failures are in its directory."""
    done = reasonrag(*PILOT, "--model", "gpt-4o", "--base-url", failing)
    assert (done.status, "the pilot explored no question" in done.err) == (1, True)
    assert Path("runs/a/failures.jsonl").stat().st_size > 0
