"""The offline teacher behind HTTP: an OpenAI-compatible endpoint for tests, rehearsals and load measurements, with
configurable faults and stand-ins for the endpoints of today.

Answers are a pure function of messages, temperature, seed and choice index. Behaviour, profile and faults decide
whether, when, in which form and how completely an answer arrives, never what a complete one says. Where a profile takes
no seed, it is the number of times that the same request came before: a request never says the same twice, and all its
answers together are the same in any order. Besides the API there is `GET /stats`. Listens on loopback by default.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import math
import re
import socket
import struct
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

import orjson
from aiohttp import web
from pydantic import ConfigDict, model_validator

from reasonrag.llm import offline
from reasonrag.llm.chat import estimate_tokens
from reasonrag.llm.hermes import SIGNATURE, with_calls
from reasonrag.serving.openai_api import MOST_BODY_BYTES, ChatCompletionRequest, as_json, completion, error_answer
from reasonrag.web.server import listening, read_body
from tests.endpoints.behaviour import FAULTS, EndpointBehaviour
from tests.endpoints.profiles import Refusal, Reply

BURST_S = 5.0
"""Burst capacity of a rate limit, in seconds of its rate."""
RETRY_AFTER_S = 0.1
"""Retry-After of the fault 429-retry-after."""
RUN_ON = "\n\nQuestion: And what else? So the answer is <answer>nothing of interest</answer>"
"""Behind the stop string, where it is ignored."""


@dataclass
class Traffic:
    """Counters of the endpoint.

    requests: chat requests with the right key, or while down. refused: those answered with 429. failed: those
        that got no complete answer for another reason on the endpoint's side. faults: requests by the fault they met.
    in_flight, most_in_flight: requests open now, and the largest number that was open at once.
    delivered: complete answers by request, see `request_identity`; complete means that every byte was handed to the
        network.
    prompt_tokens, completion_tokens: of the delivered answers.
    down: while True every request to /v1 is answered with 503; may be set at any time.
    """

    requests: int = 0
    failed: int = 0
    refused: int = 0
    in_flight: int = 0
    most_in_flight: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    delivered: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    down: bool = False

    def stats(self) -> dict[str, Any]:
        """The counters as `GET /stats` shows them; `repeated`: answers delivered again to the same request."""
        answers = self.delivered.total()
        delivered = {"answers": answers, "repeated": answers - len(self.delivered)}
        return {**vars(self), "delivered": delivered}


# -- serving ---------------------------------------------------------------------------------------------------


@asynccontextmanager
async def serving(behaviour: EndpointBehaviour) -> AsyncIterator[tuple[str, Traffic]]:
    """The running endpoint's base URL and traffic."""
    app = make_app(behaviour)
    async with listening(app) as address:
        yield address + address_path(behaviour), app[_ENDPOINT].traffic


def address_path(behaviour: EndpointBehaviour) -> str:
    """What follows the host in the base URL."""
    return behaviour.stand_in.path


def make_app(behaviour: EndpointBehaviour) -> web.Application:
    """The endpoint: GET models, POST chat/completions, and GET /stats."""
    app = web.Application(client_max_size=MOST_BODY_BYTES)
    app[_ENDPOINT] = endpoint = _SimulatedEndpoint(behaviour)
    app.router.add_get(f"{behaviour.stand_in.path}/models", _models)
    app.router.add_post(f"{behaviour.stand_in.path}/chat/completions", _chat)
    app.router.add_get("/stats", _stats)
    if endpoint.allowances:
        app.on_response_prepare.append(_show_limits)
    return app


