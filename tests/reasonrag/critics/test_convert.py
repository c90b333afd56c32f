"""`train-critic --convert`: a reward model that LLaMA-Factory trained becomes a critic with the same scores."""

from __future__ import annotations

import io
import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

from reasonrag.critics.convert import convert_reward_model
from reasonrag.errors import InputError
from reasonrag.llm.critic import find_critic
from reasonrag.training.provenance import Provenance
from tests.helpers.critic_world import make_critic_world
from tests.helpers.shared import Shared, held
from tests.helpers.training_world import environment, make_world

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::FutureWarning")]  # transformers', of peft's calls
STATE = [{"role": "system", "content": "Take a step."}, {"role": "user", "content": "Question: who?"}]
STEPS = ["So the answer is <answer>Ada</answer>", "So the next query is <query>Ada</query>", "no"]
SCORES = """
import json, sys, torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer
base, adapter, critic = sys.argv[1:4]
said = json.loads(sys.argv[4])
policy, ours = AutoTokenizer.from_pretrained(base), AutoTokenizer.from_pretrained(critic)
head = load_file(adapter + "/value_head.safetensors")["v_head.summary.weight"]
trained = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), adapter).eval()
scorer = AutoModelForSequenceClassification.from_pretrained(critic).eval()
found = []
for conversation in said:
    read = policy.apply_chat_template(conversation, tokenize=True, return_dict=False)  # ends with a line break
    ids = ours.apply_chat_template(conversation, tokenize=True, return_dict=False)
    assert read == ids
    with torch.no_grad():
        hidden = trained(torch.tensor([read]), output_hidden_states=True).hidden_states[-1][0, -1]
        found.append((float(head[0] @ hidden), scorer(torch.tensor([ids])).logits.item()))
print(json.dumps(found))
"""


def test_the_value_head_of_a_trained_reward_model_becomes_the_head_of_a_classifier(
    train_python: Path, shared: Shared
) -> None:
    make_critic_world(shared)  # skips where torch or TRL is missing
    world = make_world(shared, train_python)
    trained = world.train("smoke-cpu-reward", "to-convert")
    assert trained.status == 0, trained.err
    with held(world.place / ".converted"):
        done = world.run("train-critic", "--convert", "saves/to-convert", "--out", "critics/reward")
        again = world.run("train-critic", "--convert", "saves/to-convert", "--out", "critics/reward")
    assert (done.status, again.status) == (0, 2), done.err
    assert "is not empty" in again.err
    _says_what_the_data_were_labelled_by(world.place)
    found = find_critic(str(world.place / "critics" / "reward"))
    assert found.facts is not None
    assert (found.kind, found.facts.end_token) == ("pairwise", "<|im_end|>\n")
    said = [[*STATE, {"role": "assistant", "content": step}] for step in STEPS]
    places = [str(world.place / each) for each in ("models/tiny-qwen2", "saves/to-convert", "critics/reward")]
    scored = subprocess.run(
        [sys.executable, "-c", SCORES, *places, json.dumps(said)],
        check=True,
        capture_output=True,
        text=True,
        env=environment(world.place, None),
    )
    for before, after in json.loads(scored.stdout):
        assert after == pytest.approx(before, abs=1e-5)


def _says_what_the_data_were_labelled_by(place: Path) -> None:
    """place: with saves/to-convert and the critic made of it."""
    folder = place / "saves" / "relabelled"
    shutil.copytree(place / "saves" / "to-convert", folder, dirs_exist_ok=True)
    record = json.loads((folder / "training.json").read_text())
    data = Path(record["data"]["directory"])
    summary = json.loads((data / "summary.json").read_text())
    assert labels_of(place / "critics" / "reward") == "+".join(summary["pairs_by_label"])
    other = place / "data" / "relabelled"
    record["data"]["directory"] = str(other)
    (folder / "training.json").write_text(json.dumps(record))
    for changes, says in (
        ({"pairs_by_label": {"outcome": 5}}, "outcome"),
        ({"sha256": {}}, "unknown"),  # made anew, of other rows
        (None, "unknown"),
    ):
        shutil.rmtree(other, ignore_errors=True)
        if changes is not None:
            other.mkdir(parents=True)
            (other / "summary.json").write_text(json.dumps(summary | changes))
        critic = place / "critics" / "relabelled"
        shutil.rmtree(critic, ignore_errors=True)
        with chdir(place):
            convert_reward_model(folder, critic, print)
        assert labels_of(critic) == says


