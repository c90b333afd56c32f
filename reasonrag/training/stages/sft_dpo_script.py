"""The process of `train --backend trl`: `python -m reasonrag.training.stages.sft_dpo_script JOB`, with TRL.

Decides that rows are rendered by the base model's chat template, whole or not at all: TRL would cut a longer row
without a word. Knows no settings, no data set and no checks.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from reasonrag.serving.chat_template import open_tokenizer
from reasonrag.training.stages.trl import (
    ProcessJob,
    arguments_of,
    base_of,
    most_tokens,
    refuse_too_long,
    teller,
    train_to_the_end,
    write_facts,
)


def main(job_file: Path) -> None:
    """Train, and save a whole model."""
    job = ProcessJob.model_validate_json(job_file.read_bytes())
    from datasets import Dataset
    from peft import LoraConfig, TaskType
    from transformers import AutoModelForCausalLM
    from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

    of_pairs = job.ours["stage"] == "dpo"
    arguments = arguments_of(job, DPOConfig if of_pairs else SFTConfig, max_length=None)
    tokenizer = open_tokenizer(job.base)
    model = base_of(job, AutoModelForCausalLM, arguments)
    limit = most_tokens(job, model)
    rows, lengths = _bounded(Path(job.rows), tokenizer, job.base, limit)
    held_out, held_lengths = _bounded(Path(job.held_out), tokenizer, job.base, limit) if job.held_out else ([], [])
    refuse_too_long(job, rows, held_out, limit=limit)
    kind: Any = DPOTrainer if of_pairs else SFTTrainer
    trainer = kind(
        model,
        args=arguments,
        train_dataset=Dataset.from_list(rows),
        eval_dataset=Dataset.from_list(held_out) if held_out else None,
        processing_class=tokenizer,
        peft_config=LoraConfig(task_type=TaskType.CAUSAL_LM, **job.lora) if job.lora else None,
        callbacks=[teller(job.out)],
    )
    if train_to_the_end(trainer, job, tokenizer) is None:
        return
    both = [*lengths, *held_lengths]
    facts = {
        "rows": len(rows),
        "held_out_rows": len(held_out),
        "left_out": sum(length > limit for length in both),
        "longest_row": max(length for length in both if length <= limit),  # tokens
    }
    write_facts(job, facts)


def _bounded(path: Path, tokenizer: Any, base: str, limit: int) -> tuple[list[dict[str, Any]], list[int]]:
    """The rows of at most so many tokens, and the lengths of all: of a pair's longer side."""
    from jinja2 import TemplateError

    found, lengths = [], []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        row = json.loads(line)
        tools = {"tools": json.loads(row["tools"])} if "tools" in row else {}
        sides = [row["prompt"] + row[name] for name in ("chosen", "rejected", "completion") if name in row]
        try:
            ids = [tokenizer.apply_chat_template(each, **tools, return_dict=False) for each in sides]
        except (TemplateError, TypeError, ValueError) as error:
            raise SystemExit(f"row {number}: the chat template of {base} refuses its turns: {error}") from error
        if tools and not _tells_all(tokenizer.decode(ids[0]), sides[0]):
            raise SystemExit(f"row {number}: the chat template of {base} leaves out calls of tools, or what they found")
        lengths.append(max(map(len, ids)))
        if lengths[-1] <= limit:
            found.append(row)
    return found, lengths


def _tells_all(text: str, turns: list[dict[str, Any]]) -> bool:
    """Whether the calls of a conversation and what they found are in its text."""
    calls = (call["function"] for turn in turns for call in turn.get("tool_calls") or ())
    shown = [json.dumps(query, ensure_ascii=False)[1:-1] for each in calls for query in each["arguments"].values()]
    return all(each in text for each in shown + [turn["content"] for turn in turns if turn["role"] == "tool"])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
