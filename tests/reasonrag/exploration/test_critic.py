"""A critic in the search: which drafts are continued, that labels are not its own, and what it refuses."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal

import pytest

import reasonrag
from mcts import RECIPES
from mcts.search import STRIDE
from preference import RolloutRecord, read_rollouts
from reasonrag.agent.agent import Agent
from reasonrag.agent.prompting import load_prompts
from reasonrag.errors import InputError, ReasonragError
from reasonrag.exploration.display import show_run
from reasonrag.exploration.explorer import Explorer, RunIdentity
from reasonrag.exploration.from_settings import resolve_recipe
from reasonrag.exploration.settings import GenerateSettings
from reasonrag.llm.chat import ChatRequest, Completion, Sampling
from reasonrag.llm.critic import Critic, find_critic
from reasonrag.llm.scripted_model import ScriptedModel
from reasonrag.progress import SilentWatcher
from reasonrag.retrieval.retriever import IndexRetriever
from reasonrag.viewing.collection import open_collection
from reasonrag.viewing.overview import read_all
from tests.helpers.command_line import QUESTION
from tests.reasonrag.llm.test_critic import FACTS, folder_of

pytestmark = pytest.mark.slow
ASKED: dict[str, Any] = {"dataset": "atlas", "limit": 3, "model": "offline-weak"}


def shortest(request: ChatRequest, _: int) -> str:
    """A critic that likes short steps."""
    return str(-len(request.messages[2].content) / 50)


def trees(run: Path, **flags: Any) -> list[RolloutRecord]:
    reasonrag.generate(run=run, **ASKED, **flags)
    return list(read_rollouts(run / "rollouts.jsonl"))


def test_economy_continues_the_chosen_drafts_beside_steps_that_continuations_drew_plainly(tmp_path: Path) -> None:
    found = trees(tmp_path, siblings=2, critic_draws=4, critic_model=ScriptedModel(shortest))
    nodes = [node for tree in found for node in tree.nodes[1:]]
    assert any(node.critic_score is not None and not node.plain_draws for node in nodes)
    assert any(node.critic_score is None and node.plain_draws for node in nodes)
    assert all(node.reward is not None for node in nodes if node.rollouts)


def test_of_the_drafts_of_a_state_those_that_score_highest_are_continued_and_the_others_are_kept_apart(
    tmp_path: Path,
) -> None:
    critic = ScriptedModel(shortest)
    found = trees(tmp_path, recipe="continuation", siblings=2, critic_draws=4, critic_model=critic)
    assert any(tree.pruned for tree in found)
    for tree in found:
        told = [(each.node_id, each.response) for each in tree.pruned]
        assert len(set(told)) == len(told), "each once"
        for pruned in tree.pruned:
            siblings = [tree.nodes[each] for each in tree.nodes[pruned.node_id].children_ids]
            assert pruned.response not in {each.response for each in siblings}, "what is in the tree was not left out"
        assert tree.critic_usage is not None
    assert sum(tree.critic_usage.calls for tree in found if tree.critic_usage) == len(critic.requests)


def test_a_step_that_a_critic_chose_is_no_plain_draw_so_that_no_value_above_it_counts_it(tmp_path: Path) -> None:
    for tree in trees(tmp_path, recipe="continuation", siblings=2, critic_model=ScriptedModel(shortest)):
        chosen = [node for node in tree.nodes if node.critic_score is not None]
        assert chosen
        assert all(node.plain_draws == 0 for node in chosen)
        for node in tree.nodes[1:]:  # values rest on its own continuations alone
            below = sum(len(tree.nodes[each].rollouts) for each in node.children_ids)
            assert node.terminal or len(node.rollouts) <= 2 or below == 0


QUERIES = [
    f"So the next query is <query>{each}</query>" for each in ("capital of France", "Capital of  France", "Seine")
]
GUESS = "So the answer is <answer>Tiber</answer>"
EVIDENCE = [f"The evidence is <evidence>{each}</evidence>" for each in ("It lies on the Seine.", "None")]
SCORES = dict(zip([*QUERIES, GUESS, *EVIDENCE], (5, 6, 1, 0, 9, -9), strict=True))


async def explored(
    retriever: IndexRetriever, name: Any, said: Callable[[ChatRequest, int], str], **search: Any
) -> tuple[RolloutRecord, ScriptedModel]:
    """The tree of a teacher that says this, and the critic that chose by SCORES."""
    recipe = RECIPES[name]
    small = {"siblings": 2, "root_siblings": 2, "continuations": 1, "simulations": 1, "wave": 1}
    recipe = recipe.model_copy(update={"search": recipe.search.model_copy(update=small | search)})
    critic = ScriptedModel(lambda request, _: str(SCORES[request.messages[2].content]))
    sampling = Sampling(temperature=1, top_p=1, max_tokens=64)
    agent = Agent(ScriptedModel(said), retriever, load_prompts(), sampling, top_k=2, max_steps=7, seed=0)
    explorer = Explorer(agent, QUESTION, recipe, critic=Critic(critic))
    await explorer.run()
    return explorer.record(RunIdentity("own", "dev", "c0", 0, recipe)), critic


async def test_of_drafts_that_say_the_same_one_is_kept_and_every_text_that_was_left_out_is_told_once(
    retriever: IndexRetriever,
) -> None:
    """The best of three equal queries and one that says something else, before a better repeat and any guess."""
    drafts = [QUERIES[0], QUERIES[1], QUERIES[2], QUERIES[0], GUESS, QUERIES[1], GUESS, "no tag"]

    def said(request: ChatRequest, position: int) -> str:
        if len(request.samples) == len(drafts):
            return drafts[position]
        return "no tag" if len(request.messages) > 2 else GUESS

    tree, _ = await explored(retriever, "continuation", said, drafts=4)
    kept = [node for node in tree.nodes if node.parent_id == 0]
    assert [(each.response, each.critic_score) for each in kept] == [(QUERIES[1], 6.0), (QUERIES[2], 1.0)]
    left = [(each.node_id, each.response, each.score) for each in tree.pruned]
    assert left == [(0, GUESS, 0.0), (0, QUERIES[0], 5.0), (0, "no tag", None)]


async def test_a_draft_that_a_state_has_already_takes_no_place_of_another(retriever: IndexRetriever) -> None:
    """The continuation's evidence is there; of two drafts the worse one is new, and nothing was left out."""

    def said(request: ChatRequest, position: int) -> str:
        turn = request.sampling.stop[0]
        if turn == "</evidence>":
            return EVIDENCE[0 if request.samples[0] >= STRIDE else position % 2]
        first = "Previous Thoughts" not in request.messages[1].content
        return QUERIES[0] if first and position == 0 else GUESS

    tree, _ = await explored(retriever, "economy", said, drafts=2, simulations=3)
    read = [node for node in tree.nodes if node.action == "read"]
    assert {node.response for node in read} == set(EVIDENCE)
    assert {each.response for each in tree.pruned}.isdisjoint(EVIDENCE)


