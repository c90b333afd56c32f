"""From settings of `train` to its configuration, data and machines, and back to flags for a batch job.

Does not know what is checked before a training starts.
"""

from __future__ import annotations

from pathlib import Path

from reasonrag.errors import InputError
from reasonrag.training.llamafactory.config_files import find_config, parse_changes
from reasonrag.training.llamafactory.config_resolution import ResolvedConfig, resolve_config
from reasonrag.training.llamafactory.dataset_info import TrainingData, read_training_data
from reasonrag.training.llamafactory.launcher import Launch, parse_master
from reasonrag.training.settings import TrainSettings


def resolve_settings(config: str, settings: TrainSettings) -> tuple[ResolvedConfig, TrainingData]:
    """The configuration, resolved against the data. Raises InputError."""
    if settings.data is None:
        raise InputError("--data is needed: a folder that reasonrag pairs wrote")
    file, changes = find_config(config), parse_changes(settings.set)
    data = read_training_data(settings.data)
    return resolve_config(file, changes, data, out=settings.out), data


def launch_options(settings: TrainSettings) -> Launch:
    master = parse_master(settings.master, settings.nodes if not (settings.slurm or settings.ray) else 1)
    if settings.slurm and settings.ray:
        raise InputError("--slurm and --ray exclude each other: a Ray cluster is there already")
    if settings.nodes > 1 and settings.node_rank is None and not (settings.slurm or settings.ray):
        raise InputError("--nodes needs --node-rank, the number of this machine: 0 on the first, 1 on the next")
    if (settings.node_rank or 0) >= settings.nodes:
        raise InputError(
            f"--node-rank {settings.node_rank}: of {settings.nodes} machines the last is {settings.nodes - 1}"
        )
    return Launch(settings.nodes, settings.node_rank or 0, master, settings.gpus_per_node, settings.ray)


def repeated_flags(config: str, settings: TrainSettings, *, data: Path, out: Path) -> list[str]:
    """The flags of `train` that a batch job repeats, without those about machines."""
    place = Path(config)
    words = [str(place.resolve()) if place.is_file() else config, "--data", str(data.resolve()), "--out", str(out)]
    for flag, values in (("--set", settings.set), ("--allow", settings.allow), ("--allow-eval", settings.allow_eval)):
        words += [word for value in values for word in (flag, value)]
    return words + (["--prompts", str(settings.prompts.resolve())] if settings.prompts else [])
