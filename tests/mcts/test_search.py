"""Small searches worked out by hand, one for each recipe, and the protocol of asking and telling."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pydantic import ValidationError

from mcts import (
    RECIPES,
    Continue,
    Continued,
    Expand,
    Expanded,
    Result,
    Score,
    Scored,
    Search,
    SearchConfig,
    Step,
    Work,
    spre_rewards,
    visit_weighted_rewards,
)

Exchange = tuple[Work, Result[str]]


def step(payload: str, *, plain: bool = True) -> Step[str]:
    return Step(payload, plain=plain)


def answer(outcome: float, *, plain: bool = True) -> Step[str]:
    return Step(f"answer {outcome}", terminal=True, outcome=outcome, plain=plain)


def expanded(*steps: Step[str]) -> Expanded[str]:
    return Expanded(steps, calls=len(steps))


def continued(*paths: Sequence[Step[str]]) -> Continued[str]:
    return Continued(paths, calls=sum(map(len, paths)))


def play(search: Search[str], waves: Sequence[Sequence[Exchange]]) -> None:
    """The search must ask exactly for the work of each wave; it is told the result beside it."""
    for wave in waves:
        assert search.ask() == [work for work, _ in wave]
        for work, result in wave:
            search.tell(work.id, result)
    assert search.done


def visits(search: Search[str]) -> list[int]:
    return [node.visits for node in search.tree.nodes]


def values(search: Search[str]) -> list[float]:
    return [node.value for node in search.tree.nodes]


def config(recipe: str = "paper", **changes: object) -> SearchConfig:
    """A recipe's configuration with a budget small enough to follow by hand."""
    (chosen,) = (each for name, each in RECIPES.items() if name == recipe)
    return chosen.search.model_copy(update=changes)


# -- the three recipes by hand ------------------------------------------------------------------------------------


def test_paper_by_hand() -> None:
    """Two siblings at once, two continuations of what does not end, three simulations one after another; alpha .9.

    1. Root: 1 (query) and 2 (answer 0). 2 is exact: 0. Continuations of 1: right in 3 steps .9**3 = .729, half right
       in 5 steps .5 * .9**5 = .295245. Visits 1: 2, 2: 1, root: 3; value of 1: .5121225.
    2. UCT, c 1.414: 1: .5121225 + 1.414 sqrt(ln 3 / 2) = 1.5601; 2: 0 + 1.414 sqrt(ln 3 / 1) = 1.4821. So 1 is
       expanded: 3 and 4. Both continuations of 3 are right in 3 steps: .729. Of 4: wrong, and right in 5: .59049.
       Visits 1: 6, root: 7; sum of 1: .729 + .295245 + .729 + .729 + 0 + .59049 = 3.072735, value again .5121225.
    3. UCT: 1: .5121225 + 1.414 sqrt(ln 7 / 6) = 1.3174; 2: 1.414 sqrt(ln 7) = 1.9725. So 2, which is known: its 0 is
       backed up once more without asking anybody. Visits 2: 2, root: 8; value of the root: 3.072735 / 8 = .384091875.

    Rewards: the mean over the six continuations of 1 is its value; 3: .729; 4: .59049 / 2 = .295245; 2: 0; the root
    has seven distinct paths, the answer of 2 being one however often visited: 3.072735 / 7 = .438962142857.
    """
    search: Search[str] = Search(config("paper", siblings=2, continuations=2, simulations=3, wave=1))
    right_in_3 = [step("evidence"), answer(1.0)]
    half_in_5 = [step("evidence"), step("query"), step("evidence"), answer(0.5)]
    right_in_5 = [step("query"), step("evidence"), answer(1.0)]
    play(
        search,
        [
            [(Expand(0, node_id=0, count=2, sample=0), expanded(step("query"), answer(0.0)))],
            [(Continue(1, node_id=1, count=2, sample=2), continued(right_in_3, half_in_5))],
            [(Expand(2, node_id=1, count=2, sample=4), expanded(step("evidence"), step("evidence")))],
            [
                (Continue(3, node_id=3, count=2, sample=6), continued([answer(1.0)], [answer(1.0)])),
                (Continue(4, node_id=4, count=2, sample=8), continued([answer(0.0)], right_in_5)),
            ],
        ],
    )
    assert [node.parent_id for node in search.tree.nodes] == [None, 0, 0, 1, 1]
    assert visits(search) == [8, 6, 2, 2, 2]
    assert values(search) == pytest.approx([0.384091875, 0.5121225, 0.0, 0.729, 0.295245])
    assert spre_rewards(search.tree, alpha=0.9) == pytest.approx([0.438962142857, 0.5121225, 0.0, 0.729, 0.295245])
    assert (search.simulations, search.calls) == (3, 2 + 6 + 2 + 2 + 4)


