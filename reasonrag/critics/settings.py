"""Settings of `train-critic`."""

from __future__ import annotations

from pathlib import Path

from reasonrag.settings import Panel, setting
from reasonrag.training.settings import TrainPolicySettings


class TrainCriticSettings(TrainPolicySettings):
    """Settings of `train-critic`."""

    out: Path | None = setting("Folder of the critic [default: critics/<data>]", Panel.TRAINING, common=True)
    folds: int | None = setting(
        "Number of critics to train, each without the questions of one fold, in fold-1, fold-2, .. of --out: "
        "witnesses for pairs --consensus",
        Panel.TRAINING,
        ge=2,
        le=20,
        common=True,
    )
