"""How many rows an optimizer step of a training sees.

Decides it by the rules of transformers' Trainer (4.55 to 5.6): a forward pass of each process, as often as gradients
are accumulated. Knows no data, and of the hardware only how many processes train.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from reasonrag.rendering import counted
from reasonrag.training.llamafactory.dataset_info import RANKED_STAGES

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


def describe_batch(config: Mapping[str, Any], processes: int) -> str:
    """The effective batch. processes: GPUs of all machines; 0: not known."""
    batch = effective_batch(config, processes or 1)
    return str(batch) if processes or config.get("use_cpu") else f"{batch} and GPU"


def _positive(config: Mapping[str, Any], key: str, otherwise: int) -> int:
    value = config.get(key)
    return value if isinstance(value, int) and value > 0 else otherwise