def test_economy_by_hand() -> None:
    """Two siblings, two continuations kept as nodes, waves of two states, four simulations at most; alpha .9.

    1. Root: 1 (query) and 2 (right answer, .9). Continuations of 1 become nodes: 3 - 4 right in 3 steps (.729),
       5 - 6 wrong. No second state is open, so the wave has one.
    2. 1 saw right and wrong. Its siblings are there already, the first steps of the continuations, each with one of
       the two values it wants: one more continuation each. 3: right in 3 steps (7). 5: right in 5 (8, 9, 10): .59049.
    3. 3 saw only right answers: settled, although nothing was sampled in its state but continuations. 5 saw wrong and
       right; its children are the answer 6 and the query 8, which wants one more value: right in 5 steps (11, 12).
    4. 8 saw only right answers, everything above has its siblings and values: the fourth simulation is not used.

    Rewards: 3: .729; 8: .59049; 5: (0 + .59049 + .59049) / 3 = .39366; 1: (.729 + 0 + .729 + 2 * .59049) / 5 = .527796;
    root: (.9 + 2.63898) / 6 = .58983. With nothing visited twice, the values are the same numbers.
    """
    search: Search[str] = Search(config("economy", siblings=2, continuations=2, simulations=4, wave=2))
    play(
        search,
        [
            [(Expand(0, node_id=0, count=2, sample=0), expanded(step("query"), answer(1.0)))],
            [
                (
                    Continue(1, node_id=1, count=2, sample=2),
                    continued([step("evidence"), answer(1.0)], [step("other evidence"), answer(0.0)]),
                )
            ],
            [
                (Continue(2, node_id=3, count=1, sample=4), continued([answer(1.0)])),
                (Continue(3, node_id=5, count=1, sample=5), continued([step("query"), step("evidence"), answer(1.0)])),
            ],
            [(Continue(4, node_id=8, count=1, sample=6), continued([step("other evidence"), answer(1.0)]))],
        ],
    )
    assert [node.parent_id for node in search.tree.nodes] == [None, 0, 0, 1, 3, 1, 5, 3, 5, 8, 9, 8, 11]
    assert visits(search) == [6, 5, 1, 2, 1, 3, 1, 1, 2, 1, 1, 1, 1]
    rewards = spre_rewards(search.tree, alpha=0.9)
    assert rewards[:6] == pytest.approx([0.58983, 0.527796, 0.9, 0.729, 0.729, 0.39366])
    assert rewards[6:] == pytest.approx([0.0, 0.729, 0.59049, 0.59049, 0.59049, 0.59049, 0.59049])
    assert values(search) == pytest.approx(rewards)
    assert (search.simulations, search.calls) == (3, 2 + 4 + 1 + 3 + 2)


