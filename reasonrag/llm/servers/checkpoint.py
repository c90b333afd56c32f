"""An OpenAI-compatible server for a trained model's folder, for `generate` and `evaluate`.

    python -m reasonrag.model_serving FOLDER [--adapter FOLDER] [--base MODEL] [--host 127.0.0.1] [--port 0]
        [--allow-host NAME] [--name NAME] [--max-batch 64] [--device auto|cpu|cuda]

Runs in any environment that has torch and transformers (and peft, for an adapter), the one of `make train-env` for
example, and then prints `serving at http://127.0.0.1:PORT/v1  (stop with Ctrl-C)`. `POST /v1/chat/completions`,
`GET /v1/models`, `GET /health`. It needs no key and listens on loopback by default.

Prompts are rendered by the tokenizer's chat template, in a process with bounds (`chat_template`). Honoured: messages,
temperature, top_p, max_tokens or max_completion_tokens (by default and at most what the model's context leaves), n,
stop (dropped from the text), seed (choice i uses seed + i) and logprobs (of the tokens said, under the model's own
distribution, before temperature and top_p; no `top_logprobs`). The same seed gives the same reply whatever else is in
the batch, up to the noise described in `decoder`. Refused: `stream`, and prompts that leave no room for a reply. Other
fields are ignored.

A sequence classifier is served by `classifier` instead: its scores, at `/pooling` and `/classify`.

For many GPUs or long contexts vLLM is faster; this server is for environments without it. `transformers serve` was
measured in its place (benchmarks/RESULTS.md): replies in flight together do not follow their own seeds there.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import secrets
import sys
import threading
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiohttp import web

from reasonrag.errors import InputError, ReasonragError
from reasonrag.llm.chat import TokenLogprob
from reasonrag.llm.servers.chat_template import ChatTemplate, open_tokenizer
from reasonrag.llm.servers.model_folder import ModelFolder, open_model
from reasonrag.llm.servers.openai_api import (
    MOST_BODY_BYTES,
    ChatCompletionRequest,
    add_logprobs,
    as_json,
    completion,
    cut_at,
    error_answer,
    identified,
)
from reasonrag.redaction import excerpt
from reasonrag.rendering import one_line
from reasonrag.settings import ALLOW_HOST
from reasonrag.web.client import LOOPBACK
from reasonrag.web.server import listening, read_body, serve_until_stopped

if TYPE_CHECKING:
    from reasonrag.llm.servers.decoder import Decoder, Generation

MAX_BATCH = 64
SMALL = 30_000_000
"""Parameter count up to which one CPU thread and float32 are fastest: two threads spend more time waiting for each
other than working, and far more if another process uses their core."""
_END_OF_TURN = "<|im_end|>"
"""Always ends a reply: models trained on ChatML write it, and some configurations omit it."""
_BFLOAT16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
"""Flags of /proc/cpuinfo, of x86 and Arm."""
_CONTEXT = 4
"""Tokens that are decoded before a token, to see what it adds to the text."""
_INCOMPLETE = "\ufffd"
"""What a tokenizer writes for the beginning of a character."""


@dataclass
class LoadedModel:
    """A loaded model. tokenizer_source: the folder, or the model on the Hub, that the tokenizer is of. context: most
    tokens of prompt and reply together. ends: tokens that end a reply."""

    name: str
    model: Any
    tokenizer: Any
    tokenizer_source: str
    context: int
    ends: frozenset[int]


# -- loading -----------------------------------------------------------------------------------------------------


def load(
    folder: ModelFolder, *, adapter: ModelFolder | None = None, base: str | None = None, name: str, device: str
) -> LoadedModel:
    """Load weights and tokenizer; an adapter is merged into its base model.

    base: overrides the base model that an adapter names. device: auto, cpu or cuda. On a GPU in the configuration's
        dtype, or bfloat16. On a CPU in bfloat16 where it multiplies that and the model is not small, else in float32.
        Raises InputError.
    """
    from transformers import AutoModelForCausalLM

    from reasonrag.llm.servers.attention import share_keys

    place = place_of(device)
    if folder.is_adapter:
        adapter, source = folder, base or folder.base_model
        if source is None:
            raise InputError(f"{folder.path} is an adapter that does not name its base model; give --base")
    else:
        source = str(folder.path)
    tokenizer_source = str(adapter.path) if adapter and adapter.has_tokenizer else source
    try:
        tokenizer = open_tokenizer(tokenizer_source)
        model = AutoModelForCausalLM.from_pretrained(source, **dtype_for(source, place))
        if adapter:
            model = _merged(model, adapter)
    except ReasonragError:
        raise
    except Exception as error:  # the libraries raise many types for damaged files
        where = f"{adapter.path} on {source}" if adapter else source
        what = f"{type(error).__name__}: {excerpt(' '.join(str(error).split()), 500)}"
        raise InputError(f"cannot load {where}: {what}") from error
    if not tokenizer.chat_template:
        raise InputError(
            f"the tokenizer of {tokenizer_source} has no chat template; copy chat_template.jinja from its base model"
        )
    prepare_for(place, model)
    share_keys(model)
    config = model.config.get_text_config()
    context = getattr(config, "max_position_embeddings", None) or min(tokenizer.model_max_length, 1 << 15)
    return LoadedModel(name, model.to(place).eval(), tokenizer, tokenizer_source, int(context), _ends(model, tokenizer))


def place_of(device: str) -> str:
    """cuda or cpu. device: auto, cpu or cuda. Raises InputError for a GPU that is not there."""
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        raise InputError("--device cuda: torch sees no GPU here; use --device cpu")
    return "cuda" if device != "cpu" and torch.cuda.is_available() else "cpu"


def prepare_for(place: str, model: Any) -> None:
    """Give a model the dtype, and torch the threads, that are fastest for it on a CPU."""
    import torch

    if place == "cpu":
        small = model.num_parameters() < SMALL
        if small and "OMP_NUM_THREADS" not in os.environ:
            torch.set_num_threads(1)
        cast_weights(model, torch.bfloat16 if _multiplies_bfloat16() and not small else torch.float32)


def dtype_for(source: str, device: str) -> dict[str, Any]:
    """Arguments of `from_pretrained`: the dtype, whose name changed in transformers 4.56, and that no code of a folder
    is run."""
    import torch
    import transformers

    config = transformers.AutoConfig.from_pretrained(source, trust_remote_code=False)
    said = getattr(config, "dtype", None) or getattr(config, "torch_dtype", None)
    if device != "cpu":
        wanted = said if said in (torch.float16, torch.bfloat16) else torch.bfloat16
    else:
        wanted = said if said == torch.bfloat16 and _multiplies_bfloat16() else torch.float32
    version = tuple(int(part) for part in transformers.__version__.split(".")[:2])
    return {"dtype" if version >= (4, 56) else "torch_dtype": wanted, "trust_remote_code": False}


def cast_weights(model: Any, dtype: Any) -> None:
    """Give a model's weights another dtype. Its buffers keep theirs, as when transformers loads it in that dtype:
    frequencies of rotary positions in bfloat16 are wrong by up to .3 %, at position 500 by .7 radians."""
    for weights in model.parameters():
        weights.data = weights.data.to(dtype)


def _multiplies_bfloat16() -> bool:
    """Whether the CPU has instructions for products of bfloat16; without them, float32 is faster."""
    try:
        return not _BFLOAT16_FLAGS.isdisjoint(Path("/proc/cpuinfo").read_text("utf-8", "replace").split())
    except OSError:  # not Linux
        return False


def _merged(model: Any, adapter: ModelFolder) -> Any:
    if find_spec("peft") is None:
        raise InputError(f"{adapter.path} is an adapter, which needs peft: {sys.executable} -m pip install peft")
    from peft import PeftModel

    return PeftModel.from_pretrained(model, str(adapter.path)).merge_and_unload()


def _ends(model: Any, tokenizer: Any) -> frozenset[int]:
    """Tokens that end a reply: from the generation settings, the tokenizer, and the end of a ChatML turn."""
    said = [model.generation_config.eos_token_id, model.config.get_text_config().eos_token_id, tokenizer.eos_token_id]
    ids = {int(each) for some in said if some is not None for each in (some if isinstance(some, list) else [some])}
    if _END_OF_TURN in tokenizer.get_vocab():
        ids.add(int(tokenizer.convert_tokens_to_ids(_END_OF_TURN)))
    return frozenset(ids)


# -- serving -----------------------------------------------------------------------------------------------------


class _TooLongError(ValueError):
    """A prompt that leaves no room for a reply."""


class _ModelService:
    """A loaded model and its decoder, which runs in its own thread."""

    def __init__(self, loaded: LoadedModel, *, max_batch: int) -> None:
        from reasonrag.llm.servers.decoder import Decoder

        self.loaded = loaded
        self.template = ChatTemplate(loaded.tokenizer_source)
        self.decoder: Decoder = Decoder(loaded.model, loaded.tokenizer, ends=loaded.ends, max_batch=max_batch)
        self._thread = threading.Thread(target=self.decoder.run, name="decoder", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    async def close(self) -> None:
        self.decoder.stop()
        await self.template.close()
        self._thread.join(timeout=10)

    async def prompt(self, asked: ChatCompletionRequest) -> tuple[int, ...]:
        """Token ids of the messages. Raises ValueError for `stream`, too long prompts, and messages the template
        refuses."""
        if asked.stream:
            raise ValueError("stream is not supported here; leave it out")
        ids = await self.template.prompt(asked.messages)
        if len(ids) >= self.loaded.context:
            raise _TooLongError(
                f"the prompt has {len(ids):,} tokens, and {self.loaded.name} takes {self.loaded.context:,} of prompt "
                "and reply together"
            )
        return ids

    async def replies(self, asked: ChatCompletionRequest, prompt: tuple[int, ...]) -> list[Generation]:
        """All choices, complete. Raises the model's exceptions. Cancelling stops their generation."""
        from reasonrag.llm.servers.decoder import Generation

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
                wants_logprobs=asked.logprobs,
            )
            for i in range(asked.n)
        ]
        self.decoder.submit(rows)
        try:
            await finished.wait()
        finally:
            for row in rows:
                row.cancelled = True
        for row in rows:
            if row.error:
                raise row.error
        return rows

    def text(self, row: Generation) -> str:
        return cut_at(self._decoded(row.reply), row.stop)

    def tokens(self, row: Generation) -> list[TokenLogprob]:
        """The tokens of a reply, of which the first ones are its text and the others its stop string. Those that make
        up a character together are one token, with the sum of their log-probabilities."""
        found, start, total = list[TokenLogprob](), 0, 0.0
        for end, logprob in enumerate(row.logprobs, start=1):
            context = max(0, start - _CONTEXT)  # some tokenizers write the first token without its space
            said, total = self._decoded(row.reply[context:end]), total + logprob
            if not said.endswith(_INCOMPLETE) or end == len(row.reply):
                before = self._decoded(row.reply[context:start])
                found.append(TokenLogprob(said[len(before) :], min(0.0, total)))
                start, total = end, 0.0
        return found

    def _decoded(self, tokens: list[int]) -> str:
        said: str = self.loaded.tokenizer.decode(tokens, skip_special_tokens=True)
        return said


