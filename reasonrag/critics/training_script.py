"""The process that trains a critic: `python -m reasonrag.critics.training_script JOB`, with TRL and its packages.

Decides how rows become tokens and a loss, and the text that a critic reads: the state's prompt exactly as the policy
sees it, the step, and the end token. Its chat template is its base model's, so changed that a conversation ends so; it
goes with the critic's tokenizer, so that training, our server and vLLM render the same text.

A job names the rows, the base model and the arguments; what is found out on the way (lengths, the end token, the score
of the trial step) is written beside the model. Knows no settings, no data set and no checks: `train` is done with them.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any, Final

from reasonrag.llm.critic import TRIAL
from reasonrag.serving.chat_template import open_tokenizer
from reasonrag.training.stages.trl import ProcessJob, arguments_of, base_of, train_rows, write_facts

_BEFORE: Final = (
    "{% set step = messages[-1]['content'] %}{% set messages = messages[:-1] %}{% set add_generation_prompt = true %}"
)
_STEP: Final = "{{ step + eos_token }}"


def main(job_file: Path) -> None:
    """Train, and save the critic as a whole model."""
    job = ProcessJob.model_validate_json(job_file.read_bytes())
    from transformers import AutoModelForSequenceClassification
    from trl import RewardConfig, RewardTrainer

    arguments = arguments_of(job, RewardConfig, max_length=None)
    tokenizer = critic_tokenizer(open_tokenizer(job.base))
    model = base_of(job, AutoModelForSequenceClassification, arguments, num_labels=1)
    model.config.pad_token_id = tokenizer.pad_token_id
    parts = {"model": model, "args": arguments, "processing_class": tokenizer}
    trained, facts = train_rows(job, RewardTrainer, partial(_tokenized, tokenizer, job), task="SEQ_CLS", **parts)
    if trained is None:
        return
    score, tokens = on_trial(trained, tokenizer)
    write_facts(job, facts | {"end_token": tokenizer.eos_token, "trial_score": score, "trial_tokens": tokens})


def _tokenized(tokenizer: Any, job: ProcessJob, row: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """A row as TRL takes it, and the tokens of its longer side."""
    scale, sides = float(job.ours.get("margin_scale", 0.0)), dict[str, list[int]]()
    for side in ("chosen", "rejected"):
        said = [*row["state"], {"role": "assistant", "content": row[side]}]
        ids = sides[f"{side}_ids"] = list(tokenizer.apply_chat_template(said, tokenize=True, return_dict=False))
        if ids[-1] != tokenizer.eos_token_id:
            raise SystemExit(f"the chat template of {job.base} does not end with {tokenizer.eos_token!r}")
    return sides | ({"margin": scale * row["margin"]} if scale else {}), max(map(len, sides.values()))


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
