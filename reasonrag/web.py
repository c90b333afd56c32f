"""Shared by servers and clients: starting and stopping a service, HTTP sessions, and reading Retry-After."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from reasonrag.errors import InputError

if TYPE_CHECKING:
    from aiohttp import ClientSession, web

LOOPBACK = "127.0.0.1"


SHUTDOWN_S = 0.1
"""Time for open requests to finish at shutdown; hanging ones are cut off."""


@asynccontextmanager
async def listening(
    app: web.Application, *, host: str = LOOPBACK, port: int = 0, shutdown_s: float = SHUTDOWN_S
) -> AsyncIterator[str]:
    """Run the service and yield its address, `http://host:port`. Port 0 takes a free one. A handler is cancelled when
    its client disconnects. Raises InputError if it cannot listen."""
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


class HttpClient:
    """An HTTP session per event loop, opened by the loop's first request."""

    _opened: tuple[asyncio.AbstractEventLoop, ClientSession] | None = None

    def _open(self) -> ClientSession:
        raise NotImplementedError

    @property
    def _session(self) -> ClientSession:
        loop = asyncio.get_running_loop()
        if self._opened is None or self._opened[0] is not loop or self._opened[1].closed:
            self._opened = (loop, self._open())
        return self._opened[1]

    async def close(self) -> None:
        if self._opened is not None and self._opened[0] is asyncio.get_running_loop():
            await self._opened[1].close()
        self._opened = None


CONNECT_S = 15.0
"""Connection timeout; a host that is switched off never answers."""
LONGEST_RETRY_AFTER_S = 3600.0


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait by the Retry-After header, a number or a date; None without one."""
    asked, in_ms = headers.get("retry-after", ""), headers.get("retry-after-ms", "")
    try:
        seconds = float(in_ms) / 1000 if in_ms else float(asked)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(asked) - datetime.now(UTC)).total_seconds()
        except (ValueError, TypeError):
            return None
    return min(max(0.0, seconds), LONGEST_RETRY_AFTER_S) if math.isfinite(seconds) else None
