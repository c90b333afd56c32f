"""One or several OpenAI-compatible endpoints as a `ChatModel`.

Decides how draws become HTTP requests, when a request fails, and when a run waits no longer: the trial request is one
of its requests. `trouble` decides the waits between attempts, `address_behaviour` what is left out of a request,
`rate_limits` and `scheduler` when it is sent and where. Knows no agent and no tree.
"""

from __future__ import annotations

import asyncio
import math
import os
import re
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from preference import Message
from reasonrag.errors import EndpointLost, InputError, ModelError, RunStopped, UnexpectedError
from reasonrag.llm.chat import NO_LOGPROBS, ChatRequest, Completion, Sampling, estimate_tokens
from reasonrag.llm.endpoint.address_behaviour import Answer, OneAddress, refused_parameters
from reasonrag.llm.endpoint.endings import CUT
from reasonrag.llm.endpoint.error_objects import end_of_draws, is_refusal, lacks_model
from reasonrag.llm.endpoint.http_client import BadAnswerError, Connection, HttpAnswer, completions_of, error_of
from reasonrag.llm.endpoint.rate_limits import ASKED_TO_WAIT, DOWN, WINDOW_FULL, Pace, Rate, Sent
from reasonrag.llm.endpoint.scheduler import RequestScheduler
from reasonrag.llm.endpoint.trouble import (
    FIRST_WAIT_S,
    LONG_WAIT_S,
    MAX_ATTEMPTS,
    MAX_DOWN_S,
    MAX_WAIT_S,
    Attempts,
    Patience,
    asked_to_wait,
    clock_time,
    error_cause,
    error_message,
    heeded_wait,
    instead_of,
    is_account_refused,
    is_busy,
    is_endpoint_failure,
    is_retryable,
    is_status,
    seconds_text,
    state_of,
    trouble_of,
)
from reasonrag.llm.reasoning import AMPLE_TOKENS, more_room
from reasonrag.llm.settings import MAX_WAIT_MIN, LimitSettings
from reasonrag.redaction import secrets
from reasonrag.rendering import counted, one_line
from reasonrag.web.client import http_address, shown_url

if TYPE_CHECKING:
    from openai import APIStatusError
    from tenacity import AsyncRetrying, RetryCallState

OPENAI_BASE_URL = "https://api.openai.com/v1"
KEY_VARIABLE, VALUE_KEY_VARIABLE = "OPENAI_API_KEY", "REASONRAG_VALUE_API_KEY"
JUDGE_KEY_VARIABLE, READER_KEY_VARIABLE = "REASONRAG_JUDGE_API_KEY", "REASONRAG_READER_API_KEY"
"""Environment variables with the keys. A value model or judge at its own address must not see the first one."""
MAX_GIVEN_UP = 5
"""After this many failed requests in a row, with no answer between, the endpoint counts as down."""
MAX_REJECTED = 20
"""After this many, one that a prompt may cause ends the run, if the trial is not answered any more, either."""
_REJECTING = frozenset({"http_400", "http_403", "http_413", "http_422", "too_large"})
"""Failures that a prompt may cause by itself."""
_BY_THIS_PROMPT = re.compile("bad_answer|http_4(?!01|02|04|08|29)..")
"""Failures that a prompt causes by itself where others were answered meanwhile."""
MOST_KEPT = 300
"""Characters of an error that are kept with the draws it stands for."""
_BEHIND_ALL = 10**9
"""Larger than any priority: lets another request probe an endpoint that is wholly down, in case this one breaks it."""
_TRIAL_TOKENS = 256
"""Token limit of the trial reply: enough for one word, and for a model that reasons to show that it does."""
_BROKEN_TRIALS = 3
"""Trials at an address that answers with nothing but errors, none of which says that it is busy."""
_PLAIN_SAMPLING = Sampling(temperature=1, top_p=1, max_tokens=_TRIAL_TOKENS)


@dataclass(frozen=True, slots=True)
class CallFailure:
    """One failed attempt of a request."""

    cause: str
    message: str
    attempt: int
    final: bool


