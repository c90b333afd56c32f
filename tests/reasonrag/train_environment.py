"""LLaMA-Factory's own code, asked in its own environment: its pins exclude ours."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TRAIN_PYTHON = Path(os.environ.get("REASONRAG_TRAIN_PYTHON", ROOT / ".venv-train" / "bin" / "python"))


def ask_llama_factory(script: str, question: object) -> Any:
    """What a script prints as JSON that finds `question` as JSON on stdin; skips the test where there is no such
    environment."""
    if not TRAIN_PYTHON.exists():
        pytest.skip(f"no LLaMA-Factory at {TRAIN_PYTHON} (set REASONRAG_TRAIN_PYTHON)")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(TRAIN_PYTHON), "-c", script],
        input=json.dumps(question),
        capture_output=True,
        text=True,
        check=False,
        env=environment | {"HF_HUB_OFFLINE": "1", "DISABLE_VERSION_CHECK": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.strip().splitlines()[-1])
