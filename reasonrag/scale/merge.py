"""`reasonrag merge`: joins the ranks of a run into what one process would have made.

Decides when ranks may be joined: all are complete, or have spent their part of a cap, which one process can finish; all
have one configuration, and no question is in two of them. Does not know what started the ranks.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from preference.export.private_files import write_json
from preference.export.summary import SUMMARY
from preference.records import first_error
from reasonrag.data.item_files import explained_records
from reasonrag.errors import CapReached, InputError
from reasonrag.exploration.run_directory import join_runs
from reasonrag.exploration.settings import GenerateSettings
from reasonrag.exploration.summary import RunSummary, StopReason
from reasonrag.files import CONFIG, only_writer, read_record, writing
from reasonrag.llm.budget import Caps, Tokens
from reasonrag.llm.settings import BudgetSettings
from reasonrag.progress import SilentWatcher, Watcher
from reasonrag.ranks import MANIFEST, OF_RANKS, Manifest, Shard, incomplete_ranks, read_manifest, shown_ranks
from reasonrag.redaction import redact
from reasonrag.rendering import Part, Shown, counted, dollars
from reasonrag.run_config import has_answers
from reasonrag.settings import flag_of, flags_given
from reasonrag.signatures import public_call


class Merged(BaseModel, Shown):
    """What `merge` joined; the output of `merge --json`."""

    run: str
    ranks: int
    capped: list[int]
    """Ranks that had spent their part of a cap before all their questions were done."""
    questions: int
    summary: RunSummary
    """As in the run's summary.json."""

    def shown(self) -> Iterator[Part]:
        yield f"joined {counted(self.ranks, 'rank')}: {counted(self.questions, 'question')}"
        yield from self.summary.shown()


@public_call()
def merge(run: str | Path, *, watcher: Watcher | None = None) -> Merged:
    """Join the ranks of a run into the files that one process would have written, in question order.

    May be repeated, as after a larger `limit`. Ranks that a cap stopped are joined, too: `summary.stopped` says what is
    left of it, and by which command one process finishes the run. Raises InputError for ranks that are missing,
    incomplete for another reason or of different configurations.

    Example:
        >>> for rank in ("0/2", "1/2"):
        ...     part = reasonrag.generate(dataset="atlas", limit=10, run="runs/two", shard=rank)
        >>> reasonrag.merge("runs/two").questions
        10

    Args:
        run: the folder that was given to the ranks.
        watcher: is told what happens while it goes on; none: silent.
    """
    run, watcher = Path(run), watcher or SilentWatcher()
    manifest = read_manifest(run)
    if manifest is None:
        raise InputError(f"{run} has no {MANIFEST}: give the folder that was the --run of ranks (--shard i/n)")
    folders = [Shard(rank, manifest.ranks).folder(run) for rank in range(manifest.ranks)]
    capped = _capped(run, manifest, folders)
    with only_writer(run), writing(run), explained_records():
        summary, settings, delivered = join_runs(run, manifest, folders, capped, watcher.say)
        if capped:
            summary.stopped = _finish(_settings(run, settings), summary, delivered, capped)
        write_json(run / SUMMARY, summary.model_dump())
    told = {"run": str(run), "ranks": manifest.ranks, "capped": capped, "questions": len(manifest.question_ids)}
    return Merged(**told, summary=summary)


def _capped(run: Path, manifest: Manifest, folders: Sequence[Path]) -> list[int]:
    """The ranks that a cap stopped. Raises InputError for others that are not complete, or at work."""
    if others := sorted(filter(has_answers, {*folders[0].parent.glob("[0-9]*")} - {*folders})):
        raise InputError(f"{run / MANIFEST}: ranks is {manifest.ranks:,}, and {others[0]} is there. Restore the file")
    capped, missing, told = list[int](), list[int](), ""
    for rank in incomplete_ranks(run, manifest):
        with suppress(InputError):
            found = read_record(folders[rank] / SUMMARY, RunSummary, "")
            if found and found.stopped and found.stopped.cause == CapReached.cause:
                capped.append(rank)
                continue
            told = told or (f" Rank {rank} was stopped: {found.stopped.message}." if found and found.stopped else "")
        missing.append(rank)
    if missing:
        which = f"rank {missing[0]} is" if len(missing) == 1 else f"ranks {shown_ranks(missing)} are"
        raise InputError(
            f"{which} not complete, of {manifest.ranks:,} in {run}.{told} Run what is missing again with the same "
            f"settings, by --shard {missing[0]}/{manifest.ranks} or --on ray, then merge"
        )
    for rank in capped:
        with only_writer(folders[rank]):
            pass
    return capped


def _settings(run: Path, saved: dict[str, Any]) -> GenerateSettings:
    try:
        return GenerateSettings.model_validate(saved)
    except ValidationError as error:
        raise InputError(
            f"{run / CONFIG}: operational.settings: {first_error(error)}. Restore the file of each rank, or make the "
            "run again if another version of reasonrag made it"
        ) from error


def _finish(settings: GenerateSettings, summary: RunSummary, spent: Tokens, capped: Sequence[int]) -> StopReason:
    """Why the run is not finished, and the command by which one process finishes it: with a higher cap where what is
    left of it does not pay the questions left, each at twice what one took so far."""
    caps, left, raised = Caps.of(settings.part(BudgetSettings), settings.parts), list[str](), dict[str, str]()
    done, owed = summary.done, summary.questions - summary.done
    more = 2 * owed / done if done else 9.0  # of what was used; a guess where no question is done
    for name, cap, used in (
        ("max_cost", caps.cost, summary.cost_usd),
        ("max_calls", caps.calls, spent.calls),
        ("max_tokens", caps.tokens, spent.prompt_tokens + spent.completion_tokens),
    ):
        if cap is not None and used is not None:
            is_money, rest = name == "max_cost", cap - used
            of = f"of {flag_of(name)}"
            left.append(f"{dollars(rest)} {of} {cap:g}" if is_money else f"{rest:,} {of} {cap:,}")
            if used * more > rest:
                raised[flag_of(name)] = f"{used * (1 + more):.{2 if is_money else 0}f}"
    which = f"rank {capped[0]} has" if len(capped) == 1 else f"ranks {shown_ranks(capped)} have"
    message = f"{which} spent a part of a cap; {', '.join(left)} is left, with which one process goes on"
    words = flags_given(settings, without={*OF_RANKS, *(flag[2:].replace("-", "_") for flag in raised)})
    words += [word for item in raised.items() for word in item]
    instead = redact(shlex.join(["reasonrag", "generate", *words]))
    return StopReason(cause=CapReached.cause, message=message, raise_cap=raised, instead=instead)