_SERVICE = web.AppKey("service", _ModelService)


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
    app = web.Application(client_max_size=MOST_BODY_BYTES)
    app[_SERVICE] = service = _ModelService(loaded, max_batch=max_batch)
    app.router.add_get("/v1/models", _models)
    app.router.add_post("/v1/chat/completions", _chat)
    app.router.add_get("/health", _health)
    try:
        await service.template.try_out()
        async with listening(app, host=host, port=port, allow_host=allow_host) as address:
            yield f"{address}/v1"
    finally:
        await service.close()


async def _models(request: web.Request) -> web.Response:
    return as_json({"object": "list", "data": [{"id": request.app[_SERVICE].loaded.name, "object": "model"}]})


async def _health(request: web.Request) -> web.Response:
    service = request.app[_SERVICE]
    if not service.alive:
        return error_answer(HTTPStatus.SERVICE_UNAVAILABLE, "the decoder has ended", "dead")
    return as_json({"status": "ok", "model": service.loaded.name})


async def _chat(request: web.Request) -> web.Response:
    service = request.app[_SERVICE]
    try:
        asked = ChatCompletionRequest.read(await read_body(request))
        if asked.model not in (None, service.loaded.name):
            message = f"there is no model {asked.model!r} here; this serves {service.loaded.name!r}"
            return error_answer(HTTPStatus.NOT_FOUND, message, "model_not_found")
        prompt = await service.prompt(asked)
    except _TooLongError as error:
        return error_answer(HTTPStatus.BAD_REQUEST, str(error), "context_length_exceeded")
    except ValueError as error:
        return error_answer(HTTPStatus.BAD_REQUEST, str(error), "invalid_request")
    try:
        rows = await service.replies(asked, prompt)
    except Exception as error:  # noqa: BLE001 - any exception of torch is reported to the client
        message = f"the model failed: {type(error).__name__}: {excerpt(' '.join(str(error).split()), 500)}"
        print(one_line(message), file=sys.stderr, flush=True)
        return error_answer(HTTPStatus.INTERNAL_SERVER_ERROR, message, "model_failed")
    replies = [(service.text(row), row.finish_reason or "stop") for row in rows]
    made = sum(len(row.reply) for row in rows)
    body = completion(service.loaded.name, replies, prompt_tokens=len(prompt), completion_tokens=made)
    if asked.logprobs:
        add_logprobs(body, map(service.tokens, rows))
    return as_json(identified(body))