def test_released_by_hand() -> None:
    """One child per simulation until a state has two, each judged once; answers are judged anew at every visit.

    1. Root gets 1 (query), judged .8.   2. Root gets 2 (answer, F1 .5), judged .2. Root: 2 visits, value .5.
    3. UCT, c 1.414: 1: .8 + 1.414 sqrt(ln 2 / 1) = 1.977; 2: 1.377. So 1, which gets 3 (answer, F1 1), judged .9.
    4. 1: .85 + 1.414 sqrt(ln 3 / 2) = 1.898; 2: .2 + 1.414 sqrt(ln 3) = 1.682. So 1 gets 4 (answer, F1 0), judged .4.
    5. 1: .7 + 1.414 sqrt(ln 4 / 3) = 1.661; 2: .2 + 1.414 sqrt(ln 4) = 1.865. So 2, judged anew: .6.

    Values are means of judgements: 1: (.8 + .9 + .4) / 3 = .7; 2: (.2 + .6) / 2 = .4; root: 2.9 / 5 = .58.
    Labels know F1 and visits only: 3: .81; 4: 0; 1: (1 * .81 + 1 * 0) / 2 = .405; 2: .5 * .9 = .45;
    root: (3 * .405 + 2 * .45) / 5 = .423.
    """
    search: Search[str] = Search(config("released", simulations=5))
    play(
        search,
        [
            [(Expand(0, node_id=0, count=1, sample=0), expanded(step("query")))],
            [(Score(1, node_id=1, sample=1), Scored(0.8, calls=1))],
            [(Expand(2, node_id=0, count=1, sample=2), expanded(answer(0.5)))],
            [(Score(3, node_id=2, sample=3), Scored(0.2, calls=1))],
            [(Expand(4, node_id=1, count=1, sample=4), expanded(answer(1.0)))],
            [(Score(5, node_id=3, sample=5), Scored(0.9, calls=1))],
            [(Expand(6, node_id=1, count=1, sample=6), expanded(answer(0.0)))],
            [(Score(7, node_id=4, sample=7), Scored(0.4, calls=1))],
            [(Score(8, node_id=2, sample=8), Scored(0.6, calls=1))],
        ],
    )
    assert [node.parent_id for node in search.tree.nodes] == [None, 0, 0, 1, 1]
    assert visits(search) == [5, 3, 2, 1, 1]
    assert values(search) == pytest.approx([0.58, 0.7, 0.4, 0.9, 0.4])
    assert visit_weighted_rewards(search.tree, alpha=0.9) == pytest.approx([0.423, 0.405, 0.45, 0.81, 0.0])
    assert (search.simulations, search.calls) == (5, 9)


def test_released_spends_at_most_one_generation_and_one_judgement_per_simulation() -> None:
    """The published budget of 64 simulations is at most 128 replies, whatever the judge says."""
    search: Search[str] = Search(RECIPES["released"].search)
    while work := search.ask():
        (only,) = work
        if isinstance(only, Expand):
            search.tell(only.id, expanded(step(f"sample {only.sample}")))
        else:
            search.tell(only.id, Scored((only.sample % 7) / 7, calls=1))
    assert (search.simulations, search.calls) == (64, 128)
    assert len(search.tree) == 1 + 64


# -- selection ----------------------------------------------------------------------------------------------------


def test_of_equal_children_the_earlier_is_visited_first() -> None:
    """Scores that tie are settled by order of creation, so that a tree never depends on chance."""
    search: Search[str] = Search(config("paper", siblings=2, continuations=1, simulations=2, wave=1))
    play(
        search,
        [
            [(Expand(0, node_id=0, count=2, sample=0), expanded(step("first"), step("second")))],
            [
                (Continue(1, node_id=1, count=1, sample=2), continued([answer(1.0)])),
                (Continue(2, node_id=2, count=1, sample=3), continued([answer(1.0)])),
            ],
            [(Expand(3, node_id=1, count=2, sample=4), expanded(answer(1.0), answer(1.0)))],
        ],
    )


def test_puct_walks_down_by_its_own_score() -> None:
    """Three children worth 0, .9 and .5 * .81 = .405 after one visit each; c 2.5, prior 1/3 each.

    2. All have the same second term, so the value decides: child 2.
    3. 2: .9 + 2.5 / 3 * sqrt(4) / 3 = 1.456; 3: .405 + 2.5 / 3 * sqrt(4) / 2 = 1.238. Child 2 again.
    """
    search: Search[str] = Search(
        config("paper", selection="puct", exploration=2.5, siblings=3, continuations=1, simulations=3, wave=1)
    )
    play(
        search,
        [
            [(Expand(0, node_id=0, count=3, sample=0), expanded(answer(0.0), answer(1.0), step("query")))],
            [(Continue(1, node_id=3, count=1, sample=3), continued([answer(0.5)]))],
        ],
    )
    assert visits(search) == [5, 1, 3, 1]


