"""The process that trains a critic: `python -m reasonrag.critics.training_script JOB`, with TRL and its packages.

Decides how rows become tokens and a loss, and the text that a critic reads: the state's prompt exactly as the policy
sees it, the step, and the end token. Its chat template is its base model's, so changed that a conversation ends so; it
goes with the critic's tokenizer, so that training, our server and vLLM render the same text.

A job names the rows, the base model and the arguments; what is found out on the way (lengths, the end token, the score
of the trial step) is written beside the model. Knows no settings, no data set and no checks: `train` is done with them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

from reasonrag.llm.critic import TRIAL
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

_BEFORE: Final = (
    "{% set step = messages[-1]['content'] %}{% set messages = messages[:-1] %}{% set add_generation_prompt = true %}"
)
_STEP: Final = "{{ step + eos_token }}"


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
    limit = most_tokens(job, model)
    rows, left_out = _tokenized(Path(job.rows), tokenizer, job, limit)
    held_out, left_out_there = _tokenized(Path(job.held_out), tokenizer, job, limit) if job.held_out else ([], 0)
    refuse_too_long(job, rows, held_out, limit=limit)
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
    facts = {  # the parent reads and removes these
        "rows": len(rows),
        "held_out_rows": len(held_out),
        "left_out": left_out + left_out_there,
        "longest_row": max(lengths),  # tokens, of those that were not left out
        "end_token": tokenizer.eos_token,
        "trial_score": score,
        "trial_tokens": tokens,
    }
    write_facts(job, facts)


def _tokenized(path: Path, tokenizer: Any, job: ProcessJob, limit: int) -> tuple[list[dict[str, Any]], int]:
    """The rows as TRL takes them, and how many were left out as too long."""
    found, scale = list[dict[str, Any]](), float(job.ours.get("margin_scale", 0.0))

    def ids(state: list[dict[str, str]], step: str) -> list[int]:
        said = [*state, {"role": "assistant", "content": step}]
        read = list(tokenizer.apply_chat_template(said, tokenize=True, return_dict=False))
        if read[-1] != tokenizer.eos_token_id:
            raise SystemExit(f"the chat template of {job.base} does not end with {tokenizer.eos_token!r}")
        return read

    rows = [json.loads(line) for line in path.read_bytes().splitlines()]
    for row in rows:
        sides = {f"{side}_ids": ids(row["state"], row[side]) for side in ("chosen", "rejected")}
        if max(map(len, sides.values())) <= limit:
            found.append(sides | ({"margin": scale * row["margin"]} if scale else {}))
    return found, len(rows) - len(found)


def critic_template(base: str) -> str:
    """The template of a critic whose base model has this one; itself for a critic's."""
    if base.startswith(_BEFORE):
        return base
    return f"{_BEFORE}{base.removesuffix(chr(10))}{_STEP}"  # jinja leaves out a last line break


def critic_tokenizer(tokenizer: Any) -> Any:
    """Make a base model's tokenizer a critic's. Raises ValueError for one that has no end token or no chat template.

    Its pad token becomes another than its end token, where the two are one: a sequence classifier reads the last token
    that is no pad token, and would not see the end.
    """
    if not tokenizer.chat_template or not isinstance(tokenizer.chat_template, str):
        raise ValueError("its tokenizer has no chat template; take an instruct model, or copy chat_template.jinja")
    if tokenizer.eos_token is None:
        raise ValueError("its tokenizer has no end token (eos_token)")
    tokenizer.chat_template = critic_template(tokenizer.chat_template)
    if tokenizer.pad_token in (None, tokenizer.eos_token):
        others = [each for each in tokenizer.all_special_tokens if each != tokenizer.eos_token]
        if not others:
            raise ValueError("its tokenizer has no special token beside its end token that could be its pad token")
        tokenizer.pad_token = others[0]
    tokenizer.padding_side = "right"
    return tokenizer


def on_trial(model: Any, tokenizer: Any) -> tuple[float, int]:
    """A critic's raw score of `TRIAL`, and the tokens that it reads for it, by which its servers are checked."""
    import torch

    trial = [{"role": each.role, "content": each.content} for each in TRIAL]
    ids = tokenizer.apply_chat_template(trial, tokenize=True, return_dict=False)
    with torch.inference_mode():
        return float(model(input_ids=torch.tensor([ids], device=model.device)).logits.item()), len(ids)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
