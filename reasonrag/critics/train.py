"""`reasonrag train-critic`: a configuration and a data set become a critic that says what it was trained on.

Puts the parts together: resolve, check the data as for any training, write the rows, run `training_script`, record.
Decides whether a training is new, resumed or finished. Knows neither tokens nor losses.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import orjson

from preference.export.formats import pairs_files
from preference.export.private_files import write_file
from reasonrag.critics.rows import CriticRows, Fold, read_rows, row_digests, write_rows
from reasonrag.critics.settings import TrainCriticSettings
from reasonrag.critics.training_script import FACTS, TrainingJob
from reasonrag.errors import InputError
from reasonrag.files import read_small
from reasonrag.llm.critic import CriticFacts
from reasonrag.progress import JobWatcher, SilentWatcher
from reasonrag.rendering import Part, next_command
from reasonrag.run_config import config_hash
from reasonrag.serving.local_server import count_gpus, driver_gpus
from reasonrag.settings import resolve
from reasonrag.signatures import public_call
from reasonrag.training.llamafactory.config_files import changes_of, find_config, shipped_names
from reasonrag.training.llamafactory.config_resolution import base_settings
from reasonrag.training.llamafactory.dataset_info import DatasetEntry, TrainingData, read_training_data
from reasonrag.training.llamafactory.foreign_settings import foreign_settings
from reasonrag.training.llamafactory.launcher import TrainingFailed
from reasonrag.training.output_directory import TRAINING, OutputDirectory, TrainingRecord
from reasonrag.training.preflight_checks import PreflightFindings, check_data
from reasonrag.training.prepare import Permissions, Startable
from reasonrag.training.prompt_parity import prompts_of_training
from reasonrag.training.provenance import Provenance
from reasonrag.training.stages.training import Trainer, TrainingResult, run_trainer, sum_up

STAGE: Final = "critic"
CONFIGS: Final = "critics"
"""Folder of the shipped configurations below the others."""
HOME: Final = Path("critics")
_JOB, _ROWS = ".job.json", ".rows"
_PACKAGES: Final = ("trl", "transformers", "torch", "datasets", "accelerate", "peft")
_FEWEST_TRL: Final = (1, 16)
_LORA: Final = {
    "lora_rank": "r",
    "lora_alpha": "lora_alpha",
    "lora_dropout": "lora_dropout",
    "lora_target": "target_modules",
}
_OURS: Final = ("model_name_or_path", "margin_scale", "max_length", *_LORA)
"""Keys of a configuration that are not TRL's."""
_FROM_BEST: Final = "load_best_model_at_end"


class CriticResult(TrainingResult):
    """What `train-critic` did; the object of `train-critic --json`."""

    folds: list[CriticResult] = []  # noqa: RUF012 - pydantic copies it
    """With --folds, one critic each; the other fields are then of the first."""

    def _told(self) -> Iterator[Part]:
        for each in self.folds:
            yield from each._told()
        if not self.folds:
            yield from super()._told()

    def _next(self) -> Iterator[Part]:
        if self.folds:
            critics = (word for each in self.folds for word in ("--critic", each.out))
            yield next_command("pairs", "RUN", "--consensus", *critics)
        else:
            yield next_command("evaluate-critic", self.out, "RUN")


@public_call(TrainCriticSettings)
def train_critic(
    config: str | Path | None = None, *, dry_run: bool = False, watcher: JobWatcher | None = None, **flags: Any
) -> CriticResult:
    """Train a critic, a model that scores steps, on a data set with TRL.

    Raises InputError before anything is started, TrainingFailed if the training exits with an error, KeyboardInterrupt
    after its process has ended: the same call resumes.

    Example:
        >>> reasonrag.train_critic("qwen2.5-7b", data="data/first", out="critics/first")  # doctest: +SKIP

    Args:
        config: a YAML file, or the bare name of a shipped one. None: `config` of reasonrag.toml.
        dry_run: report the configuration and what would be refused, start nothing.
        watcher: is told what happens while it goes on; none: silent.
    """
    changes = flags.get("set")
    if isinstance(changes, Mapping):  # as Python would say it
        flags["set"] = [f"{key}={orjson.dumps(value).decode()}" for key, value in changes.items()]
    settings = resolve(TrainCriticSettings, "train-critic", flags | {"config": None if config is None else str(config)})
    watcher = watcher or SilentWatcher()
    plan = _plan(settings)
    if not settings.folds:
        return _train(plan, watcher, dry_run=dry_run)
    parts = [
        replace(plan, out=plan.out / f"fold-{number}", fold=Fold(number, settings.folds))
        for number in range(1, settings.folds + 1)
    ]
    found = [_train(part, watcher, dry_run=dry_run) for part in parts]
    return found[0].model_copy(update={"folds": found, "out": str(plan.out)})


