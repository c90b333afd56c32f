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
    Rank,
    Ranked,
    Result,
    Score,
    Scored,
    Search,
    SearchConfig,
    Step,
    Work,
    evenly_drawn_rewards,
    spre_rewards,
    visit_weighted_rewards,
)
from mcts.rewards import ANSWER_REWARDS, REWARDS, distinct_spre_rewards, search_values
from tests.mcts.test_tree import same

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
    assert not search.ask()


def visits(search: Search[str]) -> list[int]:
    return [node.visits for node in search.tree.nodes]


def values(search: Search[str]) -> list[float]:
    return [node.value for node in search.tree.nodes]


def config(recipe: str = "continuation", **changes: object) -> SearchConfig:
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
    search: Search[str] = Search(config("continuation", siblings=2, continuations=2, simulations=3, wave=1))
    right_in_3 = [step("evidence"), answer(1.0)]
    half_in_5 = [step("evidence"), step("query"), step("evidence"), answer(0.5)]
    right_in_5 = [step("query"), step("evidence"), answer(1.0)]
    play(
        search,
        [
            [(Expand(0, node_id=0, count=2, sample=0), expanded(step("query"), answer(0.0)))],
            [(Continue(1, node_id=1, count=2, sample=20_000), continued(right_in_3, half_in_5))],
            [(Expand(2, node_id=1, count=2, sample=0), expanded(step("evidence"), step("evidence")))],
            [
                (Continue(3, node_id=3, count=2, sample=30_000), continued([answer(1.0)], [answer(1.0)])),
                (Continue(4, node_id=4, count=2, sample=30_000), continued([answer(0.0)], right_in_5)),
            ],
        ],
    )
    assert [node.parent_id for node in search.tree.nodes] == [None, 0, 0, 1, 1]
    assert visits(search) == [8, 6, 2, 2, 2]
    assert values(search) == pytest.approx([0.384091875, 0.5121225, 0.0, 0.729, 0.295245])
    assert spre_rewards(search.tree, alpha=0.9) == pytest.approx([0.438962142857, 0.5121225, 0.0, 0.729, 0.295245])
    assert (search.simulations, search.calls) == (3, 2 + 6 + 2 + 2 + 4)