class _SimulatedEndpoint:
    """EndpointBehaviour, and everything that changes while they are lived by."""

    def __init__(self, behaviour: EndpointBehaviour) -> None:
        self.behaviour, self.profile = behaviour, behaviour.stand_in
        self.traffic = Traffic()
        limits = {"requests": behaviour.rpm, "tokens": behaviour.tpm}
        self.allowances = {kind: _Allowance(limit) for kind, limit in limits.items() if limit}
        self._passing = _intervals(behaviour.faults, FAULTS)
        self._canned: dict[str, list[str]] = {}
        self._came: Counter[str] = Counter()
        """How often a request without a seed came; only where a profile is set."""

    def as_treated(self, asked: _SimulatedRequest) -> _SimulatedRequest:
        """The request without what the profile ignores, and with a seed of its own."""
        if self.behaviour.profile is None:
            return asked
        defaults = {name: each.default for name, each in type(asked).model_fields.items()}
        ignored = {name: defaults[name] for name in self.profile.ignores & defaults.keys()}
        asked = asked.model_copy(update=ignored)
        if asked.seed is not None:
            return asked
        came = asked.content_hash()
        self._came[came] += 1
        return asked.model_copy(update={"seed": self._came[came] - 1})

    def fault(self, asked: _SimulatedRequest, number: int) -> str | None:
        lot = _seeded_uniform(self.behaviour.fault_seed, number)
        drawn = next((kind for kind, end in self._passing.items() if lot < end), None)
        return None if drawn == "no-capacity" and asked.sent.get("service_tier") != "flex" else drawn

    def admit(self, asked: _SimulatedRequest) -> web.Response | None:
        """Charge a request to the rate limits, or refuse it with 429."""
        now, wanted = time.monotonic(), {"requests": 1, "tokens": asked.prompt_tokens}
        for kind, allowance in self.allowances.items():
            if wait := allowance.wait(wanted[kind], now):
                return _too_many(
                    f"Rate limit reached for {kind} per min: Limit {allowance.per_minute}. "
                    f"Please try again in {_up_to_milliseconds(wait):g}s.",
                    retry_after=wait,
                    kind=kind,
                )
        for kind, allowance in self.allowances.items():
            allowance.take(wanted[kind], now)
        return None

    def replies(self, asked: _SimulatedRequest) -> list[str]:
        """All choices for a request, complete."""
        if not self.behaviour.canned:
            return self._generated(asked)
        if asked.identity not in self._canned:
            self._canned[asked.identity] = self._generated(asked)
        return self._canned[asked.identity]

    def _generated(self, asked: _SimulatedRequest) -> list[str]:
        count = 1 if self.behaviour.ignore_n else asked.n
        return [
            offline.reply(asked.messages, temperature=asked.temperature, seed=asked.seed or 0, choice=choice)
            for choice in range(count)
        ]

    def note_delivery(self, asked: _SimulatedRequest, usage: Mapping[str, int]) -> None:
        self.traffic.delivered[asked.identity] += 1
        self.traffic.prompt_tokens += usage["prompt_tokens"]
        self.traffic.completion_tokens += usage["total_tokens"] - usage["prompt_tokens"]


_ENDPOINT = web.AppKey("endpoint", _SimulatedEndpoint)


# -- requests --------------------------------------------------------------------------------------------------


class _SimulatedRequest(ChatCompletionRequest):
    model_config = ConfigDict(extra="allow")
    tools: Any = None

    @model_validator(mode="before")
    @classmethod
    def _rendered(cls, said: Any) -> Any:
        """With native tools and calls as text in the turns, as a chat template writes them."""
        if not (isinstance(said, dict) and said.get("tools")):
            return said
        try:
            return said | {"messages": [_in_text(each) for each in said["messages"]]}
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"messages cannot be rendered with tools: {error!r}") from error

    @cached_property
    def content(self) -> str:
        """Hash of everything that decides a choice's text, i.e. all but n and stop."""
        return self.content_hash()

    def content_hash(self) -> str:
        """The same, not kept."""
        decisive = [[(each.role, each.content) for each in self.messages], self.temperature, self.seed or 0]
        return hashlib.sha256(orjson.dumps(decisive)).hexdigest()

    @cached_property
    def sent(self) -> dict[str, Any]:
        """What the client sent and did not leave at null."""
        said = {name: getattr(self, name) for name in self.model_fields_set}
        return {name: value for name, value in said.items() if value not in (None, ())}

    @property
    def identity(self) -> str:
        return f"{self.content}-{self.n}"

    @property
    def prompt_tokens(self) -> int:
        return sum(estimate_tokens(message.content) for message in self.messages)


def _in_text(turn: dict[str, Any]) -> dict[str, str]:
    role, text = turn["role"], with_calls(turn.get("content") or "", turn.get("tool_calls"))
    if role == "tool":
        return {"role": "user", "content": f"<tool_response>\n{text}\n</tool_response>"}
    return {"role": role, "content": text + SIGNATURE if role == "system" else text}


async def _models(request: web.Request) -> web.Response:
    return _closed(request) or as_json({"object": "list", "data": [{"id": offline.NAME, "object": "model"}]})


async def _chat(request: web.Request) -> web.StreamResponse:
    traffic = request.app[_ENDPOINT].traffic
    if closed := _closed(request):
        traffic.requests += traffic.down
        traffic.failed += traffic.down
        return closed
    traffic.requests += 1
    traffic.in_flight += 1
    traffic.most_in_flight = max(traffic.most_in_flight, traffic.in_flight)
    try:
        return await _serve(request, number=traffic.requests)
    finally:
        traffic.in_flight -= 1