# -- before ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CriticPlan:
    """What is to be trained. config: resolved. name: of the configuration. fold: whose questions are left out."""

    config: dict[str, Any]
    name: str
    data: TrainingData
    out: Path
    permitted: Permissions
    fold: Fold | None = None


def _plan(settings: TrainCriticSettings) -> CriticPlan:
    if not settings.config:
        raise InputError(f"a configuration is needed: a YAML file, or one of {', '.join(shipped_names(CONFIGS))}")
    if settings.data is None:
        raise InputError("--data is needed: a folder that reasonrag pairs wrote")
    file = find_config(settings.config, CONFIGS)
    config = base_settings(file, changes_of(settings.set))
    if not config.get("model_name_or_path"):
        raise InputError("no base model: --set model_name_or_path=FOLDER, or a name on the Hub")
    if "stage" in config:
        raise InputError(f"{file.name} is LLaMA-Factory's; reasonrag train takes it")
    data = read_training_data(settings.data)
    out = settings.out or HOME / data.directory.resolve().name
    permitted = Permissions(settings.prompts, tuple(settings.allow), tuple(settings.allow_eval))
    return CriticPlan(config, file.name, data, out.resolve(), permitted)


@dataclass
class _Prepared(Startable):
    plan: CriticPlan
    rows: CriticRows
    held_out: CriticRows


def _prepare(plan: CriticPlan, *, strict: bool) -> _Prepared:
    """Check everything that `train` checks of a data set. Raises InputError."""
    found, data = PreflightFindings(), plan.data
    digests = row_digests(data.directory)
    prompts, chosen = prompts_of_training(data.directory, plan.permitted.prompts)
    rows = read_rows(data.directory, "train", plan.fold)
    held_out = read_rows(data.directory, "validation", plan.fold)
    if not rows.rows:
        raise InputError(f"{data.directory} has no rows to train on; {data.directory}/dropped.jsonl says why")
    entry = DatasetEntry("rows of a critic", {}, pairs_files(data.directory)["train"])
    base, asked, conditions = check_data(plan.config, [entry], data, prompts, found)
    found.objections += foreign_settings(plan.config)
    if strict:
        plan.permitted.refuse(found.objections)
    decides = plan.config | {
        "data": digests,
        "fold": [plan.fold.number, plan.fold.count] if plan.fold else None,
        "base_trained_by": [each.config_hash for each in base.came_from],
    }
    seen = rows.questions | (held_out.questions if plan.config.get(_FROM_BEST) else frozenset())
    provenance = Provenance(
        base_model=base.name,
        stage=STAGE,
        finetuning_type="merged" if plan.config.get("lora_rank") else "full",
        asked=conditions,
        data=[str(data.directory.resolve())],
        splits=list(asked.by_split),
        questions=sorted(seen),
        config_hash=config_hash(decides),
        versions={"reasonrag": version("reasonrag")} | _packages(),
    )
    standing = plan.permitted.standing(found.objections)
    record = TrainingRecord(
        config=plan.name,
        decides=decides,
        config_hash=provenance.config_hash,
        resolved=plan.config,
        settings={"nodes": 1, "gpus_per_node": count_gpus()},
        data=_facts_of_data(data.directory, digests, rows, held_out),
        lengths={},
        notes=found.notes,
        set_aside=[f"{each.flag} {each.name}" for each in found.objections if each not in standing],
        command=[],
        environment={"PYTHONPATH": str(Path(__file__).parents[2])},
        python=sys.executable,
        versions=provenance.versions,
        gpus=driver_gpus() if count_gpus() else [],
    )
    kept = prompts if chosen or conditions.renderer else None
    return _Prepared(record, provenance.after(base.came_from), kept, standing, plan, rows, held_out)


def _facts_of_data(folder: Path, digests: dict[str, str], rows: CriticRows, held_out: CriticRows) -> dict[str, Any]:
    return {
        "directory": str(folder.resolve()),
        "stage": STAGE,
        "dataset": next(iter(digests)),
        "rows": len(rows.rows),
        "eval_rows": len(held_out.rows),
        "sha256": digests,
        "labels": "+".join(sorted(rows.labels)),  # outcome only if all rows are labelled by it
    }


