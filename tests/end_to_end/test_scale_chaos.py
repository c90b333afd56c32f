"""Whatever dies of a run on many machines, the merged run is that of one process, and nothing is paid for twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from chaos import disturb


@pytest.mark.usefixtures("ray_address")
def test_a_run_on_ray_outlives_its_worker_and_its_driver(tmp_path: Path) -> None:
    """SIGKILL, at moments drawn by lot. The index is behind a server; benchmarks/chaos.py kills more."""
    found = disturb(tmp_path, kills=2, questions=24, seed=1)
    assert found.same
    assert found.recorded_twice == 0
    assert set(found.killed) == {"worker", "driver"}
