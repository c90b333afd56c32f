"""A critic in the search: which drafts are continued, that labels are not its own, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import reasonrag
from preference import RolloutRecord, read_rollouts
from reasonrag.errors import InputError
from reasonrag.llm.chat import ChatRequest
from reasonrag.llm.scripted_model import ScriptedModel

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
        for pruned in tree.pruned:
            siblings = [tree.nodes[each] for each in tree.nodes[pruned.node_id].children_ids]
            chosen = [each for each in siblings if each.critic_score is not None]
            same = {each.response for each in chosen}
            better = [each for each in chosen if pruned.score is None or (each.critic_score or 0) >= pruned.score]
            assert pruned.response in same or better, "an equal reply is kept once, a worse one never before a better"
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


def test_no_pair_has_a_draft_that_was_left_out(tmp_path: Path) -> None:
    found = trees(tmp_path / "run", recipe="continuation", siblings=2, critic_model=ScriptedModel(shortest))
    reasonrag.pairs(tmp_path / "run", out=tmp_path / "data", min_confidence=0, min_margin=0, validation=0)
    steps = {node.response for tree in found for node in tree.nodes}
    for row in reasonrag.load_pairs(tmp_path / "data"):
        assert {row["chosen"], row["rejected"]} <= steps


def test_the_weight_of_a_critic_guides_the_search_and_no_label(tmp_path: Path) -> None:
    """With one simulation there is nothing to guide: trees and rewards are the same, only search values differ."""
    flags = {"recipe": "continuation", "simulations": 1, "critic_draws": 1}
    plain = trees(tmp_path / "plain", critic_model=ScriptedModel(lambda *_: "9"), **flags)
    guided = trees(tmp_path / "guided", critic_model=ScriptedModel(lambda *_: "9"), critic_weight=0.5, **flags)
    for one, other in zip(plain, guided, strict=True):
        assert [node.reward for node in one.nodes] == [node.reward for node in other.nodes]
        assert [node.response for node in one.nodes] == [node.response for node in other.nodes]
    values = [[node.value for tree in found for node in tree.nodes] for found in (plain, guided)]
    assert values[0] != values[1]
    assert all(high >= low - 1e-9 for low, high in zip(*values, strict=True)), "it thinks well of every step"


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


REFUSALS: dict[str, tuple[dict[str, Any], bool, str]] = {
    "without a critic": ({"critic_draws": 4}, False, "need --critic"),
    "economy has no values": ({"critic_weight": 0.3}, True, "backs up no value"),
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
