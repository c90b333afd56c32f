"""What a training would run on: packages and GPUs, and what LLaMA-Factory, transformers or TRL accepts there.

Decides how the questions are put: `inspection_script` runs there and answers. `preflight_checks` decides what follows.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Final

import orjson
from pydantic import BaseModel

from reasonrag.errors import ReasonragError
from reasonrag.processes.children import child_environment
from reasonrag.redaction import redact

LLAMA_FACTORY: Final = "LLaMA-Factory"
REPORTED_PACKAGES: Final = "llamafactory torch transformers trl peft accelerate datasets deepspeed".split()


class Gpu(BaseModel, frozen=True):
    """A GPU that torch sees. memory: total bytes. capability: CUDA compute capability."""

    name: str
    memory: int
    capability: tuple[int, int]


class TrainingEnvironment(BaseModel):
    """LLaMA-Factory's environment. versions: of every installed package, by lower-case names with hyphens."""

    python: str
    versions: dict[str, str]
    devices: list[Gpu]

    @property
    def named(self) -> dict[str, str]:
        """The versions that a training records."""
        return {name: self.versions[name] for name in REPORTED_PACKAGES if name in self.versions}


_PATIENCE = 1800.0
"""Timeout in seconds; tokens of a large data set are counted meanwhile."""


class ConfigCheck(BaseModel):
    """LLaMA-Factory's verdict on one configuration. error: why it would not train with it, in a sentence."""

    error: str | None = None
    chat_template: bool | None = None
    """Whether the model's tokenizer has one; null where the tokenizer is not on this machine."""
    split_specials: list[str] = []
    """Special tokens of the template that the tokenizer splits."""
    prompt: list[int] | None = None
    """Tokens of every row's prompt, in the trainer's template and the model's vocabulary; null if not counted."""
    reply: list[int] | None = None
    """Of its longer reply."""


class Inspection(BaseModel):
    """LLaMA-Factory's environment, and its verdict on each configuration. failure: why LLaMA-Factory does not work."""

    stock: TrainingEnvironment
    configs: dict[str, ConfigCheck]
    failure: str | None = None


class RowsToCount(BaseModel):
    """JSON files of rows, and which columns hold what."""

    files: list[str]
    system: str
    prompt: str
    history: str | None = None
    replies: list[str]


def inspect_environment(
    python: Path, configs: Mapping[str, tuple[Mapping[str, Any], RowsToCount | None]], by: str = LLAMA_FACTORY
) -> Inspection:
    """Inspect the environment and check configurations, by LLaMA-Factory, transformers or TRL. Raises ReasonragError if
    the interpreter does not answer, or has none that works."""
    job = {
        name: {"config": dict(config), "rows": rows.model_dump() if rows else None, "by": by}
        for name, (config, rows) in configs.items()
    }
    script = resources.files("reasonrag.training.llamafactory").joinpath("inspection_script.py").read_text("utf-8")
    with tempfile.TemporaryDirectory(prefix="reasonrag-") as place:
        answer = Path(place) / "answer.json"
        try:
            done = subprocess.run(
                [str(python), "-c", script, str(answer)],
                input=orjson.dumps(job),
                env=environment_of(python),
                cwd=place,
                capture_output=True,
                timeout=_PATIENCE,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ReasonragError(f"cannot inspect the environment of {python}: {error}") from error
        if done.returncode != 0 or not answer.is_file():
            last = "\n".join(done.stderr.decode(errors="replace").strip().splitlines()[-6:])
            raise ReasonragError(
                f"cannot inspect the environment of {python} (exit status {done.returncode}): {redact(last)}"
            )
        found = Inspection.model_validate_json(answer.read_bytes())
    if found.failure:
        helps = "make train-env builds it anew" if by == LLAMA_FACTORY else "pip install 'reasonrag[rl]'"
        raise ReasonragError(f"{by} does not work at {python}: {found.failure}; {helps}")
    return found


def environment_of(python: Path, *tokens: str) -> dict[str, str]:
    """Environment variables for its programs: they find each other, none of our packages, and no secrets but those
    whose names begin with one of `tokens`."""
    found = child_environment(*tokens)
    kept = {name: value for name, value in found.items() if name not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
    kept["PATH"] = f"{python.parent}{os.pathsep}{kept.get('PATH', os.defpath)}"
    return kept | {"MPLBACKEND": "agg", "TOKENIZERS_PARALLELISM": kept.get("TOKENIZERS_PARALLELISM", "false")}
