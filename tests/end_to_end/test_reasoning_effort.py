"""How much a teacher is asked to reason: decided before the first question, kept for the whole run, and in every
estimate and cap."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

import reasonrag as package
from reasonrag.errors import InputError
from reasonrag.exploration.summary import RunSummary
from reasonrag.llm.chat import Sampling
from reasonrag.llm.endpoint.endpoint import EndpointModel, Limits
from reasonrag.llm.model_spec import ModelSpec
from reasonrag.serving.openai_api import completion
from tests.endpoints.behaviour import EndpointBehaviour
from tests.endpoints.test_profiles import atlas_index
from tests.helpers.command_line import Reasonrag
from tests.helpers.endpoints import Answering, Stage
from tests.helpers.shared import Shared

SAMPLING = Sampling(temperature=1, top_p=1, max_tokens=64)
SMALL_SEARCH = {"search.simulations": 2, "search.siblings": 2, "search.continuations": 1}
SMALL: dict[str, Any] = {"set": SMALL_SEARCH, "max_steps": 3, "abort_degenerate": 0}
SMALL |= {
    "dataset": "atlas",
    "max_calls": 10_000,
    "price": [f"{name}=1,4" for name in ("m", "gpt-5", "gpt-6-luna")],
    "yes": True,
}


@pytest.fixture(autouse=True)
def keyed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "any")


@pytest.fixture
def common(shared: Shared) -> dict[str, Any]:
    """Flags of a small run."""
    return SMALL | {"index_home": atlas_index(shared)}


@contextmanager
def at(profile: str | None) -> Iterator[str]:
    with Stage(EndpointBehaviour(profile=profile)).open() as stage:
        yield stage.base_url


def explored(profile: str | None, common: dict[str, Any], **flags: Any) -> RunSummary:
    with at(profile) as base_url:
        return package.generate(**common | {"base_url": base_url, "run": "runs/r", "model": "m", "limit": 2} | flags)


def sampling_of(run: str = "runs/r") -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(Path(run, "config.json").read_bytes())["decides_answers"]["sampling"]
    return found


LOW = {"reasoning_effort": "low"}
DECIDED: dict[str, tuple[str | None, dict[str, Any], str | None, bool]] = {
    "a model that reasons by default and takes none": ("gpt-6", {}, "none", False),
    "one that refuses none": ("gpt-6-astra", {}, None, True),
    "one that ignores the field and reasons": ("qwen3-think", {}, None, True),
    "one that refuses the field": ("gpt-4o", {}, None, False),
    "the user wants it to reason": ("gpt-6", {"reasoning_effort": "high"}, "high", True),
    "the user wants the model's own": ("gpt-6", {"reasoning_effort": "default"}, None, True),
    "the user's own field": ("gpt-6", {"extra_body": LOW}, None, True),
    "the user's own way to switch it off": (
        "vllm-reasoning",
        {"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}},
        None,
        False,
    ),
}


@pytest.mark.parametrize("case", DECIDED)
def test_the_trial_decides_where_the_user_does_not(case: str, common: dict[str, Any]) -> None:
    """Only a model that it changes anything for is asked not to reason; the configuration of others has no such key."""
    profile, flags, effort, reasons = DECIDED[case]
    done = explored(profile, common, **flags)
    shown = done.reasoning_tokens > 0 or b'"reasoning":' in Path("runs/r/rollouts.jsonl").read_bytes()
    assert (done.done, done.failed, shown) == (2, 0, reasons)
    assert sampling_of().get("reasoning_effort") == effort
    assert ("reasoning_effort" in sampling_of()) == (effort is not None)


def test_it_is_said_once_and_nothing_untrue_beside_it(
    reasonrag: Reasonrag, common: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the model refuses while it reasons is not told of one that is asked not to; a resumed run says nothing."""
    monkeypatch.setenv("REASONRAG_INDEX_HOME", str(common["index_home"]))
    flags = ("--set=search.simulations=2", "--run", "runs/r", "--yes")
    with at("gpt-6") as base_url:
        asked = ("generate", "--dataset", "atlas", *flags, "--model", "gpt-6-luna", "--base-url", base_url)
        first, again = (reasonrag(*asked, "--limit", limit) for limit in (1, 2))
    assert (first.status, first.err.count("reasoning_effort none (--reasoning-effort low has it reason)")) == (0, 1)
    assert first.err.count("does not accept") == 1  # max_tokens
    assert (again.status, again.err.count("reasoning_effort"), sampling_of()["reasoning_effort"]) == (0, 0, "none")
    assert "temperature" not in again.err
    assert "reasons" not in again.err


