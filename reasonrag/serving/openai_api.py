"""The server side of OpenAI's chat completions and vLLM's `/pooling`: valid requests, the form of answers and errors.

Does not know where replies and scores come from. Ignores unknown fields, as other servers do; known ones must be valid.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Annotated, Any, Literal, Self

import orjson
from aiohttp import web
from pydantic import BaseModel, BeforeValidator, Field, ValidationError, model_validator

from preference import Message
from preference.records import Items, first_error

MOST_BODY_BYTES = 8 * 1024 * 1024


class _Asked(BaseModel, frozen=True):
    """What every request names. Null means the default."""

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

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, said: object) -> object:
        return {name: each for name, each in said.items() if each is not None} if isinstance(said, dict) else said


class PoolingRequest(_Asked):
    """A conversation whose last turn is the step to be scored. use_activation: vLLM applies a sigmoid by default."""

    use_activation: Literal[False]


def _no_tools(said: object) -> None:
    if said:
        raise ValueError("this server renders no tools; ask without them, as reasonrag does without agent.native")


class ChatCompletionRequest(_Asked):
    """A chat completion request, with OpenAI's defaults and most choices. An empty stop string would end any reply."""

    temperature: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    top_p: float = Field(default=1.0, gt=0, le=1)
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    n: int = Field(default=1, ge=1, le=128)
    stop: Annotated[
        tuple[Annotated[str, Field(min_length=1)], ...],
        Field(fail_fast=True),
        BeforeValidator(lambda said: (said,) if isinstance(said, str) else said),
    ] = ()
    seed: int | None = None
    stream: Literal[False] = False
    logprobs: bool = False
    tools: Annotated[None, BeforeValidator(_no_tools)] = None

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
    model: object,
    replies: Iterable[tuple[str | None, str]],
    *,
    prompt_tokens: int,
    completion_tokens: int,
    logprobs: Iterable[Iterable[tuple[str, float]]] = (),
) -> dict[str, Any]:
    """The body of an answer. replies: text and finish_reason. completion_tokens: of all replies together. logprobs: the
    tokens of each reply, with their log-probabilities."""
    choices: list[dict[str, Any]] = [
        {"index": i, "finish_reason": finish_reason, "message": {"role": "assistant", "content": text}}
        for i, (text, finish_reason) in enumerate(replies)
    ]
    for choice, tokens in zip(choices, logprobs, strict=False):
        listed = [
            {"token": text, "logprob": logprob, "bytes": list(text.encode()), "top_logprobs": []}
            for text, logprob in tokens
        ]
        choice["logprobs"] = {"content": listed}
    usage = _usage(prompt_tokens, completion_tokens)
    return {"object": "chat.completion", "model": model, "choices": choices, "usage": usage}


def pooled(model: str, score: float, *, tokens: int) -> dict[str, Any]:
    """The body of an answer to a pooling request. tokens: that were read for the score."""
    data = [{"index": 0, "object": "pooling", "data": [score]}]
    return {"object": "list", "model": model, "data": data, "usage": _usage(tokens, 0)}


def _usage(read: int, written: int) -> dict[str, int]:
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def cut_at(text: str, stop: Sequence[str]) -> str:
    """The text before the first stop string, which is dropped, as other endpoints do."""
    return text[: min((position for each in stop if (position := text.find(each)) >= 0), default=len(text))]
