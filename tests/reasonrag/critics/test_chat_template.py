"""A critic's chat template ends every conversation with the step and the end token, whatever the base's does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from reasonrag.critics.training_script import critic_template, critic_tokenizer

CHATML = (
    "{% for turn in messages %}<|im_start|>{{ turn['role'] }}\n{{ turn['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
PLAIN = "{%- for turn in messages -%}[{{ turn.role }}] {{ turn.content }}\n{% endfor -%}\n"
"""It ends with a line break, and does not know of a reply to come."""
ENDS = {"eos_token": "<|im_end|>"}
STATE = [{"role": "system", "content": "Take a step."}, {"role": "user", "content": "Question: who?"}]
STEP = {"role": "assistant", "content": "So the answer is <answer>Ada</answer>"}


def rendered(template: str, messages: list[dict[str, str]], *, add_generation_prompt: bool) -> str:
    """As transformers renders it."""
    jinja = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    return jinja.from_string(template).render(messages=messages, add_generation_prompt=add_generation_prompt, **ENDS)


@pytest.mark.parametrize("base", [CHATML, PLAIN], ids=["chatml", "plain"])
@pytest.mark.parametrize("told", [True, False], ids=["a reply is to come", "none is"])
def test_a_critic_reads_the_prompt_of_the_policy_then_the_step_then_the_end_token(base: str, told: bool) -> None:
    prompt = rendered(base, STATE, add_generation_prompt=True)
    read = rendered(critic_template(base), [*STATE, STEP], add_generation_prompt=told)
    assert read == f"{prompt}{STEP['content']}<|im_end|>"


def test_a_critic_of_a_critic_has_the_same_template() -> None:
    assert critic_template(critic_template(CHATML)) == critic_template(CHATML)


END, PAD = "<end>", "<pad>"


def tokenizer(**given: Any) -> SimpleNamespace:
    """The attributes that matter here."""
    known = {"chat_template": CHATML, "eos_token": END, "pad_token": PAD, "all_special_tokens": [END, PAD]}
    return SimpleNamespace(**known | {"padding_side": "left"} | given)


@pytest.mark.parametrize("pad", [None, END])
def test_the_pad_token_is_another_than_the_end_token_which_a_classifier_would_not_read_otherwise(
    pad: str | None,
) -> None:
    assert critic_tokenizer(tokenizer(pad_token=pad)).pad_token == PAD


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"chat_template": None}, "no chat template"),
        ({"eos_token": None}, "no end token"),
        ({"pad_token": None, "all_special_tokens": ["<end>"]}, "no special token beside its end token"),
    ],
)
def test_a_tokenizer_that_cannot_be_a_critics_is_refused_by_name_of_what_it_lacks(
    given: dict[str, Any], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        critic_tokenizer(tokenizer(**given))
