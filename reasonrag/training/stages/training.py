"""One training: a resolved configuration and a data set become a model that says what it is.

Puts the parts together: check (`prepare`), launch (`llamafactory.launcher`), watch and report (`metrics`,
`model_card`). Decides whether a training is new, resumed or already finished. Trainings of `stages.trl` run and end by
`train_by`, too.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

import orjson
from pydantic import BaseModel

from preference.export.private_files import write_file, write_json
from reasonrag.agent.prompting import PROMPTS, save_prompts
from reasonrag.progress import JobWatcher
from reasonrag.rendering import Aside, Line, Part, Shown, Table, next_command, warned
from reasonrag.training.llamafactory.config_files import as_yaml
from reasonrag.training.llamafactory.config_resolution import ResolvedConfig
from reasonrag.training.llamafactory.foreign_settings import tokens_for
from reasonrag.training.llamafactory.launcher import cli_command, run_watched
from reasonrag.training.metrics import METRICS, SHOWN_METRICS, TRAINER_LOG, TRAINER_LOGS, read_metrics
from reasonrag.training.model_card import CARD, render_model_card
from reasonrag.training.output_directory import TRAIN_LOG, TRAIN_YAML, OutputDirectory, TrainingRecord, utc_now
from reasonrag.training.prepare import Startable, TrainingJob, identity_of, prepare_training
from reasonrag.training.provenance import evaluation_of

TrainingState = Literal["trained", "finished already", "dry run", "script written"]


class TrainingResult(BaseModel, Shown):
    """What `train` did; the object of `train --json`."""

    state: TrainingState
    out: str
    record: TrainingRecord
    """What `training.json` says of it; of a dry run, what it would say."""
    objections: list[str] = []
    """What would be refused; only a dry run has any."""
    steps: int | None = None
    results: dict[str, float] = {}
    """The last logged value of each metric."""
    warnings: list[str] = []
    script: str | None = None
    """The batch script that was written."""
    stages: dict[str, dict[str, Any]] = {}
    """Of a recipe: what each stage came to, by its name; in a dry run, what LLaMA-Factory would read."""

    @classmethod
    def planned(cls, prepared: Startable, out: Path) -> Self:
        """Of a dry run."""
        objections = [f"{each.what} ({each.flag} {each.name})" for each in prepared.objections]
        return cls(state="dry run", out=str(out), record=prepared.record, objections=objections)

    @classmethod
    def of(cls, record: TrainingRecord, output: OutputDirectory, state: TrainingState) -> Self:
        """What came of it, where this is the machine whose folder has the numbers."""
        found = cls(state=state, out=str(output.folder), record=record)
        if output.is_first:
            metrics = read_metrics(output.folder, record.data["stage"])
            found.steps, found.results, found.warnings = metrics.steps, metrics.last, metrics.warnings
        return found

    def shown(self) -> Iterator[Part]:
        """What was trained, its metrics, warnings, and the next command; of a dry run the plan."""
        yield from self._told()
        if self.state not in ("dry run", "script written"):
            yield from self._next()

    def _told(self) -> Iterator[Part]:
        if self.state == "dry run":
            yield from self._plan()
            return
        if self.state == "finished already":
            yield Line(f"{self.out} was already trained with this configuration; nothing was started")
        else:
            yield from (Aside(f"note: {each}") for each in self.record.notes)
        if self.script:
            yield Line(f"wrote {self.script}; nothing was started. Submit it with: sbatch {shlex.quote(self.script)}")
            return
        data, out = self.record.data, Path(self.out)
        kinds = (data["stage"], self.record.resolved.get("finetuning_type"), data.get("labels"))
        rows = [("stage", ", ".join(filter(None, kinds))), ("steps", f"{self.steps or 0:,}")]
        rows += [(said, f"{self.results[name]:.4g}") for name, said in SHOWN_METRICS.items() if name in self.results]
        yield from warned(self.warnings)
        yield Table(out.name, rows)
        if self.steps is not None:
            yield Line(f"model: {out}; card: {out / CARD}; numbers: {out / METRICS}")

    def _next(self) -> Iterator[Part]:
        stage, kind = self.record.data["stage"], self.record.resolved.get("finetuning_type")
        if kind == "lora" and stage != "rm":
            yield next_command("train", "--merge", self.out, "--out", f"{self.out}-merged")
        elif stage != "rm":
            yield evaluation_of(Path(self.out))

    def _plan(self) -> Iterator[Part]:
        """The configurations on stdout, what is said of them beside it."""
        record = self.record
        for name, config in list(self.stages.items())[:-1]:
            yield Line(as_yaml(config, f"stage {name}: what LLaMA-Factory would read"))
        header = f"what the trainer would read; hash {record.config_hash}"
        yield Line(as_yaml(record.resolved, header))
        yield from (Aside(f"note: {each}") for each in record.notes)
        yield from (Aside(f"allowed: {each}") for each in record.set_aside)
        yield from (Aside(f"would be refused: {each}") for each in self.objections)
        if record.command:
            variables = [f"{name}={value}" for name, value in record.environment.items()]
            yield Aside(f"would be started: {' '.join(variables + record.command)}")


Result = TypeVar("Result", bound=TrainingResult)


def given(config: str | Path | None, flags: Mapping[str, Any]) -> dict[str, Any]:
    """Flags of a call as settings are resolved from: `set` may be a mapping, as Python would say it."""
    changes = flags.get("set")
    if isinstance(changes, Mapping):
        flags = {**flags, "set": [f"{key}={orjson.dumps(value).decode()}" for key, value in changes.items()]}
    return {**flags, "config": None if config is None else str(config)}


def train_resolved(resolution: ResolvedConfig, job: TrainingJob, *, dry_run: bool = False) -> TrainingResult:
    """Raises InputError before anything is started, TrainingFailed, and KeyboardInterrupt: the same call resumes."""
    output = OutputDirectory(resolution.out, rank=job.launch.node_rank)
    if not dry_run and output.is_first:
        done = output.record()
        if done and done.state == "finished" and done.decides == identity_of(resolution, job.data):
            return TrainingResult.of(done, output, "finished already")
    prepared = prepare_training(resolution, job, strict=not dry_run)
    if dry_run:
        return TrainingResult.planned(prepared, resolution.out)
    record, config = prepared.record, prepared.record.resolved

    def command(checkpoint: Path | None) -> list[str]:
        overrides = {"resume_from_checkpoint": str(checkpoint)} if checkpoint else {"overwrite_output_dir": "true"}
        return cli_command(Path(record.python), "train", output.own / TRAIN_YAML, overrides)

    resumes = config["stage"] != "rm" and not config.get("save_only_model")  # else LLaMA-Factory cannot
    with output.held() as lock:
        trainer = Trainer("LLaMA-Factory", command, job.watcher, resumes=resumes, holds=lock)
        return train_by(trainer, output, prepared, TrainingResult)


@dataclass(frozen=True)
class Trainer:
    """Who trains, and by which command: from a checkpoint, or from none. resumes: whether it can start from a
    checkpoint. holds: the descriptor that keeps the folder locked while it lives."""

    name: str
    command: Callable[[Path | None], list[str]]
    watcher: JobWatcher
    resumes: bool
    holds: int


def train_by(
    trainer: Trainer,
    output: OutputDirectory,
    prepared: Startable,
    result: type[Result],
    conclude: Callable[[], None] = lambda: None,
) -> Result:
    """Train, unless that is done, and write metrics and model card. conclude: what is to be done between.

    Raises TrainingFailed, with the last lines and what to do, and KeyboardInterrupt.
    """
    before = output.check(prepared.record.decides)
    if before and before.state == "finished":
        return result.of(before, output, "finished already")
    if before is None or before.state == "started":
        _run(trainer, output, prepared, before)
    else:
        prepared.record = before
    conclude()
    record = prepared.record
    if output.is_first:
        metrics = read_metrics(output.folder, record.data["stage"])
        write_json(output.folder / METRICS, metrics.model_dump(mode="json"), shared=True)
        card = render_model_card(output.folder, record, prepared.provenance, metrics)
        write_file(output.folder / CARD, card.encode(), shared=True)
    record.state = "finished"
    output.write_record(record)
    return result.of(record, output, "trained")


def _run(trainer: Trainer, output: OutputDirectory, prepared: Startable, before: TrainingRecord | None) -> None:
    """To the end, from the last checkpoint if there is one. before: the record of the attempt that was stopped."""
    record, checkpoint = prepared.record, output.last_checkpoint() if trainer.resumes else None
    record.command = trainer.command(checkpoint)
    header = (
        f"What {trainer.name} trains by, resolved by reasonrag from {record.config} and {record.data['directory']}.\n"
        f"Hash {record.config_hash}. The command is in training.json. To change something, run the same command "
        "with another --out."
    ).replace("\r", " ")
    write_file(output.own / TRAIN_YAML, as_yaml(record.resolved, header).encode(), shared=True)
    if before:
        record.started, record.resumed_from = before.started, before.resumed_from
    if checkpoint:
        record.resumed_from = [*record.resumed_from, checkpoint.name]
        trainer.watcher.say(f"resuming from {checkpoint}")
    elif before:
        trainer.watcher.say("starting over: what was stopped left no checkpoint to resume from")
    output.write_record(record)
    if output.is_first:
        prepared.provenance.write(output.folder)
        if prepared.prompts:
            save_prompts(prepared.prompts, output.folder / PROMPTS, shared=True)
        for name in TRAINER_LOGS if checkpoint is None else ():  # of an attempt that was stopped
            (output.folder / name).unlink(missing_ok=True)
    log = output.own / TRAIN_LOG
    trainer.watcher.say(f"training into {output.folder}; full output of {trainer.name}: {log}")
    run_watched(
        record.command,
        trainer.name,
        trainer.watcher,
        log=log,
        follow=output.folder / TRAINER_LOG,
        python=Path(record.python),
        environment=record.environment,
        holds=trainer.holds,
        tokens=tokens_for(record.resolved),
    )
    record.state, record.ended = "trained", utc_now()
    output.write_record(record)
