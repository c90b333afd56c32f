"""The machine a training would run on: packages in LLaMA-Factory's environment, GPUs seen by torch and by the driver.

Judges nothing. `llamafactory.inspection` asks LLaMA-Factory's environment; the driver is asked here.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
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
    cuda: str | None
    """CUDA version that torch was built with; null for a CPU build."""
    devices: list[Gpu]
    torch_error: str | None

    def has(self, package: str) -> bool:
        return package in self.versions

    @property
    def named(self) -> dict[str, str]:
        """The versions that a training records."""
        return {name: self.versions[name] for name in REPORTED_PACKAGES if self.has(name)}


def required_packages(config: Mapping[str, Any]) -> dict[str, str]:
    """Packages that LLaMA-Factory does not bring but a configuration needs, with the `key: value` that needs them."""
    wanted = {
        "deepspeed": ("deepspeed", bool(config.get("deepspeed"))),
        "bitsandbytes": ("quantization_bit", bool(config.get("quantization_bit"))),
        "liger-kernel": ("enable_liger_kernel", bool(config.get("enable_liger_kernel"))),
        "flash-attn": ("flash_attn", config.get("flash_attn") == "fa2"),
        "unsloth": ("use_unsloth", bool(config.get("use_unsloth"))),
    }
    return {package: f"{key}: {config[key]}" for package, (key, asked) in wanted.items() if asked}


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


def host_memory(root: Path = Path("/")) -> int | None:
    """Available memory of this machine in bytes, no more than its container or job may take; None if unknown."""
    try:
        for line in (root / "proc/meminfo").read_text("ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return min([int(line.split()[1]) * 1024, *_cgroup_limits(root)])
    except (OSError, ValueError):
        pass
    return None


def _cgroup_limits(root: Path) -> Iterator[int]:
    """Memory limits in bytes of the control groups that this process is in, of version 2 and 1: a container's, a Slurm
    job's."""
    groups = root / "sys/fs/cgroup"
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text("utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers in ("", "memory"):
                top, name = (groups / "memory", "memory.limit_in_bytes") if controllers else (groups, "memory.max")
                group = top / path.strip("/")
                for place in (group, *group.parents)[: len(group.parts) - len(top.parts) + 1]:
                    with suppress(OSError, ValueError):  # a group out of sight; the word `max`
                        yield int((place / name).read_text("ascii"))
