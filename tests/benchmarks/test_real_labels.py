"""Labels of a real language model's steps: what the report counts, and how sure it is of a gap."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from real_labels import LabelPlan, Labels, gap, report

from preference.export.private_files import write_json
from preference.statistics import share_of


def checked(right: int, wrong: int, ties: int = 0, action_type: str = "query") -> list[dict[str, Any]]:
    fresh = [0.5] * right + [-0.25] * wrong + [0.0] * ties
    return [{"action_type": action_type, "rejected_type": action_type, "fresh_margin": each} for each in fresh]


@pytest.fixture
def labels(tmp_path: Path) -> Labels:
    """Checks that were bought: values label 80 of 90 queries right, outcomes 70; all answers are labelled right."""
    made = Labels(LabelPlan(), tmp_path, tmp_path / "qa", tmp_path / "model")
    for label, right in (("value", 80), ("outcome", 70)):
        first = [*checked(right, 90 - right, 4), checked(1, 0)[0] | {"fresh_margin": None}]
        for name, sample in (("popqa", first), ("2wikimultihopqa", checked(30, 0, action_type="answer"))):
            write_json(made.checked(label, name), {"revaluation": {"sample": sample}})
    return made


def test_a_tie_and_a_pair_without_a_value_are_neither_right_nor_wrong(labels: Labels) -> None:
    told = "\n".join(report(labels))
    assert "| value | 125 | 110 | 10 | 4 | 91.7%" in told
    assert "| outcome | 125 | 100 | 20 | 4 | 83.3%" in told


def test_answers_are_left_out_where_steps_that_go_on_are_counted(labels: Labels) -> None:
    told = "\n".join(report(labels))
    assert "| value | 95 | 80 | 10 | 4 | 88.9%" in told
    assert "| outcome | 95 | 70 | 20 | 4 | 77.8%" in told
    assert "steps that go on: labels by values are righter by +11.1 points" in told


def test_a_gap_names_what_would_have_been_found() -> None:
    """Two times 320 pairs, of which 86 and 72 % are right: an error of 3.2 points, times 1.96 + .84."""
    assert gap(share_of(275, 320), share_of(230, 320)) == (
        "labels by values are righter by +14.1 points (+8.8 to +19.3); 8.9 would have been found four times in five."
    )
    assert gap(share_of(0, 0), share_of(1, 2)) == "one of the labels has no pair that is right or wrong."
