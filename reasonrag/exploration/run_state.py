"""How far a run or an evaluation is, by its own files: config.json, summary.json, its lines and its lock.

Decides whether it goes on, has ended, was stopped or was killed. Reads no tree; knows no process.
"""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from preference.export.summary import SUMMARY
from reasonrag.errors import InputError
from reasonrag.exploration.summary import RunSummary
from reasonrag.files import CONFIG, EVALUATION_REPORT, ROLLOUTS, is_written, read_record
from reasonrag.redaction import redact
from reasonrag.run_config import RunConfig


class RunState(BaseModel):
    """why: what stopped it. asked: its questions, null where that is not known. max_cost: its cap, in dollars. since:
    seconds since it was first looked at, and the questions and completions that it had then."""

    state: Literal["running", "ended", "stopped", "killed", "unknown"]
    why: str = ""
    asked: int | None = None
    max_cost: float | None = None
    since: tuple[float, int, int] | None = None


NO_LOCK = "whether it goes on cannot be known: the lock in its folder cannot be read"
_UNHARMED = "Restore the file; what was made is shown without it"


def run_state(run: Path, done: int | None = None) -> tuple[RunState, RunSummary | None]:
    """And the summary of its last session that came to an end. done: lines of its rollouts, if they were counted; more
    than the summary knows are of a session that was killed."""
    made, summary, why = None, None, ""
    try:
        made = read_record(run / CONFIG, RunConfig, _UNHARMED)
        summary = read_record(run / SUMMARY, RunSummary, _UNHARMED)
    except InputError as error:
        why = redact(str(error))
    operational = made.operational if made else None
    has_report = (run / EVALUATION_REPORT).is_file()  # of an evaluation, which ends with it
    if operational is None or not operational.settings:  # trees that were imported, or alone
        return RunState(state="ended" if has_report and not why else "unknown", why=why), summary
    settings, written = operational.settings, is_written(run)
    found = RunState(state="running" if written else "killed", why=why, max_cost=settings.get("max_cost"))
    if written is None or (why and not written):
        found.state, found.why = "unknown", why or NO_LOCK
    if summary and found.state == "killed" and not _is_older(summary, run, done):
        found.state, found.asked = "stopped" if summary.stopped else "ended", summary.questions
        found.why = summary.stopped.message if summary.stopped else ""
        return found, summary
    if found.state == "killed" and has_report:
        found.state = "ended"
    source, limits = Path(operational.questions or ""), [settings.get("limit"), settings.get("sample")]
    limits += [lines_of(source, changed_at(source))] if source.suffix == ".jsonl" else []
    known = [each for each in limits if isinstance(each, int) and each > 0]
    found.asked = None if settings.get("shard") else min(known, default=None)
    return found, summary


def _is_older(summary: RunSummary, run: Path, done: int | None) -> bool:
    """Whether lines came after the summary. Of a copy the dates alone say nothing."""
    rollouts = run / ROLLOUTS
    if (changed := changed_at(rollouts)) <= changed_at(run / SUMMARY):
        return False
    return (done or lines_of(rollouts, changed)) > summary.done + summary.failed


@lru_cache(512)
def lines_of(file: Path, _changed_at: float) -> int:
    """0 for a file that cannot be read, and for a pipe."""
    found, end = 0, b"\n"
    if file.is_file():
        with suppress(OSError), file.open("rb") as content:
            while block := content.read(1 << 20):
                found, end = found + block.count(b"\n"), block[-1:]
    return found + (end != b"\n")


def changed_at(file: Path) -> float:
    return file.stat().st_mtime if file.is_file() else 0.0
