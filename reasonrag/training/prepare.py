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
from reasonrag.agent.protocols.known import renderer_hash
from reasonrag.curation.publish_blockers import Blocker, refuse_unless_allowed
from reasonrag.errors import ReasonragError
from reasonrag.files import file_digest
from reasonrag.llm.hermes import check_notation
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
    PreflightFindings,
    check_config,
    check_config_accepted,
    check_data,
    check_packages,
    resolve_cutoff,
)
from reasonrag.training.prompt_parity import prompts_of_training
from reasonrag.training.provenance import Provenance


@dataclass(frozen=True)
class Permissions:
    """What the user says of the checks. prompts: folder of the data's prompts, if they are his own. allow, allow_eval:
    objections and evaluation splits to go on despite."""

    prompts: Path | None = None
    allow: Sequence[str] = ()
    allow_eval: Sequence[str] = ()

    def refuse(self, found: Sequence[Blocker]) -> None:
        """Raises InputError for those that are not allowed."""
        refuse_unless_allowed(found, allow=self.allow, allow_eval=self.allow_eval, therefore="not trained")

    def standing(self, found: Sequence[Blocker]) -> list[Blocker]:
        """Those that are not allowed."""
        return [each for each in found if not each.allowed(self.allow, self.allow_eval)]


@dataclass(frozen=True)
class TrainingJob:
    """What the trainings of a command share."""

    data: TrainingData
    launch: Launch
    permitted: Permissions
    watcher: JobWatcher


@dataclass
class Startable:
    """A training that may be started. record: what `training.json` will say of it. prompts: what the model must be
    asked with, to be kept beside it; None where the data do not say. objections: blockers that remain, in a dry run."""

    record: TrainingRecord
    provenance: Provenance
    prompts: Prompts | None
    objections: Sequence[Blocker]


def prepare_training(resolution: ResolvedConfig, job: TrainingJob, *, strict: bool) -> Startable:
    """Check everything. strict: refuse while blockers remain. Raises InputError, and ReasonragError where LLaMA-Factory
    itself does not work."""
    data, launch, permitted = job.data, job.launch, job.permitted
    config, found, decides = resolution.config, PreflightFindings(), identity_of(resolution, data)
    prompts, chosen = prompts_of_training(data.directory, permitted.prompts, of_tools=resolution.entry.of_tools)
    if prompts.agent == "tools":
        check_notation(str(config["model_name_or_path"]), found.notes.append)
    base, questions, by_split, conditions = check_data(config, resolution.entries, data, prompts, found)
    check_config(config, base, found)
    if strict:  # at once, before LLaMA-Factory takes its time to be asked
        permitted.refuse(found.objections)
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
        permitted.refuse(found.objections)
    processes = launch.nodes * (launch.gpus_per_node or gpus)  # 0: who will train has not been said
    standing = permitted.standing(found.objections)
    provenance = Provenance(
        base_model=str(config["model_name_or_path"]),
        stage=resolution.stage,
        finetuning_type=str(config["finetuning_type"]),
        asked=conditions,
        data=[str(data.directory.resolve())],
        splits=list(by_split),
        questions=questions,
        config_hash=config_hash(decides),
        versions=stock.named | {"reasonrag": version("reasonrag")},
    )
    record = TrainingRecord(
        config=resolution.name,
        decides=decides,
        config_hash=provenance.config_hash,
        resolved=config,
        settings={"nodes": launch.nodes, "gpus_per_node": launch.gpus_per_node},
        data=_facts_of_data(resolution, data),
        lengths=lengths,
        notes=[*resolution.notes, *found.notes, describe_batch(config, processes)],
        set_aside=[f"{each.flag} {each.name}" for each in found.objections if each not in standing],
        command=cli_command(python, "train", resolution.out / TRAIN_YAML, {}),
        environment=launch_variables(launch, deepspeed=bool(config.get("deepspeed")), gpus=gpus),
        python=str(python),
        versions=provenance.versions,
        gpus=[each.name for each in stock.devices],
    )
    kept = prompts if chosen or conditions.renderer == renderer_hash(prompts) else None
    return Startable(record, provenance.after(base.came_from), kept, standing)


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
