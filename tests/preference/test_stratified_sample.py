"""Laws of the sample: proportional, growing without changing, and fair to what is rare."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preference.stratified_sample import stratified_sample

STRATA = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 60), min_size=1)


def drawn(sizes: dict[str, int], size: int, *, seed: int = 0) -> list[str]:
    members = [(stratum, f"{stratum}{number}") for stratum, count in sizes.items() for number in range(count)]
    return stratified_sample(members, size, seed=seed)


@given(STRATA, st.integers(1, 80), st.integers(0, 9))
def test_every_stratum_gives_its_share_to_within_one(sizes: dict[str, int], size: int, seed: int) -> None:
    """There is one rate for all: nobody is more than one member away from it."""
    names = drawn(sizes, size, seed=seed)
    counts = Counter(name[0] for name in names)
    lowest = max((counts[each] - 1) / count for each, count in sizes.items())
    highest = min((counts[each] + 1) / count for each, count in sizes.items())
    assert lowest < highest
    assert len(names) == len(set(names)) == min(size, sum(sizes.values()))


@given(STRATA, st.integers(1, 40), st.integers(0, 40), st.integers(0, 9))
def test_a_smaller_sample_is_the_beginning_of_a_larger_one(
    sizes: dict[str, int], size: int, more: int, seed: int
) -> None:
    """Who asks for more pairs goes on with those that were judged."""
    assert drawn(sizes, size + more, seed=seed)[:size] == drawn(sizes, size, seed=seed)


@pytest.mark.parametrize("rare", [1, 3])
def test_what_is_rare_is_drawn_as_often_as_it_should_be(rare: int) -> None:
    """Ten of 100 with a stratum of one or three: a rule of largest remainders would never draw the one."""
    found = sum(
        name[0] == "r" for seed in range(600) for name in drawn({"a": 60, "b": 40 - rare, "r": rare}, 10, seed=seed)
    )
    assert found / 600 == pytest.approx(rare / 10, abs=0.06)


def test_members_of_a_stratum_are_drawn_alike() -> None:
    """Each in one of four samples of a quarter."""
    counts = Counter(name for seed in range(800) for name in drawn({"a": 12}, 3, seed=seed))
    assert all(count == pytest.approx(200, abs=50) for count in counts.values())
    assert len(counts) == 12
