"""The search itself: which work is wanted (`ask`), and what follows from its results (`tell`).

Work comes in waves. `ask` hands out a whole wave and the next one needs all of it told; results are applied
in the order of the work, never of their arrival. One simulation takes two waves: new siblings are sampled in the
selected state (`Expand`), then each is valued (`Continue` to real answers, or `Score` by a judge) and backed up.
Settled here: selection by descent or by mixed outcomes, budgets, visit and value backup.
Not known here: what a payload is, who samples, how long that takes, what labels will be made of.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from mcts.rewards import shortest_path_reward
from mcts.selection import SCORES
from mcts.tree import ROOT_ID, Node, Step, Tree

P = TypeVar("P")


class SearchConfig(BaseModel):
    """Everything about a search that is not the policy. Frozen; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    selection: Literal["uct", "puct", "mixed"]
    """`uct` and `puct` walk down from the root; `mixed` goes to states through which both better and worse
    answers were seen, shallowest first, and leaves settled ones alone."""
    exploration: float = Field(ge=0)
    """c of the UCT or PUCT formula; without meaning for `mixed`."""
    siblings: int = Field(ge=1)
    """Children a state gets at most by expansion."""
    siblings_at_once: int | None = Field(default=None, ge=1)
    """Children sampled per visit of a state; None: all that are missing, in one piece of work."""
    valuation: Literal["continuation", "score"]
    """How a new step is valued: by real continuations to an answer, or by one number from outside."""
    continuations: int = Field(ge=1)
    """Real continuations sampled from every new step that does not end; without meaning for `score`."""
    alpha: float = Field(gt=0, le=1)
    """Discount per step of the outcomes that are backed up, and of the rewards (SPRE; arXiv 2505.14069, Eq. 1)."""
    keep_continuations: bool = False
    """Whether the steps of a continuation become nodes of the tree."""
    simulations: int = Field(ge=1)
    """Selections of a state before the search ends."""
    max_calls: int | None = Field(default=None, ge=1)
    """Replies the search may use, however many of them one request carried. Work is handed out only while it would
    fit, a continuation being expected to be as long as the mean of those seen so far: the last ones may overrun by
    what they are longer."""
    wave: int = Field(default=1, ge=1)
    """Simulations in flight at once in one tree."""


@dataclass(frozen=True, slots=True)
class Expand:
    """Sample `count` further siblings in the state below `node_id`."""

    id: int
    node_id: int
    count: int
    sample: int
    """Number of the first draw; the others follow. No two draws of one tree share a number."""


@dataclass(frozen=True, slots=True)
class Continue:
    """Sample `count` continuations to an answer from the step `node_id` on."""

    id: int
    node_id: int
    count: int
    sample: int


@dataclass(frozen=True, slots=True)
class Score:
    """Say how good the path down to `node_id` is, in [0, 1]."""

    id: int
    node_id: int
    sample: int


@dataclass(frozen=True, slots=True)
class Expanded(Generic[P]):
    """Siblings in order of their draws. `calls`: replies used, repairs included."""

    steps: Sequence[Step[P]]
    calls: int


@dataclass(frozen=True, slots=True)
class Continued(Generic[P]):
    """Paths in order of their draws, each ending in a terminal step."""

    paths: Sequence[Sequence[Step[P]]]
    calls: int


@dataclass(frozen=True, slots=True)
class Scored:
    value: float
    calls: int


Work: TypeAlias = Expand | Continue | Score
Result: TypeAlias = Expanded[P] | Continued[P] | Scored


