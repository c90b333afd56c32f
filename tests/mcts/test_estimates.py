"""What is known about a step from the draws below it, by hand and as laws."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcts import Estimate, Node, Rollout, Step, Tree, estimates, evenly_drawn_rewards, spre_rewards


def same(payload: str, *, plain: bool = True) -> Step[str]:
    return Step(payload, plain=plain, identity=payload)


def answer(outcome: float, *, plain: bool = True) -> Step[str]:
    return Step(f"answer {outcome}", terminal=True, outcome=outcome, plain=plain, identity=f"answer {outcome}")


def outcome(end: Rollout[str]) -> float:
    return end.outcome


def of(tree: Tree[str], *nodes: Node[str]) -> list[tuple[float, int] | None]:
    """Mean and draws of some nodes' estimates."""
    known = [estimates(tree, outcome)[node.id] for node in nodes]
    return [None if each is None else (pytest.approx(each.mean), each.draws) for each in known]


# -- by hand ------------------------------------------------------------------------------------------------------


def test_every_draw_of_a_state_weighs_the_same() -> None:
    """Root: query and guess (0). Below the query one draw led to evidence, from where three answers were right and one
    wrong (.75), another to a wrong answer. Query: (.75 + 0) / 2 = .375; root: (.375 + 0) / 2 = .1875; of two draws
    each. The plain mean over answers would be 3/6."""
    tree: Tree[str] = Tree()
    query = tree.add(tree.root, same("query"))
    guess = tree.add(tree.root, answer(0.0))
    evidence = tree.add(query, same("evidence"))
    for found in (1.0, 1.0, 0.0, 1.0):
        tree.add(evidence, answer(found))
    tree.add(query, answer(0.0))
    assert of(tree, tree.root, query, guess, evidence) == [(0.1875, 2), (0.375, 2), (0.0, 1), (0.75, 4)]


def test_a_step_drawn_twice_weighs_twice() -> None:
    """The same query twice, right; another once, wrong: 2/3 of three draws, though one answer each was looked at."""
    tree: Tree[str] = Tree()
    query, _, other = (tree.add(tree.root, same(each)) for each in ("query", "query", "other"))
    tree.add_continuation(query, [answer(1.0)])
    tree.add_continuation(other, [answer(0.0)])
    assert of(tree, tree.root, query, other) == [(2 / 3, 3), (1.0, 1), (0.0, 1)]


def test_an_answer_is_known_exactly_and_counts_its_draws() -> None:
    """Its mean is its worth; its draws are the plain ones, or one if it was only ever repaired."""
    tree: Tree[str] = Tree()
    twice, _ = (tree.add(tree.root, answer(0.5)) for _ in range(2))
    repaired = tree.add(tree.root, answer(1.0, plain=False))
    assert of(tree, tree.root, twice, repaired) == [(0.5, 2), (0.5, 2), (1.0, 1)]


def test_continuations_without_nodes_are_draws_like_children() -> None:
    """Two continuations of a query (1 and 0) and two drawn answers (both 0): 1/4 of four draws."""
    tree: Tree[str] = Tree()
    query = tree.add(tree.root, same("query"))
    tree.add_continuation(query, [same("evidence"), answer(1.0)])
    tree.add_continuation(query, [answer(0.0)])
    for _ in range(2):
        tree.add(query, answer(0.0))
    assert of(tree, query, tree.root) == [(0.25, 4), (0.25, 1)]


def test_a_step_of_which_nothing_is_known_does_not_count() -> None:
    """None is said, not 0; the state's mean is that of the draws that came to an answer."""
    tree: Tree[str] = Tree()
    stuck = tree.add(tree.root, same("stuck"))
    known = tree.add(tree.root, same("known"))
    tree.add_continuation(known, [answer(1.0)])
    assert of(tree, stuck, known, tree.root) == [None, (1.0, 1), (1.0, 1)]


def test_draws_that_were_not_plain_weigh_nothing_above_and_are_known_themselves() -> None:
    """The state's plain draws are all wrong; the one that was drawn otherwise is right."""
    tree: Tree[str] = Tree()
    query = tree.add(tree.root, same("query"))
    hotter = tree.add(tree.root, same("hotter", plain=False))
    tree.add_continuation(query, [answer(0.0)])
    tree.add_continuation(hotter, [answer(1.0)])
    assert of(tree, tree.root, query, hotter) == [(0.0, 1), (0.0, 1), (1.0, 1)]


