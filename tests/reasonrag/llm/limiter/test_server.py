"""The limiter over HTTP: only its own reports, only with its token, and nothing unbounded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from reasonrag.errors import InputError
from reasonrag.llm.budget import Amount, Caps
from reasonrag.llm.limiter.client import HttpLimiter, LimiterAway
from reasonrag.llm.limiter.limiter import AddressReport, Rates, Report
from reasonrag.llm.limiter.server import MOST_BODY_BYTES, serving
from reasonrag.llm.limiter.state_file import KeptLimiter, open_limiter

TOKEN = "s3cret-of-the-limiter"  # noqa: S105 - of this test
REPORT = Report(rank="00000", spent=Amount(1, 20, 0.1), held=Amount(2, 40, 0.2), wanted=Amount(9, 99, 0.5))


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[KeptLimiter]:
    async with open_limiter(tmp_path, Caps(calls=100, cost=4.0), Rates(60, None)) as limiter:
        yield limiter


async def send(address: str, body: bytes, path: str = "/lease", **options: Any) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.post(address + path, data=body, **options) as response:
        return response.status, await response.text()


async def test_a_lease_over_http_is_the_one_that_the_limiter_gives(kept: KeptLimiter) -> None:
    """To the last digit of a dollar."""
    address = AddressReport(governed=True, demand=(1e9, 0))
    report = REPORT.model_copy(update={"addresses": {"http://host/v1 m": address}, "least": Amount(3, 60, 0.1 + 0.2)})
    async with serving(kept) as url:
        remote = HttpLimiter(url)
        try:
            turn = (await remote.lease(report)).turn
            lease = await remote.lease(report.model_copy(update={"turn": turn}))
        finally:
            await remote.close()
        async with aiohttp.ClientSession() as session, session.get(f"{url}/health") as response:
            health = await response.json()
    assert lease.allowed == kept.limiter.accounts["00000"].allowed
    assert lease.allowed.dollars >= 0.1 + 0.2
    assert (lease.caps, lease.addresses["http://host/v1 m"].share) == (Caps(calls=100, cost=4.0), Rates(60, None))
    assert health["spent"] == {"calls": 1, "tokens": 20, "dollars": 0.1}


GOOD = orjson.loads(REPORT.model_dump_json())
HOSTILE: dict[str, tuple[bytes, int]] = {
    "nothing": (b"", 400),
    "no JSON": (b"{", 400),
    "a list": (b"[]", 400),
    "nesting": (b"[" * 100_000, 400),
    "another field": (orjson.dumps(GOOD | {"more": 1}), 400),
    "a path for a rank": (orjson.dumps(GOOD | {"rank": "../../etc"}), 400),
    "a long rank": (orjson.dumps(GOOD | {"rank": "r" * 65}), 400),
    "a control character": (orjson.dumps(GOOD | {"rank": "a\n"}), 400),
    "negative": (orjson.dumps(GOOD | {"spent": [-1, 0, 0]}), 400),
    "huge": (orjson.dumps(GOOD | {"wanted": [1e300, 0, 0]}), 400),
    "infinite": (orjson.dumps(GOOD).replace(b"99.0", b"Infinity"), 400),
    "no number": (orjson.dumps(GOOD).replace(b"99.0", b"NaN"), 400),
    "a huge turn": (orjson.dumps(GOOD | {"turn": 10**18 * 10}), 400),
    "four amounts": (orjson.dumps(GOOD | {"spent": [1, 2, 3, 4]}), 400),
    "many addresses": (orjson.dumps(GOOD | {"addresses": {str(each): {} for each in range(65)}}), 400),
    "a long address": (orjson.dumps(GOOD | {"addresses": {"a" * 501: {}}}), 400),
    "a pause for ever": (orjson.dumps(GOOD | {"addresses": {"a": {"pause": 1e9}}}), 400),
    "a large body": (b" " * (MOST_BODY_BYTES + 1), 413),
}


@pytest.mark.parametrize("kind", HOSTILE)
async def test_what_is_no_report_is_refused_in_a_sentence_and_changes_nothing(kept: KeptLimiter, kind: str) -> None:
    body, status = HOSTILE[kind]
    async with serving(kept) as url:
        found, text = await send(url, body)
    assert (found, kept.limiter.accounts) == (status, {})
    assert len(text) < 1_000
    assert "error" in orjson.loads(text)


async def test_without_the_token_nothing_is_said(kept: KeptLimiter) -> None:
    """Neither is it shown: in no error, and in no representation."""
    async with serving(kept, token=TOKEN) as url:
        for header in ("", "Bearer", "Bearer wrong", f"Basic {TOKEN}", "Bearer \udcff"):
            for path in ("/lease", "/health", "/"):
                status, text = await send(url, b"{}", path, headers={"Authorization": header})
                assert (status, TOKEN in text) == (401, False)
        for token in (None, "wrong"):
            refused = HttpLimiter(url, token)
            with pytest.raises(InputError, match="set REASONRAG_LIMITER_TOKEN"):
                await refused.lease(REPORT)
            await refused.close()
        allowed = HttpLimiter(url, TOKEN)
        assert (await allowed.lease(REPORT)).caps.calls == 100
        await allowed.close()
    with pytest.raises(InputError, match="token must be"):
        async with serving(kept, token="two words"):  # noqa: S106
            pass


@pytest.mark.parametrize(
    "url", ["host:8002", "ftp://host", "http://user:pass@host", "http://host/?key=1", "http://host#1"]
)
def test_what_is_no_address_of_a_limiter_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="is not a limiter's address") as info:
        HttpLimiter(url)
    assert "pass" not in str(info.value)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", InputError),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9000000\r\n\r\n" + b"[" * 9_000_000, InputError),
        (b"HTTP/1.1 302 Found\r\nLocation: /else\r\nContent-Length: 0\r\n\r\n", InputError),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\n\x1b[31m", InputError),
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", LimiterAway),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", LimiterAway),
        (b"nonsense", LimiterAway),
        (b"", LimiterAway),
    ],
)
async def test_an_answer_that_is_no_lease_is_told_from_a_limiter_that_is_away(
    answer: bytes, error: type[Exception]
) -> None:
    """Another server is the user's mistake, and its text is shown without controls; a restart is waited for."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1") as server:
        remote = HttpLimiter(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        with pytest.raises(error) as info:
            await remote.lease(REPORT)
        await remote.close()
    assert "\x1b" not in str(info.value)
    assert len(str(info.value)) < 1_000
