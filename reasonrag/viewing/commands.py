"""The commands that show what is there: `reasonrag view`, `show` and `stats`.

Imports light: what works is loaded when it is called.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Optional

import typer

from reasonrag.errors import InputError
from reasonrag.options import JSON, flag
from reasonrag.terminal import on_one_line
from reasonrag.viewing.settings import ShowSettings, ViewSettings

SOURCE = typer.Argument(metavar="RUN|DIR", help="Run directory of generate, or data set of pairs", show_default=False)


def view(
    path: Annotated[Path, SOURCE],
    out: Annotated[Optional[Path], flag(ViewSettings, "out")] = None,
    serve: Annotated[
        bool, typer.Option("--serve", help="Serve the page on loopback, with every tree, and read while it is open")
    ] = False,
    port: Annotated[Optional[int], flag(ViewSettings, "port")] = None,
    trees: Annotated[Optional[list[Path]], flag(ViewSettings, "trees")] = None,
    max_mb: Annotated[Optional[int], flag(ViewSettings, "max_mb")] = None,
    seed: Annotated[Optional[int], flag(ViewSettings, "seed")] = None,
) -> None:
    """See a run or a data set in a browser: its questions, their trees, every step and pair, and why.

    One page that needs no network; with --serve nothing is written.
    """
    flags = {"port": port, "trees": trees, "max_mb": max_mb, "seed": seed}
    if not serve:
        if port is not None:
            raise InputError("--port goes with --serve")
        from reasonrag.viewing.display import reading
        from reasonrag.viewing.view import view as write

        with reading(path) as watch:
            page = write(path, watch=watch, out=out, **flags)
        print(f"wrote {on_one_line(str(page))} ({page.stat().st_size / 10**6:,.1f} MB); open it in a browser")
        return
    if out is not None:
        raise InputError("--serve writes nothing; leave out --out")
    from reasonrag.settings import resolve
    from reasonrag.viewing.view import serve_view

    def say(address: str) -> None:
        print(f"showing {on_one_line(str(path))} at {address}  (stop with Ctrl-C)", flush=True)
        port = address.rstrip("/").rpartition(":")[2]
        print(f"from another machine: ssh -L {port}:127.0.0.1:{port} THIS-MACHINE, then the same address", flush=True)

    try:
        asyncio.run(serve_view(path, resolve(ViewSettings, "view", flags), say=say))
    except KeyboardInterrupt:
        raise typer.Exit from None  # the way it is meant to end


def show(
    run: Annotated[Path, SOURCE],
    question_id: Annotated[Optional[str], typer.Argument(help="As in the question file", show_default=False)] = None,
    step: Annotated[
        Optional[int],
        typer.Option(metavar="N", help="One step whole: its prompt, passages, reply, and the pairs it is in"),
    ] = None,
    pair: Annotated[
        Optional[str], typer.Option(metavar="PAIR_ID", help="One pair: both sides, and everything that decided it")
    ] = None,
    trees: Annotated[Optional[list[Path]], flag(ShowSettings, "trees")] = None,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Draw the search tree of one question, its preference pairs, and why they are pairs."""
    if sum((step is not None, pair is not None, as_json)) > 1:
        raise InputError("--step, --pair and --json exclude each other: --json gives all steps and pairs anyway")
    from reasonrag.viewing.question_screen import show_pair, show_question, show_step
    from reasonrag.viewing.view import show as find

    found = find(run, question_id, trees=trees)
    if as_json:
        print(found.model_dump_json())
    elif step is not None:
        show_step(found, step)
    elif pair is not None:
        show_pair(found, pair)
    else:
        show_question(found, run)


def stats(
    path: Annotated[Path, SOURCE],
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Say in numbers what a run or a data set holds: outcomes, pairs, drop reasons, diversity, cost, distributions."""
    from reasonrag.viewing.display import reading
    from reasonrag.viewing.stats_tables import show_stats
    from reasonrag.viewing.view import stats as count

    with reading(path) as watch:
        found = count(path, watch=watch)
    if as_json:
        print(found.model_dump_json())
    else:
        show_stats(found)
