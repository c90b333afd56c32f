"""Every notebook is run from its first cell to its last, in a kernel of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


def code_cells(path: Path) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(path.read_bytes())["cells"] if cell["cell_type"] == "code"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_runs(path: Path, request: pytest.FixtureRequest) -> None:
    """Inside the event loop of a kernel, as a user would run it; every cell prints something."""
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    if any("reasonrag.train(" in "".join(cell["source"]) for cell in code_cells(path)):
        environment["REASONRAG_TRAIN_PYTHON"] = str(request.getfixturevalue("train_python"))
    command = [sys.executable, "-m", "jupyter", "execute", "--timeout=300", "--output", "executed.ipynb"]
    copy = Path(path.name)
    copy.write_bytes(path.read_bytes())
    done = subprocess.run([*command, str(copy)], check=False, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    for cell in code_cells(Path("executed.ipynb")):
        assert any(output.get("name") == "stdout" for output in cell["outputs"]), cell["source"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_is_kept_without_output(path: Path) -> None:
    """What was printed once on somebody's machine is no documentation."""
    for cell in code_cells(path):
        assert cell["outputs"] == []
        assert cell["execution_count"] is None
