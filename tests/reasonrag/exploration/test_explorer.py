"""One question explored: from the search's wishes to its line of rollouts.jsonl."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from mcts import RECIPES, Recipe
from mcts.rewards import ANSWER_REWARDS
from preference import ActionType, FinalScore, QuestionError, RolloutRecord
from preference.records import FailedContinuation, Outcome, ParseFailure, PassageRef, RecipeRef
from reasonrag.agent.agent import Agent, AgentStep
from reasonrag.agent.outcomes import outcome_of
from reasonrag.agent.prompting import load_prompts, render_prompt, render_variation
from reasonrag.agent.state import State
from reasonrag.data.questions import Question
from reasonrag.errors import ModelError
from reasonrag.exploration.explorer import Explorer, RunIdentity
from reasonrag.llm.chat import ChatModel, ChatRequest, Completion, Sampling
from reasonrag.llm.offline import OfflineTeacher
from reasonrag.retrieval.retriever import IndexRetriever
from tests.helpers.command_line import QUESTION
from tests.helpers.scripted_model import Script, ScriptedModel, turn

PROMPTS = load_prompts()
QUERY = "So the next query is <query>capital of France</query>"
EVIDENCE = "Based on the query, the relevant evidence is <evidence>It lies on the Seine.</evidence>"
RIGHT = "So the answer is <answer>Seine</answer>"
WRONG = "So the answer is <answer>Tiber</answer>"
NO_TAG = "no tag"
ExplorerOf = Callable[..., Explorer]
"""Of a model and a recipe, perhaps of another question or with other steps."""


@pytest.fixture
def explorer_of(retriever: IndexRetriever) -> ExplorerOf:
    """An explorer of the question with some model and recipe."""

    def make(model: ChatModel, recipe: Recipe, *, question: Question = QUESTION, max_steps: int = 7) -> Explorer:
        sampling = Sampling(temperature=1, top_p=1, max_tokens=64)
        agent = Agent(model, retriever, PROMPTS, sampling, top_k=2, max_steps=max_steps, seed=0)
        return Explorer(agent, question, recipe)

    return make


def recipe(name: Any = "continuation", **search: Any) -> Recipe:
    """A recipe, small: two siblings per state, one continuation per step, one simulation."""
    small = {"siblings": 2, "continuations": 1, "simulations": 1, "wave": 1, "siblings_at_once": None}
    base = RECIPES[name]
    return base.model_copy(update={"search": base.search.model_copy(update=small | search)})


def identity(of: Recipe) -> RunIdentity:
    return RunIdentity(dataset="own", split="dev", config_hash="c0", seed=0, recipe=of)


def is_first(request: ChatRequest) -> bool:
    """Whether it asks about the question alone."""
    return "Previous Thoughts" not in request.messages[1].content


def search_or_guess(request: ChatRequest, position: int) -> str:
    """At first one sibling searches and one guesses wrongly; evidence then leads to the right answer."""
    if turn(request) == "think" and is_first(request):
        return QUERY if request.samples[position] == 0 else WRONG
    return {"think": RIGHT, "read": EVIDENCE, "conclude": RIGHT, "score": "<score>40</score>"}[turn(request)]


async def explored(explorer: Explorer, of: Recipe) -> RolloutRecord:
    await explorer.run()
    return explorer.record(identity(of))


# -- the record ------------------------------------------------------------------------------------------------


async def test_a_record_says_what_was_explored_and_how(explorer_of: ExplorerOf) -> None:
    """Question, run and recipe, and what the answers cost; the record reads back as it was written."""
    record = await explored(explorer_of(ScriptedModel(search_or_guess), recipe()), recipe())
    assert (record.question_id, record.question, record.golden_answers) == ("q1", QUESTION.question, ["Seine"])
    assert (record.dataset, record.split, record.config_hash, record.seed) == ("own", "dev", "c0", 0)
    assert record.recipe == RecipeRef(name="continuation", reward="spre", alpha=0.9, margin_by_layer=True)
    assert (record.usage.calls, record.usage.requests, record.usage.repairs) == (4, 3, 0)
    assert record.error is None
    assert RolloutRecord.model_validate_json(record.to_line()) == record


async def test_every_node_is_a_step_with_its_prompt_and_its_worth(explorer_of: ExplorerOf) -> None:
    """The root is no step; a query is worth its continuations, an answer its own score, both discounted per step."""
    record = await explored(explorer_of(ScriptedModel(search_or_guess), recipe()), recipe())
    root, query, answer = record.nodes
    assert (root.id, root.parent_id, root.children_ids, root.layer) == (0, None, [1, 2], None)
    assert (root.action, root.prompt, root.response, root.action_type) == (None, None, None, None)

    assert (query.parent_id, query.layer, query.action, query.action_type) == (0, 0, "think", "query")
    assert (query.response, query.content, query.terminal) == (QUERY, "capital of France", False)
    assert query.prompt == list(render_prompt(PROMPTS, "think", question=QUESTION.question, thoughts=()))
    assert (query.f1, query.outcome, query.passages, query.grounded) == (None, None, None, None)
    assert query.rollouts == [FinalScore(f1=1.0, em=1.0, steps=3, end="answer")]
    assert query.reward == pytest.approx(0.9**3)

    assert (answer.layer, answer.action_type, answer.content, answer.terminal) == (0, "answer", "Tiber", True)
    assert (answer.f1, answer.em, answer.outcome) == (0.0, 0.0, Outcome(name="f1", value=0.0))
    assert (answer.grounded, answer.reward) == (False, 0.0)
    assert answer.rollouts == [FinalScore(f1=0.0, em=0.0, steps=1, end="answer")]
    assert root.rollouts == [*answer.rollouts, *query.rollouts]
    assert root.visits == query.visits + answer.visits


async def test_continuations_become_nodes_where_the_recipe_keeps_them(explorer_of: ExplorerOf) -> None:
    """A read turn has the passages it was shown, best first; its layer is one more than its query's. The record holds
    what every rule of rewards says, by name, so that labels can be compared without another search."""
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
    assert (answer.f1, answer.grounded, answer.in_evidence) == (1.0, True, True)
    assert answer.outcome == Outcome(name="evident_f1", value=1.0)
    assert answer.reward == pytest.approx(0.9**3)
    assert query.reward == evidence.reward == answer.reward
    assert all(set(node.rewards) == set(ANSWER_REWARDS) for node in record.nodes)
    assert all(node.reward == node.rewards["spre_even"] for node in record.nodes)
    assert [node.id for node in record.nodes if node.passages is not None] == [3]


# -- gold passages ---------------------------------------------------------------------------------------------

GOLD = QUESTION.model_copy(update={"metadata": {"gold_ids": ["paris", "seine"]}})
"""`seine` is no passage of the corpus: what the data set names need not be there."""


def search_twice(request: ChatRequest, position: int) -> str:
    """Searches for Paris twice, then for Rome; every second draw reports nothing of what it read."""
    earlier = request.messages[1].content.count("<query>")
    if turn(request) == "think":
        return QUERY if earlier < 2 else QUERY.replace("France", "Italy") if earlier < 3 else RIGHT
    if turn(request) == "read":
        return "<evidence>None</evidence>" if request.samples[position] % 2 else EVIDENCE
    return RIGHT


async def test_queries_count_gold_passages_once_and_evidence_what_it_reports(explorer_of: ExplorerOf) -> None:
    """A query that fetches the same passage again gains nothing; evidence counts by its sentences, none by 0."""
    economy = recipe("economy", simulations=6, selection="uct", siblings=3)
    record = await explored(explorer_of(ScriptedModel(search_twice), economy, question=GOLD), economy)
    assert record.gold_passages == ["paris", "seine"]
    queries = [node for node in record.nodes if node.action_type == "query" and node.children_ids]
    gained = {(node.layer, node.content, node.gold) for node in queries}
    assert gained == {(0, "capital of France", 1), (2, "capital of France", 0), (4, "capital of Italy", 0)}
    evidence = {(node.layer, node.content, node.gold) for node in record.nodes if node.action_type == "evidence"}
    assert evidence >= {(1, "It lies on the Seine.", 1), (1, "None", 0), (3, "It lies on the Seine.", 1)}
    assert all(node.gold is None for node in record.nodes if node.action_type not in ("query", "evidence"))


async def test_gold_passages_reach_no_prompt_and_change_no_step(explorer_of: ExplorerOf) -> None:
    """The same requests and the same tree, but for the counts: what a query found is known from its continuation,
    though that is no node. Where no gold passages are known there is none to count."""
    gold_titles = QUESTION.model_copy(update={"metadata": {"gold_titles": ["Zanzibar", "paris"]}})
    models = [ScriptedModel(search_or_guess) for _ in range(2)]
    with_gold, without = [
        await explored(explorer_of(model, recipe(), question=question), recipe())
        for model, question in zip(models, (gold_titles, QUESTION), strict=True)
    ]
    assert [node.gold for node in with_gold.nodes] == [None, 1, None]
    assert [node.gold for node in without.nodes] == [None, None, None]
    assert [node.model_copy(update={"gold": None}) for node in with_gold.nodes] == without.nodes
    assert models[0].requests == models[1].requests
    assert not any("Zanzibar" in each.content for request in models[0].requests for each in request.messages)


# -- siblings that say the same --------------------------------------------------------------------------------

SAME_QUERY = "The capital first. So the next query is <query>The capital of France?</query>"
OTHER_QUERY = "So the next query is <query>rivers of France</query>"


def searches(*queries: str) -> Script:
    """The draws of the first turn say these in turn; what is read gives the right answer."""

    def script(request: ChatRequest, position: int) -> str:
        if turn(request) == "think" and is_first(request):
            return queries[request.samples[position] % len(queries)]
        return {"think": RIGHT, "read": EVIDENCE}[turn(request)]

    return script


def stubborn(*, until: int) -> Script:
    """In the first turn the same query, in two wordings, before some draw; then another. What is read gives the right
    answer."""
    return searches(*(SAME_QUERY if draw == 1 else QUERY for draw in range(until)), OTHER_QUERY)


def root_draws(model: ScriptedModel) -> list[ChatRequest]:
    return [request for request in model.requests if turn(request) == "think" and is_first(request)]


async def test_where_all_siblings_say_the_same_a_hotter_draw_is_tried(explorer_of: ExplorerOf) -> None:
    """Two wordings of one query are valued once and share what is known. The third draw, with the same messages but
    hotter, says another thing; it is valued, is no plain sample, and leaves the mean of the question as it was."""
    of = recipe("economy", root_siblings=None, simulations=2)
    model = ScriptedModel(stubborn(until=2))
    record = await explored(explorer_of(model, of), of)
    first, again = root_draws(model)
    assert (first.samples, again.samples) == ((0, 1), (2,))
    assert again.messages == first.messages
    assert (first.sampling.temperature, again.sampling.temperature) == (1.0, 1.3)

    root, query, twin, *_, other = (record.nodes[each] for each in (0, *record.nodes[0].children_ids))
    assert (query.content, twin.content, other.content) == (
        "capital of France",
        "The capital of France?",
        "rivers of France",
    )
    assert (query.same_as, twin.same_as, other.same_as) == (None, query.id, None)
    # the third finds the passage that right answers rest on, too: two observations
    assert (query.reward, query.observations) == (twin.reward, twin.observations) == (pytest.approx(0.9**3), 2)
    assert (twin.visits, twin.children_ids, twin.rollouts) == (0, [], [])
    assert (query.sampled_with, query.sampled_temperature, query.plain_draws) == (None, None, 1)
    assert (other.sampled_with, other.sampled_temperature, other.plain_draws) == (other.prompt, 1.3, 0)
    assert (other.draws, other.repaired, other.reward) == (1, False, pytest.approx(0.9**3))
    assert root.rollouts == query.rollouts


async def test_where_a_hotter_draw_says_the_same_again_the_siblings_are_shown(explorer_of: ExplorerOf) -> None:
    """The third draw repeats the first and is the same node, drawn twice. The fourth is told what was said, in every
    wording, and is hotter still."""
    of = recipe("economy", root_siblings=None, simulations=3)
    model = ScriptedModel(stubborn(until=3))
    record = await explored(explorer_of(model, of), of)
    first, hotter, shown = root_draws(model)
    assert [request.samples for request in (first, hotter, shown)] == [(0, 1), (2,), (3,)]
    assert shown.messages == render_variation(PROMPTS, first.messages, said=[QUERY, SAME_QUERY])
    assert shown.sampling.temperature == pytest.approx(1.6)
    query, _, other = (record.nodes[each] for each in record.nodes[0].children_ids)
    assert (query.draws, query.plain_draws, query.sampled_with) == (2, 1, None)
    assert other.prompt == list(first.messages)
    assert other.sampled_with == list(shown.messages)
    assert other.sampled_temperature == pytest.approx(1.6)


async def test_queries_that_find_the_same_passages_are_valued_once(explorer_of: ExplorerOf) -> None:
    """Other words, equal passages: the second shares the estimate of the first, if the recipe shares at all."""
    script = searches(QUERY, "So the next query is <query>which city governs all of France as its capital</query>")
    for name, same_as in (("economy", 1), ("continuation", None)):
        of = recipe(name, simulations=1)
        record = await explored(explorer_of(ScriptedModel(script), of), of)
        query, twin = (record.nodes[each] for each in record.nodes[0].children_ids)
        assert (query.same_as, twin.same_as) == (None, same_as)
        assert query.reward == twin.reward


ROMAN_QUERY = "So the next query is <query>capital of France, capital of Italy</query>"


@pytest.mark.parametrize("known", [True, False], ids=["gold passages are known", "no gold passages are known"])
async def test_queries_that_show_the_same_gold_passage_count_what_is_known_of_both(
    known: bool, explorer_of: ExplorerOf
) -> None:
    """Besides the article on Paris they show different ones, by real BM25: a third of all. Where no gold passages are
    known, what right answers rest on tells at the end that both reveal the same."""
    question, script, records = GOLD if known else QUESTION, searches(QUERY, ROMAN_QUERY), {}
    for name in ("economy", "continuation"):
        of = recipe(name)
        record = records[name] = await explored(explorer_of(ScriptedModel(script), of, question=question), of)
        query, other = (record.nodes[each] for each in record.nodes[0].children_ids)
        assert (query.same_as, other.same_as) == (None, None)
        assert (query.in_common, other.in_common) == ({}, {query.id: pytest.approx(2 / 3)})
        assert query.reward == other.reward == pytest.approx(0.9**3)
        assert RolloutRecord.model_validate_json(record.to_line()) == record
    query, other = (records["economy"].nodes[each] for each in records["economy"].nodes[0].children_ids)
    assert (len(query.rollouts), len(other.rollouts)) == (1, 1)
    assert other.observations == pytest.approx(1 + 2 / 3)


def taken(action_type: ActionType | None, content: str | None, **fields: Any) -> AgentStep:
    """A step as if it had been sampled in the question's state."""
    state = State(QUESTION, "think", layer=0)
    return AgentStep(state, (), content or NO_TAG, action_type, content, terminal=action_type == "answer", **fields)


