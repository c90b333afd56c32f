"""What is known about a step from the draws below it, by hand and as laws."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcts import Estimate, Node, Rollout, Step, Tree, estimates, evenly_drawn_rewards, spre_rewards
from mcts.expected_outcomes import Estimates
from tests.mcts.test_tree import same


def answer(outcome: float, *, plain: bool = True) -> Step[str]:
    return Step(f"answer {outcome}", terminal=True, outcome=outcome, plain=plain, identity=f"answer {outcome}")


def outcome(end: Rollout[str]) -> float:
    return end.outcome


def of(tree: Tree[str], *nodes: Node[str], plain_only: bool = True) -> list[tuple[float, float] | None]:
    """Mean and observations of some nodes' estimates."""
    known = estimates(tree, outcome, plain_only=plain_only)
    return [
        None if each is None else (pytest.approx(each.mean), pytest.approx(each.observations))
        for each in (known[node.id] for node in nodes)
    ]


def answers(tree: Tree[str], *nodes: Node[str], plain_only: bool = True) -> list[float]:
    known = estimates(tree, outcome, plain_only=plain_only)
    return [each.answers for each in (known[node.id] for node in nodes) if each]


# -- by hand ------------------------------------------------------------------------------------------------------


def test_copies_of_a_step_explored_more_often_are_worth_what_was_explored() -> None:
    """The same query thrice, with one right and one wrong answer below it; another once, wrong. Query: .5 of two
    observations; root: (3 * .5 + 0) / 4 = .375, worth 4**2 / (3**2 / 2 + 1**2) = 32 / 11. Had eight answers been seen
    below the query, it would be 16 / (9 / 8 + 1) = 7.5, and is the four draws there were."""
    tree: Tree[str] = Tree()
    query, _, _, other = (tree.add(tree.root, same(each)) for each in ("query", "query", "query", "other"))
    tree.add_continuation(other, [answer(0.0)])
    for found in (1.0, 0.0):
        tree.add_continuation(query, [answer(found)])
    assert of(tree, tree.root, query) == [(0.375, 32 / 11), (0.5, 2)]
    for found in (1.0, 0.0) * 3:
        tree.add_continuation(query, [answer(found)])
    assert of(tree, tree.root, query) == [(0.375, 4), (0.5, 8)]


def test_an_answer_is_known_exactly_and_counts_its_plain_draws() -> None:
    tree: Tree[str] = Tree()
    one, *_ = (tree.add(tree.root, answer(0.5, plain=plain)) for plain in (True, True, False))
    assert of(tree, one) == [(0.5, 2)]


def test_draws_that_were_not_plain_weigh_nothing_above_and_are_known_themselves() -> None:
    """The state's plain draws are all wrong; the one that was drawn otherwise is right. Where every draw counts, the
    state is worth the mean of both."""
    tree: Tree[str] = Tree()
    query = tree.add(tree.root, same("query"))
    hotter = tree.add(tree.root, same("hotter", plain=False))
    tree.add_continuation(query, [answer(0.0)])
    tree.add_continuation(hotter, [answer(1.0)])
    assert of(tree, tree.root, query, hotter) == [(0.0, 1), (0.0, 1), (1.0, 1)]
    assert of(tree, tree.root, query, hotter, plain_only=False) == [(0.5, 2), (0.0, 1), (1.0, 1)]


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
        assert known.observations == pytest.approx(len(node.rollouts))
        assert known.answers == len(node.rollouts)


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


@st.composite
def trees(draw: st.DrawFn) -> Tree[str]:
    """Paths drawn from anywhere, kept or not, plain or not; steps drawn again and not followed; twins."""
    tree: Tree[str] = Tree()
    for _ in range(draw(st.integers(1, 12))):
        open_nodes = [node for node in tree.nodes if not node.terminal]
        start = draw(st.sampled_from(open_nodes))
        said = [same(word, plain=draw(st.booleans())) for word in draw(st.lists(words, max_size=3))]
        path = [*said, answer(draw(st.sampled_from([0.0, 1.0])), plain=draw(st.booleans()))]
        how = draw(st.sampled_from(["kept", "unkept", "not followed"]))
        if how == "kept":
            tree.follow(start, path)
        elif how == "unkept":
            tree.add_continuation(start, path)
        else:
            tree.add(start, path[0])
    for node in tree.nodes:
        twins = [each for each in tree.children(node) if not each.terminal]
        for twin in twins[1:]:
            twin.same_as = twins[0].id if draw(st.booleans()) else None
    return tree


