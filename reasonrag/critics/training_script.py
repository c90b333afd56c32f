"""The process that trains a critic: `python -m reasonrag.critics.training_script JOB`, with TRL and its packages.

Decides how rows become tokens and a loss. A job names the rows, the base model and the arguments; what is found out on
the way (lengths, the end token, the score of the trial step) is written beside the model. Knows no settings, no data
set and no checks: `train` is done with them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from reasonrag.critics.chat_template import critic_tokenizer, on_trial
from reasonrag.serving.chat_template import open_tokenizer
from reasonrag.training.stages.trl import ProcessJob, arguments_of, base_of, teller, train_to_the_end, write_facts


def main(job_file: Path) -> None:
    """Train, and save the critic as a whole model."""
    job = ProcessJob.model_validate_json(job_file.read_bytes())
    from datasets import Dataset
    from peft import LoraConfig, TaskType
    from transformers import AutoModelForSequenceClassification
    from trl import RewardConfig, RewardTrainer

    # the rows are tokenized and bounded here; TRL would leave out those beyond its max_length without a word
    arguments = arguments_of(job, RewardConfig, max_length=None)
    tokenizer = critic_tokenizer(open_tokenizer(job.base))
    model = base_of(job, AutoModelForSequenceClassification, arguments, num_labels=1)
    model.config.pad_token_id = tokenizer.pad_token_id
    limit = job.ours.get("max_length") or int(model.config.get_text_config().max_position_embeddings)
    rows, left_out = _tokenized(Path(job.rows), tokenizer, job, limit)
    held_out, left_out_there = _tokenized(Path(job.held_out), tokenizer, job, limit) if job.held_out else ([], 0)
    if not rows:
        raise SystemExit(f"all {left_out} rows are longer than {limit} tokens: raise max_length")
    if not held_out:
        job = job.model_copy(update={"held_out": None})
    trainer = RewardTrainer(
        model,
        args=arguments,
        train_dataset=Dataset.from_list(rows),
        eval_dataset=Dataset.from_list(held_out) if held_out else None,
        processing_class=tokenizer,
        peft_config=LoraConfig(task_type=TaskType.SEQ_CLS, **job.lora) if job.lora else None,
        callbacks=[teller(job.out)],
    )
    trained = train_to_the_end(trainer, job, tokenizer)
    if trained is None:
        return
    lengths = [len(each[name]) for each in (*rows, *held_out) for name in each if name.endswith("ids")]
    score, tokens = on_trial(trained, tokenizer)
    write_facts(
        job,
        {
            "rows": len(rows),
            "held_out_rows": len(held_out),
            "left_out": left_out + left_out_there,
            "longest_row": max(lengths),  # in tokens, of those that were not left out
            "end_token": tokenizer.eos_token,
            "trial_score": score,
            "trial_tokens": tokens,
        },
    )


def _tokenized(path: Path, tokenizer: Any, job: ProcessJob, limit: int) -> tuple[list[dict[str, Any]], int]:
    """The rows as TRL takes them, and how many were left out as too long."""
    found, left_out, scale = [], 0, float(job.ours.get("margin_scale", 0.0))
    for line in path.read_bytes().splitlines():
        row = json.loads(line)

        def ids(step: str, state: Any = row["state"]) -> list[int]:
            said = [*state, {"role": "assistant", "content": step}]
            read = list(tokenizer.apply_chat_template(said, tokenize=True, return_dict=False))
            if read[-1] != tokenizer.eos_token_id:
                raise SystemExit(f"the chat template of {job.base} does not end with {tokenizer.eos_token!r}")
            return read

        each = {"chosen_ids": ids(row["chosen"]), "rejected_ids": ids(row["rejected"])}
        each |= {"margin": scale * row["margin"]} if scale else {}
        if any(len(value) > limit for name, value in each.items() if name.endswith("ids")):
            left_out += 1
        else:
            found.append(each)
    return found, left_out


if __name__ == "__main__":
    main(Path(sys.argv[1]))