async def _serve(request: web.Request, *, number: int) -> web.StreamResponse:
    """The answer to a chat request, or its fault. Raises CancelledError when the client disconnects."""
    endpoint = request.app[_ENDPOINT]
    behaviour, traffic = endpoint.behaviour, endpoint.traffic
    try:
        asked = _SimulatedRequest.read(await read_body(request))
    except ValueError as error:
        return error_answer(400, str(error), "invalid_request")
    if unsupported := endpoint.profile.refusal(asked.sent):
        return _refused(unsupported)
    if refusal := endpoint.admit(asked):
        traffic.refused += 1
        return refusal
    asked = endpoint.as_treated(asked)
    fault = endpoint.fault(asked, number)
    if behaviour.latency:
        await asyncio.sleep(behaviour.latency)
    if fault:
        traffic.faults[fault] += 1
    if fault not in (None, "slow-first-byte"):
        return await _misbehave(request, asked, fault, number)
    if fault:
        await asyncio.sleep(behaviour.slow)
    return await _deliver(request, asked)


async def _stats(request: web.Request) -> web.Response:
    return as_json(request.app[_ENDPOINT].traffic.stats())


def _closed(request: web.Request) -> web.Response | None:
    """The refusal of a request to the API while it is down or without the right key; else None."""
    endpoint = request.app[_ENDPOINT]
    if endpoint.traffic.down:
        return error_answer(503, "The server is down", "service_unavailable")
    refusal = endpoint.profile.denial(request.headers, endpoint.behaviour.api_key)
    return _refused(refusal) if refusal else None


def _refused(refusal: Refusal) -> web.Response:
    return as_json(refusal.body, status=refusal.status)


# -- answers ---------------------------------------------------------------------------------------------------


async def _deliver(request: web.Request, asked: _SimulatedRequest) -> web.StreamResponse:
    """Send the complete answer here, so that it counts as delivered only once it is sent."""
    endpoint = request.app[_ENDPOINT]
    answer = _answer(endpoint, asked)
    response = as_json(answer)
    with contextlib.suppress(ConnectionError):
        await response.prepare(request)
        await response.write_eof()
        endpoint.note_delivery(asked, answer["usage"])
    return response


def _answer(endpoint: _SimulatedEndpoint, asked: _SimulatedRequest) -> dict[str, Any]:
    """The chat completion; its completion tokens are charged to the limit."""
    replies = [_reply(endpoint, asked, text) for text in endpoint.replies(asked)]
    completion_tokens = sum(each.tokens for each in replies)
    if "tokens" in endpoint.allowances:
        endpoint.allowances["tokens"].take(completion_tokens, time.monotonic())
    choices = [(each.content, each.finish_reason) for each in replies]
    said = (each.reasoning + (each.content or "") for each in replies if asked.logprobs)  # all, as vLLM lists it
    body = completion(
        asked.model,
        choices,
        prompt_tokens=asked.prompt_tokens,
        completion_tokens=completion_tokens,
        logprobs=[offline.tokens_of(asked.messages, each) for each in said],
    )
    endpoint.profile.add_reasoning(body, replies)
    for choice in body["choices"] if asked.tools else ():
        _read_call(choice)
    return body


_CALL = re.compile(r"(.*?)\n?<tool_call>\n(.*?)\n(</tool_call>|$)", re.DOTALL)


def _read_call(choice: dict[str, Any]) -> None:
    """The call in a reply's text becomes a native one, as a server's parser of calls has it."""
    if found := _CALL.match(choice["message"]["content"] or ""):
        said = orjson.loads(found[2])
        function = {"name": said["name"], "arguments": orjson.dumps(said["arguments"]).decode()}
        calls = [{"id": "call_0", "type": "function", "function": function}]
        choice["message"] |= {"content": found[1] or None, "tool_calls": calls}
        choice["finish_reason"] = "tool_calls"


def _reply(endpoint: _SimulatedEndpoint, asked: _SimulatedRequest, text: str) -> Reply:
    """What the client receives of a complete reply. What one that runs on adds is not billed, so that usage is that of
    a good endpoint."""
    ignored = endpoint.behaviour.ignore_stop
    stop = () if ignored else asked.stop
    reply = endpoint.profile.reply(text, asked.sent, stop=stop, limit=asked.token_limit)
    runs_on = ignored and reply.finish_reason == "stop"
    return replace(reply, content=f"{reply.content or ''}{RUN_ON}") if runs_on else reply


