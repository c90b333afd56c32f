"""Continuous batching: replies of a causal language model to many prompts at once, token by token.

Decides which rows share a forward pass and how the next token is drawn. Rows enter and leave a running batch between
steps, left-padded; keys and values stay in buffers with spare columns on the right, so that a step writes one column,
and new rows take the places of those that ended, instead of copying all. For a small model that copying, and the
per-token overhead of transformers' `generate`, cost more than the model: batches of `generate` take 3.7 times the CPU
(benchmarks/RESULTS.md, 27 November 2026).

Each row has its own random generator, so a reply depends on its prompt, parameters and seed, not on the rest of the
batch, up to floating-point noise: another summation order may swap two nearly equally likely tokens. Knows no HTTP and
no chat.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers.cache_utils import DynamicCache, DynamicLayer

ROOM = 64
"""Spare columns of a newly assembled batch; once they are used up, it is assembled anew, which copies all of it."""
PREFILL_TOKENS = 8192
"""Most prompt tokens per prefill, padding included; a longer prompt is read alone. Bounds memory: the widest layer of a
7B model needs 0.3 GB for this many."""
PATIENCE = 8
"""Most steps between two admissions while there is room: prompts wait for others to enter with them."""
COLDEST = 1e-6
"""A lower temperature takes the most likely token, as 0 does: logits divided by it are too large for float32."""
_IDLE_S = 0.25


@dataclass(eq=False)
class Generation:
    """A reply being generated; a row of the batch.

    temperature: 0 takes the most likely token. top_p: share of the probability mass, in (0, 1]. stop: strings that end
        the reply. done: called once, in the decoder's thread, when `finish_reason` or `error` is set. wants_logprobs:
        whether each token's log-probability is computed, under the model's own distribution, which temperature and
        top_p do not change.
    """

    prompt: tuple[int, ...]
    temperature: float
    top_p: float
    max_tokens: int
    stop: tuple[str, ...]
    seed: int
    done: Callable[[Generation], None]
    wants_logprobs: bool = False
    reply: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    """Of the tokens of the reply."""
    finish_reason: str | None = None
    error: Exception | None = None
    cancelled: bool = False
    """Set when the reply is no longer wanted."""

    def __post_init__(self) -> None:
        self._draws = random.Random(self.seed)

    @property
    def ended(self) -> bool:
        return self.finish_reason is not None or self.error is not None or self.cancelled

    @property
    def length(self) -> int:
        """Number of tokens in the key-value cache."""
        return len(self.prompt) + max(0, len(self.reply) - 1)

    def draw(self) -> float:
        """The next number in [0, 1)."""
        return self._draws.getrandbits(32) / 2**32


class _Layer(DynamicLayer):  # type: ignore[misc]  # transformers has no types
    """Keys and values of one layer with spare columns. keys, values: [rows, heads, columns, size]."""

    used = 0
    """Columns in use."""

    def update(self, key_states: Any, value_states: Any, *_: Any, **__: Any) -> tuple[Any, Any]:
        if not self.used:
            self.keys, self.values, self.is_initialized = key_states, value_states, True
            self.used = key_states.shape[-2]
            return key_states, value_states
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
    def spare(self) -> int:
        """Columns that are left."""
        columns: int = self.mask.shape[1]
        return columns - self.width


class Decoder:
    """A model and the rows waiting for it. `tokenizer` decodes replies that have stop strings.

    ends: ids of tokens that end a reply, and are not part of it. max_batch: most rows per step.
    """

    def __init__(self, model: Any, tokenizer: Any, *, ends: Collection[int], max_batch: int) -> None:
        self._model, self._tokenizer, self._ends, self._max_batch = model, tokenizer, frozenset(ends), max_batch
        self._layers = model.config.get_text_config().num_hidden_layers
        self._waiting: deque[Generation] = deque()
        self._changed = threading.Condition()
        self._stopping = False
        self._steps = 0
        """Steps since rows last entered."""
        self._batch: _Batch | None = None

    def submit(self, rows: Sequence[Generation]) -> None:
        """Queue rows; from any thread."""
        with self._changed:
            self._waiting.extend(rows)
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
                    while not (self._stopping or self._waiting or self._batch):
                        self._changed.wait(_IDLE_S)
                    if self._stopping:
                        return
                    admitted = self._admitted()
                try:
                    self._advance(admitted)
                except Exception as error:  # noqa: BLE001 - its rows get the error, others continue
                    for row in admitted + (self._batch.rows if self._batch else []):
                        _end(row, error=error)
                    self._batch = None

    def _admitted(self) -> list[Generation]:
        """Rows to admit now; admitting a few at a time would reassemble the batch for each."""
        running = sum(not row.ended for row in self._batch.rows) if self._batch else 0
        entering = min(self._max_batch - running, len(self._waiting))
        self._steps += 1
        if not entering or (entering <= running // 4 and self._steps < PATIENCE):
            return []
        self._steps = 0
        return [row for row in (self._waiting.popleft() for _ in range(entering)) if not row.ended]

    def _advance(self, admitted: list[Generation]) -> None:
        """One more token for every row, and the first one for admitted rows."""
        if self._batch:
            self._step(self._batch)
        batch, read = self._batch, [self._read(group) for group in _length_groups(admitted)]
        living = sum(not row.ended for part in (*([batch] if batch else ()), *read) for row in part.rows)
        if not living:
            self._batch = None
        elif batch is None:
            self._batch = self._joined(read)
        elif batch.spare == 0 or 2 * living <= len(batch.rows) or not self._replaced(batch, read):
            self._batch = self._joined([batch, *read])

    def _replaced(self, batch: _Batch, read: Sequence[_Batch]) -> bool:
        """Put new rows into the places of rows that ended; False, and nothing done, where they do not fit."""
        entering = [(part, i, row) for part in read for i, row in enumerate(part.rows) if not row.ended]
        places = [i for i, row in enumerate(batch.rows) if row.ended]
        if len(entering) > len(places) or any(row.length > batch.width for _, _, row in entering):
            return False
        for part in read:
            chosen = [i for i, row in enumerate(part.rows) if not row.ended]
            if not chosen:
                continue
            taken, places = places[: len(chosen)], places[len(chosen) :]
            width = min(part.width, batch.width)
            device = self._model.device
            to, which = (torch.tensor(each, dtype=torch.long, device=device) for each in (taken, chosen))
            columns, those = slice(batch.width - width, batch.width), slice(part.width - width, part.width)
            for ours, new in zip(batch.cache.layers, part.cache.layers, strict=True):
                ours.keys[to, :, columns] = new.keys[which][:, :, those]
                ours.values[to, :, columns] = new.values[which][:, :, those]
            batch.mask[to] = 0
            batch.mask[to, columns] = part.mask[which][:, those]
            batch.tokens[to], batch.lengths[to] = part.tokens[which], part.lengths[which]
            for place, i in zip(taken, chosen, strict=True):
                batch.rows[place] = part.rows[i]
        return True

    def _read(self, rows: list[Generation]) -> _Batch:
        """Prefill: a batch of new rows with their first tokens. Equal prompts are read once."""
        prompts = list(dict.fromkeys(row.prompt for row in rows))
        width = max(map(len, prompts))
        ids, mask = torch.zeros((2, len(prompts), width), dtype=torch.long)
        for i, prompt in enumerate(prompts):
            ids[i, width - len(prompt) :] = torch.tensor(prompt)
            mask[i, width - len(prompt) :] = 1
        device = self._model.device
        ids, mask = ids.to(device), mask.to(device)
        cache = self._new_cache()
        logits = self._logits(ids, mask, (mask.cumsum(-1) - 1).clamp(min=0), cache)
        places = {prompt: i for i, prompt in enumerate(prompts)}
        index = torch.tensor([places[row.prompt] for row in rows], device=device)
        if len(prompts) < len(rows):
            logits, mask = logits[index], mask[index]
            for layer in cache.layers:
                layer.keys, layer.values = layer.keys[index], layer.values[index]
        tokens = self._extend(rows, logits)
        return _Batch(rows, cache, mask, width, tokens, mask.sum(-1))

    def _new_cache(self) -> Any:
        cache = DynamicCache()
        cache.layers = [_Layer() for _ in range(self._layers)]
        return cache

    def _step(self, batch: _Batch) -> None:
        batch.mask[:, batch.width] = 1
        batch.width += 1
        mask = batch.mask[:, : batch.width]
        logits = self._logits(batch.tokens[:, None], mask, batch.lengths[:, None], batch.cache)
        # A row that ended stays where it is: its position might soon be one that the model does not have.
        batch.lengths += batch.lengths.new_tensor([not row.ended for row in batch.rows])
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

    def _joined(self, parts: Sequence[_Batch]) -> _Batch:
        """Merge the unfinished rows of several batches into one of minimal width, with spare columns."""
        kept = [[i for i, row in enumerate(part.rows) if not row.ended] for part in parts]
        rows = [part.rows[i] for part, places in zip(parts, kept, strict=True) for i in places]
        width, device = max(row.length for row in rows), self._model.device
        indices = [torch.tensor(places, dtype=torch.long, device=device) for places in kept]  # else floats if empty
        cache = self._new_cache()

        def gathered(tensors: Sequence[Any], like: Any) -> Any:
            """Columns of the kept rows, right-aligned. tensors: one per part, columns at dimension -2."""
            whole = like.new_zeros((len(rows), *like.shape[1:-2], width + ROOM, like.shape[-1]))
            start = 0
            for part, tensor, index in zip(parts, tensors, indices, strict=True):
                taken = min(part.width, width)
                whole[start : start + len(index), ..., width - taken : width, :] = tensor[
                    ..., part.width - taken : part.width, :
                ][index]
                start += len(index)
            return whole

        for i, layer in enumerate(cache.layers):
            of_parts = [part.cache.layers[i] for part in parts]
            layer.keys = gathered([each.keys for each in of_parts], of_parts[0].keys)
            layer.values = gathered([each.values for each in of_parts], of_parts[0].values)
            layer.used, layer.is_initialized = width, True
        masks = [part.mask[:, :, None] for part in parts]
        return _Batch(
            rows,
            cache,
            gathered(masks, masks[0])[:, :, 0],
            width,
            torch.cat([part.tokens[index] for part, index in zip(parts, indices, strict=True)]),
            torch.cat([part.lengths[index] for part, index in zip(parts, indices, strict=True)]),
        )

    # -- the next token --------------------------------------------------------------------------------------------

    def _extend(self, rows: Sequence[Generation], logits: Any) -> Any:
        """Draw a token for each row, and end complete rows. logits: [rows, vocabulary]."""
        chosen = draw(rows, logits)
        numbers = _logprobs(rows, logits, chosen)
        for row, token, number in zip(rows, chosen.tolist(), numbers, strict=True):
            if not row.ended:
                self._append(row, token, number)
        return chosen

    def _append(self, row: Generation, token: int, logprob: float) -> None:
        if token in self._ends:
            _end(row, "stop")
            return
        row.reply.append(token)
        row.logprobs.append(logprob)
        if row.stop and self._has_stop(row):
            _end(row, "stop")
        elif len(row.reply) >= row.max_tokens:
            _end(row, "length")

    def _has_stop(self, row: Generation) -> bool:
        """Whether the newest token completed a stop string; decodes only as many tokens as such a string can have."""
        longest = max(len(each.encode()) for each in row.stop)
        tail = self._tokenizer.decode(row.reply[-longest - 4 :], skip_special_tokens=True)
        return any(each in tail for each in row.stop)


def draw(rows: Sequence[Generation], logits: Any) -> Any:
    """The next token of each row: the most likely at temperature 0, else by inverse-CDF sampling with the row's own
    random number. logits: [rows, vocabulary]; returns [rows]."""
    chosen = torch.zeros(len(rows), dtype=torch.long, device=logits.device)
    greedy = [i for i, row in enumerate(rows) if row.temperature < COLDEST and not row.ended]
    whole = [i for i, row in enumerate(rows) if row.temperature >= COLDEST and row.top_p >= 1 and not row.ended]
    cut = [i for i, row in enumerate(rows) if row.temperature >= COLDEST and row.top_p < 1 and not row.ended]
    if greedy:
        index = torch.tensor(greedy, device=logits.device)
        chosen[index] = logits[index].argmax(-1)
    for places, nucleus in ((whole, False), (cut, True)):
        if not places:
            continue
        index = torch.tensor(places, device=logits.device)
        those = [rows[i] for i in places]
        temperatures = logits.new_tensor([row.temperature for row in those], dtype=torch.float)
        likely = torch.softmax(logits[index].float() / temperatures[:, None], -1)
        order = None
        if nucleus:
            likely, order = likely.sort(dim=-1, descending=True, stable=True)
            before = likely.cumsum(-1, dtype=torch.double) - likely
            likely = likely * (before < logits.new_tensor([row.top_p for row in those], dtype=torch.double)[:, None])
        sums = likely.cumsum(-1, dtype=torch.double)
        shares = logits.new_tensor([row.draw() for row in those], dtype=torch.double)[:, None] * sums[:, -1:]
        found = torch.searchsorted(sums, shares, right=True)
        chosen[index] = (found if order is None else order.gather(-1, found))[:, 0]
    return chosen


def _logprobs(rows: Sequence[Generation], logits: Any, chosen: Any) -> list[float]:
    """The log-probability of each row's chosen token; 0 where no row wants any. logits: [rows, vocabulary]; chosen:
    [rows]."""
    if not any(row.wants_logprobs and not row.ended for row in rows):
        return [0.0] * len(rows)
    found: list[float] = torch.log_softmax(logits.float(), -1).gather(-1, chosen[:, None])[:, 0].tolist()
    return found


def _length_groups(rows: Sequence[Generation]) -> list[list[Generation]]:
    """Groups of rows to prefill together: of similar length, within PREFILL_TOKENS."""
    groups: list[list[Generation]] = []
    for row in sorted(rows, key=lambda row: len(row.prompt)):
        length = len(row.prompt)
        group = groups[-1] if groups else []
        fits = group and length * (len(group) + 1) <= PREFILL_TOKENS
        if fits and length <= 1.25 * len(group[0].prompt) + 16:
            group.append(row)
        else:
            groups.append([row])
    return groups


def _end(row: Generation, reason: str | None = None, *, error: Exception | None = None) -> None:
    if not row.ended:
        row.finish_reason, row.error = reason, error
        row.done(row)
