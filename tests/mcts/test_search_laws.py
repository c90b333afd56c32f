"""What holds for every search, tried on random environments; and one recorded tree for each recipe.

An environment is a pure function of the path to a node and the number of a draw, as a journal of paid replies is.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcts import (
    RECIPES,
    ROOT_ID,
    Continue,
    Continued,
    Expand,
    Expanded,
    Recipe,
    Result,
    Scored,
    Search,
    SearchConfig,
    Step,
    Tree,
    Work,
    shortest_path_reward,
    spre_rewards,
)
from mcts.rewards import REWARDS

DEPTH = 6
"""Every path of an environment ends here at the latest."""


@dataclass(frozen=True)
class Environment:
    """A policy and a judge. A payload is the path to the step: `/3/7.0/7.1` is draw 3, then two steps of draw 7."""

    seed: int
    ending: float = 0.4
    """Chance that a step is an answer."""
    repaired: float = 0.15
    """Chance that a step is no plain sample, and took one reply more."""

    def answer(self, tree: Tree[str], work: Work) -> Result[str]:
        node = tree[work.node_id]
        path = "" if node.step is None else node.payload
        if isinstance(work, Expand):
            steps = [self._step(f"{path}/{draw}", node.depth + 1) for draw in draws_of(work)]
            return Expanded(steps, calls=sum(map(replies_of, steps)))
        if isinstance(work, Continue):
            paths = [list(self._continuation(path, node.depth, draw)) for draw in draws_of(work)]
            return Continued(paths, calls=sum(replies_of(step) for each in paths for step in each))
        return Scored(random.Random(f"{self.seed} judge {path} {work.sample}").random(), calls=1)

    def _step(self, path: str, depth: int) -> Step[str]:
        chance = random.Random(f"{self.seed} {path}")
        return Step(
            path,
            terminal=chance.random() < self.ending or depth >= DEPTH,
            outcome=int(3 * chance.random()) / 2,
            plain=chance.random() >= self.repaired,
        )

    def _continuation(self, path: str, depth: int, draw: int) -> Iterator[Step[str]]:
        for further in range(DEPTH):
            path = f"{path}/{draw}.{further}"
            step = self._step(path, depth + further + 1)
            yield step
            if step.terminal:
                return


def draws_of(work: Work) -> range:
    count = work.count if isinstance(work, Expand | Continue) else 1
    return range(work.sample, work.sample + count)


def is_plain(path: Sequence[Step[str]]) -> bool:
    return all(step.plain for step in path)


def replies_of(step: Step[str]) -> int:
    return 1 if step.plain else 2


@dataclass(frozen=True)
class Wave:
    """One wave as it was asked: its work, and the state of the search before any of it was told."""

    work: list[Work]
    calls: int
    simulations: int


def waves_of(search: Search[str], environment: Environment, shuffle: random.Random | None = None) -> Iterator[Wave]:
    """Run a search to its end, wave by wave, telling in the order of asking or in a shuffled one."""
    while work := search.ask():
        yield Wave(work, search.calls, search.simulations)
        results = [(item.id, environment.answer(search.tree, item)) for item in work]
        if shuffle:
            shuffle.shuffle(results)
        for work_id, result in results:
            search.tell(work_id, result)


def searched(config: SearchConfig, environment: Environment, shuffle: random.Random | None = None) -> Search[str]:
    search: Search[str] = Search(config)
    for _ in waves_of(search, environment, shuffle):
        pass
    return search


environments = st.builds(
    Environment,
    seed=st.integers(0, 2**32),
    ending=st.sampled_from([0.0, 0.2, 0.4, 0.8, 1.0]),
    repaired=st.sampled_from([0.0, 0.15, 1.0]),
)

configs = st.builds(
    SearchConfig,
    selection=st.sampled_from(["uct", "puct", "mixed"]),
    exploration=st.floats(0, 3),
    siblings=st.integers(1, 4),
    siblings_at_once=st.none() | st.integers(1, 3),
    valuation=st.sampled_from(["continuation", "score"]),
    continuations=st.integers(1, 3),
    alpha=st.sampled_from([0.5, 0.9, 1.0]),
    keep_continuations=st.booleans(),
    simulations=st.integers(1, 12),
    max_calls=st.none() | st.integers(1, 60),
    wave=st.integers(1, 8),
)

few = settings(max_examples=150, deadline=None)


# -- laws ---------------------------------------------------------------------------------------------------------


@few
@given(config=configs, environment=environments)
def test_asking_changes_nothing(config: SearchConfig, environment: Environment) -> None:
    """Asked twice, before and between tellings, the search gives the same work, and grows the same tree."""
    search: Search[str] = Search(config)
    while work := search.ask():
        for told, item in enumerate(work):
            assert search.ask() == search.ask() == work[told:]
            search.tell(item.id, environment.answer(search.tree, item))
    assert search.ask() == []
    assert search.tree.nodes == searched(config, environment).tree.nodes


@few
@given(config=configs, environment=environments, shuffle=st.randoms(use_true_random=False))
def test_the_order_of_telling_does_not_matter(
    config: SearchConfig, environment: Environment, shuffle: random.Random
) -> None:
    """Results of a wave told in any permutation give the identical tree, to the last bit of every value."""
    in_order = searched(config, environment)
    shuffled = searched(config, environment, shuffle)
    assert shuffled.tree.nodes == in_order.tree.nodes
    assert (shuffled.calls, shuffled.simulations) == (in_order.calls, in_order.simulations)


@few
@given(config=configs, environment=environments, other=environments)
def test_telling_twice_is_telling_once(config: SearchConfig, environment: Environment, other: Environment) -> None:
    """Every work told again at once and again after its wave, with another result, leaves the tree as it was."""
    search: Search[str] = Search(config)
    while work := search.ask():
        again = [(item.id, other.answer(search.tree, item)) for item in work]
        for item, (work_id, another) in zip(work, again, strict=True):
            search.tell(item.id, environment.answer(search.tree, item))
            search.tell(work_id, another)
        for work_id, another in again:
            search.tell(work_id, another)
    assert search.tree.nodes == searched(config, environment).tree.nodes


@few
@given(config=configs, environment=environments)
def test_a_parent_is_visited_at_least_as_often_as_all_its_plain_children(
    config: SearchConfig, environment: Environment
) -> None:
    """visits(parent) >= sum of visits(plain children): what is backed up through a plain step passes its parent."""
    tree = searched(config, environment).tree
    for node in tree.nodes:
        assert node.visits >= sum(child.visits for child in tree.children(node) if child.plain)


@few
@given(config=configs, environment=environments)
def test_a_value_lies_within_what_was_backed_up(config: SearchConfig, environment: Environment) -> None:
    """Each node's value is between the least and the greatest value that came up through it by plain samples only, 0 if
    none did."""
    search: Search[str] = Search(config)
    backed_up: dict[int, list[float]] = defaultdict(list)

    def note(node_id: int, value: float) -> None:
        for above in search.tree.path_up(search.tree[node_id]):
            backed_up[above.id].append(value)
            if not above.plain:
                return

    for wave in waves_of(search, environment):
        for work in wave.work:
            result = environment.answer(search.tree, work)
            if isinstance(result, Scored):
                note(work.node_id, result.value)
            elif isinstance(result, Continued) and not config.keep_continuations:
                for path in filter(is_plain, result.paths):
                    steps = search.tree[work.node_id].depth + len(path)
                    note(work.node_id, shortest_path_reward(path[-1].outcome, steps=steps, alpha=config.alpha))
    if config.valuation == "continuation":
        for node in search.tree.nodes:
            if node.step is not None and node.terminal:
                note(node.id, shortest_path_reward(node.step.outcome, steps=node.depth, alpha=config.alpha))
    for node in search.tree.nodes:
        seen = backed_up[node.id] or [0.0]
        assert min(seen) - 1e-12 <= node.value <= max(seen) + 1e-12
        assert node.visits >= len(backed_up[node.id])


@few
@given(config=configs, environment=environments)
def test_no_two_draws_of_a_tree_share_a_number(config: SearchConfig, environment: Environment) -> None:
    """Work ids and sample numbers are given out once each, in order, without gaps."""
    search: Search[str] = Search(config)
    work = [item for wave in waves_of(search, environment) for item in wave.work]
    assert [item.id for item in work] == list(range(len(work)))
    draws = [draw for item in work for draw in draws_of(item)]
    assert draws == list(range(len(draws)))


@few
@given(config=configs, environment=environments)
def test_every_search_ends_within_its_simulations(config: SearchConfig, environment: Environment) -> None:
    """Each simulation makes at most two waves, siblings and their values; none starts beyond the budget."""
    search: Search[str] = Search(config)
    waves = list(waves_of(search, environment))
    assert search.simulations <= config.simulations
    assert len(waves) <= 2 * config.simulations
    assert search.done


@few
@given(config=configs, environment=environments)
def test_a_wave_works_on_no_more_states_than_its_size(config: SearchConfig, environment: Environment) -> None:
    """One simulation in flight is one selected state, whether its siblings are sampled or its children valued."""
    search: Search[str] = Search(config)
    for wave in waves_of(search, environment):
        states = {
            item.node_id if isinstance(item, Expand) else search.tree[item.node_id].parent_id for item in wave.work
        }
        assert len(states) <= config.wave


@few
@given(config=configs, environment=environments, max_calls=st.integers(1, 60))
def test_no_work_is_handed_out_that_the_budget_cannot_start(
    config: SearchConfig, environment: Environment, max_calls: int
) -> None:
    """One reply for each draw of a wave fits into what is left of `max_calls`, so that only the length of
    continuations and repairs, all in the last wave, can overrun it."""
    search: Search[str] = Search(config.model_copy(update={"max_calls": max_calls}))
    waves = list(waves_of(search, environment))
    for wave in waves:
        assert wave.calls + sum(len(draws_of(item)) for item in wave.work) <= max_calls
    if search.calls > max_calls:
        assert waves[-1].calls < max_calls


@few
@given(config=configs, environment=environments, max_calls=st.integers(1, 60))
def test_siblings_are_sampled_only_where_they_can_be_valued(
    config: SearchConfig, environment: Environment, max_calls: int
) -> None:
    """Two replies are left for every new sibling of a wave, however many states the wave holds."""
    search: Search[str] = Search(config.model_copy(update={"max_calls": max_calls}))
    for wave in waves_of(search, environment):
        siblings = sum(item.count for item in wave.work if isinstance(item, Expand))
        if siblings:
            assert wave.calls + 2 * siblings <= max_calls


@few
@given(config=configs, environment=environments, max_calls=st.integers(1, 60))
def test_every_simulation_does_something(config: SearchConfig, environment: Environment, max_calls: int) -> None:
    """A spent budget ends the search; it is not sat out in simulations that ask for nothing and back nothing up."""
    search: Search[str] = Search(config.model_copy(update={"max_calls": max_calls}))
    asked = sum(len(wave.work) for wave in waves_of(search, environment))
    ends = [node for node in search.tree.nodes if node.id == ROOT_ID or not node.plain]
    assert search.simulations <= asked + sum(node.visits for node in ends)


@few
@given(config=configs, environment=environments)
def test_states_get_no_more_siblings_than_configured(config: SearchConfig, environment: Environment) -> None:
    """Expansion fills a state up to `siblings`, at most `siblings_at_once` at a time."""
    search: Search[str] = Search(config)
    for wave in waves_of(search, environment):
        for item in wave.work:
            if isinstance(item, Expand):
                assert 1 <= item.count <= (config.siblings_at_once or config.siblings)
                assert len(search.tree[item.node_id].children_ids) + item.count <= config.siblings


@few
@given(config=configs, environment=environments)
def test_rewards_lie_between_nothing_and_a_direct_right_answer(config: SearchConfig, environment: Environment) -> None:
    """Under both rules a reward is in [0, alpha**(layer + 1)]: no answer below a step is nearer than the step."""
    tree = searched(config, environment).tree
    for rule in REWARDS.values():
        for node, reward in zip(tree.nodes, rule(tree, alpha=config.alpha), strict=True):
            if reward is not None:
                assert 0 <= reward <= config.alpha ** max(node.depth, 1) + 1e-12


@few
@given(config=configs, environment=environments)
def test_an_answer_is_worth_exactly_its_own_discounted_outcome(config: SearchConfig, environment: Environment) -> None:
    """However often an answer is visited, and whoever judged it, its reward under both rules is outcome * alpha**n."""
    tree = searched(config, environment).tree
    for rule in REWARDS.values():
        rewards = rule(tree, alpha=config.alpha)
        for node in tree.nodes:
            if node.step is not None and node.terminal:
                assert rewards[node.id] == node.step.outcome * config.alpha**node.depth


@few
@given(environment=environments, wave=st.integers(1, 8))
def test_economy_grows_nothing_below_a_settled_state(environment: Environment, wave: int) -> None:
    """Whenever a state other than the root is given work, continuations through it had disagreed."""
    search: Search[str] = Search(RECIPES["economy"].search.model_copy(update={"wave": wave}))
    for each in waves_of(search, environment):
        for item in each.work:
            state = search.tree[item.node_id]
            if isinstance(item, Continue):
                (state,) = (node for node in search.tree.nodes if item.node_id in node.children_ids)
            assert state.id == 0 or len({rollout.outcome for rollout in state.rollouts}) > 1


@few
@given(environment=environments, wave=st.integers(1, 8))
def test_plain_economy_values_are_its_rewards(environment: Environment, wave: int) -> None:
    """Every continuation is kept and visited once: without repairs, value and SPRE are the same mean."""
    plain = Environment(environment.seed, ending=environment.ending, repaired=0.0)
    search = searched(RECIPES["economy"].search.model_copy(update={"wave": wave}), plain)
    for node, reward in zip(search.tree.nodes, spre_rewards(search.tree, alpha=0.9), strict=True):
        assert reward is None or reward == pytest.approx(node.value)


# -- recorded trees -----------------------------------------------------------------------------------------------


def recorded(recipe: Recipe, environment: Environment, search: Search[str]) -> bytes:
    """A finished tree as JSON, one node a line, with all that made it."""
    rewards = REWARDS[recipe.reward](search.tree, alpha=recipe.search.alpha)
    nodes = [
        {
            "id": node.id,
            "parent_id": node.parent_id,
            "path": None if node.step is None else node.payload,
            "outcome": node.step.outcome if node.step is not None and node.terminal else None,
            "plain": node.step is None or node.step.plain,
            "visits": node.visits,
            "value": round(node.value, 12),
            "reward": None if reward is None else round(reward, 12),
            "rollouts": len(node.rollouts),
        }
        for node, reward in zip(search.tree.nodes, rewards, strict=True)
    ]
    head = {
        "recipe": recipe.model_dump(),
        "environment": {"seed": environment.seed, "ending": environment.ending, "repaired": environment.repaired},
        "simulations": search.simulations,
        "calls": search.calls,
    }
    lines = ",\n".join(f"  {json.dumps(node)}" for node in nodes)
    return (json.dumps(head, indent=1)[:-2] + f',\n "nodes": [\n{lines}\n ]\n}}\n').encode()


@pytest.mark.parametrize("name", ["paper", "economy", "released"])
def test_a_recorded_tree_grows_again(name: str, golden: Callable[[str, bytes], None]) -> None:
    """The recipe as shipped, in an environment kept in the file, gives the recorded tree, rewards included."""
    (recipe,) = (each for each in RECIPES.values() if each.name == name)
    environment = Environment(seed=5, ending=0.3, repaired=0.1)
    golden(f"tree-{name}.json", recorded(recipe, environment, searched(recipe.search, environment)))