def test_economy_by_hand() -> None:
    """Two draws a state, one continuation each and kept as nodes, one state after another; alpha .9.

    What is expected of an answer below a state, p, is the mean m of what was drawn in it, pulled towards the parent's p
    (weight 8; at the root towards one half, weight one half); n answers were seen. Its disagreement is 2 p (1 - p).

    1. Root: 1 (query) and 2 (wrong answer). The continuation of 1 becomes 3 - 4, right in 3 steps: .729.
    2. The root has its two draws. 1 and 3 have one each, that of the continuation.
       root: m .5, n 2: p .5.   1: m 1, n 1: p (8 * .5 + 1) / 9 = 5/9, disagreement .494.
       3: m 1, n 1: p (8 * 5/9 + 1) / 9 = 49/81, disagreement .478. So 1 gets the draw it lacks: 5, whose continuation
       becomes 6, wrong.
    3. root: m (.5 + 0) / 2 = .25, n 3: p (.25 + 3 * .25) / 3.5 = 2/7.   1: m .5, n 2: p (16/7 + 1) / 10 = .3286.
       3: (8 * .3286 + 1) / 9 = .4032, disagreement .481.   5: 8 * .3286 / 9 = .2921, disagreement .414.
       So 3 gets 7, a half right answer in 3 steps, which owes no value: .5 * .729 = .3645.
    4. Only 5 lacks a draw. 1: m .375, n 3; root: m .1875, n 4: p 2/9; 1: p .2639; 5: p .2346, disagreement .359, not
       settled. It gets 8, wrong.
    5. Every state has its draws: over, with 4 of 64 simulations.

    Rewards, every draw of a state weighing the same: 3: (.729 + .3645) / 2 = .54675; 5: 0; 1: .54675 / 2 = .273375;
    root: .273375 / 2 = .1366875. The root's value, a mean over answers, is (.729 + .3645) / 5 = .2187.
    """
    search: Search[str] = Search(config("economy", siblings=2, root_siblings=None, resamples=0, wave=1))
    play(
        search,
        [
            [(Expand(0, node_id=0, count=2, sample=0), expanded(step("query"), answer(0.0)))],
            [(Continue(1, node_id=1, count=1, sample=20_000), continued([step("evidence"), answer(1.0)]))],
            [(Expand(2, node_id=1, count=1, sample=0), expanded(step("other evidence")))],
            [(Continue(3, node_id=5, count=1, sample=30_000), continued([answer(0.0)]))],
            [(Expand(4, node_id=3, count=1, sample=0), expanded(answer(0.5)))],
            [(Expand(5, node_id=5, count=1, sample=0), expanded(answer(0.0)))],
        ],
    )
    assert [node.parent_id for node in search.tree.nodes] == [None, 0, 0, 1, 3, 1, 5, 3, 5]
    assert visits(search) == [5, 4, 1, 2, 1, 2, 1, 1, 1]
    assert values(search) == pytest.approx([0.2187, 0.273375, 0.0, 0.54675, 0.729, 0.0, 0.0, 0.3645, 0.0])
    rewards = evenly_drawn_rewards(search.tree, alpha=0.9)
    assert rewards == pytest.approx([0.1366875, 0.273375, 0.0, 0.54675, 0.729, 0.0, 0.0, 0.3645, 0.0])
    assert (search.simulations, search.calls) == (4, 2 + 2 + 1 + 1 + 1 + 1)


