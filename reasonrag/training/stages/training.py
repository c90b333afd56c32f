"""One training: a resolved configuration and a data set become a model that says what it is.

Puts the parts together: check (`prepare`), launch (`llamafactory.launcher`), watch (`progress`), report (`metrics`,
`model_card`). Decides whether a training is new, resumed or already finished.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict

from preference.export.files import write_file
from reasonrag.agent.prompting import PROMPTS, save_prompts
from reasonrag.files import writing
from reasonrag.processes.train_python import PYTHON_VARIABLE
from reasonrag.redaction import redact, secrets
from reasonrag.rendering import Aside, Line, Part, Table, next_command, warned
from reasonrag.training.llamafactory.config_files import as_yaml
from reasonrag.training.llamafactory.config_resolution import ResolvedConfig
from reasonrag.training.llamafactory.dataset_info import TrainingData
from reasonrag.training.llamafactory.foreign_settings import tokens_for
from reasonrag.training.llamafactory.launcher import Launch, cli_command, run_watched
from reasonrag.training.llamafactory.slurm import SlurmScript
from reasonrag.training.metrics import METRICS, SHOWN_METRICS, TRAINER_LOG, read_metrics, write_metrics
from reasonrag.training.model_card import CARD, ModelCardFacts, render_model_card
from reasonrag.training.output_directory import TRAIN_LOG, OutputDirectory, TrainingRecord
from reasonrag.training.prepare import Permissions, PreparedTraining, identity_of, prepare_training
from reasonrag.training.progress import TrainingWatcher
from reasonrag.training.provenance import evaluation_of

DEFAULT_GPUS_PER_NODE: Final = 8
"""Assumed for a cluster node when --gpus-per-node is not given and this machine has no GPU."""
TrainingState = Literal["trained", "finished already", "dry run", "script written"]


class TrainingResult(BaseModel):
    """What `train` did; the object of `train --json`."""

    model_config = ConfigDict(protected_namespaces=())

    state: TrainingState
    out: str
    stage: str
    finetuning_type: str
    config: dict[str, Any]
    """What LLaMA-Factory reads."""
    config_hash: str
    data: dict[str, Any]
    lengths: dict[str, Any]
    command: list[str]
    environment: dict[str, str]
    notes: list[str]
    """Values that were filled in, and remarks for the user."""
    set_aside: list[str]
    objections: list[str] = []
    """What would be refused; only a dry run has any."""
    resumed_from: str | None = None
    steps: int | None = None
    results: dict[str, float] = {}
    """The last logged value of each metric."""
    warnings: list[str] = []
    files: list[str] = []
    stages: dict[str, dict[str, Any]] = {}
    """Of a recipe: what each stage came to, by its name; in a dry run, what LLaMA-Factory would read."""

    def shown(self) -> Iterator[Part]:
        """What was trained, its metrics, warnings, and the next command; of a dry run the plan."""
        if self.state == "dry run":
            yield from self._plan()
            return
        yield from (Aside(f"note: {each}") for each in self.notes)
        if self.state == "script written":
            submit = " ".join(self.command)
            yield Line(f"wrote {self.files[0]}; nothing was started. Submit it with: {submit}")
            return
        if self.state == "finished already":
            yield Line(f"{self.out} was already trained with this configuration; nothing was started")
        out, known = (
            Path(self.out),
            ((SHOWN_METRICS[name], self.results[name]) for name in SHOWN_METRICS if name in self.results),
        )
        rows = [("stage", f"{self.stage}, {self.finetuning_type}"), ("steps", f"{self.steps or 0:,}")]
        yield Table(out.name, rows + [(name, f"{value:.4g}") for name, value in known])
        yield from warned(self.warnings)
        if METRICS in self.files:
            yield Line(f"model: {out}; card: {out / CARD}; numbers: {out / METRICS}")
        if self.finetuning_type == "lora" and self.stage != "rm":
            yield next_command("train", "--merge", out, "--out", f"{out}-merged")
        elif self.stage != "rm":
            yield evaluation_of(out)

    def _plan(self) -> Iterator[Part]:
        """The configurations on stdout, what is said of them beside it."""
        for name, config in list(self.stages.items())[:-1]:
            yield Line(as_yaml(config, f"stage {name}: what LLaMA-Factory would read"))
        yield Line(as_yaml(self.config, f"reasonrag train would have LLaMA-Factory read this; hash {self.config_hash}"))
        yield from (Aside(f"note: {each}") for each in self.notes)
        yield from (Aside(f"allowed: {each}") for each in self.set_aside)
        yield from (Aside(f"would be refused: {each}") for each in self.objections)
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        yield Aside(f"would be started: {' '.join(variables + self.command)}")


def train_resolved(
    resolution: ResolvedConfig,
    data: TrainingData,
    launch: Launch,
    permitted: Permissions,
    watcher: TrainingWatcher,
    *,
    dry_run: bool = False,
) -> TrainingResult:
    """Raises InputError before anything is started, TrainingFailed, and KeyboardInterrupt: the same call resumes."""
    if not dry_run and not launch.node_rank:
        done = OutputDirectory(resolution.out).record()
        if done and done.state == "finished" and done.decides == identity_of(resolution, data):
            return _result(done, resolution, "finished already").model_copy(update={"notes": []})
    prepared = prepare_training(resolution, data, launch, permitted, strict=not dry_run)
    if dry_run:
        found = _result(prepared.record, resolution, "dry run")
        objections = [f"{each.what} ({each.flag} {each.name})" for each in prepared.objections]
        return found.model_copy(update={"objections": objections})
    output = OutputDirectory(resolution.out, rank=launch.node_rank)
    with output.held() as lock:
        return _train(prepared, output, watcher, lock)


# -- the training ----------------------------------------------------------------------------------------------


def _train(prepared: PreparedTraining, output: OutputDirectory, watcher: TrainingWatcher, lock: int) -> TrainingResult:
    resolution, record, first = prepared.resolution, prepared.record, prepared.launch.node_rank == 0
    before = output.check(record.decides)
    if before and before.state == "finished":
        return _result(before, resolution, "finished already", first=first)
    launches = before is None or before.state == "started"
    checkpoint = output.last_checkpoint() if launches and _resumes(resolution) else None
    if before:
        record.command, record.started, record.ended = before.command, before.started, before.ended
        record.resumed_from = before.resumed_from
    file = output.write_config(as_yaml(record.resolved, _header(record)))
    if launches:
        overrides = {"resume_from_checkpoint": str(checkpoint)} if checkpoint else {"overwrite_output_dir": "true"}
        record.command = cli_command(Path(record.python), "train", file, overrides)
        if checkpoint:
            record.resumed_from = [*record.resumed_from, checkpoint.name]
            watcher.say(f"resuming from {checkpoint}")
        output.write_record(record)
        if first:
            prepared.provenance.write(output.folder)
            if prepared.prompts:
                save_prompts(prepared.prompts, output.folder / PROMPTS, shared=True)
            if checkpoint is None:
                output.begin_anew()
        _launch(record, output, watcher, lock)
        record.state, record.ended = "trained", datetime.now(UTC).isoformat(timespec="seconds")
        output.write_record(record)
    if first:
        metrics = read_metrics(output.folder, resolution.stage)
        write_metrics(metrics, output.folder)
        facts = ModelCardFacts(output.folder, record, resolution.config, prepared.provenance, metrics, prepared.history)
        write_file(output.folder / CARD, render_model_card(facts).encode(), shared=True)
    record.state = "finished"
    output.write_record(record)
    found = _result(record, resolution, "trained", first=first)
    return found.model_copy(update={"resumed_from": str(checkpoint) if checkpoint else None})


def _resumes(resolution: ResolvedConfig) -> bool:
    """Whether LLaMA-Factory can resume this training from a checkpoint."""
    return resolution.stage != "rm" and not resolution.config.get("save_only_model")


def _header(record: TrainingRecord) -> str:
    return (
        f"What LLaMA-Factory reads, resolved by reasonrag train from {record.config} and {record.data['directory']}.\n"
        f"Hash {record.config_hash}. The command is in training.json. To change something, run reasonrag train again "
        "with another --out."
    ).replace("\r", " ")


def _launch(record: TrainingRecord, output: OutputDirectory, watcher: TrainingWatcher, lock: int) -> None:
    """Raises TrainingFailed, with the last lines and what to do, and KeyboardInterrupt."""
    log = output.own / TRAIN_LOG
    watcher.say(f"training into {output.folder}; full output of LLaMA-Factory: {log}")
    run_watched(
        record.command,
        "LLaMA-Factory",
        watcher,
        log=log,
        follow=output.folder / TRAINER_LOG,
        python=Path(record.python),
        environment=record.environment,
        holds=lock,
        tokens=tokens_for(record.resolved),
    )


# -- results ---------------------------------------------------------------------------------------------------

_OF_THE_RECORD: Final = {"config_hash", "data", "lengths", "command", "environment", "notes", "set_aside"}


def _result(
    record: TrainingRecord, resolution: ResolvedConfig, state: TrainingState, *, first: bool = True
) -> TrainingResult:
    """first: whether this is the machine whose folder holds metrics and files to tell of."""
    trained = first and state in ("trained", "finished already")
    metrics = read_metrics(resolution.out, resolution.stage) if trained else None
    return TrainingResult(
        state=state,
        out=str(resolution.out),
        stage=resolution.stage,
        finetuning_type=resolution.finetuning_type,
        config=record.resolved,
        steps=metrics.steps if metrics else None,
        results=metrics.last if metrics else {},
        warnings=metrics.warnings if metrics else [],
        files=OutputDirectory(resolution.out).files if trained else [],
        **record.model_dump(include=_OF_THE_RECORD),
    )


def write_script(prepared: PreparedTraining, script: SlurmScript) -> TrainingResult:
    """Write the batch script. Raises InputError where it cannot be written."""
    out, launch = prepared.resolution.out, prepared.launch
    gpus = launch.gpus_per_node or prepared.gpus
    if not gpus:
        gpus = DEFAULT_GPUS_PER_NODE
        prepared.record.notes.append(f"--gpus-per-node: {gpus} assumed, because this machine has no GPU")
    exported = {PYTHON_VARIABLE: prepared.record.python}
    exported |= {name: os.environ[name] for name in ("HF_HOME", "HF_HUB_OFFLINE", "PYTHONPATH") if os.environ.get(name)}
    exported = {name: value for name, value in exported.items() if redact(value) == value and value not in secrets()}
    text = script.text(launch, gpus=gpus, exported=exported, out=out, here=Path.cwd())
    with writing(script.place):
        script.place.parent.mkdir(parents=True, exist_ok=True)
        out.mkdir(parents=True, exist_ok=True)  # Slurm writes its log there and makes no folder
        write_file(script.place, text.encode(), shared=True)
    result = _result(prepared.record, prepared.resolution, "script written")
    submit = ["sbatch", shlex.quote(str(script.place))]
    return result.model_copy(update={"files": [str(script.place)], "command": submit})
