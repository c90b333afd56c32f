"""What tests of critics share: a data set of atlas, a tiny Qwen2, and critics of it, each trained once.

Made by commands in processes of their own, in the environment of the tests. It has torch and TRL where `make test-all`
ran; elsewhere the tests are skipped, visibly.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import reasonrag
from tests.helpers.shared import Shared
from tests.helpers.training_world import World, make_tiny_qwen2

SMALL = ("max_steps=4", "logging_steps=1", "save_steps=2", "eval_steps=4")
"""On top of the shipped configuration for the CPU."""


class CriticWorld(World):
    """A folder with runs/a, data/a, models/tiny-qwen2 and critics/, in which commands run."""

    def critic(self, name: str) -> Path:
        return self.place / "critics" / name

    def trained(self, name: str, *changes: str) -> Path:
        """A critic of the data set, trained once for all test processes."""
        done = self.once(name, lambda: self.run(*self.training(name, *changes)))
        assert done.status == 0, done.err
        return self.critic(name)

    def training(self, name: str, *changes: str) -> list[object]:
        changed = dict(change.split("=", 1) for change in (*SMALL, *changes))
        sets = [word for key, value in changed.items() for word in ("--set", f"{key}={value}")]
        return ["train-critic", "smoke-cpu", "--data", "data/a", "--out", f"critics/{name}", *sets]


def _make() -> None:
    reasonrag.generate(dataset="atlas", limit=16, run="runs/a")
    reasonrag.generate(dataset="atlas", split="dev", limit=6, run="runs/dev")
    reasonrag.pairs("runs/a", out="data/a", format=["reward"], validation=0.25)
    make_tiny_qwen2(Path(sys.executable))


def make_critic_world(shared: Shared) -> CriticWorld:
    for package in ("torch", "trl"):
        if find_spec(package) is None:
            pytest.skip(f"no {package} here (pip install 'reasonrag[rl]'; make test-all has it)")
    return CriticWorld(shared.folder("critic-world", _make), None)
