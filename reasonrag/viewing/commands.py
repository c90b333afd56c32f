"""The commands that show runs and data sets: `reasonrag view`, `show` and `stats`."""

from __future__ import annotations

import asyncio
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from reasonrag.errors import InputError
from reasonrag.files import bytes_of
from reasonrag.options import Json, options, print_result
from reasonrag.settings import resolve
from reasonrag.terminal import on_one_line, print_prose, print_shown, reading_progress
from reasonrag.viewing.settings import PACKED, ShowSettings, ViewSettings

Source: TypeAlias = Annotated[
    Path, typer.Argument(metavar="RUN|DIR", help="Run, or data set made by pairs", show_default=False)
]


@options(ViewSettings, example="reasonrag view runs/hotpotqa-train-economy")
def view(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN|DIR|EVAL|MODEL..",
            help="Run, data set, or evaluations or trainings beside each other; --serve: one, or a folder",
            show_default=False,
        ),
    ],
    *,
    serve: Annotated[
        bool,
        typer.Option(
            "--serve",
            help="Serve all trees on this machine (loopback), and judge pairs there; write no page",
        ),
    ] = False,
    **flags: Any,
) -> None:
    """Show a run, a data set, evaluations or trainings in a browser: trees, pairs, why each label; attempts; curves.

    Writes one page that needs no network. With --serve only what people judge is written, and what goes on grows.
    """
    path, *others = paths
    if not serve:
        if flags["port"] is not None:
            raise InputError("--port goes with --serve")
        from reasonrag.viewing.view import view as write

        size, most = sum(map(bytes_of, paths)), resolve(ViewSettings, "view", flags).max_mb
        at_once = f"To see every tree, at once: reasonrag view {shlex.quote(str(path))} --serve"
        instead = f"; no page was written. {at_once}" if size else "; no page was written"
        if size > PACKED * most * 10**6:
            print_prose(
                f"{path} has {size / 10**6:,.0f} MB: the page will hold the trees of a sample, at most {most} MB. "
                f"{at_once}",
                file=sys.stderr,
            )
        with reading_progress(path, size, instead=instead) as watch:
            page = write(paths, watch=watch, **flags)
        print_shown(f"wrote {on_one_line(str(page))} ({page.stat().st_size / 10**6:,.1f} MB); open it in a browser")
        return
    if flags["out"] is not None:
        raise InputError("--serve writes no page; leave out --out")
    if others:
        raise InputError("--serve shows one run, data set, evaluation or folder of such; leave it out to see several")
    _serve(path, resolve(ViewSettings, "view", flags))


def _serve(path: Path, settings: ViewSettings) -> None:
    """Until Ctrl-C."""
    from reasonrag.viewing.collection import is_of_several
    from reasonrag.viewing.view_server import Several, serve_page, shown_alone

    several = is_of_several(path)
    if several and settings.trees:
        raise InputError(f"--trees goes with one data set, and {path} holds several; give the folder of one")

    async def serving() -> None:
        shown = Several(path) if several else shown_alone(path, settings.trees)
        async with serve_page(shown, port=settings.port) as address:
            print_shown(f"showing {on_one_line(str(path))} at {address}  (stop with Ctrl-C)", flush=True)
            port = address.rstrip("/").rpartition(":")[2]
            print_shown(
                f"from another machine: ssh -L {port}:127.0.0.1:{port} THIS-MACHINE, then the same address", flush=True
            )
            await asyncio.Event().wait()

    try:
        asyncio.run(serving())
    except KeyboardInterrupt:
        raise typer.Exit from None  # the way it is meant to end


@options(ShowSettings, example="reasonrag show data/hotpotqa-train-economy")
def show(
    run: Source,
    question_id: Annotated[
        str | None,
        typer.Argument(
            metavar="QUESTION_ID", help="Question to show, by its id in the question file", show_default=False
        ),
    ] = None,
    *,
    pair: Annotated[
        str | None, typer.Option(metavar="PAIR_ID", help="Show one pair: both steps, and what decided it")
    ] = None,
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Show one question in the terminal: its search tree, its pairs, and the reason for each label."""
    if pair is not None and as_json:
        raise InputError("--pair and --json exclude each other: --json gives all pairs anyway")
    from reasonrag.terminal import show as print_parts
    from reasonrag.viewing.question_screen import pair_parts
    from reasonrag.viewing.view import show as find

    with reading_progress(run, bytes_of(run)):
        found = find(run, question_id, **flags)
    if as_json:
        print(found.model_dump_json())  # noqa: T201 - JSON escapes its controls
    elif pair is not None:
        print_parts(pair_parts(found, pair))
    else:
        print_parts(found.shown())
        if found.pairs:
            again = f"reasonrag show {shlex.quote(str(run))} {shlex.quote(on_one_line(found.id))} --pair PAIR_ID"
            print_shown(f"one pair and the reasons for its label: {again}")


@options(example="reasonrag stats runs/hotpotqa-train-economy")
def stats(path: Source, *, as_json: Json = False) -> None:
    """Show statistics of a run or a data set: outcomes, pairs, drop reasons, cost."""
    from reasonrag.viewing.stats_tables import stats_parts
    from reasonrag.viewing.view import stats as count

    with reading_progress(path, bytes_of(path)) as watch:
        found = count(path, watch=watch)
    print_result(found, stats_parts(found), as_json=as_json)
