"""GRPO by TRL, the example: an attempt is the conversation as its template renders it; replies alone are learned."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import reasonrag
from reasonrag.data.corpus import Passage
from tests.helpers.tiny_qwen import make_tiny_qwen

pytestmark = pytest.mark.skipif(find_spec("trl") is None, reason="TRL is not installed: pip install 'reasonrag[rl]'")
SCRIPT = Path(__file__).parents[2] / "docs" / "examples" / "grpo_with_trl.py"
CALL = '<tool_call>\n{"name": "search", "arguments": {"query": "number 1"}}\n</tool_call>'
REPLIES = (f"I search.\n{CALL}", "It says so.\n<answer>Oslo</answer>")


class Found:
    identity = "one passage"

    async def retrieve(self, query: str, top_k: int) -> list[Passage]:
        return [Passage("1", query, f"It is in Oslo, one of {top_k}.")]


class Says:
    """A model that gives these replies, each with its end token, as surely as can be."""

    device = "cpu"

    def __init__(self, words: Any, replies: tuple[str, ...]) -> None:
        self.words, self.replies = words, iter(replies)

    def generate(self, ids: Any, **_: Any) -> Any:
        import torch

        new = torch.tensor([self.words(f"{next(self.replies)}<|im_end|>", add_special_tokens=False)["input_ids"]])
        certain = [torch.nn.functional.one_hot(token, len(self.words)).float()[None] * 1e4 for token in new[0]]
        return SimpleNamespace(sequences=torch.cat([ids, new], dim=1), logits=certain)


def test_an_attempt_is_the_whole_conversation_and_what_was_retrieved_is_masked(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    make_tiny_qwen(tmp_path / "student")
    words = AutoTokenizer.from_pretrained(tmp_path / "student")
    world = reasonrag.Environment(retriever=Found(), agent="tools", max_steps=4)
    attempt = runpy.run_path(str(SCRIPT))["attempt"]
    prompt, seen, chances, said, reward = attempt(world, "Where is number 1?", ["Oslo"], Says(words, REPLIES), words)
    assert reward == 1
    assert len(seen) == len(said) == len(chances)
    assert max(map(abs, chances)) < 1e-3
    turns = [{"role": "assistant", "content": each} for each in REPLIES]
    world.reset("Where is number 1?")
    shown = world.step(REPLIES[0]).observation
    assert words.decode(prompt + seen) == words.apply_chat_template([*shown, turns[1]], tokenize=False).rstrip("\n")
    own = words.decode([token for token, each in zip(seen, said, strict=True) if each])
    assert own == "".join(f"{each}<|im_end|>" for each in REPLIES)
    rest = words.decode([token for token, each in zip(seen, said, strict=True) if not each])
    assert re.search(r"<tool_response>\n.*It is in Oslo, one of 3\.", rest, re.DOTALL)


def test_the_script_trains_against_a_retrieval_server(tmp_path: Path) -> None:
    make_tiny_qwen(tmp_path / "student")
    rows = ({"id": str(n), "question": f"Where is number {n}?", "golden_answers": ["Oslo"]} for n in range(2))
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "corpus.jsonl").write_text(json.dumps({"id": "1", "contents": "Number 1\nNumber 1 is in Oslo."}) + "\n")
    words = ["index", "serve", "--corpus", "corpus.jsonl", "--port", "0"]
    quiet = os.environ | {
        "CUDA_VISIBLE_DEVICES": "",
        "TRL_EXPERIMENTAL_SILENCE": "1",
        "HF_HUB_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
    }
    with subprocess.Popen(
        [sys.executable, "-m", "reasonrag", *words], cwd=tmp_path, env=quiet, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        address = next(found[0] for line in server.stdout if (found := re.search(r"http://127\.0\.0\.1:\d+", line)))
        server.stdout.close()
        script = [sys.executable, str(SCRIPT), "student", "mine.jsonl", address, "out", "1"]
        done = subprocess.run(script, cwd=tmp_path, env=quiet, capture_output=True, text=True, check=False)
        server.terminate()
    assert done.returncode == 0, done.stderr[-2000:]
    assert (tmp_path / "out" / "checkpoint-1" / "trainer_state.json").is_file()
