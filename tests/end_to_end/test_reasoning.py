"""A teacher that reasons before it answers: nothing of its reasoning is taken for a step, none reaches a prompt or a
pair, all of it is kept, counted and priced, and where it leaves no room for an answer the run says so."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from aiohttp import web

from preference import read_rollouts
from reasonrag.serving.openai_api import ChatCompletionRequest, completion
from tests.endpoints.profiles import THOUGHT
from tests.helpers.command_line import Reasonrag
from tests.helpers.endpoints import Answering, replies_of_the_teacher
from tests.helpers.processes import simulated_endpoint

PRICES = ("--price", "o=1,2")


@pytest.fixture(scope="module")
def thinking() -> Iterator[str]:
    """Base URL of a model that reasons in its text, with tags that must not count, and stops at them."""
    with simulated_endpoint("--profile", "qwen3-think") as base_url:
        yield base_url


def asked(base_url: str, run: str, *flags: object, limit: int = 6) -> tuple[object, ...]:
    return ("generate", "--model", "o", "--limit", limit, "--run", run, "--base-url", base_url, *PRICES, *flags)


def test_reasoning_is_kept_beside_every_step_and_is_in_no_prompt_and_no_pair(
    reasonrag: Reasonrag, thinking: str
) -> None:
    """Though it holds tags of every turn."""
    done = reasonrag(*asked(thinking, "runs/r"))
    assert done.status == 0
    assert done.err.count("is sent no stop strings, which could cut its reasoning") == 1
    assert (
        "o reasons before it answers, and --max-reply-tokens 512 limits reasoning and reply together: raise it"
        in done.err
    )
    steps = [node for each in read_rollouts(Path("runs/r/rollouts.jsonl")) for node in each.nodes[1:]]
    assert all(step.reasoning.startswith(THOUGHT.strip()) for step in steps)
    assert not any(step.parse_error for step in steps)
    read = [turn.content for step in steps for turn in step.prompt or ()] + [step.response or "" for step in steps]
    assert not any("think>" in each or THOUGHT.strip() in each for each in read)
    assert reasonrag("pairs", "runs/r", "--out", "data/r").status == 0
    assert not [path for path in Path("data/r").glob("**/*") if path.is_file() and THOUGHT.strip() in path.read_text()]


def test_reasoning_tokens_are_counted_and_priced(reasonrag: Reasonrag) -> None:
    """Wherever the endpoint tells of them; the table says how many completion tokens they are."""
    own = ("--reasoning-effort", "default")  # its own would be none
    with simulated_endpoint("--profile", "gemini") as base_url:
        done = reasonrag(*asked(base_url, "runs/r", *own, limit=3))
        judged = ("--judge", "o", "--run", "runs/e", "--limit", 3)
        evaluated = reasonrag("evaluate", "--model", "o", "--base-url", base_url, *judged, *own)
    summary = orjson.loads(Path("runs/r/summary.json").read_bytes())
    assert (done.status, summary["parse_failures_by_cause"]) == (0, {})
    assert 0 < summary["reasoning_tokens"] < summary["completion_tokens"]
    assert f"(of which {summary['reasoning_tokens']:,} reasoning)" in " ".join(done.out.split())
    cost = (summary["prompt_tokens"] + 2 * summary["completion_tokens"]) / 1e6
    assert summary["cost_usd"] == pytest.approx(cost)
    usage = orjson.loads(Path("runs/e/report.json").read_bytes())["usage"]
    assert evaluated.status == 0
    assert f"(of which {usage['reasoning_tokens']:,} reasoning)" in Path("runs/e/report.md").read_text("utf-8")


def test_a_limit_that_reasoning_uses_up_is_said_and_ends_the_run(reasonrag: Reasonrag) -> None:
    """No repair turn is wasted on it; the warning names the flag, its value, and what else helps. The flag helps."""
    with simulated_endpoint("--profile", "qwen3-think") as base_url:
        flags = ("--max-reply-tokens", 24, "--concurrency", 4)
        done = reasonrag(*asked(base_url, "runs/r", *flags, limit=40))
        more = reasonrag(*asked(base_url, "runs/more", "--max-reply-tokens", 2048, limit=2))
        quick = reasonrag("evaluate", "--model", "o", "--base-url", base_url, "--limit", 2, *flags, "--run", "runs/e")
    summary = orjson.loads(Path("runs/r/summary.json").read_bytes())
    assert (done.status, summary["stopped"]["cause"], summary["repair_turns"]) == (1, "degenerate", 0)
    assert "only reasoning in 20 of 20 questions" in summary["stopped"]["message"]
    cut = summary["parse_failures_by_cause"]["reasoning_cut"]
    assert f"warning: {cut:,} replies were nothing but reasoning, cut at --max-reply-tokens 24: raise it" in done.err
    assert "identical_siblings" not in done.err
    assert (more.status, "reasoning_cut" in more.out, "limits reasoning" in more.err) == (0, False, False)
    assert re.search(r"warning: \d replies were nothing but reasoning, cut at --max-reply-tokens 24", quick.err)


def test_a_judge_that_reasons_too_long_says_so(reasonrag: Reasonrag) -> None:
    """Of steps in a search, of answers in an evaluation, and of labels."""
    with simulated_endpoint("--profile", "gpt-5") as base_url:
        model, small = ("--model", "o", "--base-url", base_url), ("--max-reply-tokens", 24)
        assert reasonrag("generate", "--model", "offline", "--limit", 4, "--run", "runs/r").status == 0
        labelled = reasonrag("pairs", "runs/r", "--out", "data/r", "--label", "judge", *model, *small)
        judge = ("--judge", "o", "--judge-base-url", base_url, "--limit", 2, "--run", "runs/e")
        judged = reasonrag("evaluate", "--model", "offline", *judge, *small)
    for done in (labelled, judged):
        assert re.search(r"\d+ replies were nothing but reasoning, cut at --max-reply-tokens 24", done.err)
    report = orjson.loads(Path("runs/e/report.json").read_bytes())
    assert report["unjudged_by_cause"] == {"reasoning_cut": 2}
    assert "reasoning cut 2" in judged.out


WRONG = "We could try <query>wrong thing</query>, or <answer>nothing</answer>."


def marked(before: str, after: str, *, apart: bool = False) -> Answering:
    """An endpoint whose model says so around its reasoning; a stop string cuts wherever it comes first. apart: its
    parser takes all of it for reasoning."""

    async def chat(request: web.Request) -> web.Response:
        wanted = ChatCompletionRequest.read(await request.read())
        body, choices = orjson.loads(await request.read()), []
        trial = wanted.messages[-1].content == "Say yes."
        for said in replies_of_the_teacher(wanted):
            whole = before + ("They want a yes." if trial else WRONG) + after + ("yes" if trial else said)
            ends = [place for each in body.get("stop", ()) if (place := whole.find(each)) >= 0]
            choices.append((whole[: min(ends, default=len(whole))], "stop"))
        answer = completion("m", choices, prompt_tokens=len(await request.read()) // 4, completion_tokens=99)
        for choice in answer["choices"] if apart else ():
            choice["message"] = {"content": None, "reasoning_content": choice["message"]["content"]}
        return web.json_response(answer)

    return Answering(chat)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
        ("", "\n</reasoning>\n"),
    ],
)
def test_no_step_is_what_the_reasoning_mentions(before: str, after: str, reasonrag: Reasonrag) -> None:
    """Whatever marks a model uses, also where a stop string could cut within them."""
    with marked(before, after).open() as server:
        done = reasonrag(*asked(server.base_url, "runs/r", limit=3))
    steps = [node for each in read_rollouts(Path("runs/r/rollouts.jsonl")) for node in each.nodes[1:]]
    assert (done.status, len({step.parse_error for step in steps})) == (0, 1)
    assert not any("wrong thing" in (step.content or "") or step.content == "nothing" for step in steps)
    assert all(step.reasoning == WRONG for step in steps)


def test_replies_given_as_reasoning_that_name_several_steps_are_named_for_what_they_are(reasonrag: Reasonrag) -> None:
    """Not as siblings that are alike, which no temperature would change."""
    with marked("", " Or not?", apart=True).open() as server:
        done = reasonrag(*asked(server.base_url, "runs/r", "--concurrency", 4, limit=40))
    summary = orjson.loads(Path("runs/r/summary.json").read_bytes())
    assert (done.status, summary["stopped"]["cause"]) == (1, "degenerate")
    assert "only reasoning in 20 of 20 questions" in summary["stopped"]["message"]
    assert "--reasoning-parser" in summary["stopped"]["message"]
    assert "raise --temperature" not in done.err + done.out
