"""`reasonrag sweep`: its points, that no answer is asked for twice, caps over all of them, and the drawings."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import orjson
import pytest

import reasonrag as package
from reasonrag.errors import InputError, ModelError
from reasonrag.evaluation.predictions import read_predictions
from reasonrag.evaluation.report import Report, read_report
from reasonrag.evaluation.sweeps.points import Point, plan_points
from reasonrag.evaluation.sweeps.report import Sweep
from reasonrag.llm.chat import ChatRequest, Completion
from reasonrag.llm.scripted_model import ScriptedModel
from reasonrag.training.provenance import Provenance, TrainingConditions
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
    with the evaluation; what equals an evaluation that was given is taken from it. Intervals are those of the first
    evaluation, and folders with like names are kept apart."""
    evaluated(seed=5)
    evaluated("evals/a 5", seed=5, top_k=5)
    evaluated("evals/a-5", seed=5, method="rag", confidence=0.5)
    done = reasonrag("sweep", "evals/agent", "evals/a 5", "evals/a-5", "--iterations", 1, "--iterations", 4)
    assert done.status == 0, done.err
    found = Sweep.model_validate_json((OUT / "sweep.json").read_bytes())
    assert points(found) == [(1, 3), (3, 1), (3, 3), (3, 5), (4, 3)]
    assert points(found, 1) == [(1, 5), (3, 1), (3, 3), (3, 5), (4, 5)]
    assert points(found, 2) == [(1, 1), (1, 3), (1, 5)]
    own, five, rag = found.evaluations
    assert [each.run for each in own.points if each.taken] == ["evals/agent", "evals/a 5"]
    assert five.points[1].run == own.points[1].run
    for each in found.evaluations:
        asked = keys(each.run, OUT / each.name)
        assert len(asked) == len(set(asked))
    for swept, point in ((own, own.points[0]), (own, own.points[4]), (five, five.points[0]), (rag, rag.points[2])):
        alone = {"max_steps": point.max_steps, "top_k": point.top_k, "method": swept.method, "run": "evals/alone"}
        report = evaluated(**alone, seed=5)
        assert Path("evals/alone/predictions.jsonl").read_bytes() == Path(point.run, "predictions.jsonl").read_bytes()
        assert read_report(Path(point.run)).config_hash == report.config_hash
        assert {name: report.metrics[name] for name in point.metrics} == point.metrics
        for file in Path("evals/alone").iterdir():
            file.unlink()
    assert "point 4 of 5: agent, 3 searches, top-k 3: taken from evals/agent" in done.err
    assert "7 points on 4 questions: about " in done.err


def test_other_conditions_than_budget_and_top_k_stay_those_of_training(
    evaluated: Callable[..., Report], reasonrag: Reasonrag
) -> None:
    """These two may differ from it by design, which is said once; each point records the difference."""
    asked = TrainingConditions(renderer=None, top_k=(3,), max_steps=(7,))
    Path("model").mkdir()
    Provenance(base_model="tiny", stage="dpo", finetuning_type="full", asked=asked).write(Path("model"))
    evaluated(trained_on="model", limit=1)
    done = reasonrag("sweep", "evals/agent", "--iterations", 1, "--top-k", 5)
    assert done.status == 0, done.err
    assert done.err.count("may differ from its training") == 1
    assert "(--allow)" not in done.err + (OUT / "sweep.json").read_text("utf-8")
    report = read_report(OUT / "agent/searches-1-top-k-3")
    assert {each.name: each.outcome for each in report.checks}["max_steps"] == "allowed"


# -- what it may cost --------------------------------------------------------------------------------------------------


def test_caps_hold_for_all_points_and_sessions_and_a_stopped_sweep_goes_on(
    evaluated: Callable[..., Report], reasonrag: Reasonrag
) -> None:
    """Of all evaluations together; what is there is written, and the end is that of a sweep that was never stopped."""
    evaluated()
    evaluated("evals/rag", method="rag")
    line = ("sweep", "evals/agent", "evals/rag", "--iterations", 1, "--iterations", 2)
    assert reasonrag(*line, "--out", "whole").status == 0
    whole = Sweep.model_validate_json(Path("whole/sweep.json").read_bytes())
    for cap in (6, whole.calls - 1):
        stopped = reasonrag(*line, "--max-calls", cap)
        assert (stopped.status, f"--max-calls: {cap} calls are for all points" in stopped.err) == (3, True)
        assert "continue with: reasonrag sweep" in stopped.err
        assert len(keys(OUT)) == cap
    part = Sweep.model_validate_json((OUT / "sweep.json").read_bytes())
    assert (part.unfinished, part.calls) == (1, whole.calls - 1)
    assert "not finished" in (OUT / "sweep.md").read_text("utf-8")
    journal = OUT / "agent/journal.jsonl"
    journal.write_bytes(journal.read_bytes()[:-40])  # killed while it wrote: that answer is lost, and no other
    done = reasonrag(*line, "--max-calls", whole.calls)
    assert done.status == 0, done.err
    mended = Sweep.model_validate_json((OUT / "sweep.json").read_bytes())
    assert mended.model_dump_json() == whole.model_dump_json().replace('"whole', f'"{OUT}')


