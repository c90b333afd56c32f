"""Shared by HTTP clients: addresses, sessions, bounded bodies, and how long a server asks to wait."""

from __future__ import annotations

import asyncio
import os
import re
import ssl
import sys
import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit, urlunsplit

from reasonrag.errors import InputError
from reasonrag.redaction import API_VERSION, redact

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession, StreamReader

LOOPBACK = "127.0.0.1"
LOOPBACKS = (LOOPBACK, "::1", "localhost")
CONNECT_S = 15.0
"""Connection timeout; a host that is switched off never answers."""
KEEP_ALIVE_S = 15.0
"""aiohttp's own default."""
LONGEST_RETRY_AFTER_S = 24 * 3600.0
"""A daily limit says no more; a longer time is a mistake."""
MOST_ERROR_BYTES = 64 * 1024
"""Bytes read of an error's body, which is a sentence or a page."""


def http_address(url: str) -> SplitResult | None:
    """The parts of an http or https address with a host; None for anything else."""
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # unbalanced brackets, a malformed port
        return None
    return parts if valid else None


def shown_url(url: str) -> str:
    """An address safe for files and terminals, even if malformed: without user, password and query (but for Azure's
    version), and with known keys hidden in its path."""
    parts = http_address(url)
    if parts is None:  # no scheme, or a password with a slash: anything before the last @ may be part of the password
        return redact(re.split(r"[?#]", re.sub(r"^([A-Za-z][\w+.-]*://|//)?.*@", r"\1", url, flags=re.DOTALL))[0])
    query = urlencode([(name, value) for name, value in parse_qsl(parts.query) if name == API_VERSION])
    return redact(urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, query, "")))


def open_session(
    url: str,
    headers: Mapping[str, str],
    *,
    timeout: float,
    keep_alive_s: float = KEEP_ALIVE_S,
    proxy: str | None = None,
) -> ClientSession:
    """A session for requests to one address, whose bodies `read_body` reads. The caller limits concurrency.

    timeout: seconds per request. keep_alive_s: how long an idle connection is reused.
    """
    from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, TCPConnector

    encrypted = any(each.startswith("https") for each in (url, proxy or ""))
    return ClientSession(
        connector=TCPConnector(limit=0, ssl=_authorities() if encrypted else True, keepalive_timeout=keep_alive_s),
        headers={"accept-encoding": "gzip"} | dict(headers),
        auto_decompress=False,
        timeout=ClientTimeout(total=timeout, sock_connect=min(CONNECT_S, timeout)),
        cookie_jar=DummyCookieJar(),  # a cookie would bind all requests to one server behind the address
        proxy=proxy,
    )


def _authorities() -> ssl.SSLContext:
    """Whose certificates count: those of SSL_CERT_FILE and SSL_CERT_DIR; without them the system's."""
    file, folder = os.environ.get("SSL_CERT_FILE") or None, os.environ.get("SSL_CERT_DIR") or None
    if file or folder or (sys.platform == "linux" and ssl.get_default_verify_paths().cafile):
        try:
            return ssl.create_default_context(cafile=file, capath=folder)
        except OSError as error:
            named = f"SSL_CERT_FILE={file}" if file else f"SSL_CERT_DIR={folder}"
            raise InputError(f"{named} holds no certificates to trust: {error}") from error
    from truststore import SSLContext  # the keychain of macOS; also finds what OpenSSL was not built to find

    return SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class HttpClient(ABC):
    """An HTTP session per event loop, opened by the loop's first request."""

    _opened: tuple[asyncio.AbstractEventLoop, ClientSession] | None = None

    @abstractmethod
    def _open(self) -> ClientSession: ...

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


async def read_body(response: ClientResponse, most: int) -> bytes:
    """As `unpacked`; the rest of a body that is too long is not read. The session's timeout ends one without end."""
    body = await unpacked(response.content, response.headers, most)
    if len(body) > most:
        response.close()
    return body


async def unpacked(content: StreamReader, headers: Mapping[str, str], most: int) -> bytes:
    """The body of an answer or request; of one longer than `most` bytes only the beginning, which is longer than
    `most`, and nothing after it is unpacked. Raises ValueError for what is not packed as its headers say."""
    body, encoding = bytearray(), headers.get("content-encoding", "").lower()
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 32) if encoding in ("gzip", "deflate") else None  # 32: either
    while part := await content.readany():
        try:
            body += unpacker.decompress(part, most + 1 - len(body)) if unpacker else part
        except zlib.error as error:
            raise ValueError(f"the body is no {encoding}: {error}") from error
        if len(body) > most:
            return bytes(body)
        if unpacker and unpacker.unused_data:
            raise ValueError(f"the body goes on after its {encoding}")
    if unpacker and body and not unpacker.eof:
        raise ValueError(f"the body ends within its {encoding}")
    return bytes(body)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a server asks to wait, by Retry-After-Ms or Retry-After (a number or a date). None without a time to
    come, and for one that cannot be meant: then the caller's own back-off applies."""
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        asked = headers.get(name, "")
        try:
            seconds = float(asked) * unit
        except ValueError:
            try:
                seconds = (parsedate_to_datetime(asked) - datetime.now(UTC)).total_seconds()
            except (ValueError, TypeError, OverflowError):  # OverflowError: a year of 20 digits
                continue
        if 0 < seconds <= LONGEST_RETRY_AFTER_S:
            return seconds
    return None
