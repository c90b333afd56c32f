"""The script of ReasonRAG's tables runs from an empty folder to finished tables, with a tiny model; see benchmarks/."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

from reasonrag.evaluation.methods.choice import BaselineName
from tests.helpers.shared import Shared
from tests.helpers.training_world import environment, make_tiny_qwen2

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "reasonrag_tables.sh"
QUICK = {"ARMS": "base process", "UNTRAINED": "--model offline", "SEARCHES": "1 4", "TOP_K": "3 5"}
"""One model is trained and served, in place of four; the others are the offline teacher. Each figure has the point of
the tables and one other."""
POINTS = {"process-steps-3-top-k-3": (1, 3), "process": (4, 3), "process-steps-9-top-k-5": (4, 5)}
"""By their rows: most searches of a question, and passages per search."""


def test_the_tables_and_figures_of_the_paper_are_made_by_one_script(train_python: Path, shared: Shared) -> None:
    """The same commands as on GPUs, with less of everything."""
    here = shared.copy("tiny-qwen2", lambda: make_tiny_qwen2(train_python))
    variables = environment(here, train_python) | QUICK
    variables["PATH"] = f"{Path(sys.executable).parent}:{variables['PATH']}"
    command = ["bash", str(SCRIPT), "table1", "table2", "table3", "figures"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=variables)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr}"
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines() if line.startswith("| ")]
    of = {first: last for first, *_, last in rows}
    files = Path("runs/tables/data/process").glob("RAG_ProGuide*.json")
    pairs = sum(len(json.loads(each.read_bytes())) for each in files)
    assert sum(int(number) for name, number in of.items() if name.startswith("pairs: ")) == pairs > 0
    measured = {name for name, score in of.items() if re.fullmatch(r"\d+\.\d/\d+\.\d", score)}
    assert measured == {*get_args(BaselineName), "base", *POINTS}
    of_figures = [first for first, *_ in rows if first in POINTS][-4:]
    assert of_figures == ["process-steps-3-top-k-3", "process", "process", "process-steps-9-top-k-5"]
    for row, (searches, top_k) in POINTS.items():
        report = json.loads(Path(f"runs/tables/evals/{row}-atlas/report.json").read_bytes())
        assert (report["settings"]["max_steps"], report["settings"]["top_k"]) == (2 * searches + 1, top_k)
        em, f1 = (100 * report["metrics"][name]["value"] for name in ("em", "f1"))
        assert of[row] == f"{em:.1f}/{f1:.1f}"
    compared = json.loads(Path("runs/tables/figures-atlas/compare.json").read_bytes())
    assert [each["name"] for each in compared["conditions"]] == [
        f"{each}-atlas" for each in ("process", "process-steps-3-top-k-3", "process-steps-9-top-k-5")
    ]
    assert Path("runs/tables/compare-atlas/compare.md").is_file()