def test_consent_to_the_cost_is_asked_for_once(
    evaluated: Callable[..., Report], capsys: pytest.CaptureFixture[str]
) -> None:
    """With an estimate of all points, from what the evaluation itself has taken; a cap needs none."""
    evaluated(yes=True, price_in=1.0, price_out=2.0)
    capsys.readouterr()
    package.sweep(["evals/agent"], iterations=[1], top_k=[3], out="capped", max_cost=1.0)
    assert "--max-cost" not in capsys.readouterr().err
    swept = package.sweep(["evals/agent"], iterations=[1, 2, 4], top_k=[1])
    said = capsys.readouterr().err
    assert said.count("no --max-cost limits it") == 1
    low, high = map(float, re.findall(r"\$([0-9.]+)", said)[:2])
    assert swept.cost_usd is not None
    assert low <= swept.cost_usd <= high
    shutil.rmtree("evals/agent")
    evaluated(yes=True, price_in=1.0, price_out=2.0, seed=1)  # the points in the sweep's folder are of another one now
    capsys.readouterr()
    package.sweep(["evals/agent"], iterations=[1], top_k=[3])
    assert "1 point on 4 questions: about $" in capsys.readouterr().err


# -- what goes wrong ---------------------------------------------------------------------------------------------------


def test_a_point_with_failed_questions_is_drawn_without_them_and_marked(evaluated: Callable[..., Report]) -> None:
    """They are left out of every point, so that all are over the same questions; the same call tries them again. The
    drawings hold the numbers, and the name of a folder as text."""
    ill = {1: "In what year", 5: ""}

    def say(request: ChatRequest, _: int) -> Completion:
        user = request.messages[-1].content
        if user.removeprefix("Question: ").startswith(ill.get(user.count("\nPassage "), "nothing")):
            raise ModelError("the endpoint has had enough", cause="http_400")
        answer = "Ashenmouth" if user.count("\nPassage ") > 1 else "no"
        return Completion(text=f"<answer>{answer}</answer>", finish_reason="stop", prompt_tokens=9)

    run, model = "evals/<b>&'r\"", ScriptedModel(say)
    evaluated(run, method="rag", chat_model=model)
    swept = package.sweep(run, chat_model=model, out="swept")
    one, three, five = swept.evaluations[0].points
    failed = sum(each.error is not None for each in read_predictions(Path(one.run)))
    assert 0 < failed < 4
    assert (swept.questions, swept.failed, swept.owed) == (4 - failed, failed, failed + 4)
    assert [(each.finished, each.failed) for each in (one, three, five)] == [(True, failed), (True, 0), (False, 4)]
    assert {each.metrics["em"].n for each in (one, three)} == {4 - failed}
    page = Path("swept/sweep.md").read_text("utf-8")
    assert f"{failed} failed" in page
    assert "every question failed" in page
    drawing = Path("swept/top-k.svg").read_text("utf-8")
    assert not Path("swept/iterations.svg").exists()
    assert ET.fromstring(drawing).get("aria-label") == (  # noqa: S314 - our own
        "<b>&'r\" by passages per search (top-k): 1: EM 0.0, F1 0.0; 3: EM 0.0, F1 0.0"
    )
    assert "hollow: some questions failed" in drawing
    assert "<b>" not in drawing
    ill.clear()
    mended = package.sweep([run], chat_model=model, out="swept")
    assert (mended.questions, mended.owed, mended.unfinished) == (4, 0, 0)
    assert "hollow" not in Path("swept/top-k.svg").read_text("utf-8")


def test_what_cannot_be_swept_is_refused_before_anything_is_asked(evaluated: Callable[..., Report]) -> None:
    """With what to do; nothing is written."""
    evaluated(method="rag")
    evaluated("evals/direct", method="direct")
    evaluated("evals/fewer", method="rag", limit=2)
    recorded = orjson.loads(Path("evals/agent/report.json").read_bytes())
    for name, changed in (
        ("older", {"settings": recorded["settings"] | {"max_searches": 4}}),
        ("moved", {"model": "tiny@0123"}),
        ("copy", {}),
        ("failed", {"answered": 0}),
    ):
        shutil.copytree("evals/agent", f"evals/{name}")
        Path(f"evals/{name}/report.json").write_bytes(orjson.dumps(recorded | changed))
    evaluated("evals/seed", method="rag", seed=1)
    settings = orjson.loads(Path("evals/seed/report.json").read_bytes())["settings"] | {"seed": 0}
    Path("evals/seed/report.json").write_bytes(orjson.dumps(recorded | {"settings": settings}))
    for runs, said in (
        ([], "give the folder of an evaluation"),
        (["evals/none"], "there is no evaluation evals/none"),
        (["evals/direct"], "evals/direct is an evaluation of direct, which does not search; leave it out"),
        (["evals/agent", "evals/copy"], "evals/copy is the same evaluation as evals/agent"),
        (["evals/failed"], "every question of evals/failed failed"),
        (["evals/agent", "evals/fewer"], "are evaluations of different questions; sweep each by itself"),
        (["evals/older"], "max_searches is not known"),
        (["evals/moved"], "was answered by tiny@0123, but its settings now lead to offline"),
        (["evals/seed"], "cannot be repeated as it was: seed was 1, is 0"),
    ):
        with pytest.raises(InputError, match=re.escape(said)):
            package.sweep(runs, out="swept")
        assert not Path("swept").exists()
    with pytest.raises(InputError, match="is the folder of a run or an evaluation"):
        package.sweep(["evals/agent"], out="evals/fewer")