@dataclass(frozen=True, slots=True)
class Limits:
    """Request rates and timeouts of a model.

    concurrency: requests in flight over all addresses. timeout: seconds per request. rpm, tpm: requests and tokens per
    minute of each address; None: from its x-ratelimit headers, if any. patience: seconds without any answer after which
    the endpoint is lost. parts: of so many equal parts of these rates this process uses one. max_wait: seconds without
    an answer after which a run stops, where every address asks to wait longer. first_wait: before the second attempt.
    """

    concurrency: int
    timeout: float
    rpm: int | None = None
    tpm: int | None = None
    patience: float = MAX_DOWN_S
    parts: int = 1
    max_wait: float = 60 * MAX_WAIT_MIN
    first_wait: float = FIRST_WAIT_S

    @classmethod
    def of(cls, given: LimitSettings, parts: int = 1) -> Limits:
        max_wait = 60 * given.max_wait
        return cls(given.concurrency, given.timeout, given.rpm, given.tpm, parts=parts, max_wait=max_wait)

    def pace(self) -> Pace:
        """Of one address, as it begins."""
        requests, tokens = (Rate(None if each is None else each / self.parts) for each in (self.rpm, self.tpm))
        return Pace(self.concurrency, requests, tokens, self.parts)


def _no_key(model: str, name_flag: str, key_variable: str) -> str:
    prefix = f"{name_flag.removesuffix('-model')}-"
    role = prefix.strip("-").upper()
    whose = f" for {name_flag} {model}" if role else ""
    key = f", or with its key in REASONRAG_{role}_API_KEY" if role and key_variable == KEY_VARIABLE else ""
    return (
        f"no API key{whose}: set {key_variable}, or give {prefix}base-url of an endpoint that needs none{key}, "
        f"or use {name_flag} offline"
    )


