"""One address on the wire: what its bytes become, how long it may take, and what its refusals mean."""

from __future__ import annotations

import asyncio
import base64
import gzip
import re
import shutil
import ssl
import subprocess
import sys
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
import trustme
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from openai import APIConnectionError, APIError, APIStatusError, APITimeoutError

from reasonrag.errors import InputError
from reasonrag.llm.chat import Completion, Sampling
from reasonrag.llm.endpoint.endings import ending_of
from reasonrag.llm.endpoint.http_client import (
    MOST_ENVELOPE_BYTES,
    MOST_LOGPROB_BYTES,
    MOST_TOKEN_BYTES,
    AnswerTooLargeError,
    BadAnswerError,
    Connection,
    HttpAnswer,
    completions_of,
    most_bytes_of_answer,
)
from reasonrag.llm.endpoint.trouble import (
    error_cause,
    error_message,
    is_account_refused,
    is_endpoint_failure,
    is_retryable,
)
from reasonrag.redaction import redact
from reasonrag.web.client import retry_after

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
ASKED: Any = None
"""The request of openai's errors, which ours have not."""


@asynccontextmanager
async def address_of(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Where every request is answered by `handler`."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        host = "https://localhost" if tls else "http://127.0.0.1"
        yield f"{host}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def connected(base_url: str, *, seconds: float = 5.0) -> AsyncIterator[Connection]:
    connection = Connection(base_url, key="sk-mine", timeout=seconds)
    try:
        yield connection
    finally:
        await connection.close()


def refused(status: int, *, message: str = "no", **said: str) -> APIStatusError:
    response: Any = HttpAnswer(b"", {}, status)
    return APIStatusError(message, response=response, body={"message": message, **said})


# -- requests --------------------------------------------------------------------------------------------------


async def test_a_body_is_posted_with_the_key_and_the_answer_comes_with_its_headers() -> None:
    """A slash at the end of the address makes no difference; a dated Azure address keeps its query and gets the key in
    its own header, too."""
    seen: list[tuple[str, str | None, str | None, object]] = []

    async def echo(request: web.Request) -> web.Response:
        keys = request.headers.get("Authorization"), request.headers.get("api-key")
        seen.append((request.path_qs, *keys, orjson.loads(await request.read())))
        return web.json_response({"ok": True}, headers={"X-RateLimit-Limit-Requests": "60"})

    dated = "?api-version=2024-10-21"
    async with address_of(echo) as address:
        for base_url in ("/v1/", "/openai/v1", f"/openai/deployments/mine{dated}"):
            async with connected(address + base_url) as connection:
                answer = await connection.post({"model": "m", "messages": []})
    key, body = "Bearer sk-mine", {"model": "m", "messages": []}
    assert seen == [
        ("/v1/chat/completions", key, None, body),
        ("/openai/v1/chat/completions", key, None, body),
        (f"/openai/deployments/mine/chat/completions{dated}", key, "sk-mine", body),
    ]
    assert orjson.loads(answer.content) == {"ok": True}
    assert answer.headers.get("x-ratelimit-limit-requests") == "60"


@pytest.mark.parametrize("drips", [False, True])
async def test_a_whole_answer_must_come_in_time(*, drips: bool) -> None:
    """One byte now and then keeps no request alive."""

    async def slow(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        if drips:
            await response.prepare(request)
        for _ in range(5000):
            await asyncio.sleep(0.05)
            if drips:
                await response.write(b" ")
        return response

    async with address_of(slow) as address, connected(address, seconds=0.3) as connection:
        with pytest.raises(APITimeoutError) as raised:
            await asyncio.wait_for(connection.post({}), timeout=60)
    assert error_cause(raised.value) == "timeout"
    assert error_message(raised.value)


@pytest.mark.parametrize("status", [200, 429])
@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        ("gzip", gzip.compress),
        ("GZIP", gzip.compress),
        ("deflate", zlib.compress),
        ("identity", bytes),
        ("utf-8", bytes),
    ],
)
async def test_compressed_bodies_are_read(encoding: str, pack: Callable[[bytes], bytes], status: int) -> None:
    """Gateways compress; refusals too. Some name what is no compression."""

    async def compressed(request: web.Request) -> web.Response:
        assert request.headers["Accept-Encoding"] == "gzip"
        body = pack(orjson.dumps({"error": {"message": "slow down", "code": "busy"}}))
        headers = {"Content-Encoding": encoding, "Retry-After": "7"}
        return web.Response(body=body, status=status, headers=headers)

    async with address_of(compressed) as address, connected(address) as connection:
        if status == 200:
            assert b"slow down" in (await connection.post({})).content
            return
        with pytest.raises(APIStatusError, match="status 429: slow down") as raised:
            await connection.post({})
    assert (raised.value.status_code, raised.value.code) == (429, "busy")
    assert retry_after(raised.value.response.headers) == 7


