"""What a critic is held against: sibling pairs of trees, with true values.

Decides what counts as the truth: the mean outcome of fresh continuations by `calibrate --revalue` where a run has them,
else the tree's own values with enough observations. Asks no critic and computes no statistic.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import orjson

from preference import RolloutNode, RolloutRecord
from preference.labelling import distinct_steps, labelled_states
from preference.records import ActionType
from reasonrag.errors import InputError
from reasonrag.files import CALIBRATION, CALIBRATION_REPORT, read_small
from reasonrag.run.scoring import StepToScore


@dataclass(frozen=True)
class JudgedStep(StepToScore):
    """A step, what it is, and where it was taken."""

    question: str
    action_type: ActionType | None
    layer: int


@dataclass(frozen=True, slots=True)
class JudgedPair:
    """Two siblings, the truly better first. margin: of their true values."""

    better: JudgedStep
    worse: JudgedStep
    margin: float

    @property
    def sides(self) -> tuple[JudgedStep, JudgedStep]:
        return self.better, self.worse


FreshPair = tuple[int, int, float, float]
"""Two node ids, and the mean outcomes of their fresh continuations."""


def fresh_values(run: Path) -> dict[str, list[FreshPair]]:
    """Pairs of `calibrate --revalue` by question id; empty where it was not run."""
    path, found = run / CALIBRATION / CALIBRATION_REPORT, defaultdict[str, list[FreshPair]](list)
    try:
        told = orjson.loads(read_small(path))
        for each in (told.get("revaluation") or {}).get("sample") or ():
            if each.get("chosen_outcome") is not None and each.get("rejected_outcome") is not None:
                sides = each["chosen_id"], each["rejected_id"], each["chosen_outcome"], each["rejected_outcome"]
                found[each["question_id"]].append(sides)
    except FileNotFoundError:
        return {}
    except (AttributeError, KeyError, OSError, TypeError, ValueError) as error:
        raise InputError(f"{path} is damaged: {error}. Make it again: reasonrag calibrate {run} --revalue N") from error
    return dict(found)


def judged_pairs(
    rollout: RolloutRecord, fresh: Mapping[str, list[FreshPair]], *, enough: float
) -> Iterator[JudgedPair]:
    """The pairs of a tree. fresh: of its run; empty: the tree values them, by steps with `enough` observations."""
    if fresh:
        nodes = {node.id: node for node in rollout.nodes[1:] if is_step(node)}
        for chosen, rejected, high, low in fresh.get(rollout.question_id, []):
            if chosen in nodes and rejected in nodes and high != low:
                yield _pair(rollout, nodes[chosen], nodes[rejected], high - low)
        return
    kept = {step.id for state in labelled_states(rollout) for step in distinct_steps(state)}
    by_state: defaultdict[int, list[tuple[RolloutNode, float]]] = defaultdict(list)
    for node in rollout.nodes[1:]:
        value = true_value(node, enough) if node.id in kept and is_step(node) else None
        if value is not None and node.action_type is not None:
            by_state[node.parent_id or 0].append((node, value))
    for siblings in by_state.values():
        for (one, higher), (other, lower) in combinations(siblings, 2):
            if higher != lower:
                yield _pair(rollout, one, other, higher - lower)


def judged_step(rollout: RolloutRecord, node: RolloutNode) -> JudgedStep:
    return JudgedStep(
        question_id=rollout.question_id,
        state=tuple(node.prompt or ()),
        step=node.response or "",
        question=rollout.question,
        action_type=node.action_type,
        layer=node.layer or 0,
    )


def _pair(rollout: RolloutRecord, one: RolloutNode, other: RolloutNode, margin: float) -> JudgedPair:
    """margin: of the first over the other."""
    better, worse = (one, other) if margin > 0 else (other, one)
    return JudgedPair(judged_step(rollout, better), judged_step(rollout, worse), abs(margin))


def is_step(node: RolloutNode) -> bool:
    return bool(node.prompt) and node.response is not None


def true_value(node: RolloutNode, enough: float) -> float | None:
    """In [0, 1]; None if it is not known well enough."""
    if not node.terminal:
        return node.expected_outcome if (node.observations or 0.0) >= enough else None
    return node.quality if node.expected_outcome is None else node.expected_outcome
