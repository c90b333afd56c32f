"""The process that trains a policy: `python -m reasonrag.training.policy.training_script JOB`, with transformers.

Decides the loss: a clipped ratio of probabilities to those of the model that drew the steps, times the advantage, and a
penalty for the distance to it. Its log-probabilities are computed here, by one pass of the base, so that any endpoint
may have drawn them. Only the tokens of a reply count: prompts, and what was retrieved in them, have no gradient.

Source: PPO's clipped objective (arXiv 1707.06347, Eq. 7), the mean over all own tokens of an optimizer step as DAPO's
(arXiv 2503.14476, Eq. 8), though of those that teach something, the penalty as GRPO's (arXiv 2402.03300, Eq. 4).
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from mcts.advantages import prorag
from reasonrag.serving.chat_template import open_tokenizer
from reasonrag.training.stages.trl import ProcessJob, arguments_of, base_of, teller, train_to_the_end, write_facts

IGNORED = -100


class Loss(BaseModel, frozen=True):
    """clip: how far the ratio counts, 1 - clip to 1 + clip. kl: weight of the penalty."""

    clip: float = 0.2
    kl: float = 0.0

    def of(self, logits: Any, batch: Mapping[str, Any], tokens: Any = None) -> Any:
        """The loss of a batch: `labels` (IGNORED where a token is not the model's own), `old` (their log-probabilities
        when they were drawn) and `advantages` of the rows. tokens: own ones of the optimizer step; None: the batch's.
        """
        now, own = log_probabilities(logits, batch["labels"])
        ratio, advantages = (now - batch["old"]).exp(), batch["advantages"][:, None]
        clipped = ratio.clamp(1 - self.clip, 1 + self.clip)
        gained = (ratio * advantages).minimum(clipped * advantages)
        if self.kl:
            gained = gained - self.kl * (batch["old"] - now).expm1() - self.kl * (now - batch["old"])
        return -(gained * own).sum() / (own.sum() if tokens is None else tokens)


def log_probabilities(logits: Any, labels: Any) -> tuple[Any, Any]:
    """Of each label, given what stands before it, and whether it counts: both of labels' shape less one."""
    wanted = labels[:, 1:]
    own = wanted != IGNORED
    found = logits[:, :-1].float().log_softmax(-1).gather(-1, wanted.clamp(min=0)[..., None])[..., 0]
    return found.where(own, found.new_zeros(())), own.to(found.dtype)


def tokenized(rows: Iterable[Mapping[str, Any]], tokenizer: Any) -> list[dict[str, Any]]:
    """Rows with `input_ids`, and with `own`: how many of the last ones are the reply's.

    The end token is not its own, as a stop string may have taken its place.
    """
    found = []
    for row in rows:
        [said] = row["completion"]
        prompt = tokenizer.apply_chat_template(
            row["prompt"], tokenize=True, add_generation_prompt=True, return_dict=False
        )
        reply = tokenizer(said["content"], add_special_tokens=False)["input_ids"]
        found.append({**row, "input_ids": [*prompt, *reply], "own": len(reply)})
    return found


def with_process_part(rows: Sequence[dict[str, Any]], beta: float) -> Iterator[dict[str, Any]]:
    """Rows of ProRAG's advantage, group by group; others as they are."""
    groups = defaultdict[str, list[dict[str, Any]]](list)
    for row in rows:
        groups[row["group"]].append(row)
    for group in groups.values():
        if group[0]["score"] is None:
            yield from group
            continue
        outcomes, scores = [each["advantage"] for each in group], [each["score"] for each in group]
        found = prorag(outcomes, scores, [each["own"] * each["draws"] for each in group], beta=beta)
        yield from (row | {"advantage": advantage} for row, advantage in zip(group, found, strict=True))


def collated(rows: Sequence[Mapping[str, Any]], pad: int) -> dict[str, Any]:
    """A batch, padded on the left, so that replies end together: `labels`, `old` and logits are of their part alone."""
    import torch

    longest, kept = max(len(each["input_ids"]) for each in rows), 1 + max(each["own"] for each in rows)
    batch = defaultdict[str, list[Sequence[float]]](list)
    for each in rows:
        ids, own = each["input_ids"], each["own"]
        batch["input_ids"].append([pad] * (longest - len(ids)) + ids)
        batch["attention_mask"].append([0] * (longest - len(ids)) + [1] * len(ids))
        batch["labels"].append([IGNORED] * (kept - own) + ids[len(ids) - own :])
        batch["old"].append([0.0] * (kept - 1 - own) + list(each.get("old", [0.0] * own)))
    found = {name: torch.tensor(values) for name, values in batch.items()}
    return found | {"advantages": torch.tensor([float(each["advantage"]) for each in rows])}


def logits_of(model: Any, batch: Mapping[str, Any]) -> Any:
    """Where a label stands, and one token before; also of models that do not know `logits_to_keep`."""
    kept, mask = batch["labels"].shape[1], batch["attention_mask"]
    told = {"attention_mask": mask, "position_ids": (mask.cumsum(-1) - 1).clamp(min=0), "logits_to_keep": kept}
    return model(input_ids=batch["input_ids"], **told).logits[:, -kept:]


