"""What a run makes of an endpoint that behaves as some real ones do: cuts replies, hides errors, filters, reasons in
marks of its own, or drops most of a prompt.

The words are the offline teacher's over the built-in atlas; only the envelope differs. Endpoint and commands are real
processes that talk HTTP. `--checkout` asks an earlier version the same. Prints Markdown with date, commit and machine.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Optional

import typer
from aiohttp import web
from reporting import ROOT, commit, publish, table

from preference import Message
from reasonrag.llm.chat import estimate_tokens
from reasonrag.llm.offline import reply

QUESTIONS, REPLY_TOKENS, WINDOW_TOKENS, BUSY_S = 12, 24, 330, 20.0
"""A third of the prompts of atlas are longer than the window."""
FILTERED_WORD = "engraver"
HARMONY = (
    "<|channel|>analysis<|message|>We could try <query>wrong thing</query> first.<|end|>"
    "<|start|>assistant<|channel|>final<|message|>"
)


def whole(_: int, window: int) -> int:
    return window


def half(_: int, window: int) -> int:
    return window // 2


def blocks(tokens: int, window: int) -> int:
    """Half a window at a time is taken off."""
    return tokens - (2 * tokens // window - 1) * (window // 2)


def passages(tokens: int, window: int) -> int:
    """Whole ones are taken off."""
    return window - tokens % 90


@dataclass
class Endpoint:
    """An OpenAI-compatible endpoint with the offline teacher's replies. Each field is one habit of a real endpoint.

    reason_when_cut: finish reason of a reply that reaches max_tokens; None: replies are never cut.
    busy_s: seconds after the first request in which each answer is an error object in a status 200.
    filtered: prompts that hold this word get status 400 with code content_filter.
    window: most prompt tokens; of a longer prompt the system turn and the end of the user turn are kept, as many tokens
        as left says of its own and the window's: all that fit, or fewer.
    before: what stands in front of each reply. as_reasoning: the whole reply is in `reasoning_content`.
    """

    reason_when_cut: str | None = None
    busy_s: float = 0.0
    filtered: str | None = None
    window: int | None = None
    left: Callable[[int, int], int] = whole
    before: str = ""
    as_reasoning: bool = False
    requests: int = 0
    completions: int = 0
    cut: set[str] = field(default_factory=set)
    """Cut replies as they were sent."""
    _began: float | None = None

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.json()
        self._began, self.requests = self._began or time.monotonic(), self.requests + 1
        trial = self.requests == 1
        if not trial and time.monotonic() - self._began < self.busy_s:
            return web.json_response({"error": {"message": "Rate limit exceeded", "code": 429}, "user_id": "u"})
        messages = [Message(role=each["role"], content=each["content"]) for each in body["messages"]]
        if self.filtered and any(self.filtered in each.content for each in messages if each.role == "user"):
            error = {"message": "The response was filtered", "code": "content_filter", "param": "prompt"}
            return web.json_response({"error": error}, status=400)
        messages, prompt_tokens = self._seen(messages)
        choices, spent = [], 0
        for position in range(body.get("n", 1)):
            said = reply(messages, temperature=body["temperature"], seed=body["seed"], choice=position)
            whole = estimate_tokens(said)
            cut = self.reason_when_cut is not None and whole > body["max_tokens"]
            text = said[: 4 * body["max_tokens"]] if cut else said
            self.cut |= {text} if cut else set()
            spent += body["max_tokens"] if cut else whole
            message = {"content": self.before + text}
            if self.as_reasoning:
                message = {"content": None, "reasoning_content": text}
            choices.append({"message": message, "finish_reason": self.reason_when_cut if cut else "stop"})
        self.completions += len(choices)
        usage = {"prompt_tokens": prompt_tokens, "completion_tokens": spent}
        return web.json_response({"choices": choices, "usage": usage})

    def _seen(self, messages: list[Message]) -> tuple[list[Message], int]:
        """The messages that the model sees, and their tokens."""
        tokens = sum(estimate_tokens(each.content) for each in messages)
        if self.window is None or tokens <= self.window:
            return messages, tokens
        left = self.left(tokens, self.window)
        room = max(1, 4 * left - sum(len(each.content) for each in messages[:-1]))
        last = messages[-1].model_copy(update={"content": messages[-1].content[-room:]})
        return [*messages[:-1], last], left

    @contextmanager
    def open(self) -> Iterator[str]:
        """Serve from a thread; yields the base URL."""
        loop, ready, over = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
        address: list[str] = []

        async def serve() -> None:
            app = web.Application()
            app.router.add_post("/v1/chat/completions", self.answer)
            runner = web.AppRunner(app)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            address.append(f"http://127.0.0.1:{runner.addresses[0][1]}/v1")
            ready.set()
            await over.wait()
            await runner.cleanup()

        thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
        thread.start()
        ready.wait()
        try:
            yield address[0]
        finally:
            loop.call_soon_threadsafe(over.set)
            thread.join()


CASES: dict[str, tuple[Callable[[], Endpoint], tuple[str, ...]]] = {
    "well": (Endpoint, ()),
    f"cut at {REPLY_TOKENS} tokens, `length`": (lambda: Endpoint("length"), ("--max-reply-tokens", str(REPLY_TOKENS))),
    **{
        f"cut at {REPLY_TOKENS} tokens, `{reason}`": (
            partial(Endpoint, reason),
            ("--max-reply-tokens", str(REPLY_TOKENS)),
        )
        for reason in ("MAX_TOKENS", "model_length", "stop")
    },
    f"429 in status 200 for {BUSY_S:.0f} s": (lambda: Endpoint(busy_s=BUSY_S), ()),
    f"filter on '{FILTERED_WORD}'": (lambda: Endpoint(filtered=FILTERED_WORD), ()),
    "harmony channels": (lambda: Endpoint(before=HARMONY), ()),
    "all in reasoning_content": (lambda: Endpoint(as_reasoning=True), ()),
    f"window of {WINDOW_TOKENS} tokens": (lambda: Endpoint(window=WINDOW_TOKENS), ()),
    **{
        f"{left.__name__} of that window": (partial(Endpoint, window=WINDOW_TOKENS, left=left), ())
        for left in (half, blocks, passages)
    },
}


def main(
    checkout: Annotated[Path, typer.Option(help="The version to ask")] = ROOT,
    questions: Annotated[int, typer.Option(help="Questions a case")] = QUESTIONS,
    append: Annotated[Optional[Path], typer.Option(help="Also append the report to this file")] = None,  # noqa: UP045 - typer reads it
) -> None:
    """Run every case and print a report."""
    with tempfile.TemporaryDirectory() as scratch:
        publish(_report(checkout.resolve(), questions, Path(scratch)), append)


def _report(checkout: Path, questions: int, scratch: Path) -> Iterator[str]:
    columns: dict[str, list[str]] = {}
    said: list[str] = []
    for number, (name, (make, flags)) in enumerate(CASES.items()):
        endpoint = make()
        with endpoint.open() as base_url:
            asked = ["--limit", str(questions), "--base-url", base_url, *flags]
            row, lines = _case(checkout, endpoint, asked, scratch / str(number))
        for column, value in ({"endpoint": name} | row).items():
            columns.setdefault(column, []).append(value)
        said += [f"- {name}: {line}" for line in lines]
    yield from table(
        f"{questions} atlas questions at endpoints with one habit each, asked by {commit(checkout)}", columns
    )
    yield "\nWhat `generate` said of it:\n"
    yield from said


def _case(checkout: Path, endpoint: Endpoint, asked: Sequence[str], place: Path) -> tuple[dict[str, str], list[str]]:
    """One run and its pairs: figures, and warnings as printed."""
    run, pairs = place / "run", place / "pairs"
    generate = ["generate", "--dataset", "atlas", "--model", "gpt-4o", "--run", str(run), *asked]
    done = _reasonrag(checkout, place, generate)
    paid = endpoint.completions
    paired = _reasonrag(checkout, place, ["pairs", str(run), "--out", str(pairs)])
    trees = [json.loads(line) for line in _lines(run / "rollouts.jsonl")]
    nodes = [node for tree in trees for node in tree["nodes"]]
    f1 = [node["f1"] for node in nodes if node.get("action_type") == "answer"]
    kept = json.loads((pairs / "RAG_ProGuide.json").read_text()) if (pairs / "RAG_ProGuide.json").exists() else []
    cut = sum(any(_is_cut(pair[side], endpoint.cut) for side in ("chosen", "rejected")) for pair in kept)
    row = {
        "exit": f"{done.returncode} / {paired.returncode}",
        "trees": f"{sum(not tree.get('error') for tree in trees)}",
        "completions": f"{paid}",
        "failed steps": f"{sum(bool(node.get('parse_error')) for node in nodes)}",
        "mean F1 of answers": f"{sum(f1) / len(f1):.2f}" if f1 else "-",
        "kept pairs": f"{len(kept)}",
        "of them cut": f"{cut}",
    }
    lines = [line.strip() for line in (done.stderr + paired.stderr).splitlines() if line.strip()]
    return row, [line for line in lines if "warning" in line.lower() or "error" in line.lower()][:8]


def _is_cut(text: str, cut: set[str]) -> bool:
    """Whether a side is a cut reply that was given the closing tag it never had."""
    return text.rpartition("</")[0].rstrip() in {each.rstrip() for each in cut}


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def _reasonrag(checkout: Path, place: Path, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    place.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(checkout), "OPENAI_API_KEY": "none", "COLUMNS": "160"}
    command = [sys.executable, "-m", "reasonrag", *words]
    return subprocess.run(command, check=False, cwd=place, env=environment, capture_output=True, text=True)


if __name__ == "__main__":
    typer.run(main)
