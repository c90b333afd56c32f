"""The process that trains a critic: `python -m reasonrag.critics.training_script JOB`, with TRL and its packages.

Decides how rows become tokens and a loss. A job names the rows, the base model and the arguments; what is found out on
the way (lengths, the end token, the score of the trial step) is written beside the model. Knows no settings, no data
set and no checks: `train` is done with them.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, Final

import orjson
from pydantic import BaseModel, ConfigDict

from reasonrag.critics.chat_template import critic_tokenizer, on_trial
from reasonrag.serving.chat_template import open_tokenizer
from reasonrag.serving.loading import SMALL

FACTS: Final = "critic_training.json"


class TrainingJob(BaseModel):
    """rows, held_out: JSON lines of `rows.CriticRows`. arguments: TRL's, of `RewardConfig`. lora: peft's, of
    `LoraConfig`; None: all weights are trained."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    base: str
    out: str
    rows: str
    held_out: str | None
    margin_scale: float
    max_length: int | None
    arguments: dict[str, Any]
    lora: dict[str, Any] | None
    resume: str | None = None


class TrainingFacts(BaseModel):
    """Content of `critic_training.json`, which the parent reads and removes."""

    model_config = ConfigDict(frozen=True)

    rows: int
    held_out_rows: int
    left_out: int
    """Rows longer than `max_length`."""
    longest_row: int
    """Tokens, of those that were not left out."""
    end_token: str
    trial_score: float
    trial_tokens: int


def main(job_file: Path) -> None:
    """Train, and save the critic as a whole model."""
    job = TrainingJob.model_validate_json(job_file.read_bytes())
    import torch
    from datasets import Dataset
    from transformers import AutoModelForSequenceClassification, set_seed

    arguments = _arguments(job)
    tokenizer = critic_tokenizer(open_tokenizer(job.base))
    set_seed(arguments.seed)  # before the head, whose weights are random
    model = AutoModelForSequenceClassification.from_pretrained(
        job.base,
        num_labels=1,
        dtype=torch.bfloat16 if arguments.bf16 and job.lora else torch.float32,
        trust_remote_code=False,
    )
    model.config.pad_token_id = tokenizer.pad_token_id
    if arguments.use_cpu and model.num_parameters() < SMALL and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)
    limit = job.max_length or int(model.config.get_text_config().max_position_embeddings)
    rows, left_out = _tokenized(Path(job.rows), tokenizer, job, limit)
    held_out, left_out_there = _tokenized(Path(job.held_out), tokenizer, job, limit) if job.held_out else ([], 0)
    if not rows:
        raise SystemExit(f"all {left_out} rows are longer than {limit} tokens: raise max_length")
    evaluated = Dataset.from_list(held_out) if held_out else None
    given = {"args": arguments, "train_dataset": Dataset.from_list(rows), "eval_dataset": evaluated}
    trainer = _trainer(job, model, tokenizer, given)
    done = trainer.train(resume_from_checkpoint=job.resume)
    trainer.save_state()
    trainer.save_metrics("all", done.metrics | (trainer.evaluate() if held_out else {}), combined=False)
    if not trainer.is_world_process_zero():
        return
    trained = trainer.accelerator.unwrap_model(trainer.model)
    if job.lora:
        trained = trained.merge_and_unload()
    trained.eval()
    trained.save_pretrained(job.out)
    tokenizer.save_pretrained(job.out)
    lengths = [len(each[name]) for each in (*rows, *held_out) for name in each if name.endswith("ids")]
    score, tokens = on_trial(trained, tokenizer)
    facts = TrainingFacts(
        rows=len(rows),
        held_out_rows=len(held_out),
        left_out=left_out + left_out_there,
        longest_row=max(lengths),
        end_token=tokenizer.eos_token,
        trial_score=score,
        trial_tokens=tokens,
    )
    (Path(job.out) / FACTS).write_bytes(orjson.dumps(facts.model_dump()))


def _arguments(job: TrainingJob) -> Any:
    """TRL's arguments. Ends the process where it does not take them."""
    from trl import RewardConfig

    # the rows are tokenized and bounded here; TRL would leave out those beyond its max_length without a word
    ours: dict[str, Any] = {"output_dir": job.out, "max_length": None, "report_to": "none"}
    ours["remove_unused_columns"] = False
    try:
        return RewardConfig(**job.arguments | ours)
    except (TypeError, ValueError) as error:
        raise SystemExit(f"TRL does not take this configuration: {error}") from error


def _tokenized(path: Path, tokenizer: Any, job: TrainingJob, limit: int) -> tuple[list[dict[str, Any]], int]:
    """The rows as TRL takes them, and how many were left out as too long."""
    found, left_out = [], 0
    for line in path.read_bytes().splitlines():
        row = json.loads(line)

        def ids(step: str, state: Any = row["state"]) -> list[int]:
            said = [*state, {"role": "assistant", "content": step}]
            read = list(tokenizer.apply_chat_template(said, tokenize=True, return_dict=False))
            if read[-1] != tokenizer.eos_token_id:
                raise SystemExit(f"the chat template of {job.base} does not end with {tokenizer.eos_token!r}")
            return read

        each = {"chosen_ids": ids(row["chosen"]), "rejected_ids": ids(row["rejected"])}
        each |= {"margin": job.margin_scale * row["margin"]} if job.margin_scale else {}
        if any(len(value) > limit for name, value in each.items() if name.endswith("ids")):
            left_out += 1
        else:
            found.append(each)
    return found, left_out


def _trainer(job: TrainingJob, model: Any, tokenizer: Any, given: dict[str, Any]) -> Any:
    """given: arguments and data sets, as trainers take them."""
    from peft import LoraConfig, TaskType
    from transformers import TrainerCallback
    from trl import RewardTrainer

    class Told(TrainerCallback):  # type: ignore[misc, unused-ignore]
        """Writes what is logged in the form in which LLaMA-Factory does, which the parent reads."""

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:  # noqa: ARG002
            if state.is_world_process_zero:
                line = {"current_steps": state.global_step, "total_steps": state.max_steps, **(logs or {})}
                with (Path(job.out) / "trainer_log.jsonl").open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")

    lora = LoraConfig(task_type=TaskType.SEQ_CLS, **job.lora) if job.lora else None
    given["callbacks"] = [Told()]
    return RewardTrainer(model, processing_class=tokenizer, peft_config=lora, **given)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
