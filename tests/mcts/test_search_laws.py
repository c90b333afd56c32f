"""What holds for every search, tried on random environments; and one recorded tree for each recipe.

An environment is a pure function of the path to a node and the number of a draw, as a journal of paid replies is.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mcts import (
    RECIPES,
    ROOT_ID,
    Continue,
    Continued,
    Expand,
    Expanded,
    Node,
    Rank,
    Ranked,
    Recipe,
    Result,
    Score,
    Scored,
    Search,
    SearchConfig,
    Step,
    Tree,
    Work,
    estimates,
    shortest_path_reward,
    spre_rewards,
)
from mcts.rewards import ANSWER_REWARDS, REWARDS, distinct_spre_rewards
from mcts.search import STRIDE

DEPTH = 6
"""Every path of an environment ends here at the latest."""


@dataclass(frozen=True)
class Environment:
    """A policy and a judge. A payload is the path to the step: `/3/20001/20001` is draw 3, then two steps of draw
    20001; with `words` it is what was said in each state instead, of which 2n and 2n + 1 say the same."""

    seed: int
    ending: float = 0.4
    """Chance that a step is an answer."""
    repaired: float = 0.15
    """Chance that a step is no plain sample, and took one reply more."""
    words: int | None = None
    """How many different steps a state has; None: no two draws are the same step."""
    unreadable: float = 0.0
    """Chance that a judgement cannot be read."""
    common: float = 0.0
    """What steps of one state have in common whose words are neighbours: 1 and 2, 2 and 3, but not 1 and 3."""

    def answer(self, tree: Tree[str], work: Work) -> Result[str]:
        node = tree[work.node_id]
        path = "" if node.step is None else node.payload
        if isinstance(work, Expand):
            draws = draws_of(work)
            steps = [self._step(path, node.depth + 1, draw, attempt=work.attempt) for draw in draws]
            return Expanded(steps[: work.count], calls=sum(self._replies(path, draw) for draw in draws))
        if isinstance(work, Continue):
            paths = [list(self._continuation(path, node.depth, draw)) for draw in draws_of(work)]
            drawn_in = [(path, *(step.payload for step in each[:-1])) for each in paths]
            calls = sum(
                self._replies(state, draw)
                for states, draw in zip(drawn_in, draws_of(work), strict=True)
                for state in states
            )
            return Continued(paths, calls=calls)
        chance = random.Random(f"{self.seed} judge {path} {work.sample}")
        if isinstance(work, Rank):
            ranks = chance.sample(range(work.count), work.count)
            values = [None if rank % 4 == 3 else 1 / (1 + rank) for rank in ranks]
            return Ranked([0.0] * work.count if chance.random() < self.unreadable else values, calls=1)
        return Scored(None if chance.random() < self.unreadable else chance.random(), calls=1)

    def alike(self, one: str, other: str) -> bool:
        """Whether two steps of one state say the same."""
        words = [int(path.rpartition("/")[2]) // 2 for path in (one, other)]
        return self.words is not None and words[0] == words[1]

    def reveals(self, one: str, other: str) -> float:
        """The share of what two steps of one state reveal that they have in common."""
        words = [int(path.rpartition("/")[2]) for path in (one, other)]
        return self.common if abs(words[0] - words[1]) == 1 else 0.0

    def _step(self, state: str, depth: int, draw: int, attempt: int = 0) -> Step[str]:
        word = draw if self.words is None else random.Random(f"{self.seed} {state} word {draw}").randrange(self.words)
        said = word if self.words is None else word // 2
        chance = random.Random(f"{self.seed} {state} {said}")
        return Step(
            f"{state}/{word}",
            terminal=chance.random() < self.ending or depth >= DEPTH,
            outcome=int(3 * chance.random()) / 2,
            plain=attempt == 0 and not self._is_repaired(state, draw),
            identity=None if self.words is None else word,
        )

    def _is_repaired(self, state: str, draw: int) -> bool:
        return random.Random(f"{self.seed} {state} repair {draw}").random() < self.repaired

    def _replies(self, state: str, draw: int) -> int:
        return 2 if self._is_repaired(state, draw) else 1

    def _continuation(self, state: str, depth: int, draw: int) -> Iterator[Step[str]]:
        """All its steps are drawn with the number of the first."""
        for further in range(DEPTH):
            step = self._step(state, depth + further + 1, draw)
            yield step
            if step.terminal:
                return
            state = step.payload


def draws_of(work: Work) -> range:
    """The numbers of all draws of a piece of work."""
    count = work.count if isinstance(work, Expand | Continue) else 1
    return range(work.sample, work.sample + count)


@dataclass(frozen=True)
class Wave:
    """One wave as it was asked: its work, and the state of the search before any of it was told."""

    work: list[Work]
    calls: int
    simulations: int


def waves_of(search: Search[str], environment: Environment) -> Iterator[Wave]:
    """Run a search to its end, wave by wave."""
    while work := search.ask():
        yield Wave(work, search.calls, search.simulations)
        for work_id, result in [(item.id, environment.answer(search.tree, item)) for item in work]:
            search.tell(work_id, result)


def work_of(search: Search[str], environment: Environment) -> Iterator[tuple[Work, str, Result[str]]]:
    """Every piece of work of a search that runs to its end, with the state that it starts in and its result."""
    for wave in waves_of(search, environment):
        for work in wave.work:
            node = search.tree[work.node_id]
            yield work, "" if node.step is None else node.payload, environment.answer(search.tree, work)


def begun(config: SearchConfig, environment: Environment) -> Search[str]:
    return Search(config, equivalent=environment.alike, in_common=environment.reveals)


def searched(config: SearchConfig, environment: Environment) -> Search[str]:
    search = begun(config, environment)
    for _ in waves_of(search, environment):
        pass
    return search


environments = st.builds(
    Environment,
    seed=st.integers(0, 2**32),
    ending=st.sampled_from([0.0, 0.2, 0.4, 0.8, 1.0]),
    repaired=st.sampled_from([0.0, 0.15, 1.0]),
    words=st.sampled_from([None, 1, 2, 4]),
    unreadable=st.sampled_from([0.0, 0.3]),
    common=st.sampled_from([0.0, 0.0, 0.5, 1.0]),
)

fields: dict[str, st.SearchStrategy[Any]] = {
    "exploration": st.floats(0, 3),
    "siblings": st.integers(1, 4),
    "root_siblings": st.none() | st.integers(1, 9),
    "resamples": st.integers(0, 2),
    "share_estimates": st.booleans(),
    "siblings_at_once": st.none() | st.integers(1, 3),
    "continuations": st.integers(1, 3),
    "alpha": st.sampled_from([0.5, 0.9, 1.0]),
    "backup_discount": st.sampled_from(["answers", "paths", "levels"]),
    "merge_equal": st.booleans(),
    "keep_continuations": st.booleans(),
    "simulations": st.integers(1, 12),
    "max_calls": st.none() | st.integers(1, 60),
    "wave": st.integers(1, 8),
}
trees = st.builds(
    SearchConfig,
    selection=st.sampled_from(["uct", "puct", "unit_puct", "mixed"]),
    valuation=st.sampled_from(["continuation", "score"]),
    **fields,
)
one_valued = st.builds(
    SearchConfig,
    selection=st.sampled_from(["uct", "puct", "unit_puct"]),
    valuation=st.just("continuation"),
    value_one=st.sampled_from([True]),
    **fields | {"share_estimates": st.sampled_from([False])},
)
chains = st.builds(SearchConfig, selection=st.just("chain"), valuation=st.just("rank"), **fields)
configs = trees | one_valued | chains
groups = st.builds(
    SearchConfig,
    selection=st.just("group"),
    group=st.integers(1, 9),
    expand=st.integers(0, 4),
    exploration=st.just(0),
    valuation=st.just("continuation"),
    keep_continuations=st.just(value=True),
    siblings=st.just(1),
    continuations=st.just(1),
    simulations=st.just(1),
    **{name: fields[name] for name in ("alpha", "backup_discount", "merge_equal", "share_estimates")},
)
every = configs | groups
"""Those with a budget of replies, and groups, which have none."""


@given(config=every, environment=environments, other=environments, shuffle=st.randoms(use_true_random=False))
def test_a_tree_is_what_was_told_in_whatever_order_and_however_often(
    config: SearchConfig, environment: Environment, other: Environment, shuffle: random.Random
) -> None:
    """Asked twice, before and between tellings, the search gives the same work. Results of a wave told in any
    permutation, and told again with another result, at once and after their wave, give the identical tree, to the last
    bit of every value."""
    search, in_order = begun(config, environment), searched(config, environment)
    while work := search.ask():
        results = [(item, environment.answer(search.tree, item), other.answer(search.tree, item)) for item in work]
        shuffle.shuffle(results)
        for told, (item, result, another) in enumerate(results):
            owed = {each.id for each, _, _ in results[told:]}
            assert search.ask() == search.ask() == [each for each in work if each.id in owed]
            search.tell(item.id, result)
            search.tell(item.id, another)
        for item, _, another in results:
            search.tell(item.id, another)
    assert search.ask() == []
    assert search.tree.nodes == in_order.tree.nodes
    assert (search.calls, search.simulations) == (in_order.calls, in_order.simulations)


@given(config=every, environment=environments)
def test_every_value_that_counts_is_a_visit(config: SearchConfig, environment: Environment) -> None:
    """A parent is visited at least as often as all its children: whatever comes through a step passes its parent, plain
    or not. counted <= visits, and a node without a value that counts is worth 0. Where all draws were plain, every
    judgement could be read and nothing is searched for, each visit counts."""
    for surroundings in (environment, replace(environment, repaired=0.0, unreadable=0.0)):
        search = searched(config.model_copy(update={"resamples": 0}), surroundings)
        for node in search.tree.nodes:
            assert node.visits >= sum(child.visits for child in search.tree.children(node))
            assert 0 <= node.counted <= node.visits
            assert node.counted or node.value == 0.0
            sure = surroundings is not environment or not (environment.repaired or environment.unreadable)
            if sure and config.selection not in ("chain", "mixed"):  # being gone on with is a visit, too
                assert node.counted == node.visits


@given(config=trees, environment=environments)
def test_values_and_estimates_lie_within_what_was_found_below(config: SearchConfig, environment: Environment) -> None:
    """Between the least and the greatest reward of an answer below, in whatever way it was drawn. Steps that say the
    same are one here, and what siblings have in common is below each of them; a half of it, of one observation, is the
    least that is known."""
    changes = {"valuation": "continuation", "backup_discount": "answers"}
    search, below = answers_below(config.model_copy(update=changes), environment)
    found = estimates(search.tree, lambda end: shortest_path_reward(end.outcome, steps=end.steps, alpha=config.alpha))
    for node, estimate in zip(search.tree.nodes, found, strict=True):
        if node.counted:
            assert min(below[node.id]) - 1e-12 <= node.value <= max(below[node.id]) + 1e-12
        if estimate:
            head = search.tree[node.id if node.same_as is None else node.same_as]
            heads = {head.id, *head.in_common, *(each.id for each in search.tree.nodes if head.id in each.in_common)}
            seen = [each for twin in search.tree.nodes if {twin.id, twin.same_as} & heads for each in below[twin.id]]
            assert min(seen) - 1e-12 <= estimate.mean <= max(seen) + 1e-12
            assert estimate.observations >= (environment.common or 1) - 1e-9
            assert estimate.answers >= (environment.common or 1)


def answers_below(config: SearchConfig, environment: Environment) -> tuple[Search[str], dict[int, list[float]]]:
    """A finished search, and by node what every answer below is worth that was seen there, as node or not."""
    search = begun(config, environment)
    below: dict[int, list[float]] = defaultdict(list)

    def note(node: Node[str], outcome: float, further: int = 0) -> None:
        for above in search.tree.path_up(node):
            below[above.id].append(outcome * config.alpha ** (node.depth + further))

    for work, _, result in work_of(search, environment):
        if isinstance(result, Continued) and not config.keep_continuations:
            for path in result.paths:
                note(search.tree[work.node_id], path[-1].outcome, len(path))
    for node in search.tree.nodes:
        if node.step is not None and node.terminal:
            note(node, node.step.outcome)
    return search, below


@given(config=trees, environment=environments, discount=st.sampled_from(["answers", "paths", "levels"]))
def test_judged_values_lie_within_the_judgements_below(
    config: SearchConfig, environment: Environment, discount: str
) -> None:
    """Between the least and the greatest that could be read: as it was, discounted by the depth of the judged step, or
    by the levels from there up to the node."""
    search = begun(config.model_copy(update={"valuation": "score", "backup_discount": discount}), environment)
    below: dict[int, list[float]] = defaultdict(list)
    for work, _, result in work_of(search, environment):
        if isinstance(result, Scored) and result.value is not None:
            judged = search.tree[work.node_id]
            for above in search.tree.path_up(judged):
                steps = {"answers": 0, "paths": judged.depth, "levels": judged.depth - above.depth}[discount]
                below[above.id].append(result.value * config.alpha**steps)
    for node in search.tree.nodes:
        if node.counted:
            assert min(below[node.id]) - 1e-12 <= node.value <= max(below[node.id]) + 1e-12


@given(config=every, environment=environments)
def test_no_two_draws_in_one_state_share_a_number(config: SearchConfig, environment: Environment) -> None:
    """Neither siblings nor continuations, in whatever state they pass through, ever ask one state twice for the same
    draw, which would be the same reply. No two judgements of a tree share one: a judge may be shown the same of
    different steps. A continuation has one number on all its way."""
    search = begun(config, environment)
    asked: set[tuple[str, str, int]] = set()

    def ask_once(kind: str, state: str, number: int) -> None:
        assert (kind, state, number) not in asked
        asked.add((kind, state, number))

    for work, state, result in work_of(search, environment):
        if isinstance(result, Continued):
            for path, number in zip(result.paths, draws_of(work), strict=True):
                for passed in (state, *(step.payload for step in path[:-1])):
                    ask_once("step", passed, number)
        else:
            for number in draws_of(work):
                judged = isinstance(work, Score | Rank)
                ask_once(*((type(work).__name__, "") if judged else ("step", state)), number)


@given(config=every, environment=environments)
def test_the_same_draw_has_the_same_number_in_every_search(config: SearchConfig, environment: Environment) -> None:
    """The draws of an expansion count from 0 in each state, those of continuations of a step d below the root from
    (d + 1) * STRIDE, judgements of a tree from 0: without gaps, and without regard to what else was drawn where. Work
    ids are given out once each, in order."""
    search = begun(config.model_copy(update={"merge_equal": True}), environment)
    work = [item for wave in waves_of(search, environment) for item in wave.work]
    assert [item.id for item in work] == list(range(len(work)))
    drawn: dict[tuple[type[Work], int], list[int]] = defaultdict(list)
    for item in work:
        drawn[type(item), ROOT_ID if isinstance(item, Score | Rank) else item.node_id] += draws_of(item)
    for (kind, node_id), numbers in drawn.items():
        first = STRIDE * (search.tree[node_id].depth + 1) if kind is Continue else 0
        assert numbers == list(range(first, first + len(numbers)))


@given(config=every, environment=environments)
def test_waves_keep_within_their_size_and_the_search_within_its_simulations(
    config: SearchConfig, environment: Environment
) -> None:
    """One simulation in flight is one selected state, whether its siblings are sampled or its children valued: at most
    two waves; none starts beyond the budget."""
    search = begun(config, environment)
    waves = list(waves_of(search, environment))
    assert search.simulations <= config.simulations
    assert len(waves) <= 2 * config.simulations
    assert not search.ask()
    for wave in waves:
        states = {
            item.node_id if isinstance(item, Expand) else search.tree[item.node_id].parent_id for item in wave.work
        }
        assert len(states) <= (config.group or config.wave) + config.expand  # a group selects nothing


@given(config=configs, environment=environments, max_calls=st.integers(1, 60))
def test_no_work_is_handed_out_that_the_budget_cannot_start(
    config: SearchConfig, environment: Environment, max_calls: int
) -> None:
    """One reply for each draw of a wave fits into what is left of `max_calls`, so that only the length of
    continuations and repairs, all in the last wave, can overrun it. Two are left for every new sibling, however many
    states the wave holds; where one value serves all siblings of a state, one more than the siblings."""
    search = begun(config.model_copy(update={"max_calls": max_calls}), environment)
    waves = list(waves_of(search, environment))
    for wave in waves:
        expanded = [item.count for item in wave.work if isinstance(item, Expand)]
        one_value = config.value_one or config.valuation == "rank"
        values = len(expanded) if one_value else sum(expanded)
        assert wave.calls + sum(len(draws_of(item)) for item in wave.work) <= max_calls
        assert not expanded or wave.calls + sum(expanded) + values <= max_calls
    if search.calls > max_calls:
        assert waves[-1].calls < max_calls


@example(
    config=SearchConfig(
        selection="uct",
        exploration=1.0,
        siblings=3,
        valuation="continuation",
        value_one=True,
        continuations=2,
        keep_continuations=True,
        simulations=9,
        alpha=0.9,
    ),
    environment=Environment(seed=3, ending=0.0, repaired=1.0, words=2),
    max_calls=57,
)
@given(config=configs, environment=environments, max_calls=st.integers(1, 60))
def test_every_simulation_does_something(config: SearchConfig, environment: Environment, max_calls: int) -> None:
    """A spent budget ends the search; it is not sat out in simulations that ask for nothing and back nothing up."""
    search = begun(config.model_copy(update={"max_calls": max_calls}), environment)
    asked = simulations = visits = 0
    while work := search.ask():
        asked += len(work)
        for item in work:
            search.tell(item.id, environment.answer(search.tree, item))
        simulations, visits = search.simulations, search.tree.root.visits
    assert search.simulations <= asked + search.tree.root.visits
    assert search.simulations - simulations <= search.tree.root.visits - visits, "the last ones, that asked for nothing"


@given(config=configs, environment=environments)
def test_no_state_is_drawn_more_often_than_configured(config: SearchConfig, environment: Environment) -> None:
    """Expansion fills a state up to `siblings` draws, with `mixed` the root up to `root_siblings` while all its answers
    are equal; at most `siblings_at_once` at a time. Continuations that passed through count."""
    search = begun(config, environment)
    for wave in waves_of(search, environment):
        for item in wave.work:
            if isinstance(item, Expand) and item.attempt == 0:
                state = search.tree[item.node_id]
                most = config.siblings
                outcomes = {rollout.outcome for node in search.tree.nodes for rollout in node.rollouts}
                if state.id == ROOT_ID and config.selection == "mixed" and len(outcomes) < 2:
                    most = max(most, config.root_siblings or 0)
                assert 1 <= item.count <= (config.siblings_at_once or most)
                assert sum(child.draws for child in search.tree.children(state)) + item.count <= most


@given(config=configs, environment=environments)
def test_something_else_is_tried_only_where_all_draws_said_the_same(
    config: SearchConfig, environment: Environment
) -> None:
    """At most `resamples` times in a state, numbered from 1, where several draws all said one thing, which was no
    answer; and only `mixed` does so."""
    search = begun(config, environment)
    tries: dict[int, int] = defaultdict(int)
    for wave in waves_of(search, environment):
        for item in wave.work:
            if isinstance(item, Expand) and item.attempt:
                steps = search.tree.children(search.tree[item.node_id])
                tries[item.node_id] += 1
                assert item.attempt == tries[item.node_id] <= config.resamples
                assert config.selection == "mixed"
                assert item.count <= max(1, config.siblings)
                assert sum(step.draws for step in steps) >= max(2, config.siblings)
                assert len({step.id if step.same_as is None else step.same_as for step in steps}) == 1
                assert not any(step.terminal for step in steps)


@given(config=configs, environment=environments)
def test_steps_drawn_twice_are_one_node(config: SearchConfig, environment: Environment) -> None:
    """No two siblings have the same identity, and all draws of a state are counted at its steps: siblings are as many
    as were asked for, and one for each kept continuation that passed through."""
    search = begun(config.model_copy(update={"merge_equal": True}), environment)
    drawn: dict[str, int] = defaultdict(int)
    for _, state, result in work_of(search, environment):
        if isinstance(result, Expanded):
            drawn[state] += len(result.steps)
        elif isinstance(result, Continued) and config.keep_continuations:
            for path in result.paths:
                for passed in (state, *(step.payload for step in path[:-1])):
                    drawn[passed] += 1
    for node in search.tree.nodes:
        children = search.tree.children(node)
        assert len({child.payload for child in children}) == len(children)
        assert all(0 <= child.plain_draws <= child.draws for child in children)
        assert sum(child.draws for child in children) == drawn["" if node.step is None else node.payload]


@given(config=configs, environment=environments)
def test_what_says_the_same_is_continued_once_and_shares_its_estimate(
    config: SearchConfig, environment: Environment
) -> None:
    """`same_as` leads to an earlier sibling, which is the head of its group. The later ones owe no continuation, and
    all have one estimate. What is in common is noted of earlier siblings that are heads. Without `share_estimates`
    there are no groups, and nothing is noted."""
    search = begun(config, environment)
    continued = {item.node_id for wave in waves_of(search, environment) for item in wave.work if type(item) is Continue}
    known = estimates(search.tree, lambda end: end.outcome)
    for node in search.tree.nodes:
        siblings = [search.tree[each] for each in node.in_common]
        assert config.share_estimates or not siblings
        assert all(each.id < node.id and each.parent_id == node.parent_id and each.same_as is None for each in siblings)
        if node.same_as is None:
            continue
        assert config.share_estimates
        head = search.tree[node.same_as]
        assert head.id < node.id
        assert (head.parent_id, head.same_as) == (node.parent_id, None)
        assert environment.alike(head.payload, node.payload)
        assert node.id not in continued
        assert known[node.id] == known[head.id]


@given(config=configs, environment=environments)
def test_rewards_lie_between_nothing_and_a_direct_right_answer(config: SearchConfig, environment: Environment) -> None:
    """Under every rule a reward is in [0, alpha**(layer + 1)]: no answer below a step is nearer than the step. The
    reward of an answer is exactly outcome * alpha**n, for any number of visits and any judge."""
    tree = searched(config, environment).tree
    for rule in (*ANSWER_REWARDS.values(), distinct_spre_rewards):
        for node, reward in zip(tree.nodes, rule(tree, alpha=config.alpha), strict=True):
            if reward is not None:
                assert 0 <= reward <= config.alpha ** max(node.depth, 1) + 1e-12
            if node.step is not None and node.terminal:
                assert reward == pytest.approx(node.step.outcome * config.alpha**node.depth, abs=1e-12)


@example(environment=Environment(seed=417830747, ending=0.0, repaired=0.15, words=4), wave=2)
@given(environment=environments, wave=st.integers(1, 8))
def test_what_decided_that_the_search_goes_on_counts_for_nothing_above(environment: Environment, wave: int) -> None:
    """An answer unlike all before it is its own: no step above has it among its rollouts, and each step on its path
    that has an estimate has other answers below it."""
    search = searched(RECIPES["economy"].search.model_copy(update={"wave": wave}), environment)
    for node in search.tree.nodes:
        assert 0 <= node.decisive_draws <= node.plain_draws
        if node.decisive_draws and node.counted_draws == 0 and node.terminal and node.parent_id is not None:
            parent = search.tree[node.parent_id]
            assert all(rollout is not node.rollouts[0] for rollout in parent.rollouts)
        above = {id(rollout) for rollout in node.rollouts}
        for child in search.tree.children(node):
            if child.counts_above and not child.terminal:
                assert above >= {id(rollout) for rollout in child.rollouts}, "what counts, counts whole"
    small = searched(RECIPES["economy"].search.model_copy(update={"simulations": 1}), environment)
    assert not any(node.decisive_draws for node in small.tree.nodes)


@given(environment=environments, wave=st.integers(1, 8))
def test_economy_ends_where_all_is_settled_or_done(environment: Environment, wave: int) -> None:
    """Without a cap on replies, and unless simulations ran out, every state has all its draws."""
    recipe = RECIPES["economy"].search.model_copy(update={"wave": wave, "share_estimates": False, "max_calls": None})
    search = searched(recipe, environment)
    if search.simulations == recipe.simulations:
        return
    for node in search.tree.nodes:
        if not node.terminal:
            assert sum(child.draws for child in search.tree.children(node)) >= recipe.siblings
            assert all(child.terminal or child.visits for child in search.tree.children(node))


@given(environment=environments, wave=st.integers(1, 8))
def test_who_proposes_does_not_change_where_economy_looks(environment: Environment, wave: int) -> None:
    """A search whose siblings are all proposals, none a plain sample, asks for the same work as one whose siblings are
    all plain; so it settles as soon."""
    recipe = RECIPES["economy"].search.model_copy(update={"wave": wave})
    plain = replace(environment, repaired=0.0)
    asked = []
    for proposing in (False, True):
        search = begun(recipe, plain)
        waves = []
        while work := search.ask():
            waves.append(work)
            for item in work:
                result = plain.answer(search.tree, item)
                if proposing and isinstance(result, Expanded):
                    result = replace(result, steps=[step._replace(plain=False) for step in result.steps])
                search.tell(item.id, result)
        asked.append(waves)
    assert asked[0] == asked[1]


@given(environment=environments, wave=st.integers(1, 8))
def test_economy_values_are_its_rewards(environment: Environment, wave: int) -> None:
    """Every continuation is kept and visited once, and what counts is backed up: value and SPRE are the same mean."""
    search = searched(RECIPES["economy"].search.model_copy(update={"wave": wave}), environment)
    for node, reward in zip(search.tree.nodes, spre_rewards(search.tree, alpha=0.9), strict=True):
        assert reward is None or reward == pytest.approx(node.value)


@given(config=groups, environment=environments)
def test_a_group_is_plain_attempts_from_the_root_each_to_its_end(
    config: SearchConfig, environment: Environment
) -> None:
    """One wave draws them all, so that none depends on another; a second one goes on from so many of their steps as
    `expand` says. Every draw is of an attempt, and no answer decides anything. Where all draws are plain, an attempt is
    worth the same to every step on it."""
    search = begun(config, environment)
    waves = [each.work for each in waves_of(search, environment)]
    assert waves[0] == [Continue(0, ROOT_ID, count=config.group, sample=STRIDE)]
    anew = Counter({work.node_id: work.count for wave in waves[1:] for work in wave})
    assert len(waves) == 1 + bool(anew)
    assert ROOT_ID not in anew
    assert not any(search.tree[each].terminal for each in anew)
    inner = [node for node in search.tree.nodes[1:] if not node.terminal]
    assert anew.total() == (config.expand if inner else 0)
    ends = [node for node in search.tree.nodes if node.terminal]
    assert sum(node.draws for node in ends) == config.group + anew.total()
    for node in search.tree.nodes[1:]:
        below = sum(child.draws for child in search.tree.children(node))
        assert node.draws + anew[node.id] == below or node.terminal
        assert node.decisive_draws == 0
    if not environment.repaired:
        assert len(search.tree.root.rollouts) == search.tree.root.visits == config.group + anew.total()
        assert anew or all(len(node.rollouts) == node.draws for node in search.tree.nodes[1:])


def recorded(recipe: Recipe, environment: Environment, search: Search[str]) -> bytes:
    """A finished tree as JSON, one node a line, with all that made it."""
    rewards = REWARDS[recipe.reward](search.tree, alpha=recipe.search.alpha)
    nodes = [
        {
            "id": node.id,
            "parent_id": node.parent_id,
            "path": None if node.step is None else node.payload,
            "outcome": node.step.outcome if node.step is not None and node.terminal else None,
            "draws": node.draws,
            "plain_draws": node.plain_draws,
            "same_as": node.same_as,
            "visits": node.visits,
            "value": round(node.value, 12),
            "reward": None if reward is None else round(reward, 12),
            "rollouts": len(node.rollouts),
        }
        for node, reward in zip(search.tree.nodes, rewards, strict=True)
    ]
    head = {
        "recipe": recipe.model_dump(),
        "environment": {name: value for name, value in asdict(environment).items() if name != "common"},
        "simulations": search.simulations,
        "calls": search.calls,
    }
    lines = ",\n".join(f"  {json.dumps(node)}" for node in nodes)
    return (json.dumps(head, indent=1)[:-2] + f',\n "nodes": [\n{lines}\n ]\n}}\n').encode()


@pytest.mark.parametrize("name", [*RECIPES])
def test_a_recorded_tree_grows_again(name: str, golden: Callable[[str, bytes], None]) -> None:
    """The recipe as shipped, in an environment kept in the file, gives the recorded tree, rewards included."""
    (recipe,) = (each for each in RECIPES.values() if each.name == name)
    environment = Environment(seed=18, ending=0.3, repaired=0.1, words=5, unreadable=0.1)
    golden(f"tree-{name}.json", recorded(recipe, environment, searched(recipe.search, environment)))
