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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from preference import Message
from preference.export.sanitize import plain_text
from reasonrag.errors import EndpointLost, InputError, ModelError, RunStopped
from reasonrag.llm.chat import ChatRequest, Completion, Sampling, estimate_tokens
from reasonrag.llm.http_client import (
    BadAnswerError,
    Connection,
    cause_of,
    completions_of,
    locks_out,
    may_be_down,
    may_pass,
    named_parameter,
    reason_of,
)
from reasonrag.llm.rate_limits import WINDOW_FULL, Pace, Rate
from reasonrag.llm.scheduler import RequestScheduler, RequestSlot
from reasonrag.redaction import redact, secrets
from reasonrag.web import retry_after

if TYPE_CHECKING:
    from openai import APIStatusError
    from tenacity import AsyncRetrying, RetryCallState

OPENAI_BASE_URL = "https://api.openai.com/v1"
KEY_VARIABLE, VALUE_KEY_VARIABLE = "OPENAI_API_KEY", "REASONRAG_VALUE_API_KEY"
JUDGE_KEY_VARIABLE = "REASONRAG_JUDGE_API_KEY"
"""Where keys come from: those of a value model and of an evaluation's judge at addresses of their own, which must not
see the first one."""
MAX_ATTEMPTS = 8
"""Of one request, those apart that only found its endpoint down. With waits of 1, 2, 4, .. seconds, that is minutes."""
SAME_ERROR_TIMES = 3
"""The same 5xx or garbled body so many times is an answer: this request will always fail."""
MAX_WAIT_S = 60.0
MAX_DOWN_S = 600.0
"""When no endpoint has answered for so long, the run ends; what was paid for is kept."""
MAX_GIVEN_UP = 5
"""So many requests given up in a row, with no answer between, are no accident of theirs: the endpoint is down."""
MAX_FORBIDDEN = 20
"""So many requests that an endpoint will not serve, in a row: the run ends."""
SHORT_ANSWERS = 2
"""So many answers in a row with one choice instead of several: the endpoint does not know `n`."""
_SUBSTITUTES: dict[str, str | None] = {
    "max_tokens": "max_completion_tokens",
    "seed": None,
    "stop": None,
}
"""Parameters that an endpoint may refuse, and what is sent instead. Without `stop` the parser cuts by itself."""
_MAY_BE_REFUSED = ("n", *_SUBSTITUTES)
_BEHIND_ALL = 10**9
"""More than any priority: another request tries an endpoint next, lest the one that breaks it be always the first."""

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
    """One address and what was learned about it."""

    connection: Connection
    pace: Pace
    short_answers: int = 0
    """In a row; from SHORT_ANSWERS on, `n` is not tried again."""
    refused: set[str] = field(default_factory=set)
    """Parameters it does not take."""

    def can_substitute(self, parameter: str | None) -> bool:
        """Note that a parameter is refused; False if that is no news, or nothing can be done."""
        if parameter not in _SUBSTITUTES or parameter in self.refused:
            return False
        self.refused.add(parameter)
        return True

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
class _Attempts:
    """The attempts of one request so far."""

    counted: int = 0
    """Those that say something about the request, not about an endpoint that is down."""
    bodies: Counter[str] = field(default_factory=Counter)
    last_lane: int | None = None
    """Which endpoint has just failed; another one may do better."""
    answered: int = 0
    """How many requests had been answered at the last failure."""
    while_down: int = 0
    """Attempts that found their endpoint down."""

    def count(self, error: Exception, *, answered: int = 0) -> None:
        """One more failure. A server without time says the same to everybody: only if others are answered between, it
        is this request's fault."""
        from openai import APIStatusError

        self.counted += 1
        others_fare_better, self.answered = answered > self.answered, answered
        if isinstance(error, BadAnswerError):
            self.bodies[str(error)] += 1
        if isinstance(error, APIStatusError) and error.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR:
            self.bodies[error.response.text] += others_fare_better or not may_be_down(error)

    @property
    def hopeless(self) -> bool:
        return self.counted >= MAX_ATTEMPTS or max(self.bodies.values(), default=0) >= SAME_ERROR_TIMES


