"""The warm-up of our configurations is the share of all steps that they name, in every transformers that is allowed.

LLaMA-Factory 0.9.5 allows 4.55 to 5.6. What its parser makes of them under either is in
tests/end_to_end/test_llamafactory.py; this is without it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from reasonrag.training.llamafactory.config_resolution import with_warmup_ratio

ROOT = Path(__file__).parents[3]
CONFIGS = [each for folder in ("train_configs", "benchmarks/loop_configs") for each in (ROOT / folder).glob("*.yaml")]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_a_share_stands_in_warmup_ratio(path: Path) -> None:
    """Both versions of transformers read it; every configuration that trains has a warm-up."""
    settings = yaml.safe_load(path.read_text("utf-8"))
    assert "warmup_steps" not in settings
    assert ("warmup_ratio" in settings) is ("learning_rate" in settings)


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
