"""`reasonrag sweep`: its points, that no answer is asked for twice, caps over all of them, and the drawings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

import reasonrag as package
from reasonrag.evaluation.report import Report, read_report
from reasonrag.evaluation.sweeps.points import Point, plan_points
from reasonrag.evaluation.sweeps.report import Sweep
from tests.helpers.command_line import Reasonrag

OUT = Path("evals/agent-sweep")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where atlas and its index are, once for all tests."""
    return tmp_path_factory.mktemp("indexes")


@pytest.fixture
def evaluated(home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Report]:
    """The Python call on four questions of atlas."""
    monkeypatch.setenv("REASONRAG_INDEX_HOME", str(home))

    def evaluate(run: str = "evals/agent", **flags: Any) -> Report:
        return package.evaluate(**({"dataset": "atlas", "limit": 4, "run": run, "bootstrap": 50} | flags))

    return evaluate


def keys(*places: str | Path) -> list[str]:
    """Of every answer that was asked for below these folders."""
    journals = [journal for each in places for journal in sorted(Path(each).rglob("journal.jsonl"))]
    return [key for each in journals for line in each.read_bytes().splitlines() for key in orjson.loads(line)["keys"]]


def points(found: Sweep, place: int = 0) -> list[tuple[int, int]]:
    return [(each.searches, each.top_k) for each in found.evaluations[place].points]


# -- the points --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "method", "planned"),
    [
        ((7, 3), "agent", {(3, 3), (5, 3), (7, 3), (9, 3), (11, 3), (7, 1), (7, 5)}),
        ((8, 10), "agent", {(3, 10), (5, 10), (7, 10), (9, 10), (11, 10), (8, 1), (8, 3), (8, 5)}),
        ((7, 3), "rag", {(7, 1), (7, 3), (7, 5)}),
    ],
)
def test_one_of_budget_and_top_k_is_varied_at_a_time(
    own: tuple[int, int], method: str, planned: set[tuple[int, int]]
) -> None:
    """n searches are 2n + 1 steps; a method that searches once has no iterations; no point is planned twice."""
    found = plan_points(Point(*own), [5, 1, 2, 3, 4, 1], [1, 3, 5], method=method)
    assert len(found) == len(planned)
    assert {(each.max_steps, each.top_k) for each in found} == planned


def test_a_point_is_the_evaluation_with_another_budget_or_top_k_and_nothing_is_asked_twice(
    evaluated: Callable[..., Report], reasonrag: Reasonrag
) -> None:
    """Its predictions are byte for byte those of `evaluate` alone, though its answers are shared with other points and
    with the evaluation; what equals an evaluation that was given is taken from it."""
    evaluated(seed=5)
    evaluated("evals/five", seed=5, top_k=5)
    evaluated("evals/rag", seed=5, method="rag")
    done = reasonrag("sweep", "evals/agent", "evals/five", "evals/rag", "--iterations", 1, "--iterations", 4)
    assert done.status == 0, done.err
    found = Sweep.model_validate_json((OUT / "sweep.json").read_bytes())
    assert points(found) == [(1, 3), (3, 1), (3, 3), (3, 5), (4, 3)]
    assert points(found, 1) == [(1, 5), (3, 1), (3, 3), (3, 5), (4, 5)]
    assert points(found, 2) == [(1, 1), (1, 3), (1, 5)]
    own, five, rag = found.evaluations
    assert [each.run for each in own.points if each.taken] == ["evals/agent", "evals/five"]
    assert five.points[1].run == own.points[1].run
    for each in found.evaluations:
        asked = keys(each.run, OUT / each.name)
        assert len(asked) == len(set(asked))
    for swept, point in ((own, own.points[0]), (own, own.points[4]), (own, own.points[1]), (rag, rag.points[0])):
        alone = {"max_steps": point.max_steps, "top_k": point.top_k, "method": swept.method, "run": "evals/alone"}
        report = evaluated(**alone, seed=5)
        assert Path("evals/alone/predictions.jsonl").read_bytes() == Path(point.run, "predictions.jsonl").read_bytes()
        assert read_report(Path(point.run)).config_hash == report.config_hash
        assert {name: report.metrics[name] for name in point.metrics} == point.metrics
        for file in Path("evals/alone").iterdir():
            file.unlink()
    assert "point 4 of 5: agent, 3 searches, top-k 3: taken from evals/agent" in done.err
    assert "7 points on 4 questions: about " in done.err
