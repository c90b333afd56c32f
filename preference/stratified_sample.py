"""Stratified sampling: proportional over strata, and a larger sample extends a smaller one.

Decides which members are drawn, by names alone; does not know what they stand for. Every prefix of the drawn order is
itself such a sample.
"""

from __future__ import annotations

import heapq

from preference.filters import seeded_uniform


class StratifiedSample:
    """A sample of the members added so far; holds at most `size` per stratum.

    The members of a stratum are ordered by their draws from [0, 1). Member k of n (from 0) is due at (k + u) / n, where
    u in [0, 1) is the stratum's own draw; the sample takes the members that are due first. At any time every stratum
    has contributed its share to within one, and its expected number is exactly its share: rare strata are drawn as
    often as they should be, which a rule of largest remainders would never do. Systematic sampling with a random start,
    see W. G. Cochran, Sampling Techniques, chapter 8.
    """

    def __init__(self, size: int, *, seed: int) -> None:
        self._size = size
        self._seed = seed
        self._counts: dict[str, int] = {}
        self._held: dict[str, list[tuple[float, str]]] = {}
        """Heaps of negated draws, so that the largest is on top."""

    def add(self, stratum: str, name: str) -> None:
        """Add a new member."""
        self._counts[stratum] = self._counts.get(stratum, 0) + 1
        heap = self._held.setdefault(stratum, [])
        entry = (-seeded_uniform(f"member:{name}", seed=self._seed), name)
        if len(heap) < self._size:
            heapq.heappush(heap, entry)
        elif heap and entry > heap[0]:
            heapq.heapreplace(heap, entry)

    def draw(self) -> list[str]:
        """`size` names, or all of them, in the order they are due."""
        called = []
        for stratum, heap in self._held.items():
            start = seeded_uniform(f"stratum:{stratum}", seed=self._seed)
            for place, (negated, name) in enumerate(sorted(heap, reverse=True)):
                called.append(((place + start) / self._counts[stratum], -negated, name))
        return [name for _, _, name in sorted(called)[: self._size]]
