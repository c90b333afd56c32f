"""Stages run once each, in order; what was stopped goes on, and what was made otherwise is refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from reasonrag.errors import InputError, ReasonragError
from reasonrag.training.stages.runner import STAGES, Stage, read_stages, run_stages

NAMES = ("bake", "slice", "eat")


def stages_of(
    done: list[str], *, breaks: Callable[[str], None] = lambda _: None, decides: dict[str, Any] | None = None
) -> list[Stage]:
    """Three stages that note what they do; breaks: may raise in the middle of one."""

    def work(name: str) -> dict[str, Any]:
        breaks(name)
        done.append(name)
        return {"did": name}

    return [Stage(name, {"flour": 1} | (decides or {}), lambda name=name: work(name)) for name in NAMES]


def test_every_stage_runs_once_and_in_order(tmp_path: Path) -> None:
    """One command at a time works in a folder. A second call does nothing and knows what the first came to."""
    done: list[str] = []
    said: list[str] = []

    def at_once(_: str) -> None:
        with pytest.raises(InputError, match="--out"):
            run_stages(tmp_path, "lunch", stages_of([]), lambda _: None)

    first = run_stages(tmp_path, "lunch", stages_of(done, breaks=at_once), said.append)
    again = run_stages(tmp_path, "lunch", stages_of(done), said.append)
    assert done == list(NAMES)
    assert first == again == read_stages(tmp_path)
    assert [each.result for each in again.stages] == [{"did": name} for name in NAMES]
    assert said == [f"stage {n} of 3, {name}" for n, name in enumerate(NAMES, 1)] + [
        f"stage {n} of 3, {name}: done already" for n, name in enumerate(NAMES, 1)
    ]


@pytest.mark.parametrize("end", [KeyboardInterrupt, ReasonragError("the oven is cold")], ids=str)
def test_the_same_call_goes_on_where_a_stage_was_stopped(tmp_path: Path, end: BaseException) -> None:
    """By Ctrl-C or by a failure. It keeps its settings, also when it is refused then: its folder may hold half of its
    work. A stage that was refused before it began may be given others."""

    def stop(at: str, stages: tuple[str, ...] = ("slice",), why: BaseException = end) -> None:
        if at in stages:
            raise why

    done: list[str] = []
    refuse = partial(stop, stages=NAMES, why=InputError("no bread"))
    with pytest.raises(InputError, match="no bread"):
        run_stages(tmp_path, "lunch", stages_of([], breaks=refuse, decides={"flour": 2}), lambda _: None)
    with pytest.raises((KeyboardInterrupt, ReasonragError)):
        run_stages(tmp_path, "lunch", stages_of(done, breaks=stop), lambda _: None)
    with pytest.raises(InputError, match="no bread"):
        run_stages(tmp_path, "lunch", stages_of([], breaks=refuse), lambda _: None)
    with pytest.raises(InputError, match=r"holds another training: .*slice: flour was 1, is 2"):
        run_stages(tmp_path, "lunch", stages_of([], decides={"flour": 2}), lambda _: None)
    record = run_stages(tmp_path, "lunch", stages_of(done), lambda _: None)
    assert done == list(NAMES)
    assert {each.state for each in record.stages} == {"done"}


@pytest.mark.parametrize("writes", range(7))
def test_killed_after_any_write_it_ends_the_same(tmp_path: Path, writes: int) -> None:
    """The record as it stood at each moment, before the first stage and after each, is gone on with to the same end."""
    records: list[bytes] = [b""]

    def keep() -> None:
        if (path := tmp_path / STAGES).exists() and path.read_bytes() != records[-1]:
            records.append(path.read_bytes())

    done: list[str] = []
    whole = run_stages(tmp_path, "lunch", stages_of(done, breaks=lambda _: keep()), lambda _: keep())
    keep()
    assert len(records) == 7
    (tmp_path / STAGES).unlink()
    if records[writes]:
        (tmp_path / STAGES).write_bytes(records[writes])
    again: list[str] = []
    ended = run_stages(tmp_path, "lunch", stages_of(again), lambda _: None)
    assert [(each.name, each.state, each.result) for each in ended.stages] == [
        (each.name, "done", each.result) for each in whole.stages
    ]
    assert again == list(NAMES)[writes // 2 :]


def test_a_folder_of_another_command_is_refused_with_what_differs(tmp_path: Path) -> None:
    """Other settings and another recipe; nothing is done."""
    done: list[str] = []
    run_stages(tmp_path, "lunch", stages_of(done), lambda _: None)
    with pytest.raises(InputError, match="holds another training: bake: flour was 1, is 2; slice: flour was 1, is 2"):
        run_stages(tmp_path, "lunch", stages_of(done, decides={"flour": 2}), lambda _: None)
    with pytest.raises(InputError, match="the stages of another recipe, lunch; choose another folder"):
        run_stages(tmp_path, "dinner", stages_of(done), lambda _: None)
    assert done == list(NAMES)


@pytest.mark.parametrize("content", [b"", orjson.dumps({"recipe": "lunch"})], ids=repr)
def test_a_damaged_record_is_refused(tmp_path: Path, content: bytes) -> None:
    """It is not taken for a folder where nothing was done."""
    (tmp_path / STAGES).write_bytes(content)
    with pytest.raises(InputError, match=r"stages\.json is damaged: .*Choose another --out"):
        run_stages(tmp_path, "lunch", stages_of([]), lambda _: None)


def test_there_may_be_more_stages_later_and_none_follows_one_that_says_stopped(tmp_path: Path) -> None:
    done: list[str] = []
    every = stages_of(done)
    run_stages(tmp_path, "lunch", every[:1], lambda _: None)
    record = run_stages(tmp_path, "lunch", every[:2], lambda _: None)
    assert [each.state for each in record.stages] == ["done", "done"]
    burnt = [
        *every[:2],
        Stage(NAMES[2], {"flour": 1}, lambda: {"stopped": "burnt"}),
        Stage("clean", {"flour": 1}, dict),
    ]
    for _ in range(2):
        record = run_stages(tmp_path, "lunch", burnt, lambda _: None)
        assert [each.state for each in record.stages] == ["done", "done", "done", "owed"]
    assert len(run_stages(tmp_path, "lunch", every[:1], lambda _: None).stages) == 4
    assert done == list(NAMES[:2])