@pytest.mark.parametrize(
    ("encoding", "body", "complaint"),
    [
        ("gzip", b'{"choices": []}', "the body is no gzip"),
        ("deflate", b'{"choices": []}', "the body is no deflate"),
        ("gzip", gzip.compress(bytes(10_000), mtime=0)[:-9], "the body ends within its gzip"),
        (
            "gzip",
            gzip.compress(b"{}", mtime=0) + gzip.compress(bytes(1 << 24), mtime=0),
            "the body goes on after its gzip",
        ),
        ("identity", b'{"choices": [', "payload is not completed"),
    ],
)
async def test_a_body_that_is_broken_or_breaks_off_may_pass(encoding: str, body: bytes, complaint: str) -> None:
    """It is asked for again."""
    promised = len(body) + 9 if encoding == "identity" else len(body)

    async def garbled(_: web.Request) -> web.Response:
        response = web.Response(body=body, headers={"Content-Encoding": encoding, "Content-Length": str(promised)})
        response.force_close()
        return response

    async with address_of(garbled) as address, connected(address) as connection:
        with pytest.raises(APIConnectionError, match=complaint) as raised:
            await connection.post({})
    assert is_retryable(raised.value)


MANY_AT_ONCE = """
import asyncio, resource, sys
from collections import Counter
from reasonrag.llm.endpoint.http_client import Connection
import openai

async def outcome(connection):
    try:
        return len((await connection.post({"n": 3, "max_tokens": 512})).content)
    except Exception as error:
        return type(error).__name__

async def main():
    connection = Connection(sys.argv[1], key="sk-mine", timeout=60)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcomes = await asyncio.gather(*(outcome(connection) for _ in range(17)))
    await connection.close()
    print(*set(outcomes), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)

asyncio.run(main())
"""
"""17 requests at once, in a process of their own: what they end with, and by how many MB its memory grew."""


@pytest.mark.parametrize(
    ("encoding", "status", "outcome"),
    [
        ("identity", 200, "AnswerTooLargeError"),
        ("gzip", 200, "AnswerTooLargeError"),
        ("deflate", 200, "AnswerTooLargeError"),
        ("gzip", 500, "APIStatusError"),
        ("identity", 400, "APIStatusError"),
    ],
)
async def test_bodies_without_end_take_no_memory(encoding: str, status: int, outcome: str) -> None:
    """Neither sent as they are nor unpacked, as an answer or as an error: 17 bodies of 64 MB at once take less than
    one of them twice."""
    size = 64 * 1024 * 1024
    packed = {"gzip": gzip.compress, "deflate": zlib.compress, "identity": bytes}[encoding](bytes(size))

    async def bomb(_: web.Request) -> web.Response:
        return web.Response(body=packed, status=status, headers={"Content-Encoding": encoding})

    async with address_of(bomb) as address:
        client = await asyncio.create_subprocess_exec(
            sys.executable, "-c", MANY_AT_ONCE, address, stdout=asyncio.subprocess.PIPE
        )
        said, _ = await asyncio.wait_for(client.communicate(), timeout=60)
    ended, grown = said.decode().split()
    assert ended == outcome
    assert int(grown) < 2 * 64


