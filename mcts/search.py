"""The search: which work it wants (`ask`), and what follows from the results (`tell`).

Work comes in waves. `ask` hands out a whole wave and the next one needs all of it told; results are applied
in the order of the work, never of their arrival. One simulation takes two waves: new siblings are sampled in the
selected state (`Expand`), then valued (`Continue` to real answers, `Score` by a judge, or `Rank` against each other)
and backed up. Decides selection (by descent, by expected disagreement, along one chain, or none: plain attempts),
budgets, sample numbers, visit and value backup. Does not know what a payload is, what samples it, how long that takes,
or how labels are made.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, Self, TypeAlias, TypeVar

from pydantic import BaseModel, Field, model_validator

from mcts.expected_outcomes import Estimates
from mcts.rewards import shortest_path_reward
from mcts.selection import (
    PARENT_PRIOR,
    ROOT_PRIOR,
    SCORES,
    after_progress,
    best_child,
    disagreement,
    expected_outcome,
    gain_per_reply,
    least_gain,
)
from mcts.tree import ROOT_ID, Node, Step, Tree

P = TypeVar("P")

RIGHT = 0.5
"""Outcome from which an answer is taken to be right where only the direction matters."""
STRIDE = 10_000
"""Sample numbers: draws of an expansion count from 0; those of continuations that begin d steps below the root from
(d + 1) * STRIDE; judgements are numbered through the tree. So no two draws in one state share a number, and the same
draw has the same number in every search."""


class Configuration(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """Frozen; unknown keys are refused."""


def later(default: Any, **limits: Any) -> Any:
    """A later field, which is not written while it has its default: runs that do not use it keep their hash."""
    return Field(default=default, exclude_if=lambda value: value == default, **limits)


class SearchConfig(Configuration):
    """All of a search but the policy: which state is gone on with, how steps are valued, and when the search ends."""

    selection: Literal["uct", "puct", "unit_puct", "mixed", "chain", "group"]
    """`uct`, `puct` and `unit_puct` walk down from the root (`mcts.selection`); `mixed` picks the state whose answers
    are expected to disagree most, and ends where no reply is worth its price; `chain` goes from each state on with its
    best step; `group` selects nothing: all is plain attempts from the root, each to its end."""
    group: int | None = later(None, ge=1, lt=STRIDE)
    """Attempts (`group` only)."""
    expand: int = later(0, ge=0, lt=STRIDE)
    """How many steps of these attempts, drawn with replacement, are continued once more (`group` only)."""
    exploration: float = Field(ge=0)
    """c of the UCT or PUCT formula; ignored by `mixed`, `chain` and `group`."""
    siblings: int = Field(ge=1, lt=STRIDE)
    """Most steps drawn in a state; with `mixed`, continuations through the state count."""
    root_siblings: int | None = Field(default=None, ge=1, lt=STRIDE)
    """Most steps drawn in the root's state while all answers are equal (`mixed` only); None: `siblings`."""
    siblings_at_once: int | None = Field(default=None, ge=1, lt=STRIDE)
    """Steps drawn per visit of a state; None: all missing ones, as one piece of work."""
    resamples: int = Field(default=0, ge=0, lt=STRIDE)
    """How often a state whose steps are all equivalent gets more, drawn in some other way (`mixed` only)."""
    share_estimates: bool = False
    """Value equivalent siblings once and let them share the estimate; those that have something in common, by that."""

    valuation: Literal["continuation", "score", "rank"]
    """How a new step is valued: by real continuations to an answer, by one number from outside, or by its rank among
    its siblings (`chain` only)."""
    continuations: int = Field(ge=1, lt=STRIDE)
    """Real continuations sampled from every new non-terminal step; ignored by `score` and `rank`."""
    value_one: bool = later(default=False)
    """Value one new step of a state, drawn at random, instead of all; with descents and continuations only, and without
    shared estimates."""
    alpha: float = Field(gt=0, le=1)
    """Discount of what is backed up, and of the rewards (SPRE; arXiv 2505.14069, Eq. 1)."""
    backup_discount: Literal["answers", "paths", "levels"] = later("answers")
    """What alpha discounts in a backup. `answers`: outcomes, per step from the root to the answer; scores are backed up
    as they are. `paths`: scores too, per step from the root to the scored step. `levels`: every value, per level that
    it is backed up above the step that was valued."""
    merge_equal: bool = later(default=True)
    """Equal steps drawn in one state are one node."""
    keep_continuations: bool = False
    """Keep the steps of continuations as nodes of the tree."""

    simulations: int = Field(ge=1, lt=2**31)
    """Selections of a state before the search ends."""
    max_calls: int | None = Field(default=None, ge=1, lt=2**31)
    """Completions the search may use, however many one request carried. Work is handed out only while it is expected to
    fit, with continuations as long as the mean so far; the last ones may overrun by what they are longer."""
    wave: int = Field(default=1, ge=1, lt=2**31)
    """Simulations in flight at once in one tree."""

    @model_validator(mode="after")
    def _values_go_together(self) -> Self:
        if (self.selection == "chain") != (self.valuation == "rank"):
            raise ValueError("selection chain and valuation rank go together")
        if (self.selection == "group") != (self.group is not None):
            raise ValueError("selection group and search.group go together")
        if self.expand and self.group is None:
            raise ValueError("search.expand goes with selection group, whose attempts it continues")
        once = self.siblings == self.continuations == self.simulations == 1 and self.max_calls is None
        if self.group and not (once and self.valuation == "continuation" and self.keep_continuations):
            raise ValueError(
                "with selection group, search.group alone says how much is drawn: valuation continuation, "
                "keep_continuations true, siblings, continuations and simulations 1, max_calls null"
            )
        descends = self.selection in SCORES and self.valuation == "continuation"
        if self.value_one and (not descends or self.share_estimates):
            raise ValueError(
                "value_one goes with uct, puct or unit_puct, with continuations, and without shared estimates"
            )
        return self


