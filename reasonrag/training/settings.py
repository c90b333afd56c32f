"""Settings of `train` and `doctor`, and their defaults."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from reasonrag.settings import Panel, Places, Settings, Words, setting

PORT: Final = 29500
"""torchrun's own default for the first machine."""


class TrainSettings(Settings):
    """Settings of `train`."""

    config: str | None = setting("A YAML file of LLaMA-Factory's arguments, or the name of a shipped one")
    data: Path | None = setting("Data set to train on: a directory of reasonrag pairs", Panel.TRAINING, common=True)
    out: Path | None = setting(
        "Directory of the trained model, output_dir [default: saves/<data>-<config>]", Panel.TRAINING, common=True
    )
    set: Words = setting(
        "key=value: set a key of the configuration, as YAML; null removes it. Repeatable",
        Panel.TRAINING,
        default=[],
        common=True,
    )
    prompts: Path | None = setting(
        "Directory of your own prompts, if the data were made with them [default: those of imported data, else ours]",
        Panel.CHECKS,
    )
    allow: Words = setting("Train in spite of this objection, by its name; repeatable", Panel.CHECKS, default=[])
    allow_eval: Words = setting(
        "Train on questions of this evaluation split, as dataset/split, or all; repeatable", Panel.CHECKS, default=[]
    )
    nodes: int = setting(
        "Number of machines; run the same command on each", Panel.MACHINES, default=1, ge=1, common=True
    )
    node_rank: int | None = setting(
        "Rank of this machine, from 0 [default: 0 if there is one machine]", Panel.MACHINES, ge=0
    )
    master: str | None = setting(f"HOST or HOST:PORT of machine 0 [default port: {PORT}]", Panel.MACHINES)
    gpus_per_node: int | None = setting(
        "Processes per machine, one per GPU [default: all its GPUs]", Panel.MACHINES, ge=1
    )
    slurm: Path | None = setting(
        "Write a batch script for Slurm to this file, without training", Panel.MACHINES, common=True
    )
    ray: bool = setting(
        "Train on a Ray cluster: one worker per GPU, --nodes x --gpus-per-node", Panel.MACHINES, default=False
    )
    merge: Path | None = setting(
        "Merge this adapter into its base model instead of training; with --out", Panel.TRAINING, common=True
    )


class DoctorSettings(Settings):
    """Settings of `doctor`."""

    data: Path | None = setting("Data set to train on: a directory of reasonrag pairs")
    out: Path | None = setting("Directory of the trained model, whose disk needs space [default: the configuration's]")
    index: Places = setting("Index to check, as it would be used with the model; repeatable", default=[])
    prompts: Path | None = setting("Directory of your own prompts, as they would be used with the model")
    model: str | None = setting(
        "Folder of the model, or the name of a Qwen2.5 [default: the configuration's, else Qwen2.5-7B-Instruct]",
        Panel.HARDWARE,
    )
    set: Words = setting(
        "key=value: set a key of the configuration, as for train; repeatable", Panel.HARDWARE, default=[]
    )
    gpus: int | None = setting(
        "Plan for this number of GPUs in all [default: those of this machine, else 1]", Panel.HARDWARE, ge=1
    )
    gpu_memory: float | None = setting(
        "Plan for GPUs with this memory, in GB as cards are sold [default: those of this machine, else 80]",
        Panel.HARDWARE,
        gt=0,
    )
