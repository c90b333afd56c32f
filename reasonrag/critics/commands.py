"""The commands of critics: `reasonrag train-critic` and `evaluate-critic`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from reasonrag.critics.settings import EvaluateCriticSettings, TrainCriticSettings
from reasonrag.options import FAILED, Config, DryRun, Json, options, print_result
from reasonrag.training.commands import run_training


@options(
    TrainCriticSettings,
    without=("config",),
    example="reasonrag train-critic qwen2.5-7b --data data/hotpotqa-train-economy",
)
def train_critic(config: Config = None, *, dry_run: DryRun = False, as_json: Json = False, **flags: Any) -> None:
    """Train a critic, a model that scores steps, on the pairs of a data set, with TRL.

    The same command continues a training that was stopped. Exit status 0: trained; 1: the training failed; 2: refused,
    nothing started; 130: interrupted.
    """
    from reasonrag.critics.train import train_critic as train_it

    run_training(train_it, config, flags, dry_run=dry_run, as_json=as_json)


@options(EvaluateCriticSettings, example="reasonrag evaluate-critic critics/h runs/held-out")
def evaluate_critic(
    critic: Annotated[str, typer.Argument(metavar="CRITIC", help="Folder of a critic")],
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN..", help="Runs of generate with questions that it was not trained on")
    ],
    *,
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Measure how well a critic judges steps, and whether it may be used.

    Exit status 1 if it failed.
    """
    from reasonrag.critics.evaluation.evaluate import evaluate_critic as evaluate
    from reasonrag.terminal import TerminalWatcher

    found = evaluate(critic, *runs, watcher=TerminalWatcher(), **flags)
    print_result(found, found.shown(), as_json=as_json)
    if found.failures:
        raise typer.Exit(FAILED)
