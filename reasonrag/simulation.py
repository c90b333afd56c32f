"""The offline teacher behind HTTP: an OpenAI-compatible endpoint for tests, rehearsals and load measurements.

Answers are a pure function of messages, temperature, seed and choice index. Bad habits of real endpoints can be
switched on. Listens on loopback unless told otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import web
from pydantic import TypeAdapter, ValidationError

from preference import Message
from preference.records import first_error
from reasonrag import offline
from reasonrag.parsing import TURN_TAGS

_MESSAGES = TypeAdapter(list[Message])
_CLOSING_TAGS = tuple(f"</{tag}>" for tags in TURN_TAGS.values() for tag in tags)


@dataclass(frozen=True)
class Habits:
    """How the endpoint behaves.

    latency_s: seconds every answer takes. ignore_n: gives one choice whatever is asked. ignore_stop: replies run on
    past the stop string. fail_every: every so-manieth request is answered with status 503; 0 never. api_key: the
    only key that is let in; None lets everybody in.
    """

    latency_s: float = 0.0
    ignore_n: bool = False
    ignore_stop: bool = False
    fail_every: int = 0
    api_key: str | None = None


@dataclass
class Traffic:
    """What the endpoint has seen; `most_in_flight`: the largest number of requests open at once."""

    requests: int = 0
    failed: int = 0
    in_flight: int = 0
    most_in_flight: int = 0


_HABITS = web.AppKey("habits", Habits)
TRAFFIC = web.AppKey("traffic", Traffic)


def make_app(habits: Habits) -> web.Application:
    """The endpoint: GET /v1/models and POST /v1/chat/completions."""
    app = web.Application(client_max_size=8 * 1024 * 1024)
    app[_HABITS] = habits
    app[TRAFFIC] = Traffic()
    app.router.add_get("/v1/models", _models)
    app.router.add_post("/v1/chat/completions", _chat)
    return app


@asynccontextmanager
async def serving(habits: Habits, *, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[tuple[str, Traffic]]:
    """The running endpoint's base URL and traffic. Port 0 takes a free one."""
    app = make_app(habits)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, backlog=1024).start()
        bound_host, bound_port = runner.addresses[0][:2]
        shown_host = f"[{bound_host}]" if ":" in bound_host else bound_host
        yield f"http://{shown_host}:{bound_port}/v1", app[TRAFFIC]
    finally:
        await runner.cleanup()


async def serve_forever(habits: Habits, *, host: str, port: int, say: Any) -> None:
    """Serve until cancelled; `say` is told the base URL once it listens."""
    async with serving(habits, host=host, port=port) as (base_url, _):
        say(base_url)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


async def _models(request: web.Request) -> web.Response:
    refusal = _refusal(request)
    return refusal or _json({"object": "list", "data": [{"id": offline.NAME, "object": "model"}]})


async def _chat(request: web.Request) -> web.Response:
    habits, traffic = request.app[_HABITS], request.app[TRAFFIC]
    if refusal := _refusal(request):
        return refusal
    traffic.requests += 1
    traffic.in_flight += 1
    traffic.most_in_flight = max(traffic.most_in_flight, traffic.in_flight)
    try:
        if habits.latency_s:
            await asyncio.sleep(habits.latency_s)
        if habits.fail_every and traffic.requests % habits.fail_every == 0:
            traffic.failed += 1
            return _error(503, "simulated overload", "overloaded")
        return _answer(await request.read(), habits)
    finally:
        traffic.in_flight -= 1


def _answer(body: bytes, habits: Habits) -> web.Response:
    try:
        asked = orjson.loads(body)
        messages = _MESSAGES.validate_python(asked["messages"])
        temperature, seed = float(asked.get("temperature", 1)), int(asked.get("seed") or 0)
        count = 1 if habits.ignore_n else int(asked.get("n") or 1)
        stop = (
            []
            if habits.ignore_stop
            else [asked["stop"]]
            if isinstance(asked.get("stop"), str)
            else list(asked.get("stop") or [])
        )
    except ValidationError as error:
        return _error(400, first_error(error), "invalid_request")
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        return _error(400, f"not a chat completion request: {error!r}", "invalid_request")
    replies = [offline.reply(messages, temperature=temperature, seed=seed, choice=choice) for choice in range(count)]
    prompt_tokens = sum(offline.estimate_tokens(message.content) for message in messages)
    completion_tokens = sum(map(offline.estimate_tokens, replies))
    shown = [_run_on(each) if habits.ignore_stop else _cut(each, stop) for each in replies]
    return _json(
        {
            "object": "chat.completion",
            "model": asked.get("model"),
            "choices": [
                {"index": i, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
                for i, text in enumerate(shown)
            ],
            "usage": {
                "prompt_tokens": prompt_tokens,
                "completion_tokens": completion_tokens,
                "total_tokens": prompt_tokens + completion_tokens,
            },
        }
    )


def _cut(text: str, stop: list[str]) -> str:
    """The text before the first stop string, which is dropped as endpoints do."""
    found = [position for position in map(text.find, stop) if position >= 0]
    return text[: min(found)] if found else text


def _run_on(text: str) -> str:
    """A reply that does not know when to stop."""
    return f"{text}\n\nQuestion: And what else? So the answer is <answer>nothing of interest</answer>"


def _refusal(request: web.Request) -> web.Response | None:
    key = request.app[_HABITS].api_key
    if key is None or request.headers.get("Authorization") == f"Bearer {key}":
        return None
    return _error(401, "Incorrect API key provided", "invalid_api_key")


def _error(status: int, message: str, code: str) -> web.Response:
    return _json({"error": {"message": message, "code": code}}, status=status)


def _json(content: dict[str, Any], *, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(content), status=status, content_type="application/json")
