"""Answers with impossible usage and headers: every one is in the journal, and no cap is crossed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from aiohttp import web

from reasonrag.serving.openai_api import ChatCompletionRequest, as_json, completion
from tests.helpers.endpoints import Answering, replies_of_the_teacher
from tests.helpers.processes import finished
from tests.helpers.trees import rows

CAP = 10
LONG_NUMBER = "9" * 5_000
HUGE = '{"prompt_tokens": 1e30, "completion_tokens": 1e30, "total_tokens": 1e30}'

USAGES = {
    "5,000 digits": HUGE.replace("1e30", LONG_NUMBER),
    "NaN": HUGE.replace("1e30", "NaN"),
    "details of 1e30": '{"prompt_tokens_details": {"cached_tokens": 1e30}, '
    '"completion_tokens_details": {"reasoning_tokens": 1e30}}',
}
HEADERS = {"retry-after": "Mon, 01 Jan 90000000000000000000 00:00:00 GMT", "x-ratelimit-limit-tokens": LONG_NUMBER}
CASES = {name: (usage, {}) for name, usage in USAGES.items()} | {"impossible headers": ("null", HEADERS)}


Answer = Callable[[ChatCompletionRequest], web.Response]


def answering(answer: Answer, *, tells_tokens: bool = True) -> Answering:
    """An endpoint that answers so, but the short question of a command's check well. tells_tokens: in that answer."""

    async def chat(request: web.Request) -> web.Response:
        wanted = ChatCompletionRequest.read(await request.read())
        if wanted.messages[-1].content == "Say yes.":
            yes = completion("offline", [("yes", "stop")], prompt_tokens=3, completion_tokens=1)
            return as_json(yes if tells_tokens else yes | {"usage": None})
        return answer(wanted)

    return Answering(chat)


def good(wanted: ChatCompletionRequest, usage: str, headers: dict[str, str]) -> web.Response:
    """Replies of the offline teacher, with this usage and these headers."""
    replies = [(each, "stop") for each in replies_of_the_teacher(wanted)]
    body = completion("offline", replies, prompt_tokens=1, completion_tokens=1)
    said = orjson.dumps(body | {"usage": "USAGE"}).replace(b'"USAGE"', usage.encode())
    return web.Response(body=said, content_type="application/json", headers=headers)


def command(base_url: str, *more: object) -> list[object]:
    words = ["generate", "--dataset", "atlas", "--limit", 4, "--set=search.simulations=1", "--max-steps", 3]
    return [*words, "--model", "offline", "--base-url", base_url, "--run", "runs/a", *more]


@pytest.mark.parametrize(("usage", "headers"), CASES.values(), ids=CASES)
def test_no_answer_is_lost_and_no_cap_crossed_whatever_an_endpoint_says_of_it(
    usage: str, headers: dict[str, str]
) -> None:
    """Three runs in a row under one cap request no more choices than it allows, and all are in the journal."""
    asked: list[int] = []

    def answer(wanted: ChatCompletionRequest) -> web.Response:
        asked.append(wanted.n)
        return good(wanted, usage, headers)

    with answering(answer).open() as endpoint:
        for _ in range(3):
            done = finished(*command(endpoint.base_url, "--max-calls", CAP))
            assert sum(asked) <= CAP
            assert done.returncode == 3, done.stderr
            assert "Traceback" not in done.stderr
        assert sum(len(line["keys"]) for line in rows(Path("runs/a/journal.jsonl"))) == sum(asked)
        assert finished(*command(endpoint.base_url)).returncode == 0
    assert not Path("runs/a/failures.jsonl").read_bytes()


@pytest.mark.parametrize("usage", ["null", '{"prompt_tokens": 1, "completion_tokens": 1}'])
def test_a_cap_in_dollars_holds_without_token_counts(usage: str) -> None:
    """At a dollar per thousand tokens: each byte counts as a token where the endpoint reports too few."""
    sizes: list[int] = []

    def answer(wanted: ChatCompletionRequest) -> web.Response:
        said = good(wanted, usage, {})
        replies = orjson.loads(said.body)["choices"]
        sizes.append(sum(len(each.content.encode()) for each in wanted.messages))
        sizes.append(sum(len(each["message"]["content"].encode()) for each in replies))
        return said

    with answering(answer).open() as endpoint:
        prices = ("--price", "offline=1000,1000", "--concurrency", 1)
        done = finished(*command(endpoint.base_url, *prices, "--max-cost", 20, "--json"))
    assert done.returncode == 3, done.stderr
    assert "bytes are counted instead" in done.stderr
    assert any("reported no token counts" in each for each in orjson.loads(done.stdout)["warnings"])
    assert orjson.loads(done.stdout)["cost_usd"] == pytest.approx(sum(sizes) / 1_000)
    assert sum(sizes) / 1_000 < 20


def test_a_cap_on_tokens_holds_where_replies_have_more_bytes_than_tokens_were_allowed() -> None:
    """Of requests in flight together, too: nothing tells how many tokens their bytes will be."""
    used: list[int] = []

    def answer(wanted: ChatCompletionRequest) -> web.Response:
        replies = [("So the answer is <answer>" + 75 * "many words of it, " + "</answer>", "stop")] * wanted.n
        used.append(sum(len(each.content.encode()) for each in wanted.messages))
        used.extend(len(text) for text, _ in replies)
        return as_json(completion("offline", replies, prompt_tokens=0, completion_tokens=0) | {"usage": None})

    with answering(answer, tells_tokens=False).open() as endpoint:
        limited = ("--max-tokens", 300_000, "--max-reply-tokens", 100, "--limit", 80, "--concurrency", 64)
        done = finished(*command(endpoint.base_url, *limited))
    assert done.returncode == 3, done.stderr
    assert 100_000 < sum(used) <= 300_000


@pytest.mark.parametrize(
    ("status", "cause", "size"), [(404, "http_404", 20 * 10**6), (200, "too_large", 8 * 10**6)], ids=["error", "answer"]
)
def test_bodies_of_megabytes_are_neither_kept_nor_shown(status: int, cause: str, size: int) -> None:
    """The question fails without a retry, with a short message."""
    asked = 0

    def answer(_: ChatCompletionRequest) -> web.Response:
        nonlocal asked
        asked += 1
        return web.Response(status=status, body=b'{"error": "' + b"no " * (size // 3) + b'"}')

    with answering(answer).open() as endpoint:
        done = finished(*command(endpoint.base_url, "--json"))
    assert done.returncode == 1
    assert asked == 4
    assert orjson.loads(done.stdout)["failures_by_cause"] == {cause: 4}
    written = sum(each.stat().st_size for each in Path("runs/a").iterdir())
    assert written + len(done.stdout) + len(done.stderr) < 100_000