async def test_steps_of_further_attempts_are_not_scored_as_nothing_reads_it(retriever: IndexRetriever) -> None:
    """All drafts are one query; the second attempt draws one step each, hotter."""

    def said(request: ChatRequest, _: int) -> str:
        first = "Previous Thoughts" not in request.messages[1].content
        return QUERIES[2 * (request.sampling.temperature > 1)] if first else GUESS

    tree, critic = await explored(retriever, "economy", said, drafts=2, resamples=1, simulations=9)
    scores = {node.response: node.critic_score for node in tree.nodes if node.parent_id == 0}
    assert scores == {QUERIES[0]: 5.0, QUERIES[2]: None}
    assert QUERIES[2] not in {each.messages[2].content for each in critic.requests}


def test_no_pair_has_a_draft_that_was_left_out(tmp_path: Path) -> None:
    found = trees(tmp_path / "run", recipe="continuation", siblings=2, critic_model=ScriptedModel(shortest))
    reasonrag.pairs(tmp_path / "run", out=tmp_path / "data", min_confidence=0, min_margin=0, validation=0)
    steps = {node.response for tree in found for node in tree.nodes}
    for row in reasonrag.load_pairs(tmp_path / "data"):
        assert {row["chosen"], row["rejected"]} <= steps


def test_the_weight_of_a_critic_guides_the_search_and_no_label(tmp_path: Path) -> None:
    """With one simulation there is nothing to guide: trees and rewards are the same, only search values differ."""
    flags = {"recipe": "continuation", "simulations": 1}
    critic = {"critic_model": ScriptedModel(lambda *_: "9"), "critic_draws": 1, "critic_weight": 0.5}
    plain, guided = trees(tmp_path / "plain", **flags), trees(tmp_path / "guided", **flags, **critic)
    for one, other in zip(plain, guided, strict=True):
        assert [node.reward for node in one.nodes] == [node.reward for node in other.nodes]
        assert [node.response for node in one.nodes] == [node.response for node in other.nodes]
    values = [[node.value for tree in found for node in tree.nodes] for found in (plain, guided)]
    assert values[0] != values[1]
    steps = [[node.value for tree in found for node in tree.nodes if not node.terminal] for found in (plain, guided)]
    assert all(high >= low - 1e-9 for low, high in zip(*steps, strict=True)), "it thinks well of every step"
    answers = [[node.value for tree in found for node in tree.nodes if node.terminal] for found in (plain, guided)]
    assert answers[0] == answers[1], "an answer is worth its outcome"


