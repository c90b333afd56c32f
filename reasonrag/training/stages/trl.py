"""One training by a process of ours: what `train-critic`, `train-policy` and `train --backend trl` have in common.

Decides the order: resolve, check the data as for any training, write the rows, run the process, record; and whether a
training is new, resumed or finished. What rows are, what the process does with them and what is said of the model is
the kind's; of two kinds here stands what they are called and need. Knows no losses.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import orjson
from pydantic import BaseModel

from preference.export.private_files import write_file
from reasonrag.errors import InputError, NothingToLearn
from reasonrag.files import file_digest, read_small
from reasonrag.progress import JobWatcher
from reasonrag.run_config import config_hash, installed_versions
from reasonrag.serving.loading import SMALL
from reasonrag.serving.local_server import count_gpus, driver_gpus
from reasonrag.training.llamafactory.config_files import changes_of, find_config, listed
from reasonrag.training.llamafactory.config_resolution import (
    OPERATIONAL,
    base_settings,
    trainings_before,
    without_evaluation,
)
from reasonrag.training.llamafactory.dataset_info import DatasetEntry, TrainingData, read_training_data
from reasonrag.training.llamafactory.foreign_settings import foreign_settings
from reasonrag.training.llamafactory.launcher import TrainingFailed
from reasonrag.training.output_directory import TRAINING, OutputDirectory, TrainingRecord
from reasonrag.training.preflight_checks import Permissions, PreflightFindings, check_data
from reasonrag.training.prepare import Startable, startable
from reasonrag.training.stages.training import Result, Trainer, train_by

FACTS: Final = "facts_of_training.json"
"""What the process found out on the way; the parent reads and removes it."""
ROWS, HELD_OUT = "train.jsonl", "held_out.jsonl"
_JOB, _FOLDER = ".job.json", ".rows"
_FEWEST_TRL: Final = (1, 16)
Tokenized = Callable[[dict[str, Any]], tuple[dict[str, Any], int]]
LORA: Final = {
    "lora_rank": "r",
    "lora_alpha": "lora_alpha",
    "lora_dropout": "lora_dropout",
    "lora_target": "target_modules",
}


class ProcessJob(BaseModel, frozen=True, extra="forbid"):
    """What the process gets. rows, held_out: JSON lines. arguments: the trainer's. lora: peft's, of `LoraConfig`; None:
    all weights are trained. ours: keys of the configuration that no trainer knows."""

    base: str
    out: str
    rows: str
    held_out: str | None
    arguments: dict[str, Any]
    lora: dict[str, Any] | None
    ours: dict[str, Any]
    resume: str | None = None

    def most_tokens(self, config: Any) -> int:
        """Of a row: as the configuration says, else as the model has positions. config: the model's."""
        return self.ours.get("max_length") or int(config.get_text_config().max_position_embeddings)


