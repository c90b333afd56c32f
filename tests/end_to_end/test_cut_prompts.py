"""A server that cuts prompts in silence: it is named once, and pairs of states that it never saw whole are marked."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

from preference.candidate_records import StateRecord, read_lines
from reasonrag.llm.endpoint.prompt_window import recorded_cut
from reasonrag.serving.openai_api import ChatCompletionRequest, as_json, completion
from tests.helpers.command_line import Reasonrag
from tests.helpers.endpoints import Answering, replies_of_the_teacher

WINDOW = 350
BYTES_PER_TOKEN = 4
SAID = "seems to CUT PROMPTS of"


def serving(*, window: int = WINDOW) -> Answering:
    """An endpoint with this context window: it keeps the system turn and the end of the user turn."""

    async def chat(request: web.Request) -> web.Response:
        wanted = ChatCompletionRequest.read(await request.read())
        *before, last = wanted.messages
        room = window * BYTES_PER_TOKEN - sum(len(each.content) for each in before)
        seen = [*before, last.model_copy(update={"content": last.content[-max(room, 1) :]})]
        texts = ["yes" if last.content == "Say yes." else each for each in replies_of_the_teacher(wanted, seen)]
        tokens = sum(len(each.content.encode()) for each in wanted.messages) // BYTES_PER_TOKEN
        replies = [(each, "stop") for each in texts]
        return as_json(completion("m", replies, prompt_tokens=min(tokens, window), completion_tokens=99))

    return Answering(chat)


def generate(base_url: str, run: str, *flags: object) -> list[object]:
    model = ("--model", "m", "--base-url", base_url, "--price", "m=1,2")
    return ["generate", "--limit", 12, "--run", run, *model, *flags]


def config(run: str) -> Any:
    return orjson.loads(Path(run, "config.json").read_bytes())


def candidates(data: str) -> list[StateRecord]:
    return list(read_lines(Path(data, "candidates.jsonl"), StateRecord))


def size(state: StateRecord) -> int:
    return sum(len(turn.content.encode()) for turn in state.prompt)


def test_pairs_of_states_that_were_cut_are_marked_and_left_out(reasonrag: Reasonrag) -> None:
    """All of them and no others; one message, one warning at the end, and a flag that keeps them."""
    with serving().open() as server:
        done = reasonrag(*generate(server.base_url, "runs/r"))
    summary = orjson.loads(Path("runs/r/summary.json").read_bytes())
    [warned] = [each for each in summary["warnings"] if SAID in each]
    assert (done.status, done.err.replace(warned, "", 1).count(SAID)) == (0, 1)
    assert all(setting in warned for setting in ("llama.cpp -c", "OLLAMA_CONTEXT_LENGTH", "--max-model-len"))
    cut_from = recorded_cut(config("runs/r")["operational"]["refused_parameters"])
    assert cut_from is not None
    assert re.search(rf"refused by m +│ messages from {cut_from} bytes", done.out)
    assert abs(cut_from / (WINDOW * BYTES_PER_TOKEN) - 1) < 0.05

    paired = reasonrag("pairs", "runs/r", "--out", "d/r", "--json")
    found = orjson.loads(paired.out)
    states = candidates("d/r")
    marked = [pair for each in states if size(each) >= cut_from for pair in each.pairs]
    assert paired.status == 0
    assert 0 < len(marked) < found["candidates"]
    assert all(("prompt_cut" in pair.tags) == (size(each) >= cut_from) for each in states for pair in each.pairs)
    assert found["dropped"]["prompt_cut"] > 0
    assert "prompt_cut" not in found["pairs_by_tag"]
    [told] = [each for each in found["warnings"] if "prompt_cut" in each]
    assert told.startswith(f"{len(marked):,} candidates")
    counted = orjson.loads(reasonrag("stats", "runs/r", "--json").out)
    assert counted["dropped"]["prompt_cut"] == found["dropped"]["prompt_cut"]
    assert warned in counted["warnings"]
    kept = orjson.loads(reasonrag("pairs", "runs/r", "--out", "d/k", "--allow-cut-prompts", "--json").out)
    assert (kept["dropped"]["prompt_cut"], kept["pairs_by_tag"]["prompt_cut"] > 0) == (0, True)
    rows = orjson.loads(Path("d/k", next(iter(kept["files"]))).read_bytes())
    assert any("prompt_cut" in row["tags"] for row in rows)


def test_the_mark_survives_a_stop_and_a_merge(reasonrag: Reasonrag) -> None:
    """It is in the run from the moment it is said, and what the server of one rank cut is in the merged run."""
    with serving().open() as server, serving(window=10**6).open() as whole:
        flags = ("--concurrency", 1, "--max-calls", 150)
        assert reasonrag(*generate(server.base_url, "runs/r", *flags)).status == 3
        Path("runs/r/summary.json").unlink()
        known = recorded_cut(config("runs/r")["operational"]["refused_parameters"])
        assert known
        assert reasonrag(*generate(server.base_url, "runs/r")).status == 0
        for rank, base_url in (("0/2", server.base_url), ("1/2", whole.base_url)):
            assert reasonrag(*generate(base_url, "runs/mixed", "--shard", rank)).status == 0
        honest = reasonrag(*generate(whole.base_url, "runs/honest", "--seed", 1))
    assert reasonrag("merge", "runs/mixed").status == 0
    merged = config("runs/mixed")["operational"]["refused_parameters"]
    assert recorded_cut(merged)
    assert orjson.loads(Path("runs/mixed/summary.json").read_bytes())["refused_parameters"] == merged
    assert SAID not in honest.err
    for name in ("r", "honest"):
        assert reasonrag("pairs", f"runs/{name}", "--out", f"d/{name}").status == 0
    assert reasonrag("pairs", "d/r", "d/honest", "--out", "d/both").status == 0
    both = [(state.origin.cut_from, size(state), pair.tags) for state in candidates("d/both") for pair in state.pairs]
    assert {cut for cut, _, _ in both} == {None, known}
    assert all(("prompt_cut" in tags) == (cut is not None and long >= cut) for cut, long, tags in both)