def test_a_run_keeps_its_effort_and_refuses_another_by_name(common: dict[str, Any]) -> None:
    """A replay has it, too; and a run that went by the model's own goes on so."""
    explored("gpt-6", common)
    assert explored("gpt-6", common, limit=3).done == 3
    with pytest.raises(InputError, match=r"sampling\.reasoning_effort was 'none', is 'low'"):
        explored("gpt-6", common, limit=3, reasoning_effort="low")
    package.generate(**common, model="m", limit=3, run="runs/again", replay="runs/r/journal.jsonl")
    assert Path("runs/again/rollouts.jsonl").read_bytes() == Path("runs/r/rollouts.jsonl").read_bytes()
    explored("gpt-6", common, run="runs/own", reasoning_effort="default")
    assert explored("gpt-6", common, run="runs/own", limit=3).reasoning_tokens > 0


def test_a_rank_keeps_the_effort_of_the_others(common: dict[str, Any]) -> None:
    """The first one was given an effort; the second one, which is not, would settle on another."""
    explored("gpt-6", common, shard="0/2", reasoning_effort="low")
    assert explored("gpt-6", common, shard="1/2").reasoning_tokens > 0
    assert sampling_of("runs/r/ranks/00001")["reasoning_effort"] == "low"


def test_every_command_that_asks_a_teacher_decides_alike(
    reasonrag: Reasonrag, shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what it began it goes on with: an evaluation, a judging, a tuning and a calibration ask nothing anew."""
    made = atlas_index(shared).parent / "runs" / "first"
    monkeypatch.setenv("REASONRAG_INDEX_HOME", str(atlas_index(shared)))
    with at("gpt-6") as base_url:
        model = ("--model", "m", "--base-url", base_url)
        asked = reasonrag("ask", "Who wrote The Iron Bell?", *model, "--json")
        assert (asked.status, orjson.loads(asked.out)["reasoning_tokens"]) == (0, 0)
        evaluated = ("evaluate", *model, "--limit", 2, "--run", "evals/e", "--json")
        reports = [orjson.loads(reasonrag(*evaluated).out) for _ in range(2)]
        assert [each["usage"].get("reasoning_tokens", 0) for each in reports] == [0, 0]
        assert sampling_of("evals/e")["reasoning_effort"] == "none"
        judged = ("pairs", made, "--label", "judge", *model, "--yes", "--json", "--out", "data/j")
        low = reasonrag(*judged, "--reasoning-effort", "low")
        again = reasonrag(*judged, "--replace")
        other = reasonrag(*judged, "--replace", "--judge-gold")
        judgings = [orjson.loads(each.out)["judging"] for each in (low, again, other)]
        assert [each["session_calls"] > 0 for each in judgings] == [True, False, True]
        small = ("--set=search.simulations=2", "--vary=search.siblings=3,6")
        tuned = ("tune", *model, "--pilot", 2, *small, "--run", "runs/t")
        assert [reasonrag(*tuned, "--yes").status for _ in range(2)] == [0, 0]
        trials = [sampling_of(str(each.parent)) for each in Path("runs/t").rglob("config.json")]
        assert {each["reasoning_effort"] for each in trials} == {"none"}
        made = ("generate", *model, "--limit", 2, "--set", "search.simulations=2", "--run", "runs/g", "--yes")
        assert reasonrag(*made).status == 0
        assert reasonrag("calibrate", "runs/g", "--revalue", 1, "--k", 2, "--yes", "--base-url", base_url).status == 0
    [journal] = [each for each in Path("runs/g").rglob("journal.jsonl") if each.parent != Path("runs/g")]
    assert b"reasoning_tokens" not in journal.read_bytes()


BAD: dict[str, tuple[str | None, tuple[str, ...], str]] = {
    "a value that the model does not have": (
        "gpt-6",
        ("--reasoning-effort", "minimal"),
        r"Supported values are: 'none', 'low', 'medium', 'high', and 'xhigh'.*--reasoning-effort minimal is refused",
    ),
    "a model that does not reason": (
        "gpt-4o",
        ("--reasoning-effort", "low"),
        r"'reasoning_effort' is not supported with this model.*--reasoning-effort low is refused: .* or leave it out",
    ),
    "a word that is none": (None, ("--reasoning-effort", "meduim"), r"--reasoning-effort: must be 'default', 'none'"),
    "two values": (
        "gpt-6",
        ("--reasoning-effort", "low", "--extra-body", '{"reasoning_effort": "high"}'),
        r"--reasoning-effort low: --extra-body has a reasoning_effort, too; leave one out",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_an_effort_that_cannot_be_is_refused_before_the_first_question(
    case: str, reasonrag: Reasonrag, shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the model's own words, which say what it takes."""
    profile, flags, words = BAD[case]
    with at(profile) as base_url:
        model = ("--model", "m", "--base-url", base_url)
        monkeypatch.setenv("REASONRAG_INDEX_HOME", str(atlas_index(shared)))
        done = reasonrag("generate", *model, *flags, "--limit", 1, "--run", "runs/r", "--yes")
    assert done.status == 2
    assert re.search(words, " ".join(done.err.split()))
    assert not Path("runs/r/journal.jsonl").exists() or not Path("runs/r/journal.jsonl").stat().st_size


def replying(status: Callable[[dict[str, Any]], int], *, tokens: Callable[[dict[str, Any]], int]) -> Any:
    """An endpoint that answers by a request's body: with a status, and with so many tokens of reasoning."""

    async def handle(request: web.Request) -> web.Response:
        body = await request.json()
        if (refused := status(body)) != 200:
            error = {"message": f"no {refused}", "param": "temperature", "type": "invalid_request_error"}
            return web.json_response({"error": error}, status=refused)
        said = completion("m", [("yes", "stop")], prompt_tokens=9, completion_tokens=9 + tokens(body))
        said["usage"]["completion_tokens_details"] = {"reasoning_tokens": tokens(body)}
        return web.json_response(said)

    return handle


def asks_not_to(body: dict[str, Any]) -> bool:
    return body.get("reasoning_effort") == "none"


def trouble_at_first() -> Callable[[dict[str, Any]], int]:
    """A server that is overloaded when it is first asked not to reason."""
    left = [503]
    return lambda body: left.pop() if asks_not_to(body) and left else 200


def by_temperature(body: dict[str, Any]) -> int:
    return 200 if asks_not_to(body) or "temperature" not in body else 400


TRIALS: dict[str, tuple[list[Any], str]] = {
    "it thinks nothing of an easy trial, and refuses a temperature": (
        [replying(by_temperature, tokens=lambda _: 0)],
        "none",
    ),
    "it is overloaded once": (
        [replying(trouble_at_first(), tokens=lambda body: 0 if asks_not_to(body) else 5)],
        "none",
    ),
    "one of two servers ignores it": (
        [
            replying(lambda _: 200, tokens=lambda body: 0 if asks_not_to(body) else 5),
            replying(lambda _: 200, tokens=lambda _: 5),
        ],
        "",
    ),
}


@pytest.mark.parametrize("case", TRIALS)
async def test_a_model_shows_in_its_trials_whether_it_takes_none(case: str) -> None:
    """What was refused while it reasoned is asked for again, and trouble decides nothing."""
    handlers, effort = TRIALS[case]
    async with AsyncExitStack() as opened:
        with ExitStack() as stages:
            places = tuple(stages.enter_context(Answering(each).open()).base_url for each in handlers)
            spec = ModelSpec("m", SAMPLING, Limits(4, 5.0, first_wait=0.01), addresses=places).asked(None)
            model = spec.open(opened, say=lambda _: None)
            settled = await spec.settled(model)
    assert settled.sampling.reasoning_effort == (effort or None)
    assert isinstance(model, EndpointModel)
    assert model.refused == []


EXPECTED: dict[str, tuple[str, str | None, dict[str, Any] | None, bool]] = {
    "gpt-6 as it is": ("gpt-6-luna", "default", None, True),
    "gpt-6-astra takes no none": ("gpt-6-astra", None, None, True),
    "any model that is told to": ("openai/m", "medium", None, True),
    "any model that is told not to": ("gpt-5", "none", None, False),
    "switched off by a field": ("gpt-6", None, {"reasoning": {"enabled": False}}, False),
    "a field beside another switch": ("m", None, {"reasoning_effort": "high", "store": False}, True),
}


@pytest.mark.parametrize("case", EXPECTED)
def test_an_estimate_expects_reasoning_by_what_is_sent_and_by_the_name(case: str) -> None:
    """The run's own trial knows better, and its consent goes by that."""
    name, effort, extra_body, reasons = EXPECTED[case]
    sampling = SAMPLING.model_copy(update={"extra_body": extra_body})
    assert ModelSpec(name, sampling, Limits(4, 5.0)).asked(effort).reasons == reasons


@pytest.mark.parametrize(("profile", "model", "effort"), [("gpt-6", "gpt-6-luna", "xhigh"), ("gpt-5", "gpt-5", None)])
def test_a_run_costs_between_the_ends_of_its_dry_run(
    profile: str, model: str, effort: str | None, common: dict[str, Any]
) -> None:
    """With its reasoning, which the estimate of a run that was begun knows from the run."""
    flags = {"model": model, "limit": 4, "reasoning_effort": effort}
    expected = package.estimate(**common | flags | {"run": "runs/r", "base_url": "http://127.0.0.1:9/v1"})
    done = explored(profile, common, **flags)
    assert expected.dollars
    assert done.cost_usd
    assert expected.dollars.low <= done.cost_usd <= expected.dollars.high
    assert expected.reasoning == (done.reasoning_tokens > 0)
    begun = package.estimate(**common | flags | {"run": "runs/r", "reasoning_effort": None})
    assert begun.reasoning == expected.reasoning
