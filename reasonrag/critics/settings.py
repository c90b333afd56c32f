"""Settings of `train-critic` and `evaluate-critic`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from reasonrag.settings import Concurrency, MaxCalls, Panel, PlaceOrName, Seed, Settings, setting
from reasonrag.training.settings import TrainPolicySettings


class TrainCriticSettings(TrainPolicySettings):
    out: Path | None = setting("Folder of the critic [default: critics/<data>]", Panel.TRAINING, common=True)
    folds: int | None = setting(
        "Number of critics to train, each without the questions of one fold, in fold-1, fold-2, .. of --out: "
        "witnesses for pairs --consensus",
        Panel.TRAINING,
        ge=2,
        le=20,
        common=True,
    )


class EvaluateCriticSettings(Settings):
    against: PlaceOrName | None = setting(
        "Outcome model of the same size, which the critic has to beat to pass: a critic of data labelled by --label "
        "outcome",
        Panel.CRITIC,
        common=True,
    )
    out: Path | None = setting(
        "Folder of the evaluation [default: evaluation in the critic's folder]", Panel.OUTPUT, common=True
    )
    limit: int | None = setting("Use only the first N questions of every run", Panel.DATA, ge=1, common=True)
    min_observations: float = setting(
        "Continuations behind a step's value from which on it counts as the truth, where no fresh ones are known",
        Panel.STATISTICS,
        default=4.0,
        gt=0,
    )
    bootstrap: Annotated[int, Field(ge=1, le=1_000_000)] = setting(
        "Bootstrap resamples of questions per interval", Panel.STATISTICS, default=2000
    )
    seed: Seed = setting("Seed of resamples, and of pairs scored without their state", Panel.STATISTICS, default=0)
    concurrency: Concurrency = setting("HTTP requests in flight", default=32)
    max_calls: MaxCalls = setting("Stop before the critics give more than this many scores", common=True)
