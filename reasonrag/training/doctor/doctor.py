"""`reasonrag doctor`: what `train` would object to, whether this machine can train it, and a plan of the memory.

Refuses, objects and notes as `train --dry-run` does (`preflight_checks`); decides only what is wrong with the machine.
A configuration without a stage is one of `train-policy`, whose model is served before, or of `train-critic`, whose
memory is not planned; both train here.
Starts no training. Without a GPU here it plans for the GPUs named by flags, or for one of 80 GB, and says so.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ValidationError

from preference.records import first_error
from reasonrag.curation.audit.cutoffs import TRAINERS_DEFAULT
from reasonrag.errors import InputError, ReasonragError
from reasonrag.model_folder import read_json
from reasonrag.processes.children import find_python
from reasonrag.rendering import Part, Shown, Table, counted, written
from reasonrag.settings import resolve
from reasonrag.signatures import public_call
from reasonrag.training.doctor.memory import (
    GB,
    MemoryPlan,
    TrainingSetup,
    alternatives,
    longest_cutoff,
    plan_memory,
    rows_served,
)
from reasonrag.training.doctor.model_shapes import ModelShape, find_shape
from reasonrag.training.llamafactory.config_files import ConfigFile, changes_of, find_config
from reasonrag.training.llamafactory.config_resolution import (
    base_settings,
    describe_batch,
    resolve_config,
    without_evaluation,
)
from reasonrag.training.llamafactory.dataset_info import TrainingData, read_training_data
from reasonrag.training.llamafactory.foreign_settings import foreign_settings
from reasonrag.training.llamafactory.inspection import (
    LLAMA_FACTORY,
    ConfigCheck,
    Gpu,
    Inspection,
    RowsToCount,
    TrainingEnvironment,
    inspect_environment,
)
from reasonrag.training.policy.train import with_defaults
from reasonrag.training.preflight_checks import (
    Permissions,
    PreflightFindings,
    check_base_model,
    check_config,
    check_config_accepted,
    check_data,
    check_packages,
    resolve_cutoff,
)
from reasonrag.training.settings import CONFIG_OF_DOCTOR, DoctorSettings
from reasonrag.training.stages.trl import CRITIC, POLICY, Kind
from reasonrag.training.stages.trl_backend import can_train

GPU_MEMORY: Final = 80
"""The default to plan for without a GPU: an A100 or H100, in GB."""
BF16_CAPABILITY: Final = (8, 0)
"""CUDA compute capability of Ampere, the first with bf16 matrix units."""
_LONGEST: Final = 32_768
"""Tokens of a policy's rows where it has no max_length: those of Qwen2.5."""


@dataclass(frozen=True)
class Finding:
    """name: stable, for programs; of an objection the one that `--allow` takes."""

    name: str
    severity: Literal["error", "warning", "note"]
    says: str


class PlanningTarget(BaseModel, frozen=True):
    """The hardware to plan for. here: whether this machine would train."""

    gpus: int
    memory: int
    here: bool

    def __str__(self) -> str:
        return f"{self.gpus} x {self.memory / GB:.0f} GB"


class MemoryOption(BaseModel):
    """A way to train, and whether it fits. longest_cutoff: the largest cutoff_len that fits, 0 if none does."""

    plan: MemoryPlan
    fits: bool
    longest_cutoff: int


