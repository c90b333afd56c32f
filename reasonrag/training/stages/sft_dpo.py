"""`reasonrag train --recipe sft-dpo`: SFT on best paths, then DPO on the pairs, from the model that SFT made.

The one clean ablation that is published (DecEx-RAG, 7B, mean EM of six sets) has 35.8 for DPO alone, 37.9 for SFT and
43.6 for SFT, then DPO. Decides the stages and what each starts from. What a training is, and how stages are resumed, is
decided in `training` and `runner`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from preference.export.formats import dataset_name
from reasonrag.curation.existing_data_set import IMPORT_REPORT
from reasonrag.errors import InputError
from reasonrag.training.llamafactory.config_files import ConfigFile, find_config, parse_changes, shipped_names
from reasonrag.training.llamafactory.config_resolution import ResolvedConfig, resolve_config, training_identity
from reasonrag.training.llamafactory.dataset_info import TrainingData
from reasonrag.training.llamafactory.launcher import Launch
from reasonrag.training.llamafactory.merge import MERGED, merge_adapter
from reasonrag.training.llamafactory.slurm import SlurmScript
from reasonrag.training.prepare import Permissions, prepare_training, row_file_hashes
from reasonrag.training.progress import TrainingWatcher
from reasonrag.training.stages.runner import FOLDER, Stage, check_stages, run_stages
from reasonrag.training.stages.training import TrainingResult, train_resolved, write_script

RECIPE: Final = "sft-dpo"
SFT, DPO = "sft", "dpo"
"""The stages."""
_ADAPTER = "sft-adapter"
"""Folder beside that of the warm-up: of a warm-up by LoRA before it is merged."""


@dataclass(frozen=True)
class RecipePlan:
    """sft_changes, dpo_changes: what --set changes in each configuration. out: folder of the final model."""

    data: TrainingData
    out: Path
    sft: ConfigFile
    dpo: ConfigFile
    sft_changes: Mapping[str, Any]
    dpo_changes: Mapping[str, Any]
    launch: Launch
    permitted: Permissions

    def folder(self, stage: str) -> Path:
        """The folder of a stage before the last."""
        return self.out / FOLDER / stage


def plan_recipe(
    dpo: ConfigFile,
    changes: Sequence[str],
    data: TrainingData,
    *,
    out: Path | None,
    launch: Launch,
    permitted: Permissions,
) -> RecipePlan:
    """dpo: the configuration of the last training; that of the first is its family's. changes: `key=value` of both
    trainings, `sft.key=value` and `dpo.key=value` of one. Raises InputError."""
    if launch.nodes > 1:
        raise InputError(
            "--recipe runs on one machine, where each stage finds what the one before it wrote; leave out --nodes"
        )
    family, named, _ = dpo.name.removesuffix(".yaml").partition("-dpo")
    if not named or f"{family}-sft" not in shipped_names():
        raise InputError(
            f"{dpo.name} is not the DPO configuration of a family that ships one of SFT; take "
            f"{', '.join(each for each in shipped_names() if '-dpo-' in each)}, and change its keys by --set dpo.KEY=.."
        )
    of_sft, of_dpo = (parse_changes(_changes_of(stage, changes)) for stage in (SFT, DPO))
    both = parse_changes(each for each in changes if not each.startswith((f"{SFT}.", f"{DPO}.")))
    for key in ("model_name_or_path", "adapter_name_or_path"):
        if key in of_dpo:
            raise InputError(f"--set dpo.{key}: with --recipe, DPO starts from what stage sft trained; give sft.{key}")
    of_dpo = {"adapter_name_or_path": None} | of_dpo if "adapter_name_or_path" in both else of_dpo
    return RecipePlan(
        data=data,
        out=(out or Path("saves") / f"{data.directory.resolve().name}-{RECIPE}").resolve(),
        sft=find_config(f"{family}-sft"),
        dpo=dpo,
        sft_changes=both | of_sft,
        dpo_changes=both | of_dpo,
        launch=launch,
        permitted=permitted,
    )


def _changes_of(stage: str, changes: Sequence[str]) -> list[str]:
    return [each.removeprefix(f"{stage}.") for each in changes if each.startswith(f"{stage}.")]


def sft_then_dpo(
    plan: RecipePlan, watcher: TrainingWatcher, *, dry_run: bool, script: SlurmScript | None = None
) -> TrainingResult:
    """Train in stages; each is gone on with where it was stopped. script: a batch script to write instead.

    Raises InputError before anything is started, and what the stages raise.
    """
    data = plan.data
    if (data.directory / IMPORT_REPORT).is_file() and "dataset" not in plan.sft_changes:
        raise InputError(
            f"{data.directory} was imported, so it has no trees with best paths; let stage {SFT} train on the "
            f"chosen replies: reasonrag pairs {data.directory} --format sft-chosen --out {data.directory}, "
            f"then --set sft.dataset={dataset_name('sft-chosen')}"
        )
    recipe = _Recipe(plan, watcher)
    stages = recipe.stages()
    warmed_up = check_stages(plan.out, RECIPE, stages).stages[0]
    last = recipe.dpo if warmed_up.state == "done" else recipe.rehearsed
    if dry_run:
        return recipe.dry_run(last)
    if script:
        prepare_training(recipe.warm_up, data, plan.launch, plan.permitted, strict=True)
        return write_script(prepare_training(last, data, plan.launch, plan.permitted, strict=True), script)
    if warmed_up.state == "owed":  # what would stop the last stage; the first checks itself
        prepare_training(last, data, plan.launch, plan.permitted, strict=True)
    record = run_stages(plan.out, RECIPE, stages, watcher.say)
    found = recipe.final or recipe.train(recipe.dpo)
    return found.model_copy(update={"stages": {each.name: each.result for each in record.stages}})


@dataclass
class _Recipe:
    """final: the last training, once it is done."""

    plan: RecipePlan
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
        """The configuration of the last training, as far as it is known before the first: with its base."""
        return self._from(self.warm_up.base_model)

    @property
    def dpo(self) -> ResolvedConfig:
        """The configuration of the last training, once its base is there."""
        return self._from(str(self.plan.folder(SFT)))

    def _from(self, base: str) -> ResolvedConfig:
        changes = {**self.plan.dpo_changes, "model_name_or_path": base}
        return resolve_config(self.plan.dpo, changes, self.plan.data, out=self.plan.out)

    def stages(self) -> list[Stage]:
        def stage(name: str, config: ResolvedConfig, work: Callable[[], Mapping[str, Any]]) -> Stage:
            return Stage(name, training_identity(config.config, row_file_hashes(config, self.plan.data)), work)

        return [stage(SFT, self.warm_up, self._warm_up), stage(DPO, self.rehearsed, self._train_on_pairs)]

    def train(self, config: ResolvedConfig, *, dry_run: bool = False) -> TrainingResult:
        plan = self.plan
        return train_resolved(config, plan.data, plan.launch, plan.permitted, self.watcher, dry_run=dry_run)

    def dry_run(self, config: ResolvedConfig) -> TrainingResult:
        """What both trainings would read, and what would be refused. config: of the last one."""
        first, last = self.train(self.warm_up, dry_run=True), self.train(config, dry_run=True)
        note = f"model_name_or_path is the result of the stage {SFT}"
        return last.model_copy(
            update={
                "notes": [*first.notes, *last.notes, note],
                "objections": [*first.objections, *last.objections],
                "set_aside": [*first.set_aside, *last.set_aside],
                "stages": {SFT: first.config, DPO: last.config},
            }
        )

    def _warm_up(self) -> Mapping[str, Any]:
        plan, config = self.plan, self.warm_up
        found = self.train(config)
        if config.out == plan.folder(_ADAPTER) and not (plan.folder(SFT) / MERGED).is_file():
            shutil.rmtree(plan.folder(SFT), ignore_errors=True)  # of a merge that was stopped
            merge_adapter(config.out, plan.folder(SFT), [], allow=plan.permitted.allow, watcher=self.watcher)
        return _told(found)

    def _train_on_pairs(self) -> Mapping[str, Any]:
        self.final = self.train(self.dpo)
        return _told(self.final)


def _told(found: TrainingResult) -> dict[str, Any]:
    return {"out": found.out, "steps": found.steps, "config_hash": found.config_hash, "results": found.results}