class EndpointModel:
    """Chat completions over HTTP, from one address or several that serve the same model.

    concurrency: requests in flight over all addresses. rpm, tpm: requests and tokens per minute of each address; None:
    taken from its x-ratelimit headers, if it sends any. timeout: seconds until a request without an answer is given
    up. flags: what the flags that name it begin with. patience: seconds without an answer of any address after which
    the endpoint is lost. on_failure: is told every failed attempt; may be set later.
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
        flags: str = "--",
        key_variable: str = KEY_VARIABLE,
        patience: float = MAX_DOWN_S,
        on_failure: Callable[[CallFailure], None] = lambda _: None,
    ) -> None:
        self.name = model
        self._flags, self._key_variable = flags, key_variable
        addresses, key = list(base_urls) or [os.environ.get("OPENAI_BASE_URL") or OPENAI_BASE_URL], _key(key_variable)
        for base_url in addresses:
            _check_url(base_url)
            if not key and base_url == OPENAI_BASE_URL:
                raise InputError(
                    f"no API key: set {key_variable}, or give {flags}base-url of an endpoint that needs none, "
                    f"or use {flags}model offline"
                )
        self.on_failure = on_failure
        self.say: Callable[[str], None] = lambda _: None
        """Is told what a user should know about an endpoint; may be set later."""
        self._endpoints = [
            _Endpoint(Connection(base_url, key or "none", timeout), Pace(concurrency, Rate(rpm), Rate(tpm)))
            for base_url in addresses
        ]
        self._most = concurrency
        self._patience = patience
        self._reply_tokens = 64.0
        """Completion tokens to expect of a draw: the mean of late."""
        self._answered = 0
        self._seconds = 0.0
        self._secrets = secrets()
        self._bounded = False
        """Whether some tokens were counted as bytes."""
        self._checked = False
        self.begin()

    def begin(self) -> None:
        """Be ready for a session, whatever ended the last one."""
        self.scheduler = RequestScheduler([each.pace for each in self._endpoints], most=self._most)
        self._given_up = self._forbidden = 0
        self._stopped: RunStopped | None = None
        self._stopping = asyncio.Event()
        self._pauses: list[float] = []
        """When the requests that failed are tried again."""

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
        """Raises InputError for what only the user can mend. A server that is busy is waited for, an absent one not."""
        from openai import APIConnectionError, APIStatusError

        shown, trials = shown_url(endpoint.connection.base_url), _Attempts()

        async def attempt() -> None:
            try:
                await self._post(endpoint, _TRIAL)
            except Exception as error:
                trials.count(error)
                raise

        try:
            await self._retrying(trials, lambda error: may_pass(error) and not isinstance(error, APIConnectionError))(
                attempt
            )
        except APIConnectionError as error:
            raise _UnreachableError(
                f"cannot reach {shown}: {_clean(reason_of(error))}. "
                f"Check {self._flags}base-url and that the server runs"
            ) from error
        except BadAnswerError as error:
            raise _UnreachableError(
                f"{shown} does not speak OpenAI's language: {_clean(reason_of(error))}. Check {self._flags}base-url"
            ) from error
        except APIStatusError as error:
            raise await self._refused(endpoint, error) from error

    async def _refused(self, endpoint: _Endpoint, error: APIStatusError) -> InputError:
        """What a user can do about a refusal."""
        base_url, reason = endpoint.connection.base_url, _clean(reason_of(error))
        shown = shown_url(base_url)
        if error.status_code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            return InputError(f"{shown} refuses the API key ({reason}). Check {self._key_variable}")
        served = await endpoint.connection.served_models()
        known = f"; it serves {', '.join(served[:10])}" if served else ""
        hint = "" if served or urlsplit(base_url).path.strip("/") else ". Most addresses end in /v1"
        kind = _UnreachableError if may_pass(error) else InputError
        return kind(f"{shown} does not answer for {self._flags}model {self.name} ({reason}){known}{hint}")

    def _retrying(self, trials: _Attempts, passes: Callable[[BaseException], bool]) -> AsyncRetrying:
        """Attempts with waits between them, each failure reported, until one succeeds or they are hopeless."""
        from tenacity import AsyncRetrying, retry_if_exception

        return AsyncRetrying(
            stop=lambda _: trials.hopeless,
            retry=retry_if_exception(passes),
            wait=_wait,
            sleep=self._pause,
            before_sleep=self._report_retry,
            reraise=True,
        )

    async def close(self) -> None:
        for endpoint in self._endpoints:
            await endpoint.connection.close()

    async def complete(self, request: ChatRequest) -> Sequence[Completion]:
        """One request, tried until it is answered or given up; perhaps with fewer choices than it has draws.

        Raises ModelError where this request has no answer, RunStopped where none will have one.
        """
        from openai import APIError

        trials = _Attempts()
        retrying = self._retrying(trials, may_pass)
        try:
            return await retrying(self._send, request, trials)
        except (APIError, BadAnswerError) as error:
            attempts = int(retrying.statistics.get("attempt_number", 1))
            failure = _failure(error, attempt=attempts, final=True)
            self.on_failure(failure)
            tries = f" after {attempts} attempts" if attempts > 1 else ""
            message = f"{self._shown()} gave no answer{tries}: {failure.message}"
            self._given_up += may_pass(error)  # what will never pass is the request's own fault
            self._forbidden += failure.cause == "http_403"
            if locks_out(error) or self._forbidden >= MAX_FORBIDDEN:
                raise EndpointLost(f"{message}. The same command goes on when that is mended") from error
            raise ModelError(message, cause=failure.cause) from error

    async def _send(self, request: ChatRequest, trials: _Attempts) -> list[Completion]:
        """One attempt, when its slot has come; what became of it is told to the endpoint's pace."""
        prompt_tokens = sum(estimate_tokens(message.content) for message in request.messages)
        expected = prompt_tokens + len(request.samples) * self._reply_tokens
        priority = request.priority + _BEHIND_ALL * trials.while_down
        async with self.scheduler.slot(priority, tokens=expected, avoid=trials.last_lane) as slot:
            trials.last_lane = slot.lane
            endpoint = self._endpoints[slot.lane]
            try:
                completions = await self._post(endpoint, request)
            except Exception as error:
                self._note(error, slot, trials)
                raise
            first = completions[0]
            spent = 0 if first.tokens_bounded else first.prompt_tokens + first.completion_tokens
            now = self.scheduler.clock()
            slot.succeeded(spent or expected, now=now)
            self._given_up = self._forbidden = 0
            self._answered += 1
            self._seconds += now - slot.sent_at
        if spent:
            per_draw = first.completion_tokens / len(completions)
            self._reply_tokens += 0.05 * (per_draw - self._reply_tokens)
        return completions

    async def _post(self, endpoint: _Endpoint, request: ChatRequest) -> list[Completion]:
        """One request, asked again at once where the endpoint refuses a parameter that can be done without."""
        from openai import BadRequestError

        asked = request.draws(0, 1) if endpoint.short_answers >= SHORT_ANSWERS else request
        while True:
            try:
                answer = await endpoint.connection.post(endpoint.body(self.name, asked))
                break
            except BadRequestError as error:
                parameter = named_parameter(error, _MAY_BE_REFUSED)
                if parameter == "n" and len(asked.samples) > 1:
                    asked = asked.draws(0, 1)
                elif endpoint.can_substitute(parameter):
                    self._say_of(endpoint, f"takes no {parameter}; going on without")
                else:
                    raise
        endpoint.pace.learn(answer.headers)
        completions = completions_of(answer.content, self._secrets, prompt_size=request.size)[: len(request.samples)]
        self._learn_of_choices(endpoint, len(request.samples), len(completions))
        if completions[0].tokens_bounded and not self._bounded:
            self._bounded = True
            self._say_of(endpoint, "tells no tokens; they are counted as one a byte, some four times too many")
        return completions

    def _learn_of_choices(self, endpoint: _Endpoint, wanted: int, given: int) -> None:
        if wanted == 1 or endpoint.short_answers >= SHORT_ANSWERS:
            return
        endpoint.short_answers = endpoint.short_answers + 1 if given == 1 else 0
        if endpoint.short_answers == SHORT_ANSWERS:
            self._say_of(endpoint, "gives one reply where several are asked for; each sibling pays for its prompt")

    def _say_of(self, endpoint: _Endpoint, lesson: str) -> None:
        self.say(f"{shown_url(endpoint.connection.base_url)} {lesson}")

    def _note(self, error: Exception, slot: RequestSlot, trials: _Attempts) -> None:
        """Tell the pace what went wrong, and count the attempt if it says something about the request."""
        from openai import APIStatusError

        now = self.scheduler.clock()
        was_down = slot.pace.down_since is not None
        sick = len(self._endpoints) > 1 or self._given_up >= MAX_GIVEN_UP
        blamed = may_be_down(error) or (sick and may_pass(error))
        wait = retry_after(error.response.headers) if isinstance(error, APIStatusError) else None
        if isinstance(error, APIStatusError) and error.status_code == HTTPStatus.TOO_MANY_REQUESTS:
            slot.pace.learn(error.response.headers)
            slot.refused(wait, now=now)
            blamed = False
        elif blamed:
            slot.failed(wait, now=now)
        else:
            slot.answered()
        if was_down and blamed:
            trials.while_down += 1
        else:
            trials.count(error, answered=self._answered)
        downs = [each.pace.down_since for each in self._endpoints]
        if all(since is not None and now - since > self._patience for since in downs):
            waited = f"{self._patience / 60:.0f} minutes" if self._patience >= 2 * 60 else f"{self._patience:g} seconds"
            raise EndpointLost(
                f"{self._shown()} has not answered for {waited}: {_clean(reason_of(error))}. "
                "The same command goes on when it does"
            ) from error

    def stop(self, reason: RunStopped) -> None:
        """Send nothing more; what is in flight goes on."""
        self.scheduler.stop(reason)
        self._stopped = self._stopped or reason
        self._stopping.set()

    async def _pause(self, seconds: float) -> None:
        """Between two attempts. Raises RunStopped as soon as the run stops."""
        until = self.scheduler.clock() + seconds
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
        return self.scheduler.in_flight

    @property
    def answered(self) -> int:
        """Requests answered so far."""
        return self._answered

    @property
    def seconds_per_request(self) -> float | None:
        """From sending to answer, the mean; None before the first answer."""
        return self._seconds / self._answered if self._answered else None

    @property
    def waiting_for(self) -> str:
        """Why nothing is sent at the moment: `rate limit: 12 s`; empty while requests go."""
        why, seconds = self.scheduler.waiting_for, self.scheduler.waiting_until - self.scheduler.clock()
        if not self.in_flight and self._pauses and not why:
            left = max(0.0, min(self._pauses) - self.scheduler.clock())
            return f"{len(self._pauses):,} requests are tried again: {math.ceil(left)} s"
        if not why or why == WINDOW_FULL or seconds < 0:
            return ""
        return f"{why}: tried now" if math.isinf(seconds) else f"{why}: {math.ceil(seconds)} s"

    def _shown(self) -> str:
        return ", ".join(shown_url(each.connection.base_url) for each in self._endpoints)

    def _report_retry(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, Exception):
            self.on_failure(_failure(error, attempt=state.attempt_number, final=False))


