"""An OpenAI-compatible server for a trained model's folder, for `generate` and `evaluate`, and for a critic's.

    python -m reasonrag.serving FOLDER [--base MODEL] [--port 0]

Runs in any environment that has torch and transformers (and peft, for an adapter), the one of `make train-env` for
example, and then prints `serving at http://127.0.0.1:PORT/v1  (stop with Ctrl-C)`. `POST /v1/chat/completions`, of a
critic `POST /pooling`; `GET /v1/models`, `GET /health`. It needs no key and listens on loopback only.

Prompts are rendered by the tokenizer's chat template, in a process with bounds (`chat_template`). Honoured: messages,
temperature, top_p, max_tokens or max_completion_tokens (by default and at most what the model's context leaves), n,
stop (dropped from the text), seed (choice i uses seed + i) and logprobs (of the tokens said, under the model's own
distribution, before temperature and top_p; no `top_logprobs`). The same seed gives the same reply whatever else is in
the batch, up to the noise described in `batching`. Refused: `stream`, `tools`, and prompts that leave no room
for a reply. Other fields are ignored.

For many GPUs or long contexts vLLM is faster; this server is for environments without it. `transformers serve` was
measured in its place (benchmarks/RESULTS.md): replies in flight together do not follow their own seeds there.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
import threading
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

import torch
from aiohttp import web

from reasonrag.errors import InputError, ReasonragError
from reasonrag.model_folder import open_model
from reasonrag.redaction import excerpt
from reasonrag.rendering import one_line
from reasonrag.serving.batching import Decoder, Generation
from reasonrag.serving.chat_template import ChatTemplate
from reasonrag.serving.loading import LoadedModel, load
from reasonrag.serving.openai_api import (
    MOST_BODY_BYTES,
    ChatCompletionRequest,
    PoolingRequest,
    as_json,
    completion,
    cut_at,
    error_answer,
    pooled,
)
from reasonrag.web.server import listening, read_body, serve_until_stopped

MAX_BATCH = 64
"""Replies that are generated together."""
_CONTEXT = 4
"""Tokens that are decoded before a token, to see what it adds to the text."""
_INCOMPLETE = "\ufffd"
"""What a tokenizer writes for the beginning of a character."""


class _Service:
    """Answers requests by a loaded model: with scores if it is a critic, else with replies."""

    def __init__(self, loaded: LoadedModel) -> None:
        self.loaded, self.template = loaded, ChatTemplate(loaded.tokenizer_source)
        self._form: type[PoolingRequest | ChatCompletionRequest] = PoolingRequest
        if loaded.ends is None:
            self._scoring = ThreadPoolExecutor(1)
        else:
            self._form = ChatCompletionRequest
            self._decoder = Decoder(loaded.model, loaded.tokenizer, ends=loaded.ends, max_batch=MAX_BATCH)
            self._thread = threading.Thread(target=self._decoder.run, name="decoder", daemon=True)
            self._thread.start()

    async def models(self, _: web.Request) -> web.Response:
        return as_json({"object": "list", "data": [{"id": self.loaded.folder.name, "object": "model"}]})

    async def health(self, _: web.Request) -> web.Response:
        if self.loaded.ends is not None and not self._thread.is_alive():
            return error_answer(HTTPStatus.SERVICE_UNAVAILABLE, "the thread that decodes has ended", "model_failed")
        return as_json({"status": "ok", "model": self.loaded.folder.name})

    async def answer(self, request: web.Request) -> web.Response:
        """Replies or a score, or in OpenAI's form why there are none."""
        name, context = self.loaded.folder.name, self.loaded.context
        try:
            asked = self._form.read(await read_body(request))
            if asked.model not in (None, name):
                said = f"there is no model {asked.model!r} here; this serves {name!r}"
                return error_answer(HTTPStatus.NOT_FOUND, said, "model_not_found")
            prompt = await self.template.prompt(asked.messages)
        except ValueError as error:
            return error_answer(HTTPStatus.BAD_REQUEST, str(error), "invalid_request")
        if len(prompt) + (0 if isinstance(asked, PoolingRequest) else 1) > context:
            said = f"the prompt has {len(prompt):,} tokens, and {name} takes {context:,} of prompt and reply together"
            return error_answer(HTTPStatus.BAD_REQUEST, said, "context_length_exceeded")
        try:
            if isinstance(asked, PoolingRequest):
                return as_json(pooled(name, await self._score(prompt), tokens=len(prompt)))
            return as_json(await self._replies(asked, prompt))
        except Exception as error:  # noqa: BLE001 - the model's, which raises many
            said = f"the model failed: {type(error).__name__}: {excerpt(' '.join(str(error).split()), 500)}"
            print(one_line(said), file=sys.stderr, flush=True)
            return error_answer(HTTPStatus.INTERNAL_SERVER_ERROR, said, "model_failed")

    async def _score(self, prompt: tuple[int, ...]) -> float:
        """The raw score of a conversation, which ends with the token that it ended with in training."""

        def scored() -> float:
            with torch.inference_mode():
                ids = torch.tensor([prompt], device=self.loaded.model.device)
                return float(self.loaded.model(input_ids=ids).logits[0, 0])

        return await asyncio.get_running_loop().run_in_executor(self._scoring, scored)  # one at a time, and to the end

    async def _replies(self, asked: ChatCompletionRequest, prompt: tuple[int, ...]) -> dict[str, Any]:
        """All choices, complete. Raises the model's exceptions. Cancelling stops their generation."""
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
            )
            for i in range(asked.n)
        ]
        self._decoder.submit(rows)
        try:
            reasons = await asyncio.gather(*map(asyncio.wrap_future, rows))
        finally:
            for row in rows:
                row.cancel()
        return completion(
            self.loaded.folder.name,
            [(cut_at(self._decoded(row.reply), row.stop), why) for row, why in zip(rows, reasons, strict=True)],
            prompt_tokens=len(prompt),
            completion_tokens=sum(len(row.reply) for row in rows),
            logprobs=map(self._tokens, rows) if asked.logprobs else (),
        ) | {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time())}

    def _tokens(self, row: Generation) -> list[tuple[str, float]]:
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

    async def close(self) -> None:
        self.template.close()
        if self.loaded.ends is not None:
            self._decoder.stop()
            self._thread.join(timeout=10)


