"""Any OpenAI-compatible endpoint as a `ChatModel`.

Decides how draws become HTTP requests, what is asked again and what is given up, and learns at run time what an
endpoint does not do (several choices at once, `seed`, `stop`, `max_tokens`). What is learned never changes which draws
are asked for, nor their seeds. Knows no agent and no tree.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from reasonrag.chat import ChatRequest, Completion
from reasonrag.concurrency import Slots, together
from reasonrag.errors import InputError, ModelError
from reasonrag.prompting import plain_text

if TYPE_CHECKING:
    from openai import APIError, APIStatusError, AsyncOpenAI
    from tenacity import RetryCallState

OPENAI_BASE_URL = "https://api.openai.com/v1"
REQUEST_TIMEOUT_S = 300.0
"""Longer than any reply of a few hundred tokens takes, short enough to notice a hung connection."""
MAX_ATTEMPTS = 6
"""With waits of 1, 2, 4, .. seconds a request is given up after about a minute of trouble."""
MAX_WAIT_S = 60.0
_RETRIED_STATUSES = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS})
_SUBSTITUTES: dict[str, str | None] = {
    "max_tokens": "max_completion_tokens",
    "seed": None,
    "stop": None,
}
"""Parameters that an endpoint may refuse, and what is sent instead. Without `stop` the parser cuts by itself."""


@dataclass(frozen=True, slots=True)
class CallFailure:
    """A request that got no answer in one attempt."""

    cause: str
    message: str
    attempt: int
    final: bool


class EndpointModel:
    """Chat completions over HTTP.

    slots: limits the requests in flight. on_failure: is told every failed attempt; may be set later.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None,
        slots: Slots,
        on_failure: Callable[[CallFailure], None] = lambda _: None,
    ) -> None:
        self.name = model
        self.base_url = base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI_BASE_URL
        _check_url(self.base_url)
        self._key = os.environ.get("OPENAI_API_KEY") or ""
        if not self._key and self.base_url == OPENAI_BASE_URL:
            raise InputError(
                "no API key: set OPENAI_API_KEY, or give --base-url of an endpoint that needs none, "
                "or use --model offline"
            )
        self._slots = slots
        self.on_failure = on_failure
        self._client = _client(self.base_url, self._key or "none")
        self._choices_per_request: int | None = None
        """How many choices the endpoint gives at most; None until it gave fewer than asked."""
        self._refused: set[str] = set()

    async def check(self) -> None:
        """Ask the model for one short reply; only that proves address, key and name at once."""
        from openai import APIConnectionError, APIStatusError
        from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt

        trial = {"model": self.name, "messages": [{"role": "user", "content": "Say yes."}]}
        retrying = AsyncRetrying(
            stop=stop_after_attempt(MAX_ATTEMPTS),
            retry=retry_if_exception(lambda error: isinstance(error, APIStatusError) and _may_pass(error)),
            wait=_wait,
            before_sleep=self._report_retry,
            reraise=True,
        )
        try:
            await retrying(self._client.post, "/chat/completions", body=trial, cast_to=object)
        except APIConnectionError as error:
            raise InputError(
                f"cannot reach {shown_url(self.base_url)}: {self._clean(_reason(error))}. "
                "Check --base-url and that the server runs"
            ) from error
        except APIStatusError as error:
            self._raise_if_unauthorised(error)
            served = await self._served()
            known = f"; it serves {', '.join(served[:10])}" if served else ""
            hint = "" if served or urlsplit(self.base_url).path.strip("/") else ". Most addresses end in /v1"
            raise InputError(
                f"{shown_url(self.base_url)} does not answer for --model {self.name} "
                f"(status {error.status_code}: {self._clean(_reason(error))}){known}{hint}"
            ) from error

    async def _served(self) -> list[str]:
        """Names of the models that the endpoint says it serves; empty where it does not tell."""
        from openai import APIError

        try:
            return sorted(_model_ids(await self._client.get("/models", cast_to=object)))
        except APIError:
            return []

    async def close(self) -> None:
        await self._client.close()

    async def complete(self, request: ChatRequest) -> Sequence[Completion]:
        wanted = len(request.samples)
        shared = min(wanted, self._choices_per_request or wanted)
        first, *others = await together(
            self._ask(request.draws(0, shared)),
            *(self._ask(request.draws(each, each + 1)) for each in range(shared, wanted)),
        )
        if len(first) < shared:
            self._choices_per_request = len(first)
        missing = await together(*(self._ask(request.draws(each, each + 1)) for each in range(len(first), shared)))
        return [completion for part in (first, *missing, *others) for completion in part]

    async def _ask(self, request: ChatRequest) -> list[Completion]:
        """One request, tried until it is answered or given up; perhaps with fewer choices than it asks for."""
        from openai import APIError
        from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt

        retrying = AsyncRetrying(
            stop=stop_after_attempt(MAX_ATTEMPTS),
            retry=retry_if_exception(_may_pass),
            wait=_wait,
            before_sleep=self._report_retry,
            reraise=True,
        )
        try:
            return await retrying(self._send, request)
        except (APIError, _BadAnswerError) as error:
            attempts = int(retrying.statistics.get("attempt_number", 1))
            failure = self._failure(error, attempt=attempts, final=True)
            self.on_failure(failure)
            tries = f" after {attempts} attempts" if attempts > 1 else ""
            raise ModelError(
                f"{shown_url(self.base_url)} gave no answer{tries}: {failure.message}",
                cause=failure.cause,
            ) from error

    async def _send(self, request: ChatRequest) -> list[Completion]:
        """One attempt, asked again at once where the endpoint refuses a parameter that can be done without."""
        from openai import BadRequestError

        async with self._slots.slot(request.priority):
            while True:
                try:
                    answer = await self._client.post("/chat/completions", body=self._body(request), cast_to=object)
                    break
                except BadRequestError as error:
                    if _named_parameter(error) == "n" and len(request.samples) > 1:
                        request = request.draws(0, 1)
                    elif not self._can_substitute(_named_parameter(error)):
                        raise
        return _completions(answer)[: len(request.samples)]

    def _can_substitute(self, parameter: str | None) -> bool:
        """Note that the endpoint refuses a parameter; False if that is no news or nothing can be done."""
        if parameter not in _SUBSTITUTES or parameter in self._refused:
            return False
        self._refused.add(parameter)
        return True

    def _body(self, request: ChatRequest) -> dict[str, Any]:
        sampling = request.sampling
        body: dict[str, Any] = {
            "model": self.name,
            "messages": request.wire_messages(),
            "temperature": sampling.temperature,
            "max_tokens": sampling.max_tokens,
            "seed": request.seeds[0],
        }
        if sampling.top_p != 1:
            body["top_p"] = sampling.top_p
        if sampling.stop:
            body["stop"] = list(sampling.stop)
        if len(request.samples) > 1:
            body["n"] = len(request.samples)
        for parameter in self._refused & body.keys():
            value, substitute = body.pop(parameter), _SUBSTITUTES[parameter]
            if substitute:
                body[substitute] = value
        return body

    def _report_retry(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, Exception):
            self.on_failure(self._failure(error, attempt=state.attempt_number, final=False))

    def _failure(self, error: Exception, *, attempt: int, final: bool) -> CallFailure:
        return CallFailure(_cause(error), self._clean(_reason(error)), attempt, final)

    def _raise_if_unauthorised(self, error: APIStatusError) -> None:
        if error.status_code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            raise InputError(
                f"{shown_url(self.base_url)} refuses the API key (status {error.status_code}: "
                f"{self._clean(_reason(error))}). Check OPENAI_API_KEY"
            ) from error

    def _clean(self, text: str) -> str:
        """A message without the key, which some endpoints repeat, and without what terminals would obey."""
        text = plain_text(text.encode("utf-8", "replace").decode("utf-8"))
        return text.replace(self._key, "[key]") if self._key else text


