"""One question explored: from the search's wishes to its line of rollouts.jsonl."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from mcts import RECIPES, Recipe
from preference import FinalScore, PassageRef, QuestionError, RolloutRecord
from preference.records import FailedContinuation, Outcome, RecipeRef
from reasonrag.agent import Agent
from reasonrag.chat import ChatModel, ChatRequest, Completion, Sampling
from reasonrag.errors import ModelError
from reasonrag.exploration import Explorer, RunIdentity
from reasonrag.offline import OfflineTeacher
from reasonrag.prompting import load_prompts, render_prompt
from reasonrag.retrieval import BM25Retriever
from reasonrag.scripted import Script, ScriptedModel

from .conftest import QUESTION

PROMPTS = load_prompts()
QUERY = "So the next query is <query>capital of France</query>"
EVIDENCE = "Based on the query, the relevant evidence is <evidence>It lies on the Seine.</evidence>"
RIGHT = "So the answer is <answer>Seine</answer>"
WRONG = "So the answer is <answer>Tiber</answer>"
NO_TAG = "no tag"


@pytest.fixture
def explorer_of(retriever: BM25Retriever) -> Callable[[ChatModel, Recipe], Explorer]:
    """An explorer of the question with some model and recipe."""

    def make(model: ChatModel, recipe: Recipe) -> Explorer:
        sampling = Sampling(temperature=1, top_p=1, max_tokens=64)
        agent = Agent(model, retriever, PROMPTS, sampling, top_k=2, max_steps=7, seed=0)
        return Explorer(agent, QUESTION, recipe)

    return make


def recipe(name: Any = "paper", **search: Any) -> Recipe:
    """A recipe, small: two siblings per state, one continuation per step, one simulation."""
    small = {"siblings": 2, "continuations": 1, "simulations": 1, "wave": 1, "siblings_at_once": None}
    base = RECIPES[name]
    return base.model_copy(update={"search": base.search.model_copy(update=small | search)})


def identity(of: Recipe) -> RunIdentity:
    return RunIdentity(dataset="own", split="dev", config_hash="c0", seed=0, recipe=of)


def turn(request: ChatRequest) -> str:
    """Which turn a request is, by what it stops at."""
    return {"</query>": "think", "</evidence>": "read", "</answer>": "conclude", "</score>": "judge"}[
        request.sampling.stop[0]
    ]


def is_first(request: ChatRequest) -> bool:
    """Whether it asks about the question alone."""
    return "Previous Thoughts" not in request.messages[1].content


def search_or_guess(request: ChatRequest, position: int) -> str:
    """At first one sibling searches and one guesses wrongly; evidence then leads to the right answer."""
    if turn(request) == "think" and is_first(request):
        return QUERY if position == 0 else WRONG
    return {"think": RIGHT, "read": EVIDENCE, "judge": "<score>40</score>"}[turn(request)]


async def explored(explorer: Explorer, of: Recipe) -> RolloutRecord:
    await explorer.run()
    return explorer.record(identity(of))


# -- the record ------------------------------------------------------------------------------------------------


async def test_a_record_says_what_was_explored_and_how(
    explorer_of: Callable[[ChatModel, Recipe], Explorer],
) -> None:
    """Question, run and recipe, and what the answers cost; the record reads back as it was written."""
    record = await explored(explorer_of(ScriptedModel(search_or_guess), recipe()), recipe())
    assert (record.question_id, record.question, record.golden_answers) == ("q1", QUESTION.question, ["Seine"])
    assert (record.dataset, record.split, record.config_hash, record.seed) == ("own", "dev", "c0", 0)
    assert record.recipe == RecipeRef(name="paper", alpha=0.9, margin_by_layer=True)
    assert (record.usage.calls, record.usage.requests, record.usage.repairs) == (4, 3, 0)
    assert record.error is None
    assert RolloutRecord.model_validate_json(record.to_line()) == record


async def test_every_node_is_a_step_with_its_prompt_and_its_worth(
    explorer_of: Callable[[ChatModel, Recipe], Explorer],
) -> None:
    """The root is no step; a query is worth its continuations, an answer its own score, both discounted per step."""
    record = await explored(explorer_of(ScriptedModel(search_or_guess), recipe()), recipe())
    root, query, answer = record.nodes
    assert (root.id, root.parent_id, root.children_ids, root.layer) == (0, None, [1, 2], None)
    assert (root.action, root.prompt, root.response, root.action_type) == (None, None, None, None)

    assert (query.parent_id, query.layer, query.action, query.action_type) == (0, 0, "think", "query")
    assert (query.response, query.content, query.terminal) == (QUERY, "capital of France", False)
    assert query.prompt == list(render_prompt(PROMPTS, "think", question=QUESTION.question, thoughts=()))
    assert (query.f1, query.outcome, query.passages, query.grounded) == (None, None, None, None)
    assert query.rollouts == [FinalScore(f1=1.0, em=1.0, steps=3)]
    assert query.reward == pytest.approx(0.9**3)

    assert (answer.layer, answer.action_type, answer.content, answer.terminal) == (0, "answer", "Tiber", True)
    assert (answer.f1, answer.em, answer.outcome) == (0.0, 0.0, Outcome(name="f1", value=0.0))
    assert (answer.grounded, answer.reward) == (False, 0.0)
    assert answer.rollouts == [FinalScore(f1=0.0, em=0.0, steps=1)]
    assert root.rollouts == [*answer.rollouts, *query.rollouts]
    assert root.visits == query.visits + answer.visits


async def test_continuations_become_nodes_where_the_recipe_keeps_them(
    explorer_of: Callable[[ChatModel, Recipe], Explorer],
) -> None:
    """A read turn has the passages it was shown, best first; its layer is one more than its query's."""
    economy = recipe("economy")
    record = await explored(explorer_of(ScriptedModel(search_or_guess), economy), economy)
    assert [node.action for node in record.nodes] == [None, "think", "think", "read", "think"]
    assert [node.layer for node in record.nodes] == [None, 0, 0, 1, 2]
    assert [node.parent_id for node in record.nodes] == [None, 0, 0, 1, 3]
    _, query, _, evidence, answer = record.nodes
    assert [passage.id for passage in evidence.passages or []] == ["paris", "france"]
    assert isinstance((evidence.passages or [])[0], PassageRef)
    assert "<reference>Wikipedia Title: Paris\n" in (evidence.prompt or [])[1].content
    assert (evidence.action_type, evidence.grounded) == ("evidence", True)
    assert (answer.f1, answer.grounded, answer.outcome) == (1.0, True, Outcome(name="f1", value=1.0))
    assert answer.reward == pytest.approx(0.9**3)
    assert query.reward == evidence.reward == answer.reward
    assert [node.id for node in record.nodes if node.passages is not None] == [3]


