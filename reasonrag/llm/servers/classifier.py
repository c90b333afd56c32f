"""A server of a critic's scores: a sequence classifier with one label, behind vLLM's `/pooling` and `/classify`.

Decides which texts are scored together, and that a conversation is rendered by the critic's own chat template, which
ends it with the token that it ended with in training. Runs where the model is loaded, in place of `checkpoint`'s chat
completions. Does not know what scores mean.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import orjson
from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from preference import Message
from preference.records import Items, first_error
from reasonrag.errors import InputError
from reasonrag.llm.endpoint.score_endpoint import chance
from reasonrag.llm.servers.chat_template import ChatTemplate, open_tokenizer
from reasonrag.llm.servers.checkpoint import dtype_for, place_of, prepare_for
from reasonrag.llm.servers.model_folder import ModelFolder
from reasonrag.llm.servers.openai_api import MOST_BODY_BYTES, as_json, error_answer
from reasonrag.redaction import excerpt
from reasonrag.web.client import LOOPBACK
from reasonrag.web.server import listening, read_body

MOST_TOGETHER = 16_384
"""Tokens of one forward pass, padding included; a single longer text is scored alone."""
MOST_INPUTS = 256
"""Texts of one request."""


@dataclass
class LoadedClassifier:
    """folder: also of the tokenizer. context: most tokens of a text."""

    name: str
    folder: ModelFolder
    model: Any
    tokenizer: Any
    context: int


def load_classifier(folder: ModelFolder, *, name: str, device: str) -> LoadedClassifier:
    """Load a critic. device: as for `checkpoint.load`, which also decides the dtype. Raises InputError."""
    from transformers import AutoModelForSequenceClassification

    place, source = place_of(device), str(folder.path)
    try:
        tokenizer = open_tokenizer(source)
        model = AutoModelForSequenceClassification.from_pretrained(source, **dtype_for(source, place))
    except Exception as error:  # the libraries raise many types for damaged files
        what = f"{type(error).__name__}: {excerpt(' '.join(str(error).split()), 500)}"
        raise InputError(f"cannot load {source}: {what}") from error
    config = model.config.get_text_config()
    if model.config.num_labels != 1:
        raise InputError(f"{source} is no critic: it has {model.config.num_labels} labels, a critic has one")
    if model.config.pad_token_id is None or model.config.pad_token_id == tokenizer.eos_token_id:
        raise InputError(
            f"{source}: its pad token is missing, or is its end token {tokenizer.eos_token!r}, which would then not be "
            "read; set pad_token_id in its config.json to another token"
        )
    prepare_for(place, model)
    return LoadedClassifier(name, folder, model.to(place).eval(), tokenizer, int(config.max_position_embeddings))


class ScoreRequest(BaseModel):
    """A body of `/pooling` or `/classify`: a conversation that ends with the step, or texts, or their tokens.

    use_activation: whether a sigmoid is applied; vLLM's default.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    model: str | None = None
    messages: Items[Message] | None = Field(default=None, min_length=1)
    input: str | list[str] | list[list[int]] | None = None
    use_activation: bool | None = None

    @classmethod
    def read(cls, body: bytes) -> ScoreRequest:
        """Raises ValueError for a body that is no valid request."""
        try:
            found = cls.model_validate(orjson.loads(body))
        except ValidationError as error:
            raise ValueError(first_error(error)) from error
        except orjson.JSONDecodeError as error:
            raise ValueError(f"the body is not JSON: {error}") from error
        if (found.messages is None) == (found.input is None):
            raise ValueError("give either messages, whose last one is the step, or input")
        if isinstance(found.input, list) and not 1 <= len(found.input) <= MOST_INPUTS:
            raise ValueError(f"input takes 1 to {MOST_INPUTS} texts")
        return found


