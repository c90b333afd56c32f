"""Several draws: a critic takes the best step in every state, or whole attempts vote; what that costs, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

import reasonrag
from preference.candidate_records import question_key
from reasonrag.errors import CapReached, InputError, ModelError
from reasonrag.evaluation.predictions import Prediction, read_predictions
from reasonrag.evaluation.report import read_report
from reasonrag.llm.chat import ChatRequest, Completion
from tests.helpers.command_line import Reasonrag
from tests.helpers.scripted_model import ScriptedModel
from tests.reasonrag.llm.test_critic import FACTS, folder_of

QUESTIONS: dict[str, Any] = {"dataset": "atlas", "split": "dev", "limit": 2}
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


def test_the_step_that_the_critic_scores_highest_is_taken(tmp_path: Path) -> None:
    model, critic = drafts(), preferring("Bergen")
    for each in evaluated(tmp_path, model, critic, best_of=4):
        assert (each.answer, each.calls) == ("Bergen", 4)
        [step] = each.steps
        assert (step.drafts, step.score) == (4, 2.5)
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
    assert [(each.drafts, each.score, each.parse_error) for each in first.steps] == [(2, None, "no_tag")]
    assert read_report(tmp_path).metrics["critic_calls"].value == 0


@pytest.mark.parametrize(
    ("answers", "taken"),
    [
        (["Rome", "Oslo"], "Rome"),
        (ANSWERS, "Oslo"),
        (["", "Oslo", "Rome", "rome"], "Rome"),
        (["", ""], None),
    ],
    ids=["a tie: the first", "punctuation is nothing", "who has no answer has no vote", "none has one"],
)
def test_the_earliest_of_the_most_frequent_answers_is_taken_and_all_are_told(
    tmp_path: Path, answers: list[str], taken: str | None
) -> None:
    model = answering(lambda sample: answer(answers[sample]) if answers[sample] else "no tag")
    [first, _] = evaluated(tmp_path, model, vote=len(answers))
    assert (first.answer, first.votes) == (taken, [each or None for each in answers])


def test_scores_count_towards_the_caps(tmp_path: Path) -> None:
    with pytest.raises(CapReached):
        evaluated(tmp_path, drafts(), preferring("Oslo"), best_of=4, max_calls=7)


def test_the_critic_is_shown_the_prompt_of_the_state_and_the_step_as_the_agent_keeps_it(tmp_path: Path) -> None:
    """A draft that the repair turn mended is scored as it was mended."""

    def reply(request: ChatRequest, place: int) -> str:
        return answer("Oslo") if len(request.samples) == 1 else ["no tag", answer("Rome")][place]

    critic = preferring("Oslo")
    [first, _] = evaluated(tmp_path, model := ScriptedModel(reply), critic, best_of=2)
    assert (first.answer, first.calls, first.steps[0].repaired) == ("Oslo", 3, True)
    plain = [each.messages for each in model.requests if len(each.samples) > 1]
    assert {each.messages[:-1] for each in critic.requests} == set(plain)
    assert {each.messages[-1].content for each in critic.requests} == {answer("Oslo"), answer("Rome")}


def test_a_score_that_was_not_to_be_had_is_asked_for_the_next_time_and_nothing_else_is(tmp_path: Path) -> None:
    def fails(request: ChatRequest, _: int) -> str:
        if ">Rome<" in request.messages[-1].content:
            raise ModelError("the critic is ill", cause="http_500")
        return "1"

    failing = ScriptedModel(fails)
    failed = evaluated(tmp_path, drafts(), failing, best_of=4)
    assert [each.error.cause for each in failed if each.error] == ["http_500", "http_500"]
    silent, again = drafts(), ScriptedModel(lambda *_: "1")
    assert [each.answer for each in evaluated(tmp_path, silent, again, best_of=4)] == ["Oslo", "Oslo"]
    assert silent.requests == []
    assert {">Rome<" in each.messages[-1].content for each in again.requests} == {True}
    assert len(failing.requests) == 8


def costly(_request: ChatRequest, _position: int) -> Completion:
    return Completion(text="1", finish_reason="stop", prompt_tokens=1000)


def test_what_a_critic_reads_is_told_apart(tmp_path: Path, reasonrag: Reasonrag) -> None:
    """In the report and on its page; where evaluations are compared, other draws and another critic are warned of."""
    best, vote = tmp_path / "best", tmp_path / "vote"
    critic = ScriptedModel(costly, name="critic")
    flags: dict[str, Any] = {"price": "scripted=0,0"}
    evaluated(best, drafts(), critic, best_of=4, **flags)
    evaluated(vote, drafts(), vote=4, **flags)
    report = read_report(best)
    assert (report.usage.critic_calls, report.usage.critic_prompt_tokens) == (8, 8000)
    assert (report.critic, report.best_of, report.cost_usd) == ("critic", 4, 0.0)
    assert (report.metrics["calls"].value, report.metrics["critic_calls"].value) == (4, 4)
    page = (best / "report.md").read_text("utf-8")
    assert "| scored by critic | 8 steps, 8,000 tokens in |" in page
    assert "| at most | 28 completions and 3 searches an attempt |\n| best of | 4 |\n" in page
    assert "| attempts that vote | 4 |" in (vote / "report.md").read_text()
    evaluated(tmp_path / "other", drafts(), ScriptedModel(costly, name="another"), best_of=4)
    evaluated(tmp_path / "few", drafts(), vote=2)
    compared = reasonrag("compare", best, vote, tmp_path / "other", tmp_path / "few")
    assert compared.status == 0, compared.err
    said = " ".join(compared.out.split())
    for changed in ("best_of was 4, is None", "critic was 'critic', is None", "vote was None, is 4"):
        assert changed in said
    assert "other used critic another, best critic: that alone may explain a difference" in compared.err
    assert "few used draws (--best-of or --vote) 2, best 4" in compared.err
    assert "other used draws" not in compared.err


def test_an_option_has_the_votes_of_its_letter_and_of_its_text(tmp_path: Path) -> None:
    question = {
        "id": "q",
        "question": "What does it do?",
        "golden_answers": ["B"],
        "metadata": {"choices": ["sleep", "flow"]},
    }
    Path("own.jsonl").write_bytes(orjson.dumps(question))
    Path("corpus.jsonl").write_bytes(orjson.dumps({"id": "p", "contents": "It\nIt flows."}))
    said = ["sleep", "sleep", "(B)", "flow", "B"]
    model = answering(lambda sample: answer(said[sample]))
    reasonrag.evaluate(questions="own.jsonl", corpus="corpus.jsonl", run=tmp_path, chat_model=model, vote=5)
    assert read_predictions(tmp_path)[0].answer == "(B)"


def test_a_critic_that_was_trained_on_the_questions_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    seen = [question_key(each.question) for each in evaluated(tmp_path / "plain", drafts())]
    folder, model = folder_of(tmp_path / "mine", FACTS, questions=seen, asked={}), drafts()
    asked: dict[str, Any] = {**QUESTIONS, "run": tmp_path / "run", "chat_model": model, "best_of": 4}
    with pytest.raises(InputError, match=r"was trained on 2 of these questions.*`allow_critic=True`"):
        reasonrag.evaluate(**asked, critic=str(folder))
    assert (model.requests, (tmp_path / "run").exists()) == ([], False)


REFUSALS: dict[str, tuple[dict[str, Any], bool, str]] = {
    "no critic": ({"best_of": 4}, False, "`critic`, a folder .* goes with `best_of`"),
    "one draw": ({}, True, "goes with `best_of` N"),
    "both": ({"best_of": 4, "vote": 4}, True, "exclude each other"),
    "greedy": ({"vote": 4, "temperature": 0}, False, "gives the same reply every time"),
    "a baseline": ({"vote": 4, "method": "cot"}, False, "`vote` goes with `method` agent"),
    "a baseline's critic": ({"method": "rag"}, True, "`critic` goes with `method` agent"),
    "one of one": ({"best_of": 1}, True, "`best_of`: must be at least 2"),
    "too many": ({"vote": 65}, False, "`vote`: must be at most 64"),
}


@pytest.mark.parametrize(("flags", "critic", "says"), REFUSALS.values(), ids=REFUSALS)
def test_draws_that_make_no_sense_are_refused(tmp_path: Path, flags: dict[str, Any], critic: bool, says: str) -> None:
    with pytest.raises(InputError, match=says):
        evaluated(tmp_path / "run", drafts(), preferring("Oslo") if critic else None, **flags)
    assert not (tmp_path / "run").exists()
