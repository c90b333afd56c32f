"""Another model continues what the teacher proposes: whose values those are, what they cost, and that none is lost."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

import reasonrag as package
from mcts import RECIPES
from preference import RolloutRecord
from reasonrag.agent.agent import Agent
from reasonrag.agent.prompting import load_prompts
from reasonrag.errors import InputError
from reasonrag.exploration.explorer import Explorer, RunIdentity
from reasonrag.llm.chat import ChatModel, ChatRequest, Completion, Sampling
from reasonrag.llm.offline import OfflineTeacher
from reasonrag.llm.prices import Price, find_price
from reasonrag.retrieval.retriever import IndexRetriever
from tests.helpers.command_line import QUESTION, Reasonrag
from tests.helpers.listener import Listener
from tests.helpers.processes import simulated_endpoint
from tests.helpers.scripted_model import ScriptedModel
from tests.helpers.trees import trees

PROMPTS = load_prompts()
PRICE, STUDENTS_PRICE = Price(1.0, 2.0, cached_in=1.0), Price(10.0, 20.0, cached_in=10.0)
SMALL: dict[str, Any] = {"dataset": "atlas", "limit": 4, "set": {"search.max_calls": 40}, "value_model": "offline"}
READER = {"agent": "search-o1", "reader_model": "offline"}
"""Which another teacher does not have for itself."""
KEY = "sk-of-the-locked-endpoint"


@pytest.fixture
def locked_endpoint() -> Iterator[str]:
    """Base URL of an endpoint that lets in one key only."""
    with simulated_endpoint("--api-key", KEY) as base_url:
        yield base_url


def lines(run: str | Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in (Path(run) / "journal.jsonl").read_bytes().splitlines()]


def content(run: str | Path) -> bytes:
    return (Path(run) / "rollouts.jsonl").read_bytes()


def configuration(run: str | Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((Path(run) / "config.json").read_text())
    return read


# -- whose values ----------------------------------------------------------------------------------------------


def teacher_says(request: ChatRequest, position: int) -> str:
    """It proposes one search and one wrong answer, and would answer rightly where it is asked again."""
    if request.sampling.stop[0] == "</evidence>":
        return "So the evidence is <evidence>It lies on the Seine.</evidence>"
    if "Previous Thoughts" in request.messages[1].content:
        return "So the answer is <answer>Seine</answer>"
    return ["So the next query is <query>capital of France</query>", "So the answer is <answer>Tiber</answer>"][
        position
    ]


def student_says(request: ChatRequest, _position: int) -> str:
    """It finds no evidence, and answers wrongly."""
    if request.sampling.stop[0] == "</evidence>":
        return "So the evidence is <evidence>None</evidence>"
    return "So the answer is <answer>Tiber</answer>"


async def explored(retriever: IndexRetriever, *, values: ChatModel | None, name: str = "economy") -> RolloutRecord:
    """One simulation of two siblings, one continuation each, which only economy keeps as nodes."""
    small = {"siblings": 2, "root_siblings": None, "continuations": 1, "simulations": 1, "resamples": 0}
    recipe = RECIPES[name].model_copy(update={"search": RECIPES[name].search.model_copy(update=small)})

    def agent(model: ChatModel) -> Agent:
        sampling = Sampling(temperature=1, top_p=1, max_tokens=64)
        return Agent(model, retriever, PROMPTS, sampling, top_k=2, max_steps=7, seed=0)

    explorer = Explorer(
        agent(ScriptedModel(teacher_says, name="teacher")),
        QUESTION,
        recipe,
        value_agent=agent(values) if values else None,
    )
    await explorer.run()
    prices = {"model": PRICE, "value_model": STUDENTS_PRICE}
    return explorer.record(RunIdentity("own", "dev", config_hash="c0", seed=0, recipe=recipe, prices=prices))


@pytest.mark.parametrize("name", ["economy", "continuation"])
async def test_values_are_those_of_the_policy_that_continues(name: str, retriever: IndexRetriever) -> None:
    """The same proposal is worth something to the teacher, who goes on well from it, and nothing to the student."""
    for values, worth in ((None, 0.9**3), (ScriptedModel(student_says, name="student"), 0.0)):
        record = await explored(retriever, name=name, values=values)
        assert record.nodes[1].content == "capital of France"
        assert record.nodes[1].reward == pytest.approx(worth)
        assert (record.value_usage is None) == (values is None)


async def test_proposals_are_valued_but_do_not_count_for_the_state_above(retriever: IndexRetriever) -> None:
    """They are no samples of the policy whose values are wanted; what that policy does itself is."""
    record = await explored(retriever, values=ScriptedModel(student_says, name="student"))
    root, query, answer, evidence, end = record.nodes
    assert (root.reward, root.rollouts) == (None, [])
    assert [each.plain_draws for each in (query, answer, evidence, end)] == [0, 0, 1, 1]
    assert [each.sampled_by for each in (query, answer, evidence, end)] == [None, None, "student", "student"]
    assert (query.observations, answer.reward) == (1, 0.0)
    assert evidence.parent_id == query.id


def test_a_step_that_both_draw_is_one_node_and_counts_from_then_on() -> None:
    """The teacher proposed it first, so it stays the teacher's; that the student drew it, too, makes it plain."""
    run = package.generate(**SMALL, run="runs/a")
    assert run.done == 4
    drawn_by_both = [n for tree in trees() for n in tree.nodes[1:] if 0 < n.plain_draws < n.draws]
    assert drawn_by_both
    for tree in trees():
        for node in tree.nodes[1:]:
            assert node.plain_draws <= node.draws
            assert node.sampled_by != "offline-student" or node.plain_draws or node.sampled_with


