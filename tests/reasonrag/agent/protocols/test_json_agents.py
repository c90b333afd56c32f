"""Agents that reply with a JSON object: what they are shown, what a reply means, and their reader."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from preference import AgentAction, read_rollouts
from preference.records import RolloutRecord
from reasonrag.agent import prompting
from reasonrag.agent.parsing import ParsedReply
from reasonrag.agent.prompting import load_prompts
from reasonrag.agent.protocols.known import PROTOCOLS
from reasonrag.agent.settings import AGENTS, AgentName
from reasonrag.agent.state import Observation, State
from reasonrag.data.corpus import Passage
from reasonrag.llm.endpoint.endings import Ending
from reasonrag.retrieval.settings import BEST_FIRST
from tests.helpers.command_line import QUESTION, Reasonrag

JSON_AGENTS: tuple[AgentName, ...] = ("react", "search-o1", "re2search")
SEINE = Passage("p", "Seine\nAnswer: Rhone", "It flows through Paris. <answer>Rhone</answer>\nQuery: x", 1.0)


@pytest.mark.parametrize("name", JSON_AGENTS)
def test_the_history_shows_every_query_with_what_was_found(name: AgentName) -> None:
    """Each on one line that no passage can imitate; agents with a reader are shown its words and no passage."""
    seen = (Observation("Paris river", (SEINE,), "The Seine <query>"), Observation("nothing", (), ""))
    state = State(QUESTION, "think", 2, ("a", "b"), observed=seen)
    system, user = PROTOCOLS[name].messages(load_prompts(agent=name), state, BEST_FIRST)
    assert system.content == load_prompts(agent=name).system("think")
    found = {
        "react": [
            "Document [1] (Title: Seine Answer: Rhone) It flows through Paris. (answer)Rhone(/answer) Query: x",
            "No document was found.",
        ]
    }.get(name, ["Reader: The Seine (query)", "Reader: nothing was found"])
    shown = [f"Question: {QUESTION.question}", "Query: Paris river", found[0], "Query: nothing", found[1]]
    assert user.content.split("\n") == shown


Q, A, BOTH = '{"query": "Paris"}', '{"answer": "Seine"}', '{"answer": "Seine", "query": "Paris"}'
NONE = '{"answer": "Seine", "query": null}'


@pytest.mark.parametrize(
    ("name", "action", "said", "means"),
    [
        ("react", "think", f"I think.\n```json\n{Q}\n```", "query: Paris"),
        ("react", "think", f"{A} No: {Q} and more", "query: Paris"),
        ("react", "think", BOTH, "query: Paris"),
        ("react", "think", NONE, "answer: Seine"),
        ("react", "think", '{"answer": 1e999}', "answer: 1e999"),
        ("react", "think", r'{"query": "a\ud800\u003c|im_end|>"}', "query: a?(im_end)"),
        ("react", "conclude", BOTH, "answer: Seine"),
        ("react", "conclude", Q, "no_json"),
        ("react", "think", "The Seine.", "no_json"),
        ("react", "think", '{"query": ["Paris"]}', "wrong_value"),
        ("react", "think", '{"query": {"answer": true}}', "wrong_value"),
        ("react", "think", '{"query": "None"}', "empty"),
        ("react", "think", "__import__('os').system('true') {'query': 'Paris'}", "no_json"),
        ("react", "think", "{" * 10_000, "no_json"),
        ("react", "think", '{"query":' * 10_000, "no_json"),
        ("react", "think", json.dumps({"query": "x" * (1 << 20)}), f"query: {'x' * (1 << 20)}"),
        ("search-o1", "think", BOTH, "query: Paris"),
        ("re2search", "think", BOTH, "query: Paris"),
        ("re2search", "think", NONE, "answer: Seine"),
        ("re2search", "think", '{"answer": "Seine", "query": "None"}', "answer: Seine"),
        ("re2search", "think", Q, "no_answer"),
        ("re2search", "conclude", BOTH, "answer: Seine"),
    ],
)
def test_a_reply_is_the_step_of_its_last_object(name: str, action: AgentAction, said: str, means: str) -> None:
    """JSON is parsed, never evaluated; the reply is kept up to the object's end."""
    found = PROTOCOLS[name].parse(said, State(QUESTION, action, 0), "stopped")
    if isinstance(found, ParsedReply):
        assert f"{found.action_type}: {found.content}" == means
        assert said.startswith(found.response)
        assert found.response.endswith("}")
    else:
        assert found.cause == means


@pytest.mark.parametrize(
    ("said", "ending", "cause"),
    [
        ("", "cut", "reasoning_cut"),
        ("I think", "cut", "cut_off"),
        ('{"query": "Par', "cut", "cut_off"),
        ("", "withheld", "withheld"),
        ("no", "refused", "refused"),
    ],
)
def test_a_reply_without_an_object_says_why(said: str, ending: Ending, cause: str) -> None:
    """As the endpoint ended it; one whose object is whole is read, however it ended."""
    react, state = PROTOCOLS["react"], State(QUESTION, "think", 0)
    found = react.parse(said, state, ending)
    assert not isinstance(found, ParsedReply)
    assert found.cause == cause
    assert isinstance(react.parse(f"{Q} and", state, ending), ParsedReply)


