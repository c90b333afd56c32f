"""The HTTP client of one OpenAI-compatible address: requests, answers and errors.

Decides how bytes become completions or errors, which are the openai package's; `trouble` says what they mean. The
transport is aiohttp: that package's client takes nearly three times the CPU for the same bytes
(benchmarks/RESULTS.md). Retries nothing and learns nothing: `endpoint` does.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

import orjson

from preference.export.sanitize import plain_text
from reasonrag.errors import InputError
from reasonrag.llm.chat import MOST_BYTES_PER_TOKEN, Completion, Sampling
from reasonrag.llm.endpoint.answer_tokens import tokens_of, usage_of, with_limit
from reasonrag.llm.endpoint.endings import FILTERED, closes_a_tag, meaning_of
from reasonrag.llm.endpoint.error_objects import decoded, error_in, is_blocked, leaves, status_of
from reasonrag.llm.hermes import with_calls
from reasonrag.redaction import API_VERSION, excerpt, redact
from reasonrag.web.client import MOST_ERROR_BYTES, HttpClient, open_session, read_body

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession
    from openai import APIStatusError

LIST_S = 15.0  # for the list of models, without which a run can go on
_HEADERS = ("retry-after", "retry-after-ms", "x-request-id", "x-ratelimit-limit-requests", "x-ratelimit-limit-tokens")
"""Headers kept of an error response; others may hold anything."""
MOST_SAID, _MOST_REASON, _MOST_SHOWN = 1000, 64, 200
"""Characters kept of an error's message, which goes to the terminal and into files, and of a finish reason; and those
of an invalid body that messages show."""
MOST_ENVELOPE_BYTES = 4 * 1024 * 1024
"""For what `max_tokens` does not limit: the frame of an answer, and reasoning at some endpoints (256 Ki tokens)."""
MOST_TOKEN_BYTES = 6 * MOST_BYTES_PER_TOKEN
"""Bytes of a token in JSON, which may write a byte in 6 (`\\u0007`)."""
MOST_LOGPROB_BYTES = 512
"""Bytes of a token or alternative in `logprobs`: its text, its bytes as a list of numbers, and its probability."""
_REASONING = ("reasoning_content", "reasoning", "thinking", "reasoning_text")
"""Where servers put the reasoning of a message: DeepSeek, vLLM, SGLang and llama.cpp the first; OpenRouter and newer
vLLM (https://docs.vllm.ai/en/latest/features/reasoning_outputs) the second; Ollama the third. Also types of parts."""


class BadAnswerError(Exception):
    """A successful status whose body is not what was asked for."""


class AnswerTooLargeError(BadAnswerError):
    """A body longer than its request allows. The answer may be billed, so it is not requested again."""


class HttpAnswer(NamedTuple):
    """The unparsed body of an answer, and its headers (case-insensitive). The response that an APIStatusError holds."""

    content: bytes
    headers: Mapping[str, str]
    status_code: int = HTTPStatus.OK
    request: Any = None


@dataclass
class Connection(HttpClient):
    """An address, its API key, and the timeout of a request in seconds."""

    base_url: str
    key: str = field(repr=False)
    timeout: float

    def _open(self) -> ClientSession:
        headers = {"authorization": f"Bearer {self.key}", "content-type": "application/json"}
        if any(name == API_VERSION for name, _ in parse_qsl(urlsplit(self.base_url).query)):
            # Azure's dated addresses; its /openai/v1 takes the key as OpenAI does
            headers["api-key"] = self.key
        return open_session(self.base_url, headers, timeout=self.timeout, proxy=_proxy_for(self.base_url))

    async def post(self, body: Mapping[str, Any], path: str = "chat/completions") -> HttpAnswer:
        """One request. path: below the base URL; one that begins with a slash, below the address without its /v1.
        Raises openai's APIError, and AnswerTooLargeError."""
        most = most_bytes_of_answer(body)
        asked = self._session.post(_url(self.base_url, path), data=orjson.dumps(body), allow_redirects=False)
        answer = await _answered(asked, most)
        if len(answer.content) > most:
            raise AnswerTooLargeError(f"the body is longer than {most:,} bytes, the limit for this request")
        return answer

    async def listed_models(self) -> list[str]:
        """The models that the address lists; none if malformed. Raises openai's APIError, and BadAnswerError."""
        from aiohttp import ClientTimeout

        timeout, url = ClientTimeout(LIST_S), _url(self.base_url, "models")
        answer = await _answered(self._session.get(url, timeout=timeout, allow_redirects=False), MOST_ENVELOPE_BYTES)
        models = _decoded(answer.content, ()).get("data")
        ids = [each.get("id") for each in models if isinstance(each, dict)] if isinstance(models, list) else []
        return [each for each in ids if isinstance(each, str)]


async def _answered(asked: AbstractAsyncContextManager[ClientResponse], most: int) -> HttpAnswer:
    """An answer, whose body has more than `most` bytes only if it has to be refused. Raises openai's APIError."""
    try:
        async with asked as response:
            failed = response.status >= HTTPStatus.MULTIPLE_CHOICES
            most = MOST_ERROR_BYTES if failed else most
            answer = HttpAnswer(await read_body(response, most), response.headers)
    except Exception as failure:
        from aiohttp import ClientError
        from openai import APIConnectionError, APITimeoutError

        sent: Any = None  # of httpx in openai 2, of httpx2 in openai 3; the errors only keep it
        if isinstance(failure, TimeoutError):
            raise APITimeoutError(sent) from failure
        if isinstance(failure, ClientError | OSError | ValueError):  # ValueError: not HTTP
            raise APIConnectionError(message=str(failure), request=sent) from failure
        raise
    if failed and (error := error_of(answer._replace(content=answer.content[:most]), response.status)):
        raise error
    return answer


@lru_cache(maxsize=64)
def _url(base_url: str, path: str) -> str:
    address = urlsplit(base_url)
    base = address.path.rstrip("/")
    base = base.removesuffix("/v1") if path.startswith("/") else base
    return urlunsplit(address._replace(path=f"{base}/{path.lstrip('/')}", fragment=""))


def most_bytes_of_answer(body: Mapping[str, Any]) -> int:
    """Upper bound in bytes of the answer to a request, by its tokens in text and `logprobs`."""
    tokens = body.get("n", 1) * (body.get("max_completion_tokens") or body.get("max_tokens", 0))
    alternatives = body.get("top_logprobs") or 0
    listed = 1 + alternatives if body.get("logprobs") and isinstance(alternatives, int) else 0
    return int(MOST_ENVELOPE_BYTES + tokens * (MOST_TOKEN_BYTES + listed * MOST_LOGPROB_BYTES))


def _proxy_for(url: str) -> str | None:
    """The proxy by HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY; aiohttp itself would read them at every request."""
    parts, proxies = urlsplit(url), getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    if (scheme := urlsplit(proxy).scheme) not in ("http", "https"):
        raise InputError(
            f"the environment sets a {scheme} proxy for {parts.scheme}, which reasonrag cannot use; "
            "set HTTPS_PROXY to an HTTP proxy, or NO_PROXY for this address"
        )
    return proxy


def error_of(answer: HttpAnswer, status: int = HTTPStatus.OK) -> APIStatusError | None:
    """The error that an answer without a completion means; None for a success that says none."""
    from openai import APIStatusError

    said, failed = error_in(decoded(answer.content)), status >= HTTPStatus.MULTIPLE_CHOICES
    if said is None and not failed:
        return None
    message = said.get("message") or said.get("detail") if isinstance(said, dict) else said
    message = message if message and isinstance(message, str) else answer.content.decode("utf-8", "replace")
    message = excerpt(message, MOST_SAID)
    if failed and (moved_to := answer.headers.get("location")):
        message = f"moved to {moved_to}; give the address it moved to"
    meant = int(status_of(said, status if failed else None) or HTTPStatus.INTERNAL_SERVER_ERROR)
    shown = f"status {meant}" if meant == status else f"status {meant} by its code, sent with status {status}"
    headers = {name: value for name in _HEADERS if (value := answer.headers.get(name, "")).isascii() and value}
    kept: Any = HttpAnswer(answer.content[:MOST_ERROR_BYTES], headers, meant)
    return APIStatusError(f"{shown}: {message}", response=kept, body=said)


def _decoded(content: bytes, known_secrets: Sequence[str]) -> dict[str, Any]:
    """The object that a body is, as JSON or as what Python's encoder writes: NaN, Infinity, long numbers, lone
    surrogates; empty for JSON of another kind."""
    try:
        answer = orjson.loads(content)
    except orjson.JSONDecodeError:
        try:
            answer = json.loads(content, parse_int=float)
        except (ValueError, RecursionError):
            raise BadAnswerError(f"the body is not JSON: {_shown(content, known_secrets)}") from None
    return answer if isinstance(answer, dict) else {}


def clean(text: str) -> str:
    """A message without keys, which some endpoints echo, and without control characters, of bounded length."""
    return excerpt(plain_text(text.encode("utf-8", "replace").decode("utf-8")), MOST_SAID)


def _shown(content: bytes, known_secrets: Sequence[str]) -> str:
    """The beginning of a body, for a message."""
    return repr(excerpt(content.decode("utf-8", "replace"), _MOST_SHOWN, known_secrets))


def completions_of(
    content: bytes, known_secrets: Sequence[str], *, prompt_size: int, asked: Sampling | None = None, server: str = ""
) -> list[Completion]:
    """The choices of a body up to the first malformed one, with secrets removed; the first carries the request's usage.

    prompt_size: in bytes. server: see `Completion`. Raises BadAnswerError if there is no valid choice.
    """
    answer = _decoded(content, known_secrets)
    choices = answer.get("choices")
    if not isinstance(choices, list) or not choices:
        raise BadAnswerError(f"the body is not a chat completion: {_shown(content, known_secrets)}")
    replies: list[Completion] = []
    for choice in choices:
        try:
            reply = _reply(choice, known_secrets, native=bool(asked and asked.native_tools))
            tokens = tokens_of(choice, reply) if asked and asked.logprobs else None
            replies.append(reply.model_copy(update={"logprobs": tokens}) if tokens is not None else reply)
        except BadAnswerError as error:
            if not replies:
                raise BadAnswerError(f"{error}: {_shown(content, known_secrets)}") from error
            break
    failed = answer.get("error") and any(value for _, value in leaves(answer["error"]))
    if failed and not all(closes_a_tag(each.text) for each in replies):
        raise BadAnswerError(f"an error, and no whole reply: {_shown(content, known_secrets)}")
    reply_size = sum(len(each.text.encode()) + len(each.reasoning.encode()) for each in replies)
    bill = usage_of(answer.get("usage"), prompt_size=prompt_size, reply_size=reply_size) | {"server": server}
    if asked:
        replies = with_limit(answer.get("usage"), replies, asked.max_tokens, parts=len(choices))
    return [replies[0].model_copy(update=bill), *replies[1:]]


def score_of(content: bytes, known_secrets: Sequence[str], *, prompt_size: int) -> Completion:
    """The one number in an answer of `/pooling`, as the text of a completion, which has no tokens.

    prompt_size: as in `completions_of`. Raises BadAnswerError for any other body, and for a number that is not finite.
    """
    answer = _decoded(content, known_secrets)
    listed = answer.get("data")
    entry = listed[0] if isinstance(listed, list) and len(listed) == 1 else None
    numbers = entry.get("data") if isinstance(entry, dict) else None
    if not isinstance(numbers, list) or not all(isinstance(each, float | int) for each in numbers):
        raise BadAnswerError(f"the body holds no score: {_shown(content, known_secrets)}")
    if len(numbers) != 1 or not math.isfinite(numbers[0]):
        raise BadAnswerError(f"a critic gives one finite number, this model gave {str(numbers)[:_MOST_SHOWN]}")
    used = answer["usage"] if isinstance(answer.get("usage"), dict) else {}
    bill = usage_of(used | {"completion_tokens": 0}, prompt_size=prompt_size, reply_size=0)
    return Completion(text=repr(float(numbers[0])), finish_reason="stop").model_copy(update=bill)


def _reply(choice: object, known_secrets: Sequence[str], *, native: bool = False) -> Completion:
    """One choice as a completion without usage. native: whether tool calls become text. Raises BadAnswerError."""
    reason, message = _reason(choice, known_secrets), choice.get("message") if isinstance(choice, dict) else None
    meaning = meaning_of(reason)
    silent = meaning in ("stopped", "unknown") and not (isinstance(message, dict) and message.get("content"))
    if silent and is_blocked(choice):
        meaning, reason = "withheld", FILTERED
    message = {} if message is None and meaning in ("cut", "withheld", "refused", "too_long") else message
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise BadAnswerError("a choice has no message")
    if meaning == "broken_off" or choice.get("error"):
        raise BadAnswerError(f"the endpoint cut a reply short with finish_reason {reason!r}")
    said, refusal = message.get("content"), message.get("refusal")
    if isinstance(said, list):  # content parts, as newer servers send them
        parts = [part for part in said if isinstance(part, dict)]
        thought = [part for part in parts if part.get("type") in _REASONING or part.get("thought") is True]
        message = message | {"thinking": message.get("thinking") or _text_of(thought)}
        said = _text_of(part for part in parts if part not in thought)
        refusal = refusal or next((part["refusal"] for part in parts if part.get("refusal")), None)
    if not isinstance(said, str | None):
        raise BadAnswerError("the content of a reply is not text")
    reasoned = [text for name in _REASONING if isinstance(text := message.get(name), str) and text]
    said = with_calls(said or "", message.get("tool_calls")) if native else said
    return Completion(
        text=redact(said or "", known_secrets),
        finish_reason=reason,
        reasoning=redact(reasoned[0], known_secrets) if reasoned else "",
        refusal=redact(refusal, known_secrets) if isinstance(refusal, str) else "",
        called=bool(message.get("tool_calls") or message.get("function_call")),
        requests=0,
    )


def _text_of(parts: Iterable[Mapping[str, Any]]) -> str:
    """Of parts of a content. Those of reasoning may have their text under the name of their type."""
    found = (part.get(name) for part in parts for name in ("text", *_REASONING))
    return "".join(each for each in found if isinstance(each, str))


def _reason(choice: object, known_secrets: Sequence[str]) -> str:
    """The finish reason of a choice; empty if it gives none."""
    told = choice if isinstance(choice, dict) else {}
    given = (told.get(name) for name in ("finish_reason", "native_finish_reason", "stop_reason"))
    # SGLang: with what it stopped at; OpenRouter: the provider's own, too
    words = [each.get("type") if isinstance(each, dict) else each for each in given]
    said = [each for each in words if isinstance(each, str) and each]
    ended = [each for each in said[1:] if meaning_of(said[0]) == "stopped" and meaning_of(each) in ("cut", "withheld")]
    return excerpt([*ended, *said][0], _MOST_REASON, known_secrets) if said else ""
