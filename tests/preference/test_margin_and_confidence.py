"""How sure a pair is, against closed forms."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preference.margin_and_confidence import confidence

GRID = 0.005
"""How far the sum over a grid may be from the integral."""

means = st.floats(0, 1)
counts = st.integers(0, 60)


@pytest.mark.parametrize(
    ("chosen", "rejected", "expected"),
    [
        # With x = sin(u)**2 the density of Beta(a, b) becomes 2 sin(u)**(2a - 1) cos(u)**(2b - 1) / B(a, b).
        # 1 right, 0 wrong against 0 right, 1 wrong: Beta(1.5, .5) and Beta(.5, 1.5), 4/pi sin(u)**2 and 4/pi cos(u)**2.
        # 16/pi**2 times the integral of sin(u)**2 (u/2 + sin(2u)/4) from 0 to pi/2, which is pi**2/32 + 1/4.
        ((1.0, 1), (0.0, 1), 0.5 + 4 / math.pi**2),
        # against nothing seen, Beta(.5, .5), which is 2/pi: 8/pi**2 times the integral of u sin(u)**2, pi**2/16 + 1/4.
        ((1.0, 1), (0.0, 0), 0.5 + 2 / math.pi**2),
        ((0.5, 0), (0.0, 1), 0.5 + 2 / math.pi**2),
        # two against two, Beta(2.5, .5) and Beta(.5, 2.5): 256/(9 pi**2) times 9 pi**2/512 + 1/6.
        ((1.0, 2), (0.0, 2), 0.5 + 128 / (27 * math.pi**2)),
        # Beta(1, 1) is uniform, so the chance is the mean of the other: of Beta(1.5, .5) 3/4, of Beta(3.5, .5) 7/8
        ((1.0, 1), (0.5, 1), 3 / 4),
        ((0.5, 1), (0.25, 4), 1 - 1.5 / 5),
        # equal evidence says nothing
        ((0.3, 7), (0.3, 7), 0.5),
        # both symmetric about one half, however much was seen
        ((0.5, 40), (0.5, 2), 0.5),
    ],
)
def test_confidence_is_the_chance_that_the_chosen_step_is_truly_better(
    chosen: tuple[float, float], rejected: tuple[float, float], expected: float
) -> None:
    """P(X > Y) for X and Y of Beta(1/2 + right, 1/2 + wrong), worked out by hand."""
    assert confidence(chosen, rejected) == pytest.approx(expected, abs=GRID)


@given(chosen=st.tuples(means, counts), rejected=st.tuples(means, counts))
def test_one_of_two_steps_is_better(chosen: tuple[float, int], rejected: tuple[float, int]) -> None:
    """confidence(a, b) + confidence(b, a) = 1, both within [0, 1]."""
    forth, back = confidence(chosen, rejected), confidence(rejected, chosen)
    assert forth + back == pytest.approx(1, abs=1e-6)
    assert -1e-12 <= forth <= 1 + 1e-12


@given(mean=means, higher=means, observations=st.integers(1, 60))
def test_confidence_grows_with_evidence(mean: float, higher: float, observations: int) -> None:
    """The same two means, each seen once more."""
    mean, higher = sorted((mean, higher))
    before = confidence((higher, observations), (mean, observations))
    after = confidence((higher, observations + 1), (mean, observations + 1))
    assert after >= before - 1e-9
    assert before >= 0.5 - 1e-9


def test_a_pair_is_never_more_than_sure() -> None:
    """Nothing is more likely than 1, however many continuations agree; the sum of 400 cells might be."""
    for observations in (1, 40, 1000, 10_000):
        assert 0.5 < confidence((1.0, observations), (0.0, observations)) <= 1.0
