"""A critic's scores: those of conversations that wait at the same time are computed in one forward pass.

Decides which are scored together. The critic's own chat template renders a conversation, and ends it with the token
that it ended with in training. Does not know what scores mean, and no HTTP.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from reasonrag.serving.loading import LoadedModel

MOST_TOGETHER = 16_384
"""Tokens of one forward pass, padding included; a single longer text is scored alone."""


class Scorer:
    """A loaded critic, which scores what waits together, the oldest first."""

    def __init__(self, loaded: LoadedModel, *, max_batch: int) -> None:
        self._loaded, self._max_batch = loaded, max_batch
        self._waiting: deque[tuple[Sequence[int], asyncio.Future[float]]] = deque()
        self._free = asyncio.Lock()

    async def score(self, ids: Sequence[int]) -> float:
        """The raw score of a text, given as token ids. Raises the model's exceptions."""
        found: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._waiting.append((ids, found))
        while not found.done():
            async with self._free:  # whoever is next scores for all that wait
                if not found.done():
                    await self._score_oldest()
        return found.result()

    async def _score_oldest(self) -> None:
        batch, longest = [self._waiting.popleft()], 0
        while self._waiting and len(batch) < self._max_batch:
            longest = max(len(ids) for ids, _ in [*batch, self._waiting[0]])
            if longest * (len(batch) + 1) > MOST_TOGETHER:
                break
            batch.append(self._waiting.popleft())
        try:
            scores = await asyncio.to_thread(raw_scores, self._loaded, [ids for ids, _ in batch])
        except asyncio.CancelledError:  # of one who waits: the others still do
            self._waiting.extendleft(reversed(batch))
            raise
        except Exception as error:  # noqa: BLE001 - any exception of torch is for those who wait for it
            for _, found in batch:
                found.set_exception(error)
            return
        for (_, found), score in zip(batch, scores, strict=True):
            found.set_result(score)


def raw_scores(loaded: LoadedModel, texts: Sequence[Sequence[int]]) -> list[float]:
    """Of token ids, in one forward pass, padded on the right."""
    import torch

    longest, pad = max(map(len, texts)), loaded.model.config.pad_token_id
    ids = torch.tensor([[*each, *[pad] * (longest - len(each))] for each in texts], device=loaded.model.device)
    mask = torch.tensor([[1] * len(each) + [0] * (longest - len(each)) for each in texts], device=loaded.model.device)
    with torch.inference_mode():
        found: list[float] = loaded.model(input_ids=ids, attention_mask=mask).logits.float().squeeze(-1).tolist()
    return found
