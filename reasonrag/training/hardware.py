"""The machine a training would run on: packages in LLaMA-Factory's environment, GPUs seen by torch and by the driver.

Judges nothing. `llamafactory.inspection` asks LLaMA-Factory's environment; the driver is asked here.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

REPORTED_PACKAGES: Final = (
    "llamafactory",
    "torch",
    "transformers",
    "trl",
    "peft",
    "accelerate",
    "datasets",
    "deepspeed",
)
DEEPSPEED: Final = ((0, 10, 0), (0, 18, 4))
"""The oldest and the newest that LLaMA-Factory 0.9.5 is reported to work with. Its package does not say so, and when it
starts it asks only whether there is one."""
PORT: Final = 29500
"""torchrun's own default for the first of several machines."""
_MIB = 2**20


class Gpu(BaseModel):
    """A GPU. memory: total bytes. free: unused bytes, if the driver was asked. capability: CUDA compute capability, if
    torch was asked."""

    model_config = ConfigDict(frozen=True)

    name: str
    memory: int
    free: int | None = None
    capability: tuple[int, int] | None = None


class TrainingEnvironment(BaseModel):
    """LLaMA-Factory's environment. versions: of every installed package, by lower-case names with hyphens."""

    python: str
    versions: dict[str, str]
    devices: list[Gpu]
    """Those that torch sees."""

    def has(self, package: str) -> bool:
        return package in self.versions

    @property
    def named(self) -> dict[str, str]:
        """The versions that a training records."""
        return {name: self.versions[name] for name in REPORTED_PACKAGES if self.has(name)}


_NEEDED: Final = {
    "deepspeed": ("deepspeed", None),
    "quantization_bit": ("bitsandbytes", None),
    "enable_liger_kernel": ("liger-kernel", None),
    "flash_attn": ("flash-attn", "fa2"),
    "use_unsloth": ("unsloth", None),
}
"""Packages that LLaMA-Factory does not bring, by the key that needs them; of one only with a certain value."""


def required_packages(config: Mapping[str, Any]) -> dict[str, str]:
    """The packages that a configuration needs beside LLaMA-Factory, with the `key: value` that needs them."""
    asked = {key: config[key] for key in _NEEDED if config.get(key)}
    return {_NEEDED[key][0]: f"{key}: {value}" for key, value in asked.items() if _NEEDED[key][1] in (None, value)}


def requirement(package: str) -> str:
    """What to give to pip for a package of `required_packages`."""
    oldest, newest = (".".join(map(str, each)) for each in DEEPSPEED)
    return f"'deepspeed>={oldest},<={newest}'" if package == "deepspeed" else package


def suits(package: str, version: str) -> bool:
    """Whether LLaMA-Factory works with this version of a package of `required_packages`."""
    numbers = tuple(int(each) for each in re.findall(r"\d+", version)[:3])
    return package != "deepspeed" or DEEPSPEED[0] <= numbers <= DEEPSPEED[1]


def query_driver() -> list[Gpu]:
    """The GPUs that nvidia-smi lists, regardless of CUDA_VISIBLE_DEVICES; none without a driver."""
    asked = ["nvidia-smi", "--query-gpu=name,memory.total,memory.free", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=30, check=True)
        lines = (line.rsplit(",", 2) for line in done.stdout.splitlines() if line.strip())
        return [Gpu(name=name, memory=int(size) * _MIB, free=int(free) * _MIB) for name, size, free in lines]
    except (OSError, subprocess.SubprocessError, ValueError):
        return []
