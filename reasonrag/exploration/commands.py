"""The commands that start: `reasonrag init`, and `reasonrag generate` with its estimate by `--dry-run`."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reasonrag.errors import CapReached, InputError, WaitTooLong
from reasonrag.exploration.settings import GenerateSettings
from reasonrag.exploration.settings_file import InitSettings, settings_file
from reasonrag.files import writing
from reasonrag.options import FAILED, Json, interrupts, options, print_result, this_command
from reasonrag.redaction import redact
from reasonrag.settings import COMMON, SETTINGS_FILE, Panel, resolve
from reasonrag.terminal import print_shown

if TYPE_CHECKING:
    from reasonrag.exploration.summary import StopReason

WITHOUT_A_FLAG = ("index_home", "max_wait")
"""Settings of `generate` that stand in reasonrag.toml, the environment and Python only."""


@options(InitSettings, example="reasonrag init --dataset hotpotqa --budget 20 --yes")
def init(
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Ask nothing: take the defaults where no flag is given")] = False,
    **flags: Any,
) -> None:
    """Write a commented reasonrag.toml from four answers: teacher, data, budget, student.

    Every later command in this folder reads it. Answers are read from the terminal, or from stdin one per line; an
    empty line takes the default. An existing file is replaced only after a yes in a terminal.
    """
    file = Path(SETTINGS_FILE)
    asks = sys.stdin.isatty() and not yes
    if file.exists() and not (
        asks and _answer(f"{file} is there already. Replace it? [y/N]").casefold() in ("y", "yes")
    ):
        raise InputError(f"{file} is there already and was not changed; move it away, or edit it")
    for name, field in () if yes else InitSettings.model_fields.items():
        while flags[name] is None:
            default = f"{field.default:g}" if isinstance(field.default, float) else field.default
            given = {name: _answer(f"{name.capitalize()}. {field.description} [{default}]") or field.default}
            try:
                flags[name] = getattr(_answers(given), name)
            except InputError as error:
                if not asks:
                    raise
                print_shown(redact(str(error)), file=sys.stderr)
    text = settings_file(**_answers(flags).model_dump())
    with writing(file):
        file.write_text(text, encoding="utf-8")
    print_shown(f"wrote {file}")
    print_shown("next: reasonrag generate --limit 100 --dry-run")


def _answers(given: dict[str, Any]) -> InitSettings:
    """By flags only: the environment and the file are for the other commands."""
    return resolve(InitSettings, "init", given, environment={}, file=Path(os.devnull))


def _answer(question: str) -> str:
    print_shown(fill(question, 79), file=sys.stderr)
    print_shown("> ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip()


@options(
    GenerateSettings, without=WITHOUT_A_FLAG, example="reasonrag generate --dataset hotpotqa --limit 500 --max-cost 20"
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
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Estimate the cost; send no request", rich_help_panel=Panel.BUDGET),
        COMMON,
    ] = False,
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
        _estimate(flags, as_json=as_json)
        return
    from reasonrag.exploration.explore import generate as generate_run
    from reasonrag.exploration.summary import RunSummary
    from reasonrag.terminal import TerminalWatcher

    watcher = TerminalWatcher()
    with interrupts():
        summary = generate_run(watcher=watcher, replay=replay, launch=context.obj.explore, **flags)
    print_result(summary, partial(RunSummary.shown, warned_of=watcher.warned), as_json=as_json)
    leave(summary.stopped, failed=summary.failed)


def _estimate(flags: dict[str, Any], *, as_json: bool) -> None:
    from reasonrag.exploration.cost_estimate import CostEstimate, estimate
    from reasonrag.terminal import TerminalWatcher

    with interrupts():
        found = estimate(watcher=TerminalWatcher(), **flags)
    print_result(found, CostEstimate.shown, as_json=as_json)


def leave(stopped: StopReason | None, *, failed: int) -> None:
    """Exit with the status of a session that was stopped early, or that left questions without a tree."""
    if stopped:
        print_shown(f"continue with: {stopped.instead or this_command(stopped.raise_cap)}", file=sys.stderr)
        capped = stopped.cause in (CapReached.cause, WaitTooLong.cause)
        raise typer.Exit(CapReached.exit_status if capped else FAILED)
    if failed:
        raise typer.Exit(FAILED)
