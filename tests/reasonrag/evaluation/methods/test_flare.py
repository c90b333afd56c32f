"""FLARE: it searches exactly when a sentence is uncertain, with what is left of it, and within the budget."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from reasonrag import evaluate
from reasonrag.agent.agent import Agent
from reasonrag.agent.prompting import load_prompts
from reasonrag.evaluation.methods.baseline_prompts import load_baseline_prompts
from reasonrag.evaluation.methods.choice import MethodChoice
from reasonrag.evaluation.methods.flare import BETA, THETA
from reasonrag.evaluation.methods.method import Attempt
from reasonrag.evaluation.methods.opening import Baseline
from reasonrag.evaluation.predictions import read_predictions
from reasonrag.llm.chat import Completion, Sampling, TokenLogprob
from reasonrag.retrieval.retriever import IndexRetriever
from tests.helpers.command_line import QUESTION
from tests.helpers.scripted_model import ScriptedModel

Piece = str | tuple[str, float]
ANSWER = "So the answer is <answer>Seine</answer>"


def reply(*pieces: Piece) -> Completion:
    """A reply of tokens with their probabilities; a string is certain."""
    tokens = [(each, 1.0) if isinstance(each, str) else each for each in pieces]
    logprobs = tuple(TokenLogprob(text, math.log(probability)) for text, probability in tokens)
    return Completion(text="".join(text for text, _ in tokens), finish_reason="stop", logprobs=logprobs)


def sentence(*pieces: Piece) -> Completion:
    return reply("<sentence>", *pieces, "</sentence>")


class Recorded:
    """A retriever that keeps what it was asked."""

    def __init__(self, inner: IndexRetriever) -> None:
        self.identity, self.inner, self.queries = inner.identity, inner, list[str]()

    async def retrieve(self, query: str, top_k: int):  # type: ignore[no-untyped-def]  # noqa: ANN201 - the inner one's
        self.queries.append(query)
        return await self.inner.retrieve(query, top_k)


async def attempted(
    replies: Sequence[Completion | str], retriever: IndexRetriever, *, steps: int = 7
) -> tuple[Attempt, list[str], ScriptedModel]:
    """An attempt with these replies, what it searched, and its model."""
    model, recorded = ScriptedModel(replies), Recorded(retriever)
    sampling = Sampling(temperature=0.0, top_p=1.0, max_tokens=64)
    agent = Agent(model, recorded, load_prompts(), sampling, top_k=1, max_steps=steps, seed=5)
    flare = Baseline(MethodChoice("flare", steps), agent, load_baseline_prompts())
    return await flare.answer(QUESTION), recorded.queries, model


@pytest.mark.parametrize(
    ("draft", "query"),
    [
        (sentence("Paris", " is", " it."), None),
        (sentence(("Paris", THETA), " is it."), None),
        (reply(("Perhaps", 0.1), ": <", ("sentence", 0.1), ">", "Paris is it."), None),  # not of the sentence
        (reply("<sentence>Paris is it.", "</sentence>", (" Paris is it.", 0.1)), None),
        (sentence("The Eiffel Tower", (" stands", 0.79), " in Rome."), "The Eiffel Tower stands in Rome."),
        (sentence("The Eiffel Tower stands in", (" Rome", 0.39), "."), "The Eiffel Tower stands in ."),
        (sentence("A", (" Ro", BETA), ("me", 0.1), (" city", 0.39), " of cats"), "A Ro of cats"),
        (sentence(("Cats", 0.3), (" purr", 0.2), "."), "Cats purr."),  # of which no word would be left
        (reply("So the answer is <answer>", ("Tiber", 0.5), "</answer>"), "Tiber"),
        (reply("<sentence> ", ("Cats", 0.5), " <|im_end|> purr</sentence>"), "Cats (im_end) purr"),
        (reply("<sentence\x00>", ("Cats", 0.5), "</sentence>"), "<sentence >Cats"),
    ],
)
async def test_it_searches_with_an_uncertain_sentence_and_with_no_other(
    draft: Completion, query: str | None, retriever: IndexRetriever
) -> None:
    """From THETA on a token is certain; from BETA on it is part of the query. The first search is the question's. The
    step shows what was searched because of it."""
    certain = reply(ANSWER)
    attempt, queries, _ = await attempted([draft, certain, certain], retriever)
    assert queries == [QUESTION.question, *([query] if query else [])]
    assert attempt.searches == len(queries)
    assert [each.action for each in attempt.steps] == ["draft", "rewrite" if query else "draft"]
    assert attempt.steps[0].query == (query or "")
    assert attempt.answer == "Seine"


async def test_a_sentence_is_written_anew_from_what_was_found_and_then_kept(retriever: IndexRetriever) -> None:
    """However certain it is then. What is kept stands in later prompts, and so do the passages of the last search."""
    attempt, queries, model = await attempted(
        [
            sentence("Cats", (" rule", 0.5), " France."),
            sentence("Cats are", (" animals", 0.5), "."),
            sentence("Rome is no cat."),
            reply("<answer>", "Seine"),
        ],
        retriever,
    )
    assert queries == [QUESTION.question, "Cats rule France."]
    assert [(each.action, each.content) for each in attempt.steps] == [
        ("draft", "Cats rule France."),
        ("rewrite", "Cats are animals."),
        ("draft", "Rome is no cat."),
        ("draft", "Seine"),
    ]
    assert [[each.id for each in step.passages] for step in attempt.steps] == [["paris"], ["cats"], ["cats"], ["cats"]]
    assert [each.id for each in attempt.read] == ["paris", "cats"]
    assert [each.messages[1].content.partition("Reasoning so far: ")[2] for each in model.requests] == [
        "", "", "Cats are animals.", "Cats are animals. Rome is no cat."
    ]  # fmt: skip
    assert len({each.keys(model="m")[0] for each in model.requests}) == len(model.requests)


@pytest.mark.parametrize("steps", [3, 4, 5, 7, 9])
@pytest.mark.parametrize("draft", [sentence("Cats", (" purr", 0.5)), reply("<answer>", ("Rhine", 0.5))])
async def test_who_is_never_certain_stays_within_the_budget(
    steps: int, draft: Completion, retriever: IndexRetriever
) -> None:
    """N completions and (N-1)//2 searches at most; the last completion is told that it must answer."""
    last = "So the answer is <answer>Seine</answer>"
    model = [draft] * (steps - 1) + [reply(last)]
    attempt, queries, asked = await attempted(model, retriever, steps=steps)
    assert len(attempt.steps) <= steps
    assert len(queries) == attempt.searches <= (steps - 1) // 2
    if draft.text.startswith("<sentence>"):
        assert (len(attempt.steps), attempt.searches, attempt.answer) == (steps, (steps - 1) // 2, "Seine")
        assert "<sentence>" not in asked.requests[-1].messages[0].content


async def test_a_sentence_that_cannot_be_read_is_followed_by_the_last_reply(retriever: IndexRetriever) -> None:
    """After its repair turn; a question has an answer if that has one."""
    attempt, queries, _ = await attempted(["Hm.", "Hm.", reply(ANSWER)], retriever)
    assert (attempt.answer, [each.parse_error for each in attempt.steps]) == ("Seine", ["no_tag", None])
    assert queries == [QUESTION.question]


def test_questions_without_log_probabilities_fail_and_say_so(tmp_path: Path) -> None:
    """They are asked for, in the configuration too, and each question that gets none is in the report by its cause; of
    the others, it says what was searched because of them."""
    given, none = reply("<answer>", ("Seine", 0.5), "</answer>"), Completion(text=ANSWER, finish_reason="stop")
    model = ScriptedModel(lambda request, _: none if request.question_id.endswith("_1") else given)
    report = evaluate(
        dataset="atlas", data_dir=tmp_path / "data", limit=2, method="flare", chat_model=model, run=tmp_path / "run"
    )
    assert all(each.sampling.logprobs for each in model.requests)
    assert (report.answered, report.failures_by_cause) == (1, {"no_logprobs": 1})
    assert '"logprobs": true' in (tmp_path / "run" / "config.json").read_text()
    answered, failed = (each.error for each in read_predictions(tmp_path / "run"))
    assert answered is None
    assert failed is not None
    assert failed.cause == "no_logprobs"
    assert re.search(r"gives no log-probabilities .* or a model's folder", failed.message)
