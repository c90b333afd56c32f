"""An OpenAI-compatible server for a trained model's folder, for `generate` and `evaluate`, and for a critic's.

    python -m reasonrag.serving FOLDER [--base MODEL] [--host 127.0.0.1] [--port 0] [--allow-host NAME] [--name NAME]
        [--max-batch 64] [--device auto|cpu|cuda]

Runs in any environment that has torch and transformers (and peft, for an adapter), the one of `make train-env` for
example, and then prints `serving at http://127.0.0.1:PORT/v1  (stop with Ctrl-C)`. `POST /v1/chat/completions`, of a
critic `POST /pooling`; `GET /v1/models`, `GET /health`. It needs no key and listens on loopback by default.

Prompts are rendered by the tokenizer's chat template, in a process with bounds (`chat_template`). Honoured: messages,
temperature, top_p, max_tokens or max_completion_tokens (by default and at most what the model's context leaves), n,
stop (dropped from the text), seed (choice i uses seed + i) and logprobs (of the tokens said, under the model's own
distribution, before temperature and top_p; no `top_logprobs`). The same seed gives the same reply whatever else is in
the batch, up to the noise described in `batching`. Refused: `stream`, and prompts that leave no room for a reply. Other
fields are ignored.

For many GPUs or long contexts vLLM is faster; this server is for environments without it. `transformers serve` was
measured in its place (benchmarks/RESULTS.md): replies in flight together do not follow their own seeds there.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import secrets
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from aiohttp import web

from preference import Message
from reasonrag.errors import InputError, ReasonragError
from reasonrag.model_folder import open_model
from reasonrag.redaction import excerpt
from reasonrag.rendering import one_line
from reasonrag.serving.chat_template import ChatTemplate
from reasonrag.serving.loading import LoadedModel, load
from reasonrag.serving.openai_api import (
    MOST_BODY_BYTES,
    ChatCompletionRequest,
    PoolingRequest,
    add_logprobs,
    as_json,
    completion,
    cut_at,
    error_answer,
    identified,
)
from reasonrag.serving.scores import Scorer
from reasonrag.settings import ALLOW_HOST
from reasonrag.web.client import LOOPBACK
from reasonrag.web.server import listening, read_body, serve_until_stopped

if TYPE_CHECKING:
    from reasonrag.serving.batching import Generation

MAX_BATCH = 64
Found = TypeVar("Found")
_CONTEXT = 4
"""Tokens that are decoded before a token, to see what it adds to the text."""
_INCOMPLETE = "\ufffd"
"""What a tokenizer writes for the beginning of a character."""


class _TooLongError(ValueError):
    """A prompt that leaves no room for a reply."""


class _OtherModelError(ValueError):
    """A model is asked for that is not served here."""


class _ModelFailedError(Exception):
    """What is the model's fault, not the request's."""


class _Service:
    """A loaded model, its chat template, and what computes: of a critic scores, of another model replies, in a thread
    of its own."""

    def __init__(self, loaded: LoadedModel, *, max_batch: int) -> None:
        self.loaded, self.template = loaded, ChatTemplate(loaded.tokenizer_source)
        if loaded.ends is None:
            self._scorer, self._thread = Scorer(loaded, max_batch=max_batch), None
            return
        from reasonrag.serving.batching import Decoder

        self._decoder = Decoder(loaded.model, loaded.tokenizer, ends=loaded.ends, max_batch=max_batch)
        self._thread = threading.Thread(target=self._decoder.run, name="decoder", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread is None or self._thread.is_alive()

    async def close(self) -> None:
        if self._thread:
            self._decoder.stop()
        await self.template.close()
        if self._thread:
            self._thread.join(timeout=10)

    def listed(self) -> dict[str, str]:
        """The model among those of this server: of a critic its folder, too, as vLLM says it."""
        root = {"root": str(Path(self.loaded.tokenizer_source).resolve())} if self.loaded.ends is None else {}
        return {"id": self.loaded.name, "object": "model"} | root

    async def prompt(self, messages: Sequence[Message], *, room: int) -> tuple[int, ...]:
        """Token ids of the messages. room: tokens that they must leave. Raises ValueError for messages that are too
        long, or that the template refuses."""
        ids = await self.template.prompt(messages)
        if len(ids) + room > self.loaded.context:
            raise _TooLongError(
                f"the prompt has {len(ids):,} tokens, and {self.loaded.name} takes {self.loaded.context:,} of prompt "
                "and reply together"
            )
        return ids

    async def chat(self, body: bytes) -> dict[str, Any]:
        """The answer to a chat completion request. Raises ValueError, and the model's exceptions."""
        asked = ChatCompletionRequest.read(body)
        self._check_name(asked.model)
        if asked.stream:
            raise ValueError("stream is not supported here; leave it out")
        prompt = await self.prompt(asked.messages, room=1)
        rows = await _computed(self.replies(asked, prompt))
        made = sum(len(row.reply) for row in rows)
        replies = [(cut_at(self._decoded(row.reply), row.stop), row.finish_reason or "stop") for row in rows]
        answer = completion(self.loaded.name, replies, prompt_tokens=len(prompt), completion_tokens=made)
        if asked.logprobs:
            add_logprobs(answer, map(self.tokens, rows))
        return identified(answer)

    async def pool(self, body: bytes) -> dict[str, Any]:
        """The answer to a pooling request: the raw score. Raises as `chat` does."""
        asked = PoolingRequest.read(body)
        self._check_name(asked.model)
        ids = await self.prompt(asked.messages, room=0)
        score = await _computed(self._scorer.score(ids))
        usage = {"prompt_tokens": len(ids), "completion_tokens": 0, "total_tokens": len(ids)}
        data = [{"index": 0, "object": "pooling", "data": [score]}]
        return {"object": "list", "model": self.loaded.name, "data": data, "usage": usage}

    def _check_name(self, named: str | None) -> None:
        if named not in (None, self.loaded.name):
            raise _OtherModelError(f"there is no model {named!r} here; this serves {self.loaded.name!r}")

    async def replies(self, asked: ChatCompletionRequest, prompt: tuple[int, ...]) -> list[Generation]:
        """All choices, complete. Raises the model's exceptions. Cancelling stops their generation."""
        from reasonrag.serving.batching import Generation

        loop, finished = asyncio.get_running_loop(), asyncio.Event()
        left = asked.n

        def count() -> None:
            nonlocal left
            left -= 1
            if not left:
                finished.set()

        def note(_: Generation) -> None:
            with contextlib.suppress(RuntimeError):  # the service has ended and its loop is closed
                loop.call_soon_threadsafe(count)

        room = self.loaded.context - len(prompt)
        seed = secrets.randbits(31) if asked.seed is None else asked.seed
        rows = [
            Generation(
                prompt=prompt,
                temperature=asked.temperature,
                top_p=asked.top_p,
                max_tokens=min(asked.token_limit or room, room),
                stop=asked.stop,
                seed=seed + i,
                done=note,
            )
            for i in range(asked.n)
        ]
        self._decoder.submit(rows)
        try:
            await finished.wait()
        finally:
            for row in rows:
                row.cancelled = True
        for row in rows:
            if row.error:
                raise row.error
        return rows

    def tokens(self, row: Generation) -> list[tuple[str, float]]:
        """The tokens of a reply, of which the first ones are its text and the others its stop string. Those that make
        up a character together are one token, with the sum of their log-probabilities."""
        found, start, total = list[tuple[str, float]](), 0, 0.0
        for end, logprob in enumerate(row.logprobs, start=1):
            context = max(0, start - _CONTEXT)  # some tokenizers write the first token without its space
            said, total = self._decoded(row.reply[context:end]), total + logprob
            if not said.endswith(_INCOMPLETE) or end == len(row.reply):
                before = self._decoded(row.reply[context:start])
                found.append((said[len(before) :], min(0.0, total)))
                start, total = end, 0.0
        return found

    def _decoded(self, tokens: list[int]) -> str:
        said: str = self.loaded.tokenizer.decode(tokens, skip_special_tokens=True)
        return said