class Diagnosis(BaseModel, Shown):
    schema_version: str = "reasonrag.doctor/3"
    config: str
    model: str
    target: PlanningTarget
    findings: list[Finding]
    plans: list[MemoryOption]
    """The configured way, then alternatives, those that change least first; empty if the shape is not known."""
    stock: TrainingEnvironment | None

    @property
    def errors(self) -> list[Finding]:
        return [each for each in self.findings if each.severity == "error"]

    def shown(self) -> Iterator[Part]:
        """The findings, errors first, the memory plan, and the number of errors."""
        found = sorted(self.findings, key=lambda each: ("error", "warning", "note").index(each.severity))
        rows = [(each.severity, each.name, each.says) for each in found]
        yield Table("checkup", rows, ("", "name", "finding, and what to do"))
        if self.plans:
            yield self._memory()
            yield f"an estimate that assumes {self.plans[0].plan.training.assumed}"
            if not self.target.here:
                yield f"planned for {self.target}; change it with --gpus and --gpu-memory"
        yield counted(len(self.errors), "error")

    def _memory(self) -> Table:
        """A row for each kind of memory in use, a column for each way to train."""
        plans, training = [each.plan for each in self.plans], self.plans[0].plan.training
        parts = ("weights", "reference", "gradients", "optimizer", "activations", "logits")
        sizes = {part: [getattr(each, part) for each in plans] for part in parts}
        sizes |= {"rest": [each.overhead + each.buffers for each in plans], "total": [each.gpu for each in plans]}
        sizes["host"] = [each.host for each in plans]
        rows = [(part, *map(_size, numbers)) for part, numbers in sizes.items() if any(numbers)]
        rows.append(("fits", *(written(each.fits) for each in self.plans)))
        rows.append((f"longest {training.limit}", *(written(each.longest_cutoff or "none") for each in self.plans)))
        asked = f"{training.stage}, {training.limit} {training.cutoff_len:,}, batch {training.batch}; GB per GPU"
        ways = (tuple(each.training.name.split(", ")) for each in plans)
        return Table(f"memory of {self.model} on {self.target}: {asked}", rows, ("", *ways))


def _size(number: int) -> str:
    size = number / GB
    return "-" if not size else f"{size:,.0f}" if size >= 1000 else f"{size:.1f}" if size >= 1 else f"{size:.2g}"  # noqa: PLR2004 - width


@public_call(DoctorSettings)
def doctor(config: str = CONFIG_OF_DOCTOR, **flags: Any) -> Diagnosis:
    """Check the machine, a training configuration, and the data it would train on.

    What `train` would object to is in `Diagnosis.findings`, with what is wrong with the machine. Raises InputError for
    what `train` would refuse whatever is allowed.

    Example:
        >>> diagnosis = reasonrag.doctor("qwen2.5-7b-dpo-lora", gpus=4, gpu_memory=80)
        >>> wrong = [finding for finding in diagnosis.findings if finding.severity == "error"]

    Args:
        config: the name of a configuration in `train_configs/`, or your own file.
    """
    settings = resolve(DoctorSettings, "doctor", flags)
    file = find_config(config, "", POLICY.configs, CRITIC.configs)
    found = PreflightFindings(Permissions(settings.prompts))
    changes = changes_of(settings.set)
    asked, kind = file.values | changes, None
    if "stage" not in asked:  # else it is LLaMA-Factory's
        kind = CRITIC if file.place.name == CRITIC.configs or "margin_scale" in asked else POLICY
    if kind and settings.data:
        raise InputError(f"{file.name} is of train-{kind.stage}, whose --dry-run checks the data: leave out --data")
    if settings.prompts and settings.data is None:
        raise InputError("--prompts needs --data: they are compared with those of the data")
    data = read_training_data(settings.data) if settings.data else None
    if kind:
        values, inspection = _as_kind_does(kind, base_settings(file, changes), found)
    else:
        values, inspection = _as_train_does(file, changes, data, found)
    stock = inspection.stock if isinstance(inspection, Inspection) else None
    target = _target(settings.gpus, settings.gpu_memory, values, stock.devices if stock else [])
    if stock and target.here and kind is None:
        check_packages(values, stock, found)
    training = _setup(values, file, gpus=target.gpus)
    found.notes.append(describe_batch(values, target.gpus))
    findings = [
        Finding(each.name, "error", f"{each.what}; if intended: {each.flag} {each.name}") for each in found.objections
    ]
    if stock:
        said = ", ".join(f"{name} {number}" for name, number in stock.named.items())
        findings.append(Finding("versions", "note", f"Python {stock.python} with {said}"))
    able, said = can_train(values, file.name)
    findings += [Finding("backend_trl", "note", said)] if said else []
    if not stock:
        trainer = kind.trainer if kind else "llamafactory"
        findings.append(Finding(trainer, "warning" if able else "error", str(inspection)))
    if stock and not (values.get("use_cpu") or settings.gpus or settings.gpu_memory):
        findings += check_gpus(stock.devices, values)
    model, plans = str(values.get("model_name_or_path") or ""), list[MemoryOption]()
    try:
        shape = find_shape(model)
    except InputError as error:
        findings.append(Finding("shape", "warning", f"no memory plan: {error}"))
    else:
        plans = [] if values.get("use_cpu") or kind is CRITIC else _plans(shape, training, target.memory)
        findings += [_fits(plan, target) for plan in plans[:1]]
        findings += [_served(shape, plan.plan.training, target) for plan in plans[:1] if kind]
    findings += [Finding("note", "note", each) for each in found.notes]
    return Diagnosis(config=file.name, model=model, target=target, findings=findings, plans=plans, stock=stock)


