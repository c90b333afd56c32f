"""The commands of training: they parse, call one function, show."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from reasonrag.errors import InputError
from reasonrag.options import BAD_INPUT, JSON, flag, interrupts, switch
from reasonrag.training.settings import TrainSettings

WHAT, CHECKED, WHERE = "What is trained", "What is checked", "Where it runs"


def _flag(name: str, panel: str) -> Any:
    return flag(TrainSettings, name, panel)


def train(
    config: Annotated[
        Optional[str],
        typer.Argument(help="A YAML file of LLaMA-Factory's arguments, or the bare name of one that ships with this"),
    ] = None,
    data: Annotated[Optional[Path], _flag("data", WHAT)] = None,
    out: Annotated[Optional[Path], _flag("out", WHAT)] = None,
    set_: Annotated[Optional[list[str]], _flag("set", WHAT)] = None,
    merge: Annotated[Optional[Path], _flag("merge", WHAT)] = None,
    prompts: Annotated[Optional[Path], _flag("prompts", CHECKED)] = None,
    allow: Annotated[Optional[list[str]], _flag("allow", CHECKED)] = None,
    allow_eval: Annotated[Optional[list[str]], _flag("allow_eval", CHECKED)] = None,
    nodes: Annotated[Optional[int], _flag("nodes", WHERE)] = None,
    node_rank: Annotated[Optional[int], _flag("node_rank", WHERE)] = None,
    master: Annotated[Optional[str], _flag("master", WHERE)] = None,
    gpus_per_node: Annotated[Optional[int], _flag("gpus_per_node", WHERE)] = None,
    slurm: Annotated[Optional[Path], _flag("slurm", WHERE)] = None,
    ray: Annotated[Optional[bool], switch(TrainSettings, "ray", WHERE)] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what LLaMA-Factory would read and all findings, start nothing")
    ] = False,
    print_config: Annotated[
        bool, typer.Option("--print", help="Print the YAML of CONFIG, to be edited, and do nothing; alone: their names")
    ] = False,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Train a model on a data set by LLaMA-Factory: checked first, resumable, with curves and a card.

    Exit status 0 trained, 1 LLaMA-Factory failed, 2 refused and nothing started, 130 interrupted: the same command goes
    on.
    """
    flags = {
        name.rstrip("_"): value
        for name, value in locals().items()
        if name not in ("config", "dry_run", "print_config", "as_json")
    }
    if print_config:
        _print(config)
        return
    if merge is not None:
        _merge(config, flags, as_json=as_json)
        return
    if config is None:
        from reasonrag.training.llamafactory.config_files import shipped_names

        raise InputError(f"a configuration is needed: a YAML file, or one of {', '.join(shipped_names())}")
    from reasonrag.training.display import TerminalTraining, show_training
    from reasonrag.training.display import as_json as in_json
    from reasonrag.training.train import train as train_model

    with interrupts():
        result = train_model(config, dry_run=dry_run, watcher=TerminalTraining(), **flags)
    if as_json:
        print(in_json(result))
    else:
        show_training(result)
    if result.objections:
        raise typer.Exit(BAD_INPUT)


def _print(config: str | None) -> None:
    from reasonrag.training.llamafactory.config_files import find_config, shipped_names

    print(
        "\n".join(shipped_names()) if config is None else find_config(config).text, end="\n" if config is None else ""
    )


def _merge(config: str | None, flags: dict[str, Any], *, as_json: bool) -> None:
    from reasonrag.settings import resolve
    from reasonrag.training.display import TerminalTraining, show_merged
    from reasonrag.training.llamafactory.merge import merge_adapter

    if config is not None:
        raise InputError("--merge trains nothing, so it takes no configuration; --set changes keys of the export")
    settings = resolve(TrainSettings, "train", flags)
    assert settings.merge is not None  # noqa: S101 - it was asked for
    with interrupts():
        merged = merge_adapter(settings.merge, settings.out, settings.set, watcher=TerminalTraining())
    if as_json:
        print(merged.model_dump_json())
    else:
        show_merged(merged)
