"""What a trainer logs: how far a training is, why it failed, and the metrics and warnings of a finished one.

The metrics, `metrics.json`, are read from `trainer_state.json`, which has everything that was logged, also before an
interruption. Decides what the lines of LLaMA-Factory and transformers mean, and when the numbers look like the collapse
that preference training is known for: margins rise while all replies become unlikely, the chosen ones included, and
with them the tags that the agent needs. Knows no processes.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from reasonrag.errors import InputError
from reasonrag.files import read_small
from reasonrag.progress import JobWatcher

METRICS: Final = "metrics.json"
TRAINER_STATE, TRAINER_RESULTS, TRAINER_LOG = "trainer_state.json", "all_results.json", "trainer_log.jsonl"
TRAINER_LOGS: Final = (TRAINER_STATE, TRAINER_RESULTS, TRAINER_LOG, "train_results.json")
MAX_FALL_SHARE: Final = 0.25
"""Largest fall of the chosen replies' log-probability, as a share of its start, without a warning. Our choice."""
MIN_FALL_NATS: Final = 5.0
"""Falls below this many nats are ignored."""
SHOWN_METRICS: Final = {
    "loss": "loss",
    "eval_loss": "validation loss",
    "accuracy": "pairs ranked as labelled",
    "rewards/accuracies": "pairs ranked as labelled",
    "eval_rewards/accuracies": "validation pairs ranked as labelled",
    "eval_accuracy": "validation pairs ranked as labelled",
    "rewards/margins": "margin",
    "eval_rewards/margins": "validation margin",
    "logps/chosen": "log-probability of chosen replies",
    "logps/rejected": "log-probability of rejected replies",
}
"""The metrics that people see, as far as they are logged: the trainer's name to ours."""
_IN_SERIES: Final = ("loss", "rewards/", "logps/", "accuracy", "margin", "learning_rate", "lr", "kl", "grad_norm")
_EVERY: Final = 30.0
"""Seconds between two lines of progress."""


class Metrics(BaseModel):
    """Content of `metrics.json`; metric names are the trainer's."""

    schema_version: str = "reasonrag.metrics/1"
    stage: str
    steps: int
    """Updates of the weights."""
    epochs: float | None
    seconds: float | None
    """Run time of the last process only, not of the sessions before an interruption."""
    first: dict[str, float]
    last: dict[str, float]
    results: dict[str, float]
    """The trainer's final summary (`all_results.json`)."""
    warnings: list[str]
    series: dict[str, list[tuple[int, float]]]
    """Every logged value, as (step, value)."""


def read_metrics(folder: Path, stage: str) -> Metrics:
    """The metrics of a training that has ended."""
    state = read_logged(folder / TRAINER_STATE)
    series = _series(state.get("log_history", ()))
    results = {name: float(value) for name, value in read_logged(folder / TRAINER_RESULTS).items() if _is_number(value)}
    return Metrics(
        stage=stage,
        steps=int(state.get("global_step", 0)),
        epochs=state.get("epoch"),
        seconds=results.get("train_runtime"),
        first={name: each[0][1] for name, each in series.items()},
        last={name: each[-1][1] for name, each in series.items()},
        results=results,
        warnings=find_warnings(series),
        series=series,
    )


def find_warnings(series: Mapping[str, Sequence[tuple[int, float]]]) -> list[str]:
    """Signs of collapse or divergence in the logged series, as sentences."""
    found = [
        f"{name} was not finite at some step: the model is unusable; try a smaller learning_rate"
        for name in ("loss", "eval_loss")
        if any(not math.isfinite(value) for _, value in series.get(name, ()))
    ]
    chosen, margins = series.get("eval_logps/chosen", ()), series.get("eval_rewards/margins", ())
    if margins and len(chosen) > 1:
        (before, after), (narrow, wide) = _ends(chosen), _ends(margins)
        if before - after > max(MIN_FALL_NATS, MAX_FALL_SHARE * abs(before)) and wide > narrow:
            found.append(
                f"the chosen replies of the held-out pairs became less likely (log-probability {before:.1f} to "
                f"{after:.1f}) while margins rose ({narrow:.2f} to {wide:.2f}): the format may be collapsing. Check "
                "the share of unreadable replies with reasonrag evaluate; a smaller learning_rate, fewer epochs, a "
                "larger pref_beta or pref_ftx: 0.1 help"
            )
    return found


def _ends(series: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Means of the first and the last tenth of the points."""
    size = max(1, len(series) // 10)
    values = [value for _, value in series]
    return sum(values[:size]) / size, sum(values[-size:]) / size


def _series(history: Sequence[Mapping[str, Any]]) -> dict[str, list[tuple[int, float]]]:
    found = defaultdict[str, dict[int, float]](dict)
    for record in history:
        for name, value in record.items():
            is_wanted = any(part in name for part in _IN_SERIES) and not name.endswith(("_per_second", "train_loss"))
            if is_wanted and isinstance(step := record.get("step"), int) and _is_number(value):
                found[name][step] = float(value)
    return {name: sorted(each.items()) for name, each in found.items()}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def read_logged(path: Path) -> dict[str, Any]:
    """What the trainer wrote; empty where there is none, or half of it."""
    try:
        return read_object(read_small(path))
    except (OSError, InputError):
        return {}


def read_object(text: bytes) -> dict[str, Any]:
    """An object in Python's JSON, whose numbers may be NaN or Infinity; empty for anything else or a torn line."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


# -- while it runs -----------------------------------------------------------------------------------------------


class TrainingProgress:
    """Follows trainer_log.jsonl from where it ends now, and says how far the training is, every 30 seconds at most."""

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
