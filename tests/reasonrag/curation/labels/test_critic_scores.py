"""Critics as witnesses of `pairs`: which pairs and paths they leave, who may judge whom, and what is paid once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import reasonrag
from preference import PairingRules, StateRecord
from preference.best_path import right_attempts
from preference.candidate_records import QuestionRecord, question_key, read_lines
from reasonrag.concurrency import run_to_end
from reasonrag.curation.labels.critic_scores import CriticWitnesses, score_by_critics
from reasonrag.curation.pairs import pairs_parts
from reasonrag.errors import CapReached, InputError, ModelError
from reasonrag.llm.chat import ChatRequest
from reasonrag.llm.critic import FoundCritic, critic_spec
from reasonrag.llm.endpoint.endpoint import Limits
from reasonrag.progress import SilentWatcher
from reasonrag.run.scoring import AskedCritic
from reasonrag.training.provenance import question_keys
from tests.helpers.scripted_model import ScriptedModel


def kept_pairs(out: Path) -> set[str]:
    return {row["pair_id"] for row in reasonrag.load_pairs(out)}


def truth(run: Path, tmp_path: Path, *, sign: float) -> ScriptedModel:
    """A critic that knows the values, or their opposite."""
    reasonrag.pairs(run, out=tmp_path / "known", validation=0)
    known = {
        (state.prompt[1].content, step.response): step.reward or 0.0
        for state in read_lines(tmp_path / "known" / "candidates.jsonl", StateRecord)
        for step in state.steps
    }

    def score(request: ChatRequest, _: int) -> str:
        return str(sign * known.get((request.messages[1].content, request.messages[2].content), 0.0))

    return ScriptedModel(score)


def test_a_pair_is_kept_only_if_the_critic_prefers_the_same_step(run: Path, tmp_path: Path) -> None:
    agreeing, opposing = truth(run, tmp_path, sign=1.0), truth(run, tmp_path, sign=-1.0)
    everything = kept_pairs(tmp_path / "known")
    summary = reasonrag.pairs(run, out=tmp_path / "same", consensus=True, critic_model=agreeing, validation=0)
    assert kept_pairs(tmp_path / "same") == everything != set()
    assert summary.critics["critics"] == ["scripted"]
    assert summary.critics["calls"] == len(agreeing.requests)
    none = reasonrag.pairs(run, out=tmp_path / "none", consensus=True, critic_model=opposing, validation=0)
    assert none.pairs == 0 < none.dropped["no_consensus"]


def test_a_critic_is_shown_the_state_and_the_step_as_the_pairs_have_them(run: Path, tmp_path: Path) -> None:
    """A step on the best path and in a pair is one score."""
    model = ScriptedModel(lambda *_: "1.0")
    reasonrag.pairs(run, out=tmp_path, validation=0)
    pairs = list(reasonrag.load_pairs(tmp_path))
    told = reasonrag.pairs(run, out=tmp_path, consensus=True, format=["sft"], critic_model=model, validation=0).critics
    shown = {tuple(turn.content for turn in request.messages) for request in model.requests}
    assert told["scored"] == len(model.requests) == len(shown)
    for row in pairs:
        assert {(row["instruction"], row["input"], row[side]) for side in ("chosen", "rejected")} <= shown


def test_a_second_time_the_journal_answers_and_a_cap_stops_before_it_is_crossed(run: Path, tmp_path: Path) -> None:
    model = ScriptedModel(lambda request, _: str(float(len(request.messages[2].content))))
    with pytest.raises(CapReached):
        reasonrag.pairs(run, out=tmp_path, consensus=True, critic_model=model, max_calls=5)
    assert len(model.requests) == 5
    first = reasonrag.pairs(run, out=tmp_path, consensus=True, critic_model=model)
    asked = len(model.requests)
    again = reasonrag.pairs(run, out=tmp_path, consensus=True, critic_model=model)
    assert (len(model.requests), again.critics["session_calls"]) == (asked, 0)
    assert (again.pairs, again.critics["calls"]) == (first.pairs, asked)


def test_the_values_are_the_second_witness_of_a_judge(run: Path, tmp_path: Path) -> None:
    judge = ScriptedModel(lambda *_: "So the pick is <pick>1 2</pick>")
    judged = reasonrag.pairs(run, out=tmp_path / "judged", label="judge", chat_model=judge)
    agreed = reasonrag.pairs(run, out=tmp_path / "agreed", label="judge", chat_model=judge, consensus=True)
    assert 0 < agreed.pairs < judged.pairs
    assert all(row["margin"] >= 0.05 for row in reasonrag.load_pairs(tmp_path / "agreed"))


@pytest.mark.parametrize(("score", "kept"), [("0.0", True), ("-0.1", False)])
def test_a_path_stays_for_fine_tuning_if_every_step_reaches_the_threshold(
    run: Path, tmp_path: Path, score: str, kept: bool
) -> None:
    summary = reasonrag.pairs(
        run, out=tmp_path, format=["sft"], critic_model=ScriptedModel(lambda *_: score), validation=0
    )
    told = summary.refinement
    assert told["paths"] > 0
    assert (told["kept"], summary.files["sft.json"] > 0) == (told["paths"] * kept, kept)


def test_steps_of_plain_attempts_are_refined_each_for_itself_and_some_questions_kept_for_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every right attempt is scored. Held-out questions can be asked at once, and count as not trained on."""
    monkeypatch.chdir(tmp_path)
    chains: dict[str, Any] = {"recipe": "chains", "set": {"search.group": 4}}
    run = reasonrag.generate(dataset="atlas", limit=8, run="run", **chains).run
    flags: dict[str, Any] = {"format": ["sft"], "refine": "steps", "hold_out": 0.4, "validation": 0}
    model = ScriptedModel(lambda request, _: str(len(request.messages[2].content)))
    summary = reasonrag.pairs(run, out=tmp_path / "data", critic_model=model, **flags)
    questions = [*read_lines(tmp_path / "data" / "questions.jsonl", QuestionRecord)]
    assert sum(len(right_attempts(each)) for each in questions) > sum(each.path is not None for each in questions)
    told, held = summary.refinement, summary.files["held_out.jsonl"]
    assert "reasonrag train prorag-refine --data" in "\n".join(str(each) for each in pairs_parts(summary))
    assert told["kept"] == summary.files["sft.json"] >= int(0.33 * told["steps"]) > 0 == told["unscored"]
    assert summary.critics["scored"] > told["steps"], "those of questions that are held out, too"
    assert len(question_keys(tmp_path / "data")[0]) == 8 - held < 8
    [corpus] = tmp_path.glob("indexes/*/corpus.jsonl")
    later = reasonrag.generate(questions="data/held_out.jsonl", corpus=corpus, model="offline", run="later", **chains)
    assert later.done == held
    known = FoundCritic("known", questions=frozenset(question_key(each.question) for each in questions))
    asked = (AskedCritic(known, critic_spec(known, Limits(4, 10.0)), model),)
    witnesses = CriticWitnesses(asked, None, paths=True, steps="right")
    with pytest.raises(InputError, match="trained on all of these questions"):
        run_to_end(score_by_critics(tmp_path / "data", tmp_path / "data", witnesses, SilentWatcher()))
    again = reasonrag.pairs("data", out=tmp_path / "again", format=["sft"], validation=0)
    assert again.files["held_out.jsonl"] == held, "a data set's stay held out in those made of it"
    reasonrag.pairs(run, out=tmp_path / "data", format=["sft"], validation=0)
    assert not (tmp_path / "data" / "held_out.jsonl").exists(), "of questions that rows are made of now"


