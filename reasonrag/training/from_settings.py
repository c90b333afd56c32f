"""From settings of `train` to its configuration, data and machines, and back to flags for a batch job.

Does not know what is checked before a training starts.
"""

from __future__ import annotations

from pathlib import Path

from reasonrag.errors import InputError
from reasonrag.training.llamafactory.config_files import find_config, parse_changes, shipped_names
from reasonrag.training.llamafactory.config_resolution import ResolvedConfig, resolve_config
from reasonrag.training.llamafactory.dataset_info import TrainingData, read_training_data
from reasonrag.training.llamafactory.launcher import Launch, parse_master
from reasonrag.training.prepare import Permissions
from reasonrag.training.settings import DPO_OF_A_RECIPE, TrainSettings
from reasonrag.training.stages.sft_dpo import RecipePlan


def resolve_settings(config: str, settings: TrainSettings) -> tuple[ResolvedConfig, TrainingData]:
    """The configuration, resolved against the data. Raises InputError."""
    if settings.data is None:
        raise InputError("--data is needed: a folder that reasonrag pairs wrote")
    file, changes = find_config(config), parse_changes(settings.set)
    data = read_training_data(settings.data)
    return resolve_config(file, changes, data, out=settings.out), data


def permissions(settings: TrainSettings) -> Permissions:
    return Permissions(settings.prompts, tuple(settings.allow), tuple(settings.allow_eval))


def recipe_plan(settings: TrainSettings) -> RecipePlan:
    """What `--recipe sft-dpo` trains, by which configurations. Raises InputError."""
    if settings.merge:
        raise InputError("--recipe and --merge exclude each other: a recipe merges by itself")
    launch = launch_options(settings)
    if launch.nodes > 1:
        raise InputError(
            "--recipe runs on one machine, where each stage finds what the one before it wrote; leave out --nodes"
        )
    if settings.data is None:
        raise InputError("--data is needed: a folder that reasonrag pairs wrote")
    data = read_training_data(settings.data)
    dpo = find_config(settings.config or DPO_OF_A_RECIPE)
    family, named, _ = dpo.name.removesuffix(".yaml").partition("-dpo")
    sft = f"{family}-sft"
    if not named or sft not in shipped_names():
        raise InputError(
            f"{dpo.name} is not the DPO configuration of a family that ships one of SFT; take "
            f"{', '.join(each for each in shipped_names() if '-dpo-' in each)}, and change its keys by --set dpo.KEY=.."
        )
    changes: dict[str, list[str]] = {"": [], "sft": [], "dpo": []}
    for each in settings.set:
        stage, _, key = each.partition(".")
        changes[stage if stage in ("sft", "dpo") else ""].append(key if stage in ("sft", "dpo") else each)
    both, of_sft, of_dpo = (parse_changes(changes[stage]) for stage in ("", "sft", "dpo"))
    for key in ("model_name_or_path", "adapter_name_or_path"):
        if key in of_dpo:
            raise InputError(f"--set dpo.{key}: with --recipe, DPO starts from what stage sft trained; give sft.{key}")
    of_dpo = {"adapter_name_or_path": None} | of_dpo if "adapter_name_or_path" in both else of_dpo
    return RecipePlan(
        data=data,
        out=(settings.out or Path("saves") / f"{data.directory.resolve().name}-{settings.recipe}").resolve(),
        sft=find_config(sft),
        dpo=dpo,
        sft_changes=both | of_sft,
        dpo_changes=both | of_dpo,
        launch=launch,
        permitted=permissions(settings),
    )


def launch_options(settings: TrainSettings) -> Launch:
    master = parse_master(settings.master, 1 if settings.slurm else settings.nodes)
    if settings.nodes > 1 and settings.node_rank is None and not settings.slurm:
        raise InputError("--nodes needs --node-rank, the number of this machine: 0 on the first, 1 on the next")
    if (settings.node_rank or 0) >= settings.nodes:
        raise InputError(
            f"--node-rank {settings.node_rank}: of {settings.nodes} machines the last is {settings.nodes - 1}"
        )
    return Launch(settings.nodes, settings.node_rank or 0, master, settings.gpus_per_node)


def repeated_flags(config: str, settings: TrainSettings, *, data: Path, out: Path) -> list[str]:
    """The flags of `train` that a batch job repeats, without those about machines."""
    place = Path(config)
    words = [str(place.resolve()) if place.is_file() else config, "--data", str(data.resolve()), "--out", str(out)]
    words += ["--recipe", settings.recipe] if settings.recipe else []
    for flag, values in (("--set", settings.set), ("--allow", settings.allow), ("--allow-eval", settings.allow_eval)):
        words += [word for value in values for word in (flag, value)]
    return words + (["--prompts", str(settings.prompts.resolve())] if settings.prompts else [])
