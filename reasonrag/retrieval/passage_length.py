"""How a prompt shows passages: in which order, and where a long one is cut.

Counts characters, so that no tokenizer decides. Does not know how passages are found.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from reasonrag.data.corpus import Passage
from reasonrag.retrieval.retriever import Retriever
from reasonrag.retrieval.settings import BEST_FIRST, PassageOrder

MARK = " [...]"
"""Stands at the end of a text that was cut."""
_SENTENCE_END = re.compile(
    r"""[.!?\u2026]["'\u201d\u2019)\]]*(?=\s)"""  # an ellipsis; closing quotes
    r"""|[\u3002\uff01\uff1f][\u201d\u2019\u300d\u300f\uff09\u3011]*"""  # of Chinese and Japanese: no space follows
)
_WORD_END = re.compile(r"\S(?=\s)")


class CutPassages:
    """A retriever whose passages have at most `most` characters of text.

    Its identity stays that of `found_by`: the same passages are found, and a run records the cut by itself.
    """

    def __init__(self, found_by: Retriever, most: int) -> None:
        self.identity = found_by.identity
        self._found_by, self._most = found_by, most

    async def retrieve(self, query: str, top_k: int) -> list[Passage]:
        found = await self._found_by.retrieve(query, top_k)
        return [replace(each, text=cut(each.text, self._most)) for each in found]


def with_passages_cut(retriever: Retriever, most: int | None) -> Retriever:
    """most: characters of a passage's text; None: all of them."""
    return retriever if most is None else CutPassages(retriever, most)


def in_order(passages: Sequence[Passage], order: PassageOrder) -> tuple[Passage, ...]:
    """Passages, best first, in the order in which a prompt shows them."""
    return tuple(passages) if order == BEST_FIRST else tuple(reversed(passages))


def order_recorded(order: PassageOrder) -> str | None:
    """The order as records have it: null, and absent, for best first, as before there was another."""
    return None if order == BEST_FIRST else order


def reading_identity(most: int | None, order: str | None) -> dict[str, int | str]:
    """The keys of a configuration that decide answers; none where passages are whole and best first, as before there
    was anything else. order: as `order_recorded`."""
    found = {"max_passage_chars": most, "passage_order": order}
    return {name: value for name, value in found.items() if value is not None}


def cut(text: str, most: int) -> str:
    """The text, or its beginning with a mark, at most `most` characters in all.

    It ends where the last sentence ends that fits; where that would leave less than half of what fits, after the last
    word; and without words there, anywhere.
    """
    if len(text) <= most:
        return text
    room = most - len(MARK)
    for end in (_SENTENCE_END, _WORD_END):
        fitting = [each.end() for each in end.finditer(text, room // 2, room + 1) if each.end() <= room]
        if fitting:
            return text[: fitting[-1]] + MARK
    return text[:room] + MARK
