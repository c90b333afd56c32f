"""Everything that is checked before a training starts: from a resolved configuration to a command to launch.

Decides the order of the checks, the cheapest first. The checks themselves are in `preflight_checks`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from reasonrag.agent.prompting import Prompts, renderer_hash
from reasonrag.curation.blockers import Blocker, refuse_unless_allowed
from reasonrag.errors import ReasonragError
from reasonrag.processes.train_python import find_python
from reasonrag.run_config import config_hash
from reasonrag.training import preflight_checks
from reasonrag.training.hardware import TrainingEnvironment
from reasonrag.training.llamafactory.batch import describe_batch
from reasonrag.training.llamafactory.config_resolution import (
    ResolvedConfig,
    model_folders,
    training_identity,
)
from reasonrag.training.llamafactory.dataset_info import DatasetQuestions, TrainingData, count_rows
from reasonrag.training.llamafactory.inspection import Inspection, inspect_environment
from reasonrag.training.llamafactory.launcher import (
    Launch,
    check_no_spaces,
    cli_command,
    launch_variables,
)
from reasonrag.training.output_directory import TRAIN_YAML, OutputDirectory, TrainingRecord
from reasonrag.training.preflight_checks import PreflightFindings
from reasonrag.training.prompt_parity import prompts_of_training
from reasonrag.training.provenance import Provenance, TrainingConditions, read_provenance


@dataclass(frozen=True)
class Permissions:
    """What the user says of the checks. prompts: folder of the data's prompts, if they are his own. allow, allow_eval:
    objections and evaluation splits to go on despite."""

    prompts: Path | None = None
    allow: Sequence[str] = ()
    allow_eval: Sequence[str] = ()


@dataclass
class PreparedTraining:
    """A training that may be started. record: what `training.json` will say of it. prompts: what the model must be
    asked with, to be kept beside it; None where the data do not say. history: of the folders that it starts from,
    oldest first. gpus: how many this machine has. objections: blockers that remain, in a dry run."""

    resolution: ResolvedConfig
    launch: Launch
    record: TrainingRecord
    provenance: Provenance
    prompts: Prompts | None
    history: Sequence[Provenance]
    gpus: int
    objections: Sequence[Blocker]


def prepare_training(
    resolution: ResolvedConfig,
    data: TrainingData,
    launch: Launch,
    permitted: Permissions,
    *,
    strict: bool,
) -> PreparedTraining:
    """Check everything. strict: refuse while blockers remain. Raises InputError."""
    allow, allow_eval = permitted.allow, permitted.allow_eval
    decides = identity_of(resolution, data)
    prompts, chosen = prompts_of_training(data.directory, permitted.prompts)
    found = PreflightFindings()
    base, asked, conditions = preflight_checks.check_training(resolution, data, prompts, found)
    if strict:  # at once, before LLaMA-Factory takes its time to be asked
        refuse_unless_allowed(found.objections, allow=allow, allow_eval=allow_eval, therefore="not trained")
    before = OutputDirectory(resolution.out).check(decides)
    python, inspection = _inspected(resolution)
    stock, judgement = inspection.stock, inspection.configs["train"]
    processes = launch.nodes * (launch.gpus_per_node or len(stock.devices))  # 0: who will train has not been said
    preflight_checks.check_packages(resolution.config, stock, found)
    preflight_checks.check_config_accepted(resolution.config, judgement, found)
    lengths = preflight_checks.resolve_cutoff(resolution, data, judgement, found)
    if before and not resolution.chosen_cutoff and "cutoff_len" in before.resolved:
        resolution.config["cutoff_len"] = before.resolved["cutoff_len"]  # one training has one, whatever counts now
    if strict:
        refuse_unless_allowed(found.objections, allow=allow, allow_eval=allow_eval, therefore="not trained")
    batch = describe_batch(resolution.config, processes, count_rows(resolution.entry))
    standing = [each for each in found.objections if not each.allowed(allow, allow_eval)]
    provenance = _provenance(resolution, data, asked, TrainingConditions.of(conditions), decides=decides, stock=stock)
    provenance = provenance.after(base.came_from)
    record = TrainingRecord(
        state="started",
        config=resolution.name,
        decides=decides,
        config_hash=provenance.config_hash,
        resolved=resolution.config,
        settings={"nodes": launch.nodes, "gpus_per_node": launch.gpus_per_node},
        data=_facts_of_data(resolution, data),
        lengths=lengths,
        notes=[*resolution.notes, *found.notes, batch],
        set_aside=[f"{each.flag} {each.name}" for each in found.objections if each not in standing],
        command=cli_command(python, "train", resolution.out / TRAIN_YAML, {}),
        environment=launch_variables(
            launch, deepspeed=bool(resolution.config.get("deepspeed")), gpus=len(stock.devices)
        ),
        python=str(python),
        versions=provenance.versions,
        gpus=[each.name for each in stock.devices],
        started=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    check_no_spaces(record.command, record.environment, len(stock.devices))
    kept = prompts if chosen or conditions.renderer == renderer_hash(prompts) else None
    return PreparedTraining(resolution, launch, record, provenance, kept, base.came_from, len(stock.devices), standing)


def _provenance(
    resolution: ResolvedConfig,
    data: TrainingData,
    asked: DatasetQuestions,
    conditions: TrainingConditions,
    *,
    decides: dict[str, Any],
    stock: TrainingEnvironment,
) -> Provenance:
    return Provenance(
        base_model=resolution.base_model,
        stage=resolution.stage,
        finetuning_type=resolution.finetuning_type,
        asked=conditions,
        data=[str(data.directory.resolve())],
        splits=list(asked.by_split),
        questions=asked.keys,
        config_hash=config_hash(decides),
        versions=stock.named | {"reasonrag": version("reasonrag")},
    )


def _facts_of_data(resolution: ResolvedConfig, data: TrainingData) -> dict[str, Any]:
    entry, validation = resolution.entry, resolution.validation
    return {
        "directory": str(data.directory.resolve()),
        "stage": resolution.stage,
        "dataset": entry.name,
        "eval_dataset": validation.name if validation else None,
        "rows": count_rows(entry),
        "eval_rows": count_rows(validation) if validation else None,
        "sha256": row_file_hashes(resolution, data),
    }


def _inspected(resolution: ResolvedConfig) -> tuple[Path, Inspection]:
    """The Python that has LLaMA-Factory, and what it says. Raises InputError if there is none, and ReasonragError where
    LLaMA-Factory itself does not work there."""
    try:
        python = find_python()
        return python, inspect_environment(python, {"train": (resolution.config, resolution.countable)})
    except ReasonragError as error:
        raise type(error)(f"{error}. `reasonrag doctor CONFIG` checks the rest without it") from None


def identity_of(resolution: ResolvedConfig, data: TrainingData) -> dict[str, Any]:
    """What makes it this training, as far as it is known before LLaMA-Factory is asked: a cutoff that follows from the
    rows is no part of it. A base model that was trained again under the same path makes another training."""
    cutoff = {} if resolution.chosen_cutoff else {"cutoff_len": "of the rows"}
    hashes = [found.config_hash for folder in model_folders(resolution.config) if (found := read_provenance(folder))]
    identity = training_identity(resolution.config | cutoff, row_file_hashes(resolution, data))
    return identity | ({"base_trained_by": hashes} if hashes else {})


def row_file_hashes(resolution: ResolvedConfig, data: TrainingData) -> dict[str, str]:
    """SHA-256 of the row files in use, by name."""
    return {name: digest for entry in resolution.entries for name, digest in data.hashed(entry).items()}