async def test_the_usage_of_a_tree_is_that_of_both_models_each_at_its_price(retriever: IndexRetriever) -> None:
    """And the value model's part of it stands apart."""

    def answered(request: ChatRequest, position: int) -> Completion:
        return Completion(
            text=student_says(request, position), finish_reason="stop", prompt_tokens=100, completion_tokens=10
        )

    record = await explored(retriever, values=ScriptedModel(answered, name="student"))
    assert record.value_usage is not None
    assert (record.value_usage.calls, record.usage.calls) == (2, 4)
    assert record.value_usage.cost_usd == pytest.approx(2 * (100 * 10 + 10 * 20) / 1e6)
    assert record.usage.cost_usd == record.value_usage.cost_usd  # the scripted teacher told no tokens


# -- the command -----------------------------------------------------------------------------------------------


def test_the_value_model_decides_answers_and_its_address_does_not(endpoint: str) -> None:
    """A run without one has the hash it always had; another address goes on with the same run."""
    flags = SMALL | {"limit": 1, "model": "offline", "value_model": "student"}
    with_address = package.generate(**flags, run="runs/a", base_url=[endpoint], value_base_url=[endpoint])
    elsewhere = package.generate(**flags, run="runs/a", base_url=[endpoint], value_base_url=[f"{endpoint}/"])
    without = package.generate(dataset="atlas", limit=1, set={"search.max_calls": 40}, run="runs/b")
    assert with_address.config_hash == elsewhere.config_hash != without.config_hash
    assert "value_model" not in configuration("runs/b")["decides_answers"]
    assert configuration("runs/a")["operational"]["settings"]["value_base_url"] == [f"{endpoint}/"]
    with pytest.raises(InputError, match=r"value_model.name was 'student', is None"):
        package.generate(dataset="atlas", limit=1, set={"search.max_calls": 40}, run="runs/a")


@pytest.mark.parametrize(
    ("changed", "others"),
    [
        ({"recipe": "economy"}, {"offline-student"}),
        ({"recipe": "continuation"}, {"offline-student"}),
        (READER | {"reader_model": "offline-student"}, {"offline-student", "offline-student (reader)"}),
    ],
)
def test_a_run_that_was_stopped_again_and_again_pays_once(changed: dict[str, Any], others: set[str]) -> None:
    """A cap every so many calls: the same bytes as never stopped, and no answer of any model is bought twice."""
    flags = SMALL | changed
    whole = package.generate(**flags, run="runs/whole")
    cap = 0
    while True:
        cap += 37
        part = package.generate(**flags, run="runs/parts", max_calls=cap)
        assert sum(len(line["keys"]) for line in lines("runs/parts")) <= cap
        if part.stopped is None:
            break
    assert cap > 2 * 37
    assert content("runs/whole") == content("runs/parts")
    keys = Counter(key for line in lines("runs/parts") for key in line["keys"])
    assert set(keys.values()) == {1}
    assert (part.calls, part.cost_usd) == (whole.calls, whole.cost_usd)
    assert {line.get("model") for line in lines("runs/parts")} == {None, *others}


# -- what it costs ---------------------------------------------------------------------------------------------


def dollars_in(run: str, prices: dict[str | None, Price]) -> float:
    return sum(
        prices[line.get("model")].cost(each.get("prompt_tokens", 0), each.get("completion_tokens", 0))
        for line in lines(run)
        for each in line["completions"]
    )


