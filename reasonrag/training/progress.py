"""The progress of a running training: steps and metrics from the trainer's log, and why it failed from its output.

Decides what the lines of LLaMA-Factory and transformers mean. Knows no processes.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from rich.markup import escape
from rich.status import Status

from reasonrag.progress import Watcher
from reasonrag.terminal import TerminalWatcher, on_one_line
from reasonrag.training.metrics import SHOWN_METRICS

_EVERY: Final = 30.0
"""Seconds between lines when stderr is not a terminal."""
_PHASE = re.compile(r"^([A-Z][\w ()-]{5,50}):\s+\d+%\|")


@dataclass
class TrainingProgress:
    """How far a training is. numbers: the latest value of each metric. left: remaining time, as the trainer prints
    it."""

    step: int = 0
    steps: int = 0
    left: str = ""
    phase: str = "starting LLaMA-Factory"
    numbers: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        if not self.steps:
            return self.phase
        parts = [f"step {self.step:,} of {self.steps:,}"]
        parts += [f"{shown} {self.numbers[name]:.4g}" for name, shown in SHOWN_METRICS.items() if name in self.numbers]
        return ", ".join(parts + ([f"{self.left} left"] if self.left and self.step < self.steps else []))


class TrainingWatcher(Watcher, Protocol):
    """Receives the messages and the progress of a training."""

    def stands(self, standing: TrainingProgress, *, logged: bool) -> None:
        """logged: whether there are new metrics."""


class TerminalTraining(TerminalWatcher):
    """One updating line in a terminal; elsewhere a line every `_EVERY` seconds, and the last one."""

    def __init__(self) -> None:
        super().__init__()
        self._live: Status | None = None
        self._said, self._line = 0.0, ""

    def stands(self, standing: TrainingProgress, *, logged: bool) -> None:
        line = escape(on_one_line(str(standing)))
        if self._console.is_terminal:
            if self._live is None:
                self._live = self._console.status(line)
                self._live.start()
            self._live.update(line)
        elif logged and line != self._line and time.monotonic() - self._said > _EVERY:
            self._console.print(line, soft_wrap=True)
            self._said = time.monotonic()
        self._line = line

    def ended(self) -> None:
        super().ended()
        if self._live:
            self._live.stop()
            self._live = None
        if self._line:
            self._console.print(self._line, soft_wrap=True)
        self._line = ""


class LogParser:
    """Follows a training, and keeps the last `keep` lines of its output."""

    def __init__(self, watcher: TrainingWatcher, *, keep: int) -> None:
        self.standing = TrainingProgress()
        self.last: deque[str] = deque(maxlen=keep)
        self._watcher = watcher

    def heard(self, line: str) -> None:
        if line.strip():
            self.last.append(line)
        phase = _PHASE.match(line)
        if phase:
            self.standing.phase = phase[1].strip()

    def reached(self, record: dict[str, Any]) -> None:
        """Takes a line of trainer_log.jsonl."""
        step, steps = record.get("current_steps"), record.get("total_steps")
        if isinstance(step, int) and isinstance(steps, int) and step >= self.standing.step:
            self.standing.step, self.standing.steps = step, steps
            self.standing.left = str(record.get("remaining_time", ""))
        known = ((name, record.get(name)) for name in SHOWN_METRICS)
        self.standing.numbers |= {name: float(value) for name, value in known if isinstance(value, int | float)}
        self._watcher.stands(self.standing, logged=True)


HINTS: Final[Sequence[tuple[re.Pattern[str], str]]] = tuple(
    (re.compile(pattern, re.IGNORECASE), hint)
    for pattern, hint in (
        (
            r"CUDA out of memory|OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED",
            (
                "the GPU ran out of memory: a LoRA or QLoRA configuration, ZeRO-3 (with offload), a smaller "
                "per_device_train_batch_size, or more GPUs; reasonrag doctor plans it"
            ),
        ),
        (
            r"bf16/gpu|doesn't support bf16|setting bf16",
            "this GPU has no bf16: --set bf16=null --set fp16=true; a CPU: --set use_cpu=true",
        ),
        (
            r"couldn't connect to|LocalEntryNotFoundError|Repository Not Found|OfflineModeIsEnabled",
            "the model could not be fetched from the Hub: download it first, and --set model_name_or_path=FOLDER",
        ),
        (r"Address already in use|EADDRINUSE", "another process has the port: --master HOST:PORT with another one"),
        (r"No space left on device", "the disk is full; the same command continues from the last checkpoint"),
        (
            r"NCCL|Watchdog caught collective",
            "the GPUs lost each other: NCCL_DEBUG=INFO says more; the same command continues",
        ),
    )
)


def failure_hint(lines: Sequence[str]) -> str | None:
    """Advice for a known failure; None for others."""
    text = "\n".join(lines)
    return next((hint for pattern, hint in HINTS if pattern.search(text)), None)


def read_appended_lines(path: Path, since: int, told: Callable[[bytes], None]) -> int:
    """Pass on the whole lines appended to a file since an offset; returns the new offset."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(since if since <= size else 0)
            block = file.read()
            start = file.tell() - len(block)
    except FileNotFoundError:
        return 0
    whole, newline, _ = block.rpartition(b"\n")
    for line in whole.splitlines():
        told(line)
    return start + len(whole) + len(newline)
