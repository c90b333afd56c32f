"""The taskset for verifiers, the example: verifiers' own command plays questions of ours with a scripted policy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from preference.candidate_records import Origin, QuestionRecord
from preference.export.formats import Row
from reasonrag.agent.protocols.conversations import Conversations
from tests.helpers.endpoints import Served
from tests.helpers.processes import Command

MISSING = [name for name in ("verifiers", "uv") if find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")
EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


async def policy(request: web.Request) -> web.StreamResponse:
    """Searches for the question, then answers Oslo."""
    *_, last = (await request.json())["messages"]
    if last["role"] == "user":
        function = {"name": "search", "arguments": json.dumps({"query": last["content"].removeprefix("Question: ")})}
        said: dict[str, Any] = {"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": function}]}
    else:
        said = {"content": "It says so.\n<answer>Oslo</answer>"}
    shared = {"id": "r", "object": "chat.completion.chunk", "created": 1, "model": "student"}
    ends = "tool_calls" if "tool_calls" in said else "stop"
    events = [
        {"choices": [{"index": 0, "delta": {"role": "assistant"} | said, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": ends}]},
        {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}},
    ]
    lines = [f"data: {json.dumps(shared | each)}\n\n" for each in events] + ["data: [DONE]\n\n"]
    return web.Response(text="".join(lines), content_type="text/event-stream")


def row(number: int, golds: list[str]) -> Row:
    """As `pairs --format prompts` writes it."""
    about = {"question_id": str(number), "question": f"Where is number {number}?", "golden_answers": golds}
    question = QuestionRecord(**about, origin=Origin(dataset="mine", split="train"))
    [(_, made)] = Conversations(["prompts"]).of_question(question)
    return made


def test_verifiers_plays_our_questions_on_our_server(tmp_path: Path) -> None:
    """Its command asks the policy, searches by the tool and scores the answer; the prompt is the row's."""
    rows = [row(1, ["Oslo"]), row(2, ["Bergen"])]
    (tmp_path / "prompts.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "corpus.jsonl").write_text(json.dumps({"id": "1", "contents": "Number 1\nNumber 1 is in Oslo."}) + "\n")
    quiet = os.environ | {"OPENAI_API_KEY": "none", "PYTHONPATH": str(EXAMPLES)}
    app = web.Application()
    app.router.add_post("/v1/chat/completions", policy)
    with (
        Served(app, "/v1").open() as endpoint,
        Command("index", "serve", "--port", 0, "--corpus", "corpus.jsonl", cwd=tmp_path) as server,
    ):
        address = server.first_line().split()[2]
        words = [
            *(sys.executable, "-c", "from verifiers.v1.cli.eval.main import main; main()", "verifiers_taskset"),
            *("--env.taskset.questions", "prompts.jsonl", "--env.taskset.task.search.server", address),
            *("--env.agent.harness.id", "null", "--env.agent.runtime.type", "subprocess"),
            *("--env.agent.max-turns", "4", "--no-push", "--no-rich", "--output-dir", "out"),
            *("--model", "student", "--client.base-url", endpoint.base_url, "--client.api-key-var", "OPENAI_API_KEY"),
        ]
        done = subprocess.run(words, cwd=tmp_path, env=quiet, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    [file] = (tmp_path / "out").rglob("traces.jsonl")
    found = {}
    for line in file.read_text().splitlines():
        [trace] = json.loads(line)["traces"]
        turns = [node["message"] for node in trace["nodes"]]
        number = int(trace["task"]["data"]["id"])
        assert [turns[0]["content"], turns[1]["content"]] == [each["content"] for each in rows[number - 1]["prompt"]]
        assert turns[3]["content"] == "Document [1] (Title: Number 1) Number 1 is in Oslo."
        found[number] = (trace["rewards"]["em"]["score"], trace["metrics"])
    assert found == {1: (1, {"f1": 1, "searches": 1}), 2: (0, {"f1": 0, "searches": 1})}
