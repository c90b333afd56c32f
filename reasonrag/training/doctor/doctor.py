"""`reasonrag doctor`: what would keep a training from running, or from being what was intended, before it starts.

Combines the checks of `train` (`preflight_checks`) and of the machine with a memory plan (`memory`). Starts no training
and changes nothing. Without a GPU here it plans for the GPUs named by flags, or for one of 80 GB, and says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, get_args

from pydantic import BaseModel, ConfigDict

from reasonrag.agent.prompting import Prompts, load_prompts
from reasonrag.curation.audit.cutoffs import TRAINERS_DEFAULT
from reasonrag.curation.audit.report import AUDIT, read_audit
from reasonrag.errors import InputError, ReasonragError
from reasonrag.model_folder import read_json
from reasonrag.processes.train_python import find_python
from reasonrag.rendering import Part, Table, counted, written
from reasonrag.settings import resolve
from reasonrag.signatures import public_call
from reasonrag.training.doctor.findings import CheckupSeverity, CollectedFindings, Finding
from reasonrag.training.doctor.machine_checks import check_disk, check_gpus, check_packages
from reasonrag.training.doctor.memory import (
    GB,
    Fit,
    MemoryPlan,
    Stage,
    TrainingSetup,
    alternatives,
    checkpoint_bytes,
    fewest_gpus,
    longest_cutoff,
    plan_memory,
)
from reasonrag.training.hardware import Gpu, TrainingEnvironment, host_memory, query_driver
from reasonrag.training.llamafactory.batch import describe_batch
from reasonrag.training.llamafactory.config_files import ConfigFile, find_config, parse_changes
from reasonrag.training.llamafactory.config_resolution import (
    ResolvedConfig,
    resolve_config,
    settle_paths,
    with_warmup_ratio,
)
from reasonrag.training.llamafactory.dataset_info import (
    TrainingData,
    count_rows,
    read_questions,
    read_training_data,
)
from reasonrag.training.llamafactory.inspection import ConfigCheck, Inspection, inspect_environment
from reasonrag.training.model_shapes import ModelShape, find_shape
from reasonrag.training.preflight_checks import (
    BaseFacts,
    check_audit,
    check_base_model,
    check_config,
    check_config_accepted,
    check_prompts,
    check_rows,
    resolve_cutoff,
)
from reasonrag.training.prompt_parity import prompts_of_training
from reasonrag.training.settings import CONFIG_OF_DOCTOR, DoctorSettings

MODEL: Final = "Qwen/Qwen2.5-7B-Instruct"
"""The model to plan for where a configuration names none."""
GPU_MEMORY: Final = 80
"""The default to plan for without a GPU: an A100 or H100, in GB."""
CONFIG_NAME: Final = "config"
"""Name of the configuration in the inspection job."""
SCHEMA: Final = "reasonrag.doctor/1"
_PARTS: Final = ("weights", "reference", "gradients", "optimizer", "activations", "logits")


def shown_size(number: int) -> str:
    """A size in GB, or in MB below 1 GB."""
    return f"{number / GB:,.0f} GB" if number >= GB else f"{number / 2**20:,.0f} MB"


class PlanningTarget(BaseModel):
    """The hardware to plan for. here: whether this machine would train. host: its memory for offloading; null if
    another machine would train, or it is unknown."""

    model_config = ConfigDict(frozen=True)

    gpus: int
    memory: int
    here: bool
    host: int | None = None

    def __str__(self) -> str:
        return f"{self.gpus} x {self.memory / GB:.0f} GB"


class MemoryOption(BaseModel):
    """A way to train, and whether it fits. longest_cutoff: the largest cutoff_len that fits, 0 if none does.
    fewest_gpus: how many of these GPUs it takes; null if more do not help."""

    plan: MemoryPlan
    verdict: Fit
    longest_cutoff: int
    fewest_gpus: int | None


class Diagnosis(BaseModel):
    """What a checkup found."""

    model_config = ConfigDict(protected_namespaces=())

    schema_version: str = SCHEMA
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

    @property
    def warnings(self) -> list[Finding]:
        return [each for each in self.findings if each.severity == "warning"]

    def shown(self) -> Iterator[Part]:
        """The findings, errors first, the memory plan, and the number of errors and warnings."""
        order = get_args(CheckupSeverity)
        rows = [
            (each.about, each.severity, (each.says, f"-> {each.advice}") if each.advice else each.says)
            for each in sorted(self.findings, key=lambda each: order.index(each.severity))
        ]
        yield Table("checkup", rows, ("about", "result", "finding, and what to do"))
        if self.plans:
            yield self._memory()
            plan = self.plans[0].plan
            asked = f"{_parameters(plan.parameters)} parameters, {_parameters(plan.trained)} of them trained"
            yield f"{asked}; an estimate that assumes every row is as long as cutoff_len"
            if not self.target.here:
                yield f"planned for {self.target}; change it with --gpus and --gpu-memory"
        yield f"{counted(len(self.errors), 'error')}, {counted(len(self.warnings), 'warning')}"

    def _memory(self) -> Table:
        """A row for each kind of memory in use, a column for each way to train."""
        plans, training = [each.plan for each in self.plans], self.plans[0].plan.training
        sizes = {part: [getattr(each, part) for each in plans] for part in _PARTS}
        sizes |= {"rest": [each.overhead + each.buffers for each in plans], "total": [each.gpu for each in plans]}
        sizes["host"] = [each.host for each in plans]
        rows = [(part, *map(_size, numbers)) for part, numbers in sizes.items() if any(numbers)]
        rows.append(("fits", *("no" if each.verdict == "does not fit" else "yes" for each in self.plans)))
        rows.append(("longest cutoff_len", *(written(each.longest_cutoff or "none") for each in self.plans)))
        rows.append(("fewest GPUs", *(written(each.fewest_gpus or "none") for each in self.plans)))
        asked = f"{training.stage}, cutoff_len {training.cutoff_len:,}, batch {training.batch}; GB per GPU"
        ways = (tuple(each.training.name.split(", ")) for each in plans)
        return Table(f"memory of {self.model} on {self.target}: {asked}", rows, ("", *ways))


def _size(number: int) -> str:
    size = number / GB
    return "-" if not size else f"{size:,.0f}" if size >= 1000 else f"{size:.1f}" if size >= 1 else f"{size:.2g}"  # noqa: PLR2004 - width


def _parameters(number: int) -> str:
    return f"{number / 1e9:.2f} B" if number >= 1e9 else f"{number / 1e6:,.2f} M"  # noqa: PLR2004 - B, M


@public_call(DoctorSettings)
def doctor(config: str = CONFIG_OF_DOCTOR, **flags: Any) -> Diagnosis:
    """Check the machine, a training configuration, and the data it would train on.

    Everything that is wrong is in `Diagnosis.findings`. Raises InputError only for an unknown configuration, for a
    model of unknown shape and for missing prompts.

    Example:
        >>> diagnosis = reasonrag.doctor("qwen2.5-7b-dpo-lora", gpus=4, gpu_memory=80)
        >>> wrong = [finding for finding in diagnosis.findings if finding.severity == "error"]

    Args:
        config: the name of a configuration in `train_configs/`, or your own file.
    """
    settings = resolve(DoctorSettings, "doctor", flags)
    file, changes = find_config(config), parse_changes(settings.set)
    prompts = (
        prompts_of_training(settings.data, settings.prompts)[0] if settings.data else load_prompts(settings.prompts)
    )
    if settings.model:
        find_shape(settings.model)  # a wrong flag stops here
        changes = changes | {"model_name_or_path": settings.model}
    values = {key: value for key, value in (file.values | changes).items() if value is not None}
    model = str(values.get("model_name_or_path") or MODEL)

    findings: list[Finding] = []
    of_data, of_config = CollectedFindings(), CollectedFindings()
    of_config.check(settle_paths, values, file)
    base = of_config.check(check_base_model, values) or BaseFacts("", {}, ())
    data = of_data.check(read_training_data, settings.data) if settings.data else None
    resolution = of_data.check(resolve_config, file, changes, data, out=settings.out) if data else None
    values = resolution.config if resolution else with_warmup_ratio(values)
    inspection = _inspect(values, resolution, findings)
    stock = inspection.stock if inspection else None
    judgement = inspection.configs.get(CONFIG_NAME) if inspection else None
    of_config.check(check_config, values, base, of_config)
    if judgement:
        of_config.check(check_config_accepted, values, judgement, of_config)
    if data:
        _check_data(data, resolution, prompts, base, of_data)
    if data and resolution:
        lengths = of_config.check(resolve_cutoff, resolution, data, judgement or ConfigCheck(), of_config) or {}
        if not lengths.get("rows_cut", 1):
            says = f"cutoff_len {lengths['cutoff_len']:,} cuts no row; tokens by {lengths['counted_by']}"
            findings.append(Finding("configuration", "cutoff", "ok", says))
    findings += of_config.shown("configuration") + of_data.shown("data")
    driver = query_driver()
    named = settings.gpus is not None or settings.gpu_memory is not None
    target = _target(settings.gpus, settings.gpu_memory, values, (stock.devices if stock else []) or driver)
    findings += check_packages(stock, values, here=target.here) if stock else []
    findings += check_gpus(stock, driver, values, elsewhere=named)
    training = _training(values, file, findings, gpus=target.gpus)
    shape = _shape(model, findings)
    plans = _plans(shape, training, target) if shape and not values.get("use_cpu") else []
    findings += _of_memory(plans, target)
    findings.append(_of_batch(values, target, count_rows(resolution.entry) if resolution else None))
    if shape and values.get("output_dir"):
        place = settings.out or Path(str(values["output_dir"]))
        findings.append(_room(place, shape, training, values, here=target.here))
    return Diagnosis(config=file.name, model=model, target=target, findings=findings, plans=plans, stock=stock)


def _check_data(
    data: TrainingData, resolution: ResolvedConfig | None, prompts: Prompts, base: BaseFacts, found: CollectedFindings
) -> None:
    """Rows, prompts, and what an audit found; without one nothing: `train` makes it."""
    if resolution and (asked := found.check(read_questions, data, resolution.entry)):
        found.check(check_rows, resolution.entries, data, asked, found)
    if (data.directory / AUDIT).is_file() and (report := found.check(read_audit, data.directory)):
        check_audit(report, found)
    found.check(check_prompts, data, prompts, base, found)
    if not (found.refusals or found.objections):
        found.right.append(f"{data.directory} has {', '.join(data.entries)}")


def _inspect(
    config: Mapping[str, Any], resolution: ResolvedConfig | None, findings: list[Finding]
) -> Inspection | None:
    """LLaMA-Factory's environment and verdict; None if it does not answer."""
    rows = resolution.countable if resolution else None
    try:
        inspection = inspect_environment(find_python(), {CONFIG_NAME: (config, rows)})
    except ReasonragError as error:
        findings.append(Finding("packages", "environment", "error", str(error)))
        return None
    if inspection.failure and inspection.stock.has("llamafactory") and not inspection.stock.torch_error:
        says = f"LLaMA-Factory does not work: {inspection.failure}"
        findings.append(Finding("packages", "failure", "error", says))
    return inspection


