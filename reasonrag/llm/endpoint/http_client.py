"""The HTTP client of one OpenAI-compatible address: requests, answers and errors.

Decides how bytes become completions or errors, and whether an error can be retried. The errors are the openai
package's, but the transport is aiohttp: that package's client takes nearly three times the CPU for the same bytes
(benchmarks/RESULTS.md). Retries nothing and learns nothing: `endpoint` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

import orjson

from reasonrag.errors import InputError
from reasonrag.llm.chat import Completion
from reasonrag.redaction import API_VERSION, excerpt, redact
from reasonrag.web import HttpClient, open_session

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession
    from openai import APIError, APIStatusError

_BROKEN_OFF = frozenset({"error", "abort", "aborted", "cancelled"})
"""Finish reasons of incomplete replies; other unknown ones count as `stop`."""
_DOWN_STATUSES = frozenset({408, 502, 503, 504, 529})
"""Statuses of an overloaded or absent server; other errors are about the request."""
_HEADERS = ("retry-after", "retry-after-ms", "x-request-id", "x-ratelimit-limit-requests", "x-ratelimit-limit-tokens")
"""Headers kept of an error response; others may hold anything."""
_MOST_SAID = 1000
"""Characters of an error's message that are kept: it goes to the terminal and into files."""
_MOST_COUNTED = 10**9
"""Tokens; no request has more, and the sums of a run have to fit into its files."""
_REASONING = ("reasoning_content", "reasoning")
"""Where servers put the reasoning of a message: DeepSeek, vLLM, SGLang and llama.cpp the first; OpenRouter and newer
vLLM (https://docs.vllm.ai/en/latest/features/reasoning_outputs) the second."""
_RETRIED_STATUSES = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS})


class BadAnswerError(Exception):
    """A successful status whose body is not a chat completion."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """The unparsed body of a successful answer, and its headers (case-insensitive)."""

    content: bytes
    headers: Mapping[str, str]


@dataclass
class Connection(HttpClient):
    """An address, its API key, and the timeout of a request in seconds."""

    base_url: str
    key: str = field(repr=False)
    timeout: float

    def _open(self) -> ClientSession:
        headers = {"authorization": f"Bearer {self.key}", "content-type": "application/json"}
        if any(name == API_VERSION for name, _ in parse_qsl(urlsplit(self.base_url).query)):
            # Azure's dated addresses; its /openai/v1 takes the key like OpenAI does
            headers["api-key"] = self.key
        return open_session(self.base_url, headers, timeout=self.timeout, proxy=_proxy_for(self.base_url))

    async def post(self, body: Mapping[str, Any]) -> HttpAnswer:
        """One chat completion request. Raises openai's APIError."""
        url = self._url("chat/completions")
        with _as_openai_errors(url):
            async with self._session.post(url, data=orjson.dumps(body), allow_redirects=False) as response:
                content = await response.read()
        if response.status >= HTTPStatus.MULTIPLE_CHOICES:
            raise _refusal(response, content)
        return HttpAnswer(content, response.headers)

    async def served_models(self) -> list[str]:
        """Names of the models that the address lists; empty if it lists none."""
        from openai import APIError

        url = self._url("models")
        try:
            with _as_openai_errors(url):
                async with self._session.get(url, allow_redirects=False) as response:
                    return sorted(_model_ids(_decoded(await response.read())))
        except (APIError, BadAnswerError):
            return []

    def _url(self, path: str) -> str:
        address = urlsplit(self.base_url)
        return urlunsplit(address._replace(path=f"{address.path.rstrip('/')}/{path}", fragment=""))


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


@contextmanager
def _as_openai_errors(url: str) -> Iterator[None]:
    """Translate connection errors into the openai package's."""
    from aiohttp import ClientError
    from httpx2 import Request
    from openai import APIConnectionError, APITimeoutError

    try:
        yield
    except TimeoutError as error:
        raise APITimeoutError(Request("POST", url)) from error
    except (ClientError, OSError, ValueError) as error:  # ValueError: not HTTP
        raise APIConnectionError(message=str(error), request=Request("POST", url)) from error


def _refusal(response: ClientResponse, content: bytes) -> APIError:
    """The error for a status of 300 or above, with the endpoint's message."""
    from httpx2 import Request, Response
    from openai import APIStatusError

    try:
        body: object = orjson.loads(content)
    except orjson.JSONDecodeError:
        body = None
    if isinstance(body, list) and body:  # Gemini's address
        body = body[0]
    said = body.get("error", body) if isinstance(body, dict) else None
    message = said.get("message") or said.get("detail") if isinstance(said, dict) else said
    message = message if message and isinstance(message, str) else content.decode("utf-8", "replace")
    message = excerpt(message, _MOST_SAID)
    if moved_to := response.headers.get("location"):
        message = f"moved to {moved_to}; give the address it moved to"
    headers = {name: value for name in _HEADERS if (value := response.headers.get(name, "")).isascii() and value}
    whole = Response(response.status, headers=headers, content=content, request=Request("POST", str(response.url)))
    return APIStatusError(f"status {response.status}: {message}", response=whole, body=said)


def _decoded(content: bytes) -> object:
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        raise BadAnswerError(f"the body is not JSON: {content[:200]!r}") from None


