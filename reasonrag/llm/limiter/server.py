"""The limiter behind HTTP, for ranks on other machines: POST /lease, GET /health.

Decides what a request may hold, who may ask, and which status an answer has. Listens on loopback by default; TLS is
left to a reverse proxy. Does not know what is lent.
"""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING

import orjson
from aiohttp import web
from pydantic import ValidationError

from reasonrag.errors import InputError, StorageError
from reasonrag.llm.limiter.limiter import Report
from reasonrag.llm.limiter.state_file import KeptLimiter
from reasonrag.web.client import LOOPBACK
from reasonrag.web.server import listening, read_body

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler

MOST_BODY_BYTES = 256 * 1024
"""Of a report; the longest possible one, of 64 addresses, has less."""
_LIMITER, _TOKEN = web.AppKey("limiter", KeptLimiter), web.AppKey("token", str)


@asynccontextmanager
async def serving(
    limiter: KeptLimiter,
    *,
    host: str = LOOPBACK,
    port: int = 0,
    allow_host: Iterable[str] = (),
    token: str | None = None,
) -> AsyncIterator[str]:
    """Run the service and yield its address; see `listening`. token: required from requests as `Authorization: Bearer
    TOKEN`; None: no authorization. Raises InputError for a token that no header can hold."""
    if token is not None and not (token.isascii() and token.isprintable() and " " not in token):
        raise InputError("the limiter's token must be of ASCII letters, digits and signs, without spaces")
    app = web.Application(client_max_size=MOST_BODY_BYTES, middlewares=[_answered])
    app[_LIMITER], app[_TOKEN] = limiter, token or ""
    app.router.add_post("/lease", _lease)
    app.router.add_get("/health", _health)
    async with listening(app, host=host, port=port, allow_host=allow_host) as address:
        yield address


async def _lease(request: web.Request) -> web.Response:
    report = Report.model_validate_json(await read_body(request))
    lease = await request.app[_LIMITER].lease(report)
    return web.Response(text=lease.model_dump_json(), content_type="application/json")


async def _health(request: web.Request) -> web.Response:
    return web.Response(body=orjson.dumps(request.app[_LIMITER].summary()), content_type="application/json")


@web.middleware
async def _answered(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Checks the token, and makes answers of what handlers raise."""
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    known = hmac.compare_digest(given.strip().encode("utf-8", "surrogateescape"), request.app[_TOKEN].encode())
    if request.app[_TOKEN] and not (scheme.lower() == "bearer" and known):
        return _refused(HTTPStatus.UNAUTHORIZED, "this needs the limiter's token, as Authorization: Bearer TOKEN")
    try:
        return await handler(request)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"]))[:100]
        return _refused(HTTPStatus.BAD_REQUEST, f"not a report: {where}: {first['msg'][:200]}")
    except InputError as error:
        return _refused(HTTPStatus.BAD_REQUEST, str(error))
    except StorageError as error:
        return _refused(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
    except web.HTTPException as error:
        return _refused(error.status, error.text or error.reason)


def _refused(status: int, message: str) -> web.Response:
    return web.json_response({"error": message}, status=status)
