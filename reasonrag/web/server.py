"""Shared by all our servers: start and end of a service, limits of its clients, and the names it answers under.

Decides how many connections are open, how long clients may take to send a request and to read an answer, which Host and
Origin headers are refused (DNS rebinding), and what is logged. Knows no service.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import re
import signal
import socket
import time
import traceback
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from reasonrag.concurrency import calling_at
from reasonrag.errors import InputError
from reasonrag.redaction import excerpt
from reasonrag.rendering import one_line
from reasonrag.web.client import LOOPBACK, unpacked

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler, Middleware
    from multidict import CIMultiDictProxy

MOST_CONNECTIONS = 1024
"""Default limit of open connections: twice the requests in flight in our largest benchmark."""
DESCRIPTORS_KEPT = 48
"""File descriptors kept free, at least, for indexes, files, and connections that are being refused."""
ACCEPTED_TOGETHER = 8
"""Connections that asyncio accepts in one go, before it handles the first; more would use up descriptors in a burst."""
BACKLOG = 1024
"""Connections queued in the kernel until they are accepted."""
MOST_HEADERS = 64
"""Headers per request, each of at most 8 KiB: an unfinished head holds at most 0.5 MiB."""
SHUTDOWN_S = 0.1
"""Seconds that open requests have to finish at shutdown."""
MOST_LOGGED = 300
"""Characters of a log line with text from a client or an exception."""
_WATCHED_EVERY_S = 1.0


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits of a server's connections: their number, and the seconds that clients have to send or read."""

    connections: int | None = None
    """Open at once; None: `most_connections`. At the limit, a new connection replaces the one that has waited longest
    for its client; if all are being answered, the new one is closed."""
    idle_s: float = 30.0
    """For a whole request head, from connecting or from the last answer. Twice as long as our clients keep an idle
    connection, so the server does not close one that is about to be reused."""
    body_s: float = 30.0
    """For a whole body: 1 MiB takes 9 s at 1 Mbit/s."""
    answer_s: float = 10.0
    """For reading an answer, in addition to its bytes at `answer_bytes_per_s`."""
    answer_bytes_per_s: int = 125_000
    """The slowest supported network: 1 Mbit/s."""


DEFAULT_LIMITS = ConnectionLimits()


