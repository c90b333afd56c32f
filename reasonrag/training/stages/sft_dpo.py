"""`reasonrag train --recipe sft-dpo`: best paths first, then pairs as the warmed-up model itself would value them.

The one clean ablation that is published (DecEx-RAG, 7B, mean EM of six sets) has 35.8 for DPO alone, 37.9 for SFT and
43.6 for SFT, then DPO. Decides the stages and what each starts from. What a training is, what labels are and how stages
are resumed is decided in `train`, `studies.student_labels` and `runner`.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from preference.export.formats import dataset_name
from reasonrag.concurrency import run_to_end
from reasonrag.curation.audit.catalogue import ERRORS
from reasonrag.curation.audit.report import read_audit
from reasonrag.curation.dataset_directory import read_summary
from reasonrag.curation.pairs import make_data_set
from reasonrag.curation.settings import PairsSettings
from reasonrag.errors import InputError
from reasonrag.llm.servers.local_server import served
from reasonrag.studies.from_settings import made_with
from reasonrag.studies.student_labels import (
    CONTINUATIONS,
    Student,
    StudentLabels,
    check_runs,
    held_out,
    label_by_student,
    runs_of,
)
from reasonrag.training.llamafactory.config_resolution import ResolvedConfig, resolve_config, training_identity
from reasonrag.training.llamafactory.dataset_info import TrainingData, read_training_data
from reasonrag.training.llamafactory.merge import MERGED, merge_adapter
from reasonrag.training.prepare import prepare_training, row_file_hashes
from reasonrag.training.progress import TrainingWatcher
from reasonrag.training.provenance import read_provenance
from reasonrag.training.stages.plan import RecipePlan
from reasonrag.training.stages.runner import Stage, check_stages, run_stages
from reasonrag.training.train import SlurmScript, TrainingResult, train_resolved, write_script

RECIPE: Final = "sft-dpo"
SFT, PAIRS, DPO = "sft", "pairs", "dpo"
"""The stages."""
_LABELS, _ADAPTER = "labels", "sft-adapter"
"""Folders beside theirs: of the student's answers and values, and of a warm-up by LoRA before it is merged."""


def sft_then_dpo(
    plan: RecipePlan, watcher: TrainingWatcher, *, dry_run: bool, script: SlurmScript | None = None
) -> TrainingResult:
    """Train in stages; each is gone on with where it was stopped. script: a batch script to write instead.

    Raises InputError before anything is started, and what the stages raise.
    """
    recipe = _Recipe(plan, tuple(runs_of(plan.data.directory)), watcher)
    if not recipe.runs and "dataset" not in plan.sft_changes:
        raise InputError(
            f"{plan.data.directory} was imported, so it has no trees with best paths; let stage {SFT} train on the "
            f"chosen replies: reasonrag pairs {plan.data.directory} --format sft-chosen --out {plan.data.directory}, "
            f"then --set sft.dataset={dataset_name('sft-chosen')}"
        )
    stages = recipe.stages()
    known = check_stages(plan.out, RECIPE, stages)
    last = recipe.last if known.stages[1].state == "done" else (recipe.rehearsed, plan.data)
    if dry_run:
        return recipe.dry_run(*last)
    if script:
        prepare_training(recipe.warm_up, plan.data, plan.launch, plan.permitted, strict=True)
        return write_script(prepare_training(*last, plan.launch, plan.permitted, strict=True), script)
    if known.stages[0].state == "owed":
        recipe.check()
    record = run_stages(plan.out, RECIPE, stages, watcher.say)
    found = recipe.final or recipe.train_on_pairs()
    return found.model_copy(update={"stages": {each.name: each.result for each in record.stages}})


