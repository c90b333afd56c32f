"""Continuous batching: replies of a causal language model to many prompts at once, token by token.

Decides which rows share a forward pass and how the next token is drawn. Rows enter and leave a running batch between
steps, left-padded; keys and values stay in buffers with spare columns on the right, so that a step writes one column,
and new rows take the places of those that ended, instead of copying all. For a small model that copying, and the
per-token overhead of transformers' `generate`, cost more than the model: batches of `generate` take 2.7 to 7.7 times
the CPU, by model and by how they were asked (benchmarks/RESULTS.md, 27 November 2026).

Each row has its own random generator, so a reply depends on its prompt, parameters and seed, not on the rest of the
batch, up to floating-point noise: another summation order may swap two nearly equally likely tokens. Knows no HTTP and
no chat.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import torch
from transformers.cache_utils import DynamicCache, DynamicLayer

ROOM = 64
"""Spare columns of a newly assembled batch; once they are used up, it is assembled anew, which copies all of it."""
TOGETHER = 4
"""Rows of a request wait until they can enter together, so that their prompt is read once: up to a fourth of the batch,
so that it is nearly full while rows wait."""
COLDEST = 1e-6
"""A lower temperature takes the most likely token, as 0 does: logits divided by it are too large for float32."""


@dataclass(eq=False)
class Generation(Future[str]):
    """A reply being generated, whose result is why it ended; a row of the batch. Cancelled when it is no longer wanted.

    temperature: 0 takes the most likely token. top_p: share of the probability mass, in (0, 1]. stop: strings that end
        the reply. logprobs: of its tokens, under the model's own distribution, before temperature and top_p.
    """

    prompt: tuple[int, ...]
    temperature: float
    top_p: float
    max_tokens: int
    stop: tuple[str, ...]
    seed: int
    reply: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self._draws = random.Random(self.seed)

    def end(self, reason: str) -> None:
        with suppress(InvalidStateError):  # cancelled by another thread
            self.set_result(reason)

    def draw(self) -> float:
        """The next number in [0, 1)."""
        return self._draws.getrandbits(32) / 2**32


class _Layer(DynamicLayer):  # type: ignore[misc]  # transformers has no types
    """Keys and values of a layer with spare columns, [rows, heads, columns, size]. used: columns in use."""

    def __init__(self, keys: Any, values: Any, used: int) -> None:
        super().__init__()
        self.keys, self.values, self.used, self.is_initialized = keys, values, used, True

    def update(self, key_states: Any, value_states: Any, *_: Any, **__: Any) -> tuple[Any, Any]:
        end = self.used + key_states.shape[-2]
        self.keys[:, :, self.used : end] = key_states
        self.values[:, :, self.used : end] = value_states
        self.used = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def get_seq_length(self, *_: Any) -> int:
        return self.used


@dataclass
class _Batch:
    """Rows of one forward pass, right-aligned.

    mask: [rows, columns with spare ones], 1 for the row's own columns. width: columns in use. tokens: [rows], input of
        the next step. lengths: [rows], position of that token in its row.
    """

    rows: list[Generation]
    cache: Any
    mask: Any
    width: int
    tokens: Any
    lengths: Any

    @property
    def living(self) -> list[int]:
        """Places of rows whose reply goes on. Another thread may end one at any moment."""
        return [i for i, row in enumerate(self.rows) if not row.done()]

    def fits(self, parts: Sequence[tuple[_Batch, list[int]]], places: int) -> bool:
        """Whether these rows of others find as many places here, and the next token a column."""
        fewer = sum(len(which) for _, which in parts) <= places
        return fewer and self.width < self.mask.shape[1] and all(part.width <= self.width for part, _ in parts)

    def take(self, other: _Batch, which: list[int], places: Sequence[int]) -> None:
        """Put these rows of another batch into as many places; no row may be longer than this batch is wide."""
        width = min(self.width, other.width)
        ours, theirs = slice(self.width - width, self.width), slice(other.width - width, other.width)
        to = torch.tensor(places, dtype=torch.long, device=self.mask.device)
        for layer, new in zip(self.cache.layers, other.cache.layers, strict=True):
            layer.keys[to, :, ours] = new.keys[which][:, :, theirs]
            layer.values[to, :, ours] = new.values[which][:, :, theirs]
        self.mask[to] = 0
        self.mask[to, ours] = other.mask[which][:, theirs]
        self.tokens[to], self.lengths[to] = other.tokens[which], other.lengths[which]
        for place, i in zip(places, which, strict=True):
            self.rows[place] = other.rows[i]


class Decoder:
    """A model and the rows waiting for it. `tokenizer` decodes replies that have stop strings.

    ends: ids of tokens that end a reply, and are not part of it. max_batch: most rows per step.
    """

    def __init__(self, model: Any, tokenizer: Any, *, ends: Collection[int], max_batch: int) -> None:
        self._model, self._tokenizer, self._ends, self._max_batch = model, tokenizer, frozenset(ends), max_batch
        self._waiting: deque[Sequence[Generation]] = deque()
        self._changed = threading.Condition()
        self._stopping = False
        self._batch: _Batch | None = None

    def submit(self, rows: Sequence[Generation]) -> None:
        """Queue the rows of a request; from any thread. They enter together, up to TOGETHER."""
        most = max(1, self._max_batch // TOGETHER)
        with self._changed:
            self._waiting.extend(rows[i : i + most] for i in range(0, len(rows), most))
            self._changed.notify()

    def stop(self) -> None:
        """Make `run` return; from any thread."""
        with self._changed:
            self._stopping = True
            self._changed.notify()

    def run(self) -> None:
        """Generate replies until `stop`. An error of the model fails the rows of its step only."""
        with torch.inference_mode():
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._stopping or self._waiting or self._batch)
                    if self._stopping:
                        return
                    admitted = self._admitted()
                try:
                    self._advance(admitted)
                except Exception as error:  # noqa: BLE001 - its rows get the error, others continue
                    for row in admitted + (self._batch.rows if self._batch else []):
                        with suppress(InvalidStateError):  # it has ended
                            row.set_exception(error)
                    self._batch = None

    def _admitted(self) -> list[Generation]:
        """Waiting rows that there is room for, in the order in which they came."""
        room, entering = self._max_batch - (len(self._batch.living) if self._batch else 0), list[Generation]()
        while self._waiting:
            wanted = [row for row in self._waiting[0] if not row.done()]
            if len(wanted) > room - len(entering):
                break
            entering += wanted
            self._waiting.popleft()
        return entering

    def _advance(self, admitted: list[Generation]) -> None:
        """One more token for every row, and the first one for admitted rows. They take the places of rows that ended;
        where they do not fit, or half of the places are free, all rows that live move to a new batch."""
        batch = self._batch
        if batch:
            self._step(batch)
        same = groupby(admitted, key=lambda row: row.prompt)
        read = [self._read(rows) for _, each in same if (rows := [row for row in each if not row.done()])]
        parts = [(part, part.living) for part in read]  # once, as rows are cancelled meanwhile
        old = [(batch, batch.living)] if batch else []
        count = sum(len(which) for _, which in old + parts)
        if not count:
            self._batch = None
            return
        places = [i for batch, living in old for i in range(len(batch.rows)) if i not in living]
        if batch is None or not batch.fits(parts, len(places)) or 2 * count <= len(batch.rows):
            parts, places = old + parts, list(range(count))
            batch = self._roomy(parts)
        for part, which in parts:
            batch.take(part, which, places[: len(which)])
            places = places[len(which) :]
        self._batch = batch

    def _read(self, rows: list[Generation]) -> _Batch:
        """Prefill: rows of one prompt, which is read once, with their first tokens."""
        ids = torch.tensor([rows[0].prompt], device=self._model.device)
        positions, count, cache = torch.arange(ids.shape[1], device=ids.device)[None], len(rows), DynamicCache()
        logits = self._logits(ids, torch.ones_like(ids), positions, cache).expand(count, -1)
        for layer in cache.layers:
            layer.keys, layer.values = (each.expand(count, -1, -1, -1) for each in (layer.keys, layer.values))
        mask = torch.ones_like(ids).expand(count, -1)
        return _Batch(rows, cache, mask, ids.shape[1], self._extend(rows, logits), mask.sum(-1))

    def _step(self, batch: _Batch) -> None:
        batch.mask[:, batch.width] = 1
        batch.width += 1
        mask = batch.mask[:, : batch.width]
        logits = self._logits(batch.tokens[:, None], mask, batch.lengths[:, None], batch.cache)
        # A row that ended stays where it is: its position might soon be one that the model does not have.
        batch.lengths += batch.lengths.new_tensor([not row.done() for row in batch.rows])
        batch.tokens = self._extend(batch.rows, logits)

    def _logits(self, tokens: Any, mask: Any, positions: Any, cache: Any) -> Any:
        """Those of each row's next token, [rows, vocabulary]; the cache grows by the tokens."""
        return self._model(
            input_ids=tokens,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits[:, -1]

    def _roomy(self, parts: Sequence[tuple[_Batch, list[int]]]) -> _Batch:
        """A batch that these rows of others fit into: of minimal width, with spare columns."""
        rows = [part.rows[i] for part, which in parts for i in which]
        width, first = max(int(part.lengths[which].max()) for part, which in parts if which), parts[0][0]
        cache = DynamicCache()
        for like in first.cache.layers:
            shape = (len(rows), like.keys.shape[1], width + ROOM)
            keys = like.keys.new_zeros((*shape, like.keys.shape[-1]))
            values = like.values.new_zeros((*shape, like.values.shape[-1]))
            cache.layers.append(_Layer(keys, values, width))
        mask = first.mask.new_zeros((len(rows), width + ROOM))
        tokens, lengths = first.tokens.new_zeros((2, len(rows)))
        return _Batch(rows, cache, mask, width, tokens, lengths)

    # -- the next token --------------------------------------------------------------------------------------------

    def _extend(self, rows: Sequence[Generation], logits: Any) -> Any:
        """Draw a token for each row, and end complete rows. logits: [rows, vocabulary]."""
        chosen = draw(rows, logits)
        numbers = torch.log_softmax(logits.float(), -1).gather(-1, chosen[:, None])[:, 0]
        for row, token, number in zip(rows, chosen.tolist(), numbers.tolist(), strict=True):
            if not row.done():
                self._append(row, token, number)
        return chosen

    def _append(self, row: Generation, token: int, logprob: float) -> None:
        if token in self._ends:
            row.end("stop")
            return
        row.reply.append(token)
        row.logprobs.append(logprob)
        if row.stop and self._has_stop(row):
            row.end("stop")
        elif len(row.reply) >= row.max_tokens:
            row.end("length")

    def _has_stop(self, row: Generation) -> bool:
        """Whether the newest token completed a stop string; decodes only as many tokens as such a string can have."""
        longest = max(len(each.encode()) for each in row.stop)
        tail = self._tokenizer.decode(row.reply[-longest - 4 :], skip_special_tokens=True)
        return any(each in tail for each in row.stop)


def draw(rows: Sequence[Generation], logits: Any) -> Any:
    """The next token of each row: the most likely at temperature 0, else by inverse-CDF sampling with the row's own
    random number. logits: [rows, vocabulary]; returns [rows]."""
    chosen = logits.argmax(-1)
    drawn = [i for i, row in enumerate(rows) if row.temperature >= COLDEST and not row.done()]
    for places in ([i for i in drawn if rows[i].top_p >= 1], [i for i in drawn if rows[i].top_p < 1]):
        if places:
            chosen[places] = _sampled([rows[i] for i in places], logits[places].float())
    return chosen


def _sampled(rows: Sequence[Generation], logits: Any) -> Any:
    """As `draw`; sorts the vocabulary only if the first row has a nucleus, and then the others have one too."""

    def column(values: Iterable[float], dtype: Any = torch.double) -> Any:
        return logits.new_tensor(list(values), dtype=dtype)[:, None]

    likely = torch.softmax(logits / column((row.temperature for row in rows), torch.float), -1)
    order = None
    if rows[0].top_p < 1:
        likely, order = likely.sort(dim=-1, descending=True, stable=True)
        before = likely.cumsum(-1, dtype=torch.double) - likely
        likely = likely * (before < column(row.top_p for row in rows))
    sums = likely.cumsum(-1, dtype=torch.double)
    found = torch.searchsorted(sums, column(row.draw() for row in rows) * sums[:, -1:], right=True)
    found = found.clamp(max=sums.shape[1] - 1)  # of a model whose logits are not finite it is none
    return (found if order is None else order.gather(-1, found))[:, 0]
