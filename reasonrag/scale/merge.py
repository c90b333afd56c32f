"""`reasonrag merge`: joins the ranks of a run into what one process would have made.

Decides when ranks may be joined: all are complete, have one configuration, and no question is in two of them. Of a run
of `generate` it writes every file; of other work, whose results come from its journal, the journal alone. Does not know
what started the ranks.
"""

from __future__ import annotations

import filecmp
import hashlib
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson
from pydantic import BaseModel, ValidationError

from preference import read_rollouts
from preference.export.files import atomic_replacement, write_file, write_json
from preference.export.summary import SUMMARY
from preference.records import parse_rollout
from reasonrag.concurrency import run_to_end
from reasonrag.errors import DegenerateRun, InputError, ReasonragError
from reasonrag.exploration.degeneracy import StopDecision, observed_signs
from reasonrag.exploration.explore import explore, stop_reason
from reasonrag.exploration.settings import GenerateSettings
from reasonrag.exploration.summary import RunSummary, SessionNumbers, StopReason, count_run
from reasonrag.files import (
    CONFIG,
    FAILURES,
    JOURNAL,
    ROLLOUTS,
    numbered_lines,
    only_writer,
    read_small,
    reading,
    writing,
)
from reasonrag.progress import SilentWatcher, Watcher
from reasonrag.ranks import MANIFEST, Manifest, Shard, incomplete_ranks, rank_of, read_manifest, shown_ranks
from reasonrag.rendering import counted
from reasonrag.run_config import RunConfig, read_config
from reasonrag.signatures import public_call


class Merged(BaseModel):
    """What `merge` joined; the output of `merge --json`."""

    run: str
    ranks: int
    questions: int
    summary: RunSummary | None
    """Of a run of `generate`, as in its summary.json; null for other work."""
    verified: bool | None = None
    """Whether one process gives the same rollouts.jsonl from the joined journal; null: not asked for."""


class NotReproduced(ReasonragError):
    """The joined journal gives other trees."""

    cause = "not_reproduced"


@public_call()
def merge(run: str | Path, *, verify: bool = False, watcher: Watcher | None = None) -> Merged:
    """Join the ranks of a run: of `generate` into the files that one process would have written, in question order.

    Of an evaluation, a calibration or judge labels it joins the journals; the same command without `shard` then takes
    every answer from there. May be repeated, as after a larger `limit`. Raises InputError for ranks that are missing,
    incomplete or of different configurations, and NotReproduced.

    Example:
        >>> for rank in ("0/2", "1/2"):
        ...     part = reasonrag.generate(dataset="atlas", limit=10, run="runs/two", shard=rank)
        >>> reasonrag.merge("runs/two", verify=True).verified
        True

    Args:
        run: the folder that was given to the ranks.
        verify: also explore the run anew in one process, from the joined journal alone, and compare the bytes of
            rollouts.jsonl.
        watcher: is told what happens while it goes on; none: silent.
    """
    run, watcher = Path(run), watcher or SilentWatcher()
    manifest = read_manifest(run)
    if manifest is None:
        raise InputError(f"{run} has no {MANIFEST}: give the folder that was the --run of ranks (--shard i/n)")
    folders = [Shard(rank, manifest.ranks).folder(run) for rank in range(manifest.ranks)]
    _check_complete(run, manifest, folders)
    joined = Merged(run=str(run), ranks=manifest.ranks, questions=len(manifest.question_ids), summary=None)
    with only_writer(run), writing(run):
        if not (folders[0] / ROLLOUTS).exists():
            if verify:
                raise InputError(f"{run} holds no trees; --verify is for runs of generate")
            _join(run / JOURNAL, [each / JOURNAL for each in folders], keep=True)
            return joined
        joined.summary, settings = _merge_trees(run, manifest, folders)
    if verify:
        _verify(run, settings, watcher)
        joined.verified = True
    return joined