def test_siblings_that_say_the_same_share_one_estimate() -> None:
    """`who` (drawn twice; 1, 1, 0 below it) and `Who` (drawn once; 0 below it) are one: (1 + 1 + 0 + 0) / 4 of four
    draws. The third sibling is wrong. Root: (3 * .5 + 0) / 4 = .375."""
    tree: Tree[str] = Tree()
    who, _, twin, other = (tree.add(tree.root, same(each)) for each in ("who", "who", "Who", "other"))
    twin.same_as = who.id
    for found in (1.0, 1.0, 0.0):
        tree.add_continuation(who, [answer(found)])
    tree.add_continuation(twin, [answer(0.0)])
    tree.add_continuation(other, [answer(0.0)])
    assert of(tree, who, twin, other, tree.root) == [(0.5, 4), (0.5, 4), (0.0, 1), (0.375, 4)]


def test_a_twin_without_answers_of_its_own_knows_what_the_first_knows() -> None:
    """That is what it saves: nobody continued from it."""
    tree: Tree[str] = Tree()
    who, twin = (tree.add(tree.root, same(each)) for each in ("who", "Who"))
    twin.same_as = who.id
    tree.add_continuation(who, [answer(1.0)])
    assert of(tree, who, twin, tree.root) == [(1.0, 1), (1.0, 1), (1.0, 2)]


def test_worth_is_what_the_caller_says() -> None:
    """Of the same ends another worth makes another mean: here the number of steps, as a share of ten."""
    tree: Tree[str] = Tree()
    query = tree.add(tree.root, same("query"))
    tree.add_continuation(query, [same("evidence"), answer(1.0)])
    tree.add(tree.root, answer(1.0))
    assert estimates(tree, lambda end: end.steps / 10)[0] == Estimate(mean=pytest.approx(0.2), draws=2)


# -- laws ---------------------------------------------------------------------------------------------------------

words = st.sampled_from(["a", "b", "c"])
paths = st.lists(
    st.builds(
        lambda said, found: [*map(same, said), answer(found)],
        st.lists(words, max_size=4),
        st.sampled_from([0.0, 0.5, 1.0]),
    ),
    min_size=1,
    max_size=12,
)


def grown(drawn: Sequence[Sequence[Step[str]]]) -> Tree[str]:
    """A tree of nothing but whole paths drawn from the root."""
    tree: Tree[str] = Tree()
    for path in drawn:
        tree.follow(tree.root, path)
    return tree


@given(drawn=paths, alpha=st.sampled_from([0.5, 0.9, 1.0]))
def test_without_sampling_below_a_continuation_it_is_the_mean_over_answers(
    drawn: list[list[Step[str]]], alpha: float
) -> None:
    """Where every draw was followed to one answer, weighing draws and weighing answers is the same: SPRE."""
    tree = grown(drawn)
    assert evenly_drawn_rewards(tree, alpha=alpha) == pytest.approx(spre_rewards(tree, alpha=alpha))
    for node, known in zip(tree.nodes, estimates(tree, outcome), strict=True):
        assert known is not None
        assert known.draws == len(node.rollouts)


@given(drawn=paths, more=st.lists(paths, max_size=3), data=st.data())
def test_exploring_below_a_draw_does_not_change_its_weight(
    drawn: list[list[Step[str]]], more: list[list[list[Step[str]]]], data: st.DataObject
) -> None:
    """However much is sampled below one step, its siblings' estimates stay, and the state's moves by the change of the
    step's times its share of the draws."""
    tree = grown(drawn)
    open_steps = [node for node in tree.nodes[1:] if not node.terminal]
    if not open_steps:
        return
    explored = data.draw(st.sampled_from(open_steps))
    state = tree[explored.parent_id or 0]
    share = explored.draws / tree.drawn(state)
    before = estimates(tree, outcome)
    for path in (path for each in more for path in each):
        tree.follow(explored, path)
    after = estimates(tree, outcome)
    for sibling in tree.children(state):
        assert sibling is explored or after[sibling.id] == before[sibling.id]
    change = mean_of(after[explored.id]) - mean_of(before[explored.id])
    assert mean_of(after[state.id]) - mean_of(before[state.id]) == pytest.approx(share * change, abs=1e-9)


def mean_of(known: Estimate | None) -> float:
    assert known is not None
    return known.mean


@given(drawn=paths)
def test_the_order_of_draws_does_not_matter(drawn: list[list[Step[str]]]) -> None:
    """Each step, known by the words that lead to it, has the same estimate in whatever order its state was drawn."""

    def by_words(tree: Tree[str]) -> dict[tuple[str, ...], float]:
        known = estimates(tree, outcome)
        return {
            tuple(above.payload for above in tree.path_up(node) if above.step): mean_of(known[node.id])
            for node in tree.nodes
        }

    assert by_words(grown(drawn[::-1])) == pytest.approx(by_words(grown(drawn)))
