"""How different the steps drawn in one state are. Knows texts, not rewards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from preference.records import OF_THE_STATE, RolloutNode, RolloutRecord
from preference.similarity import equivalent_steps


@dataclass(frozen=True, slots=True)
class StateDraws:
    """Draws from a state's own prompt at the run's temperature, and how many distinct steps they gave."""

    layer: int
    draws: int
    distinct: int


def drawn_states(rollout: RolloutRecord) -> Iterator[StateDraws]:
    """Every state in which at least two steps were drawn, in order of creation.

    Only plain samples with a reply count: no repairs, no other temperature, no prompts that show siblings.
    """
    for node in rollout.nodes:
        children = [rollout.nodes[each] for each in node.children_ids]
        replies = [each for each in children if not each.parse_error or each.parse_error.cause not in OF_THE_STATE]
        steps = [each for each in replies if each.sampled_with is None]
        draws = sum(step.draws for step in steps)
        if draws > 1:
            yield StateDraws(0 if node.layer is None else node.layer + 1, draws, _distinct(steps))


def _distinct(steps: list[RolloutNode]) -> int:
    different: list[RolloutNode] = []
    for step in steps:
        if not any(_repeats(step, other) for other in different):
            different.append(step)
    return len(different)


def _repeats(step: RolloutNode, other: RolloutNode) -> bool:
    return equivalent_steps(step, other) or (step.content is other.content is None and step.response == other.response)


class DiversityCount:
    """Sums over trees."""

    def __init__(self) -> None:
        self._draws: Counter[int] = Counter()
        self._distinct: Counter[int] = Counter()

    def add(self, rollout: RolloutRecord) -> None:
        for state in drawn_states(rollout):
            self._draws[state.layer] += state.draws
            self._distinct[state.layer] += state.distinct

    def by_layer(self) -> dict[str, float]:
        """Distinct steps per draw over states with at least two draws; 1 if no two were equivalent."""
        return {str(layer): self._distinct[layer] / self._draws[layer] for layer in sorted(self._draws)}