def test_a_wave_spreads_over_several_states() -> None:
    """Simulations in flight count as visits: the second of a wave goes elsewhere than the first.

    Both children are worth .81 after one visit. The first simulation takes 1 (the earlier of equals); with it pending
    1 scores .81 + 1.414 sqrt(ln 3 / 2) = 1.858, 2 scores .81 + 1.414 sqrt(ln 3) = 2.292.
    """
    search: Search[str] = Search(config("paper", siblings=2, continuations=1, simulations=3, wave=2))
    play(
        search,
        [
            [(Expand(0, node_id=0, count=2, sample=0), expanded(step("first"), step("second")))],
            [
                (Continue(1, node_id=1, count=1, sample=2), continued([answer(1.0)])),
                (Continue(2, node_id=2, count=1, sample=3), continued([answer(1.0)])),
            ],
            [
                (Expand(3, node_id=1, count=2, sample=4), expanded(answer(1.0), answer(1.0))),
                (Expand(4, node_id=2, count=2, sample=6), expanded(answer(1.0), answer(1.0))),
            ],
        ],
    )
    assert search.simulations == 3


def test_simulations_in_flight_count_for_the_parent_too() -> None:
    """Children judged .825, .5 and 0, c 1. The first simulation of a wave takes 1. With it in flight the root has 4
    visits: 1: .825 + sqrt(ln 4 / 2) = 1.658; 2: .5 + sqrt(ln 4) = 1.677. So the second takes 2; with the 3 visits that
    are backed up, it would have been 1 again (1.566 against 1.548)."""
    search: Search[str] = Search(
        config("released", exploration=1.0, siblings=3, siblings_at_once=3, simulations=3, wave=2)
    )
    search.tell(search.ask()[0].id, expanded(step("first"), step("second"), step("third")))
    for work, value in zip(search.ask(), (0.825, 0.5, 0.0), strict=True):
        search.tell(work.id, Scored(value, calls=1))
    assert search.ask() == [Expand(4, node_id=1, count=3, sample=6), Expand(5, node_id=2, count=3, sample=9)]


def test_a_root_that_only_ever_answers_costs_one_request() -> None:
    """Answers are exact: further simulations visit them, and ask for nothing."""
    search: Search[str] = Search(config("paper", siblings=3, simulations=8))
    play(search, [[(Expand(0, node_id=0, count=3, sample=0), expanded(answer(1.0), answer(0.0), answer(0.0)))]])
    assert search.simulations == 8
    assert sum(visits(search)[1:]) == visits(search)[0] == 3 + 7
    assert spre_rewards(search.tree, alpha=0.9) == pytest.approx([0.3, 0.9, 0.0, 0.0])


@pytest.mark.parametrize("outcome", [0.0, 0.5, 1.0])
def test_economy_gives_settled_branches_no_more_budget(outcome: float) -> None:
    """When every continuation through a step says the same, it is not looked at again: the root's siblings, two
    values each, and the search is over, with eleven of twelve simulations left."""
    search: Search[str] = Search(config("economy"))
    queries = [step(f"query {number}") for number in range(4)]
    both = continued([step("evidence"), answer(outcome)], [step("evidence"), answer(outcome)])
    play(
        search,
        [
            [(Expand(0, node_id=0, count=4, sample=0), expanded(*queries))],
            [(Continue(1 + i, node_id=1 + i, count=2, sample=4 + 2 * i), both) for i in range(4)],
        ],
    )
    assert search.simulations == 1


