"""Other labels for the same trees, and as many pairs of them: what the loop holds process preference against.

Decides what outcome-only preference is. A step's *own trajectory* is the one in which it was first drawn: the step, the
first step drawn after it, and so on to an answer. Its worth is that answer's outcome and nothing else, whatever other
continuations came to; a step whose own trajectory has no end in the tree has no worth. Everything else is as with
process preference: the same trees, the same siblings, the same filters (the confidence of a single trajectory is not
known, so that filter does not apply).
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from preference.candidates import PairRecord, StateRecord, read_lines
from preference.export.files import atomic_replacement
from preference.export.summary import CANDIDATES, QUESTIONS
from preference.records import RolloutRecord, read_rollouts


def own_outcome(rollout: RolloutRecord, node_id: int) -> float | None:
    """Outcome of the trajectory in which a step was first drawn."""
    node = rollout.nodes[node_id]
    while not node.terminal:
        if not node.children_ids:
            return None
        node = rollout.nodes[min(node.children_ids)]
    return node.outcome.value if node.outcome is not None else node.f1


def by_outcome(state: StateRecord, worth: Callable[[int], float | None]) -> StateRecord:
    """The state with every step worth its own trajectory's outcome, and pairs the better step first. Pairs of equal
    worth, or of unknown worth, have a margin of 0 or none, which no filter lets pass."""
    steps = [step.model_copy(update={"reward": worth(step.id)}) for step in state.steps]
    value = {step.id: step.reward for step in steps}
    broken = {step.id for step in steps if step.parse_error is not None}
    return state.model_copy(
        update={"steps": steps, "pairs": [_relabelled(each, value, broken) for each in state.pairs]}
    )


def _relabelled(pair: PairRecord, value: dict[int, float | None], broken: Collection[int]) -> PairRecord:
    better, worse = value[pair.chosen], value[pair.rejected]
    if better is None or worse is None:
        return pair.model_copy(update={"margin": None, "confidence": None})
    if better < worse and pair.rejected not in broken:
        pair, better, worse = pair.swapped(), worse, better
    tags = [tag for tag in pair.tags if tag == "style_only"]
    return pair.model_copy(update={"margin": better - worse, "confidence": None, "tags": tags})


def write_by_outcome(rollouts: Path, labelled: Path, out: Path) -> None:
    """The candidates of a data set with outcome-only labels, as a data set that `reasonrag pairs` takes.

    rollouts: file of the run that `labelled`, a data set, was made of.
    """
    trees = {each.question_id: each for each in read_rollouts(rollouts)}
    states = (
        by_outcome(state, lambda node_id, tree=trees[state.question_id]: own_outcome(tree, node_id))  # type: ignore[misc]
        for state in read_lines(labelled / CANDIDATES, StateRecord)
    )
    _write(states, labelled, out)


def write_only(labelled: Path, pair_ids: Collection[str], out: Path) -> None:
    """The candidates of a data set with these pairs alone, as a data set that `reasonrag pairs` takes."""
    kept = frozenset(pair_ids)
    states = (
        state.model_copy(update={"pairs": [each for each in state.pairs if each.pair_id in kept]})
        for state in read_lines(labelled / CANDIDATES, StateRecord)
    )
    _write((state for state in states if state.pairs), labelled, out)


def drawn(pair_ids: Iterable[str], count: int, *, seed: int) -> set[str]:
    """So many of the pairs, always the same ones."""
    return set(random.Random(f"equal data {seed}").sample(sorted(pair_ids), count))


def _write(states: Iterable[StateRecord], labelled: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    with atomic_replacement(out / CANDIDATES) as file:
        file.writelines(state.to_line() for state in states)
    shutil.copyfile(labelled / QUESTIONS, out / QUESTIONS)
