"""`train --backend trl`: LLaMA-Factory's configurations in TRL's words, the same first step, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from reasonrag.errors import InputError
from reasonrag.training.llamafactory.config_files import find_config, shipped_names
from reasonrag.training.llamafactory.config_resolution import resolve_config
from reasonrag.training.llamafactory.dataset_info import read_training_data
from reasonrag.training.stages.trl_backend import in_words_of_trl
from tests.end_to_end.test_llamafactory import work
from tests.helpers.command_line import Reasonrag
from tests.helpers.shared import Shared
from tests.helpers.training_world import make_world

OURS = [name for name in shipped_names() if "-dpo-" in name or name.endswith("-sft")]
LACKING = {"qwen2.5-7b-dpo-qlora": "quantization_bit, quantization_method, double_quantization, upcast_layernorm"}
"""What TRL has no word for, of a shipped configuration."""


@pytest.mark.parametrize("name", OURS)
def test_shipped_configurations_are_said_in_trls_words_or_refused_by_name(name: str, data: Path) -> None:
    """No key is lost: each is TRL's, ours or says what TRL does in any case."""
    resolution = resolve_config(find_config(name), {"model_name_or_path": "base"}, read_training_data(data), out=None)
    if name in LACKING:
        with pytest.raises(InputError, match=f"TRL has no word for {LACKING[name]}; leave it out"):
            in_words_of_trl(resolution)
        return
    found, given = in_words_of_trl(resolution), resolution.config
    assert found["learning_rate"] == given["learning_rate"]
    assert found.get("warmup_steps") == given.get("warmup_ratio")
    assert found.get("beta") == given.get("pref_beta")
    assert found.get("lora_rank") == given.get("lora_rank")


REFUSED: dict[str, tuple[str, list[str], str]] = {
    "a stage": ("smoke-cpu-reward", [], "--backend trl trains the stages sft and dpo; smoke-cpu-reward is of stage rm"),
    "another loss": ("smoke-cpu-dpo-full", ["--set", "pref_loss=orpo"], "does not know pref_loss: 'orpo'"),
    "a second loss": ("smoke-cpu-dpo-full", ["--set", "pref_ftx=0.1"], "does not know pref_ftx: 0.1"),
    "some layers": ("smoke-cpu-sft", ["--set", "finetuning_type=freeze"], "does not know finetuning_type: 'freeze'"),
    "an adapter": ("smoke-cpu-sft", ["--set", "adapter_name_or_path=a"], "TRL has no word for adapter_name_or_path"),
    "a slip": ("smoke-cpu-sft", ["--set", "learnin_rate=1"], "TRL has no word for learnin_rate"),
    "LoRA of all weights": ("smoke-cpu-sft", ["--set", "lora_rank=8"], "TRL has no word for lora_rank"),
    "rows of another format": (
        "smoke-cpu-dpo-full",
        ["--set", "dataset=rag_proguide_reward", "--set", "eval_dataset=null"],
        "--backend trl does not read rag_proguide_reward; it reads rag_proguide, rag_proguide_sft",
    ),
    "stages": ("smoke-cpu-dpo-full", ["--recipe", "sft-dpo"], "leave out --recipe, --slurm and --nodes"),
    "a batch script": ("smoke-cpu-dpo-full", ["--slurm", "job.sh"], "leave out --recipe, --slurm and --nodes"),
}


@pytest.mark.parametrize(("config", "words", "says"), REFUSED.values(), ids=REFUSED)
def test_what_it_cannot_train_is_refused_before_anything_starts(
    config: str, words: list[str], says: str, data: Path, reasonrag: Reasonrag
) -> None:
    asked = ("--data", data, "--backend", "trl", "--set", "model_name_or_path=base", "--out", "saves/x")
    done = reasonrag("train", config, *asked, *words)
    assert (done.status, says in done.err) == (2, True), done.err
    assert not Path("saves").exists()


