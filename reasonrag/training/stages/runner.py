"""Runs stages in order, each once: what is done is not repeated, and what was stopped goes on.

Decides what makes a stage done, and which folder holds the stages of another command. Does not know what a stage does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, Field

from preference.export.private_files import write_json
from reasonrag.errors import InputError
from reasonrag.files import only_writer, read_record
from reasonrag.run_config import changed_keys
from reasonrag.training.output_directory import refuse_another, utc_now

STAGES: Final = "stages.json"
FOLDER: Final = "stages"
"""Folder of the stages before the last, beside what that writes."""


class StageRecord(BaseModel):
    """A stage of `stages.json`. started, ended: UTC, ISO 8601."""

    name: str
    state: Literal["owed", "started", "done"] = "owed"
    """owed: nothing is there yet, or it was refused. started: it runs, or was stopped by whatever."""
    decides: dict[str, Any]
    """What the stage is made from; with another value for any of these it is another stage, once it has started."""
    started: str | None = None
    ended: str | None = None
    result: dict[str, Any] = Field(default_factory=dict)


class StagesRecord(BaseModel):
    """Content of `stages.json`."""

    schema_version: Literal["reasonrag.stages/1"] = "reasonrag.stages/1"
    recipe: str
    stages: list[StageRecord]

    def write(self, folder: Path) -> None:
        write_json(folder / STAGES, self.model_dump(mode="json"), shared=True)


@dataclass(frozen=True)
class Stage:
    """decides: what it is made from, JSON. work: does it, or goes on with what an earlier call began; returns a
    summary, JSON: with `stopped`, no stage follows."""

    name: str
    decides: Mapping[str, Any]
    work: Callable[[], Mapping[str, Any]]


def read_stages(folder: Path) -> StagesRecord | None:
    """The record in a folder; None if there is none. Raises InputError if it is damaged."""
    return read_record(folder / STAGES, StagesRecord, "Choose another --out")


def check_stages(folder: Path, recipe: str, stages: Sequence[Stage], *, flag: str = "--out") -> StagesRecord:
    """What is known of these stages in a folder; what is still owed may have other settings now.

    Raises InputError if it holds stages of another command.
    """
    made = StagesRecord(
        recipe=recipe, stages=[StageRecord(name=each.name, decides=dict(each.decides)) for each in stages]
    )
    found = read_stages(folder)
    if found is None:
        return made
    both = list(zip(found.stages, made.stages, strict=False))  # of rounds there may be more now, or fewer
    if found.recipe != recipe or any(before.name != now.name for before, now in both):
        raise InputError(f"{folder} holds the stages of another recipe, {found.recipe}; choose another folder")
    changed = [
        f"{now.name}: {what}"
        for before, now in both
        if before.state != "owed"
        for what in changed_keys(before.decides, now.decides)
    ]
    refuse_another(folder, changed, flag=flag)
    for before, now in both:
        before.decides = now.decides
    found.stages += made.stages[len(found.stages) :]
    return found


def run_stages(
    folder: Path, recipe: str, stages: Sequence[Stage], say: Callable[[str], None], *, flag: str = "--out"
) -> StagesRecord:
    """Run every stage that is not done, in order, up to one whose result says `stopped`. flag: that chose the folder.

    Raises InputError if the folder holds the stages of another command or is in use, and whatever a stage raises; the
    same call goes on with that stage.
    """
    with only_writer(folder / FOLDER, flag=flag):
        record = check_stages(folder, recipe, stages, flag=flag)
        for number, (stage, known) in enumerate(zip(stages, record.stages, strict=False), start=1):
            if number > 1 and record.stages[number - 2].result.get("stopped"):
                break
            if known.state == "done":
                say(f"stage {number} of {len(stages)}, {stage.name}: done already")
                continue
            say(f"stage {number} of {len(stages)}, {stage.name}")
            new = known.state == "owed"
            known.state, known.started = "started", known.started or utc_now()
            record.write(folder)
            try:
                known.result = dict(stage.work())
            except InputError:
                known.state = "owed" if new else known.state  # refused before it began: it may get other settings
                record.write(folder)
                raise
            known.state, known.ended = "done", utc_now()
            record.write(folder)
    return record
