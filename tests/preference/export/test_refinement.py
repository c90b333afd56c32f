"""Best paths that critics leave: ProRAG's refinement set, and what is told of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from preference import PairingRules
from preference.candidates import PathStep
from preference.export.export_pairs import export_pairs
from preference.export.summary import ExportOptions, RefinementTally
from tests.helpers.trees import ada, candidates_in, prompt, rows


def path(*steps: tuple[float | None, float | None], end: float | None = None) -> list[PathStep]:
    """Steps of a critic's score and an expected outcome. end: the score of a last one, which is a right answer."""
    if end is not None:
        [last] = path((end, 1.0))
        return [*path(*steps), last.model_copy(update={"action_type": "answer"})]
    return [
        PathStep.model_validate(
            {
                "layer": layer,
                "action_type": "query",
                "prompt": prompt("Question: who?"),
                "response": f"step {layer}",
                "content": "who",
                "critic_score": score,
                "expected_outcome": outcome,
            }
        )
        for layer, (score, outcome) in enumerate(steps)
    ]


def test_a_path_is_kept_if_every_step_scores_the_threshold_and_the_rest_is_counted() -> None:
    tally = RefinementTally(0.0)
    assert tally.keeps(path((0.0, 1.0), (2.0, 0.75)))
    assert not tally.keeps(path((3.0, 1.0), (-0.1, 0.25)))
    assert not tally.keeps(path((3.0, None), (None, 0.5)))
    told: dict[str, Any] = tally.summary()
    assert told == {
        "threshold": 0.0,
        "paths": 3,
        "kept": 1,
        "unscored": 1,
        "steps": 6,
        "kept_steps": 2,
        "mean_outcome_kept": 0.875,
        "mean_outcome_left_out": pytest.approx((1.0 + 0.25 + 0.5) / 3),
        "right_kept": 1.0,
        "right_left_out": pytest.approx(2 / 3),
    }


def test_the_answer_of_a_path_is_right_by_choice_and_counts_in_no_share() -> None:
    tally = RefinementTally(0.0)
    assert tally.keeps(path((1.0, 0.25), end=1.0))
    assert not tally.keeps(path((1.0, 0.75), end=-1.0))
    told = tally.summary()
    assert (told["mean_outcome_kept"], told["right_kept"]) == (0.25, 0.0)
    assert (told["mean_outcome_left_out"], told["right_left_out"]) == (0.75, 1.0)
    assert (told["steps"], told["kept_steps"]) == (4, 2)


@pytest.mark.parametrize(("score", "kept"), [(0.0, True), (-0.5, False), (None, False)])
def test_only_the_paths_that_are_kept_become_rows(tmp_path: Path, score: float | None, kept: bool) -> None:
    source = candidates_in(tmp_path / "source", ada())
    [question] = [orjson.loads(line) for line in (source / "questions.jsonl").read_bytes().splitlines()]
    question["path"][-1]["critic_score"] = score
    (source / "questions.jsonl").write_bytes(orjson.dumps(question) + b"\n")
    options = ExportOptions(formats=("sft",), validation=0, critic_threshold=0.0)
    summary = export_pairs(source, tmp_path / "out", PairingRules(), options)
    assert (len(rows(tmp_path / "out" / "sft.json")) > 0) is kept
    assert summary.refinement["kept"] == int(kept)