def _say_address(base_url: str) -> None:
    print(f"serving at {one_line(base_url)}  (stop with Ctrl-C)", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m reasonrag.model_serving",
        description="Serve a trained model as an OpenAI-compatible endpoint.",
    )
    parser.add_argument("folder", metavar="FOLDER", help="a model, or an adapter, as train wrote it")
    parser.add_argument("--adapter", metavar="FOLDER", help="an adapter to merge into the model")
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
        adapter = open_model(asked.adapter) if asked.adapter else None
        if adapter and not adapter.is_adapter:
            raise InputError(f"--adapter {adapter.path} is a whole model; give it as FOLDER")
        if adapter and folder.is_adapter:
            raise InputError(f"{folder.path} is an adapter itself; give its base model with --base, and no --adapter")
        if asked.max_batch < 1 or not 0 <= asked.port < 1 << 16:
            raise InputError("--max-batch must be at least 1, and --port from 0 to 65535")
        name = asked.name or (adapter or folder).name
        place = {"host": asked.host, "port": asked.port, "allow_host": asked.allow_host}
        if folder.is_classifier:
            from reasonrag.llm.servers.classifier import load_classifier, serving_scores

            scorer = load_classifier(folder, name=name, device=asked.device)
            scores = serving_scores(scorer, max_batch=asked.max_batch, **place)
            asyncio.run(serve_until_stopped(scores, say=_say_address))
            return 0
        loaded = load(folder, adapter=adapter, base=asked.base, name=name, device=asked.device)
        service = serving(loaded, max_batch=asked.max_batch, **place)
        asyncio.run(serve_until_stopped(service, say=_say_address))
    except ReasonragError as error:
        print(f"error: {one_line(error)}", file=sys.stderr)
        return 2 if isinstance(error, InputError) else 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    sys.exit(main())