def test_released_by_hand() -> None:
    """One child per simulation until a state has two, each judged once; answers are judged anew at every visit. The
    judgements are numbered through.

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
            [(Score(1, node_id=1, sample=0), Scored(0.8, calls=1))],
            [(Expand(2, node_id=0, count=1, sample=1), expanded(answer(0.5)))],
            [(Score(3, node_id=2, sample=1), Scored(0.2, calls=1))],
            [(Expand(4, node_id=1, count=1, sample=0), expanded(answer(1.0)))],
            [(Score(5, node_id=3, sample=2), Scored(0.9, calls=1))],
            [(Expand(6, node_id=1, count=1, sample=1), expanded(answer(0.0)))],
            [(Score(7, node_id=4, sample=3), Scored(0.4, calls=1))],
            [(Score(8, node_id=2, sample=4), Scored(0.6, calls=1))],
        ],
    )
    assert [node.parent_id for node in search.tree.nodes] == [None, 0, 0, 1, 1]
    assert visits(search) == [5, 3, 2, 1, 1]
    assert values(search) == pytest.approx([0.58, 0.7, 0.4, 0.9, 0.4])
    assert visit_weighted_rewards(search.tree, alpha=0.9) == pytest.approx([0.423, 0.405, 0.45, 0.81, 0.0])
    assert (search.simulations, search.calls) == (5, 9)


def test_reasonrag_by_hand() -> None:
    """A judge's scores are discounted by the depth of the judged step and backed up; Eq. 5 selects.

    Scores .8, .6 and .5 at depths 1, 1 and 2: .72, .54 and .405. With two visits below the root 1 has .72 + 1.414, and
    2 has .54 + 1.414 sqrt(2) / 2 alike, so 1 is expanded: (.72 + .405) / 2 = .5625. With three, 1 has .5625 + 1.414
    sqrt(3) / 3 = 1.379 and 2 has .54 + 1.414 sqrt(3) / 2 = 1.765: now 2, whose step cannot be judged.
    """
    search: Search[str] = Search(config("reasonrag", simulations=4))
    play(
        search,
        [
            [(Expand(0, node_id=0, count=1, sample=0), expanded(step("first")))],
            [(Score(1, node_id=1, sample=0), Scored(0.8, calls=1))],
            [(Expand(2, node_id=0, count=1, sample=1), expanded(step("second")))],
            [(Score(3, node_id=2, sample=1), Scored(0.6, calls=1))],
            [(Expand(4, node_id=1, count=1, sample=0), expanded(answer(1.0)))],
            [(Score(5, node_id=3, sample=2), Scored(0.5, calls=1))],
            [(Expand(6, node_id=2, count=1, sample=0), expanded(step("no answer below")))],
            [(Score(7, node_id=4, sample=3), Scored(None, calls=2))],
        ],
    )
    assert visits(search) == [4, 2, 2, 1, 1]
    assert values(search) == pytest.approx([0.555, 0.5625, 0.54, 0.405, 0.0])
    pruned = distinct_spre_rewards(search.tree, alpha=0.9)
    assert pruned == pytest.approx([0.81, 0.81, None, 0.81, None])


def test_prorag_by_hand() -> None:
    """Of the new steps of a state one is simulated, drawn by the seed; its reward loses gamma for every level above.

    The steps of the root are equal but one: two children, prior 1/2 each. The third simulation meets an answer that
    was drawn: it is worth its outcome, however deep, and needs no work.
    """
    search: Search[str] = Search(config("prorag", siblings=3, simulations=3), seed=7)
    [root] = search.ask()
    assert root == Expand(0, node_id=0, count=3, sample=0)
    search.tell(0, expanded(same("query"), same("query"), same("other")))
    [first] = search.ask()
    assert isinstance(first, Continue)
    assert (first.node_id, first.count, first.sample) == (2, 1, 20_000)
    search.tell(first.id, continued([step("read"), answer(1.0)]))
    assert visits(search) == [1, 0, 1]
    assert values(search) == pytest.approx([0.99, 0.0, 1.0])
    # 2 has 1 + 2.5 / 2 / 2 = 1.625, the one that was not simulated 2.5 / 2 = 1.25
    [second] = search.ask()
    assert second == Expand(2, node_id=2, count=3, sample=0)
    search.tell(second.id, expanded(answer(0.5), answer(0.5), answer(0.5)))
    [third] = search.ask()  # an answer was drawn: (1 + .5 * .99) / 2 = .7475, + 2.5 / 2 * sqrt(2) / 3 = 1.337
    assert (third.node_id, search.simulations) == (1, 3)  # against 2.5 / 2 * sqrt(2) = 1.768
    assert values(search)[:3] == pytest.approx([(0.99 + 0.5 * 0.99**2) / 2, 0.0, (1 + 0.5 * 0.99) / 2])
    assert sorted(visits(search)[3:]) == [0, 0, 1]
    known = [None if each is None else round(each, 4) for each in search_values(search.tree, alpha=0.99)]
    assert known[:3] == [0.74, None, 0.7475]


def test_ragym_by_hand() -> None:
    """A chain: all steps of a state are ranked, the best one is gone on with, the first of equals; an answer ends it.

    A step has its own value only; being ranked is one visit, and being gone on with another.
    """
    search: Search[str] = Search(config("ragym", siblings=3))
    ranks = [0.5, 1.0, 1 / 3]
    play(
        search,
        [
            [(Expand(0, node_id=0, count=3, sample=0), expanded(same("a"), same("b"), same("b")))],
            [(Rank(1, node_id=0, count=3, sample=0), Ranked(ranks, calls=1))],
            [(Expand(2, node_id=2, count=3, sample=0), expanded(step("c"), answer(1.0), step("d")))],
            [(Rank(3, node_id=2, count=3, sample=1), Ranked([0.0, 0.0, 0.0], calls=2))],
            [(Expand(4, node_id=4, count=3, sample=0), expanded(step("e"), answer(0.5), step("f")))],
            [(Rank(5, node_id=4, count=3, sample=2), Ranked([None, 1.0, 0.5], calls=1))],
        ],
    )
    assert values(search) == pytest.approx([0.0, *ranks, 0.0, 0.0, 0.0, 0.0, 1.0, 0.5])
    assert visits(search) == [12, 1, 10, 1, 6, 1, 1, 1, 2, 1]
    assert search_values(search.tree, alpha=1.0) == [None, *ranks, 0.0, 0.0, 0.0, None, 1.0, 0.5]
    assert (search.simulations, search.calls) == (3, 13)


def test_the_budget_has_room_for_an_attempt_that_draws_one_step() -> None:
    """Of five replies three are spent: one is left to draw another step, and one to continue it."""
    search: Search[str] = Search(config("economy", siblings=2, root_siblings=2, max_calls=5))
    search.tell(0, Expanded([same("a"), same("a")], calls=2)) if search.ask() else None
    search.tell(search.ask()[0].id, continued([answer(0.0)]))
    [again] = search.ask()
    assert isinstance(again, Expand)
    assert (again.count, again.attempt) == (1, 1)


# -- selection ----------------------------------------------------------------------------------------------------


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
    assert search.ask() == [Expand(4, node_id=1, count=3, sample=0), Expand(5, node_id=2, count=3, sample=0)]


def test_economy_goes_to_the_state_whose_answers_are_expected_to_disagree_most() -> None:
    """Queries 1, 2 and 3 with one continuation each: 1 - 4 - 5 right, 2 - 6 - 7 right, 3 - 8 - 9 wrong.

    root: m 2/3, n 3: p (.25 + 2) / 3.5 = .6429.
    1 and 2: (8 * .6429 + 1) / 9 = .6825, disagreement .433.   3: 8 * .6429 / 9 = .5714, disagreement .490.
    4 and 6: (8 * .6825 + 1) / 9 = .7178, disagreement .405.   8: 8 * .5714 / 9 = .5079, disagreement .49987.
    A wave of three takes 8, which is the deepest and the latest, then 3, then 1, which is before its equal 2. Each has
    had one of its three draws, by the continuation.
    """
    search: Search[str] = Search(config("economy", siblings=3, root_siblings=None, resamples=0, wave=3))
    search.tell(search.ask()[0].id, expanded(step("first"), step("second"), step("third")))
    for work, outcome in zip(search.ask(), (1.0, 1.0, 0.0), strict=True):
        search.tell(work.id, continued([step("evidence"), answer(outcome)]))
    assert search.ask() == [
        Expand(4, node_id=8, count=2, sample=0),
        Expand(5, node_id=3, count=2, sample=0),
        Expand(6, node_id=1, count=2, sample=0),
    ]


def test_every_draw_of_an_answer_tells_which_outcome_is_usual() -> None:
    """A right answer thrice, below two queries a wrong and a half right one. What is usual is right, so both queries
    (m 0: 8 * .591 / 9 = .525) are equal and the first has the widest disagreement, .4987. Were the answer one, wrong
    would be as usual, and the evidence below the first query (.389) would disagree most."""
    search: Search[str] = Search(config("economy", siblings=5, root_siblings=None, resamples=0, wave=1))
    right = Step("right", terminal=True, outcome=1.0, identity="right")
    search.tell(search.ask()[0].id, expanded(step("first"), step("second"), right, right, right))
    for work, outcome in zip(search.ask(), (0.0, 0.5), strict=True):
        search.tell(work.id, continued([step("evidence"), answer(outcome)]))
    assert [work.node_id for work in search.ask()] == [1]


def test_every_draw_of_an_answer_tells_how_long_a_path_is() -> None:
    """Nine times one wrong answer in one step, and one in nine: 1.8 steps in the mean, so that another draw at the root
    (p .976, disagreement .0465) is worth its two replies. In the mean of both answers, 5, it would not be."""
    search: Search[str] = Search(
        config("economy", siblings=12, siblings_at_once=10, root_siblings=None, resamples=0, wave=1, max_calls=128)
    )
    wrong = Step("wrong", terminal=True, outcome=0.0, identity="wrong")
    search.tell(search.ask()[0].id, expanded(*[wrong] * 9, step("query")))
    search.tell(search.ask()[0].id, continued([*[step("evidence")] * 7, answer(0.0)]))
    assert [(work.node_id, work.count) for work in search.ask() if isinstance(work, Expand)] == [(0, 2)]


@pytest.mark.parametrize(
    ("outcome", "progress", "budget", "calls", "of_the_root"),
    [
        (0.0, None, 128, 86, 8),  # nothing is known of the steps: eight first steps, and some branches below them
        (0.0, 0.0, 128, 56, 8),  # nothing was found: little hope
        (0.0, 0.25, 128, 125, 4),  # all steps find something: where they did, one more reply may still be the right one
        (1.0, None, 128, 86, 8),
        (0.0, None, 1024, 507, 24),  # a larger budget buys more patience
        (1.0, 0.25, 128, 74, 8),  # right answers that rest on something will stay right
    ],
)
def test_how_long_a_question_is_gone_on_with_whose_answers_are_all_equal(
    *, outcome: float, progress: float | None, budget: int, calls: int, of_the_root: int
) -> None:
    """Paths have seven steps. It is left when no reply is worth its price, not when the budget is spent."""
    search: Search[str] = Search(config("economy", max_calls=budget))
    while work := search.ask():
        for each in work:
            left = 7 - search.tree[each.node_id].depth
            if isinstance(each, Expand):
                drawn = [f"{each.node_id} {each.sample + number}" for number in range(each.count)]
                steps = [Step(said, terminal=left == 1, outcome=outcome, progress=progress) for said in drawn]
                search.tell(each.id, expanded(*steps))
            else:
                path = [Step(f"{each.id} {at}", progress=progress) for at in range(left - 1)]
                search.tell(each.id, continued([*path, answer(outcome)]))
    assert (search.calls, search.tree.drawn(search.tree.root)) == (calls, of_the_root)


def test_an_answer_unlike_all_before_values_no_step_on_its_path() -> None:
    """Two first queries are wrong, so the search draws two more: 5, wrong, and 6, which goes by 8 to a right one (9).
    That it was found by going on until something differs says little of 6. The state of 8 is explored first, to a wrong
    answer (10), which is what 8 is worth. 6 has no value of it: 8 came there because 9 was right; nor has
    8 a value of 9, so it is continued anew. The root is worth 0, and the answer itself is exact: 1."""
    search: Search[str] = Search(config("economy", siblings=2, root_siblings=4, resamples=0, simulations=3, wave=1))
    found = {5: continued([answer(0.0)]), 6: continued([step("evidence"), answer(1.0)])}
    for wanted in (2, 4):
        search.tell(search.ask()[0].id, expanded(step("query"), step("query")))
        for work in search.ask():
            search.tell(work.id, found.get(work.node_id, continued([answer(0.0)])))
        assert len(search.tree.root.children_ids) == wanted
    search.tree.follow(search.tree[8], [answer(0.0)])
    rewards = evenly_drawn_rewards(search.tree, alpha=1)
    assert [search.tree[each].terminal for each in (8, 9, 10)] == [False, True, True]
    assert (rewards[0], rewards[8], rewards[9]) == (0.0, 0.0, 1.0)
    assert (rewards[6], spre_rewards(search.tree, alpha=1)[6]) == (None, None)
    [drawn] = search.ask()
    search.tell(drawn.id, expanded(answer(0.0)))
    [anew] = search.ask()
    assert (type(anew), anew.node_id) == (Continue, 8)


def test_wrong_answers_that_share_some_words_end_no_search_for_a_right_one() -> None:
    """Outcomes 0 and .2: the root goes on being widened, and the first right answer is the one that was sought."""
    search: Search[str] = Search(config("economy", siblings=2, root_siblings=6, resamples=0, wave=1))
    for outcomes in ((0.0, 0.2), (0.2, 0.0), (0.0, 1.0)):
        search.tell(search.ask()[0].id, expanded(*map(answer, outcomes)))
    assert [node.decisive_draws for node in search.tree.nodes] == [0, 0, 0, 0, 0, 0, 1]


def test_the_root_s_further_draws_are_plain_and_come_before_any_other_try() -> None:
    """Two draws a state, four in the root's, one further try. All draws are the same query with a wrong answer: the
    root first gets the plain draws it may have, and only then one that is to be something else."""
    search: Search[str] = Search(config("economy", siblings=2, root_siblings=4, resamples=1, simulations=4, wave=1))
    tried = []
    while work := search.ask():
        for each in work:
            if isinstance(each, Expand):
                if each.node_id == 0:
                    tried.append((each.sample, each.count, each.attempt))
                steps = [same("query" if each.node_id == 0 else "evidence", plain=each.attempt == 0)] * each.count
                search.tell(each.id, expanded(*steps))
            else:
                search.tell(each.id, continued([answer(0.0)]))
    assert tried == [(0, 2, 0), (2, 2, 0), (4, 1, 1)]


def test_a_state_whose_draws_are_all_the_same_is_asked_for_something_else() -> None:
    """Two draws a state, two further tries. Both draws are the same query; the first further one (attempt 1) is so
    again, the second (attempt 2) is not, and is valued. Numbers go on counting. As the new step is no plain sample, the
    state is worth what the query is: .81.

    root: n 1, m 1: p (.25 + 1) / 1.5 = .833, disagreement .278; 1: p (8 * .833 + 1) / 9 = .852, disagreement .252.
    """
    search: Search[str] = Search(config("economy", siblings=2, root_siblings=None, resamples=2, simulations=3, wave=1))
    play(
        search,
        [
            [(Expand(0, node_id=0, count=2, sample=0), expanded(same("query"), same("query")))],
            [(Continue(1, node_id=1, count=1, sample=20_000), continued([answer(1.0)]))],
            [(Expand(2, node_id=0, count=1, sample=2, attempt=1), expanded(same("query", plain=False)))],
            [(Expand(3, node_id=0, count=1, sample=3, attempt=2), expanded(same("other", plain=False)))],
            [(Continue(4, node_id=3, count=1, sample=20_000), continued([answer(0.0)]))],
        ],
    )
    assert [(node.draws, node.plain_draws) for node in search.tree.nodes] == [(0, 0), (3, 2), (1, 1), (1, 0), (1, 1)]
    assert evenly_drawn_rewards(search.tree, alpha=0.9)[:2] == pytest.approx([0.81, 0.81])


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
        config("continuation", siblings=1, continuations=2, simulations=1, wave=1, keep_continuations=keep)
    )
    repaired = [step("evidence", plain=False), answer(1.0)]
    play(
        search,
        [
            [(Expand(0, node_id=0, count=1, sample=0), expanded(step("query")))],
            [(Continue(1, node_id=1, count=2, sample=20_000), continued(repaired, [answer(0.0)]))],
        ],
    )
    assert spre_rewards(search.tree, alpha=0.9) == pytest.approx(expected)


# -- budgets ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("max_calls", "siblings"), [(1, 0), (2, 1), (3, 1), (4, 2), (5, 2), (6, 3), (100, 3)])
def test_siblings_are_sampled_only_if_they_can_be_valued_too(max_calls: int, siblings: int) -> None:
    """A new sibling takes two of the replies that are left: its own and one for its value."""
    search: Search[str] = Search(config("continuation", siblings=3, continuations=1, max_calls=max_calls))
    assert sum(work.count for work in search.ask() if isinstance(work, Expand)) == siblings


# -- asking and telling -------------------------------------------------------------------------------------------


NEW_STEPS = ("continuation",)
TWO_CONTINUATIONS = "continuation", "first", "second"
A_JUDGEMENT = "released", "query"


def waiting_search(recipe: str, *steps: str) -> Search[str]:
    """It waits for what is asked of these steps of the root's state or, where there are none, for such steps."""
    search: Search[str] = Search(config(recipe, siblings=2, continuations=1, wave=1))
    if steps:
        search.tell(search.ask()[0].id, expanded(*map(step, steps)))
    search.ask()
    return search


