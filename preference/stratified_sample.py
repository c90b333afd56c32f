"""Stratified sampling: proportional over strata, and a larger sample extends a smaller one.

Decides which members are drawn, by names alone; does not know what they stand for. Every prefix of the drawn order is
itself such a sample.
"""

from __future__ import annotations

from preference.filters import seeded_uniform


class StratifiedSample:
    """A sample of the members added so far.

    The members of a stratum are ordered by their draws from [0, 1). Member k of n (from 0) is due at (k + u) / n, where
    u in [0, 1) is the stratum's own draw; the sample takes the members that are due first. At any time every stratum
    has contributed its share to within one, and its expected number is exactly its share: rare strata are drawn as
    often as they should be, which a rule of largest remainders would never do. Systematic sampling with a random start,
    see W. G. Cochran, Sampling Techniques, chapter 8.
    """

    def __init__(self, size: int, *, seed: int) -> None:
        self._size = size
        self._seed = seed
        self._members: dict[str, list[tuple[float, str]]] = {}

    def add(self, stratum: str, name: str) -> None:
        """Add a new member."""
        own = seeded_uniform(f"member:{name}", seed=self._seed)
        self._members.setdefault(stratum, []).append((own, name))

    def draw(self) -> list[str]:
        """`size` names, or all of them, in the order they are due."""
        due = []
        for stratum, members in self._members.items():
            start = seeded_uniform(f"stratum:{stratum}", seed=self._seed)
            due += [((place + start) / len(members), *each) for place, each in enumerate(sorted(members))]
        return [name for _, _, name in sorted(due)[: self._size]]