class EndpointModel:
    """Chat completions over HTTP, from one address or several that serve the same model.

    sampling: of the requests to come, which the check tries. flags, name_flag: prefix of this model's flags, and the
    one with its name, for messages.
    """

    def __init__(
        self,
        model: str,
        limits: Limits,
        *,
        sampling: Sampling = _PLAIN_SAMPLING,
        base_urls: Sequence[str] = (),
        flags: str = "--",
        key_variable: str = KEY_VARIABLE,
        name_flag: str = "--model",
    ) -> None:
        self.name = model
        self._flags, self._key_variable = flags, key_variable
        addresses, key = list(base_urls) or [os.environ.get("OPENAI_BASE_URL") or OPENAI_BASE_URL], key_in(key_variable)
        for base_url in addresses:
            check_address(base_url, key_variable)
            if not key and base_url == OPENAI_BASE_URL:
                raise InputError(_no_key(model, name_flag, key_variable))
        self.on_failure: Callable[[CallFailure], None] = lambda _: None
        """Called with every failed attempt; may be set later."""
        self.say: Callable[[str], None] = lambda _: None
        """Called with messages about an endpoint for the user; may be set later."""
        self.name_flag = name_flag
        self._endpoints = [
            OneAddress(Connection(base_url, key or "none", limits.timeout), limits.pace()) for base_url in addresses
        ]
        self._limits = limits
        self.sampling = sampling
        """Of the check; that of a run which has begun may be set before it."""
        self._reply_tokens = 64.0
        """Expected completion tokens per draw: a running mean."""
        self._answered = 0
        self._secrets = secrets()
        self.checked = False
        self.settles_effort, self.effort = False, ""
        """Whether the check decides on a reasoning effort (may be set before it), and which one it took."""
        self._unsaid: list[str] | None = None
        """What the trials have shown, until it is known which of them count."""
        self.begin()

    def _instead(self, error: APIStatusError, request: ChatRequest, server: str) -> list[Completion]:
        """The completions that an error stands for, as it is about the prompt or the reply; none if it does not."""
        draws, sampling = len(request.samples), request.sampling
        reason = end_of_draws(error, max_tokens=sampling.max_tokens)
        words = one_line(error_message(error))[:MOST_KEPT]
        first = Completion(text="", finish_reason=reason, said=words, server=server)
        if reason == CUT:  # its usage is the most it can be, as the endpoint reports none
            most = {"prompt_tokens": request.size, "completion_tokens": draws * sampling.max_tokens}
            return [first.model_copy(update=most | {"tokens_bounded": True})]
        return [first, *[first.model_copy(update={"requests": 0, "server": ""})] * (draws - 1)] if reason else []

    def begin(self) -> None:
        """Reset for a new session, whatever ended the last one."""
        self.scheduler = RequestScheduler(
            [each.pace for each in self._endpoints],
            most=self._limits.concurrency,
            addresses=[each.connection.base_url for each in self._endpoints],
        )
        self._given_up = 0
        self._patience = Patience(self._shown(), self._limits.patience, self._limits.max_wait)
        self.stopped: RunStopped | None = None
        """Why no more requests are sent; None if they are."""
        self._stopping = asyncio.Event()
        self._pauses: list[float] = []
        """Times at which failed requests are retried."""

    async def check(self) -> None:
        """Request one short reply at every address, which proves address, key and name at once.

        An unreachable address is ignored while another one answers.
        """
        if self.checked:
            return
        self._unsaid = []
        try:
            await self._try_all()
            if self.settles_effort and (self.reasons or "temperature" in self.refused):
                await self._settle_effort()
        finally:
            unsaid, self._unsaid = self._unsaid, None
            for lesson in unsaid:
                self.say(lesson)
        self.checked, room = True, self.sampling.max_tokens
        if self.reasons and room < AMPLE_TOKENS:
            self.say(
                f"{self.name} reasons before it answers, and --max-reply-tokens {room} limits reasoning and reply "
                f"together: {more_room(self._flags)}"
            )

    async def _settle_effort(self) -> None:
        """Ask a model that reasons, or takes no temperature, not to reason; if nothing changes, all is as it was."""
        before, reasoned = (self._endpoints, self.sampling, self._unsaid), self.reasons
        self._endpoints = [OneAddress(each.connection, each.pace) for each in self._endpoints]
        self.sampling = self.sampling.model_copy(update={"reasoning_effort": "none"})
        self._unsaid = []
        try:
            await self._try_all()
            if not self.reasons and (reasoned or "temperature" not in self.refused):
                self.effort, way_back = "none", "--reasoning-effort low has it reason"
                self.say(f"{self.name} reasons by default, and is asked not to: reasoning_effort none ({way_back})")
        except InputError as error:
            if not (is_status(error.__cause__) and is_refusal(error.__cause__)):
                raise
        finally:
            if not self.effort:
                self._endpoints, self.sampling, self._unsaid = before

    async def _try_all(self) -> None:
        """Send a trial to all addresses. Raises InputError if none answers."""
        unreachable = list[InputError]()
        for endpoint in self._endpoints:
            try:
                await self._check(endpoint, last_hope=len(unreachable) == len(self._endpoints) - 1)
            except _UnreachableError as error:
                unreachable.append(error)
        if len(unreachable) == len(self._endpoints):
            raise unreachable[0]

    async def _check(self, endpoint: OneAddress, *, last_hope: bool) -> None:
        """Send the trial. Raises InputError for what only the user can fix, WaitTooLong. last_hope: whether no other
        address has answered; then it waits as long as the server asks."""
        from openai import APIConnectionError, APIStatusError

        shown, trial, trials = shown_url(endpoint.connection.base_url), self._trial(), Attempts()

        async def attempt() -> Completion:
            paid = list[Answer]()
            try:
                paid.append(await self._post(endpoint, trial))
                self._say_of(endpoint, *endpoint.learn(paid[0], trial))
                self._say_of(endpoint, *endpoint.learn_of_trial(paid[0].completions[0], flags=self._flags))
            except Exception as error:
                if not paid:
                    self._note_trial(error, endpoint, trials, last_hope=last_hope)
                    raise
                self._stop_after(error)
            return paid[0].completions[0]

        def passes(error: BaseException) -> bool:
            waits = last_hope or endpoint.pace.asked_until - self.scheduler.clock() <= MAX_WAIT_S
            absent = isinstance(error, APIConnectionError)
            broken = isinstance(error, Exception) and trouble_of(error) == "broken" and trials.counted >= _BROKEN_TRIALS
            return is_retryable(error) and waits and not (absent or broken)

        try:
            reply: Completion = await self._retrying(trials, passes, paced=False)(attempt)
        except APIConnectionError as error:
            advice = f"Check {self._flags}base-url and that the server runs"
            raise _UnreachableError(f"cannot reach {shown}: {error_message(error)}. {advice}") from error
        except BadAnswerError as error:
            raise _UnreachableError(
                f"{shown} does not speak OpenAI's API: {error_message(error)}. Check {self._flags}base-url"
            ) from error
        except APIStatusError as error:
            raise await self._refused(endpoint, error) from error
        if reply.said and reply.finish_reason != CUT:
            raise InputError(f"{shown} answers a prompt of two words with an error about the prompt ({reply.said})")
        if self.sampling.logprobs and reply.text and reply.logprobs is None:
            raise InputError(f"{self.name} at {shown} gives {NO_LOGPROBS}")

    def _note_trial(self, error: Exception, endpoint: OneAddress, trials: Attempts, *, last_hope: bool) -> None:
        """Count a failed trial, unless capacity is waited for, which is said, and heed how long the address asks to
        wait. Raises WaitTooLong."""
        now, asked = self.scheduler.clock(), asked_to_wait(error)
        waits, waited = last_hope and trouble_of(error) == "scarce", now - (self._patience.useless_since or now)
        if waits and self._patience.useless_since is None:
            lasts = seconds_text(self._limits.max_wait)
            self._say_of(endpoint, f"is {state_of(error)}, and is waited for, {lasts} at most", error=error)
        trials.counted += MAX_ATTEMPTS * (waited > self._limits.max_wait) if waits else 1
        if is_busy(error) and asked:
            endpoint.pace.asked_until = endpoint.pace.paused_until = now + asked
        if is_retryable(error):
            self._heed(endpoint, error, now)

    def _trial(self) -> ChatRequest:
        """The request of the check: once per address and session, outside caps and counts; with what many refuse: a
        stop string, which no reply has, and another temperature than the usual one, as some steps have it."""
        tried = {"max_tokens": _TRIAL_TOKENS, "stop": ("</trial>",)}
        tried |= {"temperature": 0.5} if self.sampling.temperature == 1 else {}
        return ChatRequest(
            messages=(Message(role="user", content="Say yes."),),
            sampling=self.sampling.model_copy(update=tried),
            samples=(0,),
            seeds=(0,),
            think_in_format=True,  # its stop string cuts nothing; what it shows of reasoning counts below
        )

    async def _refused(self, endpoint: OneAddress, error: APIStatusError) -> InputError:
        """The error for a refusal, with what the user can do."""
        from openai import APIError

        base_url, reason = endpoint.connection.base_url, error_message(error)
        shown = shown_url(base_url)
        gone = lacks_model(error, self.name)
        if is_account_refused(error) or (error.status_code == HTTPStatus.FORBIDDEN and not gone):
            return InputError(f"{shown} {self._shut(error, reason)}")
        served: Collection[str] = ()
        with suppress(APIError, BadAnswerError):  # without the list a run can go on
            served = await endpoint.connection.listed_models()
        words, found = instead_of(self.name if gone else "", served)
        hint = "" if gone or served or urlsplit(base_url).path.strip("/") else ". Most addresses end in /v1"
        if extra := [each for each in self.sampling.extra_body or {} if each in reason]:
            hint += f". {self._flags}extra-body sets {', '.join(extra)}: leave it out"
        elif (effort := self.sampling.reasoning_effort) and "reasoning_effort" in reason:
            hint += f". --reasoning-effort {effort} is refused: give one that it takes, or leave it out"
        kind = InputError
        if is_retryable(error):
            kind, hint = _UnreachableError, f"{hint}. It is {state_of(error)}: run the same command later"
        refused = kind(f"{shown} does not answer for the model {self.name} ({reason}){words}{hint}")
        refused.instead = {self.name_flag: found} if found else None
        return refused

    def _shut(self, error: Exception, reason: str) -> str:
        """That an address takes no request of this account, with what the user can do."""
        if getattr(error, "status_code", None) == HTTPStatus.PAYMENT_REQUIRED:
            return f"has no credit or quota left for this account ({reason}). Add some"
        return f"refuses the API key ({reason}). Check {self._key_variable}"

    def _retrying(self, trials: Attempts, passes: Callable[[BaseException], bool], *, paced: bool) -> AsyncRetrying:
        """Attempts until one succeeds or too many failed. passes: whether an error may. paced: see `heeded_wait`."""
        from tenacity import AsyncRetrying, retry_if_exception, wait_exponential, wait_random

        first = self._limits.first_wait
        backoff = wait_exponential(multiplier=first, max=MAX_WAIT_S) + wait_random(0, first)
        return AsyncRetrying(
            stop=lambda _: trials.counted >= MAX_ATTEMPTS,
            retry=retry_if_exception(passes),
            wait=lambda state: max(backoff(state), heeded_wait(_error_of(state), paced=paced)),
            sleep=self._pause,
            before_sleep=self._report_retry,
            reraise=True,
        )

    async def close(self) -> None:
        for endpoint in self._endpoints:
            await endpoint.connection.close()

    async def complete(self, request: ChatRequest) -> Sequence[Completion]:
        """One request, retried until it is answered or fails; the answer may have fewer choices than draws.

        Raises ModelError if this request gets no answer, RunStopped if no request will.
        """
        trials, before = Attempts(), self._answered
        try:
            return await self._send(request, trials)
        except Exception as error:  # noqa: BLE001 - `retrying` is told of it: made for every request, it costs 4 % of all
            failures = iter([error])
        from openai import APIError

        async def send() -> list[Completion]:
            for failure in failures:
                raise failure
            return await self._send(request, trials)

        retrying = self._retrying(trials, is_retryable, paced=True)
        try:
            return await retrying(send)
        except (APIError, BadAnswerError) as error:
            attempts = int(retrying.statistics.get("attempt_number", 1))
            failure = _failure(error, attempt=attempts, final=True)
            self.on_failure(failure)
            tries = f" after {attempts} attempts" if attempts > 1 else ""
            message = f"{self._shown()} gave no answer{tries}: {failure.message}"
            rejected, alone = failure.cause in _REJECTING, self._answered > before  # others were answered meanwhile
            self._given_up += is_retryable(error) or rejected
            gone = is_status(error) and lacks_model(error, self.name) and not alone
            if is_account_refused(error):
                shut = f"{self._shown()} {self._shut(error, failure.message)}"
                raise EndpointLost(f"{shut}, then run the same command to continue") from error
            if gone or (rejected and self._given_up >= MAX_REJECTED and not await self._answers_trial()):
                raise EndpointLost(f"{message}. Fix that, then run the same command to continue") from error
            rejected |= alone and bool(_BY_THIS_PROMPT.fullmatch(failure.cause))
            raise ModelError(message, cause=failure.cause, of_prompt=rejected) from error

    async def _answers_trial(self) -> bool:
        """Whether some address still answers the trial, so that prompts are to blame for what failed in a row."""
        from openai import APIError

        self._given_up = 0
        for endpoint in self._endpoints:
            with suppress(APIError, BadAnswerError):
                await self._post(endpoint, self._trial())
                return True
        return False

    async def _send(self, request: ChatRequest, trials: Attempts) -> list[Completion]:
        """One attempt, once it has a slot; its result is reported to the endpoint's pace."""
        prompt_tokens = sum(estimate_tokens(message.content) for message in request.messages)
        expected = prompt_tokens + len(request.samples) * self._reply_tokens
        priority = request.priority
        if all(each.pace.down_since is not None for each in self._endpoints):
            priority += _BEHIND_ALL * trials.while_down
        paid = list[Answer]()
        try:
            slot = await self.scheduler.take(priority, expected, request.question_id, trials.failed)
            try:
                endpoint = self._endpoints[slot.lane]
                try:
                    paid.append(await self._post(endpoint, request))
                except Exception as error:
                    trials.failed[slot.lane] += 1
                    self._note(error, slot, trials)
                    raise
                self._account(paid[0], slot)
                self._say_of(endpoint, *endpoint.learn(paid[0], request))
            finally:
                self.scheduler.give_back(slot)
        except Exception as error:
            if not paid:
                raise
            self._stop_after(error)
        return paid[0].completions

    async def _post(self, endpoint: OneAddress, request: ChatRequest) -> Answer:
        """Send a request; if parameters of it are refused, send it again at once without them. Each request goes by its
        own refusals, as many are in flight when the first one is refused."""
        asked = request.draws(0, 1) if endpoint.gives_one_choice else request
        without: list[str] = []
        while True:
            body = endpoint.body(self.name, asked, without=without)
            try:
                answer = await endpoint.connection.post(body)
                completions = self._read(answer, request, endpoint.mark)
                return Answer(completions[: len(request.samples)], answer.headers, without)
            except Exception as error:
                if not is_status(error):
                    raise
                if said := self._instead(error, asked, endpoint.mark):
                    return Answer(said, error.response.headers, without)
                named = refused_parameters(error, body)
                if not named and "n" in body and is_refusal(error):
                    named = ["n"]  # some refuse several choices without a word about them
                if not named:
                    raise
                if "n" in named:
                    asked = asked.draws(0, 1)
                without += named

    def _read(self, answer: HttpAnswer, request: ChatRequest, server: str) -> list[Completion]:
        """Raises APIStatusError for an error that came with a successful status, BadAnswerError for other bodies."""
        try:
            return completions_of(
                answer.content, self._secrets, prompt_size=request.size, asked=request.sampling, server=server
            )
        except BadAnswerError as error:
            raise error_of(answer) or error from None
        except Exception as error:
            raise UnexpectedError(error, kept=False) from error

    def _stop_after(self, error: Exception) -> None:
        """Send no more requests after an error that followed an answer, which is paid, and is returned."""
        self.stop(error if isinstance(error, RunStopped) else UnexpectedError(error, kept=True))

    def _account(self, answer: Answer, slot: Sent) -> None:
        """Count an answer, and report it to the pacing of its endpoint."""
        first, endpoint = answer.completions[0], self._endpoints[slot.lane]
        spent = 0 if first.tokens_bounded else first.prompt_tokens + first.completion_tokens
        endpoint.pace.succeeded(slot, tokens=spent or slot.tokens, now=self.scheduler.clock())
        self._given_up = 0
        self._answered += 1
        self._patience.useless_since, endpoint.trouble = None, ""
        if spent:
            per_draw = first.completion_tokens / len(answer.completions)
            self._reply_tokens += 0.05 * (per_draw - self._reply_tokens)

    def tell(self, server: str, lesson: str) -> None:
        """Tell the user of a server, by its mark."""
        for endpoint in self._endpoints:
            if endpoint.mark == server:
                self._say_of(endpoint, lesson)

    def _say_of(self, endpoint: OneAddress, *lessons: str, error: Exception | None = None) -> None:
        words = f": {one_line(error_message(error))}" if error else ""
        say = self.say if self._unsaid is None or error else self._unsaid.append
        for lesson in lessons:
            say(f"{self.name} at {shown_url(endpoint.connection.base_url)} {lesson}{words}")

    def _note(self, error: Exception, slot: Sent, trials: Attempts) -> None:
        """Report a failure to the pace, and count the attempt if it is about the request."""
        now, endpoint = self.scheduler.clock(), self._endpoints[slot.lane]
        pace = endpoint.pace
        was_useless = pace.useless_since is not None
        sick = len(self._endpoints) > 1 or self._given_up >= MAX_GIVEN_UP
        blamed = is_busy(error) or is_endpoint_failure(error) or (sick and is_retryable(error))
        scarce = trouble_of(error) == "scarce"  # each request waits by itself, and all go on once there is room
        if is_busy(error):
            pace.learn(error.response.headers)  # type: ignore[attr-defined]
            pace.refused(slot, retry_after=asked_to_wait(error) or None, now=now, too_many=not scarce)
        elif blamed:
            pace.failed(slot, now=now)
        else:
            pace.answered(slot)
        if scarce or (was_useless and blamed):
            trials.while_down += 1
        else:
            trials.counted += 1
        if blamed:
            self._heed(endpoint, error, now)

    def _heed(self, endpoint: OneAddress, error: Exception, now: float) -> None:
        """Raises EndpointLost or WaitTooLong where no address is of use for too long."""
        self._patience.heed(
            error, endpoint, self._endpoints, now, tell=lambda wait: self._say_of(endpoint, wait, error=error)
        )

    def stop(self, reason: RunStopped) -> None:
        """Send no more requests; those in flight continue."""
        self.scheduler.stop(reason)
        self.stopped = self.stopped or reason
        self._stopping.set()

    async def _pause(self, seconds: float) -> None:
        """Wait between two attempts. Raises RunStopped as soon as the run stops."""
        until = self.scheduler.clock() + seconds
        self._pauses.append(until)
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return
        finally:
            self._pauses.remove(until)
        if self.stopped is not None:
            raise self.stopped

    @property
    def refused(self) -> list[str]:
        """Parameters that some address is not sent."""
        return sorted({name for each in self._endpoints for name in each.left_out})

    @property
    def reasons(self) -> bool:
        """Whether a trial reply had reasoning."""
        return any(each.reasons for each in self._endpoints)

    @property
    def counts_bytes(self) -> bool:
        """Whether some tokens were counted as bytes."""
        return any(each.counts_bytes for each in self._endpoints)

    @property
    def in_flight(self) -> int:
        """Requests sent and not yet answered."""
        return self.scheduler.in_flight

    @property
    def waiting_for(self) -> str:
        """Why no request is sent: `rate limit: 12 s`; empty while requests go out."""
        why, seconds = self.scheduler.waiting_for, self.scheduler.waiting_until - self.scheduler.clock()
        if not self.in_flight and self._pauses and not why:
            left = max(0.0, min(self._pauses) - self.scheduler.clock())
            trouble = next((f", {each.trouble}" for each in self._endpoints if each.trouble), "")
            return f"retrying {counted(len(self._pauses), 'request')} in {math.ceil(left)} s{trouble}"
        if not why or why == WINDOW_FULL or seconds < 0:
            return ""
        if why in (DOWN, ASKED_TO_WAIT) and (trouble := self._endpoints[self.scheduler.waiting_lane].trouble):
            why = f"{trouble}, {why}" if why == ASKED_TO_WAIT else trouble
        if math.isinf(seconds):
            return f"{why}: tried now"
        return f"{why}: until {clock_time(seconds)}" if seconds > LONG_WAIT_S else f"{why}: {math.ceil(seconds)} s"

    def _shown(self) -> str:
        return ", ".join(shown_url(each.connection.base_url) for each in self._endpoints)

    def _report_retry(self, state: RetryCallState) -> None:
        if (error := _error_of(state)) is not None:
            self.on_failure(_failure(error, attempt=state.attempt_number, final=False))


