"""What a training would find: the packages beside LLaMA-Factory, the GPUs that torch sees, those that the driver sees.

Judges nothing. LLaMA-Factory's own environment is asked by `inspection`, the driver here.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
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
_MIB = 2**20


class Gpu(BaseModel):
    """A GPU. memory: bytes in all. free: bytes that nobody uses, where the driver was asked. capability: of CUDA, where
    torch was asked."""

    model_config = ConfigDict(frozen=True)

    name: str
    memory: int
    free: int | None = None
    capability: tuple[int, int] | None = None


class BrokenPin(BaseModel):
    """A requirement of LLaMA-Factory that is not met. found: nothing where the package is missing."""

    pin: str
    found: str


class TrainingEnvironment(BaseModel):
    """Where LLaMA-Factory is. versions: of every package there, by names in small letters with hyphens."""

    python: str
    versions: dict[str, str]
    broken_pins: list[BrokenPin]
    cuda: str | None
    """Version that torch was built with."""
    devices: list[Gpu]
    torch_error: str | None

    def has(self, package: str) -> bool:
        return package in self.versions

    @property
    def named(self) -> dict[str, str]:
        """Versions that are told of a training."""
        return {name: self.versions[name] for name in REPORTED_PACKAGES if self.has(name)}


def required_packages(config: Mapping[str, Any]) -> dict[str, str]:
    """Packages that LLaMA-Factory does not bring and that keys of a configuration need, and which key."""
    wanted = {
        "deepspeed": ("deepspeed", bool(config.get("deepspeed"))),
        "bitsandbytes": ("quantization_bit", bool(config.get("quantization_bit"))),
        "liger-kernel": ("enable_liger_kernel", bool(config.get("enable_liger_kernel"))),
        "flash-attn": ("flash_attn", config.get("flash_attn") == "fa2"),
        "unsloth": ("use_unsloth", bool(config.get("use_unsloth"))),
    }
    return {package: f"{key}: {config[key]}" for package, (key, asked) in wanted.items() if asked}


def query_driver() -> list[Gpu] | None:
    """The GPUs that nvidia-smi lists, whatever CUDA_VISIBLE_DEVICES says; None where there is no driver."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    asked = [program, "--query-gpu=name,memory.total,memory.free", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=30, check=True)
        return parse_nvidia_smi(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def parse_nvidia_smi(answer: str) -> list[Gpu]:
    """Lines of `name, MiB in all, MiB free`. Raises ValueError for others."""
    found = []
    for line in filter(str.strip, answer.splitlines()):
        name, memory, free = (each.strip() for each in line.rsplit(",", 2))
        found.append(Gpu(name=name, memory=int(memory) * _MIB, free=int(free) * _MIB))
    return found


def host_memory(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """Bytes that this machine can still give; None where it does not say."""
    try:
        for line in meminfo.read_text("ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return None