@pytest.mark.parametrize(("asked", "tokens"), [({"max_tokens": 10}, 10), ({"max_completion_tokens": 10, "n": 3}, 30)])
def test_a_body_may_be_as_long_as_its_request_can_make_it(asked: dict[str, object], tokens: int) -> None:
    """By its tokens, each with its log-probabilities and those of the alternatives to it."""
    assert most_bytes_of_answer(asked) == MOST_ENVELOPE_BYTES + tokens * MOST_TOKEN_BYTES
    listed = most_bytes_of_answer(asked | {"logprobs": True, "top_logprobs": 4})
    assert listed == MOST_ENVELOPE_BYTES + tokens * (MOST_TOKEN_BYTES + 5 * MOST_LOGPROB_BYTES)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error": {"message": "too long"}}', "too long"),
        (b'{"error": "too long"}', "too long"),
        (b'{"message": "too long"}', "too long"),
        (b'[{"error": {"message": "too long"}}]', "too long"),
        (b'{"detail": [{"loc": ["body", "n"], "msg": "too many"}]}', "too many"),
        (b'{"message": {"detail": [{"msg": "too many"}]}}', "too many"),
        (b"<html>too long", "<html>too long"),
        (b"\xff", "\ufffd"),
        (b"", "status 400: "),
        ("zu lang: ü".encode("utf-16"), "status 400: "),
        (b'{"message": "too long' + b"." * 10**7 + b'"}', "too long.."),
        (b'{"message": ' + b'{"a":' * 300 + b"1" + b"}" * 301, '"message"'),
    ],
)
async def test_a_refusal_says_what_its_body_says(body: bytes, message: str) -> None:
    """In whichever of the forms that servers use."""

    async def refuse(_: web.Request) -> web.Response:
        headers = {"content-type": "text/plain; charset=utf-16", "x-said-by": "Müller"}
        return web.Response(body=body, status=400, headers=headers)

    async with address_of(refuse) as address, connected(address) as connection:
        with pytest.raises(APIStatusError) as raised:
            await connection.post({})
    assert message in str(raised.value)
    assert len(str(raised.value)) < 2000


