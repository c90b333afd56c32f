"""Two levels of intervals, each in one place, and beside every interval that is printed the level it has."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest

from preference.review_sample import ReviewReport
from preference.statistics import COMPARISON_LEVEL, LABEL_LEVEL, share_of
from reasonrag.rendering import interval_text, percent, share_with_interval
from reasonrag.studies.pareto import interval
from tests.helpers.command_line import Reasonrag

_ENDS = re.compile(r"[(\[]([^()\[\]]*?)[-+]?\d[\d.,]*(?: %)?(?: to |, )[-+]?\d[\d.,]*(?: %)?[)\]]")
"""An interval, and in the group what stands in its brackets before the ends."""


def unnamed(text: str) -> list[str]:
    """Intervals that do not say their level."""
    return [match[0] for match in _ENDS.finditer(" ".join(re.sub("[│┃]", " ", text).split())) if "% CI" not in match[1]]


def test_the_levels_are_those_of_all_that_computes_intervals() -> None:
    """Of shares of labels .9, of comparisons .95, and no third one."""
    assert (LABEL_LEVEL, COMPARISON_LEVEL) == (0.9, 0.95)
    assert ReviewReport.model_fields["level"].default == LABEL_LEVEL
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


def test_every_command_names_the_level_beside_its_intervals(tmp_path: Path, reasonrag: Reasonrag) -> None:
    """On screen and in files for people; in tables the heading of the column names it."""
    atlas = ("--dataset", "atlas", "--model", "offline")
    assert reasonrag("generate", *atlas, "--limit", 12, "--run", "run").status == 0
    assert reasonrag("pairs", "run", "--out", "data", "--label", "judge", "--model", "offline").status == 0
    pages = [
        reasonrag("pairs", "run", "--out", "data", "--label", "judge", "--model", "offline").out,
        reasonrag("audit", "data").out,
        (tmp_path / "data" / "audit.html").read_text("utf-8").partition("<svg")[0],
        reasonrag("calibrate", "run", "--model", "offline", "--revalue", 6).out,
    ]
    for page in pages:
        assert unnamed(page) == []
    assert all("(90 % CI " in page for page in (pages[0], pages[3]))
    for method in ("rag", "direct"):
        asked = (*atlas, "--split", "dev", "--limit", 20, "--method", method, "--run", f"evals/{method}")
        assert reasonrag("evaluate", *asked).status == 0
    compared = reasonrag("compare", "evals/rag", "evals/direct", "--out", "compared")
    assert "(95 % CI" in compared.out
    evaluated = (tmp_path / "evals" / "rag" / "report.md").read_text("utf-8")
    assert "| metric | mean | 95 % CI |" in evaluated
    page = (tmp_path / "compared" / "compare.md").read_text("utf-8")
    assert "| difference (95 % CI) |" in page
    assert "| EM difference in points (95 % CI) |" in page