def with_old(
    rows: list[dict[str, Any]], model: Any, pad: int, size: int, *, bf16: bool = False, name: str = "old"
) -> list[dict[str, Any]]:
    """Gives rows, under `name`, the model's log-probabilities of their own tokens, as precise as the training."""
    import torch

    model.eval()
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        batch = {name: each.to(model.device) for name, each in collated(part, pad).items()}
        with torch.inference_mode(), torch.autocast(model.device.type, torch.bfloat16, enabled=bf16):
            found, own = log_probabilities(logits_of(model, batch), batch["labels"])
        for row, values, counts in zip(part, found.tolist(), own.tolist(), strict=True):
            row[name] = [value for value, each in zip(values, counts, strict=True) if each]
    return rows


def policy_trainer(model: Any, arguments: Any, rows: Sequence[Any], pad: int, loss: Loss, **more: Any) -> Any:
    """transformers' Trainer with this loss. pad: the token that fills a batch up."""
    from transformers import Trainer

    class PolicyTrainer(Trainer):  # type: ignore[misc, unused-ignore]
        def compute_loss(self, model: Any, inputs: Any, *_: Any, num_items_in_batch: Any = None, **__: Any) -> Any:
            """transformers counts the own tokens of all batches of an optimizer step."""
            found = loss.of(logits_of(model, inputs), inputs, num_items_in_batch)
            shared = num_items_in_batch is not None and self.args.average_tokens_across_devices
            return found * self.accelerator.num_processes if shared else found

    collate = partial(collated, pad=pad)
    return PolicyTrainer(model=model, args=arguments, train_dataset=rows, data_collator=collate, **more)


def _per_token(rows: Sequence[Mapping[str, Any]], name: str) -> float:
    """Mean of these log-probabilities over the own tokens, as often as they were drawn."""
    tokens = sum(each["draws"] * each["own"] for each in rows)
    return float(sum(each["draws"] * sum(each[name]) for each in rows) / tokens)


def main(job_file: Path) -> None:
    """Train, and save the policy as a whole model."""
    job = ProcessJob.model_validate_json(job_file.read_bytes())
    from transformers import AutoConfig, AutoModelForCausalLM, TrainingArguments

    arguments, tokenizer = arguments_of(job, TrainingArguments), open_tokenizer(job.base)
    loss, config = Loss(**{k: job.ours[k] for k in Loss.model_fields}), AutoConfig.from_pretrained(job.base)
    limit = job.most_tokens(config)
    lines = [json.loads(line) for line in Path(job.rows).read_bytes().splitlines()]
    every = [*with_process_part(tokenized(lines, tokenizer), float(job.ours["beta"]))]
    fitting = [each for each in every if each["own"] and len(each["input_ids"]) <= limit]
    fitting.sort(key=lambda each: len(each["input_ids"]))  # batches of one pass are of one length
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    size = arguments.per_device_train_batch_size
    if start := job.ours.get("start"):  # one model at a time, as memory is short
        first = base_of(job.model_copy(update={"base": start}), AutoModelForCausalLM, arguments).to(arguments.device)
        with_old(fitting, first, pad, size, bf16=arguments.bf16, name="start")
        del first
    model = base_of(job, AutoModelForCausalLM, arguments).to(arguments.device)
    with_old(fitting, model, pad, size, bf16=arguments.bf16)
    taught = [each for each in fitting if each["advantage"] or loss.kl]
    if not taught:
        raise SystemExit(f"of {len(lines)} rows none teaches anything: {len(fitting)} have up to {limit} tokens")
    rows = [each for each in taught for _ in range(each["draws"])]
    if job.lora:
        from peft import LoraConfig, TaskType, get_peft_model

        model = get_peft_model(model, LoraConfig(task_type=TaskType.CAUSAL_LM, **job.lora))
        model.enable_input_require_grads()  # which checkpointed gradients of an adapter need
    trainer = policy_trainer(model, arguments, rows, pad, loss, callbacks=[teller(job.out)], processing_class=tokenizer)
    if train_to_the_end(trainer, job, tokenizer) is None:
        return
    # The parent reads and removes these. entropy, distance: of the base, per own token: means of -log p, and of
    # log p - log p of the model `start`, 0 where that is the base
    write_facts(
        job,
        {
            "rows": len(rows),  # replies, each as often as it was drawn
            "left_out": sum(len(each["input_ids"]) > limit for each in every),  # longer than max_length
            "empty": sum(not each["own"] for each in every),  # without a word to learn
            "untaught": len(fitting) - len(taught),  # of advantage 0: no gradient without a penalty
            "tokens": sum(each["own"] for each in rows),  # of replies, those that have a gradient
            "longest_row": max(len(each["input_ids"]) for each in rows),
            "entropy": -_per_token(fitting, "old"),
            "distance": _per_token(fitting, "old") - _per_token(fitting, "start") if start else 0.0,
        },
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
