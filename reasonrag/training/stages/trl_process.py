"""What the processes of `stages.trl` have in common: how a base becomes a model to train, what is told on the way, and
how the model is saved.

Decides nothing of losses or rows. Imports torch and TRL or transformers only where they are used.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import orjson
from pydantic import BaseModel

from reasonrag.serving.loading import SMALL
from reasonrag.training.stages.trl import FACTS, ProcessJob


def arguments_of(job: ProcessJob, kind: Any, **ours: Any) -> Any:
    """The trainer's arguments, of class `kind`. Ends the process where it does not take them."""
    ours |= {"output_dir": job.out, "report_to": "none", "remove_unused_columns": False}
    try:
        return kind(**job.arguments | ours)
    except (TypeError, ValueError) as error:
        raise SystemExit(f"the trainer does not take this configuration: {error}") from error


def base_of(job: ProcessJob, kind: Any, arguments: Any, **more: Any) -> Any:
    """The base model, by the `kind` of transformers' Auto classes that it is to be."""
    import torch
    from transformers import set_seed

    set_seed(arguments.seed)  # before a new head, whose weights are random
    dtype = torch.bfloat16 if arguments.bf16 and job.lora else torch.float32
    model = kind.from_pretrained(job.base, dtype=dtype, trust_remote_code=False, **more)
    if arguments.use_cpu and model.num_parameters() < SMALL and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)
    return model


def teller(out: str) -> Any:
    """A callback that writes what is logged in the form in which LLaMA-Factory does, which the parent reads."""
    from transformers import TrainerCallback

    class Told(TrainerCallback):  # type: ignore[misc, unused-ignore]
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:  # noqa: ARG002
            if state.is_world_process_zero:
                line = {"current_steps": state.global_step, "total_steps": state.max_steps, **(logs or {})}
                with (Path(out) / "trainer_log.jsonl").open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")

    return Told()


def train_to_the_end(trainer: Any, job: ProcessJob, tokenizer: Any) -> Any:
    """Train and save a whole model; returns it, or None where another process saves."""
    done = trainer.train(resume_from_checkpoint=job.resume)
    trainer.save_state()
    trainer.save_metrics("all", done.metrics | (trainer.evaluate() if job.held_out else {}), combined=False)
    if not trainer.is_world_process_zero():
        return None
    trained = trainer.accelerator.unwrap_model(trainer.model)
    if job.lora:
        trained = trained.merge_and_unload()
    trained.eval()
    trained.save_pretrained(job.out)
    tokenizer.save_pretrained(job.out)
    return trained


def write_facts(job: ProcessJob, facts: BaseModel) -> None:
    (Path(job.out) / FACTS).write_bytes(orjson.dumps(facts.model_dump()))