def test_a_run_without_a_critic_has_none_of_its_fields(tmp_path: Path) -> None:
    trees(tmp_path)
    text = (tmp_path / "rollouts.jsonl").read_text("utf-8") + (tmp_path / "config.json").read_text("utf-8")
    assert not {name for name in ("critic_score", "pruned", "critic_usage", '"drafts"') if name in text}


def test_a_run_with_a_critic_is_replayed_from_its_journal_and_goes_on_with_the_same_one_only(tmp_path: Path) -> None:
    flags = {"recipe": "continuation", "siblings": 2, "critic_draws": 4}
    first = trees(tmp_path, critic_model=ScriptedModel(shortest), **flags)
    model = ScriptedModel(shortest)
    replayed = reasonrag.generate(run=tmp_path, **ASKED, critic_model=model, **flags)
    assert (replayed.done, model.requests) == (len(first), [])
    with pytest.raises(InputError, match="critic"):
        reasonrag.generate(run=tmp_path, **ASKED, critic_model=ScriptedModel(shortest, name="another"), **flags)


def costly(_: ChatRequest, __: int) -> Completion:
    return Completion(text="0.5", finish_reason="stop", prompt_tokens=1_000)


class Refusing(SilentWatcher):
    """Says no, and keeps what it was asked."""

    def confirm(self, question: str) -> bool:
        self.asked = question
        return False


def test_a_critic_that_costs_money_is_asked_about_before_it_is_asked(tmp_path: Path) -> None:
    watcher, critic = Refusing(), ScriptedModel(costly, name="critic")
    with pytest.raises(InputError, match="not started"):
        trees(tmp_path, critic_model=critic, critic_price_in=2, watcher=watcher)
    assert "requests to offline-weak and critic" in watcher.asked
    assert not watcher.asked.partition("about ")[2].startswith("$0.00 to $0.00 ")
    assert critic.requests == []


def test_the_summary_names_the_critic_and_says_what_its_scores_cost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    critic = ScriptedModel(costly, name="mine")
    summary = reasonrag.generate(run=tmp_path, **ASKED, critic_model=critic, critic_price_in=2, yes=True)
    assert (summary.critic, summary.critic_scores) == ("mine", len(critic.requests))
    assert summary.critic_cost_usd == summary.cost_usd == pytest.approx(0.002 * len(critic.requests))
    show_run(summary)
    told = " ".join(capsys.readouterr().out.split())
    assert "critic mine" in told
    assert f"{summary.critic_scores:,}, ${summary.critic_cost_usd:.2f} of the cost" in told


