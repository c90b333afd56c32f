"""`reasonrag merge`: joins the ranks of a run into what one process would have made.

Decides when ranks may be joined: all are complete and have one configuration, and no question is in two of them. Does
not know what started the ranks.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from preference.export.files import write_json
from preference.export.summary import SUMMARY
from preference.records import first_error
from reasonrag.data.item_files import explained_records
from reasonrag.errors import CapReached, InputError, RunStopped
from reasonrag.exploration.run_directory import join_runs
from reasonrag.exploration.settings import GenerateSettings
from reasonrag.exploration.summary import RunSummary, StopReason
from reasonrag.files import CONFIG, only_writer, read_record, writing
from reasonrag.progress import SilentWatcher, Watcher
from reasonrag.ranks import MANIFEST, OF_RANKS, Manifest, Shard, incomplete_ranks, read_manifest, shown_ranks
from reasonrag.redaction import redact
from reasonrag.rendering import Part, counted
from reasonrag.settings import flags_given
from reasonrag.signatures import public_call


class Merged(BaseModel):
    """What `merge` joined; the output of `merge --json`."""

    run: str
    ranks: int
    questions: int
    summary: RunSummary
    """As in the run's summary.json."""

    def shown(self) -> Iterator[Part]:
        yield f"joined {counted(self.ranks, 'rank')}: {counted(self.questions, 'question')}"
        yield from self.summary.shown()


class CapsSpent(RunStopped):
    """Ranks have spent their part of a cap before all their questions were done."""

    cause, exit_status = CapReached.cause, CapReached.exit_status


@public_call()
def merge(run: str | Path, *, watcher: Watcher | None = None) -> Merged:
    """Join the ranks of a run into the files that one process would have written, in question order.

    May be repeated, as after a larger `limit`. Raises InputError for ranks that are missing, incomplete or of different
    configurations, and RunStopped where nothing but a cap stopped them.

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
    _check_complete(run, manifest, folders)
    with only_writer(run), writing(run), explained_records():
        summary, settings = join_runs(run, manifest, folders, watcher.say)
        if stopped := summary.stopped:
            again = _command(_settings(run, settings), stopped.raise_cap)
            summary.stopped = stopped.model_copy(update={"instead": again})
        write_json(run / SUMMARY, summary.model_dump())
    return Merged(run=str(run), ranks=manifest.ranks, questions=len(manifest.question_ids), summary=summary)


def _check_complete(run: Path, manifest: Manifest, folders: Sequence[Path]) -> None:
    """Raises InputError for ranks that are not complete, and CapsSpent if a cap stopped each of them."""
    if others := sorted({*folders[0].parent.glob("[0-9]*")} - {*folders}):
        raise InputError(f"{run / MANIFEST}: ranks is {manifest.ranks:,}, and {others[0]} is there. Restore the file")
    missing = incomplete_ranks(run, manifest)
    if not missing:
        return
    stops = dict[int, StopReason]()
    for rank in missing:
        with suppress(InputError):
            found = read_record(folders[rank] / SUMMARY, RunSummary, "")
            stops |= {rank: found.stopped} if found and found.stopped else {}
    which = f"rank {missing[0]} is" if len(missing) == 1 else f"ranks {shown_ranks(missing)} are"
    told = next((f" Rank {rank} was stopped: {stop.message}." for rank, stop in stops.items()), "")
    message = f"{which} not complete, of {manifest.ranks:,} in {run}.{told} Run what is missing again with the same "
    if all(rank in stops and stops[rank].cause == CapReached.cause for rank in missing):
        raise CapsSpent(f"{message}settings and a higher cap, then merge")
    raise InputError(f"{message}settings, by --shard {missing[0]}/{manifest.ranks} or --on ray, then merge")


def _settings(run: Path, saved: dict[str, Any]) -> GenerateSettings:
    try:
        return GenerateSettings.model_validate(saved)
    except ValidationError as error:
        raise InputError(
            f"{run / CONFIG}: operational.settings: {first_error(error)}. Restore the file of each rank, or make the "
            "run again if another version of reasonrag made it"
        ) from error


def _command(settings: GenerateSettings, changed: dict[str, str]) -> str:
    """The command by which one process goes on with the run, some flags with other values."""
    words = flags_given(settings, without={*OF_RANKS, *(flag[2:].replace("-", "_") for flag in changed)})
    words += [word for item in changed.items() for word in item]
    return redact(shlex.join(["reasonrag", "generate", *words]))
