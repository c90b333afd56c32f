"""`reasonrag train`: one training, or the stages of a recipe, by the settings of a user."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reasonrag.errors import InputError
from reasonrag.progress import JobWatcher, SilentWatcher
from reasonrag.settings import flags_given, resolve
from reasonrag.signatures import public_call
from reasonrag.training.llamafactory.config_files import changes_of, find_config
from reasonrag.training.llamafactory.config_resolution import resolve_config
from reasonrag.training.llamafactory.dataset_info import read_training_data
from reasonrag.training.llamafactory.launcher import Launch
from reasonrag.training.preflight_checks import Permissions
from reasonrag.training.prepare import TrainingJob, prepare_training
from reasonrag.training.settings import DPO_OF_A_RECIPE, TrainSettings
from reasonrag.training.stages.sft_dpo import plan_recipe, sft_then_dpo
from reasonrag.training.stages.slurm import SlurmScript, write_script
from reasonrag.training.stages.training import TrainingResult, given, train_resolved
from reasonrag.training.stages.trl_backend import train_by_trl

_NOT_REPEATED = ("config", "slurm", "nodes", "node_rank", "master", "gpus_per_node")


@public_call(TrainSettings)
def train(
    config: str | Path | None = None, *, dry_run: bool = False, watcher: JobWatcher | None = None, **flags: Any
) -> TrainingResult:
    """Train a model on a data set with LLaMA-Factory, or with TRL.

    Raises InputError before anything is started, TrainingFailed if the trainer exits with an error,
    KeyboardInterrupt after its process has ended: the same call resumes.

    Example:
        >>> reasonrag.train("qwen2.5-7b-dpo-lora", data="data/first", out="saves/first")  # doctest: +SKIP

    Args:
        config: a YAML file, or the bare name of a shipped one. None: `config` of reasonrag.toml.
        dry_run: report the resolved configuration and what would be refused, start nothing.
        watcher: is told what happens while it goes on; none: silent.
    """
    settings = resolve(TrainSettings, "train", given(config, flags))
    if settings.merge:
        raise InputError("--merge trains nothing: merge on the command line; a recipe merges by itself")
    file = find_config(settings.config or (DPO_OF_A_RECIPE if settings.recipe else None))
    here = settings.slurm is None
    launch = Launch.of(settings.nodes, settings.node_rank, settings.master, settings.gpus_per_node, here=here)
    permitted = Permissions(settings.prompts, settings.allow, settings.allow_eval)
    job = TrainingJob(read_training_data(settings.data), launch, permitted, watcher or SilentWatcher())

    if settings.backend == "trl" and (settings.recipe or settings.slurm or settings.nodes > 1):
        raise InputError("--backend trl makes one training on one machine: leave out --recipe, --slurm and --nodes")
    if settings.recipe:
        plan = plan_recipe(file, settings.set, job, out=settings.out)
        return sft_then_dpo(plan, dry_run=dry_run, script=_script(settings, plan.out))
    changes = changes_of(settings.set)
    if settings.backend == "trl":
        return train_by_trl(file, changes, job, out=settings.out, dry_run=dry_run)
    resolution = resolve_config(file, changes, job.data, out=settings.out)
    if (asked := _script(settings, resolution.out)) and not dry_run:
        return write_script(prepare_training(resolution, job, strict=True), launch, asked)
    return train_resolved(resolution, job, dry_run=dry_run)


def _script(settings: TrainSettings, out: Path) -> SlurmScript | None:
    """The batch script that is asked for: the flags of this call, without those about machines."""
    if settings.slurm is None:
        return None
    config = Path(settings.config or DPO_OF_A_RECIPE)
    places = {name: place.resolve() for name in ("data", "prompts") if (place := getattr(settings, name))}
    flags = flags_given(settings.model_copy(update=places | {"out": out}), without=_NOT_REPEATED)
    return SlurmScript(settings.slurm, [str(config.resolve() if config.is_file() else config), *flags])