class _UnreachableError(InputError):
    """An address, perhaps one of several, is unreachable."""


def _error_of(state: RetryCallState) -> BaseException | None:
    return state.outcome.exception() if state.outcome else None


def _failure(error: BaseException, *, attempt: int, final: bool) -> CallFailure:
    return CallFailure(error_cause(error), error_message(error), attempt, final)


def check_address(url: str, key_variable: str) -> None:
    """Raises InputError where no endpoint can be at a URL, or where it holds what belongs in the key's variable."""
    parts = http_address(url)
    if parts is None:
        raise InputError(
            f"{shown_url(url)!r} is not an endpoint's address; it should look like http://127.0.0.1:8000/v1"
        )
    if parts.username or parts.password:
        raise InputError(
            f"the address {shown_url(url)} contains a user or password, which conflicts with the "
            f"Authorization header of this API; put the key into {key_variable}"
        )
    if parts.fragment:  # it would be cut off, and with it the end of a key
        raise InputError(f"the address {shown_url(url)} contains a #, which is never sent; write it as %23")


def key_in(variable: str) -> str:
    """The API key from the environment; empty if there is none."""
    key = (os.environ.get(variable) or "").strip()
    if not (key.isascii() and key.isprintable()):
        raise InputError(f"{variable} contains characters that no key has; copy it again")
    return key
