"""How a report looks and where it goes: Markdown with date, commit, machine and versions; and how sure a figure in it
is. Knows no measurement."""

from __future__ import annotations

import os
import platform
import random
import subprocess
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import TypeVar

from preference.statistics import LABEL_LEVEL
from reasonrag.run_config import versions

ROOT = Path(__file__).parents[1]
RESAMPLES, CONFIDENCE = 400, LABEL_LEVEL
"""Of the bootstrap, and the width of its intervals."""

T = TypeVar("T")


def gpus(field: str) -> list[str]:
    """`name` or `memory.used` (MiB) of this machine's GPUs, by the driver; none without one."""
    asked = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader,nounits"]
    try:
        return subprocess.run(asked, capture_output=True, text=True, timeout=30, check=True).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return []


def publish(report: Iterator[str], append: Path | None) -> None:
    """Print a report line by line under its heading; `append`: a file that it is added to as well, once it is whole."""
    lines: list[str] = []
    for line in chain(_heading(), report):
        print(line, flush=True)
        lines.append(line)
    if append:
        with append.open("a") as file:
            file.write("\n" + "\n".join(lines) + "\n")


def table(title: str, columns: dict[str, list[str]]) -> Iterator[str]:
    yield f"\n{title}:\n"
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    for row in zip(*columns.values(), strict=True):
        yield f"| {' | '.join(row)} |"


def interval(cases: Sequence[T], figure: Callable[[list[T]], float]) -> tuple[float, float]:
    """Bootstrap over cases: the middle of the figures of so many resamples, always the same ones."""
    dice = random.Random(0)
    drawn = sorted(figure(dice.choices(cases, k=len(cases))) for _ in range(RESAMPLES))
    outside = round(RESAMPLES * (1 - CONFIDENCE) / 2)
    return drawn[outside], drawn[-1 - outside]


def _heading() -> Iterator[str]:
    """Date, commit, machine and versions: what a report starts with."""
    made_with = ", ".join(f"{name} {number}" for name, number in versions().items())
    yield f"## {datetime.now(UTC):%Y-%m-%d}, commit {commit()}"
    yield f"\n{machine()}; {made_with}."


def commit(checkout: Path = ROOT) -> str:
    """The commit of a checkout, short."""
    commands = (["git", "rev-parse", "--short", "HEAD"], ["git", "status", "--porcelain", "--untracked-files=no"])
    head, changes = (
        subprocess.run(each, cwd=checkout, check=False, capture_output=True, text=True).stdout.strip()
        for each in commands
    )
    return (head or "unknown") + (" with local changes" if changes else "")


def machine() -> str:
    model = platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    return f"{os.cpu_count()} cores of {model}, {platform.system()}"
