"""The reader of agents that have one: who is asked, what that costs, and where it is named."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import reasonrag as package
from reasonrag.agent.agent import Agent
from reasonrag.agent.model_calls import ModelCaller
from reasonrag.agent.prompting import load_prompts
from reasonrag.agent.state import Observation
from reasonrag.errors import ModelError
from reasonrag.evaluation.methods.opening import NoRetriever
from reasonrag.llm.chat import ChatRequest, Sampling
from reasonrag.retrieval.retriever import IndexRetriever, Retriever
from tests.helpers.command_line import QUESTION, Reasonrag
from tests.helpers.scripted_model import RecordedOffline, ScriptedModel
from tests.helpers.trees import trees

ATLAS = ("--dataset", "atlas", "--limit", 8)
READ = ("--agent", "search-o1", "--reader-model", "offline-student")
PRICE = ("--price", "offline-student=1,1")
DEV = ("evaluate", "--dataset", "atlas", "--split", "dev", "--limit", 4, "--model", "offline", "--agent", "search-o1")


def content(path: str) -> Any:
    return json.loads(Path(path).read_text())


def agent_of(model: ScriptedModel, retriever: Retriever, reader: ScriptedModel | None = None) -> Agent:
    prompts, sampling = load_prompts(agent="search-o1"), Sampling(temperature=1, top_p=1, max_tokens=9)
    reads = ModelCaller(reader, prompts, sampling, 0) if reader else None
    return Agent(model, retriever, prompts, sampling, top_k=2, max_steps=7, seed=0, reader=reads)


FOUND = "So the answer is <answer>The Seine.</answer>"


@pytest.mark.parametrize("another", [False, True])
@pytest.mark.parametrize(
    "replies", [[FOUND], ["I cannot say"] * 2, [""] * 2, [ModelError("lost", cause="lost"), FOUND]]
)
async def test_a_reader_is_asked_once_for_a_query_and_its_passages(
    replies: list[str | ModelError], another: bool, retriever: IndexRetriever
) -> None:
    """At temperature 0, however many states ask; one that says nothing has found nothing, after one repair turn. Where
    it fails, the question does, and the next attempt asks again. What another model reads costs the agent's nothing."""
    left = iter(replies)

    def says(request: ChatRequest, _position: int) -> str:
        reply = next(left) if "\nQuery: " in request.messages[1].content else '{"query": "Paris"}'
        if isinstance(reply, ModelError):
            raise reply
        return reply

    model, reader = ScriptedModel(says), ScriptedModel(says)
    agent = agent_of(model, retriever, reader if another else None)
    [step] = await agent.sample(agent.start(QUESTION), [0])
    for failure in (each for each in replies if isinstance(each, ModelError)):
        with pytest.raises(ModelError, match=str(failure)):
            await agent.next_state(step)
    one, other = await asyncio.gather(agent.next_state(step), agent.next_state(step))
    said = "The Seine." if FOUND in replies else ""
    assert [each.said for each in one.observed if each] == [each.said for each in other.observed if each] == [said]
    read = reader.requests if another else model.requests[1:]
    assert (len(model.requests) == 1) == another
    assert [each.sampling.temperature for each in read] == [0.0] * len(replies)
    readable = [each for each in replies if isinstance(each, str)]
    assert agent.spending.tokens.calls == 1 + (0 if another else len(readable))


async def test_a_query_that_finds_nothing_costs_no_reader() -> None:
    model = ScriptedModel(lambda *_: '{"query": "Paris"}')
    agent = agent_of(model, NoRetriever())
    [step] = await agent.sample(agent.start(QUESTION), [0])
    assert (await agent.next_state(step)).observed == (Observation("Paris", (), ""),)
    assert len(model.requests) == 1


