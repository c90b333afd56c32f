"""`reasonrag train --recipe sft-dpo`: SFT on best paths, then DPO on the pairs, from the model that SFT made.

The one clean ablation that is published (DecEx-RAG, 7B, mean EM of six sets) has 35.8 for DPO alone, 37.9 for SFT and
43.6 for SFT, then DPO. Decides the stages and what each starts from. What a training is, and how stages are resumed, is
decided in `training` and `runner`.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from preference.export.formats import dataset_name
from reasonrag.curation.existing_data_set import IMPORT_REPORT
from reasonrag.errors import InputError
from reasonrag.training.llamafactory.config_files import ConfigFile, changes_of, find_config, shipped_names
from reasonrag.training.llamafactory.config_resolution import ResolvedConfig, resolve_config
from reasonrag.training.llamafactory.merge import MERGED, merge_adapter
from reasonrag.training.prepare import TrainingJob, identity_of, prepare_training
from reasonrag.training.stages.runner import FOLDER, Stage, check_stages, run_stages
from reasonrag.training.stages.slurm import SlurmScript, write_script
from reasonrag.training.stages.training import TrainingResult, train_resolved

RECIPE: Final = "sft-dpo"
SFT, DPO = "sft", "dpo"
"""The stages."""
_ADAPTER = "sft-adapter"
"""Folder beside that of the warm-up: of a warm-up by LoRA before it is merged."""


def plan_recipe(dpo: ConfigFile, changes: Sequence[str], job: TrainingJob, *, out: Path | None) -> Recipe:
    """dpo: the configuration of the last training; that of the first is its family's. changes: `key=value` of both
    trainings, `sft.key=value` and `dpo.key=value` of one. Raises InputError."""
    if job.launch.nodes > 1:
        raise InputError(
            "--recipe runs on one machine, where each stage finds what the one before it wrote; leave out --nodes"
        )
    family, named, _ = dpo.name.removesuffix(".yaml").partition("-dpo")
    if not named or f"{family}-sft" not in shipped_names():
        raise InputError(
            f"{dpo.name} is not the DPO configuration of a family that ships one of SFT; take "
            f"{', '.join(each for each in shipped_names() if '-dpo-' in each)}, and change its keys by --set dpo.KEY=.."
        )
    both = changes_of(each for each in changes if not each.startswith((f"{SFT}.", f"{DPO}.")))
    of_sft, of_dpo = (
        changes_of(each.removeprefix(f"{stage}.") for each in changes if each.startswith(f"{stage}."))
        for stage in (SFT, DPO)
    )
    for key in ("model_name_or_path", "adapter_name_or_path"):
        if key in of_dpo:
            raise InputError(f"--set dpo.{key}: with --recipe, DPO starts from what stage sft trained; give sft.{key}")
    folder = job.data.directory
    if (folder / IMPORT_REPORT).is_file() and "dataset" not in both | of_sft:
        raise InputError(
            f"{folder} was imported, so it has no trees with best paths; let stage {SFT} train on the chosen replies: "
            f"reasonrag pairs {folder} --format sft-chosen --out {folder}, then --set "
            f"sft.dataset={dataset_name('sft-chosen')}"
        )
    of_dpo |= {"adapter_name_or_path": None} if "adapter_name_or_path" in both else {}
    out = (out or Path("saves") / f"{folder.resolve().name}-{RECIPE}").resolve()
    return Recipe(job, out, (find_config(f"{family}-sft"), both | of_sft), (dpo, both | of_dpo))


@dataclass
class Recipe:
    """sft, dpo: the configurations, each with what --set changes in it. final: the last training, once it is done."""

    job: TrainingJob
    out: Path
    sft: tuple[ConfigFile, Mapping[str, Any]]
    dpo: tuple[ConfigFile, Mapping[str, Any]]
    final: TrainingResult | None = None

    def folder(self, stage: str) -> Path:
        """The folder of a stage before the last."""
        return self.out / FOLDER / stage

    @property
    def first(self) -> ResolvedConfig:
        """The configuration of the first training; an adapter is merged afterwards."""
        found = resolve_config(*self.sft, self.job.data, out=self.folder(SFT))
        if found.config["finetuning_type"] == "lora":
            found.config["output_dir"] = str(self.folder(_ADAPTER))
        return found

    def last(self, *, warmed_up: bool) -> ResolvedConfig:
        """The configuration of the last training; while nothing is warmed up, it starts from the base of the first."""
        file, changes = self.dpo
        base = str(self.folder(SFT)) if warmed_up else self.first.config["model_name_or_path"]
        return resolve_config(file, {**changes, "model_name_or_path": base}, self.job.data, out=self.out)

    def stages(self) -> list[Stage]:
        first, last = (identity_of(each, self.job.data) for each in (self.first, self.last(warmed_up=False)))
        return [
            Stage(SFT, first, lambda: _summary(self._warm_up())),
            Stage(DPO, last, lambda: _summary(self.train_on_pairs())),
        ]

    def _warm_up(self) -> TrainingResult:
        config, whole = self.first, self.folder(SFT)
        found = train_resolved(config, self.job)
        if config.out != whole and not (whole / MERGED).is_file():
            shutil.rmtree(whole, ignore_errors=True)  # of a merge that was stopped
            merge_adapter(config.out, whole, [], allow=self.job.permitted.allow, watcher=self.job.watcher)
        return found

    def train_on_pairs(self) -> TrainingResult:
        self.final = train_resolved(self.last(warmed_up=True), self.job)
        return self.final


def _summary(found: TrainingResult) -> dict[str, Any]:
    return {"out": found.out, "steps": found.steps, "results": found.results, "config_hash": found.record.config_hash}


def sft_then_dpo(recipe: Recipe, *, dry_run: bool, script: SlurmScript | None = None) -> TrainingResult:
    """Train in stages; each is gone on with where it was stopped. script: a batch script to write instead.

    Raises InputError before anything is started, and what the stages raise.
    """
    job, stages = recipe.job, recipe.stages()
    warmed_up = check_stages(recipe.out, RECIPE, stages).stages[0]
    last = recipe.last(warmed_up=warmed_up.state == "done")
    if dry_run:
        first, found = (train_resolved(each, job, dry_run=True) for each in (recipe.first, last))
        note = f"model_name_or_path is the result of the stage {SFT}"
        found.record.notes = [*first.record.notes, *found.record.notes, note]
        found.record.set_aside = [*first.record.set_aside, *found.record.set_aside]
        found.objections = [*first.objections, *found.objections]
        found.stages = {SFT: first.record.resolved, DPO: found.record.resolved}
        return found
    if script:
        prepare_training(recipe.first, job, strict=True)
        return write_script(prepare_training(last, job, strict=True), job.launch, script)
    if warmed_up.state == "owed":  # what would stop the last stage; the first checks itself
        prepare_training(last, job, strict=True)
    record = run_stages(recipe.out, RECIPE, stages, job.watcher.say)
    found = recipe.final or recipe.train_on_pairs()
    return found.model_copy(update={"stages": {each.name: each.result for each in record.stages}})
