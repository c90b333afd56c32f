"""Statistics of a critic by hand-worked numbers; chains of steps, how they are shuffled, and what their scores say."""

from __future__ import annotations

from functools import partial

import pytest

from preference import Message
from preference.records import ActionType
from reasonrag.critics.evaluation.chains import Chain, chain_figures, shuffled
from reasonrag.critics.evaluation.measures import clustered_mean
from reasonrag.critics.evaluation.observations import JudgedStep


def chain(question: str, *said: str, won: bool = True) -> Chain:
    """An `a..` is an answer, all else a query."""
    states = [(Message(role="user", content=f"{question} {layer}"),) for layer in range(len(said))]
    kinds: list[ActionType] = ["answer" if each.startswith("a") else "query" for each in said]
    told = enumerate(zip(states, said, kinds, strict=True))
    return Chain(won, tuple(JudgedStep("1", state, step, question, kind, n) for n, (state, step, kind) in told))


def test_a_shuffled_chain_has_the_states_of_its_question_and_says_what_another_one_says() -> None:
    """Of each question the first chain that won; none where the other one has no step of a type."""
    chains = [chain("one", "q1", "a1"), chain("one", "q9", "a9"), chain("two", "q2", "q3", "a2")]
    both = list(shuffled([*chains, chain("lost", "q4", "a4", won=False)]))
    said = {one.question: [step.step for step in other.steps] for one, other in both}
    assert said == {"one": ["q2", "a2"], "two": ["q1", "q1", "a1"]}
    assert all([step.state for step in one.steps] == [step.state for step in other.steps] for one, other in both)
    assert list(shuffled(chains[:1])) == []
    assert [one.question for one, _ in shuffled([chains[0], chain("direct", "a2")])] == ["direct"]


@pytest.mark.parametrize(("scores", "share"), [([10, 9, 1, 0], 0.02), ([10, 1, 9, 0], 1.48), ([1, 1, 0, 0], None)])
def test_the_spread_at_equal_outcomes_is_low_where_scores_tell_the_outcome(scores: list[float], share: float) -> None:
    """Two chains won, two lost. Equal chains count once, and a question with one outcome tells nothing."""
    known = dict(zip(("a1", "a2", "a3", "a4"), scores, strict=True))
    chains = [chain("both", name, won=name < "a3") for name in known] + [chain("won", "a1"), chain("won", "a3")]
    found = chain_figures(chains, [], lambda step: known[step.step], partial(clustered_mean, resamples=9, seed=0))
    assert found["spread_at_equal_outcomes"].value == (share and pytest.approx(share, abs=0.01))
    assert found["golden_over_shuffled"].value is None
    assert sum(found["chain_scores"]["won"] + found["chain_scores"]["lost"]) == pytest.approx(0.0)


def test_a_mean_has_an_interval_of_its_questions_not_of_its_cases() -> None:
    alike = clustered_mean([1.0] * 50 + [0.0] * 50, ["a"] * 50 + ["b"] * 50, resamples=500, seed=0)
    apart = clustered_mean([1.0, 0.0] * 50, list(map(str, range(100))), resamples=500, seed=0)
    assert (alike.value, alike.low, alike.high, alike.n, alike.questions) == (0.5, 0.0, 1.0, 100, 2)
    assert apart.value == 0.5
    assert apart.low is not None
    assert 0.35 < apart.low < 0.45
