"""`reasonrag train-critic`: a configuration and a data set become a critic that says what it was trained on.

Puts the parts together: resolve, check the data as for any training, write the rows, run `training_script`, record.
Decides whether a training is new, resumed or finished. Knows neither tokens nor losses.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, Literal

import orjson
from pydantic import BaseModel, ConfigDict

from preference.export.files import write_file
from preference.export.formats import PAIRS_FILE
from reasonrag.agent.prompting import PROMPTS, Prompts, save_prompts
from reasonrag.critics.rows import CriticRows, Fold, read_rows, row_digests, write_rows
from reasonrag.critics.settings import TrainCriticSettings
from reasonrag.critics.training_script import FACTS, TrainingFacts, TrainingJob
from reasonrag.curation.blockers import refuse_unless_allowed
from reasonrag.errors import InputError
from reasonrag.files import read_small
from reasonrag.llm.critic import CriticFacts
from reasonrag.progress import JobWatcher, SilentWatcher
from reasonrag.rendering import Part, Table, counted, next_command
from reasonrag.run_config import config_hash
from reasonrag.serving.local_server import count_gpus
from reasonrag.settings import resolve
from reasonrag.signatures import public_call
from reasonrag.training import preflight_checks
from reasonrag.training.llamafactory.config_files import as_yaml, find_config, parse_changes, shipped_names
from reasonrag.training.llamafactory.config_resolution import refuse_secrets, settle_paths
from reasonrag.training.llamafactory.dataset_info import (
    DatasetEntry,
    TrainingData,
    read_questions,
    read_training_data,
)
from reasonrag.training.llamafactory.foreign_settings import foreign_settings, tokens_for
from reasonrag.training.llamafactory.inspection import query_driver
from reasonrag.training.llamafactory.launcher import TrainingFailed, run_watched
from reasonrag.training.metrics import TRAINER_LOG, read_metrics, write_metrics
from reasonrag.training.model_card import CARD, render_model_card
from reasonrag.training.output_directory import TRAIN_LOG, TRAINING, OutputDirectory, TrainingRecord
from reasonrag.training.preflight_checks import BaseFacts, PreflightFindings
from reasonrag.training.prompt_parity import prompts_of_training
from reasonrag.training.provenance import Provenance

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


class CriticResult(BaseModel):
    """What `train-critic` did; the object of `train-critic --json`."""

    model_config = ConfigDict(protected_namespaces=())

    state: Literal["trained", "finished already", "dry run"]
    out: str
    labels: str
    """The labels of its rows; outcome: an outcome model, which others must beat."""
    config: dict[str, Any]
    rows: int
    held_out_rows: int
    questions: int
    """Questions that it was trained on; the others of the data set are left to evaluate it."""
    notes: list[str] = []
    set_aside: list[str] = []
    objections: list[str] = []
    """What would be refused; only a dry run has any."""
    resumed_from: str | None = None
    steps: int | None = None
    results: dict[str, float] = {}
    """The last logged value of each metric."""
    warnings: list[str] = []
    folds: list[CriticResult] = []
    """With --folds, one critic each; the other fields are then of the first."""

    def shown(self) -> Iterator[Part]:
        """What was trained, its last metrics, and the next command."""
        for each in self.folds or [self]:
            yield Table("Critic", each._rows())
            yield from (f"- {said}" for said in [*each.notes, *each.warnings, *each.objections])
        if self.state == "dry run":
            return
        if self.folds:
            yield next_command(
                "pairs", "RUN", "--consensus", *(word for each in self.folds for word in ("--critic", each.out))
            )
        else:
            yield next_command("evaluate-critic", self.out, "RUN")

    def _rows(self) -> Iterator[tuple[str, object]]:
        yield "critic", f"{self.state}: {self.out}"
        yield "labels", self.labels
        yield "rows", f"{self.rows:,} of {counted(self.questions, 'question')}, {self.held_out_rows:,} held out"
        if self.steps is not None:
            yield "steps", f"{self.steps:,}" + (f", resumed from {self.resumed_from}" if self.resumed_from else "")
        told = {"loss": "loss", "eval_loss": "loss, held out", "eval_accuracy": "pairs ranked as labelled, held out"}
        yield from ((said, f"{self.results[name]:.3f}") for name, said in told.items() if name in self.results)


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
    prompts: Path | None
    allow: tuple[str, ...]
    allow_eval: tuple[str, ...]
    fold: Fold | None = None


def _plan(settings: TrainCriticSettings) -> CriticPlan:
    if not settings.config:
        raise InputError(f"a configuration is needed: a YAML file, or one of {', '.join(shipped_names(CONFIGS))}")
    if settings.data is None:
        raise InputError("--data is needed: a folder that reasonrag pairs wrote")
    file = find_config(settings.config, CONFIGS)
    config = {**file.values, **parse_changes(settings.set)}
    config = {key: value for key, value in config.items() if value is not None}
    refuse_secrets(config)
    if not config.get("model_name_or_path"):
        raise InputError("no base model: --set model_name_or_path=FOLDER, or a name on the Hub")
    if "stage" in config:
        raise InputError(f"{file.name} is LLaMA-Factory's; reasonrag train takes it")
    settle_paths(config, file)
    data = read_training_data(settings.data)
    out = settings.out or HOME / data.directory.resolve().name
    return CriticPlan(
        config, file.name, data, out.resolve(), settings.prompts, tuple(settings.allow), tuple(settings.allow_eval)
    )


@dataclass
class _Prepared:
    plan: CriticPlan
    rows: CriticRows
    held_out: CriticRows
    base: BaseFacts
    prompts: Prompts | None
    decides: dict[str, Any]
    provenance: Provenance
    found: PreflightFindings

    @property
    def labels(self) -> str:
        """outcome only if all rows are labelled by it."""
        return "+".join(sorted(self.rows.labels))


def _prepare(plan: CriticPlan, *, strict: bool) -> _Prepared:
    """Check everything that `train` checks of a data set. Raises InputError."""
    found, data = PreflightFindings(), plan.data
    digests = row_digests(data.directory)
    base = preflight_checks.check_base_model(plan.config)
    prompts, chosen = prompts_of_training(data.directory, plan.prompts)
    rows = read_rows(data.directory, "train", plan.fold)
    held_out = read_rows(data.directory, "validation", plan.fold)
    if not rows.rows:
        raise InputError(f"{data.directory} has no rows to train on; {data.directory}/dropped.jsonl says why")
    entry = DatasetEntry("rows of a critic", {}, data.directory / PAIRS_FILE)
    asked = read_questions(data, entry)
    preflight_checks.check_rows([entry], data, asked, found)
    preflight_checks.check_audit(data, found)
    conditions = preflight_checks.check_prompts(data, prompts, base, found)
    found.objections += foreign_settings(plan.config)
    if strict:
        refuse_unless_allowed(found.objections, allow=plan.allow, allow_eval=plan.allow_eval, therefore="not trained")
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
        versions={name: version(name) for name in ("reasonrag", *_PACKAGES) if _installed(name)},
    ).after(base.came_from)
    return _Prepared(
        plan, rows, held_out, base, prompts if chosen or conditions.renderer else None, decides, provenance, found
    )


def _installed(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True


def _lacking() -> str | None:
    """Why this environment cannot train a critic; None if it can."""
    missing = [name for name in _PACKAGES if not _installed(name)]
    if not missing and tuple(int(part) for part in version("trl").split(".")[:2]) < _FEWEST_TRL:
        missing = [f"trl 1.16 or newer, here is {version('trl')}"]
    return f"train-critic needs {', '.join(missing)}: pip install 'reasonrag[rl]'" if missing else None


# -- the training ----------------------------------------------------------------------------------------------


def _train(plan: CriticPlan, watcher: JobWatcher, *, dry_run: bool) -> CriticResult:
    prepared = _prepare(plan, strict=not dry_run)
    if dry_run:
        return _result(prepared, "dry run", None)
    output = OutputDirectory(plan.out)
    with output.held() as lock:
        before = output.check(prepared.decides)
        if before and before.state == "finished":
            return _result(prepared, "finished already", before)
        if lacking := _lacking():
            raise InputError(lacking)
        if before is None or before.state == "started":
            before = _run(prepared, output, before, watcher, lock)
        _sum_up(prepared, before, output)
        before.state = "finished"
        output.write_record(before)
    return _result(prepared, "trained", before)


def _run(
    prepared: _Prepared, output: OutputDirectory, before: TrainingRecord | None, watcher: JobWatcher, lock: int
) -> TrainingRecord:
    """Run the training to its end. Raises TrainingFailed, with the last lines and what to do, and KeyboardInterrupt."""
    plan, folder = prepared.plan, output.folder
    checkpoint = output.last_checkpoint() if before else None
    rows = folder / _ROWS
    rows.mkdir(exist_ok=True)
    write_rows(prepared.rows.rows, rows / "train.jsonl")
    write_rows(prepared.held_out.rows, rows / "held_out.jsonl")
    gpus = count_gpus()
    job = _job(prepared, rows, checkpoint)
    write_file(folder / _JOB, job.model_dump_json().encode(), shared=True)
    several = ["-m", "torch.distributed.run", "--nproc_per_node", str(gpus)] if gpus > 1 else []
    command = [sys.executable, *several, "-m", "reasonrag.critics.training_script", str(folder / _JOB)]
    record = _record(prepared, before, checkpoint, command)
    output.write_config(as_yaml(plan.config, f"What reasonrag train-critic resolved from {plan.name}."))
    output.write_record(record)
    prepared.provenance.write(folder)
    if prepared.prompts:
        save_prompts(prepared.prompts, folder / PROMPTS, shared=True)
    if checkpoint:
        watcher.say(f"resuming from {checkpoint}")
    else:
        output.begin_anew()
    log = folder / TRAIN_LOG
    watcher.say(f"training a critic on {counted(len(prepared.rows.rows), 'row')} into {folder}; full output: {log}")
    try:
        run_watched(
            command,
            "TRL",
            watcher,
            log=log,
            follow=folder / TRAINER_LOG,
            python=Path(sys.executable),
            environment={"TOKENIZERS_PARALLELISM": "false", "PYTHONPATH": str(Path(__file__).parents[2])},
            holds=lock,
            tokens=tokens_for(plan.config),
        )
    except TrainingFailed:
        if output.last_checkpoint() is None:
            (folder / TRAINING).unlink()  # nothing was learned: another configuration may take the folder
        raise
    record.lengths = orjson.loads(read_small(folder / FACTS))
    record.state, record.ended = "trained", datetime.now(UTC).isoformat(timespec="seconds")
    output.write_record(record)
    return record


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


def _record(
    prepared: _Prepared, before: TrainingRecord | None, checkpoint: Path | None, command: list[str]
) -> TrainingRecord:
    plan = prepared.plan
    return TrainingRecord(
        state="started",
        config=plan.name,
        decides=prepared.decides,
        config_hash=prepared.provenance.config_hash,
        resolved=plan.config,
        settings={"nodes": 1, "gpus_per_node": count_gpus()},
        data={
            "directory": str(plan.data.directory.resolve()),
            "stage": STAGE,
            "dataset": PAIRS_FILE,
            "rows": len(prepared.rows.rows),
            "eval_rows": len(prepared.held_out.rows),
            "sha256": prepared.decides["data"],
            "labels": prepared.labels,
        },
        lengths={},
        notes=prepared.found.notes,
        set_aside=[f"{each.flag} {each.name}" for each in prepared.found.objections],
        command=command,
        environment={},
        python=sys.executable,
        versions=prepared.provenance.versions,
        gpus=[each.name for each in query_driver()] if count_gpus() else [],
        started=before.started if before else datetime.now(UTC).isoformat(timespec="seconds"),
        resumed_from=[*(before.resumed_from if before else []), *([checkpoint.name] if checkpoint else [])],
    )


def _sum_up(prepared: _Prepared, record: TrainingRecord, output: OutputDirectory) -> None:
    """Write metrics, provenance and model card, and remove what only the training needed."""
    folder, facts = output.folder, TrainingFacts.model_validate(record.lengths)
    metrics = read_metrics(folder, STAGE)
    write_metrics(metrics, folder)
    critic = CriticFacts(
        labels=prepared.labels,
        end_token=facts.end_token,
        trial_score=facts.trial_score,
        trial_tokens=facts.trial_tokens,
    )
    provenance = prepared.provenance.model_copy(update={"critic": critic})
    provenance.write(folder)
    write_file(folder / CARD, render_model_card(folder, record, provenance, metrics).encode(), shared=True)
    shutil.rmtree(folder / _ROWS, ignore_errors=True)
    for name in (_JOB, FACTS):
        (folder / name).unlink(missing_ok=True)


# -- results ---------------------------------------------------------------------------------------------------


def _result(
    prepared: _Prepared, state: Literal["trained", "finished already", "dry run"], record: TrainingRecord | None
) -> CriticResult:
    plan = prepared.plan
    metrics = read_metrics(plan.out, STAGE) if record else None
    facts = TrainingFacts.model_validate(record.lengths) if record else None
    notes, lacking = [*prepared.found.notes], _lacking() if state == "dry run" else None
    if facts and facts.left_out:
        notes.append(f"{facts.left_out:,} rows were longer than max_length and left out")
    return CriticResult(
        state=state,
        out=str(plan.out),
        labels=prepared.labels,
        config=plan.config,
        rows=facts.rows if facts else len(prepared.rows.rows),
        held_out_rows=facts.held_out_rows if facts else len(prepared.held_out.rows),
        questions=len(prepared.rows.questions),
        notes=notes,
        set_aside=record.set_aside if record else [],
        objections=[
            *(f"{each.what} ({each.flag} {each.name})" for each in prepared.found.objections),
            *([lacking] if lacking else []),
        ]
        if state == "dry run"
        else [],
        resumed_from=record.resumed_from[-1] if record and record.resumed_from else None,
        steps=metrics.steps if metrics else None,
        results=metrics.last if metrics else {},
        warnings=metrics.warnings if metrics else [],
    )
