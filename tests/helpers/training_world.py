"""What tests of trainings share: a data set that `generate` and `pairs` made, a tiny Qwen2, and trainings of it.

Each is made once for all test processes, by whichever comes first, through the command line in a process of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

import reasonrag
from tests.helpers.command_line import Done
from tests.helpers.processes import Command, until
from tests.helpers.shared import Shared, held

ROOT = Path(__file__).parents[2]
SMALL: dict[str, Any] = {
    "max_steps": 3,
    "max_samples": 8,
    "gradient_accumulation_steps": 1,
    "logging_steps": 1,
    "eval_steps": 3,
    "plot_loss": False,
}
"""On top of the shipped smoke configurations."""


NOTHING_OBJECTED = "REASONRAG_TRAIN_PYTHON: there is no"
"""With what a training ends that nothing speaks against, where there is no LLaMA-Factory."""


def edited(path: Path, change: Callable[[Any], object]) -> None:
    """Change what a JSON file holds."""
    content = orjson.loads(path.read_bytes())
    change(content)
    path.write_bytes(orjson.dumps(content))


@dataclass(frozen=True)
class World:
    """A folder with runs/, data/, models/ and saves/, in which commands run."""

    place: Path
    python: Path | None
    """That has LLaMA-Factory."""

    @property
    def data(self) -> Path:
        return self.place / "data" / "a"

    @property
    def few(self) -> Path:
        return self.place / "data" / "few"

    @property
    def tiny(self) -> Path:
        return self.place / "models" / "tiny-qwen2"

    def saved(self, name: str) -> Path:
        return self.place / "saves" / name

    def start(self, *words: object, killed_at: str | None = None) -> Command:
        known = environment(self.place, self.python)
        return Command(*words, cwd=self.place, environment=known, killed_at=killed_at)

    def run(self, *words: object) -> Done:
        """`reasonrag ..` in a process of its own."""
        return ended(self.start(*words))

    def once(self, name: str, make: Callable[[], Done]) -> Done:
        """What a command left when it ran, which it does once for all test processes."""
        with held(self.place / f".{name}"):
            kept = self.place / f"{name}.json"
            if not kept.exists():
                kept.write_text(json.dumps(vars(make())))
            return Done(**json.loads(kept.read_text()))

    def words(self, config: str, name: str, **changes: object) -> list[object]:
        changed = SMALL | changes
        sets = [word for key, value in changed.items() for word in ("--set", f"{key}={json.dumps(value)}")]
        return ["train", config, "--data", "data/a", "--out", f"saves/{name}", *sets]

    def json(self, name: str, file: str) -> Any:
        return json.loads((self.saved(name) / file).read_text())


def environment(place: Path, python: Path | None) -> dict[str, str]:
    """Of a person with one CPU, no network, and nothing set."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("REASONRAG_", "OPENAI_"))}
    found = kept | {
        "PYTHONPATH": str(ROOT),
        "HF_HOME": str(place / "home"),
        "HF_HUB_OFFLINE": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    return found | ({"REASONRAG_TRAIN_PYTHON": str(python)} if python else {})


def ended(running: Command) -> Done:
    with running:
        return Done(running.wait(), running.out, " ".join(running.err.split()))


def interrupted(running: Command, when: Callable[[], bool]) -> Done:
    """Press Ctrl-C as soon as something is so."""
    until(lambda: running.poll() is not None or when())
    running.send_signal(signal.SIGINT)
    return ended(running)


def make_tiny_qwen2(python: Path) -> None:
    """models/tiny-qwen2 in the working directory."""
    script = ROOT / "tests" / "helpers" / "tiny_qwen.py"
    subprocess.run([str(python), str(script), "models/tiny-qwen2"], check=True, capture_output=True)


def make_data() -> None:
    """A data set of a run, in the formats of every stage; and a small one, which a model without sense continues in no
    time."""
    reasonrag.generate(dataset="atlas", limit=3, run="runs/few", max_reply_tokens=16)
    reasonrag.pairs("runs/few", out="data/few", format=["sft"], validation=0.34)
    reasonrag.generate(dataset="atlas", limit=16, run="runs/a")
    reasonrag.pairs("runs/a", out="data/a", format=["sft", "kto", "reward"], validation=0.25)


def make_world(shared: Shared, python: Path | None) -> World:
    """The data; the model where there is LLaMA-Factory. The first test that asks for a training adds it."""
    world = World(shared.folder("training-world", make_data), python)
    if python:
        tiny = shared.folder("tiny-qwen2", lambda: make_tiny_qwen2(python)) / "models" / "tiny-qwen2"
        with held(world.place / ".tiny"):
            if not world.tiny.exists():
                shutil.copytree(tiny, world.tiny)
    return world
