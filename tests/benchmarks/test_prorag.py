"""ProRAG's four stages, as `make prorag-smoke` runs them: from decompositions to three rounds of 64 attempts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from reporting import ROOT

SMOKE = [sys.executable, str(ROOT / "benchmarks" / "prorag.py"), "--quick", "--work"]


@pytest.mark.usefixtures("train_python")
@pytest.mark.timeout(1200)
def test_the_stages_end_with_a_table_and_a_second_start_repeats_nothing(tmp_path: Path) -> None:
    first, second = (
        subprocess.run([*SMOKE, str(tmp_path)], check=False, capture_output=True, text=True) for _ in range(2)
    )
    assert first.returncode == 0, first.stderr[-3000:]
    for row in ("1 warm-up", "3 refinement", "all steps of right attempts", "4 reinforcement", "3"):
        assert f"\n| {row} |" in first.stdout
    assert first.stderr.count("\n$ reasonrag ") == 12
    assert second.stdout.partition("**")[2] == first.stdout.partition("**")[2]
    assert second.stderr == ""