def _check_complete(run: Path, manifest: Manifest, folders: Sequence[Path]) -> None:
    missing = incomplete_ranks(run, manifest)
    if not missing:
        return
    told = ""
    for rank in missing:
        with suppress(OSError, InputError, ValidationError):
            stopped = RunSummary.model_validate_json(read_small(folders[rank] / SUMMARY)).stopped
            told = f" Rank {rank} was stopped: {stopped.message}." if stopped else told
        if told:
            break
    which = f"rank {missing[0]} is" if len(missing) == 1 else f"ranks {shown_ranks(missing)} are"
    raise InputError(
        f"{which} not complete, of {manifest.ranks:,} in {run}.{told} Run what is missing again with the same "
        f"settings, by --shard {missing[0]}/{manifest.ranks} or --on ray, then merge"
    )


def _merge_trees(run: Path, manifest: Manifest, folders: Sequence[Path]) -> tuple[RunSummary, GenerateSettings]:
    """Write the files of a run of `generate`; its summary, and its settings. Raises InputError and OSError."""
    configs = [_config(each, manifest) for each in folders]
    lines = _find_lines(manifest, folders)
    given = [each.operational.settings if each.operational else {} for each in configs]
    share = min(float(each.get("abort_degenerate", 0.0)) for each in given)
    kept, stopped = _before_a_stop(manifest.question_ids, lines, share=share)
    for name in (JOURNAL, FAILURES):
        _join(run / name, [each / name for each in folders])
    with atomic_replacement(run / ROLLOUTS) as file:
        file.writelines(lines[each].read() for each in manifest.question_ids[:kept])
    own = {"settings": given[0] | {"shard": None, "run": str(run), "abort_degenerate": share}}
    content = configs[0].model_dump()
    config = RunConfig.model_validate(content | {"operational": content["operational"] | own})
    for each in configs:
        if each.operational and each.operational.refused_parameters:
            config = config.with_refusals(each.operational.refused_parameters)
    write_file(run / CONFIG, config.to_bytes())
    every = len(manifest.question_ids)
    summary = summary_of_ranks(run, folders, questions=every, rollouts=[run / ROLLOUTS], stopped=stopped)
    write_json(run / SUMMARY, summary.model_dump())
    return summary, GenerateSettings.model_validate(own["settings"])


def _config(folder: Path, manifest: Manifest) -> RunConfig:
    found = read_config(folder / CONFIG)
    if found.config_hash != manifest.config_hash:
        raise InputError(
            f"{folder} has the configuration {found.config_hash}, the run's is {manifest.config_hash}: it was changed "
            "after it was made. Restore it, or make the rank again"
        )
    return found


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of a rank's rollouts.jsonl. start, length: in bytes."""

    path: Path
    start: int
    length: int

    def read(self) -> bytes:
        with self.path.open("rb") as file:
            file.seek(self.start)
            return file.read(self.length)


def _find_lines(manifest: Manifest, folders: Sequence[Path]) -> dict[str, _Line]:
    """The line of every question, by its id. Raises InputError for a question that is missing, in the wrong rank or in
    no manifest."""
    wanted, found = set(manifest.question_ids), dict[str, _Line]()
    for rank, folder in enumerate(folders):
        path, start = folder / ROLLOUTS, 0
        with reading(path), path.open("rb") as file:
            for number, line in numbered_lines(path, file):
                question_id = _question_of(line, f"{path}, line {number}")
                if question_id not in wanted or rank_of(question_id, manifest.ranks) != rank:
                    raise InputError(f"{path}, line {number}: the question {question_id!r} is not of rank {rank}")
                found[question_id] = _Line(path, start, len(line))  # a later line replaces an error
                start += len(line)
    if missing := [each for each in manifest.question_ids if each not in found]:
        rank = rank_of(missing[0], manifest.ranks)
        raise InputError(
            f"{counted(len(missing), 'question')} of the run have no line, {missing[0]!r} of rank {rank} for one: "
            f"{folders[rank] / ROLLOUTS} was changed after it was made. Run that rank again, then merge"
        )
    return found


def _question_of(line: bytes, where: str) -> str:
    try:
        return str(orjson.loads(line)["question_id"])
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise InputError(f"{where} is not a rollout record. Remove the line and run the rank again") from error