@asynccontextmanager
async def serving(
    loaded: LoadedModel,
    *,
    host: str = LOOPBACK,
    port: int = 0,
    allow_host: Iterable[str] = (),
    max_batch: int = MAX_BATCH,
) -> AsyncIterator[str]:
    """The base URL of the running service. See `listening` for host, port and allow_host. Raises InputError if it
    cannot listen, or the chat template takes too much."""
    service = _Service(loaded, max_batch=max_batch)
    app = web.Application(client_max_size=MOST_BODY_BYTES)

    async def models(_: web.Request) -> web.Response:
        return as_json({"object": "list", "data": [service.listed()]})

    async def health(_: web.Request) -> web.Response:
        if not service.alive:
            return error_answer(HTTPStatus.SERVICE_UNAVAILABLE, "the decoder has ended", "dead")
        return as_json({"status": "ok", "model": loaded.name})

    async def asked(request: web.Request) -> web.Response:
        return await _answer(service.pool if loaded.ends is None else service.chat, await read_body(request))

    app.router.add_get("/v1/models", models)
    app.router.add_get("/health", health)
    app.router.add_post("/pooling" if loaded.ends is None else "/v1/chat/completions", asked)
    try:
        await service.template.try_out()
        async with listening(app, host=host, port=port, allow_host=allow_host) as address:
            yield f"{address}/v1"
    finally:
        await service.close()


