"""Runs against endpoints that speak of the end of a reply, or of an error, in their own words."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

from preference import Usage
from reasonrag.exploration.summary import RunCounts
from reasonrag.serving.openai_api import ChatCompletionRequest
from tests.helpers.command_line import Reasonrag
from tests.helpers.endpoints import Answering, replies_of_the_teacher

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
        replies = enumerate(replies_of_the_teacher(wanted))
        said = [end(each, first + (0 if whole_request else choice)) for choice, each in replies]
        cut = any(CUT in (message.get("content") or "") for message, _ in said)
        used = ROOM * wanted.n if cut and whole_request else 12 * wanted.n
        choices = [{"message": message, "finish_reason": reason} for message, reason in said]
        return web.json_response({"choices": choices, "usage": {"prompt_tokens": 200, "completion_tokens": used}})

    return Answering(chat)


def cut_every_third(reason: str) -> Callable[[str, int], Said]:
    """In the middle of its tag."""

    def end(reply: str, number: int) -> Said:
        inside = re.search(r"<(query|evidence|answer)>([^<]+)", reply)
        if number % 3 or not inside:
            return {"content": reply}, "stop"
        return {"content": f"{reply[: inside.start(2)]}{inside[2][: len(inside[2]) // 2]} {CUT}"}, reason

    return end


def asked(base_url: str, run: str = "runs/a") -> tuple[object, ...]:
    model = ("--model", "o", "--base-url", base_url, "--max-reply-tokens", ROOM, "--yes")
    return ("generate", "--dataset", "atlas", "--limit", 6, "--run", run, *model)


def explored(reasonrag: Reasonrag, base_url: str, *more: object) -> dict[str, Any]:
    """The summary of a run of six questions."""
    done = reasonrag(*asked(base_url), "--json", *more)
    assert done.status == 0, done.err
    summary: dict[str, Any] = orjson.loads(done.out)
    return summary


ENDS: dict[str, tuple[str, bool]] = {
    "MAX_TOKENS": ("MAX_TOKENS", False),
    "stop at the limit": ("stop", True),
    "OTHER": ("OTHER", False),
}


@pytest.mark.parametrize("case", ENDS)
def test_no_pair_holds_a_cut_text(case: str, reasonrag: Reasonrag) -> None:
    """Whatever the endpoint calls it; the texts are in the journal, and counted under their cause."""
    reason, at_limit = ENDS[case]
    cause = "cut_off" if at_limit or reason != "OTHER" else "unknown_end"
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


def test_why_questions_fail_is_shown_in_the_words_of_the_endpoint(reasonrag: Reasonrag) -> None:
    """Once for each cause, as the first of them fails."""

    async def small(request: web.Request) -> web.Response:
        if orjson.loads(await request.read())["max_tokens"] > ROOM:  # the trial has no more
            said = "max_tokens: 999 is more than the 512 of this model"
            return web.json_response({"error": {"message": said}}, status=400)
        return web.json_response({"choices": [{"message": {"content": "Yes."}, "finish_reason": "stop"}]})

    with Answering(small).open() as endpoint:
        done = reasonrag(*asked(endpoint.base_url), "--max-reply-tokens", 999)
    assert (done.status, "failures.jsonl" in done.out) == (1, True)
    assert re.findall(r"question (\w+) failed: .*status 400: (max_tokens: .*)", done.err) == [
        ("atlas_train_0_0", "max_tokens: 999 is more than the 512 of this model")
    ]


@pytest.mark.parametrize(
    ("cut", "loops", "said"), [(10, 0, ""), (11, 0, "(cut off 11)"), (9, 3, "(cut off 9, loop 3)")]
)
def test_more_than_a_tenth_of_cut_replies_is_warned_of(cut: int, loops: int, said: str) -> None:
    """What is repaired counts once."""
    counts = RunCounts(usage=Usage(calls=120, repairs=20))
    counts.parse_failures.update({"cut_off": cut, "loop": loops})
    warned = counts.warnings(24, cut_from=None)
    assert [each.partition(" in another")[0] for each in warned if "--max-reply-tokens 24" in each] == (
        [f"{cut + loops} replies reached --max-reply-tokens 24 {said}: raise it,"] if said else []
    )
