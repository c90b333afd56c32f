"""Another model reads for an agent with a reader: who is asked, what that costs, and where it is named."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from reasonrag.agent.agent import Agent
from reasonrag.agent.model_calls import ModelCaller
from reasonrag.agent.prompting import load_prompts
from reasonrag.errors import ModelError
from reasonrag.llm.chat import ChatRequest, Sampling
from reasonrag.retrieval.retriever import IndexRetriever
from tests.helpers.command_line import QUESTION, Reasonrag
from tests.helpers.scripted_model import ScriptedModel
from tests.helpers.trees import trees

ATLAS = ("--dataset", "atlas", "--limit", 4, "--set", "search.max_calls=40")
READ = ("--agent", "search-o1", "--reader-model", "offline-student")
PRICE = ("--price", "offline-student=1000,1000")
DEV = ("evaluate", "--dataset", "atlas", "--split", "dev", "--limit", 4, "--model", "offline", "--agent", "search-o1")


def content(path: str) -> Any:
    return json.loads(Path(path).read_text())


async def test_a_reader_that_fails_is_asked_again_and_costs_the_agent_s_model_nothing(
    retriever: IndexRetriever,
) -> None:
    """The failure is the question's, until its answer has come; the agent's model is asked for steps alone."""
    replies = iter([ModelError("no answer", cause="timeout"), "<answer>The Seine.</answer>"])

    def reads(*_: object) -> str:
        if isinstance(said := next(replies), ModelError):
            raise said
        return said

    def asks(request: ChatRequest, _position: int) -> str:
        assert "\nQuery: " not in request.messages[1].content
        return '{"query": "Paris"}'

    prompts, sampling = load_prompts(agent="search-o1"), Sampling(temperature=1, top_p=1, max_tokens=9)
    reader = ModelCaller(ScriptedModel(reads), prompts, sampling, 0)
    agent = Agent(ScriptedModel(asks), retriever, prompts, sampling, 2, 7, 0, reader=reader)
    [step] = await agent.sample(agent.start(QUESTION), [0])
    with pytest.raises(ModelError, match="no answer"):
        await agent.next_state(step)
    state = await agent.next_state(step)
    assert [each.said for each in state.observed if each] == ["The Seine."]
    assert (agent.spending.tokens.calls, reader.spending.tokens.calls) == (1, 1)


def test_another_model_reads_in_search_and_in_an_evaluation_and_is_named(reasonrag: Reasonrag) -> None:
    """In settings that decide answers, journal, trees, summary and data; an evaluation where another one reads than in
    training says so, and compare, too."""
    done = reasonrag("generate", *ATLAS, *READ, "--value-model", "offline", *PRICE, "--run", "runs/a")
    assert (done.status, "teacher offline  values of offline-student  reader offline-student" in done.out) == (0, True)
    decides = content("runs/a/config.json")["decides_answers"]
    assert (decides["reader"]["name"], decides["reader"]["sampling"]["temperature"]) == ("offline-student", 0.0)
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
        assert content(f"evals/{name}/report.json")["asked"]["reader"] == ("offline" if warned else "offline-student")
    assert "other used reader offline-student, own its model" in reasonrag("compare", "evals/own", "evals/other").err
    answer = reasonrag("ask", "Which river flows through Harbel?", "--dataset", "atlas", *READ, *PRICE, "--json")
    assert content("runs/a/summary.json")["reader"] == "offline-student"
    assert json.loads(answer.out)["cost_usd"] > 0
