"""Resolves a YAML file and `--set` against a data set: every value final, every path absolute.

Decides which keys we fill in and which make up a training's identity. `preflight_checks` judges the result.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from reasonrag.errors import InputError
from reasonrag.redaction import SECRET_NAME, redact
from reasonrag.rendering import counted
from reasonrag.training.llamafactory.config_files import MODELS, ConfigFile, listed, models_in
from reasonrag.training.llamafactory.dataset_info import (
    RANKED_STAGES,
    DatasetEntry,
    TrainingData,
    entry_for,
    validation_entry,
)
from reasonrag.training.llamafactory.inspection import RowsToCount
from reasonrag.training.provenance import Provenance, read_provenance

MANAGED = ("overwrite_output_dir", "resume_from_checkpoint")
"""Keys that are set at launch, depending on the output directory."""
OPERATIONAL = frozenset(MANAGED) | frozenset(
    "output_dir dataset_dir logging_dir overwrite_cache report_to run_name plot_loss logging_steps "
    "preprocessing_num_workers dataloader_num_workers ddp_timeout disable_tqdm save_total_limit ray_init_kwargs "
    "ray_num_workers master_addr master_port cache_dir tokenized_path ddp_backend".split()
)
"""Keys that do not affect what is learned: a training may resume with other values."""
_PATHS = (*MODELS, "deepspeed", "fsdp_config", "media_dir")
"""Keys that may name files or folders."""
OF_EVALUATION = (
    *("eval_dataset", "eval_strategy", "eval_steps", "per_device_eval_batch_size", "eval_on_each_dataset"),
    *("do_eval", "load_best_model_at_end"),
)
"""Keys that need held-out rows."""
TEMPLATE: Final = "qwen"
"""LLaMA-Factory's template for Qwen2 and Qwen2.5."""
_BATCH: Final = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1}
"""Rows of a forward pass, and passes of a step, where transformers is told none."""


@dataclass
class ResolvedConfig:
    """What will be trained. notes: what was filled in or removed, in words."""

    config: dict[str, Any]
    name: str
    """Name of the configuration."""
    entry: DatasetEntry
    validation: DatasetEntry | None
    chosen_cutoff: bool
    """Whether the user chose `cutoff_len`; otherwise it follows from the lengths of the rows."""
    notes: list[str] = field(default_factory=list)

    @property
    def stage(self) -> str:
        return str(self.config["stage"])

    @property
    def out(self) -> Path:
        return Path(self.config["output_dir"])

    @property
    def entries(self) -> list[DatasetEntry]:
        """The entries that are read: the one to train on, then the held-out one."""
        return [self.entry, *([self.validation] if self.validation else [])]

    @property
    def countable(self) -> RowsToCount | None:
        """The rows of all entries, because the trainer cuts held-out rows too; None unless they are columns of text."""
        found = [each.countable for each in self.entries]
        first = found[0]
        if first is None:
            return None
        alike = [each for each in found if each and each.model_copy(update={"files": first.files}) == first]
        return first.model_copy(update={"files": [file for each in alike for file in each.files]})


def trainings_before(config: Mapping[str, Any]) -> tuple[Provenance, ...]:
    """What is known of the models here that a training starts from: of the base first, then of adapters."""
    named = models_in(config, ("model_name_or_path", "adapter_name_or_path"))
    folders = [Path(name) for _, name in named if Path(name).is_dir()]
    return tuple(found for folder in folders if (found := read_provenance(folder)))


