"""One training: a resolved configuration and a data set become a model that says what it is.

Puts the parts together: check (`prepare`), launch (`llamafactory.launcher`), watch (`progress`), report (`metrics`,
`model_card`). Decides whether a training is new, resumed or already finished.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
from reasonrag.training.llamafactory.launcher import Launch, run_watched
from reasonrag.training.llamafactory.slurm import Machines, batch_script
from reasonrag.training.metrics import METRICS, TRAINER_LOG, read_metrics, write_metrics
from reasonrag.training.model_card import CARD, ModelCardFacts, render_model_card
from reasonrag.training.output_directory import TRAIN_LOG, OutputDirectory, TrainingRecord
from reasonrag.training.prepare import Permissions, PreparedTraining, identity_of, prepare_training
from reasonrag.training.progress import SHOWN_METRICS, TrainingWatcher
from reasonrag.training.provenance import evaluation_of
from reasonrag.training.settings import PORT

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
    if not dry_run and not launch.node_rank and (done := _done_already(resolution, data)):
        return done
    prepared = prepare_training(resolution, data, launch, permitted, strict=not dry_run)
    if dry_run:
        return _result(prepared, "dry run")
    output = OutputDirectory(resolution.out, rank=launch.node_rank)
    with output.held() as lock:
        return _train(prepared, output, watcher, lock)


# -- before ----------------------------------------------------------------------------------------------------


def _done_already(resolution: ResolvedConfig, data: TrainingData) -> TrainingResult | None:
    """The recorded result, if this very training is finished; LLaMA-Factory is not asked again."""
    record = OutputDirectory(resolution.out).record()
    if record is None or record.state != "finished" or record.decides != identity_of(resolution, data):
        return None
    return _result_of(record, resolution, "finished already", trained=True).model_copy(update={"notes": []})


# -- the training ----------------------------------------------------------------------------------------------


def _train(prepared: PreparedTraining, output: OutputDirectory, watcher: TrainingWatcher, lock: int) -> TrainingResult:
    before = output.check(prepared.decides)
    if before and before.state == "finished":
        return _result(prepared, "finished already", output=output)
    launches = before is None or before.state == "started"
    checkpoint = output.last_checkpoint() if launches and _resumes(prepared) else None
    record = _record(prepared, before, checkpoint)
    first = prepared.launch.node_rank == 0
    file = output.write_config(as_yaml(prepared.config, _header(prepared)))
    if launches:
        overrides = {"resume_from_checkpoint": str(checkpoint)} if checkpoint else {"overwrite_output_dir": "true"}
        record.command = prepared.command(file, overrides)
        output.write_record(record)
        if first:
            prepared.provenance.write(output.folder)
            if prepared.prompts:
                save_prompts(prepared.prompts, output.folder / PROMPTS, shared=True)
            if checkpoint is None:
                output.begin_anew()
        if checkpoint:
            watcher.say(f"resuming from {checkpoint}")
        _launch(prepared, record, output, watcher, lock)
        record.state, record.ended = "trained", datetime.now(UTC).isoformat(timespec="seconds")
        output.write_record(record)
    if first:
        _sum_up(prepared, record, output)
    record.state = "finished"
    output.write_record(record)
    return _result(prepared, "trained", output=output, resumed_from=str(checkpoint) if checkpoint else None)


def _resumes(prepared: PreparedTraining) -> bool:
    """Whether LLaMA-Factory can resume this training from a checkpoint."""
    value_model = prepared.resolution.stage == "rm"
    return not value_model and not prepared.config.get("save_only_model")


def _record(prepared: PreparedTraining, before: TrainingRecord | None, checkpoint: Path | None) -> TrainingRecord:
    return TrainingRecord(
        state="started",
        config=prepared.resolution.name,
        decides=prepared.decides,
        config_hash=prepared.provenance.config_hash,
        resolved=prepared.config,
        settings={"nodes": prepared.launch.nodes, "gpus_per_node": prepared.launch.gpus_per_node},
        data=prepared.facts_of_data,
        lengths=prepared.lengths,
        notes=prepared.notes,
        set_aside=[f"{each.flag} {each.name}" for each in prepared.aside],
        command=before.command if before else [],
        environment=prepared.environment,
        python=str(prepared.python),
        versions=prepared.provenance.versions,
        gpus=[each.name for each in prepared.stock.devices],
        started=before.started if before else datetime.now(UTC).isoformat(timespec="seconds"),
        ended=before.ended if before else None,
        resumed_from=[*(before.resumed_from if before else []), *([checkpoint.name] if checkpoint else [])],
    )


def _header(prepared: PreparedTraining) -> str:
    return (
        f"What LLaMA-Factory reads, resolved by reasonrag train from {prepared.resolution.name} and "
        f"{prepared.data.directory}.\nHash {prepared.provenance.config_hash}. The command is in training.json. "
        "To change something, run reasonrag train again with another --out."
    ).replace("\r", " ")


def _launch(
    prepared: PreparedTraining, record: TrainingRecord, output: OutputDirectory, watcher: TrainingWatcher, lock: int
) -> None:
    """Raises TrainingFailed, with the last lines and what to do, and KeyboardInterrupt."""
    log = output.own / TRAIN_LOG
    watcher.say(f"training into {output.folder}; full output of LLaMA-Factory: {log}")
    run_watched(
        record.command,
        "LLaMA-Factory",
        watcher,
        log=log,
        follow=output.folder / TRAINER_LOG,
        python=prepared.python,
        environment=record.environment,
        holds=lock,
        tokens=tokens_for(prepared.config),
    )


def _sum_up(prepared: PreparedTraining, record: TrainingRecord, output: OutputDirectory) -> None:
    """Write metrics and model card."""
    metrics = read_metrics(output.folder, prepared.resolution.stage)
    write_metrics(metrics, output.folder)
    facts = ModelCardFacts(
        output.folder, record, prepared.config, prepared.provenance, metrics, prepared.base.came_from
    )
    write_file(output.folder / CARD, render_model_card(facts).encode(), shared=True)


# -- results ---------------------------------------------------------------------------------------------------


def _result(
    prepared: PreparedTraining,
    state: TrainingState,
    *,
    output: OutputDirectory | None = None,
    resumed_from: str | None = None,
) -> TrainingResult:
    resolution = prepared.resolution
    record = _record(prepared, output.record() if output else None, None)
    record.command = record.command or prepared.command(resolution.out / "train.yaml", {})
    trained = state in ("trained", "finished already") and prepared.launch.node_rank == 0
    objections = [f"{each.what} ({each.flag} {each.name})" for each in prepared.objections]
    found = _result_of(record, resolution, state, trained=trained)
    return found.model_copy(update={"objections": objections, "resumed_from": resumed_from})


def _result_of(
    record: TrainingRecord, resolution: ResolvedConfig, state: TrainingState, *, trained: bool
) -> TrainingResult:
    """trained: whether the output directory holds metrics and files to tell of."""
    metrics = read_metrics(resolution.out, resolution.stage) if trained else None
    return TrainingResult(
        state=state,
        out=str(resolution.out),
        stage=resolution.stage,
        finetuning_type=resolution.finetuning_type,
        config=record.resolved,
        config_hash=record.config_hash,
        data=record.data,
        lengths=record.lengths,
        command=record.command,
        environment=record.environment,
        notes=record.notes,
        set_aside=record.set_aside,
        steps=metrics.steps if metrics else None,
        results=metrics.last if metrics else {},
        warnings=metrics.warnings if metrics else [],
        files=_files(resolution.out) if trained else [],
    )


def _files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))


@dataclass(frozen=True)
class SlurmScript:
    """A batch script to write. words: of the command, which it repeats."""

    place: Path
    words: Sequence[str]


def write_script(prepared: PreparedTraining, asked: SlurmScript) -> TrainingResult:
    """Write the batch script. Raises InputError where it cannot be written."""
    script = asked.place
    gpus = prepared.launch.gpus_per_node or len(prepared.stock.devices)
    if not gpus:
        gpus = DEFAULT_GPUS_PER_NODE
        prepared.notes.append(f"--gpus-per-node: {gpus} assumed, because this machine has no GPU")
    exported = {PYTHON_VARIABLE: str(prepared.python)}
    for name in ("HF_HOME", "HF_HUB_OFFLINE", "PYTHONPATH"):
        if os.environ.get(name):
            exported[name] = os.environ[name]
    text = batch_script(
        asked.words,
        python=Path(sys.executable),
        exported={name: value for name, value in exported.items() if redact(value) == value and value not in secrets()},
        machines=Machines(prepared.launch.nodes, gpus, prepared.launch.master[1] if prepared.launch.master else PORT),
        script=script,
        out=prepared.resolution.out,
        here=Path.cwd(),
    )
    with writing(script):
        script.parent.mkdir(parents=True, exist_ok=True)
        prepared.resolution.out.mkdir(parents=True, exist_ok=True)  # Slurm writes its log there and makes no folder
        write_file(script, text.encode(), shared=True)
    result = _result(prepared, "script written")
    return result.model_copy(update={"files": [str(script)], "command": ["sbatch", shlex.quote(str(script))]})
