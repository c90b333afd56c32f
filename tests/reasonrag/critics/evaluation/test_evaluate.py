"""`evaluate-critic`: critics that know, or look at something else, on real trees; only their numbers are scripted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

import reasonrag
from preference.candidates import question_key
from preference.records import read_rollouts
from reasonrag.critics.evaluation.observations import Observations, add_tree, fresh_values
from reasonrag.critics.evaluation.report import CriticEvaluation
from reasonrag.errors import CapReached, InputError
from reasonrag.llm.chat import ChatRequest
from reasonrag.llm.critic import find_critic
from reasonrag.llm.scripted_model import ScriptedModel
from tests.reasonrag.llm.test_critic import FACTS, folder_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trees of two dozen questions."""
    home = tmp_path_factory.mktemp("run")
    reasonrag.generate(dataset="atlas", limit=24, run=home / "run")
    return home / "run"


@pytest.fixture(scope="module")
def values(run: Path) -> dict[tuple[str, str], float]:
    """True values by state and step."""
    found = Observations()
    for rollout in read_rollouts(run / "rollouts.jsonl"):
        add_tree(found, rollout, fresh_values(run), run=0, enough=0.1)
    return {(step.prompt[1].content, step.response): step.value or 0.0 for step in found.steps}


def critic_of(tmp_path: Path, **changes: Any) -> Path:
    return folder_of(tmp_path / "critic", {**FACTS, **changes}, questions=[])


def knowing(values: dict[tuple[str, str], float], *, sign: float = 1.0) -> ScriptedModel:
    def score(request: ChatRequest, _: int) -> str:
        value = values.get((request.messages[1].content, request.messages[2].content), 0.5)
        return str(sign * 8 * (value - 0.5))

    return ScriptedModel(score)


def by_length(request: ChatRequest, _: int) -> str:
    return str(-float(len(request.messages[2].content)))


def evaluated(critic: Path, run: Path, model: ScriptedModel, **flags: Any) -> CriticEvaluation:
    return reasonrag.evaluate_critic(critic, run, critic_model=model, bootstrap=200, **flags)


def test_a_critic_that_knows_the_values_passes_every_check(
    run: Path, tmp_path: Path, values: dict[tuple[str, str], float]
) -> None:
    critic = critic_of(tmp_path)
    found = evaluated(critic, run, knowing(values))
    assert (found.accuracy.value, found.failures) == (1.0, [])
    assert found.calibration is not None
    assert found.calibration.auc == 1.0
    for row in found.best_of_steps:
        assert row.critic == pytest.approx(row.oracle)
        assert row.random <= row.oracle + 1e-9
    assert found.liked_errors.value in (None, 0.0)
    told = orjson.loads((critic / "reasonrag.json").read_bytes())
    assert told["critic"]["verdict"] == {"failures": [], "evaluation": str(critic / "evaluation")}
    assert (critic / "evaluation" / "critic_evaluation.json").is_file()


def test_a_critic_that_is_always_wrong_is_not_offered_and_then_refused(
    run: Path, tmp_path: Path, values: dict[tuple[str, str], float]
) -> None:
    critic = critic_of(tmp_path)
    found = evaluated(critic, run, knowing(values, sign=-1.0))
    assert found.accuracy.value == 0.0
    assert len(found.failures) == 1
    assert "75% are needed" in found.failures[0]
    with pytest.raises(InputError, match=r"failed its evaluation.*--allow-critic"):
        reasonrag.pairs(run, out=tmp_path / "data", consensus=True, critic=[str(critic)])


def test_a_critic_that_looks_at_the_length_is_told_so_and_needs_no_state(run: Path, tmp_path: Path) -> None:
    found = evaluated(critic_of(tmp_path), run, ScriptedModel(by_length))
    assert found.accuracy.value == found.shorter.value
    assert found.true_state.value == 0.5, "the same step scores the same in every state"
    assert any("length of a step alone" in each for each in found.remarks)


