"""`reasonrag train --backend trl`: a configuration of LLaMA-Factory's, trained by TRL, on the job of critics.

Decides which words of such a configuration TRL has, under which names, and that any other is refused by name. Rows are
those that LLaMA-Factory would read. An adapter ends merged into its base model, as a critic's does.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from preference import Message
from preference.export.formats import messages_of
from preference.export.summary import DATASET_INFO_FILE
from reasonrag.errors import InputError
from reasonrag.llm.hermes import native_turns, turns_of_sharegpt
from reasonrag.run_config import installed_versions
from reasonrag.training.llamafactory.config_files import ConfigFile
from reasonrag.training.llamafactory.config_resolution import resolve_config
from reasonrag.training.llamafactory.dataset_info import DatasetEntry, rows_in
from reasonrag.training.prepare import TrainingJob
from reasonrag.training.stages.training import TrainingResult
from reasonrag.training.stages.trl import CRITIC, LORA, Plan, Rows, train_plan

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
    "warmup_ratio": "warmup_steps",
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
    "model_name_or_path stage do_train template dataset eval_dataset dataset_dir output_dir cutoff_len overwrite_cache "
    "preprocessing_num_workers plot_loss".split()
)
"""Keys that reasonrag acts on, or speaks of, or that say what TRL does in any case."""
_INSTEAD: Final = {
    "template": "the model's own chat template renders the rows",
    "plot_loss": "nothing is drawn, and metrics.json has every loss",
}
"""Keys of shipped configurations that have no word here, and what is done."""
_ASKED: Final = {"alpaca": {"system", "prompt"}, "sharegpt": {"system", "messages", "tools"}}
"""Columns of a prompt that are read, by their formatting."""


def train_by_trl(
    file: ConfigFile, changes: Mapping[str, Any], job: TrainingJob, *, out: Path | None, dry_run: bool
) -> TrainingResult:
    """Raises InputError before anything is started, TrainingFailed, and KeyboardInterrupt: the same call resumes."""
    stage = (file.values | dict(changes)).get("stage")
    if stage not in (None, *KINDS):  # before its rows are looked for
        raise InputError(f"--backend trl trains the stages sft and dpo; {Path(file.name).stem} is of stage {stage}")
    resolution = resolve_config(file, changes, job.data, out=out)
    entries = resolution.entries
    config = in_words_of_trl(resolution.config, resolution.name, bounded=resolution.chosen_cutoff)
    train, *held_out = (read_rows(each, job.data.directory, config.get("max_samples")) for each in entries)
    files = [each.file for each in entries if each.file]
    plan = Plan(KINDS[resolution.stage], config, resolution.name, job.data, resolution.out, job.permitted)
    given = {key: resolution.config[key] for key in _INSTEAD if resolution.config.get(key)}
    unsaid = [f"{key} ({value}) says nothing to TRL: {_INSTEAD[key]}" for key, value in given.items()]
    notes = [*resolution.notes, *(["; ".join(unsaid)] if unsaid else [])]
    rows = Rows(train, held_out[0] if held_out else [], files, entries=entries, notes=notes)
    return train_plan(plan, rows, job.watcher, TrainingResult, dry_run=dry_run)


def can_train(config: Mapping[str, Any], name: str) -> tuple[bool, str]:
    """Whether a configuration could be trained in this environment, and by what, or why not; no words for others."""
    kind = KINDS.get(str(config.get("stage")))
    if kind is None or kind.lacking:
        return False, (kind and kind.lacking) or ""
    try:
        in_words_of_trl(config, name, bounded=False)
    except InputError as error:
        return False, str(error)
    there = ", ".join(f"{package} {number}" for package, number in installed_versions(kind.packages).items())
    return True, f"{kind.command} can train this here, with {there}"


def in_words_of_trl(config: Mapping[str, Any], name: str, *, bounded: bool) -> dict[str, Any]:
    """A configuration as TRL's trainers take it, beside base, LoRA and what our process acts on. bounded: whether its
    `cutoff_len` is the user's. Raises InputError for what has no word here, or is done otherwise."""
    kind = config.get("finetuning_type", "lora")
    ratio, beta = config.get("warmup_ratio", 0), config.get("pref_beta", 0.1)
    most, longest = config.get("max_samples", 1), config["cutoff_len"] if bounded else 1
    otherwise = {
        "deepspeed": True,
        "fsdp": True,
        "report_to": config.get("report_to") not in ("none", "None", None, []),
        "max_samples": type(most) is not int or most < 1,
        "cutoff_len": type(longest) is not int or longest < 1,
        "pref_beta": type(beta) not in (int, float) or beta <= 0,
        "finetuning_type": kind not in ("full", "lora"),
        "pref_loss": config.get("pref_loss", "sigmoid") != "sigmoid",
        "pref_ftx": bool(config.get("pref_ftx")),
        "mask_history": config.get("mask_history") is False,
        "warmup_ratio": type(ratio) not in (int, float) or not 0 <= ratio <= 1,
    }
    instead = "leave it out (--set {}=null), or --backend llamafactory"
    known = _SAME | _TOLD | _RENAMED.keys() | otherwise.keys() | (LORA.keys() if kind == "lora" else set())
    if unknown := [key for key in config if key not in known]:
        ours = [f"write {key}" for key, theirs in _RENAMED.items() if theirs == unknown[0]]
        to_do = ours[0] if ours else instead.format(unknown[0])
        raise InputError(f"{name}: --backend trl has no word for {', '.join(unknown)}: {to_do}")
    for key in (key for key, wrong in otherwise.items() if wrong and key in config):
        said = f"{name}: --backend trl does not know {key}: {config[key]!r}"
        raise InputError(f"{said}: {instead.format(key)}")
    found: dict[str, Any] = {
        _RENAMED.get(key, key): value for key, value in config.items() if key in _SAME | _RENAMED.keys() | LORA.keys()
    }
    if "warmup_ratio" in config:  # a share, which wins over the steps; 1 would be one step
        found["warmup_steps"] = min(ratio, math.nextafter(1, 0))
    if kind == "lora":
        rank = found.setdefault("lora_rank", 8)  # LLaMA-Factory's defaults
        found = {"lora_alpha": 2 * rank, "lora_target": "all"} | found
    limit = {"max_length": longest} if bounded else {}
    base = {key: config[key] for key in ("model_name_or_path", "stage", "dataset", "max_samples") if key in config}
    return base | _DEFAULTS | found | limit


