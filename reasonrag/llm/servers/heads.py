"""Beginnings that many prompts share, above all the system turn of a step: their keys and values are computed once.

Decides which beginnings are worth keeping, and for how long. Knows no model: what it keeps is the caller's.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict, deque
from typing import Generic, TypeVar

SHORTEST = 32
"""Tokens; a shorter beginning saves less than it costs."""
SHARED_BY = 4
"""Recent prompts, this one among them, that must begin alike. With fewer, each tree would leave its own."""
RECENT = 128
"""Prompts that are remembered, to find what they share."""
MOST_TOKENS = 8192
"""Of all kept beginnings together, or of one longer one. Bounds memory: Qwen2.5-7B takes 57 kB a token, Llama-2-7B,
whose heads share no keys, 524 kB."""

Kept = TypeVar("Kept")


class Heads(Generic[Kept]):
    """Kept beginnings, the ones unused for longest first."""

    def __init__(self) -> None:
        self._recent: deque[bytes] = deque(maxlen=RECENT)
        self._kept: OrderedDict[bytes, Kept] = OrderedDict()

    def remember(self, prompt: tuple[int, ...]) -> None:
        """Note a prompt that is about to be read."""
        if (packed := _packed(prompt)) not in self._recent:
            self._recent.append(packed)

    def shared(self, prompt: tuple[int, ...]) -> int:
        """With how many of its tokens a remembered prompt shares a beginning worth keeping, or kept; 0: with none.
        Fewer than the prompt has."""
        ours = _packed(prompt)
        kept = self.longest(prompt)
        alike = sorted((_common(ours, other) for other in self._recent), reverse=True)
        common = alike[SHARED_BY - 1] if len(alike) >= SHARED_BY else 0
        tokens = min(common if common >= kept + SHORTEST else kept, len(prompt) - 1)
        return tokens if tokens >= SHORTEST else 0

    def longest(self, prompt: tuple[int, ...]) -> int:
        """Tokens of the longest kept beginning of a prompt."""
        ours = _packed(prompt)
        return max((len(head) for head in self._kept if ours.startswith(head)), default=0) // _SIZE

    def get(self, head: tuple[int, ...]) -> Kept | None:
        """What was kept with it; None if nothing was, or not any more."""
        found = self._kept.get(_packed(head))
        if found is not None:
            self._kept.move_to_end(_packed(head))
        return found

    def keep(self, head: tuple[int, ...], kept: Kept) -> None:
        """Keep something with it, for as long as there is room."""
        self._kept[_packed(head)] = kept
        while len(self._kept) > 1 and sum(map(len, self._kept)) > MOST_TOKENS * _SIZE:
            self._kept.popitem(last=False)


_SIZE = array("I").itemsize


def _packed(tokens: tuple[int, ...]) -> bytes:
    return array("I", tokens).tobytes()


def _common(a: bytes, b: bytes) -> int:
    """Tokens that two prompts begin with alike."""
    low, high = 0, min(len(a), len(b)) // _SIZE
    while low < high:
        middle = (low + high + 1) // 2
        if a[: middle * _SIZE] == b[: middle * _SIZE]:
            low = middle
        else:
            high = middle - 1
    return low
