"""Which questions of a data set are for validation. All rows of a question are in one split."""

from __future__ import annotations

from collections.abc import Mapping

from preference.filters import seeded_uniform


def validation_questions(rows: Mapping[str, int], *, share: float, seed: int) -> frozenset[str]:
    """The validation questions of those with so many rows: the share that is asked for, at least one, drawn by seed.

    A question is passed over that would make validation larger than training, or than its share where that is above
    one half: of a small set, one question may have most rows.
    """
    if not share:
        return frozenset()
    wanted, total = max(1, round(share * len(rows))), sum(rows.values())
    room = min(max(share, 0.5) * total, total - 1)
    chosen = set[str]()
    for key in sorted(rows, key=lambda key: seeded_uniform(f"validation:{key}", seed=seed)):
        if len(chosen) < wanted and rows[key] <= room:
            chosen.add(key)
            room -= rows[key]
    return frozenset(chosen)
