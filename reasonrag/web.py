"""Where a service of ours listens, and how it ends. Knows no service."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from reasonrag.errors import InputError

if TYPE_CHECKING:
    from aiohttp import web

LOOPBACK = "127.0.0.1"


SHUTDOWN_S = 0.1
"""Open requests get so long to end; a hanging one never would."""


@asynccontextmanager
async def listening(
    app: web.Application, *, host: str = LOOPBACK, port: int = 0, shutdown_s: float = SHUTDOWN_S
) -> AsyncIterator[str]:
    """The running service's address, as `http://host:port`. Port 0 takes a free one. A handler whose client goes away
    is cancelled. Raises InputError where it cannot listen."""
    from aiohttp import web

    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=shutdown_s)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port, backlog=1024).start()
        except OSError as error:
            raise InputError(
                f"cannot listen on {host}:{port}: {error.strerror}. Choose another --port, or 0 for a free one"
            ) from error
        bound_host, bound_port = runner.addresses[0][:2]
        shown_host = f"[{bound_host}]" if ":" in bound_host else bound_host
        yield f"http://{shown_host}:{bound_port}"
    finally:
        await runner.cleanup()