class _ScoreService:
    """A loaded critic, which scores what waits together, the oldest first."""

    def __init__(self, loaded: LoadedClassifier, *, max_batch: int) -> None:
        self.loaded = loaded
        self.template = ChatTemplate(str(loaded.folder.path))
        self._max_batch = max_batch
        self._waiting: asyncio.Queue[tuple[Sequence[int], asyncio.Future[float]]] = asyncio.Queue()
        self._worker = asyncio.create_task(self._work())

    @property
    def alive(self) -> bool:
        return not self._worker.done()

    async def close(self) -> None:
        self._worker.cancel()
        with suppress(asyncio.CancelledError):
            await self._worker
        await self.template.close()

    async def texts(self, asked: ScoreRequest) -> list[Sequence[int]]:
        """Token ids of all texts. Raises ValueError for those that are too long, empty, or refused by the template."""
        vocabulary = len(self.loaded.tokenizer)
        if asked.messages is not None:
            found: list[Sequence[int]] = [await self.template.prompt(asked.messages)]
        else:
            given = [asked.input] if isinstance(asked.input, str) else asked.input or []
            found = [self.loaded.tokenizer(each)["input_ids"] if isinstance(each, str) else each for each in given]
        for ids in found:
            if not 0 < len(ids) <= self.loaded.context:
                raise ValueError(f"a text has {len(ids):,} tokens; this model takes 1 to {self.loaded.context:,}")
            if not all(0 <= each < vocabulary for each in ids):
                raise ValueError(f"a token is not in the vocabulary of {vocabulary:,}")
        return found

    async def scores(self, texts: Iterable[Sequence[int]]) -> list[float]:
        """Raw scores. Raises the model's exceptions."""
        loop = asyncio.get_running_loop()
        futures = []
        for ids in texts:
            futures.append(loop.create_future())
            self._waiting.put_nowait((ids, futures[-1]))
        return list(await asyncio.gather(*futures))

    async def _work(self) -> None:
        held: tuple[Sequence[int], asyncio.Future[float]] | None = None
        while True:
            batch = [held or await self._waiting.get()]
            held = None
            while len(batch) < self._max_batch and not self._waiting.empty():
                held = self._waiting.get_nowait()
                if max(len(ids) for ids, _ in [*batch, held]) * (len(batch) + 1) > MOST_TOGETHER:
                    break
                batch, held = [*batch, held], None
            wanted = [(ids, future) for ids, future in batch if not future.cancelled()]
            try:
                found = await asyncio.to_thread(raw_scores, self.loaded, [ids for ids, _ in wanted]) if wanted else []
            except Exception as error:  # noqa: BLE001 - any exception of torch is reported to the clients
                for _, future in wanted:
                    if not future.done():
                        future.set_exception(error)
                continue
            for (_, future), score in zip(wanted, found, strict=True):
                if not future.done():
                    future.set_result(score)


def raw_scores(loaded: LoadedClassifier, texts: Sequence[Sequence[int]]) -> list[float]:
    """Of token ids, in one forward pass, padded on the right."""
    import torch

    longest, pad = max(map(len, texts)), loaded.model.config.pad_token_id
    ids = torch.tensor([[*each, *[pad] * (longest - len(each))] for each in texts], device=loaded.model.device)
    mask = torch.tensor([[1] * len(each) + [0] * (longest - len(each)) for each in texts], device=loaded.model.device)
    with torch.inference_mode():
        found: list[float] = loaded.model(input_ids=ids, attention_mask=mask).logits.float().squeeze(-1).tolist()
    return found


_SERVICE = web.AppKey("scores", _ScoreService)


@asynccontextmanager
async def serving_scores(
    loaded: LoadedClassifier,
    *,
    host: str = LOOPBACK,
    port: int = 0,
    allow_host: Iterable[str] = (),
    max_batch: int = 64,
) -> AsyncIterator[str]:
    """The base URL of the running service, with /v1. Raises InputError as `checkpoint.serving` does."""
    app = web.Application(client_max_size=MOST_BODY_BYTES)
    app[_SERVICE] = service = _ScoreService(loaded, max_batch=max_batch)
    app.router.add_get("/v1/models", _models)
    app.router.add_get("/health", _health)
    app.router.add_post("/pooling", _pooling)
    app.router.add_post("/classify", _classify)
    try:
        await service.template.try_out()
        async with listening(app, host=host, port=port, allow_host=allow_host) as address:
            yield f"{address}/v1"
    finally:
        await service.close()


async def _models(request: web.Request) -> web.Response:
    loaded = request.app[_SERVICE].loaded
    listed = {"id": loaded.name, "object": "model", "root": str(loaded.folder.path.resolve())}
    return as_json({"object": "list", "data": [listed]})


async def _health(request: web.Request) -> web.Response:
    service = request.app[_SERVICE]
    if not service.alive:
        return error_answer(HTTPStatus.SERVICE_UNAVAILABLE, "the scorer has ended", "dead")
    return as_json({"status": "ok", "model": service.loaded.name})


async def _pooling(request: web.Request) -> web.Response:
    return await _scored(request, lambda score: {"object": "pooling", "data": [score]})


async def _classify(request: web.Request) -> web.Response:
    return await _scored(request, lambda score: {"label": "LABEL_0", "probs": [score], "num_classes": 1})


async def _scored(request: web.Request, shown: Any) -> web.Response:
    service = request.app[_SERVICE]
    try:
        asked = ScoreRequest.read(await read_body(request))
        if asked.model not in (None, service.loaded.name):
            message = f"there is no model {asked.model!r} here; this serves {service.loaded.name!r}"
            return error_answer(HTTPStatus.NOT_FOUND, message, "model_not_found")
        texts = await service.texts(asked)
    except ValueError as error:
        return error_answer(HTTPStatus.BAD_REQUEST, str(error), "invalid_request")
    try:
        scores = await service.scores(texts)
    except Exception as error:  # noqa: BLE001 - any exception of torch is reported to the client
        message = f"the model failed: {type(error).__name__}: {excerpt(' '.join(str(error).split()), 500)}"
        return error_answer(HTTPStatus.INTERNAL_SERVER_ERROR, message, "model_failed")
    told = scores if asked.use_activation is False else list(map(chance, scores))
    listed: list[Mapping[str, Any]] = [{"index": i, **shown(score)} for i, score in enumerate(told)]
    read = sum(map(len, texts))
    usage = {"prompt_tokens": read, "completion_tokens": 0, "total_tokens": read}
    return as_json({"object": "list", "model": service.loaded.name, "data": listed, "usage": usage})