@pytest.mark.parametrize(
    ("exceptions", "host_seen"), [("", "model.invalid"), ("model.invalid", None), ("other.invalid", "model.invalid")]
)
async def test_a_proxy_of_the_environment_is_used(
    exceptions: str, host_seen: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HTTP_PROXY and NO_PROXY, as elsewhere."""
    seen: list[str | None] = []

    async def proxy(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Host"))
        return web.json_response({})

    async with address_of(proxy) as address:
        monkeypatch.setenv("http_proxy", address)
        monkeypatch.setenv("no_proxy", exceptions)
        async with connected("http://model.invalid/v1", seconds=3) as connection:
            if host_seen is None:
                with pytest.raises(APIConnectionError):
                    await connection.post({})
            else:
                await connection.post({})
    assert seen == ([] if host_seen is None else [host_seen])


async def test_a_proxy_s_password_is_sent_and_never_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is the key: neither a message nor the connection as text holds it."""
    seen: list[str | None] = []

    async def proxy(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Proxy-Authorization"))
        return web.Response(status=407)

    async with address_of(proxy) as address:
        monkeypatch.setenv("http_proxy", address.replace("//", "//me:hunter2%40pass@"))
        monkeypatch.delenv("no_proxy", raising=False)
        async with connected("http://model.invalid/v1") as connection:
            with pytest.raises(APIError) as raised:
                await connection.post({})
    assert seen == [f"Basic {base64.b64encode(b'me:hunter2@pass').decode()}"]
    assert "hunter2" not in redact(error_message(raised.value) + str(raised.value))
    assert "sk-mine" not in repr(connection)


async def test_a_proxy_of_another_kind_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what to do, not as an address that cannot be reached."""
    monkeypatch.delenv("http_proxy", raising=False)
    monkeypatch.setenv("all_proxy", "socks5://127.0.0.1:1080")
    async with connected("http://model.invalid/v1") as connection:
        with pytest.raises(InputError, match=r"socks5 proxy.*HTTPS_PROXY"):
            await connection.post({})


def folder_of(certificate: Path) -> None:
    """Beside it, a folder of its name in which OpenSSL finds it."""
    named = ("openssl", "x509", "-hash", "-noout", "-in", certificate)
    name = subprocess.run(named, check=True, capture_output=True, text=True).stdout.strip()
    certificate.with_suffix("").mkdir()
    shutil.copy(certificate, certificate.with_suffix("") / f"{name}.0")


@pytest.mark.parametrize("system", ["linux", "darwin"])
@pytest.mark.parametrize(
    ("file", "folder", "outcome"),
    [
        ("ours.pem", None, "trusted"),
        (None, "ours", "trusted"),
        (None, None, "CERTIFICATE_VERIFY_FAILED"),
        ("other.pem", None, "CERTIFICATE_VERIFY_FAILED"),
        (None, "nowhere", "CERTIFICATE_VERIFY_FAILED"),
        ("nowhere.pem", None, r"SSL_CERT_FILE=.*nowhere.pem holds no certificates.*No such file"),
        ("empty.pem", None, r"SSL_CERT_FILE=.*empty.pem holds no certificates"),
    ],
)
async def test_certificates_are_checked(
    file: str | None, folder: str | None, outcome: str, system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By SSL_CERT_FILE and SSL_CERT_DIR, or without these by the system's. A server without a
    valid certificate gets no request. The keychain of macOS is not tested here."""
    monkeypatch.setattr(sys, "platform", system)
    if folder == "ours" and not shutil.which("openssl"):
        pytest.skip("no openssl, which names the certificates of a folder")
    authority, asked = trustme.CA(), 0
    authority.cert_pem.write_to_path(tmp_path / "ours.pem")
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    (tmp_path / "empty.pem").touch()
    if folder == "ours":
        folder_of(tmp_path / "ours.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    for variable, value in ("SSL_CERT_FILE", file), ("SSL_CERT_DIR", folder):
        monkeypatch.delenv(variable, raising=False)
        if value is not None:
            monkeypatch.setenv(variable, value and str(tmp_path / value))

    async def secret(_: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.json_response({})

    async with address_of(secret, context) as address, connected(address) as connection:
        if outcome == "trusted":
            await connection.post({})
        else:
            with pytest.raises((APIConnectionError, InputError)) as raised:
                await connection.post({})
            assert re.search(outcome, str(raised.value))
    assert asked == (outcome == "trusted")


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_is_not_followed(status: int) -> None:
    """It would turn the request into another one, or take key and prompt to another host. The message has the place."""
    asked: list[str] = []

    async def moved(request: web.Request) -> web.Response:
        asked.append(request.method)
        return web.Response(status=status, headers={"Location": "https://elsewhere.test/v1/chat/completions"})

    async with address_of(moved) as address, connected(address) as connection:
        with pytest.raises(APIStatusError, match=r"moved to https://elsewhere.test") as raised:
            await connection.post({})
    assert asked == ["POST"]
    assert not is_retryable(raised.value)


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (b'{"data": [{"id": "b"}, {"id": "a"}]}', ["a", "b"]),
        (b'{"data": [{"name": "a"}, 7]}', []),
        (b'{"data": {}}', []),
    ],
)
async def test_served_models_are_told_or_they_are_not(body: bytes, names: list[str]) -> None:
    """It only makes a message better; whatever comes is no error."""

    async def models(_: web.Request) -> web.Response:
        return web.Response(body=body)

    async with address_of(models) as address, connected(address) as connection:
        assert sorted(await connection.listed_models()) == names


# -- answers ---------------------------------------------------------------------------------------------------


def test_the_usage_of_a_request_rides_on_its_first_choice() -> None:
    """So that sums are right; with the bytes that these tokens are of."""
    usage = {"prompt_tokens": 9, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4}}
    choices = [{"message": {"content": text}, "finish_reason": end} for text, end in (("a", "stop"), ("b", "length"))]
    first, second = completions_of(orjson.dumps({"choices": choices, "usage": usage}), (), prompt_size=99)
    assert first == Completion(
        text="a",
        finish_reason="stop",
        prompt_tokens=9,
        completion_tokens=5,
        cached_tokens=4,
        requests=1,
        prompt_counted=9,
        prompt_bytes=99,
    )
    assert second == Completion(text="b", finish_reason="length", requests=0)


@pytest.mark.parametrize(
    "count", ["null", "1e30", "1e400", "NaN", "-Infinity", "-7", '"9"', "true", "[9]", "{}", "9" * 5_000, "0"]
)
@pytest.mark.parametrize("usage", ["null", "[]", '{"prompt_tokens": %s}', '{"prompt_tokens": %s, "total_tokens": %s}'])
def test_missing_token_counts_are_replaced_by_bytes(usage: str, count: str) -> None:
    """An upper bound: caps hold with endpoints that tell nothing, or nothing that can be."""
    body = '{"choices": [{"message": {"content": "é"}}, {"message": {"content": "ab"}}], "usage": '
    first, second = completions_of(f"{body}{usage.replace('%s', count)}}}".encode(), (), prompt_size=99)
    assert (first.prompt_tokens, first.completion_tokens, first.tokens_bounded) == (99, 4, True)
    assert (second.prompt_tokens, second.completion_tokens, second.tokens_bounded) == (0, 0, False)


@pytest.mark.parametrize(
    ("usage", "prompt", "completion", "bounded"),
    [
        ({"prompt_tokens": 63, "completion_tokens": 3}, 63, 3, False),
        ({"prompt_tokens": 62, "completion_tokens": 3}, 1_000, 3, True),
        ({"completion_tokens": 3}, 1_000, 3, True),
        ({"prompt_tokens": 63, "completion_tokens": 2}, 63, 48, True),
        ({"prompt_tokens": 63}, 63, 48, True),
        ({"prompt_tokens": 63, "total_tokens": 463}, 63, 400, True),
        ({"prompt_tokens": 1, "completion_tokens": 1}, 1_000, 48, True),
        ({"prompt_tokens": 63, "completion_tokens": 1, "total_tokens": 66}, 63, 3, False),
    ],
)
def test_prompt_and_reply_are_counted_apart_and_never_below_what_their_bytes_can_be(
    usage: dict[str, int], prompt: int, completion: int, *, bounded: bool
) -> None:
    """A thousand bytes of prompt are 63 tokens at least, and 48 of reply and reasoning three: 16 bytes each."""
    reply = {"content": "b" * 30, "reasoning": "c" * 18}
    body = orjson.dumps({"choices": [{"message": reply}], "usage": usage})
    [said] = completions_of(body, (), prompt_size=1_000)
    assert (said.prompt_tokens, said.completion_tokens, said.tokens_bounded) == (prompt, completion, bounded)


@pytest.mark.parametrize("unusual", ['"\\ud800 half"', '"x", "logprobs": NaN', '"x", "created": 1e999'])
def test_an_answer_that_only_python_would_write_is_an_answer(unusual: str) -> None:
    """Servers in Python write NaN, Infinity and halves of surrogate pairs, which JSON does not know: it was paid."""
    usage = '"usage": {"prompt_tokens": 9, "completion_tokens": 2}'
    body = f'{{"choices": [{{"message": {{"content": {unusual}}}}}], {usage}}}'
    [said] = completions_of(body.encode(), (), prompt_size=99)
    assert said.text in ("x", "? half")
    assert (said.prompt_tokens, said.completion_tokens, said.tokens_bounded) == (9, 2, False)


LISTED = Sampling(temperature=1, top_p=1, max_tokens=64, logprobs=True)


def listed(*tokens: object) -> dict[str, object]:
    """`logprobs` of a choice with these tokens, as (text, number) or as they are."""
    return {"content": [{"token": each[0], "logprob": each[1]} if isinstance(each, tuple) else each for each in tokens]}


@pytest.mark.parametrize(
    ("text", "logprobs", "read"),
    [
        ("the Seine", listed(("the", -0.1), (" Seine", -0.2)), (("the", -0.1), (" Seine", -0.2))),
        ("the", listed(("the", 0), (" </", -1), ("a>", -2)), (("the", 0.0),)),  # and a stop string, which was dropped
        ("the", listed(("\n", -1), ("the ", -2)), (("the", -2.0),)),  # and space around it
        ("the", listed(("the", -1), ("", -5)), (("the", -1.0),)),
        (
            "\u6771",  # whose bytes are two tokens
            listed(
                {"token": "?", "bytes": [0xE6, 0x9D], "logprob": -1}, {"token": "?", "bytes": [0xB1], "logprob": -2}
            ),
            (("\u6771", -3.0),),
        ),
        ("the", listed(("the", -1e308)), (("the", -9999.0),)),
        ("the", None, None),
        ("the", listed(), None),
        ("the", listed(("thy", -1)), None),
        ("the", listed(("the", 0.5)), None),
        ("the", listed(("the", True)), None),
        ("the", listed("the"), None),
        ("the", listed({"token": "the", "bytes": [400], "logprob": -1}), None),
        ("", listed(("the", -1)), ()),
    ],
)
def test_log_probabilities_are_those_of_the_text_or_there_are_none(text: str, logprobs: object, read: object) -> None:
    """Whatever an endpoint lists; only where they were asked for."""
    body = orjson.dumps({"choices": [{"message": {"content": text}, "logprobs": logprobs}]})
    assert completions_of(body, (), prompt_size=9, asked=LISTED)[0].logprobs == read
    assert completions_of(body, (), prompt_size=9)[0].logprobs is None


@given(before=st.text(), pieces=st.lists(st.text()), after=st.text(), apart=st.booleans())
def test_log_probabilities_are_of_exactly_the_text(before: str, pieces: list[str], after: str, *, apart: bool) -> None:
    """However it was cut into tokens, and whatever stands before and after it."""
    text, all_said = "".join(pieces), [before, *pieces, after]
    message = {"content": text, "reasoning": before if apart else ""}
    choice = {"message": message, "logprobs": listed(*((each, -0.5) for each in all_said))}
    [reply] = completions_of(orjson.dumps({"choices": [choice]}), (), prompt_size=9, asked=LISTED)
    if any(all_said) and reply.text == text:
        assert "".join(each.text for each in reply.logprobs or ()) == text


def test_log_probabilities_that_json_does_not_know_or_of_a_secret_are_none() -> None:
    """A number that is none, and text that is redacted."""
    for token, number in (("the", "-Infinity"), ("the", "NaN"), ("sk-mine-0123456789abcdef", "-1")):
        tokens = f'[{{"token": "{token}", "logprob": {number}}}]'
        body = f'{{"choices": [{{"message": {{"content": "{token}"}}, "logprobs": {{"content": {tokens}}}}}]}}'
        [reply] = completions_of(body.encode(), ["sk-mine-0123456789abcdef"], prompt_size=9, asked=LISTED)
        assert reply.logprobs is None


def test_log_probabilities_of_reasoning_beside_the_text_are_passed_over() -> None:
    """Where the reasoning holds the text too, the last place counts."""
    message = {"content": "Paris", "reasoning": "Paris?"}
    logprobs = listed(("Paris", -3), ("?", -1), ("</think>", -1), ("Paris", -0.5))
    body = orjson.dumps({"choices": [{"message": message, "logprobs": logprobs}]})
    assert completions_of(body, (), prompt_size=9, asked=LISTED)[0].logprobs == (("Paris", -0.5),)


@pytest.mark.parametrize(
    "body",
    [
        b"<html>your key sk-mine-0123456789abcdef",
        b'{"choices": "sk-mine-0123456789abcdef"}',
        b'{"choices": ["sk-mine-0123456789abcdef"]}',
    ],
)
@pytest.mark.parametrize("before", [0, 150, 180, 190, 10**6])
def test_a_message_about_a_bad_body_is_short_and_holds_no_part_of_a_key(body: bytes, before: int) -> None:
    """Wherever the message is cut."""
    with pytest.raises(BadAnswerError) as raised:
        completions_of(b" " * before + body, ["sk-mine-0123456789abcdef"], prompt_size=0)
    assert "sk-" not in str(raised.value)
    assert len(str(raised.value)) < 500


def usage_of(completion: int, *, reasoning: int | None = None, **more: object) -> dict[str, Any]:
    details = {} if reasoning is None else {"completion_tokens_details": {"reasoning_tokens": reasoning}}
    return {"prompt_tokens": 9, "completion_tokens": completion} | details | more


@pytest.mark.parametrize(
    ("usage", "billed", "reasoning", "cached"),
    [
        (usage_of(400, reasoning=384, total_tokens=409), 400, 384, 0),
        (usage_of(2, reasoning=317, total_tokens=328), 319, 317, 0),  # xAI: https://github.com/vercel/ai/pull/12425
        (usage_of(2, total_tokens=71), 62, 60, 0),  # Gemini says no more than this
        (usage_of(5, total_tokens=3, completion_tokens_details=None), 5, 0, 0),
        (usage_of(5, reasoning=80), 85, 80, 0),  # more than the whole cannot be a part of it
        (usage_of(1, prompt_tokens_details={"cached_tokens": 400}), 1, 0, 9),  # else it would have a negative price
    ],
)
def test_reasoning_is_billed_wherever_an_endpoint_counts_it(
    usage: object, billed: int, reasoning: int, cached: int
) -> None:
    """Some leave it out of completion_tokens, and only their total tells. No more tokens are cached than sent."""
    body = orjson.dumps({"choices": [{"message": {"content": "a"}}], "usage": usage})
    [said] = completions_of(body, (), prompt_size=99)
    assert (said.completion_tokens, said.reasoning_tokens, said.cached_tokens) == (billed, reasoning, cached)


def test_whole_choices_before_a_broken_one_are_kept() -> None:
    """They are paid for; the missing draws are asked for singly."""
    choices = [{"message": {"content": "a"}}, {"message": {"content": "b"}, "finish_reason": "abort"}, {"message": 7}]
    [completion] = completions_of(orjson.dumps({"choices": choices}), (), prompt_size=0)
    assert completion.text == "a"


OPEN = "So the next query is <query>one two"
LIMITS: dict[str, tuple[list[str], dict[str, Any], bool]] = {
    "at the limit": ([OPEN], usage_of(64), True),
    "below the limit": ([OPEN], usage_of(63), False),
    "all choices at the limit": ([OPEN, OPEN, "a"], usage_of(192), True),
    "reasoning within the limit": ([OPEN], usage_of(64, reasoning=50), True),
    "reasoning that is not limited": ([OPEN], usage_of(80, reasoning=70), False),
    "reasoning of several that is not told": (["Paris is a city."] * 3, usage_of(190), False),
    "bytes": (["é" * 40], usage_of(80), False),
    "too few for the bytes": (["a" * 1025], usage_of(64), False),
    "no usage": ([OPEN * 9], {}, False),
}


@pytest.mark.parametrize("case", LIMITS)
def test_a_reply_with_all_its_tokens_was_cut(case: str) -> None:
    """Whatever the reason says, where tokens are counted; a count of something else cuts no whole reply."""
    texts, usage, cut = LIMITS[case]
    choices = [{"message": {"content": each}, "finish_reason": "stop"} for each in texts]
    replies = completions_of(orjson.dumps({"choices": choices, "usage": usage}), (), prompt_size=9, asked=LISTED)
    assert [each.at_limit for each in replies] == [cut] * len(texts)
    assert {ending_of(each) for each in replies} == {"cut" if cut else "stopped"}


def test_of_several_replies_those_are_cut_that_have_the_limit_by_their_length() -> None:
    """Endpoints tell the tokens of all choices together: 64, 64 and 10 are 138; 20, 64 and 20 are 104."""
    for texts, tokens in ((["a" * 256, "b" * 250, "c" * 40], 138), (["a" * 80, "b" * 256, "c" * 80], 104)):
        choices = [{"message": {"content": each}, "finish_reason": "stop"} for each in texts]
        body = orjson.dumps({"choices": choices, "usage": {"completion_tokens": tokens}})
        replies = completions_of(body, (), prompt_size=9, asked=LISTED)
        assert [each.at_limit for each in replies] == [len(each) > 200 for each in texts]


def message(content: Any, **more: Any) -> dict[str, Any]:
    return {"message": {"content": content} | more, "finish_reason": "stop"}


def said(text: str, reason: str = "stop", **more: Any) -> Completion:
    return Completion(text=text, finish_reason=reason, **more)


REPLIES: dict[str, tuple[dict[str, Any], Completion]] = {
    "a reason as it is": (message("a") | {"finish_reason": "EndTurn"}, said("a", "EndTurn")),
    "no reason": ({"message": {"content": "a"}}, said("a", "")),
    "a number": (message("a") | {"finish_reason": 1}, said("a", "")),
    "an object": (message("a") | {"finish_reason": {"type": "length"}}, said("a", "length")),
    "the provider's": (
        {"message": {"content": "a"}, "finish_reason": None, "native_finish_reason": "MAX_TOKENS"},
        said("a", "MAX_TOKENS"),
    ),
    "a long one": (message("a") | {"finish_reason": "x" * 10**6}, said("a", "x" * 64)),
    "a refusal": (message(None, refusal="I will not."), said("", refusal="I will not.")),
    "a refusal as a part": (message([{"type": "refusal", "refusal": "No."}]), said("", refusal="No.")),
    "parts": (message([{"type": "text", "text": "a"}, {"text": "b"}]), said("ab")),
    "parts of reasoning": (
        message(
            [{"type": "thinking", "thinking": "hm"}, {"type": "reasoning", "text": "m"}, {"type": "text", "text": "b"}]
        ),
        said("b", reasoning="hmm"),
    ),
    "a part that is a thought": (message([{"thought": True, "text": "hm"}, {"text": "b"}]), said("b", reasoning="hm")),
    "DeepSeek's and vLLM's reasoning": (
        message("a", reasoning_content=None, reasoning="hm"),
        said("a", reasoning="hm"),
    ),
    "reasoning that is no text": (message("a", reasoning={"effort": "high"}), said("a")),
    "the provider's own cut": (message("a") | {"native_finish_reason": "MAX_TOKENS"}, said("a", "MAX_TOKENS")),
    "a stop string beside the reason": (message("a") | {"stop_reason": "</a>"}, said("a")),
    "a call": (
        message(None, tool_calls=[{"id": "1"}]) | {"finish_reason": "tool_calls"},
        said("", "tool_calls", called=True),
    ),
    "nothing, as it was withheld": ({"finish_reason": "content_filter: SAFETY"}, said("", "content_filter: SAFETY")),
    "null, as it was withheld": ({"message": None, "finish_reason": "RECITATION"}, said("", "RECITATION")),
}


@pytest.mark.parametrize("case", REPLIES)
def test_a_reply_is_kept_as_it_was_received(case: str) -> None:
    """Its reason, in whichever words; what is no word is none."""
    choice, reply = REPLIES[case]
    [found] = completions_of(orjson.dumps({"choices": [choice], "usage": {"completion_tokens": 9}}), (), prompt_size=0)
    assert found.model_copy(update={"completion_tokens": 0, "tokens_bounded": False}) == reply


def test_secrets_in_an_answer_are_cut_out() -> None:
    """Some servers repeat headers, in any part of a reply."""
    key = "sk-mine-0123456789abcdef"
    choice = message(f"your {key}!", refusal=f"no {key}", reasoning=f"is it {key}?")
    choice |= {"finish_reason": f"stopped by {key}"}
    [found] = completions_of(orjson.dumps({"choices": [choice]}), [key], prompt_size=0)
    assert found.text == "your [secret]!"
    assert key not in found.model_dump_json()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("{", "not JSON"),
        ("[]", "not a chat completion"),
        ('{"choices": []}', "not a chat completion"),
        ('{"choices": {}}', "not a chat completion"),
        ('{"choices": [7]}', "has no message"),
        ('{"choices": [{}]}', "has no message"),
        ('{"choices": [{"message": {"content": {}}}]}', "not text"),
        ('{"choices": [{"message": {"content": "a"}, "finish_reason": "Error"}]}', "cut a reply short"),
    ],
)
def test_what_is_no_chat_completion_is_said_to_be_none(body: str, says: str) -> None:
    """failures.jsonl shows its beginning. Half a reply would stay in the journal for ever."""
    with pytest.raises(BadAnswerError, match=says):
        completions_of(body.encode(), (), prompt_size=0)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