def _of_batch(config: Mapping[str, Any], target: PlanningTarget, rows: int | None) -> Finding:
    says, advice = describe_batch(config, target.gpus, rows)
    return Finding("configuration", "batch", "warning" if advice else "ok", says, advice)


def _target(gpus: int | None, memory: float | None, values: Mapping[str, Any], there: Sequence[Gpu]) -> PlanningTarget:
    """The hardware to plan for: gpus and memory in GB of the flags, else those there, else one GPU of 80 GB."""
    named = gpus is not None or memory is not None
    size = min((each.memory for each in there), default=GPU_MEMORY * GB) if memory is None else int(memory * GB)
    here = (bool(there) or bool(values.get("use_cpu"))) and not named
    return PlanningTarget(gpus=gpus or len(there) or 1, memory=size, here=here, host=host_memory() if here else None)


def _shape(model: str, findings: list[Finding]) -> ModelShape | None:
    try:
        return find_shape(model)
    except InputError as error:
        known = Path(model).exists() or model.startswith((".", "/", "~"))
        findings.append(Finding("memory", "shape", "error" if known else "warning", str(error)))
        return None


# -- what is trained -----------------------------------------------------------------------------------------------


def _training(values: Mapping[str, Any], file: ConfigFile, findings: list[Finding], *, gpus: int) -> TrainingSetup:
    """The parts of a configuration that determine memory."""
    stage = values.get("stage", "dpo")
    zero = _zero(values, findings)
    kind = values.get("finetuning_type", "lora")
    method = "qlora" if values.get("quantization_bit") else "full" if kind in ("full", "freeze") else "lora"
    targets = values.get("lora_target", "all")
    try:
        return TrainingSetup(
            stage=_STAGES.get(str(stage), "dpo"),
            method=method,
            cutoff_len=values.get("cutoff_len", TRAINERS_DEFAULT),
            batch=values.get("per_device_train_batch_size", 8),
            gpus=gpus,
            zero=zero.get("stage", 0),
            offload_optimizer=_is_offloaded(zero, "offload_optimizer"),
            offload_parameters=_is_offloaded(zero, "offload_param"),
            bits=values.get("quantization_bit", 4),
            lora_rank=values.get("lora_rank", 8),
            lora_targets=tuple(targets.replace(" ", "").split(",") if isinstance(targets, str) else targets),
            checkpointing=not values.get("disable_gradient_checkpointing", False),
            half=bool(values.get("bf16") or values.get("fp16")),
            liger=bool(values.get("enable_liger_kernel")),
            reference=values.get("pref_loss", "sigmoid") not in ("orpo", "simpo"),
        )
    except ValueError as error:
        raise InputError(f"{file.name}: {error}") from error


