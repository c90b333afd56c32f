"""`reasonrag train`: one training, or the stages of a recipe, by the settings of a user."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from reasonrag.errors import InputError
from reasonrag.progress import SilentWatcher
from reasonrag.settings import resolve
from reasonrag.signatures import public_call
from reasonrag.training.from_settings import (
    launch_options,
    permissions,
    recipe_plan,
    repeated_flags,
    resolve_settings,
)
from reasonrag.training.llamafactory.config_files import shipped_names
from reasonrag.training.prepare import prepare_training
from reasonrag.training.progress import TrainingWatcher
from reasonrag.training.settings import DPO_OF_A_RECIPE, TrainSettings
from reasonrag.training.stages.sft_dpo import sft_then_dpo
from reasonrag.training.stages.training import SlurmScript, TrainingResult, train_resolved, write_script


@public_call(TrainSettings)
def train(
    config: str | Path | None = None,
    *,
    dry_run: bool = False,
    watcher: TrainingWatcher | None = None,
    **flags: Any,
) -> TrainingResult:
    """Train a model on a data set with LLaMA-Factory.

    Raises InputError before anything is started, TrainingFailed if LLaMA-Factory exits with an error,
    KeyboardInterrupt after its process has ended: the same call resumes.

    Example:
        >>> reasonrag.train("qwen2.5-7b-dpo-lora", data="data/first", out="saves/first")  # doctest: +SKIP

    Args:
        config: a YAML file, or the bare name of a shipped one. None: `config` of reasonrag.toml.
        dry_run: report the resolved configuration and what would be refused, start nothing.
        watcher: is told what happens while it goes on; none: silent.
    """
    changes = flags.get("set")
    if isinstance(changes, Mapping):  # as Python would say it
        flags["set"] = [f"{key}={orjson.dumps(value).decode()}" for key, value in changes.items()]
    settings = resolve(TrainSettings, "train", flags | {"config": None if config is None else str(config)})
    watcher = watcher or SilentWatcher()
    if settings.recipe:
        plan = recipe_plan(settings)
        script = None
        if settings.slurm:
            words = repeated_flags(settings.config or DPO_OF_A_RECIPE, settings, data=plan.data.directory, out=plan.out)
            script = SlurmScript(settings.slurm, words)
        return sft_then_dpo(plan, watcher, dry_run=dry_run, script=script)
    if not settings.config:
        raise InputError(f"a configuration is needed: a YAML file, or one of {', '.join(shipped_names())}")
    launch = launch_options(settings)
    resolution, data = resolve_settings(settings.config, settings)
    permitted = permissions(settings)
    if settings.slurm and not dry_run:
        words = repeated_flags(settings.config, settings, data=data.directory, out=resolution.out)
        prepared = prepare_training(resolution, data, launch, permitted, strict=True)
        return write_script(prepared, SlurmScript(settings.slurm, words))
    return train_resolved(resolution, data, launch, permitted, watcher, dry_run=dry_run)
