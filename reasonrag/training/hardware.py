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
    "deepspeed": "'deepspeed>=0.10.0,<=0.18.4'",
    "quantization_bit": "bitsandbytes",
    "enable_liger_kernel": "liger-kernel",
    "flash_attn": "flash-attn",
    "use_unsloth": "unsloth",
}
"""What to give to pip for packages that LLaMA-Factory does not bring, by the key that needs them. It is reported to
work with these versions of deepspeed: its package does not say so, and at its start it asks only if one is there."""


def required_packages(config: Mapping[str, Any]) -> dict[str, str]:
    """What to give to pip for packages that a configuration needs, by the `key: value` that needs them."""
    asked = {key: config[key] for key in _NEEDED if config.get(key)}
    return {f"{key}: {value}": _NEEDED[key] for key, value in asked.items() if key != "flash_attn" or value == "fa2"}


def lacks(stock: TrainingEnvironment, requirement: str) -> str | None:
    """Why an environment does not meet what is given to pip; None if it does."""
    package, *bounds = re.findall(r"[a-z-]+|[\d.]+", requirement)
    if (there := stock.versions.get(package)) is None:
        return f"no_{package.replace('-', '_')}"
    numbers = [tuple(int(each) for each in re.findall(r"\d+", text)[:3]) for text in (*bounds[:1], there, *bounds[1:])]
    return None if numbers == sorted(numbers) else f"{package}_version"


def query_driver() -> list[Gpu]:
    """The GPUs that nvidia-smi lists, regardless of CUDA_VISIBLE_DEVICES; none without a driver."""
    asked = ["nvidia-smi", "--query-gpu=name,memory.total,memory.free", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=30, check=True)
        lines = (line.rsplit(",", 2) for line in done.stdout.splitlines() if line.strip())
        return [Gpu(name=name, memory=int(size) * _MIB, free=int(free) * _MIB) for name, size, free in lines]
    except (OSError, subprocess.SubprocessError, ValueError):
        return []
