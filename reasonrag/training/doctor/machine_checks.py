"""Checks of the machine: packages, GPUs, disk space.

Knows the keys of LLaMA-Factory's configuration; nothing of data.
"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from reasonrag.training import preflight_checks
from reasonrag.training.doctor.findings import CheckupSeverity, Finding
from reasonrag.training.doctor.memory import GB
from reasonrag.training.hardware import REPORTED_PACKAGES, Gpu, TrainingEnvironment
from reasonrag.training.preflight_checks import PreflightFindings

EXTRAS: Final = ("deepspeed", "bitsandbytes", "flash-attn", "liger-kernel")
BF16_CAPABILITY: Final = (8, 0)
"""CUDA compute capability of Ampere, the first with bf16 matrix units."""
MIN_FREE_SHARE: Final = 0.9
"""Share of free memory below which a GPU counts as in use."""


def check_packages(stock: TrainingEnvironment, config: Mapping[str, Any], *, here: bool) -> list[Finding]:
    """here: whether this is the machine that would train."""
    found = [Finding("packages", "versions", "ok", _versions(stock))]
    if stock.torch_error:
        says = f"torch cannot be imported beside LLaMA-Factory: {stock.torch_error}"
        advice = "rebuild the environment: rm -r .venv-train, then make train-env"
        found.append(Finding("packages", "torch", "error", says, advice))
    if not stock.has("llamafactory"):
        says = f"Python {stock.python} there has no LLaMA-Factory"
        advice = "make train-env builds .venv-train; or let REASONRAG_TRAIN_PYTHON name a Python that has it"
        found.append(Finding("packages", "llamafactory", "error", says, advice))
    lacking = PreflightFindings()
    preflight_checks.check_packages(config, stock, lacking)
    severity: CheckupSeverity = "error" if here else "warning"
    return found + [Finding("packages", each.name, severity, each.what) for each in lacking.objections]


def _versions(stock: TrainingEnvironment) -> str:
    there = [
        f"{name} {stock.versions[name]}" for name in dict.fromkeys((*REPORTED_PACKAGES, *EXTRAS)) if stock.has(name)
    ]
    absent = [name for name in EXTRAS if not stock.has(name)]
    without = f"; without {', '.join(absent)}" if absent else ""
    return f"Python {platform.python_version()} here; there Python {stock.python}, {', '.join(there)}{without}"


def check_gpus(
    stock: TrainingEnvironment | None, driver: list[Gpu], config: Mapping[str, Any], *, elsewhere: bool
) -> list[Finding]:
    """Compare the GPUs of torch and of the driver, and check that they can do what the configuration asks for.

    elsewhere: whether the user named other GPUs to train on.
    """
    if config.get("use_cpu"):
        return []
    seen = stock.devices if stock else []
    if not seen and not driver:
        if elsewhere:
            return []
        advice = "say what you will train on: --gpus N --gpu-memory GB; or try a smoke-cpu configuration here"
        return [Finding("GPUs", "none", "warning", "there is no GPU here", advice)]
    if not seen:
        return [_unseen(stock, driver)]
    shown = ", ".join(f"{each.name} ({each.memory / GB:.0f} GB)" for each in seen)
    found = [Finding("GPUs", "devices", "ok", f"torch sees {len(seen)}: {shown}")]
    weak = [each.name for each in seen if each.capability and each.capability < BF16_CAPABILITY]
    if weak and (config.get("bf16") or config.get("pure_bf16")):
        says = f"{weak[0]} has no bf16, which the configuration asks for"
        found.append(Finding("GPUs", "bf16", "error", says, "--set bf16=false --set fp16=true"))
    busy = [each for each in driver if each.free is not None and each.free < MIN_FREE_SHARE * each.memory]
    if busy:
        says = f"{len(busy)} of the GPUs are in use: {busy[0].name} has {(busy[0].free or 0) / GB:.0f} GB free"
        advice = "nvidia-smi names the processes; CUDA_VISIBLE_DEVICES chooses others"
        found.append(Finding("GPUs", "busy", "warning", says, advice))
    return found


def _unseen(stock: TrainingEnvironment | None, driver: list[Gpu]) -> Finding:
    """The finding for GPUs that the driver has and torch does not see."""
    says = f"the driver has {len(driver)} x {driver[0].name}, and torch sees none"
    advice = (
        "the driver is older than torch's CUDA, or a container lacks the devices: compare nvidia-smi's CUDA version"
    )
    if stock is not None and stock.cuda is None:
        advice = "torch there is a build without CUDA: pip install --force-reinstall torch torchvision torchaudio"
    elif os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1"):
        advice = "unset CUDA_VISIBLE_DEVICES, which hides them all"
    return Finding("GPUs", "unseen", "error", says, advice)


def check_disk(place: Path, wanted: int, *, checkpoints: int, here: bool) -> Finding:
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
        return Finding("disk", "room", "error" if here else "note", says, advice)
    return Finding("disk", "room", "ok", says)
