"""Several draws: a critic takes the best step in every state, or whole attempts vote; what that costs, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import reasonrag
from reasonrag.errors import CapReached, InputError
from reasonrag.evaluation.predictions import Prediction, read_predictions
from reasonrag.llm.chat import ChatRequest
from reasonrag.llm.scripted_model import ScriptedModel

QUESTIONS = {"dataset": "atlas", "split": "dev", "limit": 2}
ANSWERS = ["Oslo", "Bergen", "Oslo!", "Rome"]


def answering(replies: Callable[[int], str]) -> ScriptedModel:
    """Answers at once; the draw's number decides how."""
    return ScriptedModel(lambda request, place: replies(request.samples[place]))


def answer(text: str) -> str:
    return f"So the answer is <answer>{text}</answer>"


def drafts() -> ScriptedModel:
    return answering(lambda sample: answer(ANSWERS[sample]))


def preferring(text: str) -> ScriptedModel:
    """A critic that likes one answer."""

    def score(request: ChatRequest, _: int) -> str:
        return "2.5" if f">{text}<" in request.messages[-1].content else "-1.0"

    return ScriptedModel(score, name="critic")


def evaluated(run: Path, model: ScriptedModel, critic: ScriptedModel | None = None, **flags: Any) -> list[Prediction]:
    reasonrag.evaluate(**QUESTIONS, run=run, chat_model=model, critic_model=critic, **flags)
    return read_predictions(run)


def test_the_step_that_the_critic_scores_highest_is_taken_and_the_others_are_told(tmp_path: Path) -> None:
    model, critic = drafts(), preferring("Bergen")
    for each in evaluated(tmp_path, model, critic, best_of=4):
        assert (each.answer, each.calls) == ("Bergen", 4)
        [step] = each.steps
        assert step.score == 2.5
        assert [(text, score) for text, score in step.passed_over] == [
            (answer(other), -1.0) for other in ("Oslo", "Oslo!", "Rome")
        ]
    assert {request.sampling.temperature for request in model.requests} == {1.0}
    report = reasonrag.evaluate(**QUESTIONS, run=tmp_path, chat_model=model, critic_model=critic, best_of=4)
    assert (report.usage.calls, report.usage.critic_calls) == (8, 8)
    assert (len(model.requests), len(critic.requests)) == (2, 8), "the second time the journal answers"


def test_an_equal_draft_is_scored_once_and_one_that_takes_no_step_never_wins(tmp_path: Path) -> None:
    replies = [answer("Oslo"), "no tag at all", answer("Oslo"), answer("Rome")]
    model = ScriptedModel(
        lambda request, place: replies[request.samples[place]] if len(request.samples) > 1 else "no tag again"
    )
    critic = ScriptedModel(lambda *_: "0.5")
    [first, _] = evaluated(tmp_path, model, critic, best_of=4)
    assert first.answer == "Oslo", "of equal scores the earliest"
    assert len(critic.requests) == 4, "two different ones a question"


def test_where_no_draft_takes_a_step_the_attempt_ends_as_it_does_without_a_critic(tmp_path: Path) -> None:
    critic = ScriptedModel(lambda *_: "0.5")
    [first, _] = evaluated(tmp_path, answering(lambda _: "no tag"), critic, best_of=2)
    assert (first.answer, first.malformed, len(critic.requests)) == (None, True, 0)


def test_attempts_vote_but_for_case_and_punctuation_and_their_answers_are_told(tmp_path: Path) -> None:
    for each in evaluated(tmp_path, drafts(), vote=4):
        assert (each.answer, each.votes, each.calls) == ("Oslo", ANSWERS, 4)


@pytest.mark.parametrize(
    ("answers", "taken"),
    [(["Rome", "Oslo"], "Rome"), (["", "Oslo", "Rome", "rome"], "Rome"), (["", ""], None)],
    ids=["a tie: the first", "who has no answer has no vote", "none has one"],
)
def test_the_earliest_of_the_most_frequent_answers_is_taken(
    tmp_path: Path, answers: list[str], taken: str | None
) -> None:
    model = answering(lambda sample: answer(answers[sample]) if answers[sample] else "no tag")
    [first, _] = evaluated(tmp_path, model, vote=len(answers))
    assert first.answer == taken


def test_scores_count_towards_the_caps(tmp_path: Path) -> None:
    with pytest.raises(CapReached):
        evaluated(tmp_path, drafts(), preferring("Oslo"), best_of=4, max_calls=7)


REFUSALS: dict[str, tuple[dict[str, Any], bool, str]] = {
    "no critic": ({"best_of": 4}, False, "--best-of needs --critic"),
    "one draw": ({}, True, "--critic needs --best-of"),
    "both": ({"best_of": 4, "vote": 4}, True, "exclude each other"),
    "greedy": ({"vote": 4, "temperature": 0}, False, "gives the same reply every time"),
    "a baseline": ({"vote": 4, "method": "cot"}, False, "--vote goes with --method agent"),
}


@pytest.mark.parametrize(("flags", "critic", "says"), REFUSALS.values(), ids=REFUSALS)
def test_draws_that_make_no_sense_are_refused(tmp_path: Path, flags: dict[str, Any], critic: bool, says: str) -> None:
    with pytest.raises(InputError, match=says):
        evaluated(tmp_path / "run", drafts(), preferring("Oslo") if critic else None, **flags)
    assert not (tmp_path / "run").exists()


def test_another_number_of_draws_or_another_critic_is_another_evaluation(tmp_path: Path) -> None:
    evaluated(tmp_path, drafts(), preferring("Oslo"), best_of=4)
    with pytest.raises(InputError, match="best_of"):
        evaluated(tmp_path, drafts(), preferring("Oslo"), best_of=2)
    other = ScriptedModel(lambda *_: "1", name="another")
    with pytest.raises(InputError, match="critic"):
        evaluated(tmp_path, drafts(), other, best_of=4)


def test_ask_takes_the_best_step_too() -> None:
    found = reasonrag.ask("Where?", dataset="atlas", chat_model=drafts(), critic_model=preferring("Rome"), best_of=4)
    assert (found.answer, found.calls, found.scores) == ("Rome", 4, 4)
