"""SFT, DPO and critics by transformers alone, where neither TRL nor LLaMA-Factory can be had: `proof_train.py JOB`.

Decides tokens and losses: the mean over a reply's tokens; DPO's sigmoid, with the base's log-probabilities taken once
before the training; and of a critic the log-odds that the chosen step is the better one. A job is that of
`reasonrag.training.stages.trl`; `proof_gpu.train` writes it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reasonrag.critics.training_script import critic_tokenizer, on_trial
from reasonrag.serving.chat_template import open_tokenizer
from reasonrag.training.policy.training_script import collated, log_probabilities, logits_of, with_old
from reasonrag.training.stages.trl import ProcessJob, arguments_of, base_of, teller, train_to_the_end, write_facts

CRITIC, SIDES = "critic", ("chosen", "rejected")


def sides_of(row: Mapping[str, Any], tokenizer: Any) -> list[dict[str, Any]]:
    """What a row is learned from, as `collated` takes it: its reply, or both of a pair. own: tokens of the reply."""
    found, turns = [], row.get("prompt") or row["state"]
    for name in SIDES if "chosen" in row else ("completion",):
        said = row[name] if isinstance(row[name], list) else [{"role": "assistant", "content": row[name]}]
        before = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt="prompt" in row)
        text = tokenizer.apply_chat_template([*turns, *said], tokenize=False)
        if "prompt" in row and not text.startswith(before):
            raise SystemExit("the chat template renders a conversation otherwise than its prompt")
        parts = [before, text[len(before) :]] if "prompt" in row else ["", text]  # a critic reads all, learns no token
        ids = [tokenizer(each, add_special_tokens=False)["input_ids"] for each in parts]
        found.append({"input_ids": [*ids[0], *ids[1]], "own": len(ids[1]), "advantage": 0})
    return found


def batch_of(rows: Sequence[Sequence[Mapping[str, Any]]], pad: int, stage: str) -> dict[str, Any]:
    """Chosen sides first, then rejected ones."""
    found = collated([side for sides in zip(*rows, strict=True) for side in sides], pad)
    return {name: found[name] for name in ("input_ids", "attention_mask")} if stage == CRITIC else found


def trainer_of(stage: str, beta: float) -> Any:
    """A class of transformers' Trainer with this stage's loss, which logs the log-probabilities of a pair's sides."""
    from torch.nn.functional import logsigmoid
    from transformers import Trainer

    class PlainTrainer(Trainer):  # type: ignore[misc, unused-ignore]
        def compute_loss(self, model: Any, inputs: Any, *_: Any, num_items_in_batch: Any = None, **__: Any) -> Any:
            if stage == CRITIC:
                chosen, rejected = model(**inputs).logits.float().chunk(2)
                return -logsigmoid(chosen - rejected).mean()
            now, own = log_probabilities(logits_of(model, inputs), inputs["labels"])
            if stage == "sft":
                return -now.sum() / (own.sum() if num_items_in_batch is None else num_items_in_batch)
            sides = now.sum(-1).chunk(2)
            self.seen = {f"logps/{name}": each.mean().item() for name, each in zip(SIDES, sides, strict=True)}
            chosen, rejected = (now.sum(-1) - inputs["old"].sum(-1)).chunk(2)
            return -logsigmoid(beta * (chosen - rejected)).mean()

        def log(self, logs: dict[str, float], *rest: Any) -> None:
            super().log(logs | (self.seen if stage == "dpo" and "loss" in logs else {}), *rest)

    return PlainTrainer


def main(job_file: Path) -> None:
    """Train, and save a whole model."""
    job = ProcessJob.model_validate_json(job_file.read_bytes())
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, TrainingArguments

    stage, arguments, tokenizer = (
        job.ours.get("stage", CRITIC),
        arguments_of(job, TrainingArguments),
        open_tokenizer(job.base),
    )
    if stage == CRITIC:
        tokenizer = critic_tokenizer(tokenizer)
        model = base_of(job, AutoModelForSequenceClassification, arguments, num_labels=1)
        model.config.pad_token_id = tokenizer.pad_token_id
    else:
        model = base_of(job, AutoModelForCausalLM, arguments)
    pad = tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id
    every = [sides_of(json.loads(line), tokenizer) for line in Path(job.rows).read_bytes().splitlines()]
    most = job.most_tokens(model.config)
    rows = [sides for sides in every if max(len(each["input_ids"]) for each in sides) <= most]
    if not rows:
        raise SystemExit(f"all rows are longer than {most} tokens: raise max_length, or cutoff_len")
    model = model.to(arguments.device)
    if stage == "dpo":
        by_length = sorted((each for sides in rows for each in sides), key=lambda each: len(each["input_ids"]))
        with_old(by_length, model, pad, arguments.per_device_train_batch_size, bf16=arguments.bf16)
    if job.lora:
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(task_type="SEQ_CLS" if stage == CRITIC else "CAUSAL_LM", **job.lora))
        model.enable_input_require_grads()  # which checkpointed gradients of an adapter need
    trainer = trainer_of(stage, float(job.ours.get("beta", 0.1)))(
        model=model,
        args=arguments,
        train_dataset=rows,
        data_collator=lambda batch: batch_of(batch, pad, stage),
        processing_class=tokenizer,
        callbacks=[teller(job.out)],
    )
    trainer.model_accepts_loss_kwargs = stage == "sft"  # else the trainer takes the mean over batches
    trained = train_to_the_end(trainer, job, tokenizer)
    longest = max(len(each["input_ids"]) for sides in rows for each in sides)
    facts: dict[str, Any] = {"rows": len(rows), "left_out": len(every) - len(rows), "longest_row": longest}
    if stage == CRITIC:
        score, tokens = on_trial(trained, tokenizer)
        facts |= {"end_token": tokenizer.eos_token, "trial_score": score, "trial_tokens": tokens}
    write_facts(job, facts)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
