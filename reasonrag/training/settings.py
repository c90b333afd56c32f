"""Settings of `train` and `doctor`, and their defaults."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from pydantic import Field

from reasonrag.settings import Panel, Places, Settings, Words

PORT: Final = 29500
"""torchrun's own default for the first machine."""


class TrainSettings(Settings):
    """Settings of `train`."""

    data: Annotated[Path | None, Panel.TRAINING] = Field(
        default=None, description="Data set to train on: a directory of reasonrag pairs"
    )
    out: Annotated[Path | None, Panel.TRAINING] = Field(
        default=None, description="Directory of the trained model, output_dir [default: saves/<data>-<config>]"
    )
    set: Annotated[Words, Panel.TRAINING] = Field(
        default=[], description="key=value: set a key of the configuration, as YAML; null removes it. Repeatable"
    )
    prompts: Annotated[Path | None, Panel.CHECKS] = Field(
        default=None, description="Directory of your own prompts, if the data were made with them"
    )
    allow: Annotated[Words, Panel.CHECKS] = Field(
        default=[], description="Train in spite of this objection, by its name; repeatable"
    )
    allow_eval: Annotated[Words, Panel.CHECKS] = Field(
        default=[], description="Train on questions of this evaluation split, as dataset/split, or all; repeatable"
    )
    nodes: Annotated[int, Panel.MACHINES] = Field(
        default=1, ge=1, description="Number of machines; run the same command on each"
    )
    node_rank: Annotated[int | None, Panel.MACHINES] = Field(
        default=None, ge=0, description="Rank of this machine, from 0 [default: 0 if there is one machine]"
    )
    master: Annotated[str | None, Panel.MACHINES] = Field(
        default=None, description=f"HOST or HOST:PORT of machine 0 [default port: {PORT}]"
    )
    gpus_per_node: Annotated[int | None, Panel.MACHINES] = Field(
        default=None, ge=1, description="Processes per machine, one per GPU [default: all its GPUs]"
    )
    slurm: Annotated[Path | None, Panel.MACHINES] = Field(
        default=None, description="Write a batch script for Slurm to this file, without training"
    )
    ray: Annotated[bool, Panel.MACHINES] = Field(
        default=False, description="Train on a Ray cluster: one worker per GPU, --nodes x --gpus-per-node"
    )
    merge: Annotated[Path | None, Panel.TRAINING] = Field(
        default=None, description="Merge this adapter into its base model instead of training; with --out"
    )


class DoctorSettings(Settings):
    """Settings of `doctor`."""

    data: Path | None = Field(default=None, description="Data set to train on: a directory of reasonrag pairs")
    out: Path | None = Field(
        default=None,
        description="Directory of the trained model, whose disk needs space [default: the configuration's]",
    )
    index: Places = Field(default=[], description="Index to check, as it would be used with the model; repeatable")
    prompts: Path | None = Field(
        default=None, description="Directory of your own prompts, as they would be used with the model"
    )
    model: Annotated[str | None, Panel.HARDWARE] = Field(
        default=None,
        description="Folder of the model, or the name of a Qwen2.5 [default: the configuration's, else "
        "Qwen2.5-7B-Instruct]",
    )
    set: Annotated[Words, Panel.HARDWARE] = Field(
        default=[], description="key=value: set a key of the configuration, as for train; repeatable"
    )
    gpus: Annotated[int | None, Panel.HARDWARE] = Field(
        default=None, ge=1, description="Plan for this number of GPUs in all [default: those of this machine, else 1]"
    )
    gpu_memory: Annotated[float | None, Panel.HARDWARE] = Field(
        default=None,
        gt=0,
        description="Plan for GPUs with this memory, in GB as cards are sold [default: those of this machine, else 80]",
    )
