"""What became of each step of a tree in the search: went on, settled, left alone, or ended.

Decides the words only, from what the record says; the search itself keeps no such note. Used by pages and terminals.
"""

from __future__ import annotations

from collections import Counter
from typing import Literal

from preference import FinalScore, RolloutNode, RolloutRecord

Fate = Literal["answer", "failed", "repeated", "unexplored", "settled", "mixed"]
"""answer, failed: the path ends with this step. repeated: it says the same as an earlier sibling and shares that one's
estimate, so the search went on there only. unexplored: no continuation below it was ever sampled. settled: at least two
came to the same outcome and none to another, so there is nothing more to find out. mixed: the others, where outcomes
differ or one continuation alone is known."""


def fates(record: RolloutRecord) -> list[Fate]:
    """Of every node by id; the root's is that of its state."""
    below = _ends_below(record)
    return [_fate(node, below[node.id]) for node in record.nodes]


def _fate(node: RolloutNode, ends: list[FinalScore]) -> Fate:
    if node.parse_error is not None:
        return "failed"
    if node.terminal:
        return "answer"
    if node.same_as is not None:
        return "repeated"
    if not ends:
        return "unexplored"
    return "settled" if len(ends) > 1 and len({end.quality for end in ends}) == 1 else "mixed"


def _ends_below(record: RolloutRecord) -> list[list[FinalScore]]:
    """All ends of continuations through each node, those included that count for no mean above them."""
    found: list[Counter[FinalScore]] = [Counter(node.rollouts) for node in record.nodes]
    for node in reversed(record.nodes):  # children have higher ids than their parents
        children = Counter[FinalScore]()
        for child in node.children_ids:
            children += found[child]
        found[node.id] |= children
    return [list(each.elements()) for each in found]