def test_economy_goes_to_the_shallowest_mixed_states_first() -> None:
    """Three mixed states of layer 1, waves of two: first 1 and 2; then 3, before the deeper 4, which became mixed
    meanwhile."""
    search: Search[str] = Search(config("economy", siblings=3, continuations=2, simulations=5, wave=2))
    right_and_wrong = continued([step("good"), answer(1.0)], [step("bad"), answer(0.0)])
    asked: list[list[tuple[type[Work], int]]] = []
    while work := search.ask():
        asked.append([(type(item), item.node_id) for item in work])
        for item in work:
            if isinstance(item, Expand):
                search.tell(item.id, expanded(*(step("query") for _ in range(item.count))))
            elif isinstance(item, Continue):
                search.tell(item.id, right_and_wrong if item.count == 2 else continued([answer(0.0)]))
    assert asked[0] == [(Expand, 0)]
    assert asked[1] == [(Continue, 1), (Continue, 2), (Continue, 3)]
    assert asked[2] == [(Expand, 1), (Expand, 2)]
    assert asked[4] == [(Expand, 3), (Expand, 4)]
    assert [search.tree[node_id].depth for node_id in (3, 4)] == [1, 2]


def test_economy_takes_a_shallower_state_before_an_older_one() -> None:
    """Siblings one at a time: 1, then 6, each seen right and wrong. Visiting 1 makes its child 2 mixed as well, with a
    query that wants another value. 6 is next: it came later than 2, but it is nearer to the root."""
    search: Search[str] = Search(config("economy", siblings=2, siblings_at_once=1, simulations=4, wave=1))
    right_and_wrong = continued([step("good"), answer(1.0)], [step("bad"), answer(0.0)])
    right, wrong = continued([answer(1.0)]), continued([answer(0.0)])
    play(
        search,
        [
            [(Expand(0, node_id=0, count=1, sample=0), expanded(step("first")))],
            [(Continue(1, node_id=1, count=2, sample=1), right_and_wrong)],
            [(Expand(2, node_id=0, count=1, sample=3), expanded(step("second")))],
            [(Continue(3, node_id=6, count=2, sample=4), right_and_wrong)],
            [
                (Continue(4, node_id=2, count=1, sample=6), continued([step("query"), answer(0.0)])),
                (Continue(5, node_id=4, count=1, sample=7), wrong),
            ],
            [
                (Continue(6, node_id=7, count=1, sample=8), right),
                (Continue(7, node_id=9, count=1, sample=9), wrong),
            ],
        ],
    )
    assert [search.tree[node_id].depth for node_id in (2, 6)] == [2, 1]


# -- repaired steps -----------------------------------------------------------------------------------------------


def test_a_repaired_sibling_is_valued_but_does_not_count_for_its_state() -> None:
    """Its own continuations make its reward; the root's mean knows only the plain sibling.

    1 (repaired): right in 2 steps, .81. 2: wrong. Root: the mean over 2 alone, 0.
    """
    search: Search[str] = Search(config("paper", siblings=2, continuations=1, simulations=1, wave=1))
    play(
        search,
        [
            [(Expand(0, node_id=0, count=2, sample=0), expanded(step("repaired", plain=False), step("plain")))],
            [
                (Continue(1, node_id=1, count=1, sample=2), continued([answer(1.0)])),
                (Continue(2, node_id=2, count=1, sample=3), continued([answer(0.0)])),
            ],
        ],
    )
    assert spre_rewards(search.tree, alpha=0.9) == pytest.approx([0.0, 0.81, 0.0])


@pytest.mark.parametrize(
    ("keep", "expected"),
    [
        (False, [0.0, 0.0]),  # no nodes, so nobody whose own reward it would be
        (True, [0.0, 0.0, 0.729, 0.729, 0.0]),  # the repaired step and the answer below it keep theirs
    ],
)
def test_a_repaired_step_in_a_continuation_hides_the_path_from_everything_above(
    *, keep: bool, expected: list[float]
) -> None:
    """Of two continuations of the only sibling, the right one was repaired on the way: its state is worth 0."""
    search: Search[str] = Search(
        config("paper", siblings=1, continuations=2, simulations=1, wave=1, keep_continuations=keep)
    )
    repaired = [step("evidence", plain=False), answer(1.0)]
    play(
        search,
        [
            [(Expand(0, node_id=0, count=1, sample=0), expanded(step("query")))],
            [(Continue(1, node_id=1, count=2, sample=1), continued(repaired, [answer(0.0)]))],
        ],
    )
    assert spre_rewards(search.tree, alpha=0.9) == pytest.approx(expected)