FAILED = ParseFailure(cause="no_tag", detail="found no tag")


@pytest.mark.parametrize(
    ("step", "outcomes"),
    [
        (taken("answer", "Seine", f1=0.8, em=1.0, in_evidence=True), (0.8, 1.0, 1.0)),  # labels compare anew
        (taken("answer", "Seine", f1=0.8, em=1.0, in_evidence=False), (0.8, 1.0, 0.0)),
        (taken("answer", "Seine", f1=1.0, em=1.0, in_evidence=None), (1.0, 1.0, 1.0)),  # no string tells
        (taken("answer", "Tiber", f1=0.0, em=0.0, in_evidence=True), (0.0, 0.0, 0.0)),
        # more words than a wrong answer that shares some, and worth more
        (taken("answer", "the Seine, not the Tiber", f1=0.4, em=0.0, in_evidence=True), (0.4, 0.0, 0.5)),
        (taken("answer", "the Sein", f1=0.8, em=0.0, in_evidence=True), (0.8, 0.0, 0.0)),
        (taken("answer", "the Seine, or so", f1=0.6, em=0.0, in_evidence=False), (0.6, 0.0, 0.0)),
        (taken("query", "rivers"), (0.0, 0.0, 0.0)),
        (taken(None, None, f1=0.0, em=0.0, parse_error=FAILED), (0.0, 0.0, 0.0)),
    ],
)
def test_the_outcome_of_an_answer_is_what_the_recipe_says(step: AgentStep, outcomes: tuple[float, ...]) -> None:
    """F1, EM, or F1 of answers that some evidence before them supports, at least .5 of those that contain a golden
    answer and at most .4 of others; 0 of anything else."""
    assert tuple(outcome_of(step, name) for name in ("f1", "em", "evident_f1")) == outcomes