@dataclass(frozen=True)
class Kind:
    """stage: as provenance has it. command: that trains it. module: the process, started with a job. configs: folder of
    the shipped configurations. ours: keys of a configuration that are not its trainer's, beside the base model and
    LoRA."""

    stage: str
    command: str
    module: str
    configs: str
    packages: tuple[str, ...]
    ours: tuple[str, ...]
    trainer: str = "TRL"

    @property
    def lacking(self) -> str | None:
        """Why this environment cannot train it; None if it can."""
        here = installed_versions(self.packages)
        missing = [name for name in self.packages if name not in here]
        if not missing and "trl" in here and tuple(int(part) for part in here["trl"].split(".")[:2]) < _FEWEST_TRL:
            missing = [f"trl 1.16 or newer, here is {here['trl']}"]
        needs = f"{self.command} needs {', '.join(missing)}: pip install 'reasonrag[rl]'"
        return needs if missing else None

    def arguments(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The keys of a configuration that its trainer takes."""
        not_theirs = ("model_name_or_path", *LORA, *self.ours)
        return {key: value for key, value in config.items() if key not in not_theirs}


POLICY: Final = Kind(
    stage="policy",
    command="train-policy",
    module="reasonrag.training.policy.training_script",
    configs="policies",
    packages=("transformers", "torch", "accelerate", "peft"),
    ours=("advantage", "beta", "clip", "kl", "max_length", "start"),
    trainer="transformers",
)
CRITIC: Final = Kind(
    stage="critic",
    command="train-critic",
    module="reasonrag.critics.training_script",
    configs="critics",
    packages=("trl", "transformers", "torch", "datasets", "accelerate", "peft"),
    ours=("margin_scale", "max_length"),
)


@dataclass(frozen=True)
class Plan:
    """What is to be trained. config: resolved. name: of the configuration."""

    kind: Kind
    config: dict[str, Any]
    name: str
    data: TrainingData
    out: Path
    permitted: Permissions


@dataclass(frozen=True)
class Rows:
    """What it learns from. files: that they are read from, the first one that of the training rows. questions: keys of
    those that count as trained on; None: all that are not held out. facts: more for `data` of the record. decides: more
    of the identity. entries: of dataset_info.json, where the rows are LLaMA-Factory's. notes: what to tell of them."""

    train: Sequence[Mapping[str, Any]]
    held_out: Sequence[Mapping[str, Any]]
    files: Sequence[Path]
    questions: frozenset[str] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    decides: Mapping[str, Any] = field(default_factory=dict)
    entries: Sequence[DatasetEntry] = ()
    notes: Sequence[str] = ()


def plan_training(kind: Kind, settings: Any, out: Path) -> Plan:
    """settings: of its command. out: the folder of models, where none is given. Raises InputError."""
    file, data = find_config(settings.config, kind.configs), read_training_data(settings.data)
    config = base_settings(file, changes_of(settings.set))
    if not config.get("model_name_or_path"):
        raise InputError("no base model: --set model_name_or_path=FOLDER, or a name on the Hub")
    if "stage" in config:
        raise InputError(f"{file.name} is LLaMA-Factory's; reasonrag train takes it")
    permitted = Permissions(settings.prompts, settings.allow, settings.allow_eval)
    folder = settings.out or out / data.directory.resolve().name
    return Plan(kind, config, file.name, data, folder.resolve(), permitted)


def _prepare(plan: Plan, rows: Rows, *, strict: bool) -> Startable:
    """Check everything that `train` checks of a data set. strict: refuse what is found. Raises InputError."""
    found, data, kind, config = PreflightFindings(plan.permitted), plan.data, plan.kind, dict(plan.config)
    found.notes += [] if rows.held_out else without_evaluation(config)
    digests = {each.name: file_digest(each) for each in rows.files}
    entries = rows.entries or [DatasetEntry(f"rows of a {kind.stage}", {}, rows.files[0])]
    if not rows.train:
        raise NothingToLearn(f"{data.directory} has no rows to train on; {data.directory}/dropped.jsonl says why")
    checked = check_data(config, entries, data, found)
    if rows.questions is not None:
        checked = replace(checked, questions=sorted(rows.questions))
    found.objections += foreign_settings(config)
    if strict:
        found.refuse()
    trained_by = {"base_trained_by": [each.config_hash for each in trainings_before(config)]}
    told = {key: value for key, value in config.items() if key not in OPERATIONAL}
    decides = told | {"data": digests} | dict(rows.decides) | trained_by
    about = {"directory": str(data.directory.resolve()), "stage": kind.stage, "dataset": next(iter(digests))}
    counts = {"rows": len(rows.train), "eval_rows": len(rows.held_out), "sha256": digests}
    record = TrainingRecord(
        config=plan.name,
        decides=decides,
        config_hash=config_hash(decides),
        resolved=config,
        settings={"nodes": 1, "gpus_per_node": count_gpus()},
        data=about | counts | dict(rows.facts),
        notes=[*found.notes, *rows.notes],
        environment={"PYTHONPATH": str(Path(__file__).parents[3])},
        python=sys.executable,
        versions=installed_versions(("reasonrag", *kind.packages)),
        gpus=driver_gpus() if count_gpus() else [],
    )
    merged_or_full = "merged" if config.get("lora_rank") else "full"
    return startable(record, checked, found, finetuning_type=merged_or_full)


def train_plan(
    plan: Plan,
    rows: Rows,
    watcher: JobWatcher,
    result: type[Result],
    *,
    conclude: Callable[[TrainingRecord], Mapping[str, Any]] = lambda _: {},
    dry_run: bool,
) -> Result:
    """Check, and train, unless it is finished. conclude: from the record, whose lengths are then known, to further
    fields of the provenance. Raises InputError, TrainingFailed, KeyboardInterrupt: the same call goes on."""
    prepared, kind, output = _prepare(plan, rows, strict=not dry_run), plan.kind, OutputDirectory(plan.out)
    if dry_run:
        found = result.planned(prepared, output.folder)
        found.objections += [kind.lacking] if kind.lacking else []
        return found

    def read_facts() -> None:
        record = prepared.record
        if not record.lengths:
            record.lengths = orjson.loads(read_small(output.folder / FACTS))
            if left_out := record.lengths["left_out"]:
                of = sum(record.data[name] for name in ("rows", "eval_rows"))
                record.notes.append(f"{left_out:,} of {of:,} rows were longer than the limit of tokens and left out")
            record.data |= {"rows": record.lengths["rows"], "eval_rows": record.lengths.get("held_out_rows", 0)}
            output.write_record(record)
        prepared.provenance = prepared.provenance.model_copy(update=dict(conclude(record)))
        prepared.provenance.write(output.folder)
        shutil.rmtree(output.folder / _FOLDER, ignore_errors=True)  # only the training needed it
        for name in (_JOB, FACTS):
            (output.folder / name).unlink(missing_ok=True)

    with output.held() as lock:
        command = partial(_command, plan, rows, prepared.record.resolved)
        resumes = not prepared.record.resolved.get("save_only_model")  # else the optimizer would begin anew
        trainer = Trainer(kind.trainer, command, watcher, resumes=resumes, holds=lock)
        try:
            return train_by(trainer, output, prepared, result, read_facts)
        except TrainingFailed:
            if output.last_checkpoint() is None:
                (output.folder / TRAINING).unlink()  # nothing was learned: another configuration may take the folder
            raise


def _command(plan: Plan, rows: Rows, config: Mapping[str, Any], checkpoint: Path | None) -> list[str]:
    """Of the process, whose rows and job are written. Raises InputError where it lacks a package."""
    folder, gpus = plan.out / _FOLDER, count_gpus()
    if plan.kind.lacking:
        raise InputError(plan.kind.lacking)
    folder.mkdir(exist_ok=True)
    for name, lines in ((ROWS, rows.train), (HELD_OUT, rows.held_out)):
        (folder / name).write_bytes(b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in lines))
    lora = {theirs: config[ours] for ours, theirs in LORA.items() if ours in config}
    if isinstance(named := lora.get("target_modules"), str):
        lora["target_modules"] = "all-linear" if named == "all" else listed(named)
    job = ProcessJob(
        base=str(config["model_name_or_path"]),
        out=str(plan.out),
        rows=str(folder / ROWS),
        held_out=str(folder / HELD_OUT) if rows.held_out else None,
        arguments=plan.kind.arguments(config),
        lora=lora if lora.get("r") else None,
        ours={key: config[key] for key in plan.kind.ours if key in config},
        resume=str(checkpoint) if checkpoint else None,
    )
    write_file(plan.out / _JOB, job.model_dump_json().encode(), shared=True)
    several = ["-m", "torch.distributed.run", "--nproc_per_node", str(gpus)] if gpus > 1 else []
    return [sys.executable, *several, "-m", plan.kind.module, str(plan.out / _JOB)]