@asynccontextmanager
async def serving(loaded: LoadedModel, *, port: int = 0) -> AsyncIterator[str]:
    """The base URL of the running service; port 0 takes a free one. Raises InputError if it cannot listen, or the chat
    template takes too much."""
    service, app = _Service(loaded), web.Application(client_max_size=MOST_BODY_BYTES)
    path = "/pooling" if loaded.ends is None else "/v1/chat/completions"
    app.router.add_get("/v1/models", service.models)
    app.router.add_get("/health", service.health)
    app.router.add_post(path, service.answer)
    try:
        await service.template.try_out()
        async with listening(app, port=port) as address:
            yield f"{address}/v1"
    finally:
        await service.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m reasonrag.serving",
        description="Serve a trained model on loopback as an OpenAI-compatible endpoint.",
    )
    parser.add_argument("folder", metavar="FOLDER", help="a model, or an adapter, as train wrote it")
    parser.add_argument("--base", metavar="MODEL", help="base model of an adapter, instead of the one it names")
    parser.add_argument("--port", type=int, default=0, help="port; 0 takes a free one [%(default)s]")
    asked = parser.parse_args(arguments)

    def say(base_url: str) -> None:
        print(f"serving at {one_line(base_url)}  (stop with Ctrl-C)", flush=True)

    try:
        service = serving(load(open_model(asked.folder), base=asked.base), port=asked.port)
        asyncio.run(serve_until_stopped(service, say=say))
    except ReasonragError as error:
        print(f"error: {one_line(error)}", file=sys.stderr)
        return 2 if isinstance(error, InputError) else 1
    except KeyboardInterrupt:
        return 130
    return 0