STEPS: dict[str, Any] = {"refine": "steps", "format": ["sft"], "critic_model": ScriptedModel(lambda *_: "1")}
REFUSALS: dict[str, tuple[dict[str, Any], str]] = {
    "no witness": ({"consensus": True}, "`consensus=True` needs a second witness"),
    "a judge has its witness": (
        {"consensus": True, "label": "judge", "model": "offline", "critic_model": ScriptedModel(lambda *_: "1")},
        "unless a judge labels .the values are its second witness.",
    ),
    "a judge without a name": ({"label": "judge"}, "`label` judge needs `model`"),
    "steps that nothing scores": ({"refine": "steps", "format": ["sft"]}, "`refine` steps needs `critic`"),
    "a share of whole paths": ({"critic_share": 0.5}, "goes with `refine` steps"),
    "two rules": ({"critic_share": 0.5, "critic_threshold": 0.0} | STEPS, "instead of `critic_threshold`"),
    "no step": ({"critic_share": 0} | STEPS, "`critic_share`: must be greater than 0"),
    "more than all": ({"critic_share": 1.5} | STEPS, "`critic_share`: must be at most 1"),
    "nothing to do": ({}, "goes with `consensus=True`, unless"),
}


@pytest.mark.parametrize(("flags", "says"), REFUSALS.values(), ids=REFUSALS)
def test_settings_that_do_not_fit_together_are_refused(
    run: Path, tmp_path: Path, flags: dict[str, Any], says: str
) -> None:
    flags = flags or {"critic_model": ScriptedModel(lambda *_: "1")}
    with pytest.raises(InputError, match=says):
        reasonrag.pairs(run, out=tmp_path / "never", **flags)


