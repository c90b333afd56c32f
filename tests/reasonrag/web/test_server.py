"""Limits of a server's clients, and the names it answers under: over real sockets, with small limits."""

from __future__ import annotations

import asyncio
import gc
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from reasonrag.errors import InputError
from reasonrag.web.server import ConnectionLimits, listening, log_line, read_body, send_pieces

HALF_A_HEAD = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nX-Half: "
PATIENCE_S = 30
BIG = 32 * 1024 * 1024
"""More than the kernel's buffers hold of an answer."""


def app(answering: list[asyncio.Transport] | None = None) -> web.Application:
    """Echoes bodies, sends big answers whole and in pieces, waits, and fails. answering: gets the connections of
    requests for big answers and of those that wait."""

    def note(request: web.Request) -> None:
        if answering is not None:
            assert isinstance(request.transport, asyncio.Transport)
            answering.append(request.transport)

    async def echo(request: web.Request) -> web.Response:
        return web.Response(body=await read_body(request))

    async def whole(request: web.Request) -> web.Response:
        note(request)
        return web.Response(body=bytes(BIG))

    async def in_pieces(request: web.Request) -> web.StreamResponse:
        note(request)
        return await send_pieces(request, (memoryview(bytes(1 << 18)) for _ in range(BIG >> 18)), BIG)

    async def health(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def wait(request: web.Request) -> web.Response:
        note(request)
        await asyncio.sleep(2 * PATIENCE_S)
        return web.Response()

    async def fail(_: web.Request) -> web.Response:
        raise RuntimeError("two\nlines \x1b[31mand red")

    made = web.Application(client_max_size=1000)
    made.router.add_post("/echo", echo)
    for handler in (health, whole, in_pieces, wait, fail):
        made.router.add_get(f"/{handler.__name__}", handler)
    return made


def address_of(base_url: str) -> tuple[str, int]:
    host, _, port = base_url.removeprefix("http://").rpartition(":")
    return host.strip("[]"), int(port)


@contextmanager
def connected(base_url: str, sent: bytes, times: int = 1) -> Iterator[list[socket.socket]]:
    """Connections on which so much was sent, and that read little."""
    with ExitStack() as opened:
        clients = []
        for _ in range(times):
            client = opened.enter_context(closing(socket.socket()))
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.settimeout(PATIENCE_S)
            client.connect(address_of(base_url))
            client.sendall(sent)
            clients.append(client)
        yield clients


async def answer_to(base_url: str, sent: bytes) -> bytes:
    """What comes back on a connection of its own, until it is closed."""
    reader, writer = await asyncio.open_connection(*address_of(base_url))
    try:
        writer.write(sent)
        async with asyncio.timeout(PATIENCE_S):
            return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


async def closed(clients: list[socket.socket]) -> None:
    """Wait until the server has closed them all."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(PATIENCE_S):
        for client in clients:
            client.setblocking(False)  # noqa: FBT003 - its name
            with suppress(ConnectionError):
                while await loop.sock_recv(client, 1 << 20):
                    pass


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - transports have no event for it
            await asyncio.sleep(0.01)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # python/cpython#109564
@pytest.mark.parametrize("turns", range(6))
async def test_a_connection_that_arrives_as_the_service_ends_does_not_hold_it_up(turns: int) -> None:
    """turns: of the event loop between the connection and the end."""
    with ExitStack() as open_until_then:
        async with asyncio.timeout(PATIENCE_S), listening(app(), shutdown_s=2 * PATIENCE_S) as base_url:
            open_until_then.enter_context(connected(base_url, b""))
            for _ in range(turns):
                await asyncio.sleep(0)
    gc.collect()  # what is left of the connection, so that no later test is blamed


# -- what clients may hold ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [b"", b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"])
async def test_a_connection_without_a_whole_request_head_is_closed(sent: bytes) -> None:
    """Also where a request was answered before."""
    async with listening(app(), limits=ConnectionLimits(idle_s=0.2)) as base_url:
        with connected(base_url, sent) as clients:
            await closed(clients)


async def test_bytes_one_by_one_do_not_prolong_a_head() -> None:
    """The time is for the whole head, not for the next byte."""
    async with listening(app(), limits=ConnectionLimits(idle_s=0.4)) as base_url:
        with connected(base_url, HALF_A_HEAD) as [client]:
            async with asyncio.timeout(PATIENCE_S):
                with suppress(ConnectionError):
                    while True:
                        client.sendall(b"x")
                        await asyncio.sleep(0.05)


async def test_a_body_that_does_not_arrive_gets_status_408() -> None:
    """Status 408, and the connection ends."""
    head = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 100\r\n\r\nhalf"
    async with listening(app(), limits=ConnectionLimits(body_s=0.5, idle_s=1)) as base_url:
        said = await answer_to(base_url, head)
    assert said.startswith(b"HTTP/1.1 408 ")
    assert said.endswith(b"the body did not arrive within 0.5 s; send it again")


async def test_a_slow_answer_is_not_cut() -> None:
    """The time limits of clients do not apply to the work of the server."""
    answering: list[asyncio.Transport] = []
    limits = ConnectionLimits(idle_s=0.5, body_s=0.1, answer_s=0.1)
    async with listening(app(answering), limits=limits) as base_url:
        with connected(base_url, b"GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n"):
            await until(lambda: bool(answering))
            await asyncio.sleep(2 * limits.idle_s)
            assert not answering[0].is_closing()


@pytest.mark.parametrize("path", ["/whole", "/in_pieces"])
async def test_an_answer_that_is_not_read_ends_the_connection(path: str) -> None:
    """Whether it was handed over whole or in pieces: the client gets only what the buffers hold."""
    answering: list[asyncio.Transport] = []
    limits = ConnectionLimits(answer_s=0.2, answer_bytes_per_s=BIG * 10)
    async with listening(app(answering), limits=limits) as base_url:
        with connected(base_url, b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % path.encode(), 3) as clients:
            await until(lambda: len(answering) == len(clients) and all(each.is_closing() for each in answering))
            await closed(clients)


async def test_an_answer_that_is_read_slowly_arrives_whole() -> None:
    """As long as the client is faster than the slowest network."""
    limits = ConnectionLimits(answer_s=PATIENCE_S)
    async with listening(app(), limits=limits) as base_url, aiohttp.ClientSession() as session:
        for path in ("/whole", "/in_pieces"):
            async with session.get(base_url + path) as answer:
                await asyncio.sleep(0.3)
                assert len(await answer.read()) == BIG


async def test_half_requests_do_not_keep_others_out() -> None:
    """At the limit, those that have waited longest for their clients give way."""
    async with listening(app(), limits=ConnectionLimits(connections=20)) as base_url:
        with connected(base_url, HALF_A_HEAD, 60) as clients:
            for _ in range(3):
                assert await asked(base_url, "Host: localhost") == (200, b"ok")
            await closed(clients[:40])


async def test_a_new_connection_is_closed_if_all_others_are_being_answered() -> None:
    """At once, and the others are still answered."""
    answering: list[asyncio.Transport] = []
    async with listening(app(answering), limits=ConnectionLimits(connections=2)) as base_url:
        with connected(base_url, b"GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n", 2):
            await until(lambda: len(answering) == 2)
            assert await answer_to(base_url, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n") == b""
            assert not any(each.is_closing() for each in answering)


def test_half_requests_of_a_real_attack_leave_health_alive_and_stderr_empty(tmp_path: Path) -> None:
    """400 connections with half a head on the simulated endpoint with 256 descriptors: each request for its models is
    answered, and not a word is said."""
    command = f"ulimit -n 256; exec {sys.executable} -m tests.endpoints --port 0"
    with (
        (tmp_path / "said").open("wb") as said,
        subprocess.Popen(["bash", "-c", command], stdout=subprocess.PIPE, stderr=said) as server,
    ):
        try:
            assert server.stdout is not None
            base_url = server.stdout.readline().decode().split()[2].removesuffix("/v1")
            with connected(base_url, HALF_A_HEAD, 400):
                for _ in range(3):
                    with connected(base_url, b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n") as [client]:
                        assert client.recv(12) == b"HTTP/1.1 200"
        finally:
            server.kill()
    assert (tmp_path / "said").read_bytes() == b""


# -- names -------------------------------------------------------------------------------------------------------

OURS = ["127.0.0.1", "localhost", "LOCALHOST", "localhost.", "[::1]", "[0:0::1]", "127.0.0.1:80", "localhost:65535"]
OTHERS = [
    *("evil.com", "evil.com:80", "127.0.0.1.evil.com", "localhost.evil.com", "notlocalhost", "127.0.0.2", "[::2]"),
    *("127.0.0.1:1@evil.com", "evil.com:127.0.0.1", "127.0.0.1:", "127.0.0.1:80:80", "localhost..", "[::1"),
    *("", " ", "127.1", "2130706433", "localhost/", "localhost#", "localhost?x", "localhost\\evil", "[localhost]"),
]
ORIGINS = [f"{scheme}://{name}" for scheme in ("http", "https") for name in OURS]
OTHER_ORIGINS = ["null", "http://evil.com", "https://evil.com:443", "file://", "localhost/x", "http://localhost/x", ""]


async def asked(base_url: str, *headers: str, version: str = "1.1") -> tuple[int, bytes]:
    """Status and body of a request with these headers and no others."""
    lines = [f"GET /health HTTP/{version}", *headers, "Connection: close", "", ""]
    said = await answer_to(base_url, "\r\n".join(lines).encode())
    head, _, body = said.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


async def test_on_loopback_only_its_own_names_are_answered() -> None:
    """Host, which a site's own name would be in after DNS rebinding, and Origin, which tells the site."""
    async with listening(app(), allow_host=["Retriever.internal."]) as base_url:
        for host in [*OURS, "retriever.internal", "RETRIEVER.internal.:8977"]:
            assert await asked(base_url, f"Host: {host}") == (200, b"ok"), host
        for host in OTHERS:
            status, body = await asked(base_url, f"Host: {host}")
            assert status in (400, 403), host
            assert b"ok" not in body.split()
        for origin in [*ORIGINS, "http://retriever.internal:3"]:
            assert await asked(base_url, "Host: localhost", f"Origin: {origin}") == (200, b"ok"), origin
        for origin in OTHER_ORIGINS:
            assert (await asked(base_url, "Host: localhost", f"Origin: {origin}"))[0] == 403, origin
        for headers in ([], ["Host: localhost", "Host: evil.com"], ["Host: localhost", "Host: localhost"]):
            assert (await asked(base_url, *headers, version="1.0"))[0] in (400, 403), headers
        twice = ["Host: localhost", "Origin: http://localhost", "Origin: http://evil.com"]
        assert (await asked(base_url, *twice))[0] in (400, 403)


@pytest.mark.parametrize("path", ["/health", "/echo", "/nothing", "/wait"])
async def test_the_refusal_of_a_name_says_what_to_do(path: str) -> None:
    """Whatever is asked for: status 403, the address, and the flag where the command has one."""
    for flag, allowed in ((", or start the server with --allow-host and the name that you use", []), ("", None)):
        async with (
            listening(app(), allow_host=allowed) as base_url,
            aiohttp.ClientSession() as session,
            session.get(base_url + path, headers={"Host": "evil.com"}) as answer,
        ):
            assert answer.status == 403
            said = f"the Host header does not name this server. Use {base_url}{flag}"
            assert await answer.json() == {"error": said}


@pytest.mark.parametrize(
    ("allowed", "host", "origin", "status"),
    [
        ([], "anything.example", None, 200),
        ([], "anything.example", "http://anything.example", 403),
        (["gpu7"], "gpu7:8977", "https://gpu7", 200),
        (["gpu7"], "gpu7", "http://evil.com", 403),
        (["gpu7"], "evil.com", None, 403),
    ],
)
async def test_beyond_loopback_other_names_are_refused_once_there_is_a_list(
    allowed: list[str], host: str, origin: str | None, status: int
) -> None:
    """Retrievers on other machines must stay reachable; sites that ask through a browser are refused always."""
    async with listening(app(), host="0.0.0.0", allow_host=allowed) as base_url:  # noqa: S104 - what is tested
        reached = base_url.replace("0.0.0.0", "127.0.0.1")  # noqa: S104
        assert (await asked(reached, f"Host: {host}", *([f"Origin: {origin}"] if origin else [])))[0] == status


@pytest.mark.parametrize("name", ["", "http://gpu7", "a b", "::x"])
async def test_an_invalid_host_name_is_bad_input(name: str) -> None:
    """Before anything is served."""
    with pytest.raises(InputError, match=f"--allow-host {re.escape(repr(name))}"):
        async with listening(app(), allow_host=[name]):
            pytest.fail("it listens")


# -- what is said ------------------------------------------------------------------------------------------------


async def test_an_unexpected_error_is_one_line_and_garbage_is_not_logged(capfd: pytest.CaptureFixture[str]) -> None:
    """Control characters are left out; the client gets status 500."""
    async with listening(app()) as base_url:
        for garbage in (b"\x16\x03\x01 TLS\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET / HTTP/1.1\r\nA\x00: b\r\n\r\n"):
            await answer_to(base_url, garbage)
        said = await answer_to(base_url, b"GET /fail HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert said.startswith(b"HTTP/1.1 500 ")
    assert b"red" not in said
    [line] = capfd.readouterr().err.splitlines()
    assert re.fullmatch(r"Error handling request .* in \S+, line \d+: RuntimeError: two lines \s*\[31mand red", line)


def test_a_line_of_the_log_is_cut_and_has_no_keys() -> None:
    line = log_line("\x1b]0;" + "sk-0123456789abcdef0123456789" + "x" * 10_000)
    assert line.startswith(" ]0;[secret]")
    assert len(line) < 400
