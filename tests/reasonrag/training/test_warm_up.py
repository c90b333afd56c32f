"""The warm-up of our configurations is the share of all steps that they name, in every transformers that is allowed.

LLaMA-Factory 0.9.5 allows 4.55 to 5.6, and an environment has one of them. Another one is asked where TRAIN_PYTHON_4
names an interpreter that has transformers 4; its rule is held here in any case.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from reasonrag.training.llamafactory.config_resolution import with_warmup_ratio

ROOT = Path(__file__).parents[3]
CONFIGS = {
    path: settings
    for folder in ("train_configs", "benchmarks/loop_configs")
    for path in sorted((ROOT / folder).glob("*.yaml"))
    if "learning_rate" in (settings := yaml.safe_load(path.read_text("utf-8")))
}
STEPS = 1000
SHARES = {"dpo-full": 0.2, "dpo-full-offload": 0.2, "loop_configs/sft": 0.05}
"""Others: .1. ReasonRAG trains its DPO with .2."""
ASK = """
import json, sys, transformers
from transformers import TrainingArguments
found = {"version": transformers.__version__}
for name, settings in json.load(sys.stdin).items():
    arguments = TrainingArguments(output_dir="unused", use_cpu=True, **settings)
    found[name] = arguments.get_warmup_steps(1000)
print(json.dumps(found))
"""


def warm_up(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key.startswith("warmup")}


def expected(path: Path) -> int:
    name = f"{path.parent.name}/{path.stem}"
    [share] = [share for end, share in SHARES.items() if name.endswith(end)] or [0.1]
    return round(STEPS * share)


def steps_of_4(settings: Mapping[str, Any]) -> int:
    """TrainingArguments of transformers 4.55 to 4.57.6: `__post_init__` and `get_warmup_steps`."""
    steps, ratio = settings.get("warmup_steps", 0), settings.get("warmup_ratio", 0.0)
    if not isinstance(steps, int) or steps < 0:
        raise ValueError("warmup_steps must be of type int and must be 0 or a positive integer.")
    return steps if steps > 0 else math.ceil(STEPS * ratio)


def steps_of_5(settings: Mapping[str, Any]) -> int:
    """The same of transformers 5.0 to 5.6."""
    steps = settings["warmup_ratio"] if settings.get("warmup_ratio") is not None else settings.get("warmup_steps", 0)
    return int(steps) if steps >= 1 else math.ceil(STEPS * steps)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_a_warm_up_is_as_long_under_both_rules(path: Path) -> None:
    """A share stands in `warmup_ratio`, which both read."""
    settings = warm_up(CONFIGS[path])
    assert steps_of_4(settings) == steps_of_5(settings) == expected(path) > 0


@pytest.mark.parametrize("generation", ["4", "5"])
def test_transformers_itself_warms_up_as_long(generation: str, request: pytest.FixtureRequest) -> None:
    """Asked in the environment that has it; skipped, visibly, where there is none."""
    if generation == "5":
        python = str(request.getfixturevalue("train_python"))
    elif not (python := os.environ.get("TRAIN_PYTHON_4", "")):
        pytest.skip("no environment with transformers 4 (set TRAIN_PYTHON_4)")
    asked = {str(path): warm_up(settings) for path, settings in CONFIGS.items()} | {"steps": {"warmup_steps": 50}}
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [python, "-c", ASK],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
        env=environment | {"HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.strip().splitlines()[-1])
    assert found.pop("version").split(".")[0] == generation
    assert found == {str(path): expected(path) for path in CONFIGS} | {"steps": 50}


@pytest.mark.parametrize(
    ("config", "rewritten"),
    [
        ({"warmup_steps": 0.2}, {"warmup_ratio": 0.2}),
        ({"warmup_steps": 50}, {"warmup_steps": 50}),
        ({"warmup_steps": 0}, {"warmup_steps": 0}),
        ({"warmup_ratio": 0.1}, {"warmup_ratio": 0.1}),
        ({}, {}),
    ],
)
def test_a_share_in_an_older_configuration_becomes_a_ratio(config: dict[str, Any], rewritten: dict[str, Any]) -> None:
    """Files that were copied from ours before; whole steps stay what they are."""
    assert with_warmup_ratio(config | {"seed": 1}) == rewritten | {"seed": 1}