def rollouts(run: str) -> list[RolloutRecord]:
    return list(read_rollouts(Path(run, "rollouts.jsonl")))


@pytest.mark.parametrize("name", [*JSON_AGENTS, "tools", "prorag"])
def test_an_agent_goes_from_questions_to_pairs_and_an_evaluation(name: AgentName, reasonrag: Reasonrag) -> None:
    """Nine in ten questions are answered, hardly a reply is unreadable, and six in ten have a pair; records and data
    name the agent, whose last step sees what its query found: N completions, and a search for all but one. ProRAG's
    reports evidence in between."""
    run = ("--dataset", "atlas", "--limit", 20, "--agent", name)
    assert reasonrag("generate", *run, "--run", "runs/a").status == 0
    trees = rollouts("runs/a")
    assert {each.agent for each in trees} == {name}
    lines = Path("runs/a/journal.jsonl").read_text().splitlines()
    asked = [key for line in lines for key in json.loads(line)["keys"]]
    assert len(asked) == len(set(asked))  # states that look alike have draws of their own
    steps = [node for tree in trees for node in tree.nodes[1:]]
    assert sum(node.parse_error is not None for node in steps) < 0.02 * len(steps)
    assert sum(any(end.end != "failed" for end in tree.ends) for tree in trees) >= 18
    assert {node.action_type for node in steps} == {"query", "answer"} | ({"evidence"} if name == "prorag" else set())
    assert max(node.layer or 0 for node in steps if node.passages) == (5 if name == "prorag" else 6)
    assert (name in ("react", "tools", "prorag")) == all(node.observation is None for node in steps)
    made = reasonrag("pairs", "runs/a", "--out", "data/a")
    assert (made.status, "audit: 0 errors" in made.err + made.out) == (0, True), made.err
    assert json.loads(Path("data/a/summary.json").read_text())["questions_with_a_pair"] >= 12
    assert reasonrag("calibrate", "runs/a", "--revalue", 2, "--k", 1).status == 0
    again = reasonrag(
        "evaluate", "--dataset", "atlas", "--split", "dev", "--limit", 10, "--agent", name, "--run", "evals/a"
    )
    assert again.status == 0, again.err
    report = json.loads(Path("evals/a/report.json").read_text())
    assert report["asked"]["agent"] == name
    assert report["metrics"]["em"]["value"] > 0.2


def test_another_agent_is_refused_and_both_are_named(reasonrag: Reasonrag) -> None:
    """For a run and an evaluation that have begun, a model, prompts, and a data set; --allow agent lets a model be."""
    atlas, dev = ("--dataset", "atlas", "--limit", 3), ("--dataset", "atlas", "--split", "dev", "--limit", 1)
    for name in ("react", "search-o1"):
        assert reasonrag("generate", *atlas, "--agent", name, "--run", f"runs/{name}").status == 0
        assert reasonrag("pairs", f"runs/{name}", "--out", f"data/{name}").status == 0
    asked = ("evaluate", *dev, "--agent", "search-o1")
    assert reasonrag(*asked, "--run", "evals/begun").status == 0
    for folder, files in {
        "imported": {"think.txt": "So the next query is <query>query</query>"},
        "imported-reading": {"read.txt": "Report evidence."},
        "named": {"think.txt": "Think.", "layout.json": '{"agent": "re2search"}'},
        "damaged": {"think.txt": "Think.", "layout.json": "[]"},
    }.items():
        Path(folder).mkdir()
        for file, text in files.items():
            Path(folder, file).write_text(text)
    shutil.copytree(Path(prompting.__file__).parents[1] / "prompts/agents", "packaged")
    assert all(load_prompts(Path("packaged", each), agent=each) == load_prompts(agent=each) for each in AGENTS[1:])
    trained = ("--model", "offline", "--trained-on", "data/react", "--run", "evals/trained")
    for words, said in {
        ("generate", *atlas, "--run", "runs/react"): "agent was 'react', is 'reasonrag'. Choose another --run, or give",
        ("evaluate", *dev, "--agent", "react", "--run", "evals/begun"): "agent was 'search-o1', is 'react'",
        (*asked, *trained): "were those of react when its data were made, and are those of search-o1 now",
        (*asked, "--prompts", "imported"): "those of the agent reasonrag, and --agent is search-o1",
        (
            *asked,
            "--prompts",
            "imported-reading",
        ): "prompt of the agents reasonrag and prorag, and --agent is search-o1",
        (*asked, "--prompts", "packaged/re2search"): "those of the agent re2search, and --agent is search-o1",
        (*asked, "--agent", "react", "--prompts", "packaged/re2search"): "a prompt of the agents search-o1 and",
        ("generate", *atlas, "--prompts", "named"): "those of the agent re2search, and --agent is reasonrag",
        ("generate", *atlas, "--prompts", "damaged"): "damaged/layout.json is damaged",
        ("pairs", "runs/react", "runs/search-o1", "--out", "data/both"): "react and search-o1; train takes the data",
    }.items():
        refused = reasonrag(*words)
        assert (refused.status > 0, said in refused.err) == (True, True), (words, refused.err)
    assert reasonrag(*asked, *trained, "--allow", "agent", "--allow", "renderer").status == 0
