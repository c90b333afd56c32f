"""Help: where it is asked for, that it counts for nothing above it, and that a plain step must come there, too."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from mcts import RECIPES, Continue, Continued, Expand, Expanded, Node, Search, SearchConfig, Step, Work

Draw = Callable[[str], Step[str]]


def config(**fields: object) -> SearchConfig:
    return RECIPES["economy"].search.model_copy(
        update={"siblings": 2, "root_siblings": None, "resamples": 0, "max_calls": 40, "helped_states": 1} | fields
    )


def query(name: str, *, plain: bool = True) -> Step[str]:
    return Step(name, plain=plain, identity=name)


def answer(outcome: float) -> Step[str]:
    return Step(f"answer {outcome}", terminal=True, outcome=outcome, identity=f"answer {outcome}")


def played(
    search: Search[str],
    *,
    helped: str = "good",
    plain: Callable[[int], str] = lambda number: f"bad {number}",
    right: str = "good",
) -> list[Work]:
    """A world of two steps: a query, then an answer that is right after one query only. Returns all work."""
    done: list[Work] = []
    while work := search.ask():
        for each in work:
            done.append(each)
            node = search.tree[each.node_id]
            if isinstance(each, Continue):
                outcome = float(node.payload == right)
                search.tell(each.id, Continued([[answer(outcome)]] * each.count, calls=each.count))
                continue
            assert isinstance(each, Expand)
            if node.depth:
                steps = [answer(float(node.payload == right))] * each.count
            elif each.helped:
                steps = [query(helped, plain=False)] * each.count
            else:
                steps = [query(plain(each.sample + one)) for one in range(each.count)]
            search.tell(each.id, Expanded(steps, calls=each.count))
    return done


def helps(done: list[Work]) -> list[Expand]:
    return [each for each in done if isinstance(each, Expand) and each.helped]


def anywhere(_: Node[str]) -> bool:
    return True


def test_a_state_is_helped_where_all_is_wrong_and_its_answers_come_from_plain_draws() -> None:
    """The helped step is worth its plain continuations, and its state is worth what plain draws alone found."""
    search: Search[str] = Search(config(), helpable=anywhere)
    done = played(search)
    [helped] = helps(done)
    [step] = [node for node in search.tree.nodes[1:] if node.payload == "good"]
    assert helped.node_id == 0
    assert {end.outcome for end in step.rollouts} == {1.0}
    assert {end.outcome for end in search.tree.root.rollouts} == {0.0}
    assert (step.draws, step.plain_draws) == (helped.count, 0)


def test_a_state_is_drawn_from_once_more_where_help_led_to_a_right_answer() -> None:
    """By one plain expansion, of which a draw may come to the same step: it is one node, and is plain then."""
    search: Search[str] = Search(config(), helpable=anywhere)
    done = played(search, plain=lambda number: "good" if number > 3 else f"bad {number}")
    [step] = [node for node in search.tree.nodes[1:] if node.payload == "good"]
    root = [each for each in done if isinstance(each, Expand) and each.node_id == 0]
    assert [(each.helped, each.count) for each in root] == [(False, 2), (True, 1), (False, 2)]
    assert step.plain


@pytest.mark.parametrize(
    ("why", "fields", "helpable", "right"),
    [
        ("it was not asked for", {"helped_states": 0}, anywhere, "good"),
        ("there is none", {}, lambda _: False, "good"),
        ("nothing knows of any", {}, None, "good"),
        ("an answer is right", {}, anywhere, "bad 1"),
        ("it could not be paid", {"max_calls": 5}, anywhere, "good"),
    ],
)
def test_no_state_is_helped_where(
    why: str, fields: dict[str, object], helpable: Callable[[Node[str]], bool] | None, right: str
) -> None:
    """Then the search is the one without help."""
    search: Search[str] = Search(config(**fields), helpable=helpable)
    plain: Search[str] = Search(config(**fields, **({} if "helped_states" in fields else {"helped_states": 0})))
    assert played(search, right=right) == played(plain, right=right), why
    assert [node.payload for node in search.tree.nodes[1:]] == [node.payload for node in plain.tree.nodes[1:]]


def test_help_that_leads_nowhere_asks_for_no_further_draw() -> None:
    """And each state is helped once."""
    search: Search[str] = Search(config(helped_states=3), helpable=lambda node: node.depth == 0)
    done = played(search, helped="bad too")
    assert len(helps(done)) == 1
    assert sum(each.count for each in done if isinstance(each, Expand) and not each.node_id and not each.helped) == 2


@given(seed=st.integers(0, 2**32), states=st.integers(0, 4), max_calls=st.integers(4, 80))
def test_help_keeps_to_its_number_and_to_the_budget_whatever_the_answers(
    seed: int, states: int, max_calls: int
) -> None:
    """At most so many states, each once, and only while all answers are wrong; calls overrun by a continuation at
    most."""
    dice = random.Random(seed)
    search: Search[int] = Search(config(helped_states=states, max_calls=max_calls, wave=1), helpable=lambda _: True)
    helped: list[int] = []
    while work := search.ask():
        for each in work:
            if isinstance(each, Expand):
                if each.helped:
                    helped.append(each.node_id)
                    assert all(end.outcome < 0.5 for node in search.tree.nodes for end in node.rollouts)
                steps = [
                    Step(dice.randrange(9), plain=not each.helped and dice.random() < 0.9, identity=dice.randrange(9))
                    for _ in range(each.count)
                ]
                search.tell(each.id, Expanded(steps, calls=each.count + each.helped))
            else:
                assert isinstance(each, Continue)
                paths = [
                    [Step(0), Step(1, terminal=True, outcome=float(dice.random() < 0.02))] for _ in range(each.count)
                ]
                search.tell(each.id, Continued(paths, calls=2 * each.count))
    assert len(helped) == len(set(helped)) <= states
    assert search.calls <= max_calls + 2 * 2


def test_help_goes_with_a_search_for_disagreement() -> None:
    with pytest.raises(ValidationError, match="helped_states goes with selection mixed"):
        SearchConfig.model_validate(RECIPES["continuation"].search.model_dump() | {"helped_states": 1})


def test_a_search_without_help_is_written_as_before() -> None:
    """So that its runs keep their hash."""
    assert "helped_states" not in RECIPES["economy"].search.model_dump()
    assert "rescue" not in RECIPES["economy"].model_dump()
    assert config().model_dump()["helped_states"] == 1


def test_the_answer_that_ends_help_counts_for_no_step() -> None:
    """Also where earlier answers differ, as long as all are wrong: the helped step is continued anew, and worth that.

    Root: a wrong answer (0) and one that is partly right (.2). Help brings step 3; its first continuation is right.
    """
    search: Search[str] = Search(config(wave=1), helpable=lambda node: node.depth == 0)
    outcomes = iter([1.0, 0.0])
    done: list[Work] = []
    while (work := search.ask()) and len(done) < 4:
        for each in work:
            done.append(each)
            if isinstance(each, Continue):
                search.tell(each.id, Continued([[answer(next(outcomes))]], calls=1))
            elif isinstance(each, Expand) and each.helped:
                search.tell(each.id, Expanded([query("good", plain=False)], calls=1))
            else:
                search.tell(each.id, Expanded([answer(0.0), answer(0.2)], calls=2))
    step = search.tree[3]
    assert [type(each) for each in done] == [Expand, Expand, Continue, Continue]
    assert [end.outcome for end in step.rollouts] == [0.0]
    assert step.value == 0.0
