"""A critic's chat template: its base model's, so changed that a conversation ends with the step and the end token.

Decides the text that a critic reads: the state's prompt exactly as the policy sees it, the step, and the end token. It
goes with the critic's tokenizer, so that training, our server and vLLM render the same text, whatever they are told.
"""

from __future__ import annotations

from typing import Any, Final

from reasonrag.llm.critic import TRIAL

_BEFORE: Final = (
    "{% set step = messages[-1]['content'] %}{% set messages = messages[:-1] %}{% set add_generation_prompt = true %}"
)
_STEP: Final = "{{ step + eos_token }}"


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
