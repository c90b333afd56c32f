"""Draws by a seed, and stratified sampling: proportional over strata, and a larger sample extends a smaller one.

Decides by names alone; does not know what they stand for.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable


def stratified_sample(members: Iterable[tuple[str, str]], size: int, *, seed: int) -> list[str]:
    """`size` names, or all of them, in the order they are due. members: stratum and name of each.

    The members of a stratum are ordered by their draws from [0, 1). Member k of n (from 0) is due at (k + u) / n, where
    u in [0, 1) is the stratum's own draw; the sample takes the members that are due first. At any time every stratum
    has contributed its share to within one, and its expected number is exactly its share: rare strata are drawn as
    often as they should be, which a rule of largest remainders would never do. Systematic sampling with a random start,
    see W. G. Cochran, Sampling Techniques, chapter 8.
    """
    strata = defaultdict[str, list[tuple[float, str]]](list)
    for stratum, name in members:
        strata[stratum].append((seeded_uniform(f"member:{name}", seed=seed), name))
    due = []
    for stratum, drawn in strata.items():
        start = seeded_uniform(f"stratum:{stratum}", seed=seed)
        due += [((place + start) / len(drawn), *each) for place, each in enumerate(sorted(drawn))]
    return [name for _, _, name in sorted(due)[:size]]


def seeded_uniform(name: str, *, seed: int) -> float:
    """A number in [0, 1) that depends only on name and seed."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{name}".encode()).digest()[:6]) / 2**48