@given(drawn=st.lists(st.tuples(st.integers(0, 9), paths), max_size=6), plain_only=st.booleans())
def test_what_is_kept_up_to_date_is_what_is_made_anew(
    drawn: list[tuple[int, list[list[Step[str]]]]], *, plain_only: bool
) -> None:
    """Wherever the tree grows, if a and b say the same, and c has a half in common with them."""
    tree: Tree[str] = Tree()
    kept = Estimates(tree, outcome, plain_only=plain_only)
    for place, several in drawn:
        changed = set[int]()
        for path in several:
            open_nodes, before = [node for node in tree.nodes if not node.terminal], len(tree)
            start = open_nodes[place % len(open_nodes)]
            changed |= {each.id for each in (start, *tree.follow(start, path))}
            for node in tree.nodes[before:]:
                beside = [each for each in tree.children(tree[node.parent_id or 0]) if each.id < node.id]
                said = {each.payload: each.id for each in beside if each.same_as is None}
                node.same_as = said.get({"a": "b", "b": "a"}.get(node.payload, ""))
                node.in_common = {said[each]: 0.5 for each in "ab" if node.payload == "c" and each in said}
        assert kept.update(changed) == estimates(tree, outcome, plain_only=plain_only)


def things_said(tree: Tree[str], state: Node[str]) -> dict[int, list[Node[str]]]:
    """The steps of a state by the earliest that says the same."""
    said: dict[int, list[Node[str]]] = {}
    for child in tree.children(state):
        said.setdefault(child.id if child.same_as is None else child.same_as, []).append(child)
    return said


@given(tree=trees(), plain_only=st.booleans())
def test_a_state_rests_on_no_more_observations_than_draws_nor_than_its_different_steps(
    tree: Tree[str], *, plain_only: bool
) -> None:
    """At least one, at most as many as were drawn and explored, and at most as many as all different steps have
    together: copies and steps that say the same add none."""
    known = estimates(tree, outcome, plain_only=plain_only)
    for state in tree.nodes:
        estimate = known[state.id]
        if estimate is None or state.same_as is not None or any(each.same_as == state.id for each in tree.nodes):
            continue  # what twins know together: below
        drawn, different = len(state.unkept), float(len(state.unkept))
        for head, steps in things_said(tree, state).items():
            counted = sum(step.plain_draws if plain_only else step.draws for step in steps)
            below = known[head]
            if counted and below:
                drawn, different = drawn + counted, different + below.observations
        if not state.terminal:
            assert 1 - 1e-9 <= estimate.observations <= drawn
            assert estimate.observations <= different + 1e-9


@given(tree=trees(), plain_only=st.booleans())
def test_steps_that_say_the_same_know_what_they_know_together(tree: Tree[str], *, plain_only: bool) -> None:
    """Their observations are added up, and their means by them."""
    apart = Tree[str]()
    apart.nodes = [replace(node, same_as=None) for node in tree.nodes]
    for state in tree.nodes:
        for head, steps in things_said(tree, state).items():
            if len(steps) < 2 or any(below.same_as is not None for step in steps for below in under(tree, step)):
                continue
            alone = [estimates(apart, outcome, plain_only=plain_only)[step.id] for step in steps]
            own = [each for each in alone if each]
            together = estimates(tree, outcome, plain_only=plain_only)[head]
            assert (together is None) == (not own)
            if together:
                weight = sum(each.observations for each in own)
                assert together.observations == pytest.approx(weight)
                assert together.mean == pytest.approx(sum(each.observations * each.mean for each in own) / weight)
                assert together.answers == sum(each.answers for each in own)


@given(tree=trees(), plain_only=st.booleans(), data=st.data())
def test_what_siblings_have_in_common_moves_observations_among_them_alone(
    tree: Tree[str], *, plain_only: bool, data: st.DataObject
) -> None:
    """Where every step has a value of its own: each has its own observations and a share of the others', whichever came
    first; no other step and no state above knows more or less."""
    alone = estimates(tree, outcome, plain_only=plain_only)
    shares: dict[int, dict[int, float]] = {node.id: {node.id: 1.0} for node in tree.nodes}
    for state in tree.nodes:
        steps = [each for each in tree.children(state) if each.same_as is None and not each.terminal and alone[each.id]]
        for place, step in enumerate(steps):
            for earlier in steps[:place]:
                if share := data.draw(st.sampled_from([0.0, 0.5, 1.0])):
                    step.in_common[earlier.id] = shares[step.id][earlier.id] = shares[earlier.id][step.id] = share
    for node, estimate in zip(tree.nodes, estimates(tree, outcome, plain_only=plain_only), strict=True):
        said = node.id if node.same_as is None else node.same_as
        parts = [(each, share) for other, share in shares[said].items() if (each := alone[other])]
        assert (estimate is None) == (not parts)
        if estimate:
            seen = sum(share * each.observations for each, share in parts)
            assert estimate.observations == pytest.approx(seen)
            assert estimate.mean == pytest.approx(
                sum(share * each.observations * each.mean for each, share in parts) / seen
            )
            assert estimate.answers == pytest.approx(sum(share * each.answers for each, share in parts))


def under(tree: Tree[str], node: Node[str]) -> Iterator[Node[str]]:
    for child in tree.children(node):
        yield child
        yield from under(tree, child)
