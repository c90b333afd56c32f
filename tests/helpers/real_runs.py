"""Runs of real questions and of the demo, explored by the offline teacher once for all test files that look at one."""

from __future__ import annotations

from pathlib import Path

import reasonrag
from tests.helpers.shared import Shared

QUESTIONS = 60
DEMO_QUESTIONS = 40


def real_run(dataset: str, shared: Shared, shared_data: Path) -> Path:
    """Its folder, not to be changed."""
    split = "dev" if dataset in ("popqa", "bamboogle") else "train"

    def explore() -> None:
        reasonrag.generate(
            dataset=dataset, data_dir=shared_data, split=split, limit=QUESTIONS, model="offline", run="run"
        )

    return shared.folder(f"run-of-{dataset}", explore) / "run"


def demo_run(shared: Shared) -> Path:
    """Folder of the questions that `make demo` explores: `run`, and its pairs in `data`."""

    def explore() -> None:
        reasonrag.generate(dataset="atlas", limit=DEMO_QUESTIONS, run="run")
        reasonrag.pairs("run", out="data")

    return shared.folder("demo-by-python", explore)
