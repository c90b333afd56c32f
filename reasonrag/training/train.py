"""`reasonrag train`: one training, or the stages of a recipe, by the settings of a user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from reasonrag.errors import InputError
from reasonrag.progress import JobWatcher, SilentWatcher
from reasonrag.settings import resolve
from reasonrag.signatures import public_call
from reasonrag.training.llamafactory.config_files import changes_of, find_config, shipped_names
from reasonrag.training.llamafactory.config_resolution import resolve_config
from reasonrag.training.llamafactory.dataset_info import read_training_data
from reasonrag.training.llamafactory.launcher import Launch
from reasonrag.training.llamafactory.slurm import SlurmScript
from reasonrag.training.prepare import Permissions, TrainingJob, prepare_training
from reasonrag.training.settings import DPO_OF_A_RECIPE, TrainSettings
from reasonrag.training.stages.sft_dpo import plan_recipe, sft_then_dpo
from reasonrag.training.stages.training import TrainingResult, train_resolved, write_script


@public_call(TrainSettings)
def train(
    config: str | Path | None = None,
    *,
    dry_run: bool = False,
    watcher: JobWatcher | None = None,
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
    if settings.recipe and settings.merge:
        raise InputError("--recipe and --merge exclude each other: a recipe merges by itself")
    chosen = settings.config or (DPO_OF_A_RECIPE if settings.recipe else None)
    if not chosen:
        raise InputError(f"a configuration is needed: a YAML file, or one of {', '.join(shipped_names())}")
    master, slurm = settings.master, settings.slurm
    launch = Launch.of(settings.nodes, settings.node_rank, master, settings.gpus_per_node, here=slurm is None)
    if settings.data is None:
        raise InputError("--data is needed: a folder that reasonrag pairs wrote")
    file = find_config(chosen)
    permitted = Permissions(settings.prompts, tuple(settings.allow), tuple(settings.allow_eval))
    job = TrainingJob(read_training_data(settings.data), launch, permitted, watcher)

    def written(out: Path) -> SlurmScript | None:
        lists = {"--set": settings.set, "--allow": settings.allow, "--allow-eval": settings.allow_eval}
        places = {"--data": settings.data, "--prompts": settings.prompts, "--out": out}
        return SlurmScript(slurm, _words(chosen, places, settings.recipe, lists)) if slurm else None

    if settings.recipe:
        plan = plan_recipe(file, settings.set, job, out=settings.out)
        return sft_then_dpo(plan, dry_run=dry_run, script=written(plan.out))
    resolution = resolve_config(file, changes_of(settings.set), job.data, out=settings.out)
    if (script := written(resolution.out)) and not dry_run:
        return write_script(prepare_training(resolution, job, strict=True), script)
    return train_resolved(resolution, job, dry_run=dry_run)


def _words(
    config: str, places: Mapping[str, Path | None], recipe: str | None, lists: Mapping[str, Sequence[str]]
) -> list[str]:
    """The flags that a batch job repeats, without those about machines. lists: of flags that are repeatable."""
    words = [str(Path(config).resolve()) if Path(config).is_file() else config]
    words += [word for flag, place in places.items() if place for word in (flag, str(place.resolve()))]
    words += ["--recipe", recipe] if recipe else []
    return words + [word for flag, values in lists.items() for value in values for word in (flag, value)]
