"""`reasonrag train --backend trl`: a configuration of LLaMA-Factory's, trained by TRL, on the job of critics.

Decides which words of such a configuration TRL has, under which names, and that any other is refused by name. Rows are
those that LLaMA-Factory would read. An adapter ends merged into its base model, as a critic's does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import orjson

from preference.export.formats import FORMATS, SPLITS, FormatName, dataset_name, messages_of
from reasonrag.errors import InputError
from reasonrag.llm.hermes import check_notation
from reasonrag.training.llamafactory.config_resolution import ResolvedConfig
from reasonrag.training.llamafactory.dataset_info import DatasetEntry, read_questions, rows_in
from reasonrag.training.prepare import TrainingJob
from reasonrag.training.prompt_parity import prompts_of_training
from reasonrag.training.stages.training import TrainingResult
from reasonrag.training.stages.trl import CRITIC, Plan, Rows, prepare, train_prepared

KINDS: Final = {
    stage: replace(
        CRITIC,
        stage=stage,
        command="train --backend trl",
        module="reasonrag.training.stages.sft_dpo_script",
        configs="",
        ours=("max_length", "stage", "dataset", "max_samples"),
    )
    for stage in ("sft", "dpo")
}
"""By LLaMA-Factory's name of the stage."""
_DEFAULTS: Final = {"learning_rate": 5e-5, "bf16": False}
"""Of LLaMA-Factory, where TRL has others."""
_RENAMED: Final = {
    "pref_beta": "beta",
    "dpo_label_smoothing": "label_smoothing",
    "warmup_ratio": "warmup_steps",  # below 1 a share
    "enable_liger_kernel": "use_liger_kernel",
}
_SAME: Final = frozenset(
    "per_device_train_batch_size per_device_eval_batch_size gradient_accumulation_steps learning_rate "
    "num_train_epochs max_steps lr_scheduler_type lr_scheduler_kwargs warmup_steps weight_decay adam_beta1 adam_beta2 "
    "adam_epsilon max_grad_norm optim optim_args seed data_seed bf16 fp16 tf32 use_cpu gradient_checkpointing "
    "eval_strategy eval_steps load_best_model_at_end metric_for_best_model greater_is_better logging_steps "
    "logging_strategy logging_first_step save_strategy save_steps save_total_limit save_only_model ddp_timeout "
    "dataloader_num_workers disable_tqdm neftune_noise_alpha".split()
)
_TOLD: Final = frozenset(
    "model_name_or_path stage do_train finetuning_type template dataset eval_dataset dataset_dir output_dir cutoff_len "
    "max_samples overwrite_cache preprocessing_num_workers plot_loss report_to mask_history pref_loss pref_ftx".split()
)
"""Keys that reasonrag acts on, or that say what TRL does in any case."""
_NEVER: Final = frozenset({"deepspeed", "fsdp"})
_LORA: Final = frozenset("lora_rank lora_alpha lora_target lora_dropout".split())
_READ: Final[Mapping[FormatName, FormatName]] = {
    "proguide": "proguide",
    "sft": "sft",
    "sft-chosen": "sft-chosen",
    "tools-sharegpt": "tools",  # which the chat template renders
}
_FILES: Final = {
    dataset_name(form, split): FORMATS[read].file_name(split) for form, read in _READ.items() for split in SPLITS
}
"""The entries whose rows are taken, and their files."""


def train_by_trl(resolution: ResolvedConfig, job: TrainingJob, *, dry_run: bool) -> TrainingResult:
    """Raises InputError before anything is started, TrainingFailed, and KeyboardInterrupt: the same call resumes."""
    kind = KINDS.get(resolution.stage)
    if kind is None:
        raise InputError(
            f"--backend trl trains the stages sft and dpo; {resolution.name} is of stage {resolution.stage}"
        )
    config = in_words_of_trl(resolution)
    files = [_file_of(each, job) for each in resolution.entries]
    prompts, _ = prompts_of_training(job.data.directory, job.permitted.prompts, resolution.entry.name)
    notes = list(resolution.notes)
    if prompts.agent == "tools" and files[0].suffix == ".json":  # calls are text there
        check_notation(str(config["model_name_or_path"]), notes.append)
    train, *held_out = ([*_rows(file)][: config.get("max_samples")] for file in files)
    questions = frozenset(read_questions(job.data, resolution.entry)[0])
    plan = Plan(kind, config, resolution.name, job.data, resolution.out, job.permitted)
    rows = Rows(train, held_out[0] if held_out else [], files, questions, {}, {}, resolution.entry.name)
    prepared = prepare(plan, rows, strict=not dry_run)
    prepared.record.notes[:0] = notes
    return train_prepared(prepared, job.watcher, lambda _: {}, TrainingResult, dry_run=dry_run)