class Search(Generic[P]):
    """One tree being searched. See the module docstring for the protocol."""

    def __init__(self, config: SearchConfig) -> None:
        self.config = config
        self.tree: Tree[P] = Tree()
        self.simulations = 0
        """Selections made so far."""
        self.calls = 0
        """Replies used so far, as told."""
        self._wave: dict[int, Work] = {}
        self._told: dict[int, Result[P]] = {}
        self._unvalued: list[int] = []
        self._continuations = 0
        self._continuation_calls = 0
        self._next_work = 0
        self._next_sample = 0

    def ask(self) -> list[Work]:
        """The work of the current wave that has not been told yet; empty when the search is over.

        A new wave is made once the last one is told whole, so asking again changes nothing.
        """
        while not self._wave:
            wave = self._valuations() or self._selections()
            if wave is None:
                return []
            self._wave = {work.id: work for work in wave}
        return [work for work in self._wave.values() if work.id not in self._told]

    def tell(self, work_id: int, result: Result[P]) -> None:
        """Take one result. Telling again what was told before does nothing, even if it differs.

        Raises ValueError for work that was never asked, and for a result that does not fit the work.
        """
        if not 0 <= work_id < self._next_work:
            raise ValueError(f"work {work_id} was never asked for")
        if work_id not in self._wave or work_id in self._told:
            return
        _check(self._wave[work_id], result)
        self._told[work_id] = result
        if len(self._told) == len(self._wave):
            wave, told = self._wave, self._told
            self._wave, self._told = {}, {}
            for each_id, work in wave.items():
                self._apply(work, told[each_id])

    @property
    def done(self) -> bool:
        return not self.ask()

    # -- waves ---------------------------------------------------------------------------------

    def _selections(self) -> list[Work] | None:
        """First wave: further siblings for selected states, or a new judgement of a selected leaf.

        None when the search is over; an empty list when all that was selected needed nothing from outside.
        """
        wave: list[Work] = []
        taken: set[int] = set()
        pending: Counter[int] = Counter()
        started = self.simulations
        while len(taken) < self.config.wave and self.simulations < self.config.simulations:
            node = self._select(taken, pending) if self._calls_left(wave) >= self._calls_per_value else None
            if node is None or node.id in taken:
                break
            if node.terminal and self.config.valuation == "continuation":
                self.simulations += 1
                self._back_up_outcome(node, _last_step(node))
                continue
            if node.terminal:
                wave.append(Score(self._work_id(), node.id, self._draw(1)))
            else:
                count = self._affordable_siblings(node, wave)
                if not count and not self._owes_values(node):
                    break  # the budget pays for no sibling and its value
                self._unvalued.extend(node.children_ids)
                if count:
                    wave.append(Expand(self._work_id(), node.id, count, self._draw(count)))
            self.simulations += 1
            taken.add(node.id)
            pending.update(each.id for each in self.tree.path_up(node))
        return wave if wave or self.simulations > started else None

    def _affordable_siblings(self, node: Node[P], wave: Sequence[Work]) -> int:
        """How many siblings to sample in a selected state: what is missing, as far as it can be valued as well."""
        missing = max(0, self.config.siblings - len(node.children_ids))
        affordable = self._calls_left(wave) / (1 + self._calls_per_value)
        return int(min(missing, self.config.siblings_at_once or missing, max(0, affordable)))

    def _valuations(self) -> list[Work]:
        """Second wave: what the children of the states selected last are worth."""
        wave: list[Work] = []
        for node in map(self.tree.__getitem__, self._unvalued):
            wanted = self._wanted_values(node)
            count = int(min(wanted, self._calls_left(wave) / self._calls_per_value))
            if count <= 0:
                continue
            if self.config.valuation == "score":
                wave.append(Score(self._work_id(), node.id, self._draw(1)))
            else:
                wave.append(Continue(self._work_id(), node.id, count, self._draw(count)))
        self._unvalued.clear()
        return wave

    def _wanted_values(self, node: Node[P]) -> int:
        """How many values from outside a step is still owed."""
        if self.config.valuation == "score":
            return int(node.visits == 0)
        return 0 if node.terminal else max(0, self.config.continuations - node.visits)

    def _apply(self, work: Work, result: Result[P]) -> None:
        self.calls += result.calls
        node = self.tree[work.node_id]
        if isinstance(result, Scored):
            self._back_up(node, result.value)
        elif isinstance(result, Expanded):
            for step in result.steps:
                child = self.tree.add(node, step)
                self._unvalued.append(child.id)
                if child.terminal and self.config.valuation == "continuation":
                    self._back_up_outcome(child, step)
        else:
            self._continuations += len(result.paths)
            self._continuation_calls += result.calls
            for path in result.paths:
                self._follow(node, path)

    def _follow(self, node: Node[P], path: Sequence[Step[P]]) -> None:
        """Record one continuation, as nodes or as a value only, and back its outcome up."""
        if self.config.keep_continuations:
            for step in path:
                node = self.tree.add(node, step)
            self._back_up_outcome(node, path[-1])
        else:
            self.tree.add_continuation(node, path)
            if all(step.plain for step in path):
                self._back_up_outcome(node, path[-1], further_steps=len(path))

    # -- selection -----------------------------------------------------------------------------

    def _select(self, taken: set[int], pending: Counter[int]) -> Node[P] | None:
        """The next state to work on, or a leaf; None if `mixed` finds nothing left to settle."""
        if self.config.selection == "mixed":
            return self._shallowest_mixed_state(taken)
        node = self.tree.root
        while not node.terminal and len(node.children_ids) >= self.config.siblings:
            node = self._best_child(node, pending)
        return node

    def _best_child(self, node: Node[P], pending: Counter[int]) -> Node[P]:
        """The first of the children with the highest score."""
        score = SCORES[self.config.selection]
        children = self.tree.children(node)
        return max(
            children,
            key=lambda child: score(
                child.value,
                visits=child.visits + pending[child.id],
                parent_visits=node.visits + pending[node.id],
                prior=1 / len(children),
                exploration=self.config.exploration,
            ),
        )

    def _shallowest_mixed_state(self, taken: set[int]) -> Node[P] | None:
        candidates = (
            node
            for node in self.tree.nodes
            if not node.terminal and node.id not in taken and self._owes(node) and _is_open(node)
        )
        return min(candidates, key=lambda node: (node.depth, node.id), default=None)

    def _owes(self, node: Node[P]) -> bool:
        """Whether the state still lacks siblings, or one of them values."""
        return len(node.children_ids) < self.config.siblings or self._owes_values(node)

    def _owes_values(self, node: Node[P]) -> bool:
        return any(self._wanted_values(child) for child in self.tree.children(node))

    # -- bookkeeping ---------------------------------------------------------------------------

    def _back_up(self, node: Node[P], value: float) -> None:
        """Count a value up to the root, or up to a step that was no plain sample of its state's policy."""
        for ancestor in self.tree.path_up(node):
            ancestor.visits += 1
            ancestor.value_sum += value
            if not ancestor.plain:
                return

    def _back_up_outcome(self, node: Node[P], last: Step[P], *, further_steps: int = 0) -> None:
        """Back up the discounted outcome of an answer given `further_steps` below `node`."""
        steps = node.depth + further_steps
        reward = shortest_path_reward(last.outcome, steps=steps, alpha=self.config.alpha)
        self._back_up(node, reward)

    def _work_id(self) -> int:
        self._next_work += 1
        return self._next_work - 1

    def _draw(self, count: int) -> int:
        self._next_sample += count
        return self._next_sample - count

    def _calls_left(self, wave: Sequence[Work]) -> float:
        if self.config.max_calls is None:
            return math.inf
        return self.config.max_calls - self.calls - sum(map(self._expected_calls, wave))

    def _expected_calls(self, work: Work) -> float:
        """What a piece of work will use; for a new sibling its value, asked for in the next wave, is included."""
        if isinstance(work, Score):
            return 1
        return work.count * (self._calls_per_value + isinstance(work, Expand))

    @property
    def _calls_per_value(self) -> float:
        """Replies that a judgement or a mean continuation takes."""
        return self._continuation_calls / self._continuations if self._continuation_calls else 1