@pytest.mark.parametrize(
    ("waiting", "result", "complaint"),
    [
        (NEW_STEPS, Scored(0.5, calls=1), "a Scored does not answer it"),
        (NEW_STEPS, expanded(step("one")), "wants 2 results, got 1"),
        (NEW_STEPS, expanded(step("one"), answer(1.5)), "1.5 is not in"),
        (NEW_STEPS, Expanded([step("one"), step("two")], calls=-1), "calls must not be negative, got -1"),
        (TWO_CONTINUATIONS, continued(), "wants 1 results, got 0"),
        (TWO_CONTINUATIONS, continued([step("query")]), "must end in its only terminal step"),
        (TWO_CONTINUATIONS, continued([step("query"), answer(2.0)]), "2.0 is not in"),
        (A_JUDGEMENT, expanded(answer(1.0)), "an? Expanded does not answer it"),
        (A_JUDGEMENT, Scored(float("nan"), calls=1), "nan is not in"),
    ],
)
def test_work_refuses_what_does_not_fit(waiting: Sequence[str], result: Result[str], complaint: str) -> None:
    """The message names the work and its node; the search is as before."""
    search = waiting_search(*waiting)
    work, *_ = asked = search.ask()
    before = len(search.tree), visits(search), search.calls
    where = rf"work {work.id} \({type(work).__name__} at node {work.node_id}\)"
    with pytest.raises(ValueError, match=rf"{where}: .*{complaint}"):
        search.tell(work.id, result)
    assert (len(search.tree), visits(search), search.calls) == before
    assert search.ask() == asked


