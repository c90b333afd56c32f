"""Advantages: each formula on one tree worked by hand, and the laws that hold for all of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcts.advantages import ADVANTAGES, EPSILON, Drawn, prorag, z_scores

# four attempts: two say `a` first and part then, two say `b` and go on alike
STEPS = [
    Drawn(1, 0, "root", "a", 2, 0.5),
    Drawn(2, 0, "root", "b", 2, 0.0),
    Drawn(3, 1, "after a", "right", 1, 1.0, 1.0),
    Drawn(4, 1, "after a", "wrong", 1, 0.0, 0.0),
    Drawn(5, 2, "after b", "wrong", 2, 0.0, 0.0),
]
Z = 0.75 / (sqrt(0.1875) + EPSILON)
"""Of the one right attempt of four; each wrong one has a third of it, below."""
STATE = 0.25 / (0.25 + EPSILON)
HALVES = 0.5 / (0.5 + EPSILON)


@pytest.mark.parametrize(
    ("name", "by_hand"),
    [
        ("parent", [0.25, -0.25, 0.5, -0.5, 0.0]),
        ("leave-one-out", [0.5, -0.5, 1.0, -1.0, None]),
        ("sibling", [STATE, -STATE, HALVES, -HALVES, None]),
        ("outcome", [Z / 3, -Z / 3, Z, -Z / 3, -Z / 3]),
        ("tree-grpo", [Z / 3, -Z / 3, Z + HALVES, -Z / 3 - HALVES, -Z / 3]),
    ],
)
def test_the_formulas_give_what_was_worked_by_hand(name: str, by_hand: list[float | None]) -> None:
    assert ADVANTAGES[name](STEPS) == [each if each is None else pytest.approx(each) for each in by_hand]


def test_prorags_process_part_weighs_by_tokens() -> None:
    """Scores 1 and 0 on 30 and 10 tokens: mean .75, deviation sqrt(.1875); the long step is the nearer one."""
    deviation = sqrt(0.1875) + EPSILON
    found = prorag([0.5, -0.5], [1.0, 0.0], [30, 10], beta=0.3)
    assert found == pytest.approx([0.5 + 0.3 * 0.25 / deviation, -0.5 - 0.3 * 0.75 / deviation])


def test_equal_outcomes_have_no_advantage() -> None:
    """Also where a mean of equal numbers is not exactly theirs."""
    assert z_scores([0.1] * 3, [1.0, 3.0, 5.0]) == z_scores([0.4] * 3, [1.0] * 3) == [0.0] * 3


@st.composite
def attempts(draw: st.DrawFn) -> list[list[str]]:
    """Replies of each attempt; the last one's first letter says whether it is right."""
    ends = st.sampled_from(["1 yes", "0 no", "0 none"])
    return draw(st.lists(st.tuples(st.lists(st.sampled_from("ab"), max_size=2), ends), min_size=1, max_size=6).map(
        lambda found: [[*steps, end] for steps, end in found]
    ))  # fmt: skip


@dataclass
class Reply:
    """One node: a reply after others, of an attempt where copies are not merged."""

    id: int
    parent: int
    path: tuple[str, ...]
    ends: list[float]
    """Outcomes of the attempts through it."""


def tree_of(tried: Sequence[Sequence[str]], *, merged: bool) -> list[Drawn]:
    """The steps of attempts; merged: equal ones of a state are one node."""
    nodes = dict[object, Reply]()
    for number, replies in enumerate(tried):
        parent = 0
        for length in range(1, len(replies) + 1):
            path = tuple(replies[:length])
            node = nodes.setdefault((path, 0 if merged else number), Reply(len(nodes) + 1, parent, path, []))
            node.ends.append(float(replies[-1][0]))
            parent = node.id
    found = []
    for each in nodes.values():
        *state, reply = each.path
        value = sum(each.ends) / len(each.ends)
        outcome = value if reply[0] in "01" else None
        found.append(Drawn(each.id, each.parent, tuple(state), reply, len(each.ends), value, outcome))
    return found


@given(attempts())
def test_a_states_advantages_sum_to_nothing_and_so_do_attempts(tried: list[list[str]]) -> None:
    steps = tree_of(tried, merged=True)
    for name in ("parent", "sibling"):
        sums = defaultdict[object, float](float)
        for step, found in zip(steps, ADVANTAGES[name](steps), strict=True):
            sums[step.state] += step.draws * (found or 0.0)
        assert [*sums.values()] == pytest.approx([0.0] * len(sums), abs=1e-6)
    of_attempts = zip(steps, ADVANTAGES["outcome"](steps), strict=True)
    assert sum(step.draws * (found or 0) for step, found in of_attempts if step.outcome is not None) == pytest.approx(0)


@pytest.mark.parametrize("name", ADVANTAGES)
@given(tried=attempts(), data=st.data())
def test_neither_merged_copies_nor_the_order_of_attempts_matter(
    name: str, tried: list[list[str]], data: st.DataObject
) -> None:
    def found(attempts: Sequence[Sequence[str]], *, merged: bool) -> dict[object, float | None]:
        steps = tree_of(attempts, merged=merged)
        values = ADVANTAGES[name](steps)
        return {(each.state, each.reply): value for each, value in zip(steps, values, strict=True)}

    expected = found(tried, merged=True)
    others = found(tried, merged=False), found(data.draw(st.permutations(tried)), merged=True)
    for other in others:
        assert other == {place: None if value is None else pytest.approx(value) for place, value in expected.items()}