def completions_of(content: bytes, known_secrets: Sequence[str], *, prompt_size: int) -> list[Completion]:
    """The choices of a body up to the first malformed one, with secrets removed; the first carries the request's usage.

    prompt_size: in bytes. If the endpoint reports no tokens, bytes are counted: an upper bound. Raises BadAnswerError
        if there is no valid choice.
    """
    answer = _decoded(content)
    choices = answer.get("choices") if isinstance(answer, dict) else None
    if not isinstance(answer, dict) or not isinstance(choices, list) or not choices:
        raise BadAnswerError(f"the body is not a chat completion: {str(answer)[:200]!r}")
    replies: list[Completion] = []
    for choice in choices:
        try:
            replies.append(_reply(choice, known_secrets))
        except BadAnswerError:
            if not replies:
                raise
            break
    usage = answer.get("usage")
    tokens = usage if isinstance(usage, dict) else {}
    details = tokens.get("prompt_tokens_details")
    cached = _count(details.get("cached_tokens")) if isinstance(details, dict) else 0
    told = _count(tokens.get("prompt_tokens"))
    if told:
        completion_tokens, reasoning_tokens = _completion_tokens(tokens, prompt_tokens=told)
    else:
        completion_tokens = sum(len(each.text.encode()) + len(each.reasoning.encode()) for each in replies)
        reasoning_tokens = 0
    bill = {
        "requests": 1,
        "prompt_tokens": told or prompt_size,
        "completion_tokens": completion_tokens,
        "reasoning_tokens": reasoning_tokens,
        "cached_tokens": min(cached, told),
        "tokens_bounded": not told,
    }
    return [replies[0].model_copy(update=bill), *replies[1:]]


def _completion_tokens(usage: Mapping[str, Any], *, prompt_tokens: int) -> tuple[int, int]:
    """The completion tokens that are billed, and those of them that are reasoning.

    xAI and Gemini leave the reasoning out of `completion_tokens`, but not out of `total_tokens`
    (https://github.com/vercel/ai/pull/12425, https://github.com/router-for-me/CLIProxyAPI/issues/5733).
    """
    completion, details = _count(usage.get("completion_tokens")), usage.get("completion_tokens_details")
    reasoning = _count(details.get("reasoning_tokens")) if isinstance(details, dict) else 0
    said = completion + reasoning if reasoning > completion else completion  # then it is no part of it
    billed = max(said, _count(usage.get("total_tokens")) - prompt_tokens)
    return billed, min(billed, max(reasoning, billed - completion))


def _reply(choice: object, known_secrets: Sequence[str]) -> Completion:
    """One choice as a completion without usage. Raises BadAnswerError for an incomplete reply."""
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise BadAnswerError(f"a choice has no message: {str(choice)[:200]!r}")
    reason, said = choice.get("finish_reason"), message.get("content")
    if isinstance(reason, str) and reason.lower() in _BROKEN_OFF:
        raise BadAnswerError(f"the endpoint cut a reply short with finish_reason {reason!r}")
    if isinstance(said, list):  # content parts, as newer servers send them
        said = "".join(str(part.get("text") or "") for part in said if isinstance(part, dict))
    if not isinstance(said, str | None):
        raise BadAnswerError(f"the content of a reply is not text: {str(said)[:200]!r}")
    reasoned = (message.get(name) for name in _REASONING)
    return Completion(
        text=redact(said or "", known_secrets),
        finish_reason=reason if reason in ("length", "content_filter") else "stop",
        reasoning=redact(next((text for text in reasoned if isinstance(text, str) and text), ""), known_secrets),
        requests=0,
    )


def _count(said: object) -> int:
    """A token count; 0 for anything else."""
    return int(said) if isinstance(said, int | float) and 0 <= said <= _MOST_COUNTED else 0


def _model_ids(served: object) -> set[str]:
    """Ids in a /models answer; empty if it is malformed."""
    models = served.get("data") if isinstance(served, dict) else None
    if not isinstance(models, list):
        return set()
    return {str(each["id"]) for each in models if isinstance(each, dict) and "id" in each}


# -- what an error means -----------------------------------------------------------------------------------------


def is_retryable(error: BaseException) -> bool:
    """Whether a retry could help: no connection, timeouts, rate limits, server errors and garbled bodies."""
    from openai import APIConnectionError, APIStatusError

    if isinstance(error, APIStatusError):
        if error.code == "insufficient_quota":
            return False
        return error.status_code in _RETRIED_STATUSES or error.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR
    return isinstance(error, APIConnectionError | BadAnswerError)


def is_endpoint_failure(error: Exception) -> bool:
    """Whether the failure is about the endpoint as a whole: unreachable, timed out or overloaded."""
    from openai import APIConnectionError, APIStatusError

    if isinstance(error, APIStatusError):
        return error.status_code in _DOWN_STATUSES
    return isinstance(error, APIConnectionError)


def is_account_refused(error: Exception) -> bool:
    """Whether all requests will fail: the key is refused, or the account is empty."""
    from openai import APIStatusError

    if not isinstance(error, APIStatusError):
        return False
    shut = (HTTPStatus.UNAUTHORIZED, HTTPStatus.PAYMENT_REQUIRED)
    return error.status_code in shut or error.code == "insufficient_quota"


def ran_out_of_tokens(error: APIStatusError) -> bool:
    """Whether the reasoning used the token limit up: OpenAI then answers with status 400 and this sentence
    (https://github.com/spiceai/spiceai/issues/7126, https://github.com/nextlevelbuilder/goclaw/issues/245)."""
    return error.status_code == HTTPStatus.BAD_REQUEST and "Could not finish the message because max_tokens" in str(
        error
    )


def error_cause(error: Exception) -> str:
    """One word for counting: connection, timeout, http_429, bad_answer, .."""
    from openai import APIConnectionError, APIStatusError, APITimeoutError

    if isinstance(error, APIStatusError):
        return f"http_{error.status_code}"
    if isinstance(error, APITimeoutError):
        return "timeout" if "connect" not in error_message(error).lower() else "connection"
    if isinstance(error, APIConnectionError):
        return "connection"
    return "bad_answer"


def error_message(error: Exception) -> str:
    """The message of the innermost error that has one."""
    return str(error.__cause__ or error) or str(error) or type(error).__name__
