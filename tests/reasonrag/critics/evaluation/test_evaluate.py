"""`evaluate-critic`: critics that know, or look at something else, on real trees; only their numbers are scripted."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

import reasonrag
from preference.candidate_records import question_key
from preference.labelling import distinct_steps, labelled_states
from preference.records import read_rollouts
from reasonrag.critics.evaluation.observations import fresh_values
from reasonrag.critics.evaluation.report import CriticEvaluation
from reasonrag.errors import CapReached, InputError, ModelError
from reasonrag.llm.chat import ChatRequest
from reasonrag.llm.critic import find_critic
from reasonrag.terminal import show
from tests.helpers.scripted_model import ScriptedModel
from tests.reasonrag.llm.test_critic import FACTS, folder_of


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trees of two dozen questions."""
    home = tmp_path_factory.mktemp("run")
    reasonrag.generate(dataset="atlas", limit=24, run=home / "run")
    return home / "run"


@pytest.fixture(scope="module")
def values(run: Path) -> dict[tuple[str, str], float]:
    """True values by state and step."""
    return {
        (state.prompt[1].content, step.response): step.expected_outcome or 0.0
        for rollout in read_rollouts(run / "rollouts.jsonl")
        for state in labelled_states(rollout)
        for step in distinct_steps(state)
    }


BASE = {"base_model": "qwen", "finetuning_type": "full", "splits": ["atlas/train"]}


def critic_of(tmp_path: Path, name: str = "critic", *, questions: Sequence[str] = (), **changes: Any) -> Path:
    return folder_of(tmp_path / name, {**FACTS, **changes}, questions=list(questions), **BASE)


def outcome_model(tmp_path: Path) -> dict[str, Any]:
    """Flags that compare with an outcome model that looks at the length of a step."""
    folder = critic_of(tmp_path, "outcome", labels="outcome")
    return {"against": str(folder), "outcome_model": ScriptedModel(by_length)}


def verdict_in(critic: Path) -> Any:
    return orjson.loads((critic / "reasonrag.json").read_bytes())["critic"].get("verdict")


def knowing(values: dict[tuple[str, str], float], *, sign: float = 1.0) -> ScriptedModel:
    return ScriptedModel(lambda request, _: knowledge(values, request, sign=sign))


def knowledge(values: dict[tuple[str, str], float], request: ChatRequest, *, sign: float = 1.0) -> str:
    value = values.get((request.messages[1].content, request.messages[2].content), 0.5)
    return str(sign * 8 * (value - 0.5))


def by_length(request: ChatRequest, _: int) -> str:
    return str(-float(len(request.messages[2].content)))


def evaluated(critic: Path, run: Path, model: ScriptedModel, **flags: Any) -> CriticEvaluation:
    return reasonrag.evaluate_critic(critic, run, critic_model=model, bootstrap=200, **flags)


def shown_of(found: CriticEvaluation, capsys: pytest.CaptureFixture[str]) -> str:
    """What the terminal shows, on one line."""
    show(found.shown())
    return " ".join(capsys.readouterr().out.split())


def test_a_critic_that_knows_the_values_passes_every_check(
    run: Path, tmp_path: Path, values: dict[tuple[str, str], float], capsys: pytest.CaptureFixture[str]
) -> None:
    critic = critic_of(tmp_path)
    found = evaluated(critic, run, knowing(values), **outcome_model(tmp_path))
    assert (found.accuracy.value, found.verdict, found.failures, found.undecided) == (1.0, "passed", [], [])
    assert (found.scores, found.given_up) == (found.calls, 0)
    assert found.step_only.value == 0.5, "without the state it knows nothing"
    assert list(found.by_margin) == ["below .1", ".1 to .3", "above .3"]
    assert list(found.by_layer) == sorted(found.by_layer, key=int)
    assert verdict_in(critic) == {"failures": [], "evaluation": str(critic / "evaluation")}
    assert (critic / "evaluation" / "critic_evaluation.json").is_file()
    assert found.golden_over_shuffled.value is not None
    assert found.golden_over_shuffled.value > 0.9, "it knows no step of another question in a state"
    assert (found.trained_on, found.runs[0].datasets) == (["atlas/train"], ["atlas/train"])
    assert found.gaps
    assert min(found.gaps) > 0
    shown = shown_of(found, capsys)
    assert "passed: the critic may be used" in shown
    assert shown.index("the outcome model") < shown.index("advantage over it │ +")