class _UnreachableError(InputError):
    """No answer at an address that may be one of several."""


def _failure(error: Exception, *, attempt: int, final: bool) -> CallFailure:
    return CallFailure(cause_of(error), _clean(reason_of(error)), attempt, final)


def _clean(text: str) -> str:
    """A message without keys, which some endpoints repeat, and without what terminals would obey."""
    return redact(plain_text(text.encode("utf-8", "replace").decode("utf-8")))


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


def _wait(state: RetryCallState) -> float:
    """Seconds to the next attempt: what the endpoint asks for, or else 1, 2, 4, .. and some jitter."""
    from openai import APIStatusError
    from tenacity import wait_exponential_jitter

    error = state.outcome.exception() if state.outcome else None
    asked = retry_after(error.response.headers) if isinstance(error, APIStatusError) else None
    if asked is not None:
        return min(asked, MAX_WAIT_S) * random.uniform(1.0, 1.1)
    return wait_exponential_jitter(initial=1, max=MAX_WAIT_S, jitter=1)(state)


def _key(variable: str) -> str:
    """The API key of the environment; empty if there is none."""
    key = (os.environ.get(variable) or "").strip()
    if not (key.isascii() and key.isprintable()):
        raise InputError(f"{variable} holds characters that no key has; copy it again")
    return key
