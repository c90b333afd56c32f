"""`reasonrag ask`: one question, its steps as they are taken, and an honest end."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import reasonrag as package
from preference.candidate_records import question_key
from reasonrag.agent.agent import AgentStep
from reasonrag.errors import InputError
from reasonrag.evaluation.ask import AgentAnswer, show_step
from reasonrag.evaluation.predictions import PredictedStep
from reasonrag.llm.chat import Completion
from reasonrag.retrieval.retriever import IndexRetriever
from reasonrag.terminal import show
from reasonrag.training.provenance import Provenance, TrainingConditions
from tests.helpers.command_line import CORPUS, Reasonrag
from tests.helpers.jsonl import write_passages
from tests.helpers.listener import Listener
from tests.helpers.scripted_model import ScriptedModel

QUESTION = "Which river flows through the capital of France?"
REPLIES = [
    "So the next query is <query>capital of France</query>",
    "<evidence>Paris lies on the Seine.</evidence>",
    "So the answer is <answer>Seine</answer>",
]


@pytest.fixture
def corpus() -> Path:
    return write_passages(Path("corpus.jsonl"), CORPUS)


def test_it_answers_and_says_on_what(retriever: IndexRetriever) -> None:
    """Steps in order as they are taken; every passage that was shown once; nothing is written."""
    told: list[tuple[AgentStep, PredictedStep]] = []
    model = ScriptedModel(REPLIES)
    found = package.ask(QUESTION, chat_model=model, retriever=retriever, top_k=2, told=lambda *step: told.append(step))
    assert (found.answer, found.searches, found.calls, found.grounded) == ("Seine", 1, 3, True)
    assert found.evidence == ["Paris lies on the Seine."]
    assert [each.id for each in found.sources] == ["paris", "france"]
    assert [recorded for _, recorded in told] == found.steps
    assert [step.action_type for step, _ in told] == ["query", "evidence", "answer"]
    assert {each.sampling.temperature for each in model.requests} == {0.0}
    assert list(Path().iterdir()) == []


def test_the_terminal_shows_steps_evidence_sources_and_cost(reasonrag: Reasonrag, endpoint: str, corpus: Path) -> None:
    done = reasonrag("ask", QUESTION, "--corpus", corpus, "--model", "offline", "--base-url", endpoint)
    assert done.status == 0, done.err
    shown = [line for line in done.out.splitlines() if line]
    assert shown[0].startswith("think: ")
    assert re.match(r"  1\. France \[france\]", shown[1])
    assert any(line.startswith("evidence: ") for line in shown)
    assert any(line == "source: Paris [paris]" for line in shown)
    assert shown[-2].startswith("answer: ")
    assert re.fullmatch(r"\d+ searches, \d+ completions, [\d,]+ tokens in, \d+ out, \$0\.00", shown[-1])
    told = reasonrag("ask", QUESTION, "--corpus", corpus, "--model", "offline", "--base-url", endpoint, "--json")
    assert shown[-2].startswith(f"answer: {AgentAnswer.model_validate(json.loads(told.out)).answer}")


def test_without_a_corpus_it_asks_atlas(reasonrag: Reasonrag, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the questions of other commands are a file."""
    asked = ("ask", "In which county is Leagaeborough?", "--json")
    assert json.loads(reasonrag(*asked).out)["sources"][0]["id"].startswith("atlas_")
    monkeypatch.setenv("REASONRAG_QUESTIONS", "mine.jsonl")
    assert reasonrag(*asked, "--model", "offline").status == 0
    other = ("ask", QUESTION, "--dataset", "hotpotqa")
    assert "--dataset hotpotqa without --data-dir needs passages to search" in reasonrag(*other).err
    assert "give --model: a model of your endpoint" in reasonrag(*other, "--index", "ix").err