def labels_of(critic: Path) -> str:
    facts = find_critic(str(critic)).facts
    assert facts is not None
    return facts.labels


# -- pickles and damaged files ---------------------------------------------------------------------------------------


class Evil:
    """A pickle that would write a marker."""

    def __reduce__(self) -> Any:
        return os.system, ("touch marker",)


def _pickled(_: Any) -> bytes:
    return pickle.dumps({"v_head.summary.weight": Evil()})


def _of_torch(torch: Any, content: object) -> bytes:
    written = io.BytesIO()
    torch.save(content, written)
    return written.getvalue()


HEADS: dict[str, tuple[str, Callable[[Any], bytes]]] = {
    "a pickle that runs code": ("value_head.bin", _pickled),
    "a pickle of torch that runs code": (
        "value_head.bin",
        lambda torch: _of_torch(torch, {"v_head.summary.weight": Evil()}),
    ),
    "a pickle of a list": ("value_head.bin", lambda torch: _of_torch(torch, [1])),
    "a pickle of a number": ("value_head.bin", lambda torch: _of_torch(torch, 1)),
    "a pickle of other weights": ("value_head.bin", lambda torch: _of_torch(torch, {"other": torch.zeros(1, 4)})),
    "a head that is no tensor": ("value_head.bin", lambda torch: _of_torch(torch, {"v_head.summary.weight": 1})),
    "a head of two rows": (
        "value_head.bin",
        lambda torch: _of_torch(torch, {"v_head.summary.weight": torch.zeros(2, 4)}),
    ),
    "an empty file": ("value_head.bin", lambda _: b""),
    "safetensors that are cut": ("value_head.safetensors", lambda _: b"\x10"),
    "safetensors that are a pickle": ("value_head.safetensors", _pickled),
}


@pytest.mark.parametrize(("name", "content"), HEADS.values(), ids=list(HEADS))
def test_a_head_that_is_not_plain_weights_is_refused_in_a_line(
    name: str, content: Callable[[Any], bytes], tmp_path: Path
) -> None:
    """With the file, and how to make safetensors of it; nothing of it runs."""
    folder = reward_model(tmp_path)
    (folder / name).write_bytes(content(pytest.importorskip("torch")))
    with pytest.raises(InputError, match=rf"{name} holds no v_head.summary.weight .*save_file"):
        convert_reward_model(folder, tmp_path / "critic", print)
    assert not Path("marker").exists()
    assert not (tmp_path / "critic").exists()


@pytest.mark.parametrize(
    "name", ["pytorch_model.bin", "adapter_model.bin", "model.safetensors", "adapter_model.safetensors"]
)
def test_weights_that_cannot_be_read_are_refused_in_a_line(name: str, shared: Shared, tmp_path: Path) -> None:
    """Of the model, or of an adapter on a model that can be read."""
    world, torch = make_critic_world(shared), pytest.importorskip("torch")
    folder = reward_model(tmp_path)
    tiny = world.place / "models" / "tiny-qwen2"
    (folder / "value_head.bin").write_bytes(_of_torch(torch, {"v_head.summary.weight": torch.zeros(1, 4)}))
    for each in (*tiny.glob("*token*"), *tiny.glob("*.jinja")):
        shutil.copy(each, folder)
    adapter = {"peft_type": "LORA", "base_model_name_or_path": str(tiny), "target_modules": ["q_proj"], "r": 2}
    if name.startswith("adapter"):
        (folder / "adapter_config.json").write_text(json.dumps(adapter))
    else:
        shutil.copy(tiny / "config.json", folder)
    (folder / name).write_bytes(_of_torch(torch, {"weight": Evil()}))
    with pytest.raises(InputError, match=rf"{folder}: (Unpickling|Safetensor|OS)Error: "):
        convert_reward_model(folder, tmp_path / "critic", print)
    assert not Path("marker").exists()


def reward_model(place: Path) -> Path:
    """A folder that says that it is one."""
    (place / "reward").mkdir()
    Provenance(base_model="qwen", stage="rm", finetuning_type="full").write(place / "reward")
    return place / "reward"
