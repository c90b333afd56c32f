"""Our own server of a critic's scores, in a process of its own, beside transformers on the same texts."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from preference import Message
from reasonrag.errors import InputError
from reasonrag.llm.critic import Critic, critic_spec, find_critic, open_critic
from reasonrag.llm.endpoint.endpoint import Limits
from reasonrag.model_folder import open_model
from reasonrag.serving.loading import load
from tests.helpers.critic_world import make_critic_world
from tests.helpers.shared import Shared

STATE = (Message(role="system", content="Take a step."), Message(role="user", content="Question: who?"))
STEPS = [f"So the next query is <query>{'river ' * count}</query>" for count in (1, 30, 3, 100, 2)]
DIRECT = """
import json, sys, torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer
folder, state, steps = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
found = []
for step in steps:
    ids = tokenizer.apply_chat_template(
        [*state, {"role": "assistant", "content": step}], tokenize=True, return_dict=False, add_generation_prompt=False)
    assert ids[-1] == tokenizer.eos_token_id
    with torch.no_grad():
        found.append(model(torch.tensor([ids])).logits.item())
print(json.dumps(found))
"""


@pytest.fixture
def folder(shared: Shared) -> Iterator[Path]:
    return make_critic_world(shared).trained("pairwise")


def scored_directly(folder: Path) -> list[float]:
    state = json.dumps([each.model_dump() for each in STATE])
    command = [sys.executable, "-c", DIRECT, str(folder), state, json.dumps(STEPS)]
    direct = subprocess.run(command, check=True, capture_output=True, text=True)
    found: list[float] = json.loads(direct.stdout)
    return found


async def test_scores_of_steps_that_wait_together_are_those_that_transformers_computes_one_by_one(folder: Path) -> None:
    expected = await asyncio.to_thread(scored_directly, folder)
    found = find_critic(str(folder))
    async with AsyncExitStack() as opened:
        model = await open_critic(found, critic_spec(found, Limits(8, 60.0)), opened, say=lambda _: None)
        await model.check()
        critic = Critic(model)
        together = await critic.scores(STATE, STEPS, question_id="q1")
        alone = [(await critic.scores(STATE, [step], question_id="q1"))[0] for step in STEPS]
        home = model._connection.base_url.removesuffix("/v1")  # type: ignore[attr-defined]
        await _speaks_as_vllm_does(home, found.name.partition("@")[0], expected[0])
    assert together == pytest.approx(expected, abs=1e-4)
    assert alone == pytest.approx(expected, abs=1e-4)
    assert critic.spent.prompt_tokens > 0


def test_a_critic_whose_training_did_not_read_the_end_token_is_not_served(folder: Path, tmp_path: Path) -> None:
    """transformers takes it for padding. Without a pad token it scores the last token, as our server does."""
    copy = shutil.copytree(folder, tmp_path / "critic") / "config.json"
    config = json.loads(copy.read_text("utf-8"))
    copy.write_text(json.dumps(config | {"pad_token_id": None}))
    assert load(open_model(copy.parent)).ends is None
    copy.write_text(json.dumps(config | {"pad_token_id": config["eos_token_id"]}))
    with pytest.raises(InputError, match=r"its pad token is its end token '.*'.* train it with another pad token"):
        load(open_model(copy.parent))


async def _speaks_as_vllm_does(home: str, name: str, raw: float) -> None:
    turns = [each.model_dump() for each in (*STATE, Message(role="assistant", content=STEPS[0]))]
    async with ClientSession() as client:

        async def ask(path: str, body: dict[str, Any]) -> tuple[int, Any]:
            async with client.post(home + path, json=body) as answer:
                return answer.status, await answer.json()

        raw_wanted = {"messages": turns, "use_activation": False}
        status, found = await ask("/pooling", raw_wanted | {"model": name})
        assert (status, found["data"][0]["data"]) == (200, pytest.approx([raw], abs=1e-4))
        long = [*turns[:-1], {"role": "assistant", "content": "river " * 40_000}]
        refused = [
            ({}, 400, "messages"),
            ({"messages": turns}, 400, "use_activation"),
            ({"messages": turns, "use_activation": True}, 400, "use_activation"),
            (raw_wanted | {"messages": long}, 400, "tokens"),
            (raw_wanted | {"model": "other"}, 404, "there is no model 'other' here"),
        ]
        answers = await asyncio.gather(*(ask("/pooling", body) for body, _, _ in refused))
        for (_, expected, says), (status, told) in zip(refused, answers, strict=True):
            assert (status, says in told["error"]["message"]) == (expected, True), told
        async with client.post(f"{home}/v1/chat/completions", json={"messages": turns}) as answer:
            assert answer.status == 404