# -- repairs and failures --------------------------------------------------------------------------------------


def broken_for(*, first: bool, repaired: bool) -> Script:
    """The query of the first turn, or all later answers, do not parse; their repairs do or do not."""

    def script(request: ChatRequest, position: int) -> str:
        plain = search_or_guess(request, position)
        repair = len(request.messages) > 2
        broken = is_first(request) == first and turn(request) == "think" and plain != WRONG
        return plain if not broken or (repair and repaired) else NO_TAG

    return script


async def test_a_repaired_step_is_marked_and_its_value_counts_for_itself_only(explorer_of: ExplorerOf) -> None:
    """Its prompt is the state's own, what was sent stands beside it, and nodes above it leave its answers out."""
    explorer = explorer_of(ScriptedModel(broken_for(first=True, repaired=True)), recipe())
    record = await explored(explorer, recipe())
    root, query, answer = record.nodes
    assert [node.step.plain for node in explorer.search.tree.nodes if node.step] == [False, True]
    assert (query.repaired, query.response, query.parse_error) == (True, QUERY, None)
    assert [message.role for message in query.sampled_with or []] == ["system", "user", "assistant", "user"]
    assert (query.sampled_with or [])[:2] == query.prompt == answer.prompt
    assert (answer.repaired, answer.sampled_with) == (False, None)
    assert query.rollouts == [FinalScore(f1=1.0, em=1.0, steps=3, end="answer")]
    assert root.rollouts == answer.rollouts
    assert record.usage.repairs == 1