def test_a_cap_in_dollars_counts_both_models_over_all_sessions() -> None:
    """Each at its own price; what is in the journal never costs more than the cap."""
    models = {"chat_model": OfflineTeacher(name="gpt-4o-mini"), "value_chat_model": OfflineTeacher(name="gpt-4o")}
    teachers, students = find_price("gpt-4o-mini"), find_price("gpt-4o")
    assert teachers is not None
    assert students is not None
    prices: dict[str | None, Price] = {None: teachers, "gpt-4o": students}
    for cap in (0.03, 0.06):
        capped = package.generate(**SMALL, **models, run="runs/a", max_cost=cap)
        assert capped.stopped is not None
        assert "--max-cost" in capped.stopped.message
        assert cap - 0.02 < dollars_in("runs/a", prices) <= cap
        assert capped.cost_usd == pytest.approx(dollars_in("runs/a", prices))
    whole = package.generate(**SMALL, **models, run="runs/a")
    assert whole.cost_usd == pytest.approx(dollars_in("runs/a", prices))
    assert sum(tree.usage.cost_usd or 0 for tree in trees()) == pytest.approx(whole.cost_usd)
    assert 0 < sum(tree.value_usage.cost_usd or 0 for tree in trees() if tree.value_usage) < whole.cost_usd


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"value_model": "gpt-4o"}, "`value_model` gpt-4o is the teacher"),
        ({"recipe": "released"}, "recipe released samples no continuations"),
        ({"value_model": None, "value_base_url": ["http://127.0.0.1:9/v1"]}, "`value_base_url` needs a value model"),
        ({"value_model": None, "value_extra_body": {"min_p": 0}}, "`value_extra_body` needs a value model"),
        ({"value_model": "qwen", "max_cost": 1}, "give `price` qwen=IN,OUT"),
        ({"value_model": "qwen", "value_base_url": ["http://127.0.0.1:9/v1"]}, "Check `value_base_url`"),
        (READER | {"agent": "react"}, "`reader_model` offline: react has no reader, search-o1 and re2search have"),
        (READER | {"reader_model": "gpt-4o"}, "`reader_model` gpt-4o is the model itself"),
        (READER | {"reader_model": None, "reader_base_url": ["http://x"]}, "`reader_base_url` needs a reader"),
        (READER | {"reader_model": "qwen", "max_cost": 1}, "give `price` qwen=IN,OUT"),
        (READER | {"reader_base_url": ["http://127.0.0.1:9/v1"]}, "Check `reader_base_url`"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_asked(changed: dict[str, Any], message: str) -> None:
    """With the flag to change."""
    with pytest.raises(InputError, match=message):
        package.generate(**(SMALL | changed), run="runs/a", chat_model=OfflineTeacher(name="gpt-4o"))
    assert not Path("runs/a/journal.jsonl").exists() or not lines("runs/a")


def test_a_model_of_ones_own_costs_nothing_and_that_is_said(endpoint: str) -> None:
    """One that is in no table and has an address of its own; a cap in dollars then counts the teacher alone."""
    watcher = Listener()
    flags = SMALL | {"limit": 1, "value_model": "qwen", "value_base_url": [endpoint], "max_cost": 5}
    run = package.generate(**flags, run="runs/a", chat_model=OfflineTeacher(name="gpt-4o"), watcher=watcher)
    [tree] = trees()
    assert tree.value_usage is not None
    assert tree.value_usage.cost_usd == 0
    assert run.cost_usd == pytest.approx(tree.usage.cost_usd)
    assert run.cost_usd
    assert any("qwen has no list price" in each for each in watcher.said)


def test_the_teacher_s_key_stays_with_the_teacher(locked_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value model at an address of its own is sent its own key, or none; never the one that pays for the teacher."""
    flags = SMALL | {"limit": 1, "model": "offline", "value_model": "qwen", "value_base_url": [locked_endpoint]}
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with pytest.raises(InputError, match=r"refuses the API key .* Check REASONRAG_VALUE_API_KEY"):
        package.generate(**flags, run="runs/a")
    monkeypatch.setenv("OPENAI_API_KEY", "another")
    monkeypatch.setenv("REASONRAG_VALUE_API_KEY", KEY)
    assert package.generate(**flags, run="runs/a").done == 1


def test_a_dry_run_counts_all_models_and_prices_each(reasonrag: Reasonrag) -> None:
    """Nobody is asked, and no key is needed; a free model adds its requests and no dollars."""
    models = ("--value-model", "gpt-4o-mini", "--agent", "search-o1", "--reader-model", "gpt-4.1-nano")
    flags = ("--limit", 5, "--run", "runs/a", "--dry-run", "--json", *models)
    paid = json.loads(reasonrag("generate", *flags, "--model", "gpt-4o").out)
    prices = {name: ("--price", f"{name}=0,0") for name in ("gpt-4o-mini", "gpt-4.1-nano")}
    [free, read] = [
        json.loads(reasonrag("generate", *flags, "--model", "gpt-4o", *price).out) for price in prices.values()
    ]
    unpriced = reasonrag("generate", *flags, "--model", "gpt-4o", "--value-model", "unheard-of")
    assert not Path("runs/a").exists()
    assert paid["requests"] == free["requests"] == read["requests"]
    assert all(paid["dollars"][end] > each["dollars"][end] > 0 for end in ("low", "high") for each in (free, read))
    assert json.loads(unpriced.out)["dollars"] is None
    assert "no price is known for unheard-of" in unpriced.err
