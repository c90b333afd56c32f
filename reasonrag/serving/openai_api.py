"""The server side of OpenAI's chat completions and vLLM's `/pooling`: valid requests, the form of answers and errors.

Does not know where replies and scores come from. Unknown fields are ignored, as other servers do; known ones must be
valid.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Literal, Self

import orjson
from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from preference import Message
from preference.records import Items, first_error

MOST_CHOICES = 128
"""OpenAI's limit per request."""
MOST_BODY_BYTES = 8 * 1024 * 1024


class _Asked(BaseModel):
    """What every request names."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    model: str | None = None
    messages: Items[Message] = Field(min_length=1)

    @classmethod
    def read(cls, body: bytes) -> Self:
        """Parse a body. Raises ValueError if it is not a valid request."""
        try:
            return cls.model_validate(orjson.loads(body))
        except ValidationError as error:
            raise ValueError(first_error(error)) from error
        except orjson.JSONDecodeError as error:
            raise ValueError(f"the body is not JSON: {error}") from error


class PoolingRequest(_Asked):
    """A conversation whose last turn is the step to be scored. use_activation: vLLM applies a sigmoid by default."""

    use_activation: Literal[False]


class ChatCompletionRequest(_Asked):
    """A chat completion request, with OpenAI's defaults; null means the default too."""

    temperature: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    top_p: float = Field(default=1.0, gt=0, le=1)
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    n: int = Field(default=1, ge=1, le=MOST_CHOICES)
    stop: tuple[str, ...] = Field(default=(), fail_fast=True)
    seed: int | None = None
    stream: bool = False
    logprobs: bool = False

    @field_validator("temperature", "top_p", "n", "stop", "stream", "logprobs", mode="before")
    @classmethod
    def _default(cls, said: object, info: Any) -> object:
        return cls.model_fields[info.field_name].default if said is None else said

    @field_validator("stop", mode="before")
    @classmethod
    def _one_stop(cls, said: object) -> object:
        return (said,) if isinstance(said, str) else said

    @field_validator("stop")
    @classmethod
    def _no_empty_stop(cls, said: tuple[str, ...]) -> tuple[str, ...]:
        if "" in said:
            raise ValueError("an empty string would end every reply at once")
        return said

    @property
    def token_limit(self) -> int | None:
        """Most tokens of a reply; None if the request sets no limit."""
        return self.max_completion_tokens or self.max_tokens


def as_json(content: object, *, status: int = HTTPStatus.OK) -> web.Response:
    return web.Response(body=orjson.dumps(content), status=status, content_type="application/json")


def error_answer(status: int, message: str, code: str) -> web.Response:
    """An error in OpenAI's format."""
    kind = "server_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"
    return as_json({"error": {"message": message, "type": kind, "param": None, "code": code}}, status=status)


def completion(
    model: object, replies: Iterable[tuple[str | None, str]], *, prompt_tokens: int, completion_tokens: int
) -> dict[str, Any]:
    """The body of an answer. completion_tokens: of all replies together."""
    return {
        "object": "chat.completion",
        "model": model,
        "choices": [
            {"index": i, "finish_reason": finish_reason, "message": {"role": "assistant", "content": text}}
            for i, (text, finish_reason) in enumerate(replies)
        ],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
        },
    }


def add_logprobs(body: dict[str, Any], tokens: Iterable[Iterable[tuple[str, float]]]) -> None:
    """Add to an answer the tokens of each choice, with their log-probabilities."""
    for choice, listed in zip(body["choices"], tokens, strict=True):
        choice["logprobs"] = {
            "content": [
                {"token": text, "logprob": logprob, "bytes": list(text.encode()), "top_logprobs": []}
                for text, logprob in listed
            ]
        }


def identified(completion: Mapping[str, Any]) -> dict[str, Any]:
    """The body with its own id and timestamp."""
    return {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), **completion}


def cut_at(text: str, stop: Sequence[str]) -> str:
    """The text before the first stop string, which is dropped, as other endpoints do."""
    found = [position for position in map(text.find, stop) if position >= 0]
    return text[: min(found)] if found else text