MESSAGES = st.fixed_dictionaries(
    {"message": JSON | st.fixed_dictionaries({"content": JSON}, optional={"reasoning_content": JSON})},
    optional={"finish_reason": JSON},
)
USAGES = JSON | st.fixed_dictionaries(
    {},
    optional={
        "prompt_tokens": JSON,
        "completion_tokens": JSON,
        "total_tokens": JSON,
        "completion_tokens_details": JSON | st.fixed_dictionaries({"reasoning_tokens": JSON}),
        "prompt_tokens_details": JSON | st.fixed_dictionaries({"cached_tokens": JSON}),
    },
)
BODIES = JSON | st.fixed_dictionaries(
    {"choices": JSON | st.lists(JSON | MESSAGES, max_size=3)}, optional={"usage": USAGES}
)


@given(BODIES)
def test_whatever_json_comes_is_an_answer_or_a_bad_one(body: object) -> None:
    """Nothing an endpoint says can raise anything else, nor make tokens negative."""
    try:
        completions = completions_of(orjson.dumps(body), (), prompt_size=0)
    except BadAnswerError:
        return
    assert completions
    first = completions[0]
    assert min(first.prompt_tokens, first.completion_tokens, first.reasoning_tokens, first.cached_tokens) >= 0
    assert first.reasoning_tokens <= first.completion_tokens


@pytest.mark.parametrize(
    ("error", "passes", "down", "locked", "cause"),
    [
        (APIConnectionError(request=ASKED), True, True, False, "connection"),
        (APITimeoutError(ASKED), True, True, False, "timeout"),
        (BadAnswerError("no JSON"), True, False, False, "bad_answer"),
        (AnswerTooLargeError("5 GB"), False, False, False, "too_large"),
        (refused(400), False, False, False, "http_400"),
        (refused(401), False, False, True, "http_401"),
        (refused(408), True, True, False, "http_408"),
        (refused(409), True, False, False, "http_409"),
        (refused(429), True, False, False, "http_429"),
        (refused(500), True, False, False, "http_500"),
        (refused(503), True, True, False, "http_503"),
        (refused(529), True, True, False, "http_529"),
    ],
    ids=lambda value: str(value) if isinstance(value, str) else "",
)
def test_errors_are_told_apart(error: Exception, *, passes: bool, down: bool, locked: bool, cause: str) -> None:
    """Which may pass, which say the endpoint is down, which end the run, and the word they are counted under."""
    assert (is_retryable(error), is_endpoint_failure(error), is_account_refused(error), error_cause(error)) == (
        passes,
        down,
        locked,
        cause,
    )
