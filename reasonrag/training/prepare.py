"""Everything that is checked before a training starts: from a resolved configuration to a command to launch.

Decides the order of the checks, the cheapest first. The checks themselves are in `preflight_checks`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from reasonrag.agent.prompting import Prompts
from reasonrag.curation.publish_blockers import Blocker
from reasonrag.errors import ReasonragError
from reasonrag.files import file_digest
from reasonrag.processes.children import find_python
from reasonrag.progress import JobWatcher
from reasonrag.run_config import config_hash
from reasonrag.training.llamafactory.config_resolution import (
    OPERATIONAL,
    ResolvedConfig,
    describe_batch,
    trainings_before,
)
from reasonrag.training.llamafactory.dataset_info import TrainingData, count_rows
from reasonrag.training.llamafactory.inspection import inspect_environment
from reasonrag.training.llamafactory.launcher import Launch, cli_command, launch_variables
from reasonrag.training.output_directory import TRAIN_YAML, OutputDirectory, TrainingRecord
from reasonrag.training.preflight_checks import (
    CheckedData,
    Permissions,
    PreflightFindings,
    check_config,
    check_config_accepted,
    check_data,
    check_packages,
    resolve_cutoff,
)
from reasonrag.training.provenance import Provenance


@dataclass(frozen=True)
class TrainingJob:
    """What the trainings of a command share."""

    data: TrainingData
    launch: Launch
    permitted: Permissions
    watcher: JobWatcher


@dataclass
class Startable:
    """A training that may be started. prompts: see `CheckedData`. objections: blockers that remain, in a dry run."""

    record: TrainingRecord
    provenance: Provenance
    prompts: Prompts | None
    objections: Sequence[Blocker]


def prepare_training(resolution: ResolvedConfig, job: TrainingJob, *, strict: bool) -> Startable:
    """Check everything. strict: refuse while blockers remain. Raises InputError, and ReasonragError where LLaMA-Factory
    itself does not work."""
    data, launch, found = job.data, job.launch, PreflightFindings(job.permitted)
    config, decides = resolution.config, identity_of(resolution, data)
    checked = check_data(config, resolution.entries, data, found)
    check_config(config, checked.base_model, found)
    if strict:  # at once, before LLaMA-Factory takes its time to be asked
        found.refuse()
    before = OutputDirectory(resolution.out).check(decides)
    try:
        python = find_python()
        inspection = inspect_environment(python, {"train": (config, resolution.countable)})
    except ReasonragError as error:
        raise type(error)(f"{error}. `reasonrag doctor CONFIG` checks the rest without it") from None
    stock, judgement, gpus = inspection.stock, inspection.configs["train"], len(inspection.stock.devices)
    check_packages(config, stock, found)
    check_config_accepted(config, judgement, found)
    lengths = resolve_cutoff(resolution, data, judgement, found)
    if before and not resolution.chosen_cutoff and "cutoff_len" in before.resolved:
        config["cutoff_len"] = before.resolved["cutoff_len"]  # one training has one, whatever counts now
    if strict:
        found.refuse()
    processes = launch.nodes * (launch.gpus_per_node or gpus)  # 0: who will train has not been said
    record = TrainingRecord(
        config=resolution.name,
        decides=decides,
        config_hash=config_hash(decides),
        resolved=config,
        settings={"nodes": launch.nodes, "gpus_per_node": launch.gpus_per_node},
        data=_facts_of_data(resolution, data),
        lengths=lengths,
        notes=[*resolution.notes, *found.notes, describe_batch(config, processes)],
        command=cli_command(python, "train", resolution.out / TRAIN_YAML, {}),
        environment=launch_variables(launch, deepspeed=bool(config.get("deepspeed")), gpus=gpus),
        python=str(python),
        versions=stock.named | {"reasonrag": version("reasonrag")},
        gpus=[each.name for each in stock.devices],
    )
    return startable(record, checked, found, finetuning_type=str(config["finetuning_type"]))


def startable(
    record: TrainingRecord, checked: CheckedData, found: PreflightFindings, *, finetuning_type: str
) -> Startable:
    """Fills in what was set aside, and says of the model what the record says of its training."""
    allow, allow_eval = found.permitted.allow, found.permitted.allow_eval
    standing = [each for each in found.objections if not each.allowed(allow, allow_eval)]
    record.set_aside = [f"{each.flag} {each.name}" for each in found.objections if each not in standing]
    provenance = Provenance(
        base_model=str(record.resolved["model_name_or_path"]),
        stage=record.data["stage"],
        finetuning_type=finetuning_type,
        asked=checked.conditions,
        data=[record.data["directory"]],
        splits=list(checked.by_split),
        questions=list(checked.questions),
        config_hash=record.config_hash,
        versions=record.versions,
    )
    return Startable(record, provenance.after(trainings_before(record.resolved)), checked.prompts, standing)


def _facts_of_data(resolution: ResolvedConfig, data: TrainingData) -> dict[str, Any]:
    entry, validation = resolution.entry, resolution.validation
    return {
        "directory": str(data.directory.resolve()),
        "stage": resolution.stage,
        "dataset": entry.name,
        "eval_dataset": validation.name if validation else None,
        "rows": count_rows(entry),
        "eval_rows": count_rows(validation) if validation else None,
        "sha256": data.hashes(resolution.entries),
    }


def identity_of(resolution: ResolvedConfig, data: TrainingData) -> dict[str, Any]:
    """What makes it this training, as far as it is known before LLaMA-Factory is asked: a cutoff that follows from the
    rows is no part of it. A base model that was trained again under the same path makes another training."""
    found = {key: value for key, value in resolution.config.items() if key not in OPERATIONAL}
    deepspeed = found.get("deepspeed")
    if isinstance(deepspeed, str) and Path(deepspeed).is_file():
        found["deepspeed"] = file_digest(Path(deepspeed))
    if not resolution.chosen_cutoff:
        found["cutoff_len"] = "of the rows"
    bases = [known.config_hash for known in trainings_before(resolution.config)]
    found |= {"base_trained_by": bases} if bases else {}
    return found | {"data": data.hashes(resolution.entries)}
