"""The interface of language models: a protocol, its request and its completion.

Decides what determines an answer: model, messages, sampling parameters, seed and sample number. Knows no endpoint.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import orjson
from pydantic import BaseModel, Field, field_validator

from preference import Message
from preference.records import AbsentIfEmpty, Record

MOST_BYTES_PER_TOKEN = 16
"""Token counts below that are replaced by bytes. Qwen2.5's vocabulary makes up to 12 bytes a token of single words, and
10 of sentences, in six data sets; our estimates count four characters, of up to 4 bytes each.
Only runs of one character have more."""


class Sampling(Record, extra="forbid"):
    """Sampling parameters of an endpoint. Frozen; part of every answer's key.

    extra_body: further fields of a request's body, as JSON. logprobs: whether the log-probabilities of the reply's
    tokens are wanted. These and reasoning_effort are absent from every dump where they are not set.
    """

    temperature: float = Field(ge=0, le=2)
    top_p: float = Field(gt=0, le=1)
    max_tokens: int = Field(ge=1)
    stop: tuple[str, ...] = ()
    extra_body: AbsentIfEmpty[dict[str, Any] | None] = None
    logprobs: AbsentIfEmpty[bool] = False
    reasoning_effort: AbsentIfEmpty[str | None] = None
    native_tools: AbsentIfEmpty[bool] = False
    """Whether an endpoint is sent `tools` and gives `tool_calls`, in place of their text in prompt and reply."""

    @property
    def shown(self) -> dict[str, Any]:
        """As config.json has it."""
        return self.model_dump(mode="json", exclude={"stop"})


@dataclass(frozen=True)
class ChatRequest:
    """`len(samples)` draws of a reply to the same messages.

    samples: number of each draw within its question; different numbers are independent draws.
    seeds: one seed per draw, for endpoints that honour it.
    priority: among waiting requests, smaller first. question_id: the question that the answer is for.
    think_in_format: whether the prompt asks for think tags, so that a reply that leaves one open is whole.
    Neither priority, question_id nor think_in_format determines the answer.
    """

    messages: tuple[Message, ...]
    sampling: Sampling
    samples: tuple[int, ...]
    seeds: tuple[int, ...]
    priority: int = 0
    question_id: str = ""
    think_in_format: bool = False

    def draws(self, start: int, stop: int) -> ChatRequest:
        """The request for a slice of its draws."""
        return replace(self, samples=self.samples[start:stop], seeds=self.seeds[start:stop])

    def without_stop(self) -> ChatRequest:
        """The request without stop strings."""
        return replace(self, sampling=self.sampling.model_copy(update={"stop": ()}))

    @cached_property
    def wire_messages(self) -> list[dict[str, str]]:
        return [{"role": message.role, "content": message.content} for message in self.messages]

    @cached_property
    def size(self) -> int:
        """Bytes of all messages."""
        return sum(len(message.content.encode()) for message in self.messages)

    def keys(self, *, model: str) -> list[str]:
        """Key of each draw's answer: a hash of everything that determines it, independent of the other draws."""
        common = [model, self.wire_messages, self.sampling.model_dump(mode="json")]
        begun = hashlib.sha256(orjson.dumps(common)[:-1])
        found = list[str]()
        for sample, seed in zip(self.samples, self.seeds, strict=True):
            own = begun.copy()
            own.update(b",%d,%d]" % (sample, seed))
            found.append(own.hexdigest())
        return found


class TokenLogprob(NamedTuple):
    """A piece of a reply's text, and its natural log-probability (at most 0) under the model: before temperature and
    top_p at vLLM and at our own server; what others give is theirs to say."""

    text: str
    logprob: float


NO_LOGPROBS = (
    "no log-probabilities of its tokens, which this method needs: use an endpoint that gives `logprobs`, as vLLM and "
    "OpenAI's gpt-4o do, or a model's folder as --model, and a new --run"
)
"""The end of a message about a model that gives none, with what to do."""


