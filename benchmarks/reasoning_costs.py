"""Dry runs beside what runs then cost at stand-ins that reason: another seed, profile and effort each.

Replies are the offline teacher's, prices those of the named model: it tells whether the ends of an estimate hold with
reasoning, not how much a provider's model reasons. Prints Markdown; `--append FILE` adds it to a file.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Optional

import typer
from reporting import ROOT, publish, table

import reasonrag

RUNS = [
    *(("gpt-6", "gpt-6-luna", each) for each in (None, "low", "medium", "high", "xhigh", "default", "none")),
    *(("gpt-5.6", "gpt-5.6", each) for each in (None, "low", "medium", "high", "xhigh")),
    *(("gpt-6-astra", "gpt-6-astra", each) for each in (None, "low", "high")),
    *(("gpt-5", "gpt-5", each) for each in (None, "minimal", "low", "high")),
    ("gpt-4o", "gpt-4o", None),
]
"""Profile, model and --reasoning-effort."""
NAMES = ("profile", "effort", "seed", "estimate $", "cost $", "reasoning", "cost / low", "inside")


@contextmanager
def stand_in(profile: str) -> Iterator[str]:
    """Base URL of a simulated endpoint."""
    command = [sys.executable, "-m", "tests.endpoints", "--port", "0", "--profile", profile]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        try:
            yield server.stdout.readline().split()[2]
        finally:
            server.terminate()


def main(
    questions: Annotated[int, typer.Option(help="Questions of a run")] = 5,
    append: Annotated[Optional[Path], typer.Option(help="File to add the report to")] = None,  # noqa: UP045 - typer's
) -> None:
    """Print the report."""
    os.environ["OPENAI_API_KEY"] = "any"
    publish(report(questions), append)


def report(questions: int) -> Iterator[str]:
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for seed, (profile, model, effort) in enumerate(RUNS):
            flags: dict[str, Any] = {"dataset": "atlas", "limit": questions, "model": model, "seed": seed}
            flags |= {"reasoning_effort": effort, "run": Path(scratch) / str(seed), "yes": True}
            flags |= {"index_home": Path(scratch) / "indexes", "abort_degenerate": 0.0}
            with stand_in(profile) as base_url:
                expected = reasonrag.estimate(base_url=[base_url], **flags).dollars
                done = reasonrag.generate(base_url=[base_url], **flags)
            cost, inside = done.cost_usd, expected.low <= done.cost_usd <= expected.high
            share = done.reasoning_tokens / done.completion_tokens
            shown = f"{expected.low:.4f} to {expected.high:.4f}", f"{cost:.4f}", f"{share:.0%}"
            rows.append(
                (profile, effort or "-", str(seed), *shown, f"{cost / expected.low:.1f}", "yes" if inside else "no")
            )
    within = sum(row[-1] == "yes" for row in rows)
    title = f"Estimates and costs of {questions} atlas questions with reasoning; {within} of {len(rows)} inside"
    yield from table(title, dict(zip(NAMES, map(list, zip(*rows, strict=True)), strict=True)))


if __name__ == "__main__":
    typer.run(main)