@pytest.mark.parametrize("work_id", [-1, 1, 99])
def test_work_that_was_never_asked_for_is_refused(work_id: int) -> None:
    """Only ids that `ask` gave out can be told; the message names the id."""
    search: Search[str] = Search(config())
    asked = search.ask()
    with pytest.raises(ValueError, match=f"work {work_id} was never asked for"):
        search.tell(work_id, expanded(step("one")))
    assert search.ask() == asked


# -- configurations -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"siblings": 0},
        {"selection": "best"},
        {"max_cals": 5},
        {"selection": "chain"},
        {"selection": "group"},
        {"group": 8},
        {"expand": 2},
        {"group": 8, "selection": "group", "keep_continuations": True},
        {"value_one": True, "share_estimates": True},
        {"value_one": True, "valuation": "score"},
    ],
    ids=str,
)
def test_a_configuration_out_of_range_is_refused_by_name(change: dict[str, object]) -> None:
    """Nonsense and misspelt keys are errors that name the key, never silently another search."""
    key, *_ = change
    with pytest.raises(ValidationError, match=key):
        SearchConfig.model_validate(RECIPES["continuation"].search.model_dump() | change)


def test_recipes_and_rules_are_called_by_their_names() -> None:
    """Each recipe is filed under the name it writes into outputs, which is that of its file; the rule of its labels,
    which is written into every record beside the reward, is one of `REWARDS`."""
    assert [*RECIPES] == ["chains", "continuation", "economy", "prorag", "ragym", "reasonrag", "released"]
    assert [recipe.name for recipe in RECIPES.values()] == [*RECIPES]
    assert {recipe.reward for recipe in RECIPES.values()} == set(REWARDS)
    assert set(ANSWER_REWARDS) < set(REWARDS)