ONE_STEP: Mapping[str, Any] = {
    "max_samples": 20,
    "per_device_train_batch_size": 20,
    "gradient_accumulation_steps": 1,
    "max_steps": 1,
    "logging_steps": 1,
    "warmup_ratio": 0,
    "save_strategy": "no",
    **dict.fromkeys(("eval_strategy", "eval_dataset", "eval_steps", "per_device_eval_batch_size", "save_steps")),
}
LORA: Mapping[str, Any] = {"finetuning_type": "lora", "lora_rank": 8, "lora_alpha": 16, "lora_target": "all"}
CASES: dict[str, tuple[str, Mapping[str, Any]]] = {
    "dpo": ("smoke-cpu-dpo-full", {}),
    "dpo by LoRA": ("smoke-cpu-dpo-lora", {}),
    "sft": ("smoke-cpu-sft", {}),
    "sft by LoRA": ("smoke-cpu-sft", LORA),
}


def test_the_first_step_is_llamafactorys(train_python: Path, shared: Shared) -> None:
    """Loss and norm of the gradient over the same 20 rows differ by less than 1 %, of all weights and by LoRA; what is
    left is a whole model that says what trained it."""
    if find_spec("trl") is None:
        pytest.skip("TRL is not installed: pip install 'reasonrag[rl]'")
    world = make_world(shared, train_python)
    theirs = {}
    for name, (config, changes) in CASES.items():
        values = yaml.safe_load(find_config(config).text) | ONE_STEP | changes
        values |= {"dataset_dir": "data/a", "output_dir": f"saves/theirs {name}", "plot_loss": False}
        theirs[name] = [word for key, value in values.items() if value is not None for word in (f"--{key}", str(value))]
    work(train_python, {"train": theirs}, world.place)
    for name, (config, changes) in CASES.items():
        done = world.run(*world.words(config, f"trl {name}", **ONE_STEP, **changes), "--backend", "trl")
        assert done.status == 0, done.err
        first, other = (
            world.json(f"{whose} {name}", "trainer_state.json")["log_history"][0] for whose in ("theirs", "trl")
        )
        assert other["loss"] == pytest.approx(first["loss"], rel=0.01), name
        assert other["grad_norm"] == pytest.approx(first["grad_norm"], rel=0.01), name
        kept = world.json(f"trl {name}", "reasonrag.json")
        assert kept["finetuning_type"] == ("merged" if "LoRA" in name else "full")
        card = (world.saved(f"trl {name}") / "README.md").read_text()
        assert "Trained with TRL" in " ".join(card.split())


def test_a_template_that_refuses_the_turns_is_named(train_python: Path, shared: Shared) -> None:
    """Many have no turn for what a tool found."""
    if find_spec("trl") is None:
        pytest.skip("TRL is not installed: pip install 'reasonrag[rl]'")
    world = make_world(shared, train_python)
    made = world.run("pairs", "runs/a", "--out", "data/tools", "--format", "tools", "--format", "tools-sharegpt")
    assert made.status == 0, made.err
    tools = {"dataset": "rag_proguide_tools_sharegpt", "eval_dataset": "rag_proguide_tools_sharegpt_validation"}
    asked = (*world.words("smoke-cpu-dpo-lora", "tools", **tools), "--data", "data/tools", "--backend", "trl")
    strict = world.place / "models" / "strict"
    if not strict.exists():
        strict.mkdir()
        for file in world.tiny.iterdir():
            (strict / file.name).write_bytes(file.read_bytes())
    refusing = (
        "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}{% endfor %}"
    )
    (strict / "chat_template.jinja").write_text(refusing)
    done = world.run(*asked, "--set", f"model_name_or_path={json.dumps(str(strict))}")
    assert done.status == 1
    assert f"the chat template of {strict} refuses its turns: no tools" in done.err
    assert world.run(*asked).status == 0
    assert world.json("tools", "reasonrag.json")["asked"]["agent"] == ["tools"]
