"""GRPO by TRL, the example: rows of `pairs --format prompts`, the tool and the outcome of the agent `tools`."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from reasonrag.llm.hermes import TOOL
from tests.helpers.tiny_qwen import make_tiny_qwen

pytestmark = pytest.mark.skipif(find_spec("trl") is None, reason="TRL is not installed: pip install 'reasonrag[rl]'")
SCRIPT = Path(__file__).parents[2] / "docs" / "examples" / "grpo_with_trl.py"
ROW = {
    "prompt": [{"role": "user", "content": "Question: Where is number 1?"}],
    "tools": json.dumps([TOOL]),
    "reward_model": {"ground_truth": {"target": ["Oslo"]}},
    "extra_info": {"question": "Where is number 1?"},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("served")
    (folder / "corpus.jsonl").write_text(json.dumps({"id": "1", "contents": "Number 1\nNumber 1 is in Oslo."}) + "\n")
    words = [sys.executable, "-m", "reasonrag", "index", "serve", "--corpus", "corpus.jsonl", "--port", "0"]
    quiet = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(words, cwd=folder, env=quiet, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield next(found[0] for line in process.stdout if (found := re.search(r"http://127\.0\.0\.1:\d+", line)))
        process.stdout.close()
        process.terminate()


def test_an_attempt_searches_and_is_rewarded_as_the_agent_is(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.utils import get_json_schema

    monkeypatch.setattr(sys, "argv", ["grpo_with_trl.py", "", "", server])
    example = runpy.run_path(str(SCRIPT))
    attempt, outcome = example["Attempt"](), example["outcome"]
    said = [[{"role": "assistant", "content": "It says so.\n<answer>Oslo</answer>"}]]
    assert get_json_schema(attempt.search) == TOOL
    attempt.reset(**ROW)
    assert attempt.search("number 1") == "Document [1] (Title: Number 1) Number 1 is in Oslo."
    assert outcome(said, [attempt]) == [1]
    attempt.reset(**ROW)
    found = [attempt.search(f"number {n}") for n in range(1, 5)]
    assert "\nNo search is left: answer now" in found[2]
    assert found[3] == "No search is left."
    assert outcome(said, [attempt]) == [0], "a search more than there are ends an attempt"


def test_the_script_trains(server: str, tmp_path: Path) -> None:
    import trl
    from transformers import AutoTokenizer

    make_tiny_qwen(tmp_path / "student")
    words = AutoTokenizer.from_pretrained(tmp_path / "student")
    words.chat_template = Path(trl.__file__).parent.joinpath("chat_templates", "qwen2_5.jinja").read_text("utf-8")
    words.save_pretrained(tmp_path / "student")
    (tmp_path / "prompts.jsonl").write_text(json.dumps(ROW) + "\n")
    few = SCRIPT.read_text("utf-8").replace("max_completion_length=2048", "max_completion_length=64")  # of random words
    (tmp_path / "script.py").write_text(few, "utf-8")
    offline = {"CUDA_VISIBLE_DEVICES": "", "TRL_EXPERIMENTAL_SILENCE": "1", "HF_HUB_OFFLINE": "1"}
    script = [sys.executable, "script.py", "student", "prompts.jsonl", server, "out", "1"]
    done = subprocess.run(script, cwd=tmp_path, env=os.environ | offline, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert (tmp_path / "out" / "checkpoint-1" / "trainer_state.json").is_file()
