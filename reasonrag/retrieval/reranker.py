"""Reranking by a cross-encoder, which reads query and passage together: slower, but better at the top.

Does not know where the passages come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reasonrag.data.corpus import Passage
from reasonrag.errors import InputError, first_line
from reasonrag.retrieval.dense.encoders import LONGEST, PROBE, folder_or_name

BATCH = 32
"""Pairs per forward pass."""


class CrossEncoderReranker:
    """A cross-encoder of sentence-transformers, in fp32.

    model: a folder or a name on the Hub, for example BAAI/bge-reranker-base. Raises InputError if it cannot be loaded.
    """

    def __init__(self, model: str) -> None:
        place = folder_or_name(model, "reranker")
        try:
            from sentence_transformers import CrossEncoder
            from transformers.utils import logging

            logging.disable_progress_bar()
            self._model: Any = CrossEncoder(place)
        except ImportError as error:
            raise InputError("a reranker needs the embed extra: pip install 'reasonrag[embed]'") from error
        except Exception as error:
            raise InputError(
                f"cannot load the reranker {model}: {first_line(error)}. Give --reranker a folder or the name of "
                "a model on the Hub"
            ) from error
        if self._model.num_labels != 1:
            raise InputError(f"the reranker {model} gives {self._model.num_labels} numbers for a pair, not one score")
        self._model.max_seq_length = min(self._model.max_seq_length or LONGEST, LONGEST)
        [probed] = self.scores(PROBE, [Passage("", "Lighthouse", "A novel about its keeper.")])
        self.identity = f"rerank:{Path(model).name}:{probed:.3f}"
        """Holds the score of a fixed pair, since the weights behind a name may change."""

    def scores(self, query: str, passages: Sequence[Passage]) -> list[float]:
        """One score per passage; a query's pairs are scored in one batch, so that scores are reproducible."""
        pairs = [(query, each.contents) for each in passages]
        found = self._model.predict(pairs, batch_size=BATCH, show_progress_bar=False)
        return [float(each) for each in found]