def test_a_critic_that_is_always_wrong_is_refused_until_an_evaluation_can_tell_more(
    run: Path, tmp_path: Path, values: dict[tuple[str, str], float], capsys: pytest.CaptureFixture[str]
) -> None:
    critic = critic_of(tmp_path)
    found = evaluated(critic, run, knowing(values, sign=-1.0))
    assert found.accuracy.value == 0.0
    assert (found.verdict, len(found.failures)) == ("failed", 1)
    assert "75% are needed" in found.failures[0]
    assert f"NOT OFFERED: {found.failures[0]}" in shown_of(found, capsys)
    with pytest.raises(InputError, match=r"failed its evaluation.*`allow_critic=True`"):
        reasonrag.pairs(run, out=tmp_path / "data", consensus=True, critic=[str(critic)])
    kept = verdict_in(critic)
    small = evaluated(critic, run, knowing(values), limit=1)
    assert small.verdict == "undecided"
    assert "30 are needed to tell" in small.undecided[0]
    assert verdict_in(critic) == kept is not None


def test_without_an_outcome_model_a_good_critic_is_undecided_and_no_verdict_is_written(
    run: Path, tmp_path: Path, values: dict[tuple[str, str], float], capsys: pytest.CaptureFixture[str]
) -> None:
    critic = critic_of(tmp_path)
    found = evaluated(critic, run, knowing(values))
    assert (found.verdict, found.failures, len(found.undecided)) == ("undecided", [], 1)
    assert verdict_in(critic) is None
    shown = shown_of(found, capsys)
    assert "undecided: it was not compared with an outcome model" in shown
    assert "--against CRITIC" in shown
    assert shown.index("below .1") < shown.index(".1 to .3") < shown.index("above .3")


def test_no_verdict_rests_on_what_is_left_of_many_failed_scores(
    run: Path, tmp_path: Path, values: dict[tuple[str, str], float]
) -> None:
    count = itertools.count()

    def stumbles(request: ChatRequest, _: int) -> str:
        if next(count) % 10 == 0:
            raise ModelError("the server is gone", cause="connection")
        return knowledge(values, request)

    flags = outcome_model(tmp_path)
    found = evaluated(critic_of(tmp_path), run, ScriptedModel(stumbles), **flags)
    assert found.given_up == pytest.approx(next(count) / 10, rel=0.1)
    assert found.verdict == "undecided"
    assert f"{found.given_up:,} of {found.scores:,} scores failed" in found.undecided[0]
    again = evaluated(tmp_path / "critic", run, knowing(values), **flags)
    assert (again.given_up, again.verdict) == (0, "passed")


def test_a_critic_that_looks_at_the_length_is_told_so_and_needs_no_state(run: Path, tmp_path: Path) -> None:
    found = evaluated(critic_of(tmp_path), run, ScriptedModel(by_length))
    assert found.accuracy.value == found.shorter.value
    assert any("length of a step alone" in each for each in found.remarks)
    assert any("right without their state" in each for each in found.remarks)


def test_a_critic_that_is_no_better_than_an_outcome_model_is_not_offered(
    run: Path, tmp_path: Path, values: dict[tuple[str, str], float]
) -> None:
    against = critic_of(tmp_path, "outcome", labels="outcome")
    same = evaluated(critic_of(tmp_path), run, knowing(values), against=str(against), outcome_model=knowing(values))
    assert same.advantage is not None
    assert (same.advantage.value, len(same.failures)) == (0.0, 1)
    assert "not better than the outcome model" in same.failures[0]


def test_what_is_no_run_and_no_outcome_model_is_refused(run: Path, tmp_path: Path) -> None:
    critic = critic_of(tmp_path)
    with pytest.raises(InputError, match="give at least one run directory"):
        reasonrag.evaluate_critic(critic)
    with pytest.raises(InputError, match=r"there is no .*rollouts.jsonl; give a run directory"):
        reasonrag.evaluate_critic(critic, tmp_path)
    with pytest.raises(InputError, match="labelled by value, not by outcome"):
        evaluated(critic, run, ScriptedModel(by_length), against=str(critic_of(tmp_path, "other")))


