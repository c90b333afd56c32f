"""The effective batch of a configuration on several GPUs."""

from __future__ import annotations

from typing import Any

import pytest

from reasonrag.training.llamafactory.batch import describe_batch

LORA = {"stage": "dpo", "per_device_train_batch_size": 1, "gradient_accumulation_steps": 8}
DEFAULTS = {"per_device_train_batch_size": None, "gradient_accumulation_steps": None}


@pytest.mark.parametrize(
    ("values", "processes", "says"),
    [
        ({}, 1, "8 pairs per optimizer step"),
        ({}, 0, "8 pairs per optimizer step and GPU"),  # the number of GPUs is not given
        ({"gradient_accumulation_steps": 2}, 4, "2 pairs per optimizer step and GPU, 8 on 4"),
        ({"per_device_train_batch_size": 4}, 2, "32 pairs per optimizer step and GPU, 64 on 2"),
        (DEFAULTS, 2, "8 pairs per optimizer step and GPU, 16 on 2"),
        ({"use_cpu": True, "stage": "sft"}, 8, "8 rows per optimizer step"),
    ],
)
def test_a_step_sees_the_rows_of_all_processes(values: dict[str, Any], processes: int, says: str) -> None:
    """Rows of a forward pass, times passes, times GPUs."""
    assert describe_batch(LORA | values, processes) == says