async def test_a_continuation_that_failed_is_kept_with_its_text(explorer_of: ExplorerOf) -> None:
    """Its steps are no nodes, so the record lists its last step: from which node, in which turn, why. Where
    continuations are nodes, the failed step is one as well, and is listed once."""
    broken, economy = broken_for(first=False, repaired=False), recipe("economy")
    kept = await explored(explorer_of(ScriptedModel(broken), economy), economy)
    assert (kept.failed_continuations, [node.id for node in kept.nodes if node.parse_error]) == ([], [4])
    record = await explored(explorer_of(ScriptedModel(broken), recipe(continuations=2)), recipe())
    assert [each.node_id for each in record.failed_continuations] == [1, 1]
    failed = record.failed_continuations[0]
    assert isinstance(failed, FailedContinuation)
    assert (failed.layer, failed.action, failed.response, failed.parse_error.cause) == (2, "think", NO_TAG, "no_tag")
    assert record.nodes[1].rollouts == 2 * [FinalScore(f1=0.0, em=0.0, steps=3, end="failed")]


@pytest.mark.parametrize("failing", ["think", "read", "score"])
async def test_a_model_error_in_any_piece_of_work_fails_the_question(failing: str, explorer_of: ExplorerOf) -> None:
    """The error goes to whoever explores; what was spent until then is in the question's error line."""

    def script(request: ChatRequest, position: int) -> str:
        if turn(request) == failing:
            raise ModelError("the endpoint is down", cause="http_500")
        return search_or_guess(request, position)

    of = recipe("released", siblings_at_once=1, simulations=3) if failing == "score" else recipe()
    explorer = explorer_of(ScriptedModel(script), of)
    with pytest.raises(ModelError, match="the endpoint is down"):
        await explorer.run()
    record = explorer.record(identity(of), QuestionError(cause="http_500", message="the endpoint is down"))
    assert (record.question_id, record.nodes, record.failed_continuations) == ("q1", [], [])
    assert record.error == QuestionError(cause="http_500", message="the endpoint is down")
    assert record.usage.calls == {"think": 0, "read": 2, "score": 1}[failing]


