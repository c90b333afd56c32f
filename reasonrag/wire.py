"""One OpenAI-compatible address on the wire: a body posted, its answer read, and what a refusal says.

Decides how bytes become completions or errors, and what an error means for asking again. The errors are the openai
package's; the bytes go through aiohttp alone, since that package's client takes several times as long for the same
ones. Asks nothing twice and learns nothing: that is `endpoints`' matter.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cached_property
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import orjson

from reasonrag.chat import Completion
from reasonrag.redaction import redact

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession
    from openai import APIError

LONGEST_RETRY_AFTER_S = 3600.0
_DOWN_STATUSES = frozenset({408, 502, 503, 504, 529})
"""What a server says that has no time for anybody; other errors are about the request."""
_RETRIED_STATUSES = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS})


class BadAnswerError(Exception):
    """A successful status with a body that is no chat completion."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The body of a successful answer, not yet read, and its headers (found in any case)."""

    content: bytes
    headers: Mapping[str, str]


@dataclass
class Connection:
    """An address, the key it is asked with, and the seconds that a whole answer may take."""

    base_url: str
    key: str
    timeout: float

    @cached_property
    def _session(self) -> ClientSession:
        """Opened by the first request, inside its event loop; proxies and certificates as httpx takes them."""
        from aiohttp import ClientSession, ClientTimeout, TCPConnector
        from httpx2 import create_ssl_context

        return ClientSession(
            connector=TCPConnector(limit=0, ssl=create_ssl_context()),  # how many are sent is decided elsewhere
            headers={"authorization": f"Bearer {self.key}", "content-type": "application/json"},
            timeout=ClientTimeout(total=self.timeout),  # of the whole answer, however slowly it drips
            proxy=_proxy_for(self.base_url),
        )

    async def post(self, body: Mapping[str, Any]) -> Answer:
        """One chat completion request. Raises openai's APIError."""
        url = self._url("chat/completions")
        with _as_openai_errors(url):
            async with self._session.post(url, data=orjson.dumps(body)) as response:
                content = await response.read()
        if response.status >= HTTPStatus.BAD_REQUEST:
            raise _refusal(response, content)
        return Answer(content, response.headers)

    async def served_models(self) -> list[str]:
        """Names of the models that the address says it serves; empty where it does not tell."""
        from openai import APIError

        url = self._url("models")
        try:
            with _as_openai_errors(url):
                async with self._session.get(url) as response:
                    return sorted(_model_ids(_decoded(await response.read())))
        except (APIError, BadAnswerError):
            return []

    def _url(self, path: str) -> str:
        return f"{self.base_url.rstrip('/')}/{path}"

    async def close(self) -> None:
        if "_session" in self.__dict__:
            await self._session.close()


def _proxy_for(url: str) -> str | None:
    """What HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY say; aiohttp itself would ask them for every request."""
    parts, proxies = urlsplit(url), getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


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
    except (ClientError, OSError) as error:
        raise APIConnectionError(message=str(error), request=Request("POST", url)) from error


def _refusal(response: ClientResponse, content: bytes) -> APIError:
    """A status of 400 or above with what the endpoint says about it."""
    from httpx2 import Request, Response
    from openai import APIStatusError, BadRequestError

    text = content.decode("utf-8", "replace")
    try:
        body: object = orjson.loads(content)
    except orjson.JSONDecodeError:
        body = None
    said = body.get("error", body) if isinstance(body, dict) else None
    message = said.get("message") if isinstance(said, dict) else said or text[:500]
    kind = BadRequestError if response.status == HTTPStatus.BAD_REQUEST else APIStatusError
    headers = [(name, value) for name, value in response.headers.items() if name.lower() != "content-encoding"]
    request = Request("POST", str(response.url))
    whole = Response(response.status, headers=headers, text=text, request=request)
    return kind(f"Error code: {response.status} - {message}", response=whole, body=said)


def _decoded(content: bytes) -> object:
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        raise BadAnswerError(f"the body is no JSON: {content[:200]!r}") from None


def completions_of(content: bytes, known_secrets: Sequence[str]) -> list[Completion]:
    """The choices of a body, secrets cut out; the request's usage rides on the first. Raises BadAnswerError."""
    answer = _decoded(content)
    choices = answer.get("choices") if isinstance(answer, dict) else None
    if not isinstance(answer, dict) or not isinstance(choices, list) or not choices:
        raise BadAnswerError(f"the body is no chat completion: {str(answer)[:200]!r}")
    usage = answer.get("usage")
    tokens = usage if isinstance(usage, dict) else {}
    details = tokens.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    completions = []
    for position, choice in enumerate(choices):
        message = choice.get("message") if isinstance(choice, dict) else None
        if not isinstance(message, dict):
            raise BadAnswerError(f"choice {position} has no message: {str(choice)[:200]!r}")
        first, finish_reason = position == 0, choice.get("finish_reason")
        completions.append(
            Completion(
                text=redact(str(message.get("content") or ""), known_secrets),
                finish_reason=finish_reason if finish_reason in ("length", "content_filter") else "stop",
                requests=int(first),
                prompt_tokens=_count(tokens.get("prompt_tokens")) if first else 0,
                completion_tokens=_count(tokens.get("completion_tokens")) if first else 0,
                cached_tokens=_count(cached) if first else 0,
            )
        )
    return completions


def _count(said: object) -> int:
    """Tokens; 0 where an endpoint says something else."""
    return max(0, said) if isinstance(said, int) else 0


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
    return error.status_code == HTTPStatus.UNAUTHORIZED or error.code == "insufficient_quota"


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that an endpoint asks to wait, as a number or as a date; None if it does not say."""
    asked = headers.get("retry-after", "")
    try:
        seconds = float(asked)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(asked) - datetime.now(UTC)).total_seconds()
        except (ValueError, TypeError):
            return None
    return min(max(0.0, seconds), LONGEST_RETRY_AFTER_S) if math.isfinite(seconds) else None


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
