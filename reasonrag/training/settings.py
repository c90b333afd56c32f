"""Settings of `train` and `doctor`, and their defaults."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field

from reasonrag.exploration.settings import GenerateSettings
from reasonrag.settings import COMMON, Changes, Opposite, Panel, PlaceOrName, Settings, Words, setting

DPO_OF_A_RECIPE: Final = "qwen2.5-7b-dpo-full"
"""The configuration of DPO where --recipe names none."""
CONFIG_OF_DOCTOR: Final = "qwen2.5-7b-dpo-lora"
"""What `doctor` checks where no configuration is named."""


class PermissionSettings(Settings):
    """What the user says of the checks of a training."""

    prompts: Path | None = setting(
        "Folder with the prompts of the data, if they are your own [default: those of imported data, else ours]",
        Panel.CHECKS,
    )
    allow: Words = setting("Train despite this objection, by its name; repeatable", Panel.CHECKS, default=[])
    allow_eval: Words = setting(
        "Train on questions of this evaluation split: dataset/split, or all; repeatable", Panel.CHECKS, default=[]
    )


class TrainSettings(PermissionSettings):
    config: str | None = setting("A YAML file of LLaMA-Factory's arguments, or the name of a shipped one")
    recipe: Literal["sft-dpo"] | None = setting(
        "Several trainings as one: sft-dpo fine-tunes on the best paths, then trains that model on the pairs by DPO; "
        f"CONFIG is that of DPO [default: {DPO_OF_A_RECIPE}]",
        Panel.TRAINING,
        common=True,
    )
    backend: Literal["llamafactory", "trl"] = setting(
        "What trains: LLaMA-Factory, in an environment of its own, or TRL, in this one (extra rl; stages sft and dpo)",
        Panel.TRAINING,
        default="llamafactory",
        common=True,
    )
    data: Path | None = setting(
        "Data set to train on: a folder written by pairs. Required, unless --merge is given",
        Panel.TRAINING,
        common=True,
    )
    out: Path | None = setting(
        "Folder of the trained model [default: saves/<data>-<config>]", Panel.TRAINING, common=True
    )
    set: Words = setting(
        "KEY=VALUE: change a key of the configuration, value as YAML; null removes the key; with --recipe, sft.KEY and "
        "dpo.KEY are for one training. Repeatable",
        Panel.TRAINING,
        default=[],
        common=True,
    )
    nodes: int = setting(
        "Number of machines; give the same command on each", Panel.MACHINES, default=1, ge=1, common=True
    )
    node_rank: int | None = setting(
        "Number of this machine, from 0 [default: 0 if there is one machine]", Panel.MACHINES, ge=0
    )
    master: str | None = setting(
        "HOST or HOST:PORT of the machine with --node-rank 0 [default port: 29500]", Panel.MACHINES
    )
    gpus_per_node: int | None = setting("Processes per machine, one per GPU [default: all GPUs]", Panel.MACHINES, ge=1)
    slurm: Path | None = setting("Write a Slurm batch script to this file; do not train", Panel.MACHINES, common=True)
    merge: Path | None = setting(
        "Merge this adapter into its base model, into --out; do not train", Panel.TRAINING, common=True
    )


class TrainPolicySettings(PermissionSettings):
    """Settings of `train-policy`; all but the number of folds are those of `train-critic`, too."""

    config: str | None = setting("A YAML file of the training, or the name of a shipped one")
    data: Path | None = setting(
        "Data set to train on: a folder written by pairs. Required", Panel.TRAINING, common=True
    )
    out: Path | None = setting("Folder of the model [default: policies/<data>]", Panel.TRAINING, common=True)
    set: Words = setting(
        "KEY=VALUE: change a key of the configuration, value as YAML; null removes the key. Repeatable",
        Panel.TRAINING,
        default=[],
        common=True,
    )


DRAWN_BY: Final = set(
    "dataset split limit sample data_dir questions corpus retriever index language encoder top_k max_passage_chars "
    "agent prompts style max_steps max_reply_tokens outcome set recipe seed extra_body reader_model".split()
)
"""Settings of `generate` that decide what a round draws."""
_HOW: Final = set(
    "run model price max_cost max_calls yes index_home gpu reader_base_url concurrency timeout max_wait".split()
)
NOT_OF_ROUNDS: Final = ["recipe", *(GenerateSettings.model_fields.keys() - DRAWN_BY - _HOW)]
"""Settings of `generate` that `rounds` gives itself, or reads in their table alone."""


class RoundsSettings(PermissionSettings):
    """Settings of `rounds`; how a round draws its attempts are settings of `generate`, which it reads as well."""

    config: str | None = setting("A YAML file of the training, or the name of a shipped one")
    run: Annotated[Path, Panel.TRAINING, COMMON] = Field(
        description="Folder of the rounds; those that were begun there go on"
    )
    model: Annotated[Path, Panel.TRAINING, COMMON] = Field(description="Folder of the model that draws in round 1")
    rounds: int = setting("Number of rounds; more than before go on", Panel.TRAINING, default=8, ge=1, common=True)
    group: int = setting(
        "Attempts at a question in a round, for --train policy and sft", Panel.TRAINING, default=8, ge=2, common=True
    )
    train: Literal["policy", "dpo", "kto", "sft"] = setting(
        "How a round learns: by policy gradients, or as train does from pairs, judged replies or best paths",
        Panel.TRAINING,
        default="policy",
        common=True,
    )
    critic: PlaceOrName | None = setting(
        "Critic that scores the steps: a folder, or a configuration of train-critic, by which each round trains two "
        "of its own pairs, one for the questions of the other",
        Panel.CRITIC,
        common=True,
    )
    allow_critic: Annotated[bool, Opposite(None)] = setting(
        "Use a critic although it failed its evaluation, or was trained on other prompts", Panel.CRITIC, default=False
    )
    set: Changes = setting(
        "KEY=VALUE: change a value of the recipe, as in search.expand=4; train.KEY and critic.KEY are keys of the "
        "configurations. Repeatable",
        Panel.TRAINING,
        default=[],
        common=True,
    )


class DoctorSettings(Settings):
    data: Path | None = setting("Data set to train on: a folder written by pairs")
    prompts: Path | None = setting("Folder with your own prompts, if the model will use them")
    set: Words = setting(
        "KEY=VALUE: change a key of the configuration, as for train; repeatable", Panel.HARDWARE, default=[]
    )
    gpus: int | None = setting(
        "Total number of GPUs to plan for [default: those of this machine, else 1]", Panel.HARDWARE, ge=1
    )
    gpu_memory: float | None = setting(
        "Memory per GPU to plan for, in GB as cards are sold [default: that of this machine, else 80]",
        Panel.HARDWARE,
        gt=0,
    )