def one_continuation_fails(request: ChatRequest, position: int) -> str:
    if turn(request) == "think" and not is_first(request) and request.samples[position] % 2:
        raise ModelError("the endpoint is down", cause="http_503")
    return {"think": QUERY, "read": EVIDENCE, "conclude": RIGHT}[turn(request)]


def one_sibling_fails(request: ChatRequest, position: int) -> str:
    if turn(request) == "think" and is_first(request):
        return QUERY if position else QUERY.replace("France", "Italy")
    if "Italy" in request.messages[1].content.partition("<reference>")[0]:
        raise ModelError("the endpoint is down", cause="http_500")
    return {"think": QUERY, "read": EVIDENCE, "conclude": RIGHT}[turn(request)]


@pytest.mark.parametrize(
    ("script", "of"),
    [(one_continuation_fails, recipe(siblings=1, continuations=2)), (one_sibling_fails, recipe())],
    ids=["of a step", "of a wave"],
)
async def test_the_other_work_is_cancelled_when_a_piece_fails(
    script: Script, of: Recipe, explorer_of: ExplorerOf
) -> None:
    """A question that has failed asks for nothing more, not even within one piece of work."""
    model = ScriptedModel(script)
    explorer = explorer_of(model, of)
    with pytest.raises(ModelError, match="the endpoint is down"):
        await explorer.run()
    asked = len(model.requests)
    for _ in range(50):
        await asyncio.sleep(0.001)
    assert len(model.requests) == asked