# -- budgets ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("max_calls", "siblings"),
    [(1, 0), (2, 1), (3, 1), (4, 2), (5, 2), (6, 3), (100, 3)],
)
def test_siblings_are_sampled_only_if_they_can_be_valued_too(max_calls: int, siblings: int) -> None:
    """A new sibling takes two of the replies that are left: its own and one for its value."""
    search: Search[str] = Search(config("paper", siblings=3, continuations=1, max_calls=max_calls))
    assert sum(work.count for work in search.ask() if isinstance(work, Expand)) == siblings


def test_continuations_may_overrun_the_budget_by_their_length() -> None:
    """With four replies in all, two siblings are sampled and both continued; that one continuation took three
    replies is paid, and nothing is asked after it."""
    search: Search[str] = Search(config("paper", siblings=2, continuations=2, wave=1, max_calls=4))
    play(
        search,
        [
            [(Expand(0, node_id=0, count=2, sample=0), expanded(step("first"), answer(0.0)))],
            [
                (
                    Continue(1, node_id=1, count=2, sample=2),
                    continued([step("evidence"), step("query"), answer(1.0)], [answer(1.0)]),
                )
            ],
        ],
    )
    assert search.calls == 6


def test_values_are_cut_to_what_the_budget_still_pays() -> None:
    """Five replies: two for siblings, then both values of the first and only one of the second."""
    search: Search[str] = Search(config("paper", siblings=2, continuations=2, wave=1, max_calls=5))
    play(
        search,
        [
            [(Expand(0, node_id=0, count=2, sample=0), expanded(step("first"), step("second")))],
            [
                (Continue(1, node_id=1, count=2, sample=2), continued([answer(1.0)], [answer(0.0)])),
                (Continue(2, node_id=2, count=1, sample=4), continued([answer(1.0)])),
            ],
        ],
    )
    assert search.calls == 5


def test_repairs_are_paid_from_the_same_budget() -> None:
    """`calls` of a result counts every reply used, so two repaired siblings leave nothing for their values."""
    search: Search[str] = Search(config("paper", siblings=2, continuations=2, wave=1, max_calls=4))
    repaired = Expanded([step("first", plain=False), step("second", plain=False)], calls=4)
    play(search, [[(Expand(0, node_id=0, count=2, sample=0), repaired)]])
    assert search.calls == 4


# -- asking and telling -------------------------------------------------------------------------------------------


def two_works() -> tuple[Search[str], list[Work]]:
    """A search that waits for two continuations, of node 1 and of node 2."""
    search: Search[str] = Search(config("paper", siblings=2, continuations=1, simulations=8, wave=1))
    search.tell(search.ask()[0].id, expanded(step("first"), step("second")))
    return search, search.ask()


def test_a_wave_does_not_start_before_the_last_one_is_told_whole() -> None:
    """What is not told yet is asked again; nothing of the next wave is seen, and nothing is applied, until then."""
    search, (first, second) = two_works()
    search.tell(second.id, continued([answer(1.0)]))
    assert search.ask() == [first]
    assert visits(search) == [0, 0, 0]
    assert search.calls == 2
    search.tell(first.id, continued([answer(0.0)]))
    assert visits(search) == [2, 1, 1]
    assert all(work.id > second.id for work in search.ask())


