"""Two levels of intervals, each in one place, and written beside its intervals."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest

from preference.review_statistics import ReviewReport
from preference.statistics import COMPARISON_LEVEL, LABEL_LEVEL, share_of
from reasonrag.evaluation.settings import CompareSettings, EvaluateSettings
from reasonrag.rendering import interval_text, percent, share_with_interval
from reasonrag.studies.pareto import interval


def test_the_levels_are_those_of_all_that_computes_intervals() -> None:
    """Of shares of labels .9, of comparisons .95, and no third one."""
    assert (LABEL_LEVEL, COMPARISON_LEVEL) == (0.9, 0.95)
    assert ReviewReport.model_fields["level"].default == LABEL_LEVEL
    for settings in (EvaluateSettings, CompareSettings):
        assert settings.model_fields["confidence"].default == COMPARISON_LEVEL
    low, high = interval(np.array([0.0, *(each / 1000 for each in range(1, 1001))]))
    assert high - low == pytest.approx(COMPARISON_LEVEL, abs=0.002)
    half = share_of(5000, 10_000)
    assert half.high is not None
    reach = NormalDist().inv_cdf((1 + LABEL_LEVEL) / 2) * (0.25 / 10_000) ** 0.5
    assert half.high - 0.5 == pytest.approx(reach, rel=1e-3)


def test_an_interval_is_written_with_its_level() -> None:
    assert share_with_interval(share_of(36, 40)) == "0.90 (90 % CI 0.80 to 0.95) of 40"
    assert interval_text("-1.0", "2.5", 0.95) == "(95 % CI -1.0 to 2.5)"
    assert (percent(0.9), percent(0.995), percent(0.9949, 1)) == ("90 %", "99.5 %", "99.5 %")