class _BadAnswerError(Exception):
    """A successful status with a body that is no chat completion."""


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets that do not match, a port that is no number
        valid = False
    if not valid:
        shown = re.sub(r"//[^/]*@", "//", url)
        raise InputError(f"{shown!r} is no address of an endpoint; it looks like http://127.0.0.1:8000/v1")
    if parts.username or parts.password:
        raise InputError(
            f"the address of {shown_url(url)} holds a user or password, which does not go together with the "
            "Authorization header of this API; put the key into OPENAI_API_KEY"
        )


def shown_url(url: str) -> str:
    """A base URL as it may be written to files and terminals: without user, password and query."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def _client(base_url: str, key: str) -> AsyncOpenAI:
    from openai import AsyncOpenAI, DefaultAioHttpClient

    return AsyncOpenAI(
        base_url=base_url,
        api_key=key,
        max_retries=0,
        timeout=REQUEST_TIMEOUT_S,
        http_client=DefaultAioHttpClient(),
    )


def _completions(answer: object) -> list[Completion]:
    """The choices of a response body; the request's usage rides on the first. Raises _BadAnswerError."""
    choices = answer.get("choices") if isinstance(answer, dict) else None
    if not isinstance(answer, dict) or not isinstance(choices, list) or not choices:
        raise _BadAnswerError(f"the body is no chat completion: {str(answer)[:200]!r}")
    usage = answer.get("usage")
    tokens = usage if isinstance(usage, dict) else {}
    completions = []
    for position, choice in enumerate(choices):
        message = choice.get("message") if isinstance(choice, dict) else None
        if not isinstance(message, dict):
            raise _BadAnswerError(f"choice {position} has no message: {str(choice)[:200]!r}")
        first, finish_reason = position == 0, choice.get("finish_reason")
        completions.append(
            Completion(
                text=str(message.get("content") or ""),
                finish_reason=finish_reason if finish_reason in ("length", "content_filter") else "stop",
                requests=int(first),
                prompt_tokens=int(tokens.get("prompt_tokens") or 0) if first else 0,
                completion_tokens=int(tokens.get("completion_tokens") or 0) if first else 0,
            )
        )
    return completions


