"""Merged ranks are the run of one process; what cannot be merged is refused with its reason."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import orjson
import pytest

import reasonrag
from preference import RolloutRecord
from reasonrag.errors import InputError
from reasonrag.exploration.summary import RunSummary
from reasonrag.llm.chat import ChatRequest
from reasonrag.llm.scripted_model import ScriptedModel
from reasonrag.scale.merge import NotReproduced
from tests.helpers.shared import Shared

QUESTIONS = {"dataset": "atlas", "limit": 12, "model": "offline"}


def explore(run: str, **changed: Any) -> RunSummary:
    return reasonrag.generate(**(QUESTIONS | {"run": run} | changed))


@pytest.fixture
def ranks(shared: Shared) -> Path:
    """A folder with `ranks`, a run of three ranks, and `whole`, the same run of one process. Copied for every test."""

    def make() -> None:
        explore("whole")
        for rank in (2, 0, 1):
            explore("ranks", shard=f"{rank}/3")

    shutil.copytree(shared.folder("three-ranks", make), ".", dirs_exist_ok=True)
    return Path("ranks")


def lines(run: Path | str) -> list[bytes]:
    return Path(run, "rollouts.jsonl").read_bytes().splitlines()


def test_merged_ranks_are_the_run_of_one_process(ranks: Path) -> None:
    merged = reasonrag.merge(ranks, verify=True)
    assert (merged.ranks, merged.questions, merged.verified) == (3, 12, True)
    assert lines(ranks) == lines("whole")
    of_one, of_many = (orjson.loads(Path(run, "summary.json").read_bytes()) for run in ("whole", ranks))
    assert {name for name in of_one if of_one[name] != of_many[name]} == {"run", "session_seconds"}
    one, many = (orjson.loads(Path(run, "config.json").read_bytes()) for run in ("whole", ranks))
    assert one["config_hash"] == many["config_hash"]
    assert many["operational"]["settings"]["shard"] is None
    reasonrag.pairs(ranks, out="a")
    reasonrag.pairs("whole", out="b")
    assert Path("a/candidates.jsonl").read_bytes() == Path("b/candidates.jsonl").read_bytes()


def test_with_a_larger_limit_the_ranks_go_on_and_are_merged_again(ranks: Path) -> None:
    reasonrag.merge(ranks)
    explore("ranks", shard="0/3", limit=15)
    with pytest.raises(InputError, match=r"ranks 1, 2 are not complete, of 3 in ranks.*--shard 1/3 or --on ray"):
        reasonrag.merge(ranks)
    for rank in (1, 2):
        explore("ranks", shard=f"{rank}/3", limit=15)
    reasonrag.merge(ranks)
    explore("whole", limit=15)
    assert lines(ranks) == lines("whole")


def test_a_stopped_rank_is_named_with_its_reason() -> None:
    explore("stopped", shard="0/2", max_calls=100)
    explore("stopped", shard="1/2")
    with pytest.raises(InputError, match=r"rank 0 is not complete.*Rank 0 was stopped: --max-calls"):
        reasonrag.merge("stopped")


@pytest.mark.usefixtures("ranks")
def test_one_process_does_not_go_on_with_a_run_of_ranks() -> None:
    with pytest.raises(InputError, match="ranks is made by 3 ranks: give --shard i/3"):
        explore("ranks")
    with pytest.raises(InputError, match="whole holds a run of one process; go on without --shard"):
        explore("whole", shard="0/3")
    with pytest.raises(InputError, match="made by 3 ranks, not 4"):
        explore("ranks", shard="1/4")
    with pytest.raises(InputError, match=r"another configuration.*seed was 0, is 1"):
        explore("ranks", shard="1/3", seed=1)


def test_a_first_rank_of_another_configuration_is_refused_before_it_asks() -> None:
    explore("early", shard="0/3")
    with pytest.raises(InputError, match="the ranks of early have the configuration"):
        explore("early", shard="1/3", seed=1)
    assert not Path("early/ranks/00001").exists()


def changed(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new))


def test_damage_after_a_rank_ended_is_found(ranks: Path) -> None:
    rollouts, config = ranks / "ranks/00001/rollouts.jsonl", ranks / "ranks/00001/config.json"
    whole = rollouts.read_bytes()
    rollouts.write_bytes(b"".join(whole.splitlines(keepends=True)[1:]))
    with pytest.raises(InputError, match=r"1 question of the run have no line.* of rank 1"):
        reasonrag.merge(ranks)
    rollouts.write_bytes(whole + (ranks / "ranks/00002/rollouts.jsonl").read_bytes())
    with pytest.raises(InputError, match="is not of rank 1"):
        reasonrag.merge(ranks)
    rollouts.write_bytes(whole)
    changed(config, b'"config_hash": "', b'"config_hash": "0')
    with pytest.raises(InputError, match="was changed after it was made"):
        reasonrag.merge(ranks)


def test_a_journal_that_gives_other_trees_is_told(ranks: Path) -> None:
    other = explore("other", seed=3)
    assert other.done == 12
    trees = [RolloutRecord.model_validate_json(line) for line in lines(ranks / "ranks/00001")]
    worse = trees[0].model_copy(update={"question": "Who?"})
    (ranks / "ranks/00001/rollouts.jsonl").write_bytes(b"".join(each.to_line() for each in (worse, *trees[1:])))
    with pytest.raises(NotReproduced, match=f"first for question '{trees[0].question_id}'"):
        reasonrag.merge(ranks, verify=True)


def test_degeneracy_is_judged_over_the_whole() -> None:
    """Forty questions whose teacher never follows the format: one process stops at the twentieth, and so does the
    merged run, although no rank had twenty."""

    def babble(_request: ChatRequest, _position: int) -> str:
        return "Well, well."

    asked = {"dataset": "atlas", "limit": 40, "max_calls_per_question": 8}
    one = reasonrag.generate(chat_model=ScriptedModel(babble), run="one", **asked)
    assert one.stopped is not None
    for rank in range(3):
        part = reasonrag.generate(chat_model=ScriptedModel(babble), run="many", shard=f"{rank}/3", **asked)
        assert part.stopped is None
    merged = reasonrag.merge("many").summary
    assert merged is not None
    assert merged.stopped is not None
    assert (merged.stopped.cause, merged.done) == ("degenerate", one.done)
    assert lines("many") == lines("one")


def test_a_folder_without_ranks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has no manifest\.json: give the folder that was the --run of ranks"):
        reasonrag.merge(tmp_path)
