"""A critic's scores: those of conversations that wait at the same time are computed in one forward pass.

Decides which are scored together. The critic's own chat template renders a conversation, and ends it with the token
that it ended with in training. Does not know what scores mean, and no HTTP.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

MOST_TOGETHER = 16_384
"""Tokens of one forward pass, padding included; a single longer text is scored alone."""


class Scorer:
    """A critic's model, which scores what waits together, the oldest first, in a thread of its own."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._waiting: deque[tuple[Sequence[int], Future[float]]] = deque()
        self._thread = ThreadPoolExecutor(max_workers=1)

    async def score(self, ids: Sequence[int]) -> float:
        """The raw score of a text, given as token ids. Raises the model's exceptions."""
        found = Future[float]()
        self._waiting.append((ids, found))
        self._thread.submit(self._score_oldest)  # as often as there are texts, so that none is left
        return await asyncio.wrap_future(found)

    def _score_oldest(self) -> None:
        texts, wanted, longest = list[Sequence[int]](), list[Future[float]](), 0
        while self._waiting:
            longest = max(longest, len(self._waiting[0][0]))
            if texts and longest * (len(texts) + 1) > MOST_TOGETHER:
                break
            ids, found = self._waiting.popleft()
            if found.set_running_or_notify_cancel():
                texts.append(ids)
                wanted.append(found)
        try:
            scores = self._scores(texts) if texts else []
        except Exception as error:  # noqa: BLE001 - any exception of torch is for those who wait for it
            for found in wanted:
                found.set_exception(error)
            return
        for found, score in zip(wanted, scores, strict=True):
            found.set_result(score)

    def _scores(self, texts: Sequence[Sequence[int]]) -> list[float]:
        """In one forward pass, padded on the right."""
        rows = [torch.tensor(each) for each in texts]
        ids = pad_sequence(rows, batch_first=True, padding_value=self._model.config.pad_token_id)
        mask = pad_sequence([torch.ones_like(each) for each in rows], batch_first=True)
        device = self._model.device
        with torch.inference_mode():
            scores = self._model(input_ids=ids.to(device), attention_mask=mask.to(device)).logits
        found: list[float] = scores.float().squeeze(-1).tolist()
        return found