def test_a_critic_that_is_no_better_than_an_outcome_model_is_not_offered(
    run: Path, tmp_path: Path, values: dict[tuple[str, str], float]
) -> None:
    against = folder_of(tmp_path / "outcome", {**FACTS, "labels": "outcome"}, questions=[])
    same = evaluated(critic_of(tmp_path), run, knowing(values), against=str(against), outcome_model=knowing(values))
    assert same.advantage is not None
    assert (same.advantage.value, len(same.failures)) == (0.0, 1)
    assert "not better than the outcome model" in same.failures[0]
    worse = ScriptedModel(by_length)
    flags = {"against": str(against), "outcome_model": worse, "out": tmp_path / "another"}
    better = evaluated(tmp_path / "critic", run, knowing(values), **flags)
    assert better.failures == []


def test_only_an_outcome_model_is_compared_with(run: Path, tmp_path: Path) -> None:
    other = folder_of(tmp_path / "other", FACTS, questions=[])
    with pytest.raises(InputError, match="labelled by value, not by outcome"):
        evaluated(critic_of(tmp_path), run, ScriptedModel(by_length), against=str(other))


def test_questions_that_the_critic_was_trained_on_are_left_out(run: Path, tmp_path: Path) -> None:
    asked = [rollout.question for rollout in read_rollouts(run / "rollouts.jsonl")]
    some = folder_of(tmp_path / "critic", FACTS, questions=[question_key(each) for each in asked[:5]])
    model = ScriptedModel(by_length)
    found = evaluated(some, run, model)
    assert (found.questions, found.runs[0].seen) == (len(asked) - 5, 5)
    shown = " ".join(request.messages[1].content for request in model.requests)
    assert not any(each in shown for each in asked[:5])
    everything = folder_of(tmp_path / "all", FACTS, questions=[question_key(each) for each in asked])
    with pytest.raises(InputError, match="24 questions of these runs were trained on"):
        evaluated(everything, run, model)


def test_a_pairwise_critic_has_no_calibration(run: Path, tmp_path: Path) -> None:
    found = evaluated(critic_of(tmp_path, kind="pairwise"), run, ScriptedModel(by_length))
    assert (found.calibration, found.runs[0].auc) == (None, None)


def test_fresh_continuations_are_the_truth_where_a_run_has_them(run: Path, tmp_path: Path) -> None:
    """As `calibrate --revalue` writes them; here they turn every label round."""
    there = tmp_path / "revalued"
    there.mkdir()
    (there / "rollouts.jsonl").write_bytes((run / "rollouts.jsonl").read_bytes())
    reasonrag.pairs(run, out=tmp_path / "data", validation=0)
    rows = list(reasonrag.load_pairs(tmp_path / "data"))
    sample = [
        {
            "question_id": row["question_id"],
            "chosen_id": row["chosen_id"],
            "rejected_id": row["rejected_id"],
            "chosen_fresh": 0.1,
            "rejected_fresh": 0.9,
        }
        for row in rows
    ]
    (there / "calibration").mkdir()
    (there / "calibration" / "report.json").write_bytes(orjson.dumps({"revaluation": {"sample": sample}}))
    chosen = {(row["input"], row["chosen"]) for row in rows}
    model = ScriptedModel(
        lambda request, _: "1" if (request.messages[1].content, request.messages[2].content) in chosen else "0"
    )
    found = evaluated(critic_of(tmp_path), there, model)
    assert (found.runs[0].truth, found.runs[0].pairs) == ("fresh continuations", len(rows))
    assert found.accuracy.value is not None
    assert found.accuracy.value < 0.2


def test_scores_are_kept_when_a_cap_stops_and_asked_once(run: Path, tmp_path: Path) -> None:
    model, critic = ScriptedModel(by_length), critic_of(tmp_path)
    with pytest.raises(CapReached):
        evaluated(critic, run, model, max_calls=10)
    assert len(model.requests) == 10
    first = evaluated(critic, run, model)
    again = evaluated(critic, run, model)
    assert (first.session_calls, again.session_calls) == (first.calls - 10, 0)
    assert len(model.requests) == first.calls


def test_a_critic_whose_scores_are_all_there_is_not_served(run: Path, tmp_path: Path) -> None:
    """The folder has no weights that could be."""
    critic = critic_of(tmp_path)
    first = evaluated(critic, run, ScriptedModel(by_length, name=find_critic(str(critic)).name))
    again = reasonrag.evaluate_critic(critic, run, bootstrap=200)
    assert (again.accuracy, again.session_calls) == (first.accuracy, 0)