def most_connections() -> int:
    """MOST_CONNECTIONS, or less if `ulimit -n` is low: a quarter of it, and at least DESCRIPTORS_KEPT, stays free."""
    try:
        import resource
    except ImportError:  # Windows
        return MOST_CONNECTIONS
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    return max(1, min(MOST_CONNECTIONS, descriptors - max(DESCRIPTORS_KEPT, descriptors // 4)))


@asynccontextmanager
async def listening(
    app: web.Application,
    *,
    host: str = LOOPBACK,
    port: int = 0,
    allow_host: Iterable[str] | None = None,
    limits: ConnectionLimits = DEFAULT_LIMITS,
    shutdown_s: float = SHUTDOWN_S,
) -> AsyncIterator[str]:
    """Run the service and yield its address, `http://host:port`. A handler is cancelled when its client disconnects;
    it reads bodies with `read_body`. Requests under another name than the server's get 403, see `refused_name`.

    port: 0 takes a free one. allow_host: further names of the server; None: its command has no such flag. Raises
    InputError if it cannot listen, and for an invalid name.
    """
    named = frozenset(_checked_name(each) for each in allow_host or ())
    clients = _Clients(limits)
    app.middlewares.insert(0, _guard(clients, named, "--allow-host" if allow_host is not None else None))
    logger = _logger()
    runner = web.AppRunner(
        app,
        access_log=None,
        logger=logger,
        handler_cancellation=True,
        shutdown_timeout=shutdown_s,
        keepalive_timeout=2
        * limits.idle_s,  # `_Clients.watch` closes idle connections before that, also with unsent bytes
        max_headers=MOST_HEADERS,
        auto_decompress=False,
    )
    loop = asyncio.get_running_loop()
    async with contextlib.AsyncExitStack() as undo:
        await runner.setup()
        undo.push_async_callback(runner.cleanup)
        served = cast("web.Server", runner.server)
        try:
            server = await loop.create_server(
                lambda: _Connection(clients, served()), host, port, backlog=ACCEPTED_TOGETHER
            )
        except OSError as error:
            raise InputError(
                f"cannot listen on {host}:{port}: {error.strerror}. Choose another --port, or 0 for a free one"
            ) from error
        undo.callback(server.close)
        undo.callback(clients.end)
        for each in server.sockets:
            with socket.fromfd(each.fileno(), each.family, each.type) as again:
                again.listen(BACKLOG)  # asyncio makes the queue only as long as what it accepts together
        bound = [_plain_address(each.getsockname()[0]) for each in server.sockets]
        clients.check_host = bool(named) or all(ip_address(each).is_loopback for each in bound)
        watch = loop.create_task(clients.watch())
        undo.callback(watch.cancel)
        yield f"http://{_in_url(bound[0])}:{server.sockets[0].getsockname()[1]}"


async def serve_until_stopped(service: AbstractAsyncContextManager[str], *, say: Callable[[str], object]) -> None:
    """Run a service until SIGTERM, SIGINT or cancellation, then end it; a second signal ends it at once.

    say: called with the service's address once it listens.
    """
    stopping = asyncio.Event()
    with calling_at((signal.SIGTERM, signal.SIGINT), stopping.set) as let_go:
        async with service as address:
            say(address)
            with contextlib.suppress(asyncio.CancelledError):
                await stopping.wait()
            let_go()


# -- connections -------------------------------------------------------------------------------------------------


class _Clients:
    """The open connections of a server. check_host: whether the Host header must name the server. ended: the server
    ends and takes no more connections."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits, self.check_host, self.ended = limits, True, False
        self._most = limits.connections or most_connections()
        self.open: set[_Connection] = set()

    def admit(self, new: _Connection) -> bool:
        """Whether there is room for a new connection; closes one that waits for its client if needed."""
        if self.ended:
            return False
        if len(self.open) >= self._most:
            waiting = [each for each in self.open if not each.working]
            if not waiting:
                return False
            min(waiting, key=lambda each: each.ends_at).abort()
        self.open.add(new)
        return True

    def end(self) -> None:
        """Admit no more. aiohttp would neither answer nor close a connection that was accepted as the server ends."""
        self.ended = True

    async def watch(self) -> None:
        """Close connections whose clients take too long; runs until cancelled."""
        while True:
            await asyncio.sleep(min(_WATCHED_EVERY_S, self.limits.idle_s / 4, self.limits.answer_s / 4))
            now = time.monotonic()
            for each in [each for each in self.open if each.ends_at < now]:
                each.abort()


class _Connection(asyncio.Protocol):
    """Wraps aiohttp's protocol, which limits neither the time of heads and unread answers nor connections.

    A connection either waits for its client (to send a head or body, or to read an answer) until `ends_at`, or is
    `working` on an answer, whose time the service limits.
    """

    def __init__(self, clients: _Clients, served: web.RequestHandler) -> None:
        self._clients, self._served = clients, served
        self._transport: asyncio.Transport | None = None
        self._unread = False
        self.limits, self.reached = clients.limits, ("", 0)
        """reached: the server's address and port that the client connected to."""
        self.working, self.ends_at = False, math.inf

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._clients.admit(self):
            address, port, *_ = transport.get_extra_info("sockname")
            self.reached = _plain_address(address), port
            self.wait(self.limits.idle_s)
            self._served.connection_made(transport)
        else:
            self.abort()

    def work(self) -> None:
        """A request is being answered."""
        self.working, self.ends_at = True, math.inf

    def wait(self, seconds: float) -> None:
        """Wait for the client for so many seconds; longer while it reads an answer."""
        self.working = False
        if not self._unread:
            self.ends_at = time.monotonic() + seconds

    def abort(self) -> None:
        self._clients.open.discard(self)
        if self._transport is not None:
            self._transport.abort()

    def pause_writing(self) -> None:
        left = self._transport.get_write_buffer_size() if self._transport else 0
        self._unread = True
        self.ends_at = time.monotonic() + self.limits.answer_s + left / self.limits.answer_bytes_per_s
        self._served.pause_writing()

    def resume_writing(self) -> None:
        self._unread = False
        self.ends_at = math.inf if self.working else time.monotonic() + self.limits.idle_s
        self._served.resume_writing()

    def data_received(self, data: bytes) -> None:
        self._served.data_received(data)

    def eof_received(self) -> None:
        self._served.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._clients.open.discard(self)
        self._served.connection_lost(exc)


def _connection_of(request: web.Request) -> _Connection:
    """Raises ConnectionResetError if the client is gone."""
    if request.transport is None:
        raise ConnectionResetError
    return cast("_Connection", request.transport.get_protocol())


async def read_body(request: web.Request) -> bytes:
    """The whole body. Raises HTTPException if it is too large, does not arrive in time, or is garbled."""
    connection = _connection_of(request)
    seconds = connection.limits.body_s
    connection.wait(2 * seconds)  # longer than the timeout below, which answers with 408
    try:
        async with asyncio.timeout(seconds):
            body = await unpacked(request.content, request.headers, request.client_max_size)
    except TimeoutError:
        raise web.HTTPRequestTimeout(text=f"the body did not arrive within {seconds:g} s; send it again") from None
    except (web.RequestPayloadError, ValueError):
        raise web.HTTPBadRequest(text="the body is not in the form that its headers name") from None
    finally:
        connection.work()
    if len(body) > request.client_max_size:
        raise web.HTTPRequestEntityTooLarge(request.client_max_size, len(body))
    return body


async def send_pieces(request: web.Request, pieces: Iterable[bytearray | memoryview], size: int) -> web.StreamResponse:
    """Send JSON piece by piece as the client takes it. size: bytes of all pieces. Raises ConnectionResetError if the
    client is gone, or takes too long."""
    connection = _connection_of(request)
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    try:
        async with asyncio.timeout(connection.limits.answer_s + size / connection.limits.answer_bytes_per_s):
            await response.prepare(request)
            for piece in pieces:
                await response.write(piece)
            await response.write_eof()
    except TimeoutError:
        connection.abort()
        raise ConnectionResetError from None
    return response


def _guard(clients: _Clients, named: frozenset[str], flag: str | None) -> Middleware:
    """The outermost middleware: refuses requests under another name, and marks connections as working or waiting."""

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            connection = _connection_of(request)
            connection.work()
            try:
                address, port = connection.reached
                own = named | {LOOPBACK, "localhost", "::1", address}
                refused = refused_name(request.headers, own, check_host=clients.check_host)
                if refused is None:
                    return await handler(request)
                remedy = f", or start the server with {flag} and the name that you use" if flag else ""
                message = f"{refused}. Use http://{_in_url(address)}:{port}{remedy}"
                return web.json_response({"error": message}, status=HTTPStatus.FORBIDDEN)
            finally:
                connection.wait(connection.limits.idle_s)
        except ConnectionError:
            return web.Response()  # the client is gone: it is not sent

    return guard


# -- names: a site can point its own name at this machine and send requests through a browser (DNS rebinding) -------

_NAME = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\s/@:\[\]?#\\]+))(?::[0-9]{1,5})?", re.IGNORECASE)


def refused_name(headers: CIMultiDictProxy[str], own: Collection[str], *, check_host: bool) -> str | None:
    """Why the Host or Origin header is refused; None if it is not. Browsers name the requesting site in Origin, which
    must be a name of the server if present; so must Host if `check_host`."""
    hosts, origins = headers.getall("Host", []), headers.getall("Origin", [])
    if check_host and (len(hosts) != 1 or _name(hosts[0]) not in own):
        return "the Host header does not name this server"
    if origins and (len(origins) != 1 or _name(re.sub("^https?://", "", origins[0])) not in own):
        return "the Origin header names another site than this server"
    return None


def _name(given: str) -> str | None:
    """The normalised name or address of `name` or `name:port`; None if malformed."""
    found = _NAME.fullmatch(given)
    if found is None:
        return None
    return _plain_address(found[1]) if found[1] else found[2].lower().removesuffix(".")


def _checked_name(given: str) -> str:
    bare = given.removeprefix("[").removesuffix("]")
    name = _plain_address(bare) if ":" in bare else _name(bare)
    if not name:
        raise InputError(f"--allow-host {given!r}: give a name or an address, without scheme, port and path")
    return name


def _plain_address(address: str) -> str:
    """A normalised IP address, IPv4-mapped ones as IPv4; empty for anything else."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    mapped = parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None
    return str(mapped or parsed)


def _in_url(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def log_line(text: str) -> str:
    """Untrusted text as one log line: redacted, cut, without control characters."""
    return one_line(excerpt(text, MOST_LOGGED))


class _OneLine(logging.Formatter):
    """An unexpected error as one line, with the place where it was raised."""

    def format(self, record: logging.LogRecord) -> str:
        error = record.exc_info[1] if record.exc_info else None
        if error is None:
            return log_line(record.getMessage())
        frames = traceback.extract_tb(error.__traceback__)
        where = f" in {frames[-1].filename}, line {frames[-1].lineno}" if frames else ""
        return log_line(f"{record.getMessage()}{where}: {type(error).__name__}: {error}")


def _logger() -> logging.Logger:
    """A logger for aiohttp that writes one line instead of a traceback per failed request, and nothing for malformed
    requests, which get status 400."""
    logger, stderr = logging.getLogger("reasonrag.server"), logging.StreamHandler()
    stderr.setFormatter(_OneLine())
    garbled = (HttpProcessingError, web.RequestPayloadError)
    stderr.addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], garbled)))
    logger.handlers, logger.propagate = [stderr], False
    return logger
