"""The commands that start: `reasonrag init`, and `reasonrag generate` with its estimate by `--dry-run`."""

from __future__ import annotations

import sys
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reasonrag.errors import CapReached, InputError, WaitTooLong
from reasonrag.exploration.settings import GenerateSettings
from reasonrag.files import writing
from reasonrag.options import FAILED, EstimateOnly, Json, options, print_result, this_command
from reasonrag.settings import SETTINGS_FILE, Panel
from reasonrag.terminal import TerminalWatcher, print_shown

if TYPE_CHECKING:
    from reasonrag.exploration.summary import StopReason


@options(example="reasonrag init")
def init() -> None:
    """Write a commented reasonrag.toml, which every later command in this folder reads.

    A file that is there already is not changed.
    """
    file = Path(SETTINGS_FILE)
    with writing(file), resources.files(__package__).joinpath(SETTINGS_FILE).open("rb") as example:
        if file.exists():
            raise InputError(f"{file} is there already and was not changed; edit it, or move it away")
        file.write_bytes(example.read())
    print_shown(f"wrote {file}: change teacher, data and budget to yours")
    print_shown("next: reasonrag generate --limit 100 --dry-run")


@options(
    GenerateSettings,
    without=("index_home", "max_wait"),  # reasonrag.toml, the environment and Python have them
    example="reasonrag generate --dataset hotpotqa --limit 500 --max-cost 20",
)
def generate(
    context: typer.Context,
    *,
    replay: Annotated[
        bool,
        typer.Option(
            "--replay",
            help="Send no request; take every completion from the run's journal",
            rich_help_panel=Panel.EXECUTION,
        ),
    ] = False,
    dry_run: EstimateOnly = False,
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Explore questions with a teacher: a search tree of sampled steps and their rewards per question.

    The same command continues a run that was stopped; no completion is paid for twice. Exit
    status 0: every question has a tree; 1: some question failed; 3: stopped by a cap.
    """
    if replay and dry_run:
        raise InputError("--replay sends no request, so there is nothing to estimate; leave out --dry-run")
    if dry_run:
        from reasonrag.exploration.cost_estimate import estimate

        estimated = estimate(watcher=TerminalWatcher(), **flags)
        print_result(estimated, estimated.shown(), as_json=as_json)
        return
    from reasonrag.exploration.explore import generate as generate_run

    summary = generate_run(watcher=TerminalWatcher(), replay=replay, launch=context.obj.explore, **flags)
    print_result(summary, summary.shown(), as_json=as_json)
    leave(summary.stopped, failed=summary.failed)


def leave(stopped: StopReason | None, *, failed: int) -> None:
    """Exit with the status of a session that was stopped early, or that left questions without a tree."""
    if stopped:
        print_shown(f"continue with: {stopped.instead or this_command(stopped.raise_cap)}", file=sys.stderr)
        capped = stopped.cause in (CapReached.cause, WaitTooLong.cause)
        raise typer.Exit(CapReached.exit_status if capped else FAILED)
    if failed:
        raise typer.Exit(FAILED)
