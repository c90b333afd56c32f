"""`reasonrag.view`: the page of a run or a data set, written or served.

Decides where the page goes. What is in it is the matter of `page`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reasonrag.errors import InputError
from reasonrag.settings import resolve
from reasonrag.viewing.collection import open_collection
from reasonrag.viewing.page import write_page
from reasonrag.viewing.settings import ViewSettings

VIEW_PAGE = "view.html"


def view(path: str | Path, *, watch: Callable[[float], None] | None = None, **flags: Any) -> Path:
    """Write the page of a run or a data set; returns where it is. The keyword arguments are the command's flags.

    watch: is told the share of the work that is done. Raises InputError where `path` is neither, or a file of it cannot
    be read or the page not be written.
    """
    settings = resolve(ViewSettings, "view", flags)
    place = Path(path)
    collection = open_collection(place, settings.trees)
    out = settings.out or (place if place.is_dir() else place.parent) / VIEW_PAGE
    if out.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"--out {out} must end in .html: it is a page, and would replace what is there")
    if out.is_dir():
        raise InputError(f"--out {out} is a directory; name a file in it, for instance {out / VIEW_PAGE}")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_page(collection, out, most=settings.max_mb * 10**6, seed=settings.seed, watch=watch or (lambda _: None))
    except OSError as error:
        raise InputError(f"cannot read or write {error.filename or out}: {error.strerror or error}") from error
    return out


async def serve_view(path: Path, settings: ViewSettings, *, say: Callable[[str], None]) -> None:
    """Serve the page until cancelled. say: is told its address. Raises InputError, also where it cannot listen."""
    from reasonrag.viewing.view_server import viewing

    async with viewing(open_collection(path, settings.trees), port=settings.port) as address:
        say(address)
        await asyncio.Event().wait()