def read_rows(entry: DatasetEntry, folder: Path, most: int | None) -> list[dict[str, Any]]:
    """At most so many, as TRL takes them, by the columns that dataset_info.json names: a prompt and its completion, or
    both sides of a pair. Raises InputError for columns that are not read here, and for damaged rows."""
    sides = {"chosen": "chosen", "rejected": "rejected"} if entry.ranked else {"completion": "response"}
    wanted = {*_ASKED.get(str(entry.description.get("formatting", "alpaca")), ()), *sides.values()}
    more = entry.description.keys() - {"file_name", "formatting", "ranking", "columns"}
    if entry.file is None or more or entry.columns.keys() - {"history"} != wanted:
        form = "tools-sharegpt" if entry.ranked else "sft"
        raise InputError(
            f"{folder / DATASET_INFO_FILE}: --backend trl does not read {entry.name} as that describes it. It reads "
            "columns of text, as those of rag_proguide and rag_proguide_sft, and pairs of conversations with tools: "
            f"reasonrag pairs RUN --format {form} --out {folder}"
        )
    rows = list[dict[str, Any]]()
    for number, row in enumerate(rows_in(entry.file)[:most], start=1):
        try:
            rows.append(_row({name: row[column] for name, column in entry.columns.items()}, sides))
        except (KeyError, TypeError, ValueError) as error:
            what = f"has no {error}" if isinstance(error, KeyError) else "is damaged"
            raise InputError(f"{entry.file}: row {number} {what}; make it again: reasonrag pairs") from error
    return rows


def _row(row: Mapping[str, Any], sides: Mapping[str, str]) -> dict[str, Any]:
    """row: by LLaMA-Factory's names. sides: TRL's name of each reply, and LLaMA-Factory's."""
    if "tools" in row:
        turns = {"prompt": [Message(role="system", content=row["system"]), *turns_of_sharegpt(row["messages"])]}
        turns |= {side: turns_of_sharegpt([row[name]]) for side, name in sides.items()}
        if not isinstance(json.loads(row["tools"]), list):
            raise ValueError
        return {name: native_turns(said) for name, said in turns.items()} | {"tools": row["tools"]}
    prompt = messages_of({"instruction": row["system"], "input": row["prompt"], "history": row.get("history")})
    said = {"prompt": prompt} | {side: [{"role": "assistant", "content": row[name]}] for side, name in sides.items()}
    return {name: [Message.model_validate(each).model_dump() for each in turns] for name, turns in said.items()}