def in_words_of_trl(resolution: ResolvedConfig) -> dict[str, Any]:
    """The configuration as TRL's trainers take it, beside base, LoRA and what our process acts on. Raises InputError
    for what TRL has no word for, or does otherwise."""
    config, by_lora = resolution.config, resolution.config["finetuning_type"] == "lora"
    known = _SAME | _TOLD | _NEVER | _RENAMED.keys() | (_LORA if by_lora else set())
    if unknown := [key for key in config if key not in known]:
        ours = {theirs: key for key, theirs in _RENAMED.items()}.get(unknown[0])
        instead = f"write {ours}" if ours else f"leave it out (--set {unknown[0]}=null), or --backend llamafactory"
        raise InputError(f"{resolution.name}: TRL has no word for {', '.join(unknown)}: {instead}")
    most = config.get("max_samples", 1)
    otherwise = {
        **dict.fromkeys(_NEVER, True),
        "report_to": config.get("report_to") not in ("none", "None", None, []),
        "max_samples": not isinstance(most, int) or most < 1,
        "finetuning_type": config["finetuning_type"] not in ("full", "lora"),
        "pref_loss": config.get("pref_loss", "sigmoid") != "sigmoid",
        "pref_ftx": bool(config.get("pref_ftx")),
        "mask_history": config.get("mask_history") is False,
    }
    for key in (key for key, wrong in otherwise.items() if wrong and key in config):
        instead = f"leave it out (--set {key}=null), or --backend llamafactory"
        raise InputError(f"{resolution.name}: --backend trl does not know {key}: {config[key]!r}: {instead}")
    found: dict[str, Any] = {
        _RENAMED.get(key, key): value for key, value in config.items() if key in _SAME | _RENAMED.keys() | _LORA
    }
    if by_lora:
        rank = found.setdefault("lora_rank", 8)  # LLaMA-Factory's defaults
        found = {"lora_alpha": 2 * rank, "lora_target": "all"} | found
    limit = {"max_length": config["cutoff_len"]} if resolution.chosen_cutoff else {}
    base = {key: config[key] for key in ("model_name_or_path", "stage", "dataset", "max_samples") if key in config}
    return base | _DEFAULTS | found | limit


def _file_of(entry: DatasetEntry, job: TrainingJob) -> Path:
    """The rows of an entry. Raises InputError for one that is not read here."""
    name = _FILES.get(entry.name)
    if name is None:
        raise InputError(f"--backend trl does not read {entry.name}; it reads {', '.join(map(dataset_name, _READ))}")
    file = entry.file if entry.file and entry.file.suffix == Path(name).suffix else job.data.directory / name
    if not file.is_file():
        raise InputError(
            f"there is no {file}, which TRL reads: reasonrag pairs RUN --format tools --format tools-sharegpt --out "
            f"{job.data.directory}"
        )
    return file


def _rows(file: Path) -> Iterator[Mapping[str, Any]]:
    """As TRL takes them: a prompt and its completion, or both sides of a pair. Raises InputError for damaged rows."""
    try:
        if file.suffix == ".jsonl":
            yield from (orjson.loads(line) for line in file.read_bytes().splitlines())
            return
        for row in rows_in(file):
            sides = ("chosen", "rejected") if "rejected" in row else ("output",)
            turns = ([{"role": "assistant", "content": row[side]}] for side in sides)
            names = sides if len(sides) > 1 else ("completion",)
            yield {"prompt": messages_of(row), **dict(zip(names, turns, strict=True))}
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{file}: a row has no {error}; make it again: reasonrag pairs") from error