def _as_train_does(
    file: ConfigFile, changes: Mapping[str, Any], data: TrainingData | None, found: PreflightFindings
) -> tuple[dict[str, Any], Inspection | str]:
    """The configuration as far as it is known, and LLaMA-Factory's answer, or why there is none. Adds to `found`."""
    if data:
        resolution = resolve_config(file, changes, data, out=None)
        values, rows = resolution.config, resolution.countable
        base = check_data(values, resolution.entries, data, found).base_model
    else:
        values, rows = base_settings(file, changes), None
        base = check_base_model(values)
    check_config(values, base, found)
    inspection = _inspected(values, rows)
    judgement = ConfigCheck()
    if isinstance(inspection, Inspection):
        judgement = inspection.configs["train"]
        check_config_accepted(values, judgement, found)
    if data:
        resolve_cutoff(resolution, data, judgement, found)
        found.notes += resolution.notes
    return values, inspection


def _as_kind_does(
    kind: Kind, values: dict[str, Any], found: PreflightFindings
) -> tuple[dict[str, Any], Inspection | str]:
    """As `_as_train_does`, of a training here."""
    if kind is POLICY:
        values = with_defaults(values)
        found.notes += without_evaluation(values)
    check_base_model(values)
    found.objections += foreign_settings(values)
    if kind.lacking:
        return values, kind.lacking
    inspection = _inspected(kind.arguments(values), None, kind.trainer)
    if isinstance(inspection, Inspection) and (wrong := inspection.configs["train"].error):
        raise InputError(wrong)
    return values, inspection


def _inspected(values: Mapping[str, Any], rows: RowsToCount | None, by: str = LLAMA_FACTORY) -> Inspection | str:
    """What the trainer answers, or why it does not. by: see `inspect_environment`."""
    try:
        python = find_python() if by == LLAMA_FACTORY else Path(sys.executable)
        return inspect_environment(python, {"train": (values, rows)}, by)
    except ReasonragError as error:
        return str(error)


def _target(gpus: int | None, memory: float | None, values: Mapping[str, Any], there: Sequence[Gpu]) -> PlanningTarget:
    """The hardware to plan for: gpus and memory in GB of the flags, else those there, else one GPU of 80 GB."""
    here = (bool(there) or bool(values.get("use_cpu"))) and gpus is None and memory is None
    size = min((each.memory for each in there), default=GPU_MEMORY * GB) if memory is None else int(memory * GB)
    return PlanningTarget(gpus=gpus or len(there) or 1, memory=size, here=here)


def check_gpus(seen: Sequence[Gpu], values: Mapping[str, Any]) -> Iterator[Finding]:
    """Whether the GPUs that torch sees can do what the configuration asks for."""
    if not seen:
        says = "torch sees no GPU here. Where nvidia-smi lists one, it is a build without CUDA or newer than the driver"
        hidden = "or CUDA_VISIBLE_DEVICES or a container hides it; --gpus N --gpu-memory GB plan for another machine"
        yield Finding("none", "warning", f"{says}, {hidden}")
    for each in seen:
        wanted = values.get("bf16") or values.get("pure_bf16")
        if wanted and each.capability < BF16_CAPABILITY:
            yield Finding("bf16", "error", f"{each.name} has no bf16: --set bf16=false --set fp16=true")


# -- memory --------------------------------------------------------------------------------------------------------