def tokens_within(tokens: Iterable[TokenLogprob], start: int, stop: int) -> tuple[TokenLogprob, ...]:
    """The tokens of a text's characters from `start` to before `stop`; one on a border is cut, and keeps its number."""
    found, at = list[TokenLogprob](), 0
    for token in tokens:
        if piece := token.text[max(0, start - at) : max(0, stop - at)]:
            found.append(TokenLogprob(piece, token.logprob))
        at += len(token.text)
    return tuple(found)


class Completion(BaseModel, frozen=True, allow_inf_nan=False):
    """One reply, and what its request cost.

    requests, prompt_tokens, completion_tokens, cached_tokens (prompt tokens in the endpoint's cache): the whole
    request's numbers are on its first reply and 0 on the others, so that sums are right whichever replies share a
    request. So are reasoning_tokens, which are part of completion_tokens.
    finish_reason: as received, empty if the endpoint gave none; `reasonrag.llm.endpoint.endings` says what it means.
    reasoning: what the endpoint returned apart from the text; a think block within the text stays there.
    refusal: the words of a refusal apart from the text. called: whether there is a tool call.
    said: the endpoint's words, where an error stands for the reply.
    prompt_counted: tokens of the prompt as an endpoint counted them, whatever is billed; 0 where it did not.
    prompt_bytes: of the request's messages, there. server: a digest of its address.
    at_limit: it has as many tokens as it may, by what the endpoint counted of the request.
    tokens_bounded: the endpoint reported no tokens of the prompt or of the replies, or fewer than their bytes can be;
        these are counted as bytes, an upper bound.
    logprobs: the tokens of the text, which they are together; None where they were not asked for, or not given.
    """

    text: str
    finish_reason: str
    reasoning: str = ""
    refusal: str = ""
    said: str = ""
    called: bool = False
    at_limit: bool = False
    logprobs: tuple[TokenLogprob, ...] | None = None
    requests: int = 1
    prompt_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    cached_tokens: int = 0
    tokens_bounded: bool = False
    prompt_counted: int = 0
    prompt_bytes: int = 0
    server: str = ""

    @field_validator("text", "reasoning", "refusal", "finish_reason", mode="before")
    @classmethod
    def _encodable(cls, text: object) -> object:
        """Replace lone surrogates, which no file can hold, by question marks."""
        if isinstance(text, str) and not text.isascii():
            return text.encode("utf-8", "replace").decode("utf-8")
        return text


USAGE = (
    *("requests", "prompt_tokens", "completion_tokens", "reasoning_tokens", "cached_tokens"),
    *("tokens_bounded", "prompt_counted", "prompt_bytes", "server"),
)
"""Fields of a completion that are the whole request's."""


class ChatModel(Protocol):
    """Anything that answers chat requests."""

    name: str

    async def complete(self, request: ChatRequest) -> Sequence[Completion]:
        """Completions of all samples in order, or of the first few (at least one). Raises ModelError."""

    async def check(self) -> None:
        """Raises InputError if no work should be started with this model (unreachable, unauthorised, unknown)."""


class WrappedModel:
    """What wrappers of a `ChatModel` share: its name and its check."""

    def __init__(self, inner: ChatModel) -> None:
        self.name = inner.name
        self.inner = inner

    async def check(self) -> None:
        await self.inner.check()


def estimate_tokens(text: str) -> int:
    """Tokens of a text at four characters each: a rule of thumb for English, not a count."""
    return math.ceil(len(text) / 4)


def sample_seed(run_seed: int, question_id: str, messages: Sequence[Message], sample: int) -> int:
    """Seed of one draw, a pure function of run, question, state and sample number; fits 31 bits."""
    identity = [run_seed, question_id, [(m.role, m.content) for m in messages], sample]
    return int.from_bytes(hashlib.sha256(orjson.dumps(identity)).digest()[:4]) >> 1