async def test_a_judged_recipe_takes_its_values_from_the_judge(
    explorer_of: Callable[[ChatModel, Recipe], Explorer],
) -> None:
    """Values are what the judge said; rewards are not."""
    released = recipe("released", siblings_at_once=1, simulations=2)
    model = ScriptedModel(search_or_guess)
    record = await explored(explorer_of(model, released), released)
    judged = [request for request in model.requests if turn(request) == "judge"]
    assert len(judged) == 2
    assert record.nodes[1].value == 0.4
    assert record.nodes[1].reward is None
    assert record.usage.calls == len(model.requests) == 4


# -- repairs and failures --------------------------------------------------------------------------------------


def broken_for(*, first: bool, repaired: bool) -> Script:
    """The query of the first turn, or all later answers, do not parse; their repairs do or do not."""

    def script(request: ChatRequest, position: int) -> str:
        plain = search_or_guess(request, position)
        repair = len(request.messages) > 2
        broken = is_first(request) == first and turn(request) == "think" and plain != WRONG
        return plain if not broken or (repair and repaired) else NO_TAG

    return script


async def test_a_repaired_step_is_marked_and_its_value_counts_for_itself_only(
    explorer_of: Callable[[ChatModel, Recipe], Explorer],
) -> None:
    """Its prompt is the state's own, what was sent stands beside it, and nodes above it leave its answers out."""
    explorer = explorer_of(ScriptedModel(broken_for(first=True, repaired=True)), recipe())
    record = await explored(explorer, recipe())
    root, query, answer = record.nodes
    assert [node.step.plain for node in explorer.search.tree.nodes if node.step] == [False, True]
    assert (query.repaired, query.response, query.parse_error) == (True, QUERY, None)
    assert [message.role for message in query.sampled_with or []] == ["system", "user", "assistant", "user"]
    assert (query.sampled_with or [])[:2] == query.prompt == answer.prompt
    assert (answer.repaired, answer.sampled_with) == (False, None)
    assert query.rollouts == [FinalScore(f1=1.0, em=1.0, steps=3)]
    assert root.rollouts == answer.rollouts
    assert record.usage.repairs == 1