def test_no_answer_is_exit_status_1(reasonrag: Reasonrag, corpus: Path, endpoint: str) -> None:
    """Prompts that ask for the wrong tag make replies that cannot be read; the cause is shown. A cap is status 3."""
    command = ("ask", QUESTION, "--corpus", corpus, "--model", "offline", "--base-url", endpoint)
    Path("prompts").mkdir()
    Path("prompts/think.txt").write_text("Report evidence: <evidence>..</evidence>\n")
    failed = reasonrag(*command, "--prompts", "prompts")
    assert failed.status == 1
    assert "think (unreadable: wrong_tag, expected" in failed.out
    assert "answer: none: the last reply was unreadable" in failed.out
    capped = reasonrag(*command, "--max-calls", 1)
    assert capped.status == 3
    assert "continue with: reasonrag ask" in capped.err


@pytest.mark.parametrize(
    ("end", "says", "helps"),
    [
        ("content_filter", "unreadable: withheld, the endpoint's content filter", "have the filter changed"),
        ("length", "unreadable: cut_off, ", "raise --max-reply-tokens"),
    ],
)
def test_an_answer_that_is_missing_says_why(
    retriever: IndexRetriever, capsys: pytest.CaptureFixture[str], end: str, says: str, helps: str
) -> None:
    said = Completion(text="So the answer is <answer>Par" if end == "length" else "", finish_reason=end)
    model = ScriptedModel(lambda *_: said)
    show(package.ask(QUESTION, chat_model=model, retriever=retriever, told=show_step).shown())
    shown = capsys.readouterr().out
    assert says in shown
    assert re.search(f"answer: none: the last reply was unreadable; .*{helps}", shown)


HOSTILE = "\x1b[2J[red]\u202eowned"


def test_hostile_words_move_no_cursor(capsys: pytest.CaptureFixture[str], retriever: IndexRetriever) -> None:
    replies = [f"{HOSTILE} <query>France {HOSTILE}</query>", f"<evidence>{HOSTILE}</evidence>"]
    model = ScriptedModel([*replies, f"<answer>{HOSTILE}</answer>"])
    show(package.ask(HOSTILE, chat_model=model, retriever=retriever, told=show_step).shown())
    shown = capsys.readouterr().out
    assert "owned" in shown
    assert "[red]" in shown
    assert not {"\x1b", "\u202e"} & set(shown)


def asked_of(home: Path, retriever: IndexRetriever, **asked: Any) -> list[str]:
    """Warnings for a model that was trained in some way."""
    home.mkdir()
    Provenance(base_model="b", stage="sft", finetuning_type="full", **asked).write(home)
    heard, model = Listener(), ScriptedModel(list(REPLIES))
    found = package.ask(QUESTION, chat_model=model, retriever=retriever, trained_on=home, watcher=heard)
    assert found.answer == "Seine"
    assert found.warnings == heard.warnings
    return heard.warnings


def test_what_is_known_of_the_training_is_a_warning(retriever: IndexRetriever, tmp_path: Path) -> None:
    """Nobody is measured here, so nothing is refused."""
    [seen] = asked_of(tmp_path / "a", retriever, questions=[question_key(QUESTION)], splits=["own/train"])
    assert "was trained on this question (its training questions are of own/train)" in seen
    [fewer] = asked_of(tmp_path / "b", retriever, asked=TrainingConditions(top_k=(5, 6)))
    assert fewer == "top_k was 5 or 6 when its data were made, and is 3 now"
    assert asked_of(tmp_path / "c", retriever, asked=TrainingConditions(top_k=(3,))) == []


def test_a_blank_question_is_none(reasonrag: Reasonrag) -> None:
    done = reasonrag("ask", "  ")
    assert (done.status, done.err) == (2, "error: the question is blank")


def test_a_cap_of_money_needs_a_price(retriever: IndexRetriever) -> None:
    with pytest.raises(InputError, match="`max_cost` needs the price of scripted"):
        package.ask(QUESTION, chat_model=ScriptedModel(REPLIES), retriever=retriever, max_cost=1)