def test_results_are_applied_in_the_order_of_the_work_not_of_their_arrival() -> None:
    """With continuations kept, ids show the order: those below node 1 come first although told last."""
    search: Search[str] = Search(config("economy", siblings=2, continuations=1, simulations=1))
    search.tell(search.ask()[0].id, expanded(step("first"), step("second")))
    first, second = search.ask()
    search.tell(second.id, continued([answer(1.0)]))
    search.tell(first.id, continued([answer(0.0)]))
    assert [(node.parent_id, node.payload) for node in search.tree.nodes[3:]] == [(1, "answer 0.0"), (2, "answer 1.0")]


def test_the_first_telling_of_a_work_holds() -> None:
    """Told again, even with another result, nothing changes: before the wave is whole, and long after."""
    search, (first, second) = two_works()
    search.tell(first.id, continued([answer(1.0)]))
    search.tell(first.id, continued([answer(0.0)]))
    search.tell(second.id, continued([answer(0.0)]))
    search.tell(first.id, continued([answer(0.0)]))
    search.tell(0, expanded(answer(1.0), answer(1.0)))
    assert values(search) == pytest.approx([0.405, 0.81, 0.0])
    assert len(search.tree) == 3


@pytest.mark.parametrize(
    ("result", "complaint"),
    [
        (Scored(0.5, calls=1), "a Scored is no answer to it"),
        (continued([answer(1.0)], [answer(1.0)]), "a Continued is no answer to it"),
        (expanded(step("one")), "wants 2 results, got 1"),
        (expanded(step("one"), step("two"), step("three")), "wants 2 results, got 3"),
        (expanded(step("one"), answer(1.5)), "1.5 is not in"),
        (expanded(step("one"), answer(-0.1)), "-0.1 is not in"),
        (expanded(step("one"), answer(float("nan"))), "nan is not in"),
        (Expanded([step("one"), step("two")], calls=-1), "calls must not be negative, got -1"),
    ],
)
def test_an_expansion_refuses_what_does_not_fit(result: Result[str], complaint: str) -> None:
    """The message names the work and its node; the search is as before, and takes a right result afterwards."""
    search: Search[str] = Search(config("paper", siblings=2, continuations=1, wave=1))
    asked = search.ask()
    with pytest.raises(ValueError, match=rf"work 0 \(Expand at node 0\): .*{complaint}"):
        search.tell(0, result)
    assert (len(search.tree), search.calls, search.ask()) == (1, 0, asked)
    search.tell(0, expanded(step("one"), step("two")))
    assert len(search.tree) == 3


@pytest.mark.parametrize(
    ("result", "complaint"),
    [
        (Scored(0.5, calls=1), "a Scored is no answer to it"),
        (expanded(answer(1.0)), "an? Expanded is no answer to it"),
        (continued(), "wants 1 results, got 0"),
        (continued([answer(1.0)], [answer(1.0)]), "wants 1 results, got 2"),
        (continued([]), "must end in its only terminal step"),
        (continued([step("query")]), "must end in its only terminal step"),
        (continued([answer(1.0), answer(1.0)]), "must end in its only terminal step"),
        (continued([answer(1.0), step("query")]), "must end in its only terminal step"),
        (continued([step("query"), answer(2.0)]), "2.0 is not in"),
        (Continued([[answer(1.0)]], calls=-1), "calls must not be negative"),
    ],
)
def test_a_continuation_refuses_what_does_not_fit(result: Result[str], complaint: str) -> None:
    """A path ends in its only terminal step; the message names the work, and nothing has changed."""
    search, asked = two_works()
    with pytest.raises(ValueError, match=rf"work 1 \(Continue at node 1\): .*{complaint}"):
        search.tell(1, result)
    assert (visits(search), search.calls, search.ask()) == ([0, 0, 0], 2, asked)


@pytest.mark.parametrize(
    ("result", "complaint"),
    [
        (expanded(answer(1.0)), "no answer to it"),
        (continued([answer(1.0)]), "no answer to it"),
        (Scored(1.01, calls=1), "1.01 is not in"),
        (Scored(-1.0, calls=1), "-1.0 is not in"),
        (Scored(float("nan"), calls=1), "nan is not in"),
    ],
)
def test_a_judgement_refuses_what_does_not_fit(result: Result[str], complaint: str) -> None:
    """A score lies in [0, 1]; the message names the work, and nothing has changed."""
    search: Search[str] = Search(config("released"))
    search.tell(search.ask()[0].id, expanded(step("query")))
    asked = search.ask()
    with pytest.raises(ValueError, match=rf"work 1 \(Score at node 1\): .*{complaint}"):
        search.tell(1, result)
    assert (visits(search), search.calls, search.ask()) == ([0, 0], 1, asked)


