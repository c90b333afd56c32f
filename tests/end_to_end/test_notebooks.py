"""Every notebook runs from its first cell to its last, in a kernel of its own, and prints what is kept in it."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
VARIES = "varies"
"""Tag of cells whose numbers depend on the machine: those of a trained model."""
NUMBER = re.compile(r"\s*-?\b[0-9a-f]{12}\b|\s*-?\d[\d.,]*")
MOST_BYTES = 300_000


def code_cells(path: Path) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(path.read_bytes())["cells"] if cell["cell_type"] == "code"]


def words(cell: dict[str, Any]) -> str:
    """What a cell printed, without pictures; without numbers where they are not the same on every machine."""
    text = ""
    for output in cell["outputs"]:
        data = output.get("data", {})
        text += "".join(output.get("text") or data.get("text/markdown") or data.get("text/plain") or [])
    return NUMBER.sub("#", text) if VARIES in cell["metadata"].get("tags", []) else text


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_runs_and_its_outputs_are_current(path: Path, request: pytest.FixtureRequest) -> None:
    """Inside the event loop of a kernel, as a user would run it; it leaves nothing where it lies."""
    environment = dict(os.environ)
    if any("reasonrag.train(" in "".join(cell["source"]) for cell in code_cells(path)):
        environment["REASONRAG_TRAIN_PYTHON"] = str(request.getfixturevalue("train_python"))
    command = [sys.executable, ROOT / "notebooks" / "execute.py", path, "--out", Path.cwd()]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert [each.name for each in Path.cwd().iterdir()] == [path.name]
    for kept, new in zip(code_cells(path), code_cells(Path(path.name)), strict=True):
        assert kept["source"] == new["source"]
        assert words(kept) == words(new), f"{path.name} is outdated: make notebooks"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_what_a_notebook_imports_is_there(path: Path) -> None:
    """It runs in the second tier; a name that has moved is found here."""
    code = "\n".join("".join(cell["source"]) for cell in code_cells(path))
    for each in ast.walk(ast.parse(re.sub(r"^[%!].*$", "", code, flags=re.MULTILINE))):
        if isinstance(each, ast.ImportFrom) and (each.module or "").startswith(("reasonrag", "preference", "mcts")):
            module = import_module(each.module or "")
            assert [name.name for name in each.names if not hasattr(module, name.name)] == [], each.module


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_is_kept_with_what_a_reader_needs(path: Path) -> None:
    """Every cell has its output, no warning and no trace of the machine; links lead to files; it loads fast."""
    for cell in code_cells(path):
        assert cell["outputs"], cell["source"]
        assert not any(output.get("name") == "stderr" for output in cell["outputs"]), cell["source"]
        assert "execution" not in cell["metadata"]
    content = path.read_text("utf-8")
    assert len(content) <= MOST_BYTES
    assert "/tmp/" not in content  # noqa: S108 - a name that must not occur
    assert str(ROOT) not in content
    prose = ["".join(cell["source"]) for cell in json.loads(content)["cells"] if cell["cell_type"] == "markdown"]
    for target in re.findall(r"\]\(([^)#]+)", "".join(prose)):
        assert (path.parent / target).exists(), target
