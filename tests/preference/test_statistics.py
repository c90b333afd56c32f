"""What agreement is: shares and their intervals, and labels beside fresh continuations."""

from __future__ import annotations

from itertools import pairwise

import pytest

from preference.statistics import BINS, CheckedPair, reliability, share_of, sign_agreement


@pytest.mark.parametrize(
    ("part", "whole", "low", "high"),
    [
        (0, 10, 0.0, 0.2130),
        (5, 10, 0.2693, 0.7307),
        (10, 10, 0.7870, 1.0),
    ],
)
def test_the_interval_is_wilsons(part: int, whole: int, low: float, high: float) -> None:
    """By the formula, z = 1.6449: it leaves no certainty after ten of ten."""
    found = share_of(part, whole)
    assert found.share == part / whole
    assert (found.low, found.high) == (pytest.approx(low, abs=2e-3), pytest.approx(high, abs=2e-3))


def pair(fresh: float, *, confidence: float | None = 0.7) -> CheckedPair:
    return CheckedPair(tied=fresh == 0, confirmed=fresh > 0, confidence=confidence)


def test_a_label_is_confirmed_by_a_fresh_difference_of_its_sign() -> None:
    """Ties are no verdict, and are counted apart."""
    found = sign_agreement([pair(0.2), pair(0.001), pair(-0.1), pair(0.0), pair(0.0)])
    assert (found.confirmed.of, found.confirmed.share, found.ties) == (3, pytest.approx(2 / 3), 2)
    assert sign_agreement([]).confirmed.share is None


@pytest.mark.parametrize(
    ("confidence", "low"), [(0.5, 0.5), (0.3, 0.5), (0.599, 0.5), (0.6, 0.6), (0.95, 0.9), (1.0, 0.9)]
)
def test_every_confidence_has_a_bin(confidence: float, low: float) -> None:
    """The last one holds certainty, the first one what is less than a coin's."""
    [found] = [each for each in reliability([pair(0.1, confidence=confidence)]) if each.confirmed.of]
    assert found.low == low
    assert found.mean_confidence == confidence


def test_a_pair_that_claims_no_confidence_is_in_no_bin() -> None:
    """As those of files that know none."""
    claims_nothing = pair(0.1, confidence=None)
    assert [each.confirmed.of for each in reliability([claims_nothing, pair(0.1, confidence=0.62)])] == [0, 1, 0, 0, 0]


def test_a_bin_says_what_was_claimed_and_what_came_true() -> None:
    """Bins without a pair are there, and say nothing."""
    pairs = [pair(0.1, confidence=0.62), pair(-0.1, confidence=0.68), pair(0.0, confidence=0.65)]
    found = reliability(pairs)
    assert [(each.low, each.high) for each in found] == list(pairwise(BINS))
    assert [each.confirmed.of for each in found] == [0, 2, 0, 0, 0]
    assert (found[1].confirmed.share, found[1].ties) == (0.5, 1)
    assert found[1].mean_confidence == pytest.approx(0.65)
    assert found[0].mean_confidence is None
