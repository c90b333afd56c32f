"""A sample that looks like the whole: proportional over strata, and growing without changing.

Decides who is drawn, by names alone; knows nothing of what they stand for. Members come in an order each prefix of
which is itself such a sample, so a smaller sample is the beginning of a larger one.
"""

from __future__ import annotations

import heapq

from preference.filters import lot


class StratifiedSample:
    """The members that pass by, of which at most `size` per stratum are held.

    Those of a stratum are put in the order of their lots. The k-th of n (from 0) is called at (k + u) / n, where u in
    [0, 1) is the stratum's own lot, and all strata are called by one clock. So at any time every stratum has given its
    share to within one, and its expected number is its share exactly: rare strata are drawn as often as they should be,
    which a rule of largest remainders would never do. Systematic sampling with a random start, see W. G. Cochran,
    Sampling Techniques, chapter 8.
    """

    def __init__(self, size: int, *, seed: int) -> None:
        self._size = size
        self._seed = seed
        self._counts: dict[str, int] = {}
        self._held: dict[str, list[tuple[float, str]]] = {}
        """Heaps of negated lots, so that the largest is on top."""

    def add(self, stratum: str, name: str) -> None:
        """A member that was not there before."""
        self._counts[stratum] = self._counts.get(stratum, 0) + 1
        heap = self._held.setdefault(stratum, [])
        entry = (-lot(f"member:{name}", seed=self._seed), name)
        if len(heap) < self._size:
            heapq.heappush(heap, entry)
        elif heap and entry > heap[0]:
            heapq.heapreplace(heap, entry)

    def draw(self) -> list[str]:
        """`size` names, or all there are, in the order in which they were called."""
        called = []
        for stratum, heap in self._held.items():
            start = lot(f"stratum:{stratum}", seed=self._seed)
            for place, (negated, name) in enumerate(sorted(heap, reverse=True)):
                called.append(((place + start) / self._counts[stratum], -negated, name))
        return [name for _, _, name in sorted(called)[: self._size]]
