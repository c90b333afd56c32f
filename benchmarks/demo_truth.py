"""How many of the demo's own pairs are right, wrong or ties, by action types: its teacher costs nothing, so every step
is continued so often that its value is known.

A pair is a tie where the difference of both sides is below twice its standard error. Prints Markdown; `--checkout` runs
an earlier version in processes of its own. Knows no teacher's inside.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from reporting import ROOT, commit, publish, table

ERRORS = 2.0
"""Standard errors from which two values differ."""


def main(
    checkout: Annotated[list[Path], typer.Option(help="Checkouts to measure, one after the other")] = [ROOT],  # noqa: B006 - typer's
    limit: Annotated[int, typer.Option(help="Questions; the demo has 40")] = 40,
    k: Annotated[int, typer.Option(help="Fresh continuations of every step")] = 48,
) -> None:
    """Make the demo's pairs and count those that are right, wrong or ties."""
    publish(_report(checkout, limit, k), None)


def _report(checkouts: list[Path], limit: int, k: int) -> Iterator[str]:
    found = {commit(each): _counted(_pairs_of(each.resolve(), limit, k), k) for each in checkouts}
    types = sorted({name for counts in found.values() for name, _ in counts})
    rows: dict[str, list[str]] = {"version": [], "kept pairs": [], "right": [], "wrong": [], "ties": []}
    rows |= {name: [] for name in types}
    for name, counts in found.items():
        every = {verdict: sum(n for (_, each), n in counts.items() if each == verdict) for verdict in (1, -1, 0)}
        whole = max(1, sum(every.values()))
        cells = [name, f"{whole:,}", *(f"{every[each] / whole:.3f}" for each in (1, -1, 0))]
        cells += ["/".join(str(counts[each, verdict]) for verdict in (1, -1, 0)) for each in types]
        for column, cell in zip(rows.values(), cells, strict=True):
            column.append(cell)
    yield from table(f"The demo's pairs ({limit} questions), {k} fresh continuations a step (right/wrong/tie)", rows)


def _pairs_of(checkout: Path, limit: int, k: int) -> list[dict[str, Any]]:
    """Every kept pair of the demo, with fresh values."""
    with tempfile.TemporaryDirectory() as place:
        run = ("generate", "--dataset", "atlas", "--limit", str(limit), "--run", "runs/demo")
        check = ("calibrate", "runs/demo", "--revalue", "100000", "--k", str(k))
        for command in (run, check):
            subprocess.run(
                [sys.executable, "-c", "from reasonrag.cli import main; main()", *command],
                cwd=place,
                env=os.environ | {"PYTHONPATH": str(checkout)},
                check=True,
                capture_output=True,
            )
        report = json.loads((Path(place) / "runs/demo/calibration/report.json").read_bytes())
    return [each for each in report["revaluation"]["sample"] if each["fresh_margin"] is not None]


def _counted(pairs: list[dict[str, Any]], k: int) -> Counter[tuple[str, int]]:
    """Pairs by the chosen step's action type and verdict."""
    return Counter((each["action_type"], _verdict(each, k)) for each in pairs)


def _verdict(pair: Mapping[str, Any], k: int) -> int:
    shares = [pair["chosen_outcome"], pair["rejected_outcome"]]
    error = math.sqrt(sum(share * (1 - share) / k for share in shares))
    margin = float(pair["fresh_margin"])
    return 0 if abs(margin) <= max(1e-9, ERRORS * error) else 1 if margin > 0 else -1


if __name__ == "__main__":
    typer.run(main)