async def test_a_repair_within_a_continuation_leaves_its_answer_out(
    explorer_of: Callable[[ChatModel, Recipe], Explorer],
) -> None:
    """Only plain samples of the policy say what a step is worth."""
    explorer = explorer_of(ScriptedModel(broken_for(first=False, repaired=True)), recipe())
    record = await explored(explorer, recipe())
    query = record.nodes[1]
    assert (query.rollouts, query.reward, query.repaired) == ([], None, False)
    assert record.failed_continuations == []


async def test_a_failed_step_is_a_terminal_worth_nothing(
    explorer_of: Callable[[ChatModel, Recipe], Explorer],
) -> None:
    """It stands in the tree with its text, cause and repair."""
    explorer = explorer_of(ScriptedModel(broken_for(first=True, repaired=False)), recipe())
    failed = (await explored(explorer, recipe())).nodes[1]
    assert (failed.response, failed.terminal, failed.reward, failed.f1) == (NO_TAG, True, 0.0, 0.0)
    assert (failed.action, failed.action_type, failed.content, failed.repaired) == ("think", None, None, False)
    assert failed.outcome == Outcome(name="f1", value=0.0)
    assert failed.parse_error
    assert (failed.parse_error.cause, failed.parse_error.repair) == ("no_tag", NO_TAG)


async def test_a_continuation_that_failed_is_kept_with_its_text(
    explorer_of: Callable[[ChatModel, Recipe], Explorer],
) -> None:
    """Its steps are no nodes, so the record lists its last step: from which node, in which turn, why."""
    explorer = explorer_of(ScriptedModel(broken_for(first=False, repaired=False)), recipe(continuations=2))
    record = await explored(explorer, recipe())
    assert [each.node_id for each in record.failed_continuations] == [1, 1]
    failed = record.failed_continuations[0]
    assert isinstance(failed, FailedContinuation)
    assert (failed.layer, failed.action, failed.response, failed.parse_error.cause) == (2, "think", NO_TAG, "no_tag")
    assert record.nodes[1].rollouts == 2 * [FinalScore(f1=0.0, em=0.0, steps=3)]


async def test_a_failed_continuation_that_is_in_the_tree_is_listed_once(
    explorer_of: Callable[[ChatModel, Recipe], Explorer],
) -> None:
    """Where continuations are nodes, the failed step is one as well."""
    economy = recipe("economy")
    explorer = explorer_of(ScriptedModel(broken_for(first=False, repaired=False)), economy)
    record = await explored(explorer, economy)
    assert record.failed_continuations == []
    assert [node.id for node in record.nodes if node.parse_error] == [4]