def test_one_failed_score_loses_no_other_one_of_its_state(run: Path, tmp_path: Path) -> None:
    reasonrag.pairs(run, out=tmp_path, validation=0)
    lost = next(iter(reasonrag.load_pairs(tmp_path)))

    def score(request: ChatRequest, _: int) -> str:
        if (request.messages[1].content, request.messages[2].content) == (lost["input"], lost["rejected"]):
            raise ModelError("too long", cause="context_length")
        return "1.0"

    told = reasonrag.pairs(run, out=tmp_path, consensus=True, critic_model=ScriptedModel(score), validation=0).critics
    assert told["given_up"] == 1
    steps = [
        step.critic_score
        for state in read_lines(tmp_path / "candidates.jsonl", StateRecord)
        for step in state.steps
        if state.prompt[1].content == lost["input"] and step.response == lost["chosen"]
    ]
    assert steps == [1.0] * len(steps) != []


def test_a_critic_judges_no_question_that_it_was_trained_on_and_others_do_it_for_it(run: Path, tmp_path: Path) -> None:
    reasonrag.pairs(run, out=tmp_path, validation=0)
    asked = sorted({row["question"] for row in reasonrag.load_pairs(tmp_path)})
    halves = asked[::2], asked[1::2]
    models = [ScriptedModel(lambda *_: "1.0", name=name) for name in ("even", "odd")]
    witnesses = []
    for model, half in zip(models, halves, strict=True):
        found = FoundCritic(model.name, questions=frozenset(map(question_key, [*half, asked[0]])))
        witnesses.append(AskedCritic(found, critic_spec(found, Limits(4, 10.0)), model))
    named = CriticWitnesses(tuple(witnesses), PairingRules(), paths=False)
    scores = run_to_end(score_by_critics(tmp_path, tmp_path, named, SilentWatcher()))
    for model, half in zip(models, halves, strict=True):
        assert not {request.messages[1].content for request in model.requests} & {
            state.prompt[1].content
            for state in read_lines(tmp_path / "candidates.jsonl", StateRecord)
            if state.question in half
        }
    scored = {
        state.question
        for state in read_lines(tmp_path / "candidates.jsonl", StateRecord)
        for step in state.steps
        if step.critic_score is not None
    }
    assert asked[0] not in scored, "every critic was trained on it"
    assert (scores.seen_by_all_critics, scores.scored > 0) == (1, True)
