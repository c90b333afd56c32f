"""The commands of runs on one machine or many: `reasonrag generate`, with its estimate by `--dry-run`, and `merge`."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from reasonrag.errors import InputError
from reasonrag.exploration.commands import leave
from reasonrag.exploration.settings import GenerateSettings
from reasonrag.options import FAILED, Json, interrupts, options, print_result
from reasonrag.redaction import redact
from reasonrag.rendering import counted
from reasonrag.retrieval.settings import IndexSettings
from reasonrag.settings import COMMON, Panel
from reasonrag.terminal import print_shown


@options(GenerateSettings, example="reasonrag generate --dataset hotpotqa --limit 500 --max-cost 20")
def generate(
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
    pilot: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="With --dry-run: explore N questions first, and estimate from what they cost. They are paid for and "
            "kept in the run directory",
            rich_help_panel=Panel.BUDGET,
            show_default=False,
        ),
    ] = 0,
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Explore questions with a teacher: a search tree of sampled steps and their rewards per question.

    The same command continues a run that was stopped; no completion is paid for twice. Exit
    status 0: every question has a tree; 1: some question failed; 3: stopped by a cap.
    """
    if pilot and not dry_run:
        raise InputError("--pilot goes with --dry-run")
    if replay and dry_run:
        raise InputError("--replay sends no request, so there is nothing to estimate; leave out --dry-run")
    if dry_run:
        _estimate(flags, pilot=pilot, as_json=as_json)
        return
    from reasonrag.exploration.display import show_run
    from reasonrag.scale.generate import generate as generate_run
    from reasonrag.terminal import TerminalWatcher

    watcher = TerminalWatcher()
    with interrupts():
        summary = generate_run(watcher=watcher, replay=replay, **flags)
    print_result(summary, partial(show_run, warned=watcher.warned), as_json=as_json)
    leave(summary.stopped, failed=summary.failed)


def _estimate(flags: dict[str, Any], *, pilot: int, as_json: bool) -> None:
    from reasonrag.exploration.cost_estimate import NothingMeasured, estimate
    from reasonrag.exploration.display import show_estimate
    from reasonrag.terminal import TerminalWatcher

    with interrupts():
        try:
            found = estimate(watcher=TerminalWatcher(), pilot=pilot, **flags)
        except NothingMeasured as nothing:
            print_shown(f"stopped: {redact(str(nothing))}", file=sys.stderr)
            leave(nothing.stopped, failed=pilot)
            return
    print_result(found, show_estimate, as_json=as_json)
    leave(found.stopped, failed=found.failed)


@options(example="reasonrag merge runs/hotpotqa-train-economy --verify")
def merge(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder that was the --run of ranks (--shard i/n)")],
    *,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify", help="Also explore the run in one process from the joined journal, and compare the bytes"
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Join the ranks of a run, once all are complete, into what one process would have made.

    Exit status 1: some question has no tree, or --verify found other trees; 2: ranks are missing or incomplete.
    """
    from reasonrag.scale.display import show_merged
    from reasonrag.scale.merge import merge as merge_ranks
    from reasonrag.terminal import TerminalWatcher

    with interrupts():
        merged = merge_ranks(run, verify=verify, watcher=TerminalWatcher())
    print_result(merged, show_merged, as_json=as_json)
    if merged.summary and (merged.summary.stopped or merged.summary.failed):
        raise typer.Exit(FAILED)


@options(IndexSettings, example="reasonrag index build --corpus corpus.jsonl --kind dense")
def index_build(*, as_json: Json = False, **flags: Any) -> None:
    """Build an index of a corpus: BM25, or dense with an encoder.

    Commands that search build a missing BM25 index themselves. The same command continues a dense build that was
    stopped.
    """
    from reasonrag.retrieval.display import TerminalBuildWatcher, show_index
    from reasonrag.scale.index_build import index_build as build

    with interrupts():
        directory, manifest = build(watcher=TerminalBuildWatcher(), **flags)
    print_result(manifest, lambda built: show_index(directory, built), as_json=as_json)
    if not as_json:
        print_shown(f"wrote {directory} ({counted(manifest.passages, 'passage')})")
