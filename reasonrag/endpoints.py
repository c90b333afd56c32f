"""One or several OpenAI-compatible endpoints as a `ChatModel`.

Decides how draws become HTTP requests, what is asked again and what is given up, and learns at run time what an
endpoint does not do (several choices at once, `seed`, `stop`, `max_tokens`). What is learned never changes which draws
are asked for, nor their seeds. When a request may go is `pacing`'s matter. Knows no agent and no tree.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import orjson

from preference import Message
from reasonrag.chat import ChatRequest, Completion, Sampling
from reasonrag.concurrency import Dispatcher, Turn
from reasonrag.errors import EndpointLost, InputError, ModelError, RunStopped
from reasonrag.pacing import WINDOW_FULL, Pace, Rate
from reasonrag.prompting import plain_text
from reasonrag.redaction import redact, secrets

if TYPE_CHECKING:
    from httpx2 import AsyncClient, Response
    from openai import APIError, AsyncOpenAI
    from tenacity import RetryCallState

OPENAI_BASE_URL = "https://api.openai.com/v1"
MAX_ATTEMPTS = 8
"""Of one request, those apart that only found its endpoint down. With waits of 1, 2, 4, .. seconds, that is minutes."""
SAME_ERROR_TIMES = 3
"""The same 5xx body so many times is an answer: this request will always fail."""
MAX_WAIT_S = 60.0
LONGEST_RETRY_AFTER_S = 3600.0
MAX_DOWN_S = 600.0
"""When no endpoint has answered for so long, the run ends; what was paid for is kept."""
MAX_GIVEN_UP = 20
"""So many requests given up in a row, with no answer between, are no accident of theirs: the run ends."""
_DOWN_STATUSES = frozenset({408, 502, 503, 504, 529})
"""What a server says that has no time for anybody; other errors are about the request."""
_RETRIED_STATUSES = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS})
_SUBSTITUTES: dict[str, str | None] = {
    "max_tokens": "max_completion_tokens",
    "seed": None,
    "stop": None,
}
"""Parameters that an endpoint may refuse, and what is sent instead. Without `stop` the parser cuts by itself."""


_TRIAL = ChatRequest(
    messages=(Message(role="user", content="Say yes."),),
    sampling=Sampling(temperature=1, top_p=1, max_tokens=16),
    samples=(0,),
    seeds=(0,),
)
"""What the check asks: a few tokens, once per address and session, in no cap and no count."""


@dataclass(frozen=True, slots=True)
class CallFailure:
    """A request that got no answer in one attempt."""

    cause: str
    message: str
    attempt: int
    final: bool


@dataclass
class _Endpoint:
    """One address: its client, and what was learned about it."""

    base_url: str
    http: AsyncClient
    """The HTTP client that the openai package brings."""
    client: AsyncOpenAI
    """The same under the package's own API: for what is rare."""
    key: str
    timeout: float
    pace: Pace
    choices_per_request: int | None = None
    """1 once it has ignored or refused `n`."""
    refused: set[str] = field(default_factory=set)
    """Parameters it does not take."""

    def can_substitute(self, parameter: str | None) -> bool:
        """Note that a parameter is refused; False if that is no news or nothing can be done."""
        if parameter not in _SUBSTITUTES or parameter in self.refused:
            return False
        self.refused.add(parameter)
        return True

    async def post(self, body: Mapping[str, Any]) -> Response:
        """One chat completion request; failures as the openai package's errors.

        Below that package's `post`, which takes twice the time for the same bytes.
        """
        from httpx2 import HTTPError, Request, TimeoutException
        from openai import APIConnectionError, APITimeoutError

        url = f"{self.base_url.rstrip('/')}/chat/completions"
        headers = {"authorization": f"Bearer {self.key}", "content-type": "application/json"}
        try:
            async with asyncio.timeout(self.timeout):  # of the whole answer, however slowly it drips
                response = await self.http.post(url, content=orjson.dumps(body), headers=headers)
        except (TimeoutException, TimeoutError) as error:
            raise APITimeoutError(request=Request("POST", url)) from error
        except HTTPError as error:
            raise APIConnectionError(message=str(error), request=Request("POST", url)) from error
        if response.is_error:
            raise _status_error(response)
        return response

    def body(self, model: str, request: ChatRequest) -> dict[str, Any]:
        sampling = request.sampling
        body: dict[str, Any] = {
            "model": model,
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
        for parameter in self.refused & body.keys():
            value, substitute = body.pop(parameter), _SUBSTITUTES[parameter]
            if substitute:
                body[substitute] = value
        return body


@dataclass(slots=True)
class _Trials:
    """The attempts of one request so far."""

    counted: int = 0
    """Those that say something about the request, not about an endpoint that is down."""
    bodies: Counter[str] = field(default_factory=Counter)

    @property
    def hopeless(self) -> bool:
        return self.counted >= MAX_ATTEMPTS or max(self.bodies.values(), default=0) >= SAME_ERROR_TIMES


class EndpointModel:
    """Chat completions over HTTP, from one address or several that serve the same model.

    concurrency: requests in flight over all addresses. rpm, tpm: requests and tokens per minute of each address; None:
    taken from its x-ratelimit headers, if it sends any. timeout: seconds until a request without an answer is given
    up. on_failure: is told every failed attempt; may be set later.
    """

    def __init__(
        self,
        model: str,
        *,
        base_urls: Sequence[str] = (),
        concurrency: int,
        rpm: int | None = None,
        tpm: int | None = None,
        timeout: float,
        on_failure: Callable[[CallFailure], None] = lambda _: None,
    ) -> None:
        self.name = model
        self.base_urls = list(base_urls) or [os.environ.get("OPENAI_BASE_URL") or OPENAI_BASE_URL]
        self._key = os.environ.get("OPENAI_API_KEY") or ""
        for base_url in self.base_urls:
            _check_url(base_url)
            if not self._key and base_url == OPENAI_BASE_URL:
                raise InputError(
                    "no API key: set OPENAI_API_KEY, or give --base-url of an endpoint that needs none, "
                    "or use --model offline"
                )
        self.on_failure = on_failure
        self._endpoints = [
            _open_endpoint(base_url, self._key or "none", timeout, Pace(concurrency, Rate(rpm), Rate(tpm)))
            for base_url in self.base_urls
        ]
        self.dispatcher = Dispatcher([each.pace for each in self._endpoints], most=concurrency)
        self._reply_tokens = 64.0
        """Completion tokens to expect of a draw: the mean of late."""
        self._answered = 0
        self._seconds = 0.0
        self._given_up = 0
        self._secrets = secrets()
        self._stopped: RunStopped | None = None
        self._stopping = asyncio.Event()
        self._pauses: list[float] = []
        """When the requests that failed are tried again."""
        self._checked = False

    async def check(self) -> None:
        """Ask the model for one short reply at every address; only that proves address, key and name at once.

        An address that cannot be reached is no obstacle while another one answers.
        """
        if self._checked:
            return
        unreachable: list[InputError] = []
        for endpoint in self._endpoints:
            try:
                await self._check(endpoint)
            except _UnreachableError as error:
                unreachable.append(error)
        if len(unreachable) == len(self._endpoints):
            raise unreachable[0]
        self._checked = True

    async def _check(self, endpoint: _Endpoint) -> None:
        from openai import APIConnectionError, APIStatusError
        from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt

        shown = shown_url(endpoint.base_url)
        retrying = AsyncRetrying(
            stop=stop_after_attempt(MAX_ATTEMPTS),
            retry=retry_if_exception(lambda error: not isinstance(error, APIConnectionError) and _may_pass(error)),
            wait=_wait,
            sleep=self._pause,
            before_sleep=self._report_retry,
            reraise=True,
        )
        try:
            await retrying(self._post, endpoint, _TRIAL)
        except (APIConnectionError, _BadAnswerError) as error:
            raise _UnreachableError(
                f"cannot reach {shown}: {_clean(_reason(error))}. Check --base-url and that the server runs"
            ) from error
        except APIStatusError as error:
            reason = _clean(_reason(error))
            if error.status_code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
                raise InputError(
                    f"{shown} refuses the API key (status {error.status_code}: {reason}). Check OPENAI_API_KEY"
                ) from error
            served = await _served(endpoint.client)
            known = f"; it serves {', '.join(served[:10])}" if served else ""
            hint = "" if served or urlsplit(endpoint.base_url).path.strip("/") else ". Most addresses end in /v1"
            kind = _UnreachableError if _may_pass(error) else InputError
            raise kind(
                f"{shown} does not answer for --model {self.name} (status {error.status_code}: {reason}){known}{hint}"
            ) from error

    async def close(self) -> None:
        for endpoint in self._endpoints:
            await endpoint.client.close()

    async def complete(self, request: ChatRequest) -> Sequence[Completion]:
        """One request, tried until it is answered or given up; perhaps with fewer choices than it has draws.

        Raises ModelError where this request has no answer, RunStopped where none will have one.
        """
        from openai import APIError
        from tenacity import AsyncRetrying, retry_if_exception

        trials = _Trials()
        retrying = AsyncRetrying(
            stop=lambda _: trials.hopeless,
            retry=retry_if_exception(_may_pass),
            wait=_wait,
            sleep=self._pause,
            before_sleep=self._report_retry,
            reraise=True,
        )
        try:
            return await retrying(self._send, request, trials)
        except (APIError, _BadAnswerError) as error:
            attempts = int(retrying.statistics.get("attempt_number", 1))
            failure = _failure(error, attempt=attempts, final=True)
            self.on_failure(failure)
            tries = f" after {attempts} attempts" if attempts > 1 else ""
            message = f"{self._shown()} gave no answer{tries}: {failure.message}"
            self._given_up += _may_pass(error)  # what will never pass is the request's own fault
            if _locks_out(error) or self._given_up >= MAX_GIVEN_UP:
                raise EndpointLost(f"{message}. The same command goes on when that is mended") from error
            raise ModelError(message, cause=failure.cause) from error

    async def _send(self, request: ChatRequest, trials: _Trials) -> list[Completion]:
        """One attempt, when its turn has come; what became of it is told to the endpoint's pace."""
        expected = _prompt_tokens(request) + len(request.samples) * self._reply_tokens
        async with self.dispatcher.turn(request.priority, tokens=expected) as turn:
            endpoint = self._endpoints[turn.lane]
            try:
                completions = await self._post(endpoint, request)
            except Exception as error:
                self._note(error, turn, trials)
                raise
            spent = completions[0].prompt_tokens + completions[0].completion_tokens
            now = self.dispatcher.clock()
            turn.succeeded(spent or expected, now=now)
            self._given_up = 0
            self._answered += 1
            self._seconds += now - turn.sent_at
        if spent:
            per_draw = completions[0].completion_tokens / len(completions)
            self._reply_tokens += 0.05 * (per_draw - self._reply_tokens)
        return completions

    async def _post(self, endpoint: _Endpoint, request: ChatRequest) -> list[Completion]:
        """One request, asked again at once where the endpoint refuses a parameter that can be done without."""
        from openai import BadRequestError

        asked = request.draws(0, min(len(request.samples), endpoint.choices_per_request or len(request.samples)))
        while True:
            try:
                response = await endpoint.post(endpoint.body(self.name, asked))
                break
            except BadRequestError as error:
                if _named_parameter(error) == "n" and len(asked.samples) > 1:
                    asked = asked.draws(0, 1)
                elif not endpoint.can_substitute(_named_parameter(error)):
                    raise
        endpoint.pace.learn(response.headers)
        completions = _completions(_decoded(response.content), self._secrets)[: len(request.samples)]
        if len(completions) == 1 and len(request.samples) > 1:
            endpoint.choices_per_request = 1
        return completions

    def _note(self, error: Exception, turn: Turn, trials: _Trials) -> None:
        """Tell the pace what went wrong, and count the attempt if it says something about the request."""
        from openai import APIStatusError

        now = self.dispatcher.clock()
        was_down = turn.pace.down_since is not None
        blamed = _may_be_down(error) or (len(self._endpoints) > 1 and _may_pass(error))
        if isinstance(error, APIStatusError) and error.status_code == HTTPStatus.TOO_MANY_REQUESTS:
            turn.pace.learn(error.response.headers)
            turn.refused(_retry_after(error.response.headers), now=now)
            blamed = False
        elif blamed:
            turn.failed(now=now)
        else:
            turn.answered()
        if not (was_down and blamed):
            trials.counted += 1
            if isinstance(error, APIStatusError) and error.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR:
                trials.bodies[error.response.text] += 1
        downs = [each.pace.down_since for each in self._endpoints]
        if all(since is not None and now - since > MAX_DOWN_S for since in downs):
            raise EndpointLost(
                f"{self._shown()} has not answered for {MAX_DOWN_S / 60:.0f} minutes: {_clean(_reason(error))}. "
                "The same command goes on when it does"
            ) from error

    def stop(self, reason: RunStopped) -> None:
        """Send nothing more; what is in flight goes on."""
        self.dispatcher.stop(reason)
        self._stopped = self._stopped or reason
        self._stopping.set()

    async def _pause(self, seconds: float) -> None:
        """Between two attempts. Raises RunStopped as soon as the run stops."""
        until = self.dispatcher.clock() + seconds
        self._pauses.append(until)
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return
        finally:
            self._pauses.remove(until)
        if self._stopped is not None:
            raise self._stopped

    @property
    def in_flight(self) -> int:
        """Requests sent and not yet answered."""
        return self.dispatcher.in_flight

    @property
    def seconds_per_request(self) -> float | None:
        """From sending to answer, the mean; None before the first answer."""
        return self._seconds / self._answered if self._answered else None

    @property
    def waiting_for(self) -> str:
        """Why nothing is sent at the moment: `rate limit: 12 s`; empty while requests go."""
        why, seconds = self.dispatcher.waiting_for, self.dispatcher.waiting_until - self.dispatcher.clock()
        if not self.in_flight and self._pauses and not why:
            left = max(0.0, min(self._pauses) - self.dispatcher.clock())
            return f"{len(self._pauses):,} requests are tried again: {math.ceil(left)} s"
        if not why or why == WINDOW_FULL or seconds < 0:
            return ""
        return f"{why}: tried now" if math.isinf(seconds) else f"{why}: {math.ceil(seconds)} s"

    def _shown(self) -> str:
        return ", ".join(map(shown_url, self.base_urls))

    def _report_retry(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, Exception):
            self.on_failure(_failure(error, attempt=state.attempt_number, final=False))


class _BadAnswerError(Exception):
    """A successful status with a body that is no chat completion."""


class _UnreachableError(InputError):
    """Nobody listens at an address."""


def _failure(error: Exception, *, attempt: int, final: bool) -> CallFailure:
    return CallFailure(_cause(error), _clean(_reason(error)), attempt, final)


def _clean(text: str) -> str:
    """A message without keys, which some endpoints repeat, and without what terminals would obey."""
    return redact(plain_text(text.encode("utf-8", "replace").decode("utf-8")))


def _prompt_tokens(request: ChatRequest) -> float:
    """Rule of thumb for English: four characters each."""
    return sum(len(message.content) for message in request.messages) / 4


def _decoded(content: bytes) -> object:
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise _BadAnswerError(f"the body is no JSON: {content[:200]!r}") from error


async def _served(client: AsyncOpenAI) -> list[str]:
    """Names of the models that the endpoint says it serves; empty where it does not tell."""
    from openai import APIError

    try:
        return sorted(_model_ids(await client.get("/models", cast_to=object)))
    except APIError:
        return []


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


def _open_endpoint(base_url: str, key: str, timeout: float, pace: Pace) -> _Endpoint:
    from openai import AsyncOpenAI, DefaultAioHttpClient

    http = DefaultAioHttpClient(timeout=timeout)
    client = AsyncOpenAI(base_url=base_url, api_key=key, max_retries=0, timeout=timeout, http_client=http)
    return _Endpoint(base_url, http, client, key, timeout, pace)


def _status_error(response: Response) -> APIError:
    """A refusal with what the endpoint says about it."""
    from openai import APIStatusError, BadRequestError

    try:
        body: object = orjson.loads(response.content)
    except orjson.JSONDecodeError:
        body = None
    said = body.get("error", body) if isinstance(body, dict) else None
    message = said.get("message") if isinstance(said, dict) else said or response.text[:500]
    kind = BadRequestError if response.status_code == HTTPStatus.BAD_REQUEST else APIStatusError
    return kind(f"Error code: {response.status_code} - {message}", response=response, body=said)


def _completions(answer: object, known_secrets: Sequence[str]) -> list[Completion]:
    """The choices of a response body; the request's usage rides on the first. Raises _BadAnswerError."""
    choices = answer.get("choices") if isinstance(answer, dict) else None
    if not isinstance(answer, dict) or not isinstance(choices, list) or not choices:
        raise _BadAnswerError(f"the body is no chat completion: {str(answer)[:200]!r}")
    usage = answer.get("usage")
    tokens = usage if isinstance(usage, dict) else {}
    details = tokens.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    completions = []
    for position, choice in enumerate(choices):
        message = choice.get("message") if isinstance(choice, dict) else None
        if not isinstance(message, dict):
            raise _BadAnswerError(f"choice {position} has no message: {str(choice)[:200]!r}")
        first, finish_reason = position == 0, choice.get("finish_reason")
        completions.append(
            Completion(
                text=redact(str(message.get("content") or ""), known_secrets),
                finish_reason=finish_reason if finish_reason in ("length", "content_filter") else "stop",
                requests=int(first),
                prompt_tokens=int(tokens.get("prompt_tokens") or 0) if first else 0,
                completion_tokens=int(tokens.get("completion_tokens") or 0) if first else 0,
                cached_tokens=int(cached or 0) if first else 0,
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


def _may_be_down(error: Exception) -> bool:
    """Whether an attempt says something about the endpoint as a whole: nobody there, no answer in time, no time."""
    from openai import APIConnectionError, APIStatusError

    if isinstance(error, APIStatusError):
        return error.status_code in _DOWN_STATUSES
    return isinstance(error, APIConnectionError)


def _wait(state: RetryCallState) -> float:
    """Seconds to the next attempt: what the endpoint asks for, or else exponential with jitter."""
    from openai import APIStatusError
    from tenacity import wait_random_exponential

    error = state.outcome.exception() if state.outcome else None
    asked = _retry_after(error.response.headers) if isinstance(error, APIStatusError) else None
    if asked is not None:
        return min(asked, MAX_WAIT_S) * random.uniform(1.0, 1.1)
    return wait_random_exponential(multiplier=1, max=MAX_WAIT_S)(state)


def _retry_after(headers: Mapping[str, str]) -> float | None:
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


def _locks_out(error: Exception) -> bool:
    """Whether no other request will fare better: the key is refused, or the account is empty."""
    from openai import APIStatusError

    if not isinstance(error, APIStatusError):
        return False
    return error.status_code == HTTPStatus.UNAUTHORIZED or error.code == "insufficient_quota"


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
