"""Merged ranks are the run of one process; what cannot be merged is refused with its reason."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

import reasonrag
from preference import RolloutRecord
from reasonrag.errors import InputError
from reasonrag.exploration.summary import RunSummary
from reasonrag.files import only_writer
from reasonrag.llm.chat import Completion
from reasonrag.llm.journal import journal_line
from reasonrag.progress import SilentWatcher
from tests.helpers.command_line import Reasonrag
from tests.helpers.listener import Listener
from tests.helpers.shared import Shared
from tests.helpers.trees import paid

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
    merged = reasonrag.merge(ranks)
    assert (merged.ranks, merged.questions) == (3, 12)
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


def test_ranks_that_a_cap_stopped_are_named_and_finished_by_the_command_that_merge_says(reasonrag: Reasonrag) -> None:
    """Each has its part of the caps. Within the whole cap: what they had is not paid for
    twice, and the run is that of one process."""
    one, asked = explore("one"), ["generate", "--dataset", "atlas", "--limit", 12, "--model", "offline"]
    asked += ["--max-cost", 40, "--max-tokens", 6_000_000]
    part = reasonrag(*asked, "--run", "it's capped", "--shard", "0/3", "--max-calls", one.calls)
    assert part.status == 3
    assert len(paid("it's capped/ranks/00000")) <= one.calls // 3
    assert "It was this rank's part" in " ".join(part.out.split())
    assert """continue with: reasonrag merge 'it'"'"'s capped'""" in part.err
    for rank in (1, 2):
        reasonrag(*asked, "--run", "it's capped", "--shard", f"{rank}/3", "--max-calls", one.calls)
    merged = reasonrag("merge", "it's capped")
    summary = orjson.loads(Path("it's capped/summary.json").read_bytes())
    stopped = summary["stopped"]
    assert (merged.status, stopped["cause"], 0 < summary["done"] < 12) == (3, "cap", True), summary
    spent = len(paid("it's capped"))
    assert 0 < spent < one.calls == len(paid("one"))
    left = f"; $40.00 of --max-cost 40, {one.calls - spent:,} of --max-calls {one.calls:,}, "
    assert (left in stopped["message"], " of --max-tokens 6,000,000 is left, with" in stopped["message"]) == (
        True,
        True,
    )
    finish = shlex.split(stopped["instead"])
    assert ("--max-cost 40.0" in stopped["instead"], finish[-2]) == (True, "--max-calls")
    assert f"continue with: {stopped['instead']}" in merged.err
    done = reasonrag(*finish[1:-1], one.calls)  # it proposes more than is needed, so that it is enough for sure
    assert done.status == 0, done.err
    assert lines("it's capped") == lines("one")
    assert sorted(paid("it's capped")) == sorted(paid("one"))
    for refused in (["merge", "it's capped"], [*asked, "--run", "it's capped", "--shard", "0/3"]):
        assert reasonrag(*refused).status == 2


def test_ranks_that_a_cap_stopped_go_on_under_a_higher_one() -> None:
    """One that is at work is not merged, though a cap stopped it before."""
    for cap in (200, None):
        for rank in range(2):
            explore("capped", shard=f"{rank}/2", max_calls=cap)
        if cap:
            with (
                only_writer(Path("capped/ranks/00001")),
                pytest.raises(InputError, match="is being written by another"),
            ):
                reasonrag.merge("capped")
        assert reasonrag.merge("capped").capped == ([0, 1] if cap else [])
    explore("one")
    assert lines("capped") == lines("one")


def test_a_rank_that_was_stopped_otherwise_is_named_with_its_reason() -> None:
    explore("stopped", shard="0/2", max_calls=100)
    explore("stopped", shard="1/2")
    path = Path("stopped/ranks/00000/summary.json")
    path.write_bytes(path.read_bytes().replace(b'"cause": "cap"', b'"cause": "max_wait"'))
    with pytest.raises(InputError, match=r"rank 0 is not complete.*Rank 0 was stopped: --max-calls"):
        reasonrag.merge("stopped")


@pytest.mark.usefixtures("ranks")
def test_one_process_does_not_go_on_with_a_run_of_ranks() -> None:
    with pytest.raises(InputError, match="ranks is made by 3 ranks: give `shard` i/3"):
        explore("ranks")
    with pytest.raises(InputError, match="whole holds a run of one process; go on without `shard`"):
        explore("whole", shard="0/3")
    explore("begun", max_calls=6, concurrency=1)  # no tree, but paid answers
    with pytest.raises(InputError, match="begun holds a run of one process"):
        explore("begun", shard="0/3")
    Path("ranks/rollouts.jsonl").touch()  # as a start of one process leaves it that was killed before its first answer
    with pytest.raises(InputError, match="ranks is made by 3 ranks"):
        explore("ranks")
    with pytest.raises(InputError, match="made by 3 ranks, not 4"):
        explore("ranks", shard="3/4")
    assert reasonrag.merge("ranks").summary.done == 12, "what the refused start left does not matter"
    with pytest.raises(InputError, match=r"another configuration.*seed was 0, is 1"):
        explore("ranks", shard="1/3", seed=1)
    with pytest.raises(InputError, match=r"has no manifest\.json: give the folder that was the `run` of ranks"):
        reasonrag.merge("whole")
    shutil.rmtree("ranks/ranks/00001")
    with pytest.raises(InputError, match=r"ranks is made by ranks of .* the configuration"):
        explore("ranks", shard="1/3", seed=1)
    assert not Path("ranks/ranks/00001/rollouts.jsonl").exists()


def changed(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new))


def test_damage_after_a_rank_ended_is_found(ranks: Path) -> None:
    rollouts, config = ranks / "ranks/00001/rollouts.jsonl", ranks / "ranks/00001/config.json"
    whole = rollouts.read_bytes()
    no_name = b'{"question_id": [], "config_hash": "", "error": null}\n'
    for more in (no_name, (ranks / "ranks/00002/rollouts.jsonl").read_bytes()):
        rollouts.write_bytes(whole + more)
        with pytest.raises(InputError, match="is not of rank 1"):
            reasonrag.merge(ranks)
    rollouts.write_bytes(whole)
    changed(config, b'"config_hash": "', b'"config_hash": "0')
    with pytest.raises(InputError, match="was changed after it was made"):
        reasonrag.merge(ranks)
    changed(config, b'"config_hash": "0', b'"config_hash": "')
    for each in ranks.glob("ranks/*/summary.json"):
        each.unlink()
    with pytest.raises(InputError, match=r"no rank of ranks has a summary\.json; run them again"):
        reasonrag.merge(ranks)


# -- what is joined is read first --------------------------------------------------------------------------------


def of_rank(run: Path, rank: int, name: str) -> Path:
    return run / f"ranks/{rank:05d}/{name}.jsonl"


def joined(run: Path, name: str) -> bytes:
    return b"".join(of_rank(run, rank, name).read_bytes() for rank in range(3))


FAILURES = b'{"kind":"call","cause":"timeout"}\n{"kind":"call","cause":"Z\xc3\xbcrich"}\n'


@pytest.mark.parametrize(
    ("name", "rank", "cut", "lost"),
    [
        pytest.param("journal", 0, 100, True, id="the first journal ends within a digest"),
        pytest.param("journal", 1, 1, False, id="a whole line lacks its line break only"),
        pytest.param("failures", 0, 6, True, id="a failure ends within a letter of two bytes"),
        pytest.param("rollouts", 1, 1, False, id="a whole tree lacks its line break only"),
    ],
)
def test_of_a_line_that_was_cut_off_nothing_but_that_line_is_lost(
    ranks: Path, name: str, rank: int, cut: int, *, lost: bool
) -> None:
    of_rank(ranks, 0, "failures").write_bytes(FAILURES)
    of_rank(ranks, 1, "failures").write_bytes(FAILURES)
    whole, path, told = joined(ranks, name), of_rank(ranks, rank, name), Listener()
    content = path.read_bytes()
    path.write_bytes(content[:-cut])
    torn = content.splitlines(keepends=True)[-1]
    reasonrag.merge(ranks, watcher=told)
    number = content.count(b"\n")
    assert told.said == (
        [f"{path}, line {number} was cut off while it was written; its {len(torn) - cut:,} bytes are left out"] * lost
    )
    expected = sorted(whole.splitlines(keepends=True))
    if lost:
        expected.remove(torn)
    assert sorted(Path(ranks, f"{name}.jsonl").read_bytes().splitlines(keepends=True)) == expected


def test_a_rank_that_writes_while_it_is_joined_is_found(ranks: Path) -> None:
    """It writes when the watcher is told of a line that was cut off."""

    class Rank(SilentWatcher):
        def say(self, _message: str) -> None:
            os.utime(of_rank(ranks, 2, "rollouts"))

    journal = of_rank(ranks, 0, "journal")
    journal.write_bytes(journal.read_bytes()[:-100])
    with pytest.raises(InputError, match=r"00002/rollouts\.jsonl was written while the ranks were joined"):
        reasonrag.merge(ranks, watcher=Rank())


def test_a_tree_that_was_cut_off_is_explored_again(ranks: Path) -> None:
    path, told = of_rank(ranks, 1, "rollouts"), Listener()
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match=r"1 question of the run have no line.* of rank 1 .*Run that rank again"):
        reasonrag.merge(ranks, watcher=told)
    assert len(told.said) == 1
    explore("ranks", shard="1/3")
    reasonrag.merge(ranks)
    assert lines(ranks) == lines("whole")
    explore("again", replay=ranks / "journal.jsonl")
    assert lines("again") == lines("whole")


def answered_otherwise(content: bytes) -> bytes:
    first = orjson.loads(content.splitlines()[0])
    other = [Completion(text="Otherwise.", finish_reason="stop")]
    return content + journal_line(first["question_id"], first["keys"][:1], other, model=None)


def with_another_tree(content: bytes) -> bytes:
    first = RolloutRecord.model_validate_json(content.splitlines()[0])
    return content + first.model_copy(update={"question": "Who?"}).to_line()


def at_line_two(line: bytes) -> Callable[[bytes], bytes]:
    def put(content: bytes) -> bytes:
        first, *rest = content.splitlines(keepends=True)
        return b"".join((first, line + b"\n", *rest))

    return put


def glued(content: bytes) -> bytes:
    first, second, third, *rest = content.splitlines(keepends=True)
    return b"".join((first, second[:-50] + third, *rest))


WRONG = {
    "two answers glued by an earlier merge": ("journal", 0, glued, "line 2 is not a recorded answer"),
    "an empty line": ("journal", 0, at_line_two(b""), "line 2 is not a recorded answer"),
    "a lost block at the end": ("journal", 0, lambda old: old + bytes(512), "is not a recorded answer"),
    "a changed letter": ("journal", 0, lambda old: old.replace(b'"text":"', b'"text":"x', 1), "its digest shows"),
    "another answer to a draw": ("journal", 1, answered_otherwise, "has another answer to a request"),
    "an answer in failures": ("failures", 0, lambda _: b'{"question_id":"q"}\n', "line 1 is not a failure"),
    "a line without end": ("failures", 1, lambda _: FAILURES + b'"' + b"x" * (1 << 24), "line 3: the line is longer"),
    "an answer among trees": ("rollouts", 0, at_line_two(b'{"question_id":"q"}'), "line 2 is not a rollout record"),
    "another tree of a question": ("rollouts", 0, with_another_tree, "has another tree of .* than line 1"),
    "a tree of another configuration": (
        *("rollouts", 2, lambda old: old.replace(b'"config_hash":"', b'"config_hash":"0', 1)),
        "line 1 is of another configuration",
    ),
    "a tree with a node of itself": (
        *("rollouts", 1, lambda old: old.replace(b'"parent_id":0', b'"parent_id":-1', 1)),
        "line 1 is not a rollout record",
    ),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_line_that_is_none_of_its_file_is_refused_and_an_earlier_merge_is_left_as_it_was(
    ranks: Path, kind: str
) -> None:
    name, rank, damage, why = WRONG[kind]
    reasonrag.merge(ranks)
    path, before = of_rank(ranks, rank, name), {each: each.read_bytes() for each in ranks.iterdir() if each.is_file()}
    assert callable(damage)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(InputError, match=f"{path}.*{why}"):
        reasonrag.merge(ranks)
    assert {each: each.read_bytes() for each in ranks.iterdir() if each.is_file()} == before


@pytest.mark.parametrize(
    ("name", "old", "new", "why"),
    [
        ("summary", b'"questions": ', b'"questions": null, "x": ', "questions"),
        ("summary", b'"session_questions": ', b'"session_questions": 12345678901234567890123', "session_questions"),
        ("summary", b"{", b"[" * 9999, "it is not JSON"),
        ("config", b'"operational": {', b'"others": {', "operational is missing"),
        ("config", b'"settings": {', b'"settings": 3, "x": {', r"is damaged: operational\.settings"),
        ("manifest", b'"ranks":3', b'"ranks":2', "ranks is 2, and .*00002 is there"),
        ("manifest", b'"ranks":3', b'"ranks":300000000', "ranks"),
        ("manifest", b'"ranks":3', b'"ranks":99999', "are not complete"),
    ],
)
def test_a_number_that_cannot_be_is_named_with_its_file(
    ranks: Path, name: str, old: bytes, new: bytes, why: str
) -> None:
    path = ranks / "manifest.json" if name == "manifest" else ranks / f"ranks/00001/{name}.json"
    before = {*ranks.iterdir(), ranks / ".lock"}
    start, found, rest = path.read_bytes().rpartition(old)
    assert found
    path.write_bytes(start + new + rest)
    with pytest.raises(InputError, match=why) as refused:
        reasonrag.merge(ranks)
    assert str(path) in str(refused.value) or "99,999" in str(refused.value)
    assert {*ranks.iterdir(), ranks / ".lock"} == before
