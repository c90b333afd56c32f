"""Checks of the machine: packages, GPUs, environment variables, disk space.

Knows the keys of LLaMA-Factory's configuration; nothing of data.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from reasonrag.training.doctor.findings import CheckupFinding, CheckupSeverity, finding
from reasonrag.training.doctor.memory import GB
from reasonrag.training.hardware import REPORTED_PACKAGES, Gpu, TrainingEnvironment, required_packages, requirement

CHECKED_AT_START: Final = ("transformers", "datasets", "accelerate", "peft", "trl")
"""Packages whose versions LLaMA-Factory enforces at start; those of others it does not check."""
REMOVED_WITHOUT_GPU: Final = ("torchvision", "torchaudio")
"""Removed by `make train-env` on machines without a GPU: their builds need CUDA, and text does not need them."""
EXTRAS: Final = ("deepspeed", "bitsandbytes", "flash-attn", "liger-kernel")
BF16_CAPABILITY: Final = (8, 0)
"""CUDA compute capability of Ampere, the first with bf16 matrix units."""
MIN_FREE_SHARE: Final = 0.9
"""Share of free memory below which a GPU counts as in use."""
_ON: Final = ("1", "true", "y", "yes", "on")
_TRIPS: Final[Mapping[str, tuple[CheckupSeverity, str, str]]] = {
    "DISABLE_VERSION_CHECK": (
        "warning",
        "LLaMA-Factory starts with incompatible versions",
        "unset it, and make train-env instead",
    ),
    "ALLOW_EXTRA_ARGS": (
        "warning",
        "LLaMA-Factory silently ignores misspelled keys",
        "unset it",
    ),
    "ACCELERATE_USE_FSDP": (
        "error",
        "accelerate shards the model with FSDP, whatever the configuration says about DeepSpeed",
        "unset it",
    ),
    "ACCELERATE_USE_DEEPSPEED": (
        "warning",
        "accelerate takes DeepSpeed settings from the environment if the configuration has none",
        "unset it; `deepspeed` in the configuration is enough",
    ),
    "USE_MCA": ("error", "LLaMA-Factory trains by Megatron, with other arguments", "unset it"),
    "USE_V1": ("error", "LLaMA-Factory takes its other launcher, with other arguments", "unset it"),
    "USE_RAY": ("warning", "LLaMA-Factory wants a Ray cluster", "unset it"),
}
"""Environment variables that change a training: severity, effect, advice."""


def check_packages(stock: TrainingEnvironment, config: Mapping[str, Any], *, here: bool) -> list[CheckupFinding]:
    """here: whether this is the machine that would train."""
    found = [finding("packages", "versions", "ok", _versions(stock))]
    if stock.torch_error:
        says = f"torch cannot be imported beside LLaMA-Factory: {stock.torch_error}"
        advice = "rebuild the environment: rm -r .venv-train, then make train-env"
        found.append(finding("packages", "torch", "error", says, advice))
    if not stock.has("llamafactory"):
        says = f"Python {stock.python} there has no LLaMA-Factory"
        advice = "make train-env builds .venv-train; or let REASONRAG_TRAIN_PYTHON name a Python that has it"
        found.append(finding("packages", "llamafactory", "error", says, advice))
    needed = required_packages(config)
    for broken in stock.broken_pins:
        name = broken.name
        if name in REMOVED_WITHOUT_GPU and not broken.found and stock.cuda is None:
            continue
        stops = name in (*CHECKED_AT_START, "torch", "llamafactory") or (here and name in needed)
        severity: CheckupSeverity = "error" if stops else "warning"
        is_there = f"{name} {broken.found} is there" if broken.found else f"{name} is not there"
        says = f"LLaMA-Factory needs {broken.pin}, and {is_there}"
        advice = f"in its environment: pip install '{broken.pin}'; or make train-env"
        found.append(finding("packages", "pins", severity, says, advice))
    for package, key in needed.items():
        if not stock.has(package):
            says = f"the configuration has `{key}`, which needs {package}; it is not beside LLaMA-Factory"
            advice = f"in its environment: pip install {requirement(package)}; or --set {key.partition(':')[0]}=null"
            found.append(finding("packages", "missing", "error" if here else "warning", says, advice))
    return found


def _versions(stock: TrainingEnvironment) -> str:
    there = [
        f"{name} {stock.versions[name]}" for name in dict.fromkeys((*REPORTED_PACKAGES, *EXTRAS)) if stock.has(name)
    ]
    absent = [name for name in EXTRAS if not stock.has(name)]
    without = f"; without {', '.join(absent)}" if absent else ""
    return f"Python {platform.python_version()} here; there Python {stock.python}, {', '.join(there)}{without}"


def check_gpus(
    stock: TrainingEnvironment | None, driver: list[Gpu] | None, config: Mapping[str, Any], *, elsewhere: bool
) -> list[CheckupFinding]:
    """Compare the GPUs of torch and of the driver, and check that they can do what the configuration asks for.

    elsewhere: whether the user named other GPUs to train on.
    """
    if config.get("use_cpu"):
        return [finding("GPUs", "cpu", "ok", "the configuration trains on the CPU")]
    seen = stock.devices if stock else []
    if not seen and not driver and elsewhere:
        return [finding("GPUs", "none", "note", "there is no GPU here; planned for those named")]
    if not seen and not driver:
        advice = "say what you will train on: --gpus N --gpu-memory GB; or try a smoke-cpu configuration here"
        return [finding("GPUs", "none", "warning", "there is no GPU here", advice)]
    if not seen:
        return [_unseen(stock, driver or [])]
    shown = ", ".join(f"{each.name} ({each.memory / GB:.0f} GB)" for each in seen)
    found = [finding("GPUs", "devices", "ok", f"torch sees {len(seen)}: {shown}")]
    if driver and len(driver) > len(seen):
        variable = os.environ.get("CUDA_VISIBLE_DEVICES")
        says = f"the driver has {len(driver)} GPUs, torch sees {len(seen)} (CUDA_VISIBLE_DEVICES={variable})"
        found.append(finding("GPUs", "fewer", "note", says))
    weak = [each.name for each in seen if each.capability and each.capability < BF16_CAPABILITY]
    if weak and (config.get("bf16") or config.get("pure_bf16")):
        says = f"{weak[0]} has no bf16, which the configuration asks for"
        found.append(finding("GPUs", "bf16", "error", says, "--set bf16=false --set fp16=true"))
    busy = [each for each in driver or [] if each.free is not None and each.free < MIN_FREE_SHARE * each.memory]
    if busy:
        says = f"{len(busy)} of the GPUs are in use: {busy[0].name} has {(busy[0].free or 0) / GB:.0f} GB free"
        advice = "nvidia-smi names the processes; CUDA_VISIBLE_DEVICES chooses others"
        found.append(finding("GPUs", "busy", "warning", says, advice))
    return found


def _unseen(stock: TrainingEnvironment | None, driver: list[Gpu]) -> CheckupFinding:
    """The finding for GPUs that the driver has and torch does not see."""
    names = f"{len(driver)} x {driver[0].name}"
    if stock is not None and stock.cuda is None:
        says = f"the driver has {names}, and torch {stock.versions.get('torch', '')} is a build without CUDA"
        advice = "in the environment of LLaMA-Factory: pip install --force-reinstall torch torchvision torchaudio"
    elif os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1"):
        says = f"the driver has {names}, and CUDA_VISIBLE_DEVICES hides them all"
        advice = "unset CUDA_VISIBLE_DEVICES"
    else:
        says = f"the driver has {names}, and torch sees none"
        advice = (
            "the driver is older than torch's CUDA, or a container lacks the devices: compare nvidia-smi's CUDA version"
        )
    return finding("GPUs", "unseen", "error", says, advice)


def check_variables(environment: Mapping[str, str], config: Mapping[str, Any]) -> list[CheckupFinding]:
    """Environment variables that interfere with a training."""
    found = []
    for name, (severity, happens, advice) in _TRIPS.items():
        if environment.get(name, "").lower() in _ON:
            says = f"{name} is set: {happens}"
            found.append(finding("environment", name, severity, says, advice))
    reports = config.get("report_to", "all")
    if any(each.startswith("WANDB_") for each in environment) and reports in ("all", "wandb", ["wandb"]):
        says = "WANDB_.. is set and the configuration reports to it: without an API key the training waits for input"
        advice = "--set report_to=none, or log in first"
        found.append(finding("environment", "wandb", "warning", says, advice))
    return found


def check_model(model: str, environment: Mapping[str, str], *, here: bool) -> list[CheckupFinding]:
    """Whether a model from the Hub is cached here or can be downloaded."""
    if Path(model).expanduser().exists() or "/" not in model:
        return []
    home = Path(environment.get("HF_HOME") or "~/.cache/huggingface").expanduser()
    cache = Path(environment.get("HF_HUB_CACHE") or home / "hub")
    if (cache / f"models--{model.replace('/', '--')}").is_dir():
        return [finding("configuration", "model", "ok", f"{model} is in {cache}")]
    if environment.get("HF_HUB_OFFLINE", "").lower() in _ON:
        says = f"{model} is neither a folder nor in {cache}, and HF_HUB_OFFLINE prevents the download"
        advice = "unset HF_HUB_OFFLINE, or fetch it where there is a network: hf download " + shlex.quote(model)
        severity: CheckupSeverity = "error" if here else "warning"
        return [finding("configuration", "model", severity, says, advice)]
    says = f"{model} is not in {cache}: it will be downloaded from the Hub"
    return [finding("configuration", "model", "note", says)]


def check_disk(place: Path, wanted: int, *, checkpoints: int, here: bool) -> CheckupFinding:
    """Whether the disk has room for the model and its checkpoints, one more than are kept.

    wanted: total bytes. here: whether this is the machine that would train.
    """
    there = next(each for each in (place.absolute(), *place.absolute().parents) if each.exists())
    free = shutil.disk_usage(there).free
    says = (
        f"{place} takes {wanted / 1e9:,.1f} GB ({checkpoints} checkpoints and the model); {free / 1e9:,.0f} GB are free"
    )
    if free < wanted:
        advice = "another --out; or --set save_total_limit=1, --set save_only_model=true (which cannot resume)"
        return finding("disk", "room", "error" if here else "note", says, advice)
    return finding("disk", "room", "ok", says)
