"""The commands of training: `reasonrag train` and `doctor`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reasonrag.errors import InputError
from reasonrag.exploration.settings import GenerateSettings
from reasonrag.options import BAD_INPUT, FAILED, Config, DryRun, Json, options, print_result
from reasonrag.settings import COMMON, resolve
from reasonrag.terminal import print_shown
from reasonrag.training.settings import (
    CONFIG_OF_DOCTOR,
    NOT_OF_ROUNDS,
    DoctorSettings,
    RoundsSettings,
    TrainPolicySettings,
    TrainSettings,
)

if TYPE_CHECKING:
    from reasonrag.training.stages.training import TrainingResult


@options(
    TrainSettings, without=("config",), example="reasonrag train qwen2.5-7b-dpo-lora --data data/hotpotqa-train-economy"
)
def train(
    config: Config = None,
    *,
    dry_run: DryRun = False,
    print_config: Annotated[
        bool,
        typer.Option("--print", help="Print the YAML of CONFIG, to edit it; without CONFIG, list the names"),
        COMMON,
    ] = False,
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Train a model on a data set with LLaMA-Factory, or with TRL, after checking data, prompts and machine.

    The same command continues a training that was stopped. Exit status 0: trained; 1: the trainer failed; 2:
    refused, nothing started; 130: interrupted.
    """
    if print_config:
        from reasonrag.training.llamafactory.config_files import find_config, shipped_names

        text = "\n".join(shipped_names()) if config is None else find_config(config).text
        print_shown(text, end="\n" if config is None else "")
        return
    if flags["merge"] is not None:
        _merge({"config": config, "dry_run": dry_run or None, **flags}, as_json=as_json)
        return
    from reasonrag.training.train import train as train_model

    run_training(train_model, config, flags, dry_run=dry_run, as_json=as_json)


def _merge(flags: dict[str, Any], *, as_json: bool) -> None:
    from reasonrag.terminal import TerminalWatcher
    from reasonrag.training.llamafactory.merge import merge_adapter

    taken = ("merge", "out", "set", "allow")
    if others := [name for name, value in flags.items() if value is not None and name not in taken]:
        raise InputError(f"--merge trains nothing: it takes no {', '.join(others)}; --set changes keys of the export")
    settings = resolve(TrainSettings, "train", flags)
    assert settings.merge is not None  # noqa: S101 - it was asked for
    out = settings.out
    if out and flags["out"] is None and out.resolve() == settings.merge.resolve():
        out = None  # of reasonrag.toml: where this adapter was trained
    merged = merge_adapter(settings.merge, out, settings.set, allow=settings.allow, watcher=TerminalWatcher())
    print_result(merged, merged.shown(), as_json=as_json)


@options(
    TrainPolicySettings, without=("config",), example="reasonrag train-policy policy-qwen2.5-7b --data data/attempts"
)
def train_policy(config: Config = None, *, dry_run: DryRun = False, as_json: Json = False, **flags: Any) -> None:
    """Train a model by policy gradients on the plain steps that it took itself (pairs --format rl).

    The same command continues a training that was stopped. Exit status 0: trained; 1: the training failed; 2: refused,
    nothing started; 130: interrupted.
    """
    from reasonrag.training.policy.train import train_policy as train_it

    run_training(train_it, config, flags, dry_run=dry_run, as_json=as_json)


def run_training(
    train_it: Callable[..., TrainingResult], config: str | None, flags: dict[str, Any], *, dry_run: bool, as_json: bool
) -> None:
    """A command that trains: what it is told, what it shows, and its exit status."""
    from reasonrag.terminal import TerminalWatcher

    result = train_it(config, dry_run=dry_run, watcher=TerminalWatcher(), **flags)
    print_result(result, result.shown(), as_json=as_json)
    if result.objections:
        raise typer.Exit(BAD_INPUT)


@options(
    RoundsSettings,
    GenerateSettings,
    without=("config", *NOT_OF_ROUNDS),
    example="reasonrag rounds policy-smoke-cpu --model models/student --run runs/rl",
)
def rounds(context: typer.Context, config: Config = None, *, as_json: Json = False, **flags: Any) -> None:
    """Let a model draw attempts at questions and learn from them, round by round.

    Each round is a run, a data set and a model in a folder of its own. The same command goes on where it was stopped.
    """
    from reasonrag.terminal import TerminalWatcher
    from reasonrag.training.policy.rounds import rounds as run_rounds

    result = run_rounds(config, watcher=TerminalWatcher(), train_critic=context.obj.train_critic, **flags)
    print_result(result, result.shown(), as_json=as_json)


@options(DoctorSettings, example="reasonrag doctor qwen2.5-7b-dpo-lora --data data/hotpotqa-train-economy")
def doctor(
    config: Annotated[
        str, typer.Argument(metavar="CONFIG", help="Shipped configuration by its name, or a YAML file")
    ] = CONFIG_OF_DOCTOR,
    *,
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Check packages, GPUs and data before training, and plan its memory.

    Exit status 1 if an error was found.
    """
    from reasonrag.training.doctor.doctor import doctor as examine

    found = examine(config, **flags)
    print_result(found, found.shown(), as_json=as_json)
    if found.errors:
        raise typer.Exit(FAILED)
