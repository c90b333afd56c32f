"""Runs against endpoints that speak of the end of a reply, or of an error, in their own words."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

from preference import Usage
from reasonrag.exploration.summary import RunCounts
from reasonrag.llm import offline
from reasonrag.serving.openai_api import ChatCompletionRequest
from tests.helpers.command_line import Reasonrag
from tests.helpers.endpoints import Answering
from tests.helpers.processes import Command, until

CUT = "zqcut"
"""The end of every text that was cut."""
ROOM = 256
Said = tuple[dict[str, Any], str | None]
"""A message and its finish reason."""


def teacher(end: Callable[[str, int], Said], *, whole_request: bool = False) -> Answering:
    """The offline teacher; `end` says how its reply with this number ends. whole_request: its usage is the limit where
    any reply was cut, and then all are."""
    number = 0

    async def chat(request: web.Request) -> web.Response:
        nonlocal number
        wanted = ChatCompletionRequest.read(await request.read())
        first, number = number, number + (1 if whole_request else wanted.n)
        said = [
            end(
                offline.reply(wanted.messages, temperature=wanted.temperature, seed=wanted.seed or 0, choice=choice),
                first + (0 if whole_request else choice),
            )
            for choice in range(wanted.n)
        ]
        cut = any(CUT in (message.get("content") or "") for message, _ in said)
        used = ROOM * wanted.n if cut and whole_request else 12 * wanted.n
        choices = [{"message": message, "finish_reason": reason} for message, reason in said]
        return web.json_response({"choices": choices, "usage": {"prompt_tokens": 200, "completion_tokens": used}})

    return Answering(chat)


def cut_every_third(reason: str | None) -> Callable[[str, int], Said]:
    """In the middle of its tag."""

    def end(reply: str, number: int) -> Said:
        inside = re.search(r"<(query|evidence|answer)>([^<]+)", reply)
        if number % 3 or not inside:
            return {"content": reply}, "stop"
        return {"content": f"{reply[: inside.start(2)]}{inside[2][: len(inside[2]) // 2]} {CUT}"}, reason

    return end


def explored(reasonrag: Reasonrag, base_url: str, *more: object) -> dict[str, Any]:
    """The summary of a run of six questions."""
    words = ("generate", "--dataset", "atlas", "--limit", 6, "--model", "o", "--base-url", base_url, "--run", "runs/a")
    done = reasonrag(*words, "--max-reply-tokens", ROOM, "--json", *more)
    assert done.status == 0, done.err
    summary: dict[str, Any] = orjson.loads(done.out)
    return summary


ENDS: dict[str, tuple[str | None, bool]] = {
    "MAX_TOKENS": ("MAX_TOKENS", False),
    "stop at the limit": ("stop", True),
    "nothing": (None, False),
    "OTHER": ("OTHER", False),
}


@pytest.mark.parametrize("case", ENDS)
def test_no_pair_holds_a_cut_text(case: str, reasonrag: Reasonrag) -> None:
    """Whatever the endpoint calls it; the texts are in the journal, and counted under their cause."""
    reason, at_limit = ENDS[case]
    cause = "cut_off" if at_limit or reason not in (None, "OTHER") else "unknown_end"
    with teacher(cut_every_third(reason), whole_request=at_limit).open() as endpoint:
        summary = explored(reasonrag, endpoint.base_url)
    count = summary["parse_failures_by_cause"][cause]
    assert count > 0
    warning = f"{count} replies reached --max-reply-tokens {ROOM} (cut off {count}): raise it, in another --run"
    said, again = (
        [each for each in warned if "--max-reply-tokens" in each]
        for warned in (summary["warnings"], orjson.loads(reasonrag("stats", "runs/a", "--json").out)["warnings"])
    )
    assert said == again
    assert said in ([], [warning] if cause == "cut_off" else [])  # about a tenth are cut, from which on it is said
    assert CUT.encode() in Path("runs/a/journal.jsonl").read_bytes()
    done = reasonrag("pairs", "runs/a", "--out", "data/a")
    assert done.status == 0, done.err
    pairs = [
        pair for each in sorted(Path("data/a").glob("RAG_ProGuide*.json")) for pair in orjson.loads(each.read_bytes())
    ]
    assert sum(map(len, pairs)) > 0
    assert CUT.encode() not in orjson.dumps(pairs)


def test_refusals_are_counted_and_not_repaired(reasonrag: Reasonrag) -> None:
    """Where some replies are null beside the words of a refusal."""

    def end(reply: str, number: int) -> Said:
        return ({"content": None, "refusal": "I cannot."}, "stop") if number % 4 == 3 else ({"content": reply}, "stop")

    with teacher(end).open() as endpoint:
        summary = explored(reasonrag, endpoint.base_url)
    assert set(summary["parse_failures_by_cause"]) == {"refused"}
    assert summary["repair_turns"] == 0


def test_a_429_in_a_200_is_waited_for(reasonrag: Reasonrag) -> None:
    """From the first request on: every question is done once the endpoint answers."""
    inner, asked = teacher(lambda reply, _: ({"content": reply}, "stop")), 0

    @web.middleware
    async def slow(request: web.Request, handler: Any) -> web.StreamResponse:
        nonlocal asked
        asked += 1
        if asked <= 24 and asked != 4:  # the trial's third retry passes
            return web.json_response({"error": "Rate limit exceeded"}, headers={"Retry-After": "0.1"})
        response: web.StreamResponse = await handler(request)
        return response

    inner._app.middlewares.append(slow)
    with inner.open() as endpoint:
        summary = explored(reasonrag, endpoint.base_url, "--concurrency", 8)
    assert (summary["done"], summary["failed"]) == (6, 0)
    assert asked > 24


ABOUT_THE_PROMPT: dict[str, tuple[int, Any, str]] = {
    "a filter": (400, {"error": {"code": "content_filter", "message": "filtered"}}, "withheld"),
    "a context": (400, {"error": {"code": "context_length_exceeded", "message": "too long"}}, "too_long"),
}


def refusing_some(case: str, asked: list[int]) -> Answering:
    """The offline teacher, of which some prompts with passages suffer this; `asked` gets the length of every prompt."""
    status, body, _ = ABOUT_THE_PROMPT[case]
    inner = teacher(lambda reply, _: ({"content": reply}, "stop"))

    @web.middleware
    async def picky(request: web.Request, handler: Any) -> web.StreamResponse:
        prompt = orjson.loads(await request.read())["messages"][-1]["content"]
        asked.append(len(prompt))
        if "<reference>" in prompt and len(prompt) % 5 == 0:
            return web.json_response(body, status=status)
        response: web.StreamResponse = await handler(request)
        return response

    inner._app.middlewares.append(picky)
    return inner


@pytest.mark.parametrize("case", ABOUT_THE_PROMPT)
def test_a_prompt_that_is_refused_ends_its_state_for_good(case: str, reasonrag: Reasonrag) -> None:
    """No question is lost, and the same command asks nothing again."""
    asked, cause = list[int](), ABOUT_THE_PROMPT[case][2]
    with refusing_some(case, asked).open() as endpoint:
        summary = explored(reasonrag, endpoint.base_url)
        first = len(asked)
        again = explored(reasonrag, endpoint.base_url)
    assert (summary["done"], summary["failed"]) == (6, 0)
    assert set(summary["parse_failures_by_cause"]) == {cause}
    assert summary["repair_turns"] == 0
    assert (again["done"], again["parse_failures_by_cause"], len(asked)) == (
        6,
        summary["parse_failures_by_cause"],
        first,
    )


def test_a_repair_turn_that_is_refused_costs_its_step_alone(reasonrag: Reasonrag) -> None:
    inner = teacher(lambda reply, number: ({"content": "Well." if number % 5 == 4 else reply}, "stop"))

    @web.middleware
    async def short(request: web.Request, handler: Any) -> web.StreamResponse:
        if len(orjson.loads(await request.read())["messages"]) > 2:
            said = {"error": {"message": "Your request exceeded model token limit: 8192"}}
            return web.json_response(said, status=400)
        response: web.StreamResponse = await handler(request)
        return response

    inner._app.middlewares.append(short)
    with inner.open() as endpoint:
        summary = explored(reasonrag, endpoint.base_url)
    assert (summary["done"], summary["failed"]) == (6, 0)
    assert summary["parse_failures_by_cause"]["no_tag"] > 0


def test_why_questions_fail_is_shown_in_the_words_of_the_endpoint(reasonrag: Reasonrag) -> None:
    """Once for each cause, as the first of them fails."""

    async def small(request: web.Request) -> web.Response:
        if orjson.loads(await request.read())["max_tokens"] > ROOM:  # the trial has no more
            said = "max_tokens: 999 is more than the 512 of this model"
            return web.json_response({"error": {"message": said}}, status=400)
        return web.json_response({"choices": [{"message": {"content": "Yes."}, "finish_reason": "stop"}]})

    with Answering(small).open() as endpoint:
        words = (
            "generate",
            "--dataset",
            "atlas",
            "--limit",
            6,
            "--model",
            "o",
            "--base-url",
            endpoint.base_url,
            "--yes",
        )
        done = reasonrag(*words, "--run", "runs/a", "--max-reply-tokens", 999)
    assert done.status == 1
    assert re.findall(r"question (\w+) failed: .*status 400: (max_tokens: .*)", done.err) == [
        ("atlas_train_0_0", "max_tokens: 999 is more than the 512 of this model")
    ]


def test_a_kill_in_a_run_whose_states_end_changes_nothing(reasonrag: Reasonrag) -> None:
    """What a state suffered is in the journal like any answer: little is asked twice."""
    asked = list[int]()
    with refusing_some("a filter", asked).open() as endpoint:
        explored(reasonrag, endpoint.base_url, "--concurrency", 4)
        whole, trees = len(asked), Path("runs/a/rollouts.jsonl").read_bytes()
        shutil.rmtree("runs/a")
        asked.clear()
        words = ("generate", "--dataset", "atlas", "--limit", 6, "--model", "o", "--base-url", endpoint.base_url)
        for kill in (5, 60, 110):
            with Command(*words, "--run", "runs/a", "--max-reply-tokens", ROOM, "--concurrency", 4, "--yes") as running:
                until(lambda kill=kill: len(asked) >= kill or running.poll() is not None)  # type: ignore[misc]
                running.kill()
                assert running.wait() != 0
        explored(reasonrag, endpoint.base_url, "--concurrency", 4)
    assert Path("runs/a/rollouts.jsonl").read_bytes() == trees
    assert whole <= len(asked) < 2 * whole  # again: the trials, and what was in flight


def test_a_wait_that_is_too_long_ends_the_run_until_the_same_command(reasonrag: Reasonrag) -> None:
    """With the server's words and status 3; a wait within --max-wait is no end."""
    inner, left, whole = teacher(lambda reply, _: ({"content": reply}, "stop")), [40], "runs/whole"

    @web.middleware
    async def rationed(request: web.Request, handler: Any) -> web.StreamResponse:
        left[0] -= 1
        if left[0] < 0:
            said = {"error": {"message": "The daily tokens of org-1 are used", "code": "rate_limit_exceeded"}}
            return web.json_response(said, status=429, headers={"Retry-After": "7200"})
        response: web.StreamResponse = await handler(request)
        return response

    inner._app.middlewares.append(rationed)
    with inner.open() as endpoint:
        words = (
            "generate",
            "--dataset",
            "atlas",
            "--limit",
            6,
            "--model",
            "o",
            "--base-url",
            endpoint.base_url,
            "--yes",
        )
        ended = reasonrag(*words, "--run", "runs/a", "--max-wait", 30)
        assert ended.status == 3
        assert re.search(
            r"asks to wait 2 hours.*--max-wait 30 allows.*The daily tokens of org-1 are used", ended.out + ended.err
        )
        again = reasonrag(*words, "--run", "runs/a", "--max-wait", 30)
        assert again.status == 3
        left[0] = 10**6
        assert reasonrag(*words, "--run", "runs/a", "--max-wait", 30).status == 0
        assert reasonrag(*words, "--run", whole).status == 0
    assert Path("runs/a/rollouts.jsonl").read_bytes() == Path(whole, "rollouts.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("cut", "loops", "said"), [(10, 0, ""), (11, 0, "(cut off 11)"), (9, 3, "(cut off 9, loop 3)")]
)
def test_more_than_a_tenth_of_cut_replies_is_warned_of(cut: int, loops: int, said: str) -> None:
    """What is repaired counts once."""
    counts = RunCounts(usage=Usage(calls=120, repairs=20))
    counts.parse_failures.update({"cut_off": cut, "loop": loops})
    warned = counts.warnings("train", max_tokens=24, cut_from=None)
    assert [each.partition(" in another")[0] for each in warned if "--max-reply-tokens 24" in each] == (
        [f"{cut + loops} replies reached --max-reply-tokens 24 {said}: raise it,"] if said else []
    )