def _setup(values: Mapping[str, Any], file: ConfigFile, *, gpus: int) -> TrainingSetup:
    """The parts of a configuration that determine memory. Raises InputError."""
    if "stage" not in values:  # of train-policy; in the keys of LLaMA-Factory
        values = {
            **values,
            "stage": POLICY.stage,
            "finetuning_type": "lora" if values.get("lora_rank") else "full",
            "cutoff_len": values.get("max_length") or _LONGEST,
            "disable_gradient_checkpointing": not values.get("gradient_checkpointing"),
        }
    stage, kind = values.get("stage"), values.get("finetuning_type", "lora")
    targets = values.get("lora_target", "all")
    adapter = {
        "rank": values.get("lora_rank") or 8,
        "targets": targets.replace(" ", "").split(",") if isinstance(targets, str) else targets,
        "bits": values.get("quantization_bit", 4),
    }
    setup = {
        "stage": stage if stage in ("dpo", "kto", "rm", "policy") else "sft",
        "method": "qlora" if values.get("quantization_bit") else "full" if kind in ("full", "freeze") else "lora",
        "cutoff_len": values.get("cutoff_len", TRAINERS_DEFAULT),
        "batch": values.get("per_device_train_batch_size", 8),
        "gpus": gpus,
        "zero": _zero(values.get("deepspeed")),
        "adapter": adapter,
        "checkpointing": not values.get("disable_gradient_checkpointing", False),
        "half": bool(values.get("bf16") or values.get("fp16")),
        "liger": bool(values.get("enable_liger_kernel")),
        "reference": values.get("pref_loss", "sigmoid") not in ("orpo", "simpo"),
    }
    try:
        return TrainingSetup.model_validate(setup)
    except ValidationError as error:
        raise InputError(f"{file.name}: {first_error(error)}") from error


def _zero(file: object) -> dict[str, Any]:
    """What the JSON file that `deepspeed` names says of ZeRO."""
    read = file if isinstance(file, Mapping) else read_json(Path(str(file))) if file else {}
    zero = read.get("zero_optimization")
    said = zero if isinstance(zero, dict) else {}
    places = {"offload_optimizer": said.get("offload_optimizer"), "offload_parameters": said.get("offload_param")}
    offloads = {
        name: isinstance(where, dict) and where.get("device", "none") != "none" for name, where in places.items()
    }
    return {"stage": said.get("stage", 0), **offloads}


def _plans(shape: ModelShape, training: TrainingSetup, memory: int) -> list[MemoryOption]:
    """The configured way first, then others. memory: bytes of each GPU."""
    plans = [plan_memory(shape, training)]
    plans += [plan_memory(shape, each) for each in alternatives(training) if each.name != training.name]
    return [
        MemoryOption(plan=each, fits=each.fits(memory), longest_cutoff=longest_cutoff(shape, each.training, memory))
        for each in plans
    ]


def _served(shape: ModelShape, training: TrainingSetup, target: PlanningTarget) -> Finding:
    """Whether a GPU holds the model as it draws what it learns from, which is done before it is trained."""
    rows, size = rows_served(shape, training.cutoff_len, target.memory), 2 * shape.parameters / GB
    says = f"before it is trained it is served, from {size:,.1f} GB of weights in bf16: a GPU by vLLM has room"
    if rows < 1:
        return Finding("served", "error", f"{says} for less than one attempt of {training.cutoff_len:,} tokens")
    return Finding("served", "note", f"{says} for {rows:,.0f} attempts of {training.cutoff_len:,} tokens at a time")


def _fits(asked: MemoryOption, target: PlanningTarget) -> Finding:
    training, limit = asked.plan.training, asked.plan.training.limit
    takes = f"{training.name} at {limit} {training.cutoff_len:,} takes {asked.plan.gpu / GB:,.1f} GB of {target}"
    if not asked.fits:
        says = f"{takes}: does not fit. The plan has other ways, each with its longest {limit}; try more --gpus"
        return Finding("plan", "error", says)
    host = f", with {asked.plan.host / GB:,.0f} GB of the host's memory" if asked.plan.host else ""
    return Finding("plan", "note", f"{takes}: fits{host}")
