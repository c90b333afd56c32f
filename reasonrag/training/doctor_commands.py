"""The command `reasonrag doctor`. Imports light: what works is loaded when it is called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from reasonrag.options import FAILED, JSON, flag
from reasonrag.training.settings import DoctorSettings

_PLAN = "What is planned for"


def doctor(
    config: Annotated[
        Optional[str],
        typer.Argument(help="A configuration of train_configs/ by its name, or a file \\[default: the machine alone]"),
    ] = None,
    data: Annotated[Optional[Path], flag(DoctorSettings, "data")] = None,
    index: Annotated[Optional[list[Path]], flag(DoctorSettings, "index")] = None,
    prompts: Annotated[Optional[Path], flag(DoctorSettings, "prompts")] = None,
    out: Annotated[Optional[Path], flag(DoctorSettings, "out")] = None,
    model: Annotated[Optional[str], flag(DoctorSettings, "model", _PLAN)] = None,
    set_: Annotated[Optional[list[str]], flag(DoctorSettings, "set", _PLAN)] = None,
    gpus: Annotated[Optional[int], flag(DoctorSettings, "gpus", _PLAN)] = None,
    gpu_memory: Annotated[Optional[float], flag(DoctorSettings, "gpu_memory", _PLAN)] = None,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Check packages, GPUs, data and index before a training, and plan its memory.

    Exit status 1 where an error was found.
    """
    from reasonrag.training.doctor.display import show_diagnosis
    from reasonrag.training.doctor.doctor import doctor as examine

    found = examine(
        config,
        data=data,
        index=index,
        prompts=prompts,
        out=out,
        model=model,
        set=set_,
        gpus=gpus,
        gpu_memory=gpu_memory,
    )
    if as_json:
        print(found.model_dump_json())
    else:
        show_diagnosis(found)
    if found.errors:
        raise typer.Exit(FAILED)
