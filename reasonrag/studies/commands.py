"""The commands that study runs: `reasonrag calibrate` and `tune`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from reasonrag.exploration.commands import leave
from reasonrag.exploration.settings import GenerateSettings
from reasonrag.options import FAILED, Json, options, print_result
from reasonrag.studies.settings import NOT_OF_TUNE, CalibrateSettings, TuneSettings


@options(CalibrateSettings, example="reasonrag calibrate runs/hotpotqa-train-economy --revalue 50 --max-cost 5")
def calibrate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory of generate")],
    *,
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Measure how far labels of a run, or of a data set, can be trusted."""
    from reasonrag.studies.calibrate import calibrate as calibrate_run
    from reasonrag.terminal import TerminalWatcher

    found = calibrate_run(run, watcher=TerminalWatcher(), **flags)
    print_result(found, found.shown(), as_json=as_json)
    if found.gave_up:
        raise typer.Exit(FAILED)


@options(
    TuneSettings,
    GenerateSettings,
    without=NOT_OF_TUNE,
    example="reasonrag tune --vary search.siblings=3,4,6 --run runs/tune --max-cost 9",
)
def tune(*, as_json: Json = False, **flags: Any) -> None:
    """Try values of the recipe on some questions, and find those with the most pairs for their cost."""
    from reasonrag.studies.tune import tune as try_configurations
    from reasonrag.terminal import TerminalWatcher

    found = try_configurations(watcher=TerminalWatcher(), **flags)
    print_result(found, found.shown(), as_json=as_json)
    leave(found.stopped, failed=sum(each.failed for each in found.trials))