def _model_ids(served: object) -> set[str]:
    """Ids of a /models response; empty if it is none."""
    models = served.get("data") if isinstance(served, dict) else None
    if not isinstance(models, list):
        return set()
    return {str(each["id"]) for each in models if isinstance(each, dict) and "id" in each}


def _named_parameter(error: APIError) -> str | None:
    """The parameter a refusal is about: named by the endpoint, or the first one quoted in its message."""
    if isinstance(error.param, str):
        return error.param
    quoted = re.findall(r"[`'\"](\w+)[`'\"]", error.message)
    return next((word for word in quoted if word in {*_SUBSTITUTES, "n"}), None)


def _may_pass(error: BaseException) -> bool:
    """Whether asking again could help: no connection, timeouts, rate limits, server errors and garbled bodies."""
    from openai import APIConnectionError, APIStatusError

    if isinstance(error, APIStatusError):
        if error.code == "insufficient_quota":
            return False
        return error.status_code in _RETRIED_STATUSES or error.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR
    return isinstance(error, APIConnectionError | _BadAnswerError)


def _wait(state: RetryCallState) -> float:
    """Seconds to the next attempt: what the endpoint asks for, or else exponential with jitter."""
    from openai import APIStatusError
    from tenacity import wait_random_exponential

    error = state.outcome.exception() if state.outcome else None
    if isinstance(error, APIStatusError):
        try:
            return min(float(error.response.headers.get("retry-after", "")), MAX_WAIT_S)
        except ValueError:  # absent, or a date: wait as without it
            pass
    return wait_random_exponential(multiplier=1, max=MAX_WAIT_S)(state)


def _cause(error: Exception) -> str:
    """One word for counting: connection, timeout, http_429, bad_answer, .."""
    from openai import APIConnectionError, APIStatusError, APITimeoutError

    if isinstance(error, APIStatusError):
        return f"http_{error.status_code}"
    if isinstance(error, APITimeoutError):
        return "timeout" if "connect" not in _reason(error).lower() else "connection"
    if isinstance(error, APIConnectionError):
        return "connection"
    return "bad_answer"


def _reason(error: Exception) -> str:
    """What happened, in the words of the innermost error that has any."""
    return str(error.__cause__ or error) or type(error).__name__
