"""Statistics of a critic, by hand-worked numbers."""

from __future__ import annotations

from reasonrag.critics.evaluation.measures import clustered_mean


def test_a_mean_has_an_interval_of_its_questions_not_of_its_cases() -> None:
    alike = clustered_mean([1.0] * 50 + [0.0] * 50, ["a"] * 50 + ["b"] * 50, resamples=500, seed=0)
    apart = clustered_mean([1.0, 0.0] * 50, list(map(str, range(100))), resamples=500, seed=0)
    assert (alike.value, alike.low, alike.high, alike.n, alike.questions) == (0.5, 0.0, 1.0, 100, 2)
    assert apart.value == 0.5
    assert apart.low is not None
    assert 0.35 < apart.low < 0.45


def test_a_mean_over_nothing_is_unknown() -> None:
    assert clustered_mean([], [], resamples=10, seed=0).value is None