@dataclass(frozen=True)
class Work:
    """What is wanted of the node `node_id`.

    sample: number of the first draw or judgement; the others follow. Unique within a state. count: of the results.
    """

    id: int
    node_id: int
    sample: int
    count: int = 1


@dataclass(frozen=True)
class Expand(Work):
    """Sample `count` further siblings in the state below the node."""

    attempt: int = 0
    """0: plain samples. n > 0: all plain samples were equivalent, and this is the n-th attempt at different ones."""


class Continue(Work):
    """Sample `count` continuations to an answer from the step on."""


class Score(Work):
    """Score the path down to the node, in [0, 1]."""


class Rank(Work):
    """Rank the `count` steps of the state below the node against each other."""


@dataclass(frozen=True, slots=True)
class Expanded(Generic[P]):
    """Siblings in draw order. `calls`: completions used, repairs included."""

    steps: Sequence[Step[P]]
    calls: int


@dataclass(frozen=True, slots=True)
class Continued(Generic[P]):
    """Paths in draw order, each ending in a terminal step."""

    paths: Sequence[Sequence[Step[P]]]
    calls: int


@dataclass(frozen=True, slots=True)
class Scored:
    """value: None if the judge gave no readable score; it then changes no mean."""

    value: float | None
    calls: int


@dataclass(frozen=True, slots=True)
class Ranked:
    """values: of the children in their order, higher for a better rank; None for a step that was not ranked, which has
    no value and is only gone on with if no step has one."""

    values: Sequence[float | None]
    calls: int


W = TypeVar("W", bound=Work)
Result: TypeAlias = Expanded[P] | Continued[P] | Scored | Ranked


