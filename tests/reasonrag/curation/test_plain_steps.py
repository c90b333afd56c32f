"""Rows of reinforcement: what of a run's trees is a plain sample, and what a policy can learn from it."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

import reasonrag
from mcts.advantages import ADVANTAGES
from preference.records import read_rollouts
from reasonrag.errors import InputError
from reasonrag.llm.chat import ChatRequest
from tests.helpers.scripted_model import ScriptedModel

FLAGS: dict[str, Any] = {"dataset": "atlas", "limit": 6}
ALL: dict[str, Any] = {"format": ["rl"], "validation": 0}


def rows_of(data: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (data / "rl.jsonl").read_text("utf-8").splitlines()]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_every_step_of_plain_attempts_is_a_row_with_its_attempts_and_advantages(tmp_path: Path) -> None:
    """As often as it was drawn. Steps that are continued once more have further attempts below them."""
    run = reasonrag.generate(recipe="chains", set={"search.group": 4, "search.expand": 2}, run="run", **FLAGS).run
    summary = reasonrag.pairs(run, out="data", **ALL)
    rows, trees = (
        rows_of(tmp_path / "data"),
        {each.question_id: each for each in read_rollouts(Path(run, "rollouts.jsonl"))},
    )
    assert (
        summary.plain_steps["steps"]
        == len(rows)
        == summary.files["rl.jsonl"]
        == sum(len(each.nodes) - 1 for each in trees.values())
    )
    assert summary.plain_steps["not_plain"] == 0
    first, through = Counter[str](), defaultdict[str, Counter[int]](Counter)
    for row in rows:
        node = trees[row["question_id"]].nodes[row["step_id"]]
        assert [each.model_dump() for each in node.prompt or ()] == row["prompt"]
        assert row["completion"] == [{"role": "assistant", "content": node.response}]
        assert row["advantages"].keys() == ADVANTAGES.keys()
        assert row["group"] == 4
        assert {trees[row["question_id"]].nodes[each].terminal for each in row["attempts"]} == {True}
        first[row["question_id"]] += row["draws"] if row["layer"] == 0 else 0
        through[row["question_id"]].update(
            {row["step_id"]: row["draws"]} if row["attempts"] == [row["step_id"]] else {}
        )
    assert {*first.values()} == {4}
    assert max(each.total() for each in through.values()) == 4 + 2


def test_an_unreadable_reply_is_the_policys_own_and_ends_its_attempt(tmp_path: Path) -> None:
    """Plain attempts have no repair turn, which would hide from the policy what it did."""
    said = "what?", "So the answer is <answer>Oslo</answer>"
    model = ScriptedModel(lambda request, place: said[request.samples[place] % 2])
    run = reasonrag.generate(chat_model=model, recipe="chains", set={"search.group": 4}, run="run", **FLAGS).run
    reasonrag.pairs(run, out="data", **ALL)
    unreadable = [row for row in rows_of(tmp_path / "data") if row["action_type"] == "Other"]
    assert sum(row["draws"] for row in unreadable) == 6 * 2
    assert {(row["completion"][0]["content"], row["outcome"]) for row in unreadable} == {("what?", 0.0)}


def test_an_adaptive_tree_gives_its_plain_draws_alone_and_says_so(tmp_path: Path) -> None:
    """Of a state with several steps there are advantages within it; whole attempts are no fair draws."""

    def says(_: ChatRequest, sample: int) -> str:
        return "what?" if sample % 3 == 1 else f"So the answer is <answer>{sample % 2}</answer>"

    run = reasonrag.generate(chat_model=ScriptedModel(says), run="run", abort_degenerate=0, **FLAGS).run
    data = reasonrag.pairs(run, out="data", **ALL)
    rows = rows_of(tmp_path / "data")
    assert {row["group"] for row in rows} == {None}
    draws = sum(row["draws"] for row in rows)
    trees = [*read_rollouts(Path(run, "rollouts.jsonl"))]
    assert draws + data.plain_steps["not_plain"] == sum(node.draws for tree in trees for node in tree.nodes[1:])
    assert data.plain_steps["not_plain"] > 0


def test_critics_score_every_plain_step_and_a_data_set_without_them_is_refused(tmp_path: Path) -> None:
    run = reasonrag.generate(recipe="chains", set={"search.group": 4}, run="run", **FLAGS).run
    critic = ScriptedModel(lambda request, _: str(len(request.messages[2].content)))
    reasonrag.pairs(run, out="data", critic_model=critic, **ALL)
    assert all(row["score"] == len(row["completion"][0]["content"]) for row in rows_of(tmp_path / "data"))
    reasonrag.pairs("data", out="again", **ALL)
    assert rows_of(tmp_path / "again") == rows_of(tmp_path / "data")
    searched = reasonrag.generate(run="searched", **FLAGS).run
    reasonrag.pairs(searched, out="pairs")
    with pytest.raises(InputError, match="pairs has no plain steps; give its runs"):
        reasonrag.pairs("pairs", out="more", **ALL)
