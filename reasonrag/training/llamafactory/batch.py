"""How many rows an optimizer step of a training sees, and how many steps that makes of its data.

Decides it by the rules of transformers' Trainer (4.55 to 5.6): a forward pass of each process, as often as gradients
are accumulated; the rest of an epoch is a step, too. Knows of the hardware only how many processes train.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any, Final

from reasonrag.rendering import counted
from reasonrag.training.llamafactory.dataset_info import RANKED_STAGES

FEW_STEPS: Final = 10
"""Optimizer steps of a training below which it is said: a warm-up of a fifth of them has one or two."""
_DEFAULT_BATCH: Final = 8
"""Of transformers, for `per_device_train_batch_size`; gradients are accumulated over 1 pass."""


@dataclass(frozen=True)
class EffectiveBatch:
    """per_device: rows of a forward pass. accumulation: passes of a step. processes: one per GPU. unit: pair or row."""

    per_device: int
    accumulation: int
    processes: int
    unit: str

    @property
    def rows(self) -> int:
        """Rows that one optimizer step sees."""
        return self.per_device * self.accumulation * self.processes

    def steps(self, rows: int) -> int:
        """Optimizer steps in an epoch of so many rows."""
        passes = ceil(ceil(rows / self.per_device) / self.processes)
        return max(ceil(passes / self.accumulation), 1)

    def __str__(self) -> str:
        each = f"{counted(self.rows // self.processes, self.unit)} per optimizer step"
        return each if self.processes == 1 else f"{each} and GPU, {self.rows:,} on {self.processes}"


def effective_batch(config: Mapping[str, Any], processes: int) -> EffectiveBatch:
    """processes: GPUs of all machines; a configuration for the CPU has one."""
    return EffectiveBatch(
        per_device=_positive(config, "per_device_train_batch_size", _DEFAULT_BATCH),
        accumulation=_positive(config, "gradient_accumulation_steps", 1),
        processes=1 if config.get("use_cpu") else processes,
        unit="pair" if config.get("stage") in RANKED_STAGES else "row",
    )


def describe_batch(config: Mapping[str, Any], processes: int, rows: int | None) -> str:
    """The effective batch and its steps, and what to do where they are too few.

    processes: GPUs of all machines; 0: not known. rows: of the data; None: not known.
    """
    batch = effective_batch(config, processes or 1)
    if not (processes or config.get("use_cpu")):
        return f"{batch} and GPU"
    if rows is None or config.get("packing"):
        return str(batch)
    rows = min(rows, _positive(config, "max_samples", rows))
    steps, most = batch.steps(rows), _positive(config, "max_steps", 0)
    says = f"{batch}: {counted(steps, 'step')} in an epoch of {counted(rows, batch.unit)}"
    if most:
        return f"{says}; it ends after {most:,} (max_steps)"
    epochs = config.get("num_train_epochs", 3.0)
    if not isinstance(epochs, int | float) or steps * epochs >= FEW_STEPS:
        return says
    return f"{says}; a model learns little in so few steps: less gradient accumulation, more data or more epochs"


def _positive(config: Mapping[str, Any], key: str, otherwise: int) -> int:
    value = config.get(key)
    return value if isinstance(value, int) and value > 0 else otherwise