# -- the process -------------------------------------------------------------------------------------------------


def arguments_of(job: ProcessJob, kind: Any, **ours: Any) -> Any:
    """The trainer's arguments, of class `kind`. Ends the process where it does not take them."""
    ours |= {"output_dir": job.out, "report_to": "none", "remove_unused_columns": False}
    try:
        return kind(**job.arguments | ours)
    except (TypeError, ValueError) as error:
        raise SystemExit(f"the trainer does not take this configuration: {error}") from error


def base_of(job: ProcessJob, kind: Any, arguments: Any, **more: Any) -> Any:
    """The base model, by the `kind` of transformers' Auto classes that it is to be."""
    import torch
    from transformers import set_seed

    set_seed(arguments.seed)  # before a new head, whose weights are random
    dtype = torch.bfloat16 if arguments.bf16 and job.lora else torch.float32
    model = kind.from_pretrained(job.base, dtype=dtype, trust_remote_code=False, **more)
    if arguments.use_cpu and model.num_parameters() < SMALL and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)
    return model


def train_rows(
    job: ProcessJob, kind: Any, tokenized: Tokenized, *, task: str, **parts: Any
) -> tuple[Any, dict[str, int]]:
    """Train by a trainer of TRL's, on rows that fit whole: it would cut longer ones, or leave them out, without a word.

    tokenized: from a row of the job to what the trainer takes and its length in tokens; raises ValueError for a row
    that is refused. task: peft's word for what the model does. parts: what else the trainer is made of.

    Returns the model, None where another process saves it, and facts of the rows. Ends the process where none fits.
    """
    from datasets import Dataset
    from peft import LoraConfig

    limit, sets, lengths = job.most_tokens(parts["model"].config), dict[str, list[Any]](), list[int]()
    for name, file in {"training rows": job.rows, "held-out rows": job.held_out}.items():
        sets[name] = []
        for number, line in enumerate(Path(file).read_bytes().splitlines() if file else (), start=1):
            try:
                row, length = tokenized(json.loads(line))
            except ValueError as error:
                raise SystemExit(f"row {number} of the {name}: {error}") from error
            lengths.append(length)
            sets[name] += [row] if length <= limit else []
        if file and not sets[name]:
            raise SystemExit(f"all {name} are longer than {limit} tokens: raise max_length, or cutoff_len")
    rows, held_out = sets.values()
    trainer = kind(
        train_dataset=Dataset.from_list(rows),
        eval_dataset=Dataset.from_list(held_out) if held_out else None,
        peft_config=LoraConfig(task_type=task, **job.lora) if job.lora else None,
        callbacks=[teller(job.out)],
        **parts,
    )
    return train_to_the_end(trainer, job, parts["processing_class"]), {
        "rows": len(rows),
        "held_out_rows": len(held_out),
        "left_out": sum(length > limit for length in lengths),
        "longest_row": max(length for length in lengths if length <= limit),  # tokens
    }


