"""Advantages: by how much a step, or the attempts through it, went better than what else was drawn.

Pure functions of the steps of a finished tree, for policy gradients: one advantage a step, in the order given, None
where it is undefined. Equal replies of one state count as one step drawn several times, whether they are one node or
several. Decides the formulas. Does not know which steps are fair draws of the policy, which is the caller's to choose:
within a state those of any tree are, but answers that a search was led to are no sample of the policy, so `outcome` and
`tree_grpo` take plain attempts alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from math import fsum, sqrt
from typing import NamedTuple, TypeAlias

EPSILON = 1e-4
"""Added to a standard deviation, as GRPO's implementations do (TRL, and with it ProRAG)."""


class Drawn(NamedTuple):
    """A step, as often as it was drawn.

    parent: id of the step before it; 0 for the first of an attempt.
    state: equal for steps that were taken in one state; reply: equal for those that say the same there.
    value: expected outcome below the step; None if it is not known.
    outcome: of the attempts that end with the step; None for one that goes on.
    """

    id: int
    parent: int
    state: Hashable
    reply: Hashable
    draws: int
    value: float | None = None
    outcome: float | None = None


Place: TypeAlias = tuple[Hashable, Hashable]
"""A state and a reply: what several nodes may be."""
Advantage: TypeAlias = Callable[[Sequence[Drawn]], list[float | None]]


def parent(steps: Sequence[Drawn]) -> list[float | None]:
    """Value of a step less that of its state, the mean over what was drawn there: a step-level advantage as TreePS-RAG
    (arXiv 2601.06922) and VinePPO (arXiv 2410.01679) take it from continuations. Weighted by draws, a state's sum to 0.
    """
    return _in_states(steps, _less_the_mean)


def leave_one_out(steps: Sequence[Drawn]) -> list[float | None]:
    """Value of a step less the mean of the other replies of its state, as RLOO (arXiv 2402.14740) does with the other
    draws. None where there is no other."""
    return _in_states(steps, _less_the_others)


def sibling(steps: Sequence[Drawn]) -> list[float | None]:
    """`parent` divided by the standard deviation in the state. None where one step alone was taken. Weighted by draws,
    a state's sum to 0."""
    return _in_states(steps, lambda values, draws: z_scores(values, draws) if len(values) > 1 else None)


def outcome(steps: Sequence[Drawn]) -> list[float | None]:
    """Outcome of an attempt against the question's others (GRPO, arXiv 2402.03300, Section 4.1); of a step the mean
    over the attempts through it. Over all attempts they sum to 0."""
    return _through(steps, _z_of_attempts(steps))


def tree_grpo(steps: Sequence[Drawn]) -> list[float | None]:
    """An attempt's advantage among all of its question plus that within its tree (arXiv 2509.21240: inter and intra);
    of a step the mean over the attempts through it.

    A tree is here what follows one first step. The published trees share the question alone as well, and may branch
    there.
    """
    trees, first = defaultdict[Place, list[Drawn]](list), dict[int, Place]()
    for each in steps:  # a step comes after its parent
        first[each.id] = first[each.parent] if each.parent else _place(each)
        trees[first[each.id]].append(each)
    inter, intra = _z_of_attempts(steps), dict[int, float]()
    for tree in trees.values():
        intra |= _z_of_attempts(tree)
    return _through(steps, {each: inter[each] + intra[each] for each in inter})


def prorag(outcomes: Sequence[float], scores: Sequence[float], tokens: Sequence[float], *, beta: float) -> list[float]:
    """A_out + beta * A_proc of the steps of one question (ProRAG, arXiv 2601.21912; `dual granularity`).

    outcomes: A_out, each attempt's advantage, as `outcome` gives it. scores: of each step by a critic, in [0, 1];
        A_proc is their z-score over all tokens of the group, so that long steps weigh more, as in the published code.
        tokens: of each step, times its draws.
    """
    process = z_scores(scores, tokens)
    return [of_outcome + beta * of_step for of_outcome, of_step in zip(outcomes, process, strict=True)]


ADVANTAGES: Mapping[str, Advantage] = {
    "outcome": outcome,
    "sibling": sibling,
    "tree-grpo": tree_grpo,
    "parent": parent,
    "leave-one-out": leave_one_out,
}
"""By the names that rows have; `prorag` needs scores and lengths beside."""


def z_scores(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """(value - mean) / (standard deviation + EPSILON), by weight and without n - 1; exactly 0 where all are equal."""
    if len({*values}) == 1:
        return [0.0] * len(values)
    centred = _less_the_mean(values, weights)
    spread = sqrt(_mean([each * each for each in centred], weights))
    return [each / (spread + EPSILON) for each in centred]


def _less_the_mean(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    mean = _mean(values, weights)
    return [each - mean for each in values]


def _less_the_others(values: Sequence[float], weights: Sequence[float]) -> list[float] | None:
    total = fsum(weights)
    means = _less_the_mean(values, weights)  # v - mean = (1 - w / total) * (v - mean of the others)
    return [each * total / (total - weight) for each, weight in zip(means, weights, strict=True)] if means[1:] else None


def _mean(values: Iterable[float], weights: Sequence[float]) -> float:
    return fsum(value * weight for value, weight in zip(values, weights, strict=True)) / fsum(weights)


def _place(step: Drawn) -> Place:
    return step.state, step.reply


def _in_states(
    steps: Sequence[Drawn], advantages: Callable[[list[float], list[float]], list[float] | None]
) -> list[float | None]:
    """Of the different steps of each state, by their values and draws."""
    states = defaultdict[Hashable, dict[Place, list[tuple[float, int]]]](lambda: defaultdict(list))
    for each in steps:
        if each.value is not None:
            states[each.state][_place(each)].append((each.value, each.draws))
    found = dict[Place, float]()
    for state in states.values():
        weights = [float(sum(draws for _, draws in copies)) for copies in state.values()]
        values = [_mean(*zip(*copies, strict=True)) for copies in state.values()]
        found |= zip(state, advantages(values, weights) or (), strict=False)
    return [found.get(_place(each)) for each in steps]


def _z_of_attempts(steps: Iterable[Drawn]) -> dict[int, float]:
    """By the id of their last step."""
    ends = [each for each in steps if each.outcome is not None]
    found = z_scores([each.outcome or 0.0 for each in ends], [each.draws for each in ends]) if ends else []
    return dict(zip((each.id for each in ends), found, strict=True))


def _through(steps: Sequence[Drawn], ends: Mapping[int, float]) -> list[float | None]:
    """The mean of what attempts have, over those through each step, every draw counted. None where no attempt ends."""
    known = {each.id: each for each in steps}
    below = defaultdict[Place, list[tuple[float, int]]](list)
    for end in ends:
        node: Drawn | None = known[end]
        while node:
            below[_place(node)].append((ends[end], known[end].draws))
            node = known.get(node.parent)
    return [_mean(*zip(*found, strict=True)) if (found := below.get(_place(each))) else None for each in steps]
