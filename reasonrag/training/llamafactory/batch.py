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

_DEFAULTS: Final = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1}
"""Of transformers: rows of a forward pass, and passes of a step."""


@dataclass(frozen=True)
class EffectiveBatch:
    """per_process: rows that one optimizer step sees of each process, one per GPU. unit: pair or row."""

    per_process: int
    processes: int
    unit: str

    @property
    def rows(self) -> int:
        return self.per_process * self.processes

    def __str__(self) -> str:
        each = f"{counted(self.per_process, self.unit)} per optimizer step"
        return each if self.processes == 1 else f"{each} and GPU, {self.rows:,} on {self.processes}"


def effective_batch(config: Mapping[str, Any], processes: int) -> EffectiveBatch:
    """processes: GPUs of all machines; a configuration for the CPU has one."""
    given = (config.get(key) or otherwise for key, otherwise in _DEFAULTS.items())
    size, passes = (each if isinstance(each, int) and each > 0 else 1 for each in given)
    unit = "pair" if config.get("stage") in RANKED_STAGES else "row"
    return EffectiveBatch(size * passes, 1 if config.get("use_cpu") else processes, unit)


def describe_batch(config: Mapping[str, Any], processes: int) -> str:
    """The effective batch. processes: GPUs of all machines; 0: not known."""
    batch = effective_batch(config, processes or 1)
    return str(batch) if processes or config.get("use_cpu") else f"{batch} and GPU"