def base_settings(file: ConfigFile, changes: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration as it is without data, its paths absolute. Raises InputError for secrets in it."""
    config = {key: value for key, value in (file.values | dict(changes)).items() if value is not None}
    refuse_secrets(config)
    if "warmup_steps" in changes and "warmup_ratio" not in changes:
        config.pop("warmup_ratio", None)  # which would win over the steps in transformers 5
    for key in _PATHS:  # which shall mean the same wherever the file is read
        if isinstance(value := config.get(key), str):
            config[key] = ",".join(str(_place(each, file) or each) for each in listed(value))
    return config


def resolve_config(
    file: ConfigFile, changes: Mapping[str, Any], data: TrainingData, *, out: Path | None
) -> ResolvedConfig:
    """Raises InputError for what cannot be resolved: no stage, no model, no rows, missing files."""
    config = base_settings(file, changes)
    notes = [f"{key} is set by reasonrag, which knows the output directory" for key in MANAGED if config.pop(key, 0)]
    for key in ("stage", "model_name_or_path"):
        if not isinstance(config.get(key), str) or not config[key].strip():
            raise InputError(f"{file.name} has no {key}; LLaMA-Factory would use a default. Give it: --set {key}=..")
    config |= {"do_train": True, "finetuning_type": config.get("finetuning_type", "lora")}
    config.setdefault("report_to", "none")  # transformers 4 would report to every service that is installed
    stage = str(config["stage"])
    named = data.entries.get(str(config.get("dataset")))
    own = named.name if named and named.ranked == (stage in RANKED_STAGES) else None  # else that of the stage
    entry = entry_for(data, stage, changes.get("dataset") or own)
    validation = _validation(config, changes, data, entry, notes)
    config |= {"dataset_dir": str(data.directory.resolve()), "dataset": entry.name}
    rows = entry.countable if stage == "sft" else None
    if rows and rows.history and config.setdefault("mask_history", not config.get("train_on_prompt")) is True:
        notes.append("mask_history: replies of earlier turns have rows of their own, and are learnt there alone")
    out = out or Path("saves") / f"{data.directory.resolve().name}-{Path(file.name).stem}"
    config["output_dir"] = str(out.resolve())
    deepspeed = config.get("deepspeed")
    if isinstance(deepspeed, str) and not Path(deepspeed).is_file():
        raise InputError(
            f"{file.name}: deepspeed names {deepspeed}, which is neither here nor beside the file; --set deepspeed=PATH"
        )
    chosen = "cutoff_len" in changes or ("cutoff_len" in config and not file.shipped)
    return ResolvedConfig(config, Path(file.name).stem, entry, validation, chosen_cutoff=chosen, notes=notes)


def refuse_secrets(config: Mapping[str, Any]) -> None:
    """Raises InputError for secrets, which would be written into train.yaml, training.json and batch scripts."""
    for name, value in config.items():
        if isinstance(value, str) and value and (SECRET_NAME.search(name) or redact(value) != value):
            raise InputError(
                f"{name} holds a key, which would be written to files. Set it in the environment instead, as HF_TOKEN, "
                f"and remove it here: --set {name}=null"
            )


def _validation(
    config: dict[str, Any], changes: Mapping[str, Any], data: TrainingData, entry: DatasetEntry, notes: list[str]
) -> DatasetEntry | None:
    """Fill in the held-out rows of the entry, or remove the keys that need them."""
    wanted, evaluates = None, config.get("eval_strategy", "no") != "no" or bool(config.get("do_eval"))
    if changes.get("eval_dataset"):
        wanted = entry_for(data, str(config["stage"]), str(changes["eval_dataset"]))
    elif "eval_dataset" not in changes and ("eval_dataset" in config or evaluates):
        wanted = validation_entry(data, entry)
    if wanted:
        config["eval_dataset"] = wanted.name
        return wanted
    needing = OF_EVALUATION[:1] if config.get("val_size") else OF_EVALUATION
    removed = without_evaluation(config, f"{data.directory} has no {entry.name}_validation", needing)
    notes += removed if "eval_dataset" not in changes else []
    return None


def without_evaluation(
    config: dict[str, Any], why: str = "there are no held-out rows", needing: Collection[str] = OF_EVALUATION
) -> list[str]:
    """Remove the keys that need held-out rows. Returns what to note."""
    removed = [key for key in needing if config.pop(key, None) is not None]
    return [f"{why}, so nothing is evaluated: removed {', '.join(removed)}"] if removed else []


def _place(name: str, file: ConfigFile) -> Path | None:
    """Resolves a relative path: from here, else from the file's folder or its parent."""
    path = Path(name).expanduser()
    bases = (Path.cwd(), file.place, file.place.parent)
    return next(((base / path).resolve() for base in bases if (base / path).exists()), None)


def describe_batch(config: Mapping[str, Any], processes: int) -> str:
    """How many rows an optimizer step sees, by the rules of transformers' Trainer (4.55 to 5.6): a forward pass of each
    process, as often as gradients are accumulated.

    processes: GPUs of all machines; 0: not known. A configuration for the CPU has one.
    """
    given = (config.get(key) or otherwise for key, otherwise in _BATCH.items())
    size, passes = (each if isinstance(each, int) and each > 0 else 1 for each in given)
    rows = size * passes
    batch = f"{counted(rows, 'pair' if config.get('stage') in RANKED_STAGES else 'row')} per optimizer step"
    if config.get("use_cpu") or processes == 1:
        return batch
    return f"{batch} and GPU" + (f", {processes * rows:,} on {processes}" if processes else "")