@pytest.mark.parametrize("work_id", [-1, 1, 99])
def test_work_that_was_never_asked_for_is_refused(work_id: int) -> None:
    """Only ids that `ask` gave out can be told; the message names the id."""
    search: Search[str] = Search(config())
    asked = search.ask()
    with pytest.raises(ValueError, match=f"work {work_id} was never asked for"):
        search.tell(work_id, expanded(step("one")))
    assert search.ask() == asked


def test_an_outcome_matters_only_where_a_step_ends() -> None:
    """The outcome of a step that is no answer is ignored, in range or not."""
    search: Search[str] = Search(config("paper", siblings=1, continuations=1, simulations=1))
    search.tell(search.ask()[0].id, expanded(Step("query", outcome=7.0)))
    (work,) = search.ask()
    search.tell(work.id, continued([Step("evidence", outcome=7.0), answer(1.0)]))
    assert spre_rewards(search.tree, alpha=0.9) == pytest.approx([0.729, 0.729])


def test_a_finished_search_stays_finished() -> None:
    """After the end, asking gives nothing and telling again changes nothing."""
    search: Search[str] = Search(config("paper", siblings=1, simulations=1))
    play(search, [[(Expand(0, node_id=0, count=1, sample=0), expanded(answer(1.0)))]])
    search.tell(0, expanded(answer(0.0)))
    assert search.ask() == []
    assert (search.simulations, search.calls) == (1, 1)
    assert values(search) == pytest.approx([0.9, 0.9])


# -- configurations -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"siblings": 0},
        {"siblings_at_once": 0},
        {"continuations": 0},
        {"simulations": 0},
        {"max_calls": 0},
        {"wave": 0},
        {"exploration": -0.1},
        {"alpha": 0.0},
        {"alpha": 1.1},
        {"selection": "best"},
        {"valuation": "guess"},
        {"max_cals": 5},
    ],
    ids=str,
)
def test_a_configuration_out_of_range_is_refused_by_name(change: dict[str, object]) -> None:
    """Nonsense and misspelt keys are errors that name the key, never silently another search."""
    (key,) = change
    with pytest.raises(ValidationError, match=key):
        SearchConfig.model_validate(RECIPES["paper"].search.model_dump() | change)


def test_recipes_are_called_by_their_names() -> None:
    """Each recipe is filed under the name it writes into outputs."""
    assert {name: recipe.name for name, recipe in RECIPES.items()} == {
        "paper": "paper",
        "economy": "economy",
        "released": "released",
    }


def test_the_released_recipe_is_what_the_published_code_passes() -> None:
    """Two children one at a time, 64 simulations, c 1.414, a judge's score, labels weighted by visits at .9."""
    recipe = RECIPES["released"]
    search = recipe.search
    assert (search.siblings, search.siblings_at_once, search.simulations, search.wave) == (2, 1, 64, 1)
    assert (search.selection, search.exploration, search.valuation, search.alpha) == ("uct", 1.414, "score", 0.9)
    assert (recipe.reward, recipe.margin_by_layer) == ("visit_weighted", False)


@pytest.mark.parametrize("name", ["paper", "economy"])
def test_the_other_recipes_estimate_the_shortest_path_reward(name: str) -> None:
    """Real continuations, alpha .9, margins that do not punish deep pairs."""
    (recipe,) = (each for each in RECIPES.values() if each.name == name)
    assert (recipe.search.valuation, recipe.search.alpha) == ("continuation", 0.9)
    assert (recipe.reward, recipe.margin_by_layer) == ("spre", True)