async def _answer(work: Callable[[bytes], Awaitable[dict[str, Any]]], body: bytes) -> web.Response:
    try:
        return as_json(await work(body))
    except _TooLongError as error:
        return error_answer(HTTPStatus.BAD_REQUEST, str(error), "context_length_exceeded")
    except _OtherModelError as error:
        return error_answer(HTTPStatus.NOT_FOUND, str(error), "model_not_found")
    except _ModelFailedError as error:
        print(one_line(error), file=sys.stderr, flush=True)
        return error_answer(HTTPStatus.INTERNAL_SERVER_ERROR, str(error), "model_failed")
    except ValueError as error:
        return error_answer(HTTPStatus.BAD_REQUEST, str(error), "invalid_request")


async def _computed(work: Awaitable[Found]) -> Found:
    """What the model computes. Raises _ModelFailedError for any exception of it."""
    try:
        return await work
    except Exception as error:
        what = f"{type(error).__name__}: {excerpt(' '.join(str(error).split()), 500)}"
        raise _ModelFailedError(f"the model failed: {what}") from error


def _say_address(base_url: str) -> None:
    print(f"serving at {one_line(base_url)}  (stop with Ctrl-C)", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m reasonrag.serving",
        description="Serve a trained model as an OpenAI-compatible endpoint.",
    )
    parser.add_argument("folder", metavar="FOLDER", help="a model, or an adapter, as train wrote it")
    parser.add_argument("--base", metavar="MODEL", help="base model of an adapter, instead of the one it names")
    parser.add_argument("--host", default=LOOPBACK, help="address to listen on [%(default)s]; there is no key check")
    parser.add_argument("--port", type=int, default=0, help="port; 0 takes a free one [%(default)s]")
    parser.add_argument("--allow-host", metavar="NAME", action="append", default=[], help=ALLOW_HOST)
    parser.add_argument("--name", help="what clients call it [the folder's name]")
    parser.add_argument("--max-batch", type=int, default=MAX_BATCH, help="replies generated together [%(default)s]")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto", help="[%(default)s]")
    asked = parser.parse_args(arguments)
    try:
        folder = open_model(asked.folder)
        if asked.max_batch < 1 or not 0 <= asked.port < 1 << 16:
            raise InputError("--max-batch must be at least 1, and --port from 0 to 65535")
        loaded = load(folder, base=asked.base, name=asked.name or folder.name, device=asked.device)
        service = serving(
            loaded, host=asked.host, port=asked.port, allow_host=asked.allow_host, max_batch=asked.max_batch
        )
        asyncio.run(serve_until_stopped(service, say=_say_address))
    except ReasonragError as error:
        print(f"error: {one_line(error)}", file=sys.stderr)
        return 2 if isinstance(error, InputError) else 1
    except KeyboardInterrupt:
        return 130
    return 0