def _too_many(message: str, *, retry_after: float | None, kind: str = "requests") -> web.Response:
    """Status 429. retry_after: seconds; None: no such header."""
    error = {"message": message, "type": kind, "param": None, "code": "rate_limit_exceeded"}
    response = as_json({"error": error}, status=429)
    if retry_after is not None:
        response.headers["Retry-After"] = f"{_up_to_milliseconds(retry_after):g}"
    return response


# -- faults ----------------------------------------------------------------------------------------------------


def _intervals(faults: Mapping[str, float], kinds: Iterable[str]) -> dict[str, float]:
    """Each of the kinds with the upper end of its share of [0, 1)."""
    shares = {kind: faults[kind] for kind in kinds if kind in faults}
    return dict(zip(shares, accumulate(shares.values()), strict=True))


def _seeded_uniform(seed: int, drawn_by: int) -> float:
    """A number in [0, 1) that depends only on the arguments."""
    digest = hashlib.blake2b(f"{seed}:{drawn_by}".encode(), digest_size=6).digest()
    return int.from_bytes(digest) / 2**48


async def _misbehave(
    request: web.Request, asked: _SimulatedRequest, fault: str | None, number: int
) -> web.StreamResponse:
    """Send a fault instead of a complete answer."""
    endpoint = request.app[_ENDPOINT]
    if fault in ("429", "429-retry-after"):
        endpoint.traffic.refused += 1
        return _too_many("Too many requests", retry_after=RETRY_AFTER_S if fault == "429-retry-after" else None)
    if fault == "no-capacity":
        endpoint.traffic.refused += 1
        return error_answer(429, "Resource unavailable", "resource_unavailable")
    endpoint.traffic.failed += 1
    match fault:
        case "500":
            return error_answer(500, f"The server had an error (request id req_{number:08x})", "server_error")
        case "invalid-json":
            return web.Response(body=b'{"choices": [{"index": 0, "mess', content_type="application/json")
        case "empty-choices":
            return as_json(_answer(endpoint, asked) | {"choices": []})
        case "half-body":
            return await _send_half(request, orjson.dumps(_answer(endpoint, asked)))
        case "hang":
            await asyncio.sleep(endpoint.behaviour.hang)
    return _hang_up(request, reset=fault == "reset")


async def _send_half(request: web.Request, body: bytes) -> web.StreamResponse:
    """Send headers for the whole body and half of it, then close the connection."""
    response = web.StreamResponse()
    response.content_type, response.content_length = "application/json", len(body)
    with contextlib.suppress(ConnectionError):
        await response.prepare(request)
        await response.write(body[: len(body) // 2])
    if request.transport:
        request.transport.close()
    return response


def _hang_up(request: web.Request, *, reset: bool) -> web.Response:
    """Close the connection, gracefully or with a TCP reset. The returned response is never sent."""
    if request.transport and reset:
        linger = struct.pack("ii", 1, 0)  # linger on, 0 seconds: makes close() send a reset
        request.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        request.transport.abort()
    elif request.transport:
        request.transport.close()
    return web.Response()


# -- rate limits -----------------------------------------------------------------------------------------------


class _Allowance:
    """A token bucket that refills continuously up to BURST_S seconds' worth, at least 1; it may go into debt."""

    def __init__(self, per_minute: int) -> None:
        self.per_minute = per_minute
        self._per_second = per_minute / 60
        self._capacity = max(1.0, self._per_second * BURST_S)
        self._level, self._filled_at = self._capacity, time.monotonic()

    def wait(self, amount: float, now: float) -> float:
        """Seconds until `amount` may be taken; an amount above the capacity may be taken from a full bucket."""
        missing = round(min(amount, self._capacity) - self._fill(now), ndigits=6)
        return max(0.0, missing / self._per_second)

    def take(self, amount: float, now: float) -> None:
        self._level = self._fill(now) - amount

    def _fill(self, now: float) -> float:
        self._level = min(self._capacity, self._level + self._per_second * (now - self._filled_at))
        self._filled_at = now
        return self._level


async def _show_limits(request: web.Request, response: web.StreamResponse) -> None:
    """OpenAI's headers of the rate limits."""
    for kind, allowance in request.app[_ENDPOINT].allowances.items():
        response.headers[f"x-ratelimit-limit-{kind}"] = str(allowance.per_minute)


def _up_to_milliseconds(seconds: float) -> float:
    """Rounded up, so that waiting this long is enough."""
    return math.ceil(1000 * seconds) / 1000