def test_outcomes_of_kept_steps_are_shown_and_called_that(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No continuation counts for a root whose steps a critic chose; those below count once each."""
    flags: dict[str, Any] = {"critic_model": ScriptedModel(shortest), "recipe": "continuation"}
    summary = reasonrag.generate(run=tmp_path, **ASKED, **flags)
    ends = [end for tree in read_rollouts(tmp_path / "rollouts.jsonl") for end in tree.ends]
    assert (summary.of_kept_steps, summary.continuations) == (True, len(ends))
    assert summary.mean_f1 == pytest.approx(sum(end.f1 or 0 for end in ends) / len(ends))
    show_run(summary)
    assert f"{len(ends):,}, of steps that the critic kept" in " ".join(capsys.readouterr().out.split())
    collection = open_collection(tmp_path)
    rows, counts = read_all(collection, watch=lambda _: None)
    assert all(row.f1 is not None for row in rows)
    facts = counts.overview().trees
    assert facts is not None
    assert (facts.of_kept_steps, facts.mean_f1) == (True, summary.mean_f1)
    assert sum(sum(each.values()) for each in facts.ends_by_steps.values()) == len(ends)


def test_outcomes_of_a_policy_that_a_critic_only_guides_are_its_own(tmp_path: Path) -> None:
    flags: dict[str, Any] = {"recipe": "continuation", "critic_draws": 1, "critic_weight": 0.5}
    summary = reasonrag.generate(run=tmp_path, **ASKED, critic_model=ScriptedModel(shortest), **flags)
    roots = [tree.nodes[0] for tree in read_rollouts(tmp_path / "rollouts.jsonl")]
    assert (summary.of_kept_steps, summary.continuations) == (False, sum(len(root.rollouts) for root in roots))


def test_a_critic_is_served_only_where_a_question_is_owed(tmp_path: Path) -> None:
    """The folder has no weights that could be served."""
    folder = folder_of(tmp_path / "mine", FACTS, asked={})
    named = ScriptedModel(shortest, name=find_critic(str(folder)).name)
    done = reasonrag.generate(run=tmp_path / "run", **ASKED, critic_model=named)
    again = reasonrag.generate(run=tmp_path / "run", **ASKED, critic=str(folder))
    assert (again.done, again.mean_f1, again.critic) == (done.done, done.mean_f1, done.critic)
    with pytest.raises(ReasonragError, match="mine"):
        reasonrag.generate(run=tmp_path / "run", **(ASKED | {"limit": 4}), critic=str(folder))


def test_the_help_names_the_recipes_that_a_critics_weight_guides() -> None:
    told = GenerateSettings.model_fields["critic_weight"].description or ""
    for name in RECIPES:
        reward: Literal["spre"] | None = "spre" if name == "prorag" else None
        settings = GenerateSettings(recipe=name, reward=reward, critic="critics/value", critic_weight=0.5)
        with nullcontext() if re.search(rf"\b{name}\b", told) else pytest.raises(InputError, match="leave"):
            assert resolve_recipe(settings).search.prior_weight == 0.5


REFUSALS: dict[str, tuple[dict[str, Any], bool, str]] = {
    "without a critic": ({"critic_draws": 4}, False, "need `critic`"),
    "chooses nothing": ({"critic_draws": 1}, True, "`critic_draws` 1 lets the critic choose nothing"),
    "too many": ({"critic_draws": 64, "siblings": 200}, True, "siblings times drafts must stay below"),
    "economy has no values": ({"critic_weight": 0.3}, True, "backs up no value"),
    "labels are values": ({"critic_weight": 0.3, "recipe": "prorag"}, True, "the values it would change"),
    "too much": ({"critic_weight": 0.8, "recipe": "continuation"}, True, "above 0.5"),
    "no continuations": ({"recipe": "ragym"}, True, "continues no steps"),
}


@pytest.mark.parametrize(("flags", "critic", "says"), REFUSALS.values(), ids=REFUSALS)
def test_a_critic_without_anything_to_do_is_refused(
    tmp_path: Path, flags: dict[str, Any], critic: bool, says: str
) -> None:
    with pytest.raises(InputError, match=says):
        trees(tmp_path / "run", critic_model=ScriptedModel(shortest) if critic else None, **flags)
    assert not (tmp_path / "run").exists()
