"""The commands that show what is there: `reasonrag view`. Imports light: what works is loaded when it is called."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Optional

import typer

from reasonrag.commandline import flag
from reasonrag.errors import InputError
from reasonrag.viewing.settings import ViewSettings


def view(
    path: Annotated[Path, typer.Argument(metavar="RUN|DIR", help="A run directory, or one of a data set")],
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
        from reasonrag.viewing.looking import view as write

        with reading(path) as watch:
            page = write(path, watch=watch, out=out, **flags)
        print(f"wrote {page} ({page.stat().st_size / 10**6:,.1f} MB); open it in a browser")
        return
    if out is not None:
        raise InputError("--serve writes nothing; leave out --out")
    from reasonrag.settings import resolve
    from reasonrag.viewing.looking import serve_view

    def say(address: str) -> None:
        print(f"showing {path} at {address}  (stop with Ctrl-C)", flush=True)
        port = address.rstrip("/").rpartition(":")[2]
        print(f"from another machine: ssh -L {port}:127.0.0.1:{port} THIS-MACHINE, then the same address", flush=True)

    try:
        asyncio.run(serve_view(path, resolve(ViewSettings, "view", flags), say=say))
    except KeyboardInterrupt:
        raise typer.Exit from None  # the way it is meant to end
