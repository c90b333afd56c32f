"""The effective batch of a configuration on several GPUs, and the steps it makes of data."""

from __future__ import annotations

from typing import Any

import pytest

from reasonrag.training.llamafactory.batch import describe_batch, effective_batch

LORA = {"stage": "dpo", "per_device_train_batch_size": 1, "gradient_accumulation_steps": 8, "num_train_epochs": 1.0}


@pytest.mark.parametrize(
    ("values", "processes", "rows", "batch", "steps"),
    [
        ({}, 1, 13289, 8, 1662),
        ({"gradient_accumulation_steps": 2}, 4, 13289, 8, 1662),  # the last step sees the rest
        ({"per_device_train_batch_size": 4}, 2, 65, 64, 2),
        ({"per_device_train_batch_size": None, "gradient_accumulation_steps": None}, 2, 32, 16, 2),  # defaults
        ({"use_cpu": True}, 8, 16, 8, 2),
    ],
)
def test_a_step_sees_the_rows_of_all_processes(
    values: dict[str, Any], processes: int, rows: int, batch: int, steps: int
) -> None:
    """Rows of a forward pass, times passes, times GPUs; what is left of an epoch is a step of its own."""
    found = effective_batch(LORA | values, processes)
    assert (found.rows, found.steps(rows)) == (batch, steps)


FEW = "; a model learns little in so few steps: less gradient accumulation, more data or more epochs"


@pytest.mark.parametrize(
    ("values", "processes", "rows", "says"),
    [
        ({}, 1, None, "8 pairs per optimizer step"),
        ({}, 0, 400, "8 pairs per optimizer step and GPU"),  # the number of GPUs is not given
        ({}, 4, 400, "8 pairs per optimizer step and GPU, 32 on 4: 13 steps in an epoch of 400 pairs"),
        ({"stage": "sft"}, 1, 400, "8 rows per optimizer step: 50 steps in an epoch of 400 rows"),
        ({"packing": True, "stage": "sft"}, 1, 9, "8 rows per optimizer step"),
        (
            {"max_steps": 4},
            1,
            9,
            "8 pairs per optimizer step: 2 steps in an epoch of 9 pairs; it ends after 4 (max_steps)",
        ),
        ({"max_samples": 80}, 1, 400, "8 pairs per optimizer step: 10 steps in an epoch of 80 pairs"),
        ({"gradient_accumulation_steps": 1}, 1, 9, f"1 pair per optimizer step: 9 steps in an epoch of 9 pairs{FEW}"),
    ],
)
def test_so_few_steps_that_nothing_is_learned_are_said(
    values: dict[str, Any], processes: int, rows: int | None, says: str
) -> None:
    """With what makes more, unless max_steps is set."""
    assert describe_batch(LORA | values, processes, rows) == says