def _packages() -> dict[str, str]:
    """The versions of the packages that train a critic, of those that are here."""
    found = {}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _lacking() -> str | None:
    """Why this environment cannot train a critic; None if it can."""
    here = _packages()
    missing = [name for name in _PACKAGES if name not in here]
    if not missing and tuple(int(part) for part in here["trl"].split(".")[:2]) < _FEWEST_TRL:
        missing = [f"trl 1.16 or newer, here is {here['trl']}"]
    return f"train-critic needs {', '.join(missing)}: pip install 'reasonrag[rl]'" if missing else None


# -- the training ----------------------------------------------------------------------------------------------


def _train(plan: CriticPlan, watcher: JobWatcher, *, dry_run: bool) -> CriticResult:
    prepared, lacking, output = _prepare(plan, strict=not dry_run), _lacking(), OutputDirectory(plan.out)
    if dry_run:
        found = CriticResult.planned(prepared.record, plan.out, prepared.objections)
        found.objections += [lacking] if lacking else []
        return found
    with output.held() as lock:
        before = output.check(prepared.record.decides)
        if before and before.state == "finished":
            return CriticResult.of(before, output, "finished already")
        if lacking:
            raise InputError(lacking)
        if before is None or before.state == "started":
            _run(prepared, output, before, watcher, lock)
        else:
            prepared.record = before
        record = prepared.record
        if not record.lengths:
            record.lengths = orjson.loads(read_small(output.folder / FACTS))
            if left_out := record.lengths["left_out"]:
                record.notes.append(f"{left_out:,} rows were longer than max_length and left out")
            output.write_record(record)
        told = {name: value for name, value in record.lengths.items() if name in CriticFacts.model_fields}
        facts = CriticFacts(labels=record.data["labels"], **told)
        provenance = prepared.provenance.model_copy(update={"critic": facts})
        provenance.write(output.folder)
        shutil.rmtree(output.folder / _ROWS, ignore_errors=True)  # only the training needed it
        for name in (_JOB, FACTS):
            (output.folder / name).unlink(missing_ok=True)
        sum_up(output, record, provenance)  # last: a finished training is not looked at again
    return CriticResult.of(record, output, "trained")


def _run(
    prepared: _Prepared, output: OutputDirectory, before: TrainingRecord | None, watcher: JobWatcher, lock: int
) -> None:
    """Have TRL train to the end. Raises what `run_trainer` does."""
    folder = output.folder
    rows = folder / _ROWS
    rows.mkdir(exist_ok=True)
    write_rows(prepared.rows.rows, rows / "train.jsonl")
    write_rows(prepared.held_out.rows, rows / "held_out.jsonl")

    def command(checkpoint: Path | None) -> list[str]:
        job, gpus = _job(prepared, rows, checkpoint), count_gpus()
        write_file(folder / _JOB, job.model_dump_json().encode(), shared=True)
        several = ["-m", "torch.distributed.run", "--nproc_per_node", str(gpus)] if gpus > 1 else []
        return [sys.executable, *several, "-m", "reasonrag.critics.training_script", str(folder / _JOB)]

    header = f"What reasonrag train-critic resolved from {prepared.plan.name}."
    trainer = Trainer("TRL", header, command, watcher, resumes=True, holds=lock)
    try:
        run_trainer(trainer, output, prepared, before)
    except TrainingFailed:
        if output.last_checkpoint() is None:
            (folder / TRAINING).unlink()  # nothing was learned: another configuration may take the folder
        raise


def _job(prepared: _Prepared, rows: Path, checkpoint: Path | None) -> TrainingJob:
    plan, config = prepared.plan, prepared.plan.config
    lora = {theirs: config[ours] for ours, theirs in _LORA.items() if ours in config}
    if lora.get("target_modules") == "all":
        lora["target_modules"] = "all-linear"
    arguments = {key: value for key, value in config.items() if key not in _OURS}
    if not prepared.held_out.rows:
        for key in ("eval_strategy", "eval_steps", "per_device_eval_batch_size", _FROM_BEST):
            arguments.pop(key, None)
    return TrainingJob(
        base=str(config["model_name_or_path"]),
        out=str(plan.out),
        rows=str(rows / "train.jsonl"),
        held_out=str(rows / "held_out.jsonl") if prepared.held_out.rows else None,
        margin_scale=float(config.get("margin_scale", 0.0)),
        max_length=config.get("max_length"),
        arguments=arguments,
        lora=lora if lora.get("r") else None,
        resume=str(checkpoint) if checkpoint else None,
    )