@pytest.mark.parametrize("failing", ["think", "read", "judge"])
async def test_a_model_error_in_any_piece_of_work_fails_the_question(
    failing: str, explorer_of: Callable[[ChatModel, Recipe], Explorer]
) -> None:
    """The error goes to whoever explores; what was spent until then is in the question's error line."""

    def script(request: ChatRequest, position: int) -> str:
        if turn(request) == failing:
            raise ModelError("the endpoint is down", cause="http_500")
        return search_or_guess(request, position)

    of = recipe("released", siblings_at_once=1, simulations=3) if failing == "judge" else recipe()
    explorer = explorer_of(ScriptedModel(script), of)
    with pytest.raises(ModelError, match="the endpoint is down"):
        await explorer.run()
    record = explorer.error_record(identity(of), QuestionError(cause="http_500", message="the endpoint is down"))
    assert (record.question_id, record.nodes, record.failed_continuations) == ("q1", [], [])
    assert record.error == QuestionError(cause="http_500", message="the endpoint is down")
    assert record.usage.calls == {"think": 0, "read": 2, "judge": 1}[failing]


async def test_the_other_continuations_of_a_step_are_cancelled_when_one_fails(
    explorer_of: Callable[[ChatModel, Recipe], Explorer],
) -> None:
    """A question that has failed asks for nothing more, not even within one piece of work."""

    def script(request: ChatRequest, position: int) -> str:
        if turn(request) == "think" and not is_first(request) and request.samples[position] % 2:
            raise ModelError("down", cause="http_503")
        return {"think": QUERY, "read": EVIDENCE, "conclude": RIGHT}[turn(request)]

    model = ScriptedModel(script)
    explorer = explorer_of(model, recipe(siblings=1, continuations=2))
    with pytest.raises(ModelError, match="down"):
        await explorer.run()
    asked = len(model.requests)
    for _ in range(50):
        await asyncio.sleep(0)
    assert len(model.requests) == asked


async def test_the_other_work_of_a_wave_is_cancelled_when_a_piece_fails(
    explorer_of: Callable[[ChatModel, Recipe], Explorer],
) -> None:
    """A question that has failed asks for nothing more."""

    def script(request: ChatRequest, position: int) -> str:
        if turn(request) == "think" and is_first(request):
            return QUERY if position else QUERY.replace("France", "Italy")
        if "Italy" in request.messages[1].content.partition("<reference>")[0]:
            raise ModelError("the endpoint is down", cause="http_500")
        return {"think": QUERY, "read": EVIDENCE, "conclude": RIGHT}[turn(request)]

    model = ScriptedModel(script)
    explorer = explorer_of(model, recipe())
    with pytest.raises(ModelError):
        await explorer.run()
    asked = len(model.requests)
    for _ in range(50):
        await asyncio.sleep(0.001)
    assert len(model.requests) == asked


# -- determinism -----------------------------------------------------------------------------------------------


class Unhurried:
    """The offline teacher behind a network that delivers in any order."""

    def __init__(self, seed: int) -> None:
        self.name = "offline"
        self._teacher = OfflineTeacher()
        self._dice = random.Random(seed)
        self.order: list[str] = []

    async def complete(self, request: ChatRequest) -> Sequence[Completion]:
        for _ in range(self._dice.randrange(20)):
            await asyncio.sleep(0)
        self.order.append(request.key(0, model=self.name))
        return await self._teacher.complete(request)

    async def check(self) -> None:
        """Always there."""

    async def close(self) -> None:
        """Holds nothing open."""


@pytest.mark.parametrize("name", list(RECIPES))
async def test_a_tree_does_not_depend_on_the_order_of_answers(
    name: str, explorer_of: Callable[[ChatModel, Recipe], Explorer]
) -> None:
    """The same answers, whenever they come, are the same bytes."""
    of = {str(known): each for known, each in RECIPES.items()}[name]
    models = [Unhurried(seed) for seed in range(3)]
    records = [await explored(explorer_of(model, of), of) for model in models]
    assert len({record.to_line() for record in records}) == 1
    assert len(records[0].nodes) > 5
    if of.search.wave > 1:
        assert len({tuple(model.order) for model in models}) > 1