class Search(Generic[P]):
    """One tree being searched. See the module docstring for the protocol.

    equivalent: whether two different steps of one state say the same. in_common: the share, in [0, 1], of what two
        steps of one state reveal that they have in common. seed: of the draws of `value_one`.
    """

    def __init__(
        self,
        config: SearchConfig,
        *,
        equivalent: Callable[[P, P], bool] | None = None,
        in_common: Callable[[P, P], float] | None = None,
        seed: int = 0,
    ) -> None:
        self.config = config
        self._equivalent = equivalent
        self._in_common = in_common
        self._seed = seed
        self.tree: Tree[P] = Tree(merge_equal=config.merge_equal)
        self.simulations = 0
        """Selections made so far."""
        self.calls = 0
        """Completions used so far, as told."""
        self._wave: dict[int, Work] = {}
        self._told: dict[int, Result[P]] = {}
        self._unvalued: list[int] = []
        self._continuations = 0
        self._continuation_calls = 0
        self._next_work = 0
        self._drawn: Counter[tuple[type[Work], Hashable]] = Counter()
        self._tries: Counter[int] = Counter()
        self._sought: frozenset[float] = frozenset()
        """The outcomes of all answers when states were last selected, if an answer unlike them was sought then."""
        self._decided: Counter[int] = Counter()
        """By node: its draws on paths that decided where the search goes on."""
        self._apart: Counter[int] = Counter()
        """By node: visits through a step below that only such a path has brought. They value no step above that one."""
        self._chain_end = ROOT_ID
        self._outcomes: Counter[float] = Counter()
        """Of all answers, every draw counted."""
        self._lengths: Counter[int] = Counter()
        """Steps from the root to each answer, every draw counted."""
        self._estimates: Estimates | None = None
        """Of the tree's usual outcome, once they are needed."""
        self._usual: tuple[float | None, bool] = (None, False)
        """What they are estimates of: the usual outcome, and whether all are wrong."""
        self._grown: set[int] = set()
        """Nodes that were drawn, or drawn from, since the estimates were updated."""

    def ask(self) -> list[Work]:
        """The work of the current wave without a result yet; empty when the search is over.

        The next wave is made only once every result of this one is in, so asking again changes nothing.
        """
        while not self._wave:
            wave = self._valuations() or self._next_wave()
            if wave is None:
                return []
            self._wave = {work.id: work for work in wave}
        return [work for work in self._wave.values() if work.id not in self._told]

    def tell(self, work_id: int, result: Result[P]) -> None:
        """Take one result. A second result for the same work is ignored, even if it differs.

        Raises ValueError for work that was never asked for, and for a result that does not fit the work.
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

    # -- waves ---------------------------------------------------------------------------------

    def _next_wave(self) -> list[Work] | None:
        """First wave of what is gone on with. None when the search is over."""
        if self.config.group is not None:
            return self._attempts(self.config.group)
        return self._next_link() if self.config.selection == "chain" else self._selections()

    def _attempts(self, count: int) -> list[Work] | None:
        """Every attempt of a group at once, then all that continue steps of these."""
        drawn = Counter({ROOT_ID: count})
        if self.simulations:
            begun = self._continuations > count
            steps = [each for each in self.tree.nodes[1:] if not each.terminal and not begun]
            choice, weights = random.Random(f"{self._seed} expand"), [each.draws for each in steps]
            drawn = Counter(each.id for each in steps and choice.choices(steps, weights, k=self.config.expand))
        self.simulations = 1
        return [self._work(Continue, self.tree[each], times) for each, times in sorted(drawn.items())] or None

    def _selections(self) -> list[Work] | None:
        """First wave: more siblings for selected states, or a new judgement of a selected leaf.

        None when the search is over; an empty list when no selected state needed outside work.
        """
        wave: list[Work] = []
        taken: set[int] = set()
        pending: Counter[int] = Counter()
        started = self.simulations
        mixed = self.config.selection == "mixed"
        self._sought = frozenset() if not mixed or self._answers_disagree() else frozenset(self.tree.outcomes)
        for node in self._open_states() if mixed else self._descents(pending):
            if node.id in taken or not self._may_select(taken, wave):
                break
            if node.terminal and self.config.valuation == "continuation":
                self.simulations += 1
                self._back_up_answer(node)
                continue
            if node.terminal:
                wave.append(self._work(Score, node))
            else:
                count = self._affordable_siblings(node, wave)
                if not count and not self._owes_values(node):
                    break  # the budget pays for no sibling and its value
                self._unvalued.extend(node.children_ids)
                if count:
                    wave.append(self._expand(node, count))
            self.simulations += 1
            taken.add(node.id)
            pending.update(each.id for each in self.tree.path_up(node))
        return wave if wave or self.simulations > started else None

    def _next_link(self) -> list[Work] | None:
        """First wave of a chain: the steps of the state at its end. None when the search is over."""
        node = self.tree[self._chain_end]
        count = 0 if node.terminal else self._affordable_siblings(node, [])
        if count <= 0 or self.simulations == self.config.simulations:
            return None
        self.simulations += 1
        return [self._expand(node, count)]

    def _may_select(self, taken: set[int], wave: Sequence[Work]) -> bool:
        """Whether wave size, simulations and remaining completions allow another state."""
        return (
            len(taken) < self.config.wave
            and self.simulations < self.config.simulations
            and self._calls_left(wave) >= self.calls_per_value
        )

    def _affordable_siblings(self, node: Node[P], wave: Sequence[Work]) -> int:
        """How many siblings to sample in a selected state: the missing ones, as far as their values are affordable."""
        missing, _ = self._wanted_draws(node)
        left = self._calls_left(wave)
        affordable = left - self.calls_per_value if self._one_value else left / (1 + self.calls_per_value)
        return int(min(missing, self.config.siblings_at_once or missing, max(0, affordable)))

    def _wanted_draws(self, node: Node[P]) -> tuple[int, int]:
        """How many draws a state still wants, and the attempt number (`Expand.attempt`)."""
        drawn, wanted = self.tree.drawn(node), self.config.siblings
        if node.id == ROOT_ID and self.config.root_siblings and drawn >= wanted and not self._answers_disagree():
            wanted = min(drawn + wanted, self.config.root_siblings)
        if drawn < wanted:
            return wanted - drawn, 0
        if self._wants_resampling(node):
            return max(1, self.config.siblings - 1), self._tries[node.id] + 1
        return 0, 0

    def _wants_resampling(self, node: Node[P]) -> bool:
        """Whether all draws of a state are equivalent and resampling attempts remain."""
        if self._tries[node.id] >= self.config.resamples:
            return False
        steps = self.tree.children(node)
        said = {step.id if step.same_as is None else step.same_as for step in steps}
        return len(said) == 1 and self.tree.drawn(node) > 1 and not any(step.terminal for step in steps)

    def _expand(self, node: Node[P], count: int) -> Expand:
        _, attempt = self._wanted_draws(node)
        self._tries[node.id] = max(self._tries[node.id], attempt)
        return replace(self._work(Expand, node, count), attempt=attempt)

    def _valuations(self) -> list[Work]:
        """Second wave: values for the children of the states selected last."""
        wave: list[Work] = []
        nodes = [self.tree[node_id] for node_id in self._unvalued]
        self._unvalued.clear()
        if self.config.valuation == "rank":
            if not nodes or self._calls_left([]) < 1:
                return []
            return [self._work(Rank, self.tree[self._chain_end], len(nodes))]
        kind = Score if self.config.valuation == "score" else Continue
        for node in self._one_of_each_state(nodes) if self.config.value_one else nodes:
            wanted = self._wanted_values(node)
            count = int(min(wanted, self._calls_left(wave) / self.calls_per_value))
            if count > 0:
                wave.append(self._work(kind, node, count))
        return wave

    def _one_of_each_state(self, nodes: Sequence[Node[P]]) -> list[Node[P]]:
        """One unvalued step of each state, drawn by the seed. An answer, whose value is known, is backed up at once."""
        by_state: defaultdict[int, list[Node[P]]] = defaultdict(list)
        for node in nodes:
            if not node.visits and node.parent_id is not None:
                by_state[node.parent_id].append(node)
        found = []
        for state, steps in by_state.items():
            chosen = random.Random(f"{self._seed} {state} {steps[0].id}").choice(steps)
            if chosen.terminal and self.config.valuation == "continuation":
                self._back_up_answer(chosen)
            else:
                found.append(chosen)
        return found

    def _wanted_values(self, node: Node[P]) -> int:
        """How many outside values a step still needs."""
        if self.config.valuation == "score":
            return int(node.visits == 0)
        if node.terminal or node.same_as is not None or (self.config.value_one and node.visits):
            return 0
        return max(0, self.config.continuations + self._apart[node.id] - node.visits)

    def _apply(self, work: Work, result: Result[P]) -> None:
        self.calls += result.calls
        node = self.tree[work.node_id]
        if isinstance(result, Scored):
            by_path = self.config.alpha**node.depth if self.config.backup_discount == "paths" else 1.0
            value = None if result.value is None else result.value * by_path
            self._back_up(node, self.tree.counting(node), value)
        elif isinstance(result, Ranked):
            self._go_on(node, result.values)
        elif isinstance(result, Expanded):
            before = len(node.children_ids)
            for step in result.steps:
                self._follow(node, [step], valued=not self.config.value_one)
            self._unvalued.extend(node.children_ids[before:])
        else:
            self._continuations += len(result.paths)
            self._continuation_calls += result.calls
            for path in result.paths:
                self._follow(node, path, kept=self.config.keep_continuations)

    def _go_on(self, state: Node[P], values: Sequence[float | None]) -> None:
        """Value the steps of the last state of the chain, each for itself, and take the best one, the first of equals,
        as the next link: that is one more visit."""
        steps = self.tree.children(state)
        for step, value in zip(steps, values, strict=True):
            self._back_up(step, [step], value)
        best, _ = max(zip(steps, values, strict=True), key=lambda each: -1.0 if each[1] is None else each[1])
        self._back_up(best, [], None)
        self._chain_end = best.id

    def _follow(self, node: Node[P], path: Sequence[Step[P]], *, kept: bool = True, valued: bool = True) -> None:
        """Record a path of steps, as nodes or as a value only, and back up the outcome of its answer if it is a value.

        An answer that ends a search for one unlike all before counts for no step on its path, if it is kept: that it
        was found here says little of them. Those that nothing else was seen of are continued anew.
        """
        before, last = len(self.tree), path[-1]
        decisive = kept and last.terminal and self._ends_search(last.outcome)
        nodes = None
        if kept:
            nodes = self.tree.follow(node, path, decisive=decisive, level_discount=self._level_discount)
            if nodes[-1].terminal:
                self._count_answer(_last_step(nodes[-1]).outcome, nodes[-1].depth)
        elif self.tree.add_continuation(node, path):
            self._count_answer(last.outcome, node.depth + len(path))
        self._grown.update(each.id for each in (node, *(nodes or ())))
        if decisive:
            self._decided.update(each.id for each in nodes or ())
        if self.config.share_estimates:
            for new in self.tree.nodes[before:]:
                self._compare(new)
        if valued and path[-1].terminal and self.config.valuation == "continuation":
            reward = self._reward(path[-1], node.depth + len(path))
            counting = self.tree.counting(node, path, nodes, decisive=decisive)
            self._back_up(nodes[-1] if nodes else node, counting, reward)

    def _compare(self, new: Node[P]) -> None:
        """Note which earlier sibling a step is equivalent to, else what it has in common with each."""
        siblings = self.tree.children(self.tree[new.parent_id or ROOT_ID])[:-1]
        earlier = [each for each in siblings if each.same_as is None]
        if self._equivalent:
            equal = (each.id for each in earlier if self._equivalent(each.payload, new.payload))
            new.same_as = next(equal, None)
        if self._in_common and new.same_as is None and not new.terminal:
            shares = {each.id: self._in_common(each.payload, new.payload) for each in earlier if not each.terminal}
            new.in_common = {each: share for each, share in shares.items() if share > 0}

    # -- selection -----------------------------------------------------------------------------

    def _descents(self, pending: Counter[int]) -> Iterator[Node[P]]:
        """Endless walks down from the root; yields where each ends: a state to expand, or a leaf."""
        rule, exploration = self.config.selection, self.config.exploration
        while True:
            node = self.tree.root
            while not node.terminal and self.tree.drawn(node) >= self.config.siblings:
                node = best_child(node, self.tree.children(node), pending, rule=rule, exploration=exploration)
            yield node

    def _open_states(self) -> Iterator[Node[P]]:
        """States that still need work and are worth it, by falling expected disagreement, then by age."""
        answers = self._lengths.total()
        length = sum(steps * count for steps, count in self._lengths.items()) / answers if answers else 1.0  # mean
        least = least_gain(self.config.max_calls)
        ranked = []
        for node, expected in zip(self.tree.nodes, self._usual_outcome_chances(), strict=True):
            if node.terminal:
                continue
            if gain_per_reply(expected, steps_left=length - node.depth - 1) > least:
                ranked.append((-disagreement(expected), node.id))
        states = (self.tree[each] for _, each in sorted(ranked))  # asked only as they are taken
        return (each for each in states if self._wanted_draws(each)[0] > 0 or self._owes_values(each))

    def _usual_outcome_chances(self) -> list[float]:
        """For each state by id, the chance that an answer below it has the tree's usual outcome; 0 for an answer.

        A state that is half right every time has converged as much as one that is always right. All draws count, plain
        or not, and so does what steps brought to light: they only guide the search.
        """
        usual = min(self._outcomes, key=lambda each: (-self._outcomes[each], each), default=None)  # lowest on a tie
        usually_right = usual is not None and usual >= RIGHT
        all_wrong = _all_wrong(self.tree.outcomes)  # then how wrong they are is not what is sought
        if self._estimates is None or self._usual != (usual, all_wrong):
            self._usual, self._grown = (usual, all_wrong), set(range(len(self.tree)))
            self._estimates = Estimates(
                self.tree, lambda end: float(all_wrong or end.outcome == usual), plain_only=False
            )
        found = self._estimates.update(self._grown)
        self._grown.clear()
        expected: list[float] = []
        for node, estimate in zip(self.tree.nodes, found, strict=True):  # parents come before their children
            if node.terminal:
                expected.append(0.0)
                continue
            above, weight = (0.5, ROOT_PRIOR) if node.parent_id is None else (expected[node.parent_id], PARENT_PRIOR)
            progress = None if node.step is None else node.step.progress
            above = after_progress(above, progress) if usually_right else 1 - after_progress(1 - above, progress)
            mean, answers = (estimate.mean, estimate.answers) if estimate else (0.0, 0)
            expected.append(expected_outcome(above, weight=weight, mean=mean, answers=answers))
        return expected

    def _count_answer(self, outcome: float | None, steps: int) -> None:
        self._lengths[steps] += 1
        if outcome is not None:
            self._outcomes[outcome] += 1

    def _answers_disagree(self) -> bool:
        """Whether the tree has answers of different outcomes, one of them right. Among wrong ones a right one is still
        to be found."""
        found = self.tree.outcomes
        return len(found) > 1 and not _all_wrong(found)

    def _ends_search(self, outcome: float | None) -> bool:
        """Whether an answer is the one that was sought when states were last selected."""
        if outcome is None or not self._sought:
            return False
        return outcome >= RIGHT if _all_wrong(self._sought) else outcome not in self._sought

    def _owes_values(self, node: Node[P]) -> bool:
        return any(self._wanted_values(child) for child in self.tree.children(node))

    # -- bookkeeping ---------------------------------------------------------------------------

    def _back_up(self, last: Node[P], counting: Iterable[Node[P]], value: float | None) -> None:
        """Count a visit of `last` and all nodes above, and the value for those in `counting`; None changes no mean."""
        apart = False
        for node in self.tree.path_up(last):
            node.visits += 1
            if apart:
                self._apart[node.id] += 1
            apart = apart or 0 < node.draws == self._decided[node.id]  # only paths that decided have brought it
        if value is None:
            return
        for node in counting:
            node.counted += 1
            node.value_sum += value
            value *= self._level_discount

    def _back_up_answer(self, node: Node[P]) -> None:
        self._back_up(node, self.tree.counting(node), self._reward(_last_step(node), node.depth))

    def _reward(self, last: Step[P], steps: int) -> float | None:
        """The value of an answer `steps` below the root, where it is found; None if it has no outcome."""
        if last.outcome is None or self.config.backup_discount == "levels":
            return last.outcome
        return shortest_path_reward(last.outcome, steps=steps, alpha=self.config.alpha)

    def _work(self, kind: type[W], node: Node[P], count: int = 1) -> W:
        """The next piece of work, with its sample number; see `STRIDE`."""
        judged = kind in (Score, Rank)  # judges may be shown the same text for different steps
        place = ROOT_ID if judged else self.tree.state_of(node)
        sample = self._drawn[kind, place] + (STRIDE * (node.depth + 1) if kind is Continue else 0)
        self._drawn[kind, place] += 1 if judged else count
        self._next_work += 1
        return kind(self._next_work - 1, node.id, sample, count)

    def _calls_left(self, wave: Sequence[Work]) -> float:
        if self.config.max_calls is None:
            return math.inf
        return self.config.max_calls - self.calls - sum(map(self._expected_calls, wave))

    def _expected_calls(self, work: Work) -> float:
        """Completions a piece of work will use; for new siblings, including their valuation in the next wave."""
        if isinstance(work, Score | Rank):
            return 1
        if isinstance(work, Expand) and self._one_value:
            return work.count + self.calls_per_value
        if isinstance(work, Expand):
            return work.count * (self.calls_per_value + 1)
        return work.count * self.calls_per_value

    @property
    def _level_discount(self) -> float:
        return self.config.alpha if self.config.backup_discount == "levels" else 1.0

    @property
    def _one_value(self) -> bool:
        """Whether the new steps of a state cost one valuation together."""
        return self.config.value_one or self.config.valuation == "rank"

    def call_budget(self, *, path: float) -> float:
        """Completions of the whole search; without max_calls, of all simulations, each with new siblings.

        path: completions of a continuation.
        """
        of = self.config
        if of.max_calls is not None:
            return of.max_calls
        if of.group is not None:
            return (of.group + of.expand) * path
        siblings = of.siblings_at_once or of.siblings
        value = path * of.continuations if of.valuation == "continuation" else 1
        return of.simulations * (siblings + (1 if self._one_value else siblings) * value)

    @property
    def calls_per_value(self) -> float:
        """Completions per judgement or mean continuation."""
        return self._continuation_calls / self._continuations if self._continuation_calls else 1


def _all_wrong(outcomes: Collection[float]) -> bool:
    """Whether there are outcomes, and none of a right answer."""
    return max(outcomes, default=RIGHT) < RIGHT


def _last_step(node: Node[P]) -> Step[P]:
    if node.step is None:
        raise ValueError("the root is not a step")
    return node.step


def _check(work: Work, result: Result[Any]) -> None:
    """Raises ValueError for a result that does not fit the work."""
    where = f"work {work.id} ({type(work).__name__} at node {work.node_id})"
    if isinstance(work, Expand) and isinstance(result, Expanded):
        given, outcomes = len(result.steps), [s.outcome for s in result.steps if s.terminal]
    elif isinstance(work, Continue) and isinstance(result, Continued):
        given, outcomes = len(result.paths), [path[-1].outcome for path in result.paths if path]
        if any([n for n, step in enumerate(path, 1) if step.terminal] != [len(path)] for path in result.paths):
            raise ValueError(f"{where}: every continuation must end in its only terminal step")
    elif isinstance(work, Score) and isinstance(result, Scored):
        given, outcomes = 1, [result.value]
    elif isinstance(work, Rank) and isinstance(result, Ranked):
        given, outcomes = len(result.values), list(result.values)
    else:
        raise ValueError(f"{where}: a {type(result).__name__} does not answer it")
    if given != work.count:
        raise ValueError(f"{where}: wants {work.count} results, got {given}")
    if result.calls < 0:
        raise ValueError(f"{where}: calls must not be negative, got {result.calls}")
    for outcome in outcomes:
        if outcome is not None and not 0 <= outcome <= 1:
            raise ValueError(f"{where}: {outcome} is not in [0, 1]")
