"""Runs of real questions, explored by the offline teacher once for all test files that look at one."""

from __future__ import annotations

from pathlib import Path

import reasonrag
from tests.helpers.shared import Shared

QUESTIONS = 60


def real_run(dataset: str, shared: Shared, shared_data: Path) -> Path:
    """Its folder, not to be changed."""
    split = "dev" if dataset in ("popqa", "bamboogle") else "train"

    def explore() -> None:
        reasonrag.generate(
            dataset=dataset, data_dir=shared_data, split=split, limit=QUESTIONS, model="offline", run="run"
        )

    return shared.folder(f"run-of-{dataset}", explore) / "run"