_STAGES: Final[Mapping[str, Stage]] = {"dpo": "dpo", "sft": "sft", "kto": "kto", "rm": "rm", "pt": "sft"}


def _is_offloaded(zero: Mapping[str, Any], key: str) -> bool:
    return isinstance(zero.get(key), dict) and zero[key].get("device", "none") != "none"


def _zero(values: Mapping[str, Any], findings: list[Finding]) -> dict[str, Any]:
    """ZeRO settings from the DeepSpeed file that would really be read."""
    if not (named := values.get("deepspeed")):
        return {}
    try:
        zero = read_json(Path(str(named))).get("zero_optimization")
    except InputError as error:
        advice = "LLaMA-Factory looks in the current folder; reasonrag train also looks beside the configuration"
        findings.append(Finding("configuration", "zero", "error", f"deepspeed: {error}", advice))
        return {}
    zero = zero if isinstance(zero, dict) else {}
    stage = zero.get("stage", 0)
    where = [each for each in ("offload_optimizer", "offload_param") if _is_offloaded(zero, each)]
    if stage not in (0, 1, 2, 3) or ("offload_param" in where and stage != 3):  # noqa: PLR2004 - its name
        says = f"{named}: ZeRO stage {stage!r}; stages are 0 to 3, and offload_param takes stage 3"
        findings.append(Finding("configuration", "zero", "error", says))
        return {}
    says = f"ZeRO stage {stage}{', ' + ' and '.join(where) if where else ''}, by {named}"
    findings.append(Finding("configuration", "zero", "ok", says))
    return zero