@dataclass
class _Recipe:
    """runs: that the data set was made of; none if it was imported. final: the last training, once it is done."""

    plan: RecipePlan
    runs: Sequence[Path]
    watcher: TrainingWatcher
    final: TrainingResult | None = None

    @property
    def warm_up(self) -> ResolvedConfig:
        """The configuration of the first training; an adapter is merged afterwards."""
        plan = self.plan
        found = resolve_config(plan.sft, plan.sft_changes, plan.data, out=plan.folder(SFT))
        if found.finetuning_type == "lora":
            found.config["output_dir"] = str(plan.folder(_ADAPTER))
        return found

    @property
    def rehearsed(self) -> ResolvedConfig:
        """The configuration of the last training, as far as it is known before the first: with its base and pairs."""
        return self._dpo(self.warm_up.base_model, self.plan.data)

    def _dpo(self, base: str, data: TrainingData) -> ResolvedConfig:
        changes = {**self.plan.dpo_changes, "model_name_or_path": base}
        return resolve_config(self.plan.dpo, changes, data, out=self.plan.out)

    def stages(self) -> list[Stage]:
        first, last, data = self.warm_up, self.rehearsed, self.plan.data
        runs = sorted({made_with(run).config_hash for run in self.runs})
        labels = {"pairs": row_file_hashes(last, data), "runs": runs, "continuations": CONTINUATIONS}
        return [
            Stage(SFT, training_identity(first.config, row_file_hashes(first, data)), self._warm_up),
            Stage(PAIRS, labels, self._value_pairs),
            Stage(DPO, training_identity(last.config, {}), self._train_on_pairs),
        ]

    def dry_run(self, config: ResolvedConfig, data: TrainingData) -> TrainingResult:
        """What both trainings would read, and what would be refused. config, data: of the last one."""
        plan = self.plan
        run_to_end(check_runs(self.runs, self.watcher))
        first = train_resolved(self.warm_up, plan.data, plan.launch, plan.permitted, self.watcher, dry_run=True)
        last = train_resolved(config, data, plan.launch, plan.permitted, self.watcher, dry_run=True)
        rows = "the pairs are valued anew by it" if self.runs else "the pairs, imported, are taken as labelled"
        note = f"model_name_or_path is the result of the stage {SFT}, and {rows}"
        return last.model_copy(
            update={
                "notes": [*first.notes, *last.notes, note],
                "objections": [*first.objections, *last.objections],
                "set_aside": [*first.set_aside, *last.set_aside],
                "stages": {SFT: first.config, DPO: last.config},
            }
        )

    def check(self) -> None:
        """Everything that would stop a later stage; the first checks itself. Raises InputError."""
        plan = self.plan
        prepare_training(self.rehearsed, plan.data, plan.launch, plan.permitted, strict=True)
        run_to_end(check_runs(self.runs, self.watcher))

    def _warm_up(self) -> Mapping[str, Any]:
        plan, config = self.plan, self.warm_up
        found = train_resolved(config, plan.data, plan.launch, plan.permitted, self.watcher)
        if config.out == plan.folder(_ADAPTER) and not (plan.folder(SFT) / MERGED).is_file():
            shutil.rmtree(plan.folder(SFT), ignore_errors=True)  # of a merge that was stopped
            merge_adapter(config.out, plan.folder(SFT), [], allow=plan.permitted.allow, watcher=self.watcher)
        return _told(found)

    def _value_pairs(self) -> Mapping[str, Any]:
        plan = self.plan
        if not self.runs:
            self.watcher.say(f"{plan.data.directory} was imported, so the pairs are taken as they are labelled")
            return {"as_labelled": True}
        labels = run_to_end(self._ask_student())
        data_set = plan.data.directory
        settings = settings_of(data_set, out=plan.folder(PAIRS), allow=plan.permitted.allow)
        summary = make_data_set(plan.folder(_LABELS), settings, self.watcher, held_out=held_out(data_set))
        to_train_on = summary.pairs - summary.validation_pairs
        self.watcher.say(
            f"of {labels.pairs:,} pairs the model confirms {labels.confirmed:,}, reverses {labels.reversed:,}, sees no "
            f"difference in {labels.tied:,}, cannot tell {labels.untold:,}, has no value for {labels.unvalued:,}; "
            f"{to_train_on:,} pairs to train on"
        )
        if not to_train_on:
            raise InputError(f"no pair is left to train on; {plan.folder(PAIRS)} says why")
        return labels.model_dump() | {"exported": summary.pairs}

    async def _ask_student(self) -> StudentLabels:
        folder = self.plan.folder(SFT)
        trained = read_provenance(folder)
        if trained is None:
            raise InputError(f"{folder} has no provenance; remove {self.plan.out} to start over")
        async with AsyncExitStack() as opened:
            server = await opened.enter_async_context(served(folder, say=self.watcher.say))
            student = Student(f"{SFT}@{trained.config_hash}", server.base_url, server.name)
            return await label_by_student(
                self.plan.data.directory, self.runs, self.plan.folder(_LABELS), student, self.watcher
            )

    def _train_on_pairs(self) -> Mapping[str, Any]:
        self.final = self.train_on_pairs()
        return _told(self.final)

    @property
    def last(self) -> tuple[ResolvedConfig, TrainingData]:
        """The configuration and the pairs of the last training, once these are there."""
        data = read_training_data(self.plan.folder(PAIRS)) if self.runs else self.plan.data
        return self._dpo(str(self.plan.folder(SFT)), data), data

    def train_on_pairs(self) -> TrainingResult:
        """The last training, or its result where it is done."""
        return train_resolved(*self.last, self.plan.launch, self.plan.permitted, self.watcher)


def _told(found: TrainingResult) -> dict[str, Any]:
    return {"out": found.out, "steps": found.steps, "config_hash": found.config_hash, "results": found.results}


def settings_of(data_set: Path, *, out: Path, allow: Sequence[str]) -> PairsSettings:
    """The filters and options by which a data set was made, and what it was allowed, not those of reasonrag.toml.

    allow: what the training is allowed, errors of the audit among it.
    """
    made = read_summary(data_set)
    known = made.rules | {name: made.options[name] for name in ("validation", "flip", "seed") if name in made.options}
    if made.rules.get("as_published"):
        known = {"as_published": True} | {name: known[name] for name in ("validation", "seed") if name in known}
    names = PairsSettings.model_fields.keys() & known.keys()
    values = {name: 0 if known[name] is None else known[name] for name in names}
    errors = [each.name for each in read_audit(data_set).checks if each.allowed]
    values["allow"] = [*errors, *(each for each in allow if each.replace("-", "_") in ERRORS)]
    values["allow_eval"] = made.contamination.get("allowed", [])
    return PairsSettings.model_validate(values | {"out": out})