class Unhurried(OfflineTeacher):
    """The offline teacher behind a network that delivers in any order."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._dice = random.Random(seed)
        self.order: list[str] = []

    async def complete(self, request: ChatRequest) -> Sequence[Completion]:
        for _ in range(self._dice.randrange(20)):
            await asyncio.sleep(0)
        self.order.append(request.keys(model=self.name)[0])
        return await super().complete(request)


@pytest.mark.parametrize("name", list(RECIPES))
async def test_a_tree_does_not_depend_on_the_order_of_answers(name: str, explorer_of: ExplorerOf) -> None:
    """The same answers, whenever they come, are the same bytes."""
    of = {str(known): each for known, each in RECIPES.items()}[name]
    models = [Unhurried(seed) for seed in range(3)]
    records = [await explored(explorer_of(model, of), of) for model in models]
    assert len({record.to_line() for record in records}) == 1
    assert len(records[0].nodes) > 5
    if of.search.wave > 1:
        assert len({tuple(model.order) for model in models}) > 1


# -- the published searches ------------------------------------------------------------------------------------


async def test_ragym_goes_on_with_the_step_that_a_judge_ranks_first(explorer_of: ExplorerOf) -> None:
    """Rewards are 1 / (1 + rank). A reply that cannot be read is not shown and has none; equal ones are ranked each for
    itself; and where the judge fails, all have 0 and the first one is gone on with."""

    def script(request: ChatRequest, position: int) -> str:
        if turn(request) == "rank":
            shown = [line for line in request.messages[1].content.splitlines() if line.startswith("Candidate ")]
            if len(request.messages) > 2 or "It lies on" in shown[0]:
                return "no idea"
            best_first = sorted(range(len(shown)), key=lambda number: QUERY not in shown[number])
            return f"<ranking>{' '.join(str(number + 1) for number in best_first)}</ranking>"
        if turn(request) == "think" and "Previous Thoughts" not in request.messages[1].content:
            return (WRONG, QUERY, NO_TAG)[request.samples[position]]
        return {"think": RIGHT, "read": EVIDENCE}[turn(request)]

    ragym, model = recipe("ragym", siblings=3, simulations=10), ScriptedModel(script)
    record = await explored(explorer_of(model, ragym), ragym)
    wrong, query, failed, *others = record.nodes[1:]
    assert [node.reward for node in (wrong, query, failed)] == [0.5, 1.0, None]
    assert (failed.terminal, failed.outcome, failed.rollouts) == (True, Outcome(name="f1", value=None), [])
    assert [(node.parent_id, node.action_type, node.reward) for node in others[:3]] == [(query.id, "evidence", 0.0)] * 3
    ends = others[3:]
    assert {node.parent_id for node in ends} == {others[0].id}
    assert sorted(node.reward or 0.0 for node in ends) == [1 / 3, 1 / 2, 1.0]
    [executed] = [node for node in ends if node.visits == 2]
    assert (executed.reward, executed.f1) == (1.0, 1.0)
    assert [(each.kind, each.node_id) for each in record.unreadable_judgements] == [("rank", query.id)]
    assert (
        record.recipe.model_dump()
        == RecipeRef(name="ragym", reward="rank", judge_sees_gold=False, alpha=1.0, margin_by_layer=False).model_dump()
    ), "no gold reaches the judge"


async def test_prorag_continues_at_temperature_0(explorer_of: ExplorerOf) -> None:
    """Steps are sampled as the run says; what follows them is greedy, and only one of them is continued."""
    prorag, model = recipe("prorag", siblings=3), ScriptedModel(search_or_guess)
    record = await explored(explorer_of(model, prorag), prorag)
    first, *greedy = model.requests
    assert (first.sampling.temperature, len(first.samples)) == (1, 3)
    assert {each.sampling.temperature for each in greedy} <= {0.0}
    assert sum(node.visits for node in record.nodes[1:]) == 1
    assert all((node.reward is None) == (node.visits == 0) for node in record.nodes)


async def test_where_no_answer_is_forced_the_last_turn_may_search_and_is_worth_0(explorer_of: ExplorerOf) -> None:
    """As in ProRAG's tree: the prompt of the last turn is that of any other, and so is its answer."""

    def script(request: ChatRequest, _position: int) -> str:
        return {"think": QUERY, "read": EVIDENCE, "conclude": RIGHT}[turn(request)]

    for last, replies in (("query", 3), ("evidence", 2)):
        prorag, model = recipe("prorag"), ScriptedModel(script)
        explorer = explorer_of(model, prorag, max_steps=replies)
        explorer.agent = replace(explorer.agent, must_answer=False)
        record = await explored(explorer, prorag)
        assert (turn(model.requests[-1]), len(model.requests)) == (("think", "read")[last == "evidence"], replies)
        [end] = record.nodes[1].rollouts
        assert end == FinalScore(f1=0.0, em=0.0, steps=replies, end="unanswered", outcome=0.0)
        assert record.nodes[1].reward == 0.0
    model = ScriptedModel(lambda request, _: QUERY if turn(request) == "think" else RIGHT)
    explorer = explorer_of(model, recipe("prorag"), max_steps=2)
    assert (await explored(explorer, recipe("prorag"))).nodes[1].rollouts[0].end == "conclusion"


async def test_repairs_count_where_the_recipe_says_so(explorer_of: ExplorerOf) -> None:
    """The published code repairs nothing: a reply is a reply. What was really sent is recorded all the same."""
    for name, plain in (("released", 1), ("reasonrag", 0)):
        of = recipe(name, siblings_at_once=1)
        replies = iter([NO_TAG, RIGHT, "<score>40</score>"])
        record = await explored(explorer_of(ScriptedModel(replies), of), of)
        answered = record.nodes[1]
        assert (answered.repaired, answered.plain_draws, answered.sampled_with is None) == (True, plain, False)
        assert (record.nodes[0].reward is not None) == bool(plain)