def teller(out: str) -> Any:
    """A callback that writes what is logged in the form in which LLaMA-Factory does, which the parent reads."""
    from transformers import TrainerCallback

    class Told(TrainerCallback):  # type: ignore[misc, unused-ignore]
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:  # noqa: ARG002
            if state.is_world_process_zero:
                line = {"current_steps": state.global_step, "total_steps": state.max_steps, **(logs or {})}
                with (Path(out) / "trainer_log.jsonl").open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")

    return Told()


def train_to_the_end(trainer: Any, job: ProcessJob, tokenizer: Any) -> Any:
    """Train and save a whole model; returns it, or None where another process saves."""
    done = trainer.train(resume_from_checkpoint=job.resume)
    trainer.save_state()
    trainer.save_metrics("all", done.metrics | (trainer.evaluate() if trainer.eval_dataset else {}), combined=False)
    if not trainer.is_world_process_zero():
        return None
    trained = trainer.accelerator.unwrap_model(trainer.model)
    if job.lora:
        trained = trained.merge_and_unload()
    trained.eval()
    trained.save_pretrained(job.out)
    tokenizer.save_pretrained(job.out)
    return trained


def write_facts(job: ProcessJob, facts: Mapping[str, Any]) -> None:
    (Path(job.out) / FACTS).write_bytes(orjson.dumps(facts))
