"""The status that a step is shown with: an answer, failed, repeated, unexplored, settled or mixed.

Decided by how its continuations ended, all that were drawn, also those that count for no mean above it.
"""

from __future__ import annotations

from collections import Counter
from typing import Literal

from preference import FinalScore, RolloutNode, RolloutRecord

StepStatus = Literal["answer", "failed", "repeated", "unexplored", "settled", "mixed"]
"""answer, failed: the path ends with this step, with an answer or without. repeated: it says the same as an earlier
sibling and shares that one's estimate, so the search went on there only. unexplored: no continuation below it was ever
sampled. settled (people read "converged"): at least two continuations, all with the same outcome. mixed ("open"): all
others, where outcomes differ or only one continuation is known."""


def step_statuses(record: RolloutRecord) -> list[StepStatus]:
    """Status of every node by id; that of the root is the status of its state."""
    below = _ends_below(record)
    return [_step_status(node, below[node.id]) for node in record.nodes]


def _step_status(node: RolloutNode, ends: list[FinalScore]) -> StepStatus:
    if node.parse_error is not None:
        return "failed"
    if node.terminal:
        return "answer" if node.action_type == "answer" else "failed"
    if node.same_as is not None:
        return "repeated"
    if not ends:
        return "unexplored"
    return "settled" if len(ends) > 1 and len({end.quality for end in ends}) == 1 else "mixed"


def _ends_below(record: RolloutRecord) -> list[list[FinalScore]]:
    """All ends of continuations through each node, including those that count for no mean above."""
    found: list[Counter[FinalScore]] = [Counter(node.rollouts) for node in record.nodes]
    for node in reversed(record.nodes):  # children have higher ids than their parents
        children = Counter[FinalScore]()
        for child in node.children_ids:
            children += found[child]
        found[node.id] |= children
    return [list(each.elements()) for each in found]
