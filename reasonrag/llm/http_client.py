"""One OpenAI-compatible address on the wire: a body posted, its answer read, and what a refusal says.

Decides how bytes become completions or errors, and what an error means for asking again. The errors are the openai
package's; the bytes go through aiohttp alone, since that package's client takes nearly three times the CPU for the same
ones (benchmarks/RESULTS.md). Asks nothing twice and learns nothing: that is `endpoints`' matter.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import orjson

from reasonrag.errors import InputError
from reasonrag.llm.chat import Completion, FinishReason
from reasonrag.redaction import redact
from reasonrag.web import CONNECT_S, HttpClient

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession
    from openai import APIError

_BROKEN_OFF = frozenset({"error", "abort", "aborted", "cancelled"})
"""Finish reasons by which servers say that this is not the whole reply; other unknown ones count as `stop`."""
_DOWN_STATUSES = frozenset({408, 502, 503, 504, 529})
"""What a server says that has no time for anybody; other errors are about the request."""
_HEADERS = ("retry-after", "retry-after-ms", "x-request-id", "x-ratelimit-limit-requests", "x-ratelimit-limit-tokens")
"""What is looked at in a refusal; others may hold anything."""
_RETRIED_STATUSES = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS})


class BadAnswerError(Exception):
    """A successful status with a body that is no chat completion."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """The body of a successful answer, not yet read, and its headers (found in any case)."""

    content: bytes
    headers: Mapping[str, str]


@dataclass
class Connection(HttpClient):
    """An address, the key it is asked with, and the seconds that a whole answer may take."""

    base_url: str
    key: str = field(repr=False)
    timeout: float

    def _open(self) -> ClientSession:
        """Certificates as httpx takes them."""
        from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, TCPConnector
        from httpx2 import create_ssl_context

        return ClientSession(
            connector=TCPConnector(limit=0, ssl=create_ssl_context()),  # how many are sent is decided elsewhere
            headers={"authorization": f"Bearer {self.key}", "content-type": "application/json"},
            timeout=ClientTimeout(total=self.timeout, sock_connect=min(CONNECT_S, self.timeout)),
            cookie_jar=DummyCookieJar(),  # a cookie would tie all requests to one server behind the address
            proxy=_proxy_for(self.base_url),
        )

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
        """Names of the models that the address says it serves; empty where it does not tell."""
        from openai import APIError

        url = self._url("models")
        try:
            with _as_openai_errors(url):
                async with self._session.get(url, allow_redirects=False) as response:
                    return sorted(_model_ids(_decoded(await response.read())))
        except (APIError, BadAnswerError):
            return []

    def _url(self, path: str) -> str:
        return f"{self.base_url.rstrip('/')}/{path}"


def _proxy_for(url: str) -> str | None:
    """What HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY say; aiohttp itself would ask them for every request."""
    parts, proxies = urlsplit(url), getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    if (scheme := urlsplit(proxy).scheme) not in ("http", "https"):
        raise InputError(
            f"the proxy of the environment for {parts.scheme} is a {scheme} proxy, which reasonrag cannot use; "
            "set HTTPS_PROXY to an HTTP proxy, or NO_PROXY for this address"
        )
    return proxy


@contextmanager
def _as_openai_errors(url: str) -> Iterator[None]:
    """Whatever a connection can suffer, as the openai package calls it."""
    from aiohttp import ClientError
    from httpx2 import Request
    from openai import APIConnectionError, APITimeoutError

    try:
        yield
    except TimeoutError as error:
        raise APITimeoutError(Request("POST", url)) from error
    except (ClientError, OSError, ValueError) as error:  # ValueError: bytes that are no HTTP
        raise APIConnectionError(message=str(error), request=Request("POST", url)) from error


def _refusal(response: ClientResponse, content: bytes) -> APIError:
    """A status of 300 or above with what the endpoint says about it."""
    from httpx2 import Request, Response
    from openai import APIStatusError, BadRequestError

    try:
        body: object = orjson.loads(content)
    except orjson.JSONDecodeError:
        body = None
    said = body.get("error", body) if isinstance(body, dict) else None
    message = said.get("message") if isinstance(said, dict) else said or content[:500].decode("utf-8", "replace")
    if moved_to := response.headers.get("location"):
        message = f"moved to {moved_to}; give the address it moved to"
    kind = BadRequestError if response.status == HTTPStatus.BAD_REQUEST else APIStatusError
    headers = {name: value for name in _HEADERS if (value := response.headers.get(name, "")).isascii() and value}
    whole = Response(response.status, headers=headers, content=content, request=Request("POST", str(response.url)))
    return kind(f"status {response.status}: {message}", response=whole, body=said)


def _decoded(content: bytes) -> object:
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        raise BadAnswerError(f"the body is no JSON: {content[:200]!r}") from None


def completions_of(content: bytes, known_secrets: Sequence[str], *, prompt_size: int) -> list[Completion]:
    """The choices of a body up to the first that is none, secrets cut out; the request's usage rides on the first.

    prompt_size: in bytes. Where the endpoint tells no tokens, bytes are counted: no tokenizer makes more of a text.
    Raises BadAnswerError if there is no choice at all.
    """
    answer = _decoded(content)
    choices = answer.get("choices") if isinstance(answer, dict) else None
    if not isinstance(answer, dict) or not isinstance(choices, list) or not choices:
        raise BadAnswerError(f"the body is no chat completion: {str(answer)[:200]!r}")
    replies: list[tuple[str, FinishReason]] = []
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
    text, finish_reason = replies[0]
    first = Completion(
        text=text,
        finish_reason=finish_reason,
        prompt_tokens=told or prompt_size,
        completion_tokens=_count(tokens.get("completion_tokens")) if told else sum(len(t.encode()) for t, _ in replies),
        cached_tokens=min(cached, told),
        tokens_bounded=not told,
    )
    return [first, *(Completion(text=text, finish_reason=reason, requests=0) for text, reason in replies[1:])]


def _reply(choice: object, known_secrets: Sequence[str]) -> tuple[str, FinishReason]:
    """Text and end of one choice. Raises BadAnswerError for what is no whole reply."""
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise BadAnswerError(f"a choice has no message: {str(choice)[:200]!r}")
    reason, said = choice.get("finish_reason"), message.get("content")
    if isinstance(reason, str) and reason.lower() in _BROKEN_OFF:
        raise BadAnswerError(f"the endpoint broke a reply off with finish_reason {reason!r}")
    if isinstance(said, list):  # the parts that newer servers use
        said = "".join(str(part.get("text") or "") for part in said if isinstance(part, dict))
    if not isinstance(said, str | None):
        raise BadAnswerError(f"the content of a reply is no text: {str(said)[:200]!r}")
    return redact(said or "", known_secrets), reason if reason in ("length", "content_filter") else "stop"


def _count(said: object) -> int:
    """Tokens; 0 where an endpoint says something else."""
    return int(max(0, said)) if isinstance(said, int | float) and math.isfinite(said) else 0


def _model_ids(served: object) -> set[str]:
    """Ids of a /models answer; empty if it is none."""
    models = served.get("data") if isinstance(served, dict) else None
    if not isinstance(models, list):
        return set()
    return {str(each["id"]) for each in models if isinstance(each, dict) and "id" in each}


# -- what an error means -----------------------------------------------------------------------------------------


def may_pass(error: BaseException) -> bool:
    """Whether asking again could help: no connection, timeouts, rate limits, server errors and garbled bodies."""
    from openai import APIConnectionError, APIStatusError

    if isinstance(error, APIStatusError):
        if error.code == "insufficient_quota":
            return False
        return error.status_code in _RETRIED_STATUSES or error.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR
    return isinstance(error, APIConnectionError | BadAnswerError)


def may_be_down(error: Exception) -> bool:
    """Whether an attempt says something about the endpoint as a whole: nobody there, no answer in time, no time."""
    from openai import APIConnectionError, APIStatusError

    if isinstance(error, APIStatusError):
        return error.status_code in _DOWN_STATUSES
    return isinstance(error, APIConnectionError)


def locks_out(error: Exception) -> bool:
    """Whether no other request will fare better: the key is refused, or the account is empty."""
    from openai import APIStatusError

    if not isinstance(error, APIStatusError):
        return False
    shut = (HTTPStatus.UNAUTHORIZED, HTTPStatus.PAYMENT_REQUIRED)
    return error.status_code in shut or error.code == "insufficient_quota"


def named_parameter(error: APIError, known: Sequence[str]) -> str | None:
    """The parameter a refusal is about: named by the endpoint, or the first known one quoted in its message."""
    if isinstance(error.param, str):
        return error.param
    quoted = re.findall(r"[`'\"](\w+)[`'\"]", error.message)
    return next((word for word in quoted if word in known), None)


def cause_of(error: Exception) -> str:
    """One word for counting: connection, timeout, http_429, bad_answer, .."""
    from openai import APIConnectionError, APIStatusError, APITimeoutError

    if isinstance(error, APIStatusError):
        return f"http_{error.status_code}"
    if isinstance(error, APITimeoutError):
        return "timeout" if "connect" not in reason_of(error).lower() else "connection"
    if isinstance(error, APIConnectionError):
        return "connection"
    return "bad_answer"


def reason_of(error: Exception) -> str:
    """What happened, in the words of the innermost error that has any."""
    return str(error.__cause__ or error) or str(error) or type(error).__name__
