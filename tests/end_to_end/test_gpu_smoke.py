"""benchmarks/gpu_smoke.py where there is no GPU: our own server takes the place of vLLM."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.helpers.training_world import environment

ROOT = Path(__file__).parents[2]


def smoke(place: Path, python: Path | None, *words: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    variables = environment(place, python) | ({"PATH": str(path)} if path else {})
    command = [sys.executable, str(ROOT / "benchmarks" / "gpu_smoke.py"), *words]
    return subprocess.run(command, check=False, capture_output=True, text=True, env=variables, cwd=place)


def test_a_served_model_and_a_critic_of_random_weights_are_asked_as_our_commands_ask(
    train_python: Path, tmp_path: Path
) -> None:
    """Replies are compared with those of a second run, unreadable ones are counted by cause, scores are those of
    transformers but for the last digits. The same seeds give replies again, though not all: which requests share a step
    is a matter of time, and so are last digits."""
    words = ("--device", "cpu", "--shape", "tiny", "--part", "generate", "--part", "critic", "--append", "report.md")
    done = smoke(tmp_path, train_python, *words)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines() if line.startswith("| ")]
    assert [row[:2] for row in rows[1:4]] == [[role, "2 of 2"] for role in ("teacher", "value model", "flare")]
    teacher = dict(zip(rows[0], rows[1], strict=True))
    same, replies = teacher["same in a second run"].split(" of ")
    assert replies == teacher["its replies"]
    assert 0 < int(same) <= int(replies)
    assert re.search(r"cut_off \d+", teacher["steps unreadable"])
    assert float(rows[-1][0]) < 0.02, "largest difference"
    assert done.stdout == (tmp_path / "report.md").read_text().removeprefix("\n")


def test_what_the_machine_lacks_is_said_before_anything_is_built(tmp_path: Path) -> None:
    """All of it at once, with what helps."""
    done = smoke(tmp_path, None, "--scratch", "here", path=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "nvidia-smi lists no GPU" in done.stderr
    assert "there is no vllm on PATH: pip install vllm" in done.stderr
    assert not list((tmp_path / "here").iterdir())