def test_questions_that_the_critic_was_trained_on_are_left_out(run: Path, tmp_path: Path) -> None:
    asked = [rollout.question for rollout in read_rollouts(run / "rollouts.jsonl")]
    some = critic_of(tmp_path, questions=[question_key(each) for each in asked[:5]])
    model = ScriptedModel(by_length)
    found = evaluated(some, run, model)
    assert (found.questions, found.runs[0].seen) == (len(asked) - 5, 5)
    shown = " ".join(request.messages[1].content for request in model.requests)
    assert not any(each in shown for each in asked[:5])
    everything = critic_of(tmp_path, "all", questions=[question_key(each) for each in asked])
    with pytest.raises(InputError, match="24 questions of these runs were trained on"):
        evaluated(everything, run, model)


def revalued(run: Path, there: Path, **outcomes: float) -> list[dict[str, Any]]:
    """A copy of the run with what `calibrate --revalue` says of its pairs; returns these."""
    there.mkdir()
    (there / "rollouts.jsonl").write_bytes((run / "rollouts.jsonl").read_bytes())
    reasonrag.pairs(run, out=there / "data", validation=0)
    rows = list(reasonrag.load_pairs(there / "data"))
    sample = [
        {name: row[name] for name in ("question_id", "chosen_id", "rejected_id")}
        | {"chosen_fresh": 0.7, "rejected_fresh": 0.3, **outcomes}
        for row in rows
    ]
    (there / "calibration").mkdir()
    (there / "calibration" / "report.json").write_bytes(orjson.dumps({"revaluation": {"sample": sample}}))
    return rows


def test_the_outcomes_of_fresh_continuations_are_the_truth_where_a_run_has_them(run: Path, tmp_path: Path) -> None:
    """As `calibrate --revalue` writes them; here they turn every label round, and discounted values do not. Equal ones
    are ties, however long the paths are; a revaluation without outcomes is to be made again."""
    rows = revalued(run, tmp_path / "run", chosen_outcome=0.1, rejected_outcome=0.9)
    chosen, rejected = ({(row["input"], row[side]) for row in rows} for side in ("chosen", "rejected"))

    def likes_labels(request: ChatRequest, _: int) -> str:
        step = request.messages[1].content, request.messages[2].content
        return "1" if step in chosen else "-1" if step in rejected else "0"

    found = evaluated(critic_of(tmp_path), tmp_path / "run", ScriptedModel(likes_labels))
    assert (found.runs[0].truth, found.runs[0].pairs) == ("fresh continuations", len(rows))
    assert found.accuracy.value is not None
    assert found.accuracy.value < 0.2
    revalued(run, tmp_path / "equal", chosen_outcome=0.5, rejected_outcome=0.5)
    with pytest.raises(InputError, match="there is no pair to judge"):
        evaluated(tmp_path / "critic", tmp_path / "equal", ScriptedModel(by_length))
    revalued(run, tmp_path / "old")
    found = evaluated(tmp_path / "critic", tmp_path / "old", ScriptedModel(by_length))
    assert found.runs[0].truth == "values of the tree"
    assert any("calibrate RUN gives fresh ones" in each for each in found.remarks)


def test_scores_are_kept_when_a_cap_stops_and_asked_once(run: Path, tmp_path: Path) -> None:
    """A critic whose scores are all there is not even served: the folder has no weights that could be."""
    critic = critic_of(tmp_path)
    model = ScriptedModel(by_length, name=find_critic(str(critic)).name)
    with pytest.raises(CapReached):
        evaluated(critic, run, model, max_calls=10)
    assert len(model.requests) == 10
    first = evaluated(critic, run, model)
    again = reasonrag.evaluate_critic(critic, run, bootstrap=200)
    assert (first.session_calls, again.session_calls) == (first.calls - 10, 0)
    assert again.accuracy == first.accuracy
    assert len(model.requests) == first.calls


@pytest.mark.parametrize("told", ["", "[", "null", "3", "[]", '{"revaluation": 3}', '{"revaluation": {"sample": [1]}}'])
def test_a_damaged_calibration_is_named(tmp_path: Path, told: str) -> None:
    (tmp_path / "calibration").mkdir()
    (tmp_path / "calibration" / "report.json").write_text(told)
    with pytest.raises(InputError, match=r"report\.json is damaged: .*reasonrag calibrate"):
        fresh_values(tmp_path)