def _before_a_stop(
    question_ids: Sequence[str], lines: Mapping[str, _Line], *, share: float
) -> tuple[int, StopReason | None]:
    """How many leading questions one process would have explored, and why it would have stopped there."""
    decision = StopDecision(share, len(question_ids))
    for position, each in enumerate(question_ids):
        if decision.reason or decision.reach >= len(question_ids):
            break
        rollout = parse_rollout(lines[each].read(), where=f"{lines[each].path}, question {each!r}")
        decision.add(position, None if rollout.error else observed_signs(rollout, for_stop=True))
    if decision.reason is None:
        return len(question_ids), None
    return decision.reach, stop_reason(DegenerateRun(decision.reason))


def _join(target: Path, parts: Sequence[Path], *, keep: bool = False) -> None:
    """The parts one after another. keep: after the whole lines of the target, which are not written twice: they may be
    answers that one process paid for, before or after there were ranks. Raises OSError."""
    kept = set[bytes]()
    with atomic_replacement(target) as file:
        for each in [target, *parts] if keep and target.exists() else parts:
            with each.open("rb") as part:
                if not keep:
                    shutil.copyfileobj(part, file)
                    continue
                for line in part:
                    digest = hashlib.sha256(line).digest()
                    if line.endswith(b"\n") and digest not in kept:
                        kept.add(digest)
                        file.write(line)


def summary_of_ranks(
    run: Path, folders: Sequence[Path], *, questions: int, rollouts: Sequence[Path], stopped: StopReason | None
) -> RunSummary:
    """Counts of these rollouts, with the numbers of the ranks' last sessions added up; ranks that were killed before
    they wrote any are left out. Raises InputError where none is left."""
    parts = list[RunSummary]()
    for folder in folders:
        with suppress(FileNotFoundError), reading(folder / SUMMARY):
            parts.append(RunSummary.model_validate_json(read_small(folder / SUMMARY)))
    if not parts:
        raise InputError(f"no rank of {run} has a {SUMMARY}; run them again")
    costs = [each.cost_usd for each in parts]
    refused: dict[str, set[str]] = {}
    for each in parts:
        for name, parameters in each.refused_parameters.items():
            refused.setdefault(name, set()).update(parameters)
    return count_run(
        chain.from_iterable(map(read_rollouts, rollouts)),
        SessionNumbers(
            **parts[0].model_dump(include=set(SessionNumbers.model_fields) - _ADDED_UP),
            run=str(run),
            questions=questions,
            cost_usd=None if None in costs else sum(each for each in costs if each is not None),
            refused_parameters={name: sorted(refused[name]) for name in sorted(refused)},
            session_questions=sum(each.session_questions for each in parts),
            session_seconds=max(each.session_seconds for each in parts),
            session_failed_calls=sum(each.session_failed_calls for each in parts),
            session_cached_calls=sum(each.session_cached_calls for each in parts),
            session_seconds_per_request=None,
            stopped=stopped,
        ),
    )


_ADDED_UP = {
    *("run", "questions", "cost_usd", "refused_parameters", "session_questions", "session_seconds", "stopped"),
    *("session_failed_calls", "session_cached_calls", "session_seconds_per_request"),
}


def _verify(run: Path, settings: GenerateSettings, watcher: Watcher) -> None:
    """Explore the run in one process from its journal. Raises NotReproduced."""
    with TemporaryDirectory(prefix=".verify-", dir=run) as place:
        again = settings.model_copy(update={"run": Path(place) / run.name})
        run_to_end(explore(again, None, None, watcher, replay=run / JOURNAL))
        ours, theirs = run / ROLLOUTS, again.run_directory / ROLLOUTS
        if filecmp.cmp(ours, theirs, shallow=False):
            return
        for joined, replayed in zip_longest(read_rollouts(ours), read_rollouts(theirs)):
            if joined != replayed:
                differs = f"first for question {(joined or replayed).question_id!r}"
                break
        else:
            differs = "in bytes only"
    raise NotReproduced(
        f"one process makes other trees of {run / JOURNAL} than the ranks did, {differs}: were ranks made by another "
        "version of reasonrag, or by an outcome function?"
    )
