"""Settings of `train-critic`."""

from __future__ import annotations

from pathlib import Path

from reasonrag.settings import Panel, Settings, Words, setting


class TrainCriticSettings(Settings):
    """Settings of `train-critic`."""

    config: str | None = setting("A YAML file of a critic's training, or the name of a shipped one")
    data: Path | None = setting(
        "Data set to train on: a folder written by pairs. Required",
        Panel.TRAINING,
        common=True,
    )
    out: Path | None = setting("Folder of the critic [default: critics/<data>]", Panel.TRAINING, common=True)
    set: Words = setting(
        "KEY=VALUE: change a key of the configuration, value as YAML; null removes the key. Repeatable",
        Panel.TRAINING,
        default=[],
        common=True,
    )
    folds: int | None = setting(
        "Number of critics to train, each without the questions of one fold, in fold-1, fold-2, .. of --out: "
        "witnesses for pairs --consensus",
        Panel.TRAINING,
        ge=2,
        le=20,
        common=True,
    )
    prompts: Path | None = setting(
        "Folder with the prompts of the data, if they are your own [default: those of imported data, else ours]",
        Panel.CHECKS,
    )
    allow: Words = setting("Train despite this objection, by its name; repeatable", Panel.CHECKS, default=[])
    allow_eval: Words = setting(
        "Train on questions of this evaluation split: dataset/split, or all; repeatable", Panel.CHECKS, default=[]
    )
