"""Answers of an endpoint that says impossible things about them: every one is in the journal, and no cap is crossed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

from reasonrag.llm import offline
from reasonrag.llm.servers.openai_api import ChatCompletionRequest, as_json, completion
from tests.helpers.endpoints import Answering
from tests.helpers.processes import finished

CAP = 10
LONG_NUMBER = "9" * 5_000
HUGE = '{"prompt_tokens": 1e30, "completion_tokens": 1e30, "total_tokens": 1e30}'

USAGES = {
    "huge": HUGE,
    "infinite": HUGE.replace("1e30", "1e400"),
    "5,000 digits": HUGE.replace("1e30", LONG_NUMBER),
    "NaN": HUGE.replace("1e30", "NaN"),
    "negative": HUGE.replace("1e30", "-7"),
    "texts": HUGE.replace("1e30", '"7"'),
    "truth": HUGE.replace("1e30", "true"),
    "lists": HUGE.replace("1e30", "[[]]"),
    "a list": "[]",
    "details that are none": '{"prompt_tokens_details": [1], "completion_tokens_details": "many"}',
    "details of 1e30": '{"prompt_tokens_details": {"cached_tokens": 1e30}, '
    '"completion_tokens_details": {"reasoning_tokens": 1e30}}',
    "no completion tokens": '{"prompt_tokens": 1}',
}
HEADERS = {
    "a limit of 5,000 digits": {"x-ratelimit-limit-requests": LONG_NUMBER, "x-ratelimit-limit-tokens": LONG_NUMBER},
    "no limit at all": {"x-ratelimit-limit-requests": "\u0661" * 400, "x-ratelimit-limit-tokens": "1e999"},
    "a year of 20 digits": {"retry-after": "Mon, 01 Jan 90000000000000000000 00:00:00 GMT"},
}
CASES: list[tuple[str, str, dict[str, str]]] = [
    *((f"usage: {name}", usage, {}) for name, usage in USAGES.items()),
    *((f"header: {name}", "null", headers) for name, headers in HEADERS.items()),
]


def hostile(usage: str, headers: dict[str, str], asked: list[int]) -> Callable[[web.Request], Any]:
    """Good replies of the offline teacher, with this usage and these headers; the short question of a command's check
    is answered well. asked: choices of each request but that."""

    async def answer(request: web.Request) -> web.Response:
        wanted = ChatCompletionRequest.read(await request.read())
        if wanted.messages[-1].content == "Say yes.":
            return as_json(completion("offline", [("yes", "stop")], prompt_tokens=3, completion_tokens=1))
        asked.append(wanted.n)
        texts = [
            offline.reply(wanted.messages, temperature=wanted.temperature, seed=wanted.seed or 0, choice=choice)
            for choice in range(wanted.n)
        ]
        body = completion("offline", [(each, "stop") for each in texts], prompt_tokens=1, completion_tokens=1)
        said = orjson.dumps(body | {"usage": "USAGE"}).replace(b'"USAGE"', usage.encode())
        return web.Response(body=said, content_type="application/json", headers=headers)

    return answer


@pytest.mark.parametrize(("usage", "headers"), [each[1:] for each in CASES], ids=[each[0] for each in CASES])
def test_no_answer_is_lost_and_no_cap_crossed_whatever_an_endpoint_says_of_it(
    usage: str, headers: dict[str, str]
) -> None:
    """Three runs in a row under one cap request no more choices than it allows, and all are in the journal."""
    asked: list[int] = []
    with Answering(hostile(usage, headers, asked)).open() as endpoint:
        words = ["generate", "--dataset", "atlas", "--limit", 4, "--simulations", 1, "--model", "offline"]
        words += ["--max-steps", 3, "--base-url", endpoint.base_url, "--run", "runs/a", "--max-calls", CAP]
        for _ in range(3):
            done = finished(*words)
            assert sum(asked) <= CAP
            assert done.returncode == 3, done.stderr
            assert "Traceback" not in done.stderr
        lines = [orjson.loads(line) for line in Path("runs/a/journal.jsonl").read_bytes().splitlines()]
        assert sum(len(line["keys"]) for line in lines) == sum(asked)
        assert finished(*words[:-1], 10_000).returncode == 0
    assert not Path("runs/a/failures.jsonl").read_bytes()