# -- memory --------------------------------------------------------------------------------------------------------


def _plans(shape: ModelShape, training: TrainingSetup, target: PlanningTarget) -> list[MemoryOption]:
    others = [each for each in alternatives(training) if each.name != training.name]
    return [_planned(shape, each, target) for each in (training, *others)]


def _planned(shape: ModelShape, training: TrainingSetup, target: PlanningTarget) -> MemoryOption:
    made = plan_memory(shape, training)
    fits: Fit = "fits with offload" if training.offloads else "fits"
    return MemoryOption(
        plan=made,
        verdict=fits if made.fits(target.memory, target.host) else "does not fit",
        longest_cutoff=longest_cutoff(shape, training, target.memory),
        fewest_gpus=fewest_gpus(shape, training, target.memory),
    )


def _of_memory(plans: list[MemoryOption], target: PlanningTarget) -> list[Finding]:
    """Whether the configured way fits, and if not the nearest alternative that does."""
    if not plans:
        return []
    asked, others = plans[0], plans[1:]
    takes = f"{shown_size(asked.plan.gpu)} of {target}"
    what = f"{asked.plan.training.name} at cutoff_len {asked.plan.training.cutoff_len:,}"
    if asked.plan.fits(target.memory):
        found = [Finding("memory", "plan", "ok", f"{what} takes {takes}: fits")]
        offloads = f"offloading takes {shown_size(asked.plan.host)} of the host's memory"
        if asked.verdict == "does not fit" and target.host is not None:
            says = f"{offloads}, {shown_size(target.host)} are free: does not fit"
            found.append(Finding("memory", "host", "error", says, _nearest(others) or "more or larger GPUs, or LoRA"))
        return found
    says = f"{what} takes {takes}: does not fit"
    return [Finding("memory", "plan", "error", says, _instead(asked, others, target))]


def _instead(asked: MemoryOption, others: list[MemoryOption], target: PlanningTarget) -> str:
    ways = []
    if asked.fewest_gpus and asked.fewest_gpus > target.gpus:
        ways.append(f"{asked.fewest_gpus} such GPUs")
    if asked.longest_cutoff:
        ways.append(f"cutoff_len {asked.longest_cutoff:,} at most, if the audit allows it")
    if nearest := _nearest(others):
        ways.append(nearest)
    return "; or ".join(ways) or "a smaller model"


def _nearest(others: list[MemoryOption]) -> str:
    """The alternative that fits and changes least; empty if none fits."""
    nearest = next((each for each in others if each.verdict != "does not fit"), None)
    if nearest is None:
        return ""
    host = f", with {nearest.plan.host / GB:.0f} GB of the host's" if nearest.plan.host else ""
    return f"{nearest.plan.training.name}: {nearest.plan.gpu / GB:.0f} GB{host}"


def _room(place: Path, shape: ModelShape, training: TrainingSetup, values: Mapping[str, Any], *, here: bool) -> Finding:
    """Check disk space for the model and the checkpoints that exist at once, one more than are kept."""
    model = checkpoint_bytes(shape, training, with_optimizer=False)
    if values.get("save_strategy", "steps") in ("no", False):
        return check_disk(place, model, checkpoints=0, here=here)
    kept = int(values.get("save_total_limit") or 3) + 1
    each = checkpoint_bytes(shape, training, with_optimizer=not values.get("save_only_model", False))
    return check_disk(place, kept * each + model, checkpoints=kept, here=here)
