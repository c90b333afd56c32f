"""What our servers and clients share: where a service listens, how it ends, and how Retry-After is read."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
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


CONNECT_S = 15.0
"""To a connection; a host that is switched off says nothing at all."""
LONGEST_RETRY_AFTER_S = 3600.0


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that an endpoint asks to wait, as a number or as a date; None if it does not say."""
    asked, in_ms = headers.get("retry-after", ""), headers.get("retry-after-ms", "")
    try:
        seconds = float(in_ms) / 1000 if in_ms else float(asked)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(asked) - datetime.now(UTC)).total_seconds()
        except (ValueError, TypeError):
            return None
    return min(max(0.0, seconds), LONGEST_RETRY_AFTER_S) if math.isfinite(seconds) else None