def _last_step(node: Node[P]) -> Step[P]:
    if node.step is None:
        raise ValueError("the root is no step")
    return node.step


def _is_open(node: Node[Any]) -> bool:
    """Whether more budget could teach anything: the root always, others while their outcomes disagree."""
    outcomes = {rollout.outcome for rollout in node.rollouts}
    return node.id == ROOT_ID or len(outcomes) > 1


def _check(work: Work, result: Result[Any]) -> None:
    """Refuse a result that is not an answer to this work."""
    where = f"work {work.id} ({type(work).__name__} at node {work.node_id})"
    if isinstance(work, Expand) and isinstance(result, Expanded):
        given, outcomes = len(result.steps), [s.outcome for s in result.steps if s.terminal]
    elif isinstance(work, Continue) and isinstance(result, Continued):
        given, outcomes = len(result.paths), [path[-1].outcome for path in result.paths if path]
        if not all(path and _ends_once(path) for path in result.paths):
            raise ValueError(f"{where}: every continuation must end in its only terminal step")
    elif isinstance(work, Score) and isinstance(result, Scored):
        given, outcomes = 1, [result.value]
    else:
        raise ValueError(f"{where}: a {type(result).__name__} is no answer to it")
    wanted = 1 if isinstance(work, Score) else work.count
    if given != wanted:
        raise ValueError(f"{where}: wants {wanted} results, got {given}")
    if result.calls < 0:
        raise ValueError(f"{where}: calls must not be negative, got {result.calls}")
    for outcome in outcomes:
        if not 0 <= outcome <= 1:
            raise ValueError(f"{where}: {outcome} is not in [0, 1]")


def _ends_once(path: Sequence[Step[Any]]) -> bool:
    return path[-1].terminal and not any(step.terminal for step in path[:-1])
