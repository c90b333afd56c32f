"""The progress of a running training: steps and metrics from the trainer's log, and why it failed from its output.

Decides what the lines of LLaMA-Factory and transformers mean. Knows no processes.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from reasonrag.progress import JobWatcher
from reasonrag.training.metrics import SHOWN_METRICS, read_object

_EVERY: Final = 30.0
"""Seconds between two lines."""


class TrainingProgress:
    """Follows trainer_log.jsonl from where it ends now, and says how far the training is: every 30 seconds at most, and
    at its end."""

    def __init__(self, log: Path | None, watcher: JobWatcher) -> None:
        self._log, self._watcher = log, watcher
        self._read = log.stat().st_size if log and log.is_file() else 0
        self._record: dict[str, Any] = {}
        self._line, self._said = "", 0.0

    def look(self) -> None:
        """Take what was logged since the last look."""
        if self._log is None or not self._log.is_file():
            return
        with self._log.open("rb") as file:
            if file.seek(0, 2) < self._read:  # begun anew
                self._read = 0
            file.seek(self._read)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._read += len(whole) + len(newline)
        for line in whole.splitlines():
            self.reached(read_object(line))
        if time.monotonic() - self._said > _EVERY:
            self.say()

    def reached(self, record: dict[str, Any]) -> None:
        """Takes a line of the log; one without steps, or of an earlier step, says nothing."""
        step, steps = record.get("current_steps"), record.get("total_steps")
        if isinstance(step, int) and isinstance(steps, int) and step >= self._record.get("current_steps", 0):
            self._record |= record

    def say(self) -> None:
        """How far it is, unless that was said."""
        if (line := str(self)) and line != self._line:
            self._watcher.say(line)
            self._line, self._said = line, time.monotonic()

    def __str__(self) -> str:
        if not self._record:
            return ""
        step, steps = self._record["current_steps"], self._record["total_steps"]
        known = ((shown, self._record.get(name)) for name, shown in SHOWN_METRICS.items())
        parts = [f"step {step:,} of {steps:,}"]
        parts += [f"{shown} {value:.4g}" for shown, value in known if isinstance(value, int | float)]
        if (left := self._record.get("remaining_time")) and step < steps:  # the trainer of critics logs none
            parts.append(f"{left} left")
        return ", ".join(parts)


HINTS: Final = {
    r"CUDA out of memory|OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED": "the GPU ran out of memory: reasonrag doctor "
    "plans what fits",
    r"bf16/gpu|doesn't support bf16|setting bf16": "this GPU has no bf16: --set bf16=null --set fp16=true; a CPU: "
    "--set use_cpu=true",
    r"couldn't connect to|LocalEntryNotFoundError|Repository Not Found|OfflineModeIsEnabled": "the model could not be "
    "fetched from the Hub: download it first, and --set model_name_or_path=FOLDER",
    r"Address already in use|EADDRINUSE": "another process has the port: --master HOST:PORT with another one",
    r"No space left on device": "the disk is full; the same command continues from the last checkpoint",
    r"NCCL|Watchdog caught collective": "the GPUs lost each other: NCCL_DEBUG=INFO says more; the same command goes on",
}
"""What to do, by what the output of a failed training holds."""


def failure_hint(lines: Iterable[str]) -> str | None:
    """Advice for a known failure; None for others."""
    text = "\n".join(lines)
    return next((hint for pattern, hint in HINTS.items() if re.search(pattern, text, re.IGNORECASE)), None)
