"""Which configuration is worth its cost, as pure functions of a few numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest

from reasonrag.studies.pareto import (
    Interval95,
    Measures,
    QuestionYield,
    TrialReport,
    compare,
    interval,
    measure,
    pareto_frontier,
    suggest_trial,
)


def standing(name: str, cost: float, right: float = 1.0, confidence: float = 0.8, share: float = 0.5) -> TrialReport:
    known = None if math.isinf(cost) else cost
    values: dict[str, Any] = {
        "cost_per_right_pair": known,
        "right_pairs": right,
        "confidence": confidence,
        "questions_with_a_pair": share,
    }
    return TrialReport.model_construct(name=name, complete=True, **values)


def surely(name: str, cost: float, *, worse: bool = False) -> TrialReport:
    """Cheaper than the base by more than noise."""
    change = {"cost_change": Interval95(low=-0.5, high=-0.1)}
    return standing(name, cost).model_copy(update={"intervals": change, "worse_than_base": worse})


@pytest.mark.parametrize(
    ("standings", "expected"),
    [
        ([], set()),
        ([standing("base", 1)], {"base"}),
        ([standing("base", 2), standing("cheap", 1)], {"cheap"}),
        ([standing("base", 2, confidence=0.9), standing("cheap", 1)], {"base", "cheap"}),
        ([standing("base", 2), standing("cheap", 1, share=0.4)], {"base", "cheap"}),
        ([standing("base", 1), standing("surer", 1, confidence=0.9)], {"surer"}),
        ([standing("base", 1), standing("twin", 1)], {"base", "twin"}),
        ([standing("base", math.inf, right=0, confidence=0, share=0)], set()),
    ],
)
def test_the_frontier_are_those_that_nobody_dominates(standings: list[TrialReport], expected: set[str]) -> None:
    """Cheaper is not enough where the pairs are less sure or fewer; equal ones do not dominate each other. Who makes no
    pair is never on it."""
    assert pareto_frontier(standings) == expected


@pytest.mark.parametrize(
    ("standings", "expected"),
    [
        ([], None),
        ([standing("base", math.inf)], None),
        ([standing("base", 2), standing("cheap", 1)], "base"),
        ([standing("base", 2), surely("cheap", 1), standing("cheaper", 0.5)], "cheap"),
        ([standing("base", 2), surely("cheap", 1), surely("cheaper", 0.5)], "cheaper"),
        ([standing("base", 2), surely("cheap", 1, worse=True)], "base"),
        ([standing("base", math.inf, right=0, confidence=0, share=0), standing("some", 9)], None),
        ([standing("base", math.inf, right=0, confidence=0, share=0), surely("some", 9)], "some"),
    ],
)
def test_the_base_is_suggested_unless_another_is_cheaper_by_more_than_noise(
    standings: list[TrialReport], expected: str | None
) -> None:
    """And not worse; of several such the cheapest. A base without pairs is never suggested."""
    assert suggest_trial(standings) == expected


# -- noise ---------------------------------------------------------------------------------------------------------


def measured(*numbers: tuple[float, int, float]) -> Measures:
    """numbers: cost, pairs and right ones of each question."""
    return measure([QuestionYield(1, cost, pairs, right) for cost, pairs, right in numbers], seed=0)


def cost_change(measured: Measures, base: Measures) -> tuple[float | None, float | None]:
    found = compare(measured, base)["intervals"]["cost_change"]
    return found.low, found.high


def test_the_first_numbers_are_those_of_the_questions_as_they_are() -> None:
    """Cost 60 for 2.25 right pairs, three pairs, two of three questions with a pair."""
    found = {name: values[0] for name, values in measured((10, 2, 1.5), (20, 1, 0.75), (30, 0, 0.0)).items()}
    assert found == pytest.approx(
        {
            "cost_per_right_pair": 60 / 2.25,
            "right_pairs": 0.75,
            "confidence": 0.75,
            "questions_with_a_pair": 2 / 3,
        }
    )


def test_without_a_pair_the_cost_is_infinite_and_the_confidence_zero() -> None:
    """Also of resamplings that drew only questions without one, and where nothing was tried."""
    found = measured((10, 0, 0.0), (20, 0, 0.0))
    for none in (found, measured()):
        assert (none["cost_per_right_pair"][0], none["confidence"][0]) == (math.inf, 0.0)
    assert interval(found["cost_per_right_pair"]) == (math.inf, math.inf)
    assert cost_change(found, found) == (0.0, 0.0)
    some = measured((10, 1, 0.9), (20, 0, 0.0))
    assert interval(some["cost_per_right_pair"])[1] == math.inf
    assert cost_change(some, found) == (-1.0, 0.0)


def test_an_interval_holds_the_value_and_shrinks_with_the_questions() -> None:
    """Four times the questions, half the width."""
    asked = [(10, each % 2, 0.9 * (each % 2)) for each in range(30)]
    found, more = (measured(*each)["questions_with_a_pair"] for each in (asked, asked * 4))
    (low, high), (lower, higher) = interval(found), interval(more)
    assert low < found[0] < high
    assert higher - lower == pytest.approx((high - low) / 2, rel=0.25)


def test_worse_is_only_who_is_so_beyond_the_noise() -> None:
    """The same questions are drawn for both: a difference on each of them is no chance, one on two of them is."""
    base = measured(*((10, 1, 0.9) for _ in range(20)))
    less_sure = measured(*((10, 1, 0.8) for _ in range(20)))
    missing_two = measured(*((10, int(each > 1), 0.9 * (each > 1)) for each in range(20)))
    missing_half = measured(*((10, each % 2, 0.9 * (each % 2)) for each in range(20)))
    assert compare(less_sure, base)["worse_than_base"]
    assert not compare(base, base)["worse_than_base"]
    assert not compare(base, less_sure)["worse_than_base"]
    assert not compare(missing_two, base)["worse_than_base"]
    assert compare(missing_half, base)["worse_than_base"]


def test_cheaper_is_only_who_is_so_beyond_the_noise() -> None:
    """A tenth on every question is no chance; half on two of twenty is. Resamplings without a pair tell nothing."""
    base = measured(*((10 * each, 1, 0.9) for each in range(1, 21)))
    by_a_tenth = measured(*((9 * each, 1, 0.9) for each in range(1, 21)))
    on_two = measured(*((10 * each * (0.5 if each < 3 else 1), 1, 0.9) for each in range(1, 21)))
    rarely = measured(*((0.1, int(each == 0), 0.9 * (each == 0)) for each in range(20)))
    assert (cost_change(by_a_tenth, base)[1] or 0) < 0
    assert cost_change(base, base)[1] == 0
    assert (cost_change(on_two, base)[1] or 0) >= 0
    assert rarely["cost_per_right_pair"][0] < base["cost_per_right_pair"][0]
    assert cost_change(rarely, base)[1] is None
