"""What a critic is held against: the steps, sibling pairs and trajectories of trees, with true values.

Decides what counts as the truth: the mean outcome of fresh continuations by `calibrate --revalue` where a run has them,
else the tree's own values with enough observations. Asks no critic and computes no statistic.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

import orjson

from preference import Message, RolloutNode, RolloutRecord
from preference.labelling import distinct_steps, labelled_states
from preference.records import ActionType
from reasonrag.errors import InputError
from reasonrag.files import read_small
from reasonrag.studies.revaluation import PLACE, REPORT

WON = 0.5
"""Outcome from which on a trajectory has won, and true value from which on a step is right."""
DROP = 0.5
"""Fall of the true value by which a step is an error; our choice."""


@dataclass(frozen=True, slots=True)
class JudgedStep:
    """A step with its true value. state: where it was taken. draws: how often it was drawn there. value: in [0, 1],
    None if it is not known well enough. estimated: whether it is the tree's own estimate, neither fresh nor an end."""

    run: int
    question: str
    question_id: str
    state: int
    prompt: tuple[Message, ...]
    response: str
    action_type: ActionType | None
    layer: int
    value: float | None
    draws: int
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class JudgedPair:
    """Two siblings, the truly better first."""

    better: JudgedStep
    worse: JudgedStep
    margin: float


@dataclass(frozen=True, slots=True)
class Trajectory:
    """A path from the question to an answer. before: the question's own value."""

    question: str
    steps: tuple[JudgedStep, ...]
    outcome: float
    before: float | None

    @property
    def won(self) -> bool:
        return self.outcome >= WON

    def errors(self) -> list[int] | None:
        """Places of the steps whose value lies `DROP` or more below the one before; None if a value is not known."""
        values = [self.before, *(step.value for step in self.steps)]
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            return None
        return [place for place in range(len(self.steps)) if known[place] - known[place + 1] >= DROP]


@dataclass
class Observations:
    """All that is known of the held-out questions of some runs. fresh: pairs valued by fresh continuations."""

    steps: list[JudgedStep] = field(default_factory=list)
    pairs: list[JudgedPair] = field(default_factory=list)
    trajectories: list[Trajectory] = field(default_factory=list)
    fresh: int = 0
    questions: int = 0

    @property
    def states(self) -> dict[tuple[int, str, int], list[JudgedStep]]:
        """The steps with a value, by state."""
        found: defaultdict[tuple[int, str, int], list[JudgedStep]] = defaultdict(list)
        for step in self.steps:
            if step.value is not None:
                found[step.run, step.question, step.state].append(step)
        return dict(found)


FreshPair = tuple[int, int, float, float]
"""Two node ids, and the mean outcomes of their fresh continuations."""


def fresh_values(run: Path) -> dict[str, list[FreshPair]]:
    """Pairs of `calibrate --revalue` by question id; empty where it was not run."""
    path, found = run / PLACE / REPORT, defaultdict[str, list[FreshPair]](list)
    try:
        told = orjson.loads(read_small(path))
        for each in (told.get("revaluation") or {}).get("sample") or ():
            if each.get("chosen_outcome") is not None and each.get("rejected_outcome") is not None:
                sides = each["chosen_id"], each["rejected_id"], each["chosen_outcome"], each["rejected_outcome"]
                found[each["question_id"]].append(sides)
    except OSError:
        return {}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} is damaged: {error}. Make it again: reasonrag calibrate {run} --revalue N") from error
    return dict(found)


def add_tree(
    to: Observations,
    rollout: RolloutRecord,
    fresh: Mapping[str, list[FreshPair]],
    *,
    run: int,
    enough: float,
) -> None:
    """Add a tree. fresh: of its run; if that is empty, pairs are valued by the tree."""
    by_id: dict[int, JudgedStep] = {}
    of_tree = fresh.get(rollout.question_id, [])
    outcomes = {
        node_id: value for one, other, *both in of_tree for node_id, value in zip((one, other), both, strict=True)
    }
    for node in rollout.nodes[1:]:
        if node.prompt and node.response is not None:
            by_id[node.id] = _judged(rollout, node, run, enough, outcomes.get(node.id))
    to.questions += 1
    kept = {step.id for state in labelled_states(rollout) for step in distinct_steps(state)}
    to.steps += [step for node_id, step in by_id.items() if node_id in kept]
    if fresh:
        pairs = list(_fresh_pairs(by_id, of_tree))
        to.fresh += len(pairs)
    else:
        pairs = list(_tree_pairs({node_id: by_id[node_id] for node_id in kept if node_id in by_id}))
    to.pairs += pairs
    to.trajectories += _trajectories(rollout, by_id)


def _judged(rollout: RolloutRecord, node: RolloutNode, run: int, enough: float, fresh: float | None) -> JudgedStep:
    known = node.terminal or fresh is not None or (node.observations or 0.0) >= enough
    value = fresh if fresh is not None else node.expected_outcome
    if value is None and node.terminal:
        value = _outcome(node)
    return JudgedStep(
        run=run,
        question=rollout.question,
        question_id=rollout.question_id,
        state=node.parent_id or 0,
        prompt=tuple(node.prompt or ()),
        response=node.response or "",
        action_type=node.action_type,
        layer=node.layer or 0,
        value=value if known else None,
        draws=max(1, node.draws),
        estimated=not node.terminal and fresh is None,
    )


def _outcome(node: RolloutNode) -> float | None:
    return node.f1 if node.outcome is None else node.outcome.value


def _fresh_pairs(by_id: Mapping[int, JudgedStep], fresh: list[FreshPair]) -> Iterator[JudgedPair]:
    for chosen, rejected, high, low in fresh:
        if chosen in by_id and rejected in by_id and high != low:
            sides = (by_id[chosen], by_id[rejected]) if high > low else (by_id[rejected], by_id[chosen])
            yield JudgedPair(*sides, margin=abs(high - low))


def _tree_pairs(steps: Mapping[int, JudgedStep]) -> Iterator[JudgedPair]:
    by_state: defaultdict[int, list[JudgedStep]] = defaultdict(list)
    for step in steps.values():
        if step.value is not None and step.action_type is not None:
            by_state[step.state].append(step)
    for siblings in by_state.values():
        for one, other in combinations(siblings, 2):
            margin = (one.value or 0.0) - (other.value or 0.0)
            if margin:
                yield JudgedPair(*((one, other) if margin > 0 else (other, one)), margin=abs(margin))


def _trajectories(rollout: RolloutRecord, by_id: Mapping[int, JudgedStep]) -> Iterator[Trajectory]:
    for node in rollout.nodes[1:]:
        outcome = _outcome(node)
        if not node.terminal or outcome is None or node.parse_error is not None or node.content is None:
            continue
        path = [node]
        while path[-1].parent_id:
            path.append(rollout.nodes[path[-1].parent_id])
        if all(each.id in by_id for each in path):
            steps = tuple(by_id[each.id] for each in reversed(path))
            before = rollout.nodes[0].expected_outcome
            yield Trajectory(rollout.question, steps, outcome, before)
