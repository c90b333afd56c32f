"""A model folder's chat template: its prompts are those of transformers, and what it takes is bounded."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from preference import Message
from reasonrag.serving.chat_template import ChatTemplate, open_tokenizer
from tests.helpers.qwen_files import folder_with

pytest.importorskip("transformers")
HONEST = (
    "{% for m in messages %}<{{ m.role }}> {{ m.content }} {% endfor %}{% if add_generation_prompt %}<go>{% endif %}"
)
TURN, END = "{% for each in range(99999) %}", "{% endfor %}"
BOMBS = {
    "loop": 3 * TURN + 3 * END,
    "power": "{% set n = messages | length + 8 %}{{ 7 ** (n ** n) }}",
    "string": "{{ 'x' * 10 ** 10 }}",
    "centre": "{{ 'x'.center(10 ** 10) }}",
    "double": "{% set n = namespace(s='x') %}{% for a in range(99) %}{% set n.s = n.s ~ n.s %}{% endfor %}{{ n.s }}",
    "again": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "refuse": "{{ raise_exception('no such role') }}",
}
"""By the message that sets each off. Numbers are no constants, which would be computed where the template is read."""


def chat(*contents: str) -> list[Message]:
    return [Message(role="user", content=each) for each in contents]


async def test_prompts_are_those_of_transformers(tmp_path: Path) -> None:
    """Token for token, for many prompts of one process."""
    folder = folder_with(HONEST, tmp_path / "model")
    tokenizer, template = open_tokenizer(folder), ChatTemplate(str(folder))
    try:
        await template.try_out()
        for messages in (chat("hello"), chat("hello world", "no\nwords", ""), chat("hello " * 50_000)):
            sent = [{"role": each.role, "content": each.content} for each in messages]
            expected = tokenizer.apply_chat_template(sent, add_generation_prompt=True, return_dict=False)
            assert await template.prompt(messages) == tuple(expected)
    finally:
        template.close()


async def test_time_and_memory_of_a_template_are_bounded(tmp_path: Path) -> None:
    """Loops, strings and numbers without end are a refusal of the request that names the file; others are answered."""
    cases = "".join(f"{{% if messages[0].content == '{name}' %}}{bomb}{{% endif %}}" for name, bomb in BOMBS.items())
    folder = folder_with(cases + HONEST, tmp_path / "model")
    template = ChatTemplate(str(folder), cpu_s=0.3)
    try:
        for name in BOMBS:
            with pytest.raises(ValueError, match=f"the chat template {folder}/chat_template.jinja ") as error:
                await template.prompt(chat(name))
            too_much = "takes more than 0.3 s or 512 MiB for these messages"
            said = {"again": f"({too_much}|RecursionError)", "refuse": "refuses these messages: .*no such role"}
            assert re.search(said.get(name, too_much), str(error.value))
        assert await template.prompt(chat("hello")) == (1, 4, 3)
    finally:
        template.close()


async def test_a_prompt_that_nobody_waits_for_ends_and_no_other_request_notices(tmp_path: Path) -> None:
    """Whether it waits its turn or is worked on."""
    cases = f"{{% if messages[0].content == 'loop' %}}{BOMBS['loop']}{{% endif %}}"
    template = ChatTemplate(str(folder_with(cases + HONEST, tmp_path / "model")), cpu_s=600)
    try:
        first, second = (asyncio.create_task(template.prompt(chat(each))) for each in ("hello", "world"))
        await asyncio.sleep(0.1)
        second.cancel()
        assert await first == (1, 4, 3)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(template.prompt(chat("loop")), 0.5)
        assert await asyncio.wait_for(template.prompt(chat("world")), 50) == (1, 5, 3)
    finally:
        template.close()
