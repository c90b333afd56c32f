"""Stages run once each, in order; what was stopped goes on, and what was made otherwise is refused."""

from __future__ import annotations

from collections.abc import Callable
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
    """A second call does nothing and knows what the first came to."""
    done: list[str] = []
    said: list[str] = []
    first = run_stages(tmp_path, "lunch", stages_of(done), said.append)
    again = run_stages(tmp_path, "lunch", stages_of(done), said.append)
    assert done == list(NAMES)
    assert first == again == read_stages(tmp_path)
    assert [each.result for each in again.stages] == [{"did": name} for name in NAMES]
    assert said == [f"stage {n} of 3, {name}" for n, name in enumerate(NAMES, 1)] + [
        f"stage {n} of 3, {name}: done already" for n, name in enumerate(NAMES, 1)
    ]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit, ReasonragError("the oven is cold")], ids=str)
def test_the_same_call_goes_on_where_a_stage_was_stopped(tmp_path: Path, name: str, end: BaseException) -> None:
    """By Ctrl-C, by a kill, by a failure, whose cause is kept until the stage is done."""

    def stop(at: str) -> None:
        if at == name:
            raise end

    done: list[str] = []
    with pytest.raises((KeyboardInterrupt, SystemExit, ReasonragError)):
        run_stages(tmp_path, "lunch", stages_of(done, breaks=stop), lambda _: None)
    found = read_stages(tmp_path)
    assert found is not None
    stopped = found.stages[NAMES.index(name)]
    failed = isinstance(end, ReasonragError)
    assert (stopped.state, stopped.cause) == (("failed", "the oven is cold") if failed else ("started", None))
    record = run_stages(tmp_path, "lunch", stages_of(done), lambda _: None)
    assert done == list(NAMES)
    assert {(each.state, each.cause) for each in record.stages} == {("done", None)}


def test_a_folder_of_another_command_is_refused_with_what_differs(tmp_path: Path) -> None:
    """Other settings and another recipe; nothing is done."""
    done: list[str] = []
    run_stages(tmp_path, "lunch", stages_of(done), lambda _: None)
    with pytest.raises(InputError, match="holds another training: bake: flour was 1, is 2; slice: flour was 1, is 2"):
        run_stages(tmp_path, "lunch", stages_of(done, decides={"flour": 2}), lambda _: None)
    with pytest.raises(InputError, match="the stages of another recipe, lunch; choose another --out"):
        run_stages(tmp_path, "dinner", stages_of(done), lambda _: None)
    assert done == list(NAMES)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", orjson.dumps({"recipe": "lunch"})], ids=repr)
def test_a_damaged_record_is_refused(tmp_path: Path, content: bytes) -> None:
    """It is not taken for a folder where nothing was done."""
    (tmp_path / STAGES).write_bytes(content)
    with pytest.raises(InputError, match=r"stages\.json is damaged .*choose another --out"):
        run_stages(tmp_path, "lunch", stages_of([]), lambda _: None)