def test_another_model_reads_in_search_and_in_an_evaluation_and_is_named(reasonrag: Reasonrag) -> None:
    """In settings that decide answers, journal, trees, summary and data; an evaluation where another one reads than in
    training says so, and compare, too."""
    student = ("--value-model", "offline", "--value-extra-body", '{"min_p": 0.2}')
    done = reasonrag("generate", *ATLAS, *READ, *student, *PRICE, "--run", "runs/a")
    assert (
        done.status,
        "agent search-o1  teacher offline  values of offline-student  reader offline-student" in done.out,
    ) == (0, True)
    for shown in ("stats runs/a", "show runs/a atlas_train_0_0"):
        assert "search-o1" in reasonrag(*shown.split()).out
    decides = content("runs/a/config.json")["decides_answers"]
    assert (decides["reader"]["name"], decides["reader"]["sampling"]["temperature"]) == ("offline-student", 0.0)
    assert decides["value_model"]["sampling"]["extra_body"] == {"min_p": 0.2}
    lines = [json.loads(line) for line in Path("runs/a/journal.jsonl").read_text().splitlines()]
    asked = Counter(line.get("model") for line in lines)
    assert asked.keys() == {None, "offline-student", "offline-student (reader)"}
    assert max(Counter(key for line in lines for key in line["keys"]).values()) == 1
    found = list(trees())
    reads = [each.reader_usage for each in found if each.reader_usage]
    assert sum(each.calls for each in reads) == asked["offline-student (reader)"]
    assert 0 < sum(each.cost_usd or 0 for each in reads) <= sum(each.usage.cost_usd or 0 for each in found)
    assert reasonrag("pairs", "runs/a", "--out", "data/a").status == 0
    assert '"reader":"offline-student"' in Path("data/a/questions.jsonl").read_text()
    said = "its queries were answered by offline-student when its data were made, and are answered by offline now"
    for name, flags, warned in (("own", (), True), ("other", READ[2:], False)):
        done = reasonrag(*DEV, "--trained-on", "data/a", *flags, "--run", f"evals/{name}")
        assert (done.status, said in done.err) == (0, warned)
        page = Path(f"evals/{name}/report.md").read_text()
        assert ("method agent  agent search-o1  model" in page, "an attempt, readings apart |" in page) == (True, True)
        assert content(f"evals/{name}/report.json")["asked"]["reader"] == ("offline" if warned else "offline-student")
    assert "other used reader offline-student, own its model" in reasonrag("compare", "evals/own", "evals/other").err
    once = ("ask", "Which river flows through Harbel?", "--dataset", "atlas", *READ, *PRICE)
    assert "  reader: " in reasonrag(*once).out
    answer = reasonrag(*once, "--json")
    summary = content("runs/a/summary.json")
    assert (summary["reader"], summary["value_model"]) == ("offline-student", "offline-student")
    assert summary["continuations"] > 0
    assert json.loads(answer.out)["cost_usd"] > 0


def test_a_calibration_goes_on_from_what_the_reader_had_said(reasonrag: Reasonrag) -> None:
    """In the run; new queries are answered by the run's reader, whichever model continues."""
    assert reasonrag("generate", *ATLAS, *READ, "--run", "runs/a").status == 0
    rollouts = Path("runs/a/rollouts.jsonl")
    rollouts.write_text(re.sub(r'"observation":"[^"]+"', '"observation":"As it said then."', rollouts.read_text()))
    model = RecordedOffline()
    assert package.calibrate("runs/a", chat_model=model, revalue=8, k=2).revaluation.unvalued == 0
    assert any("\nReader: As it said then." in request.messages[1].content for request in model.requests)
    lines = Path("runs/a/calibration/journal.jsonl").read_text().splitlines()
    assert {json.loads(line).get("model") for line in lines} == {None, "offline-student (reader)"}


def test_what_an_evaluation_may_cost_holds_what_is_read(reasonrag: Reasonrag) -> None:
    """Whoever reads, seven steps a question are at most as many readings."""
    for name, flags in (("own", ("--price", "offline=1,1")), ("other", (*READ[2:], *PRICE, "--price", "offline=1,1"))):
        done = reasonrag(*DEV, *flags, "--run", f"evals/{name}")
        assert (done.status, re.findall(r"to ([0-9]+) requests", done.err)) == (0, ["56"]), done.err
