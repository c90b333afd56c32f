"""`reasonrag merge`: joins the ranks of a run into what one process would have made.

Decides when ranks may be joined: all are complete, have one configuration, and no question is in two of them. Does
not know what started the ranks.
"""

from __future__ import annotations

import filecmp
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

import numpy as np
import orjson
from pydantic import BaseModel, ValidationError

from preference import RolloutRecord, read_rollouts
from preference.export.files import atomic_replacement, write_file, write_json
from preference.export.summary import SUMMARY
from preference.records import first_error, parse_rollout
from reasonrag.concurrency import run_to_end
from reasonrag.data.item_files import explained_records
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
    checked_lines,
    only_writer,
    read_record,
    writing,
)
from reasonrag.llm.endpoint.prompt_window import PromptWindows
from reasonrag.llm.journal import LONGEST_LINE, parse_line
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
    """Join the ranks of a run into the files that one process would have written, in question order.

    May be repeated, as after a larger `limit`. Raises InputError for ranks that are missing,
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
    with only_writer(run), writing(run), explained_records():
        joined.summary, settings = _merge_trees(run, manifest, folders, watcher.say)
    if verify:
        _verify(run, settings, watcher)
        joined.verified = True
    return joined


def _check_complete(run: Path, manifest: Manifest, folders: Sequence[Path]) -> None:
    if others := sorted({*folders[0].parent.glob("[0-9]*")} - {*folders}):
        raise InputError(f"{run / MANIFEST}: ranks is {manifest.ranks:,}, and {others[0]} is there. Restore the file")
    missing = incomplete_ranks(run, manifest)
    if not missing:
        return
    told = ""
    for rank in missing:
        with suppress(InputError):
            found = read_record(folders[rank] / SUMMARY, RunSummary, "")
            if found and found.stopped:
                told = f" Rank {rank} was stopped: {found.stopped.message}."
                break
    which = f"rank {missing[0]} is" if len(missing) == 1 else f"ranks {shown_ranks(missing)} are"
    raise InputError(
        f"{which} not complete, of {manifest.ranks:,} in {run}.{told} Run what is missing again with the same "
        f"settings, by --shard {missing[0]}/{manifest.ranks} or --on ray, then merge"
    )


def _merge_trees(
    run: Path, manifest: Manifest, folders: Sequence[Path], say: Callable[[str], None]
) -> tuple[RunSummary, GenerateSettings]:
    """Write the files of a run of `generate`, once all of them have been checked; its summary, and its settings. Raises
    InputError and OSError."""
    configs, before = [_config(each, manifest) for each in folders], _versions(folders)
    lines = _find_lines(manifest, folders, say)
    settings = [_settings(config, folder) for config, folder in zip(configs, folders, strict=True)]
    share = min(each.abort_degenerate for each in settings)
    kept, stopped = _before_a_stop(manifest.question_ids, lines, share=share)
    content, whole = configs[0].model_dump(), {"shard": None, "limiter": None, "abort_degenerate": share}
    known = content["operational"]
    own = {"settings": known.get("settings", {}) | whole | {"run": str(run)}}
    config = RunConfig.model_validate(content | {"operational": known | own})
    refused = _refused_by_any([each.operational.refused_parameters for each in configs if each.operational])
    every = len(manifest.question_ids)
    with ExitStack() as replaced:
        journal, failures, rollouts = (
            replaced.enter_context(atomic_replacement(run / name)) for name in (JOURNAL, FAILURES, ROLLOUTS)
        )
        windows = PromptWindows()
        journal.writelines(_answers([each / JOURNAL for each in folders], say, windows))
        cut = windows.lessons_of_ranks(config.decides_answers.model, refused)
        config = config.with_refusals(refused).with_refusals(cut)
        for folder in folders:
            failures.writelines(line for _, line, _ in checked_lines(folder / FAILURES, _failure, say))
        trees = _copied((lines[each] for each in manifest.question_ids[:kept]), rollouts)
        refused = config.operational.refused_parameters if config.operational else {}
        summary = summary_of_ranks(run, folders, questions=every, rollouts=trees, stopped=stopped, refused=refused)
        _check_unchanged(before)
    write_file(run / CONFIG, config.to_bytes())
    write_json(run / SUMMARY, summary.model_dump())
    return summary, settings[0].model_copy(update=whole | {"run": run})


def _settings(config: RunConfig, folder: Path) -> GenerateSettings:
    given = config.operational.settings if config.operational else {}
    try:
        return GenerateSettings.model_validate({"abort_degenerate": 0.0} | given)
    except ValidationError as error:
        raise InputError(f"{folder / CONFIG}: operational.settings: {first_error(error)}. Restore the file") from error


def _config(folder: Path, manifest: Manifest) -> RunConfig:
    found = read_config(folder / CONFIG)
    if found.config_hash != manifest.config_hash:
        raise InputError(
            f"{folder} has the configuration {found.config_hash}, the run's is {manifest.config_hash}: it was changed "
            "after it was made. Restore it, or make the rank again"
        )
    if wrong := found.unreadable() or ([] if found.operational else ["operational"]):
        raise InputError(f"{folder / CONFIG}: {wrong[0]} is missing or cannot be read. Restore the file")
    return found


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of a rank's rollouts.jsonl. start, length: in bytes. failed: whether it holds no tree."""

    path: Path
    number: int
    start: int
    length: int
    failed: bool

    def __str__(self) -> str:
        return f"{self.path}, line {self.number}"

    def read(self) -> bytes:
        with self.path.open("rb") as file:
            file.seek(self.start)
            return file.read(self.length).rstrip(b"\r\n") + b"\n"


def _versions(folders: Sequence[Path]) -> dict[Path, tuple[int, int, int]]:
    found = ((each / ROLLOUTS, (each / ROLLOUTS).stat()) for each in folders)
    return {path: (stat.st_ino, stat.st_size, stat.st_mtime_ns) for path, stat in found}


def _check_unchanged(before: Mapping[Path, tuple[int, int, int]]) -> None:
    """Raises InputError for a file that was written while it was read."""
    now = _versions([each.parent for each in before])
    if changed := [path for path, version in before.items() if now[path] != version]:
        raise InputError(f"{changed[0]} was written while the ranks were joined: wait until no rank runs, then merge")


def _find_lines(manifest: Manifest, folders: Sequence[Path], say: Callable[[str], None]) -> dict[str, _Line]:
    """The line of every question, by its id. Raises InputError for a question that is missing, in the wrong rank or in
    no manifest, and for one with two trees."""
    wanted, found = set(manifest.question_ids), dict[str, _Line]()
    for rank, folder in enumerate(folders):
        path, start = folder / ROLLOUTS, 0
        for number, line, record in checked_lines(path, _question_of, say):
            question_id, config_hash, failed, length = record
            new, earlier = _Line(path, number, start, length, failed), found.get(question_id)
            if question_id not in wanted or rank_of(question_id, manifest.ranks) != rank:
                raise InputError(f"{new}: the question {question_id!r} is not of rank {rank}")
            if config_hash != manifest.config_hash:
                raise InputError(f"{new} is of another configuration, {config_hash}. Run rank {rank} again")
            if earlier and not earlier.failed and earlier.read() != line:
                raise InputError(f"{new} has another tree of {question_id!r} than line {earlier.number}; remove one")
            found[question_id] = new  # replaces an error
            start += length
    if missing := [each for each in manifest.question_ids if each not in found]:
        rank = rank_of(missing[0], manifest.ranks)
        raise InputError(
            f"{counted(len(missing), 'question')} of the run have no line, {missing[0]!r} of rank {rank} for one: "
            f"{folders[rank] / ROLLOUTS} was changed after it was made. Run that rank again, then merge"
        )
    return found


def _question_of(line: bytes) -> tuple[str, str, bool, int]:
    """A record's question and configuration, whether it holds no tree, and the bytes of the line. Raises ValueError."""
    try:
        record = orjson.loads(line)
        return str(record["question_id"]), str(record["config_hash"]), bool(record["error"]), len(line)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"is not a rollout record: {error}") from error


def _failure(line: bytes) -> None:
    """Raises ValueError."""
    try:
        orjson.loads(line)["kind"]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"is not a failure: {error}") from error


def _before_a_stop(
    question_ids: Sequence[str], lines: Mapping[str, _Line], *, share: float
) -> tuple[int, StopReason | None]:
    """How many leading questions one process would have explored, and why it would have stopped there."""
    decision = StopDecision(share, len(question_ids))
    for position, each in enumerate(question_ids):
        if decision.reason or decision.reach >= len(question_ids):
            break
        rollout = parse_rollout(lines[each].read(), where=str(lines[each]))
        decision.add(position, None if rollout.error else observed_signs(rollout, for_stop=True))
    if decision.reason is None:
        return len(question_ids), None
    return decision.reach, stop_reason(DegenerateRun(decision.reason))


def _copied(lines: Iterable[_Line], to: BinaryIO) -> Iterator[RolloutRecord]:
    """The trees of these lines, each of which is written once it was read."""
    for each in lines:
        yield parse_rollout(line := each.read(), where=str(each))
        to.write(line)


def _answers(journals: Sequence[Path], say: Callable[[str], None], windows: PromptWindows) -> Iterator[bytes]:
    """The lines of journals one after another, without copies; their prompts are added to the windows. Raises
    InputError at the end where a draw of a question has two answers. Holds some 100 bytes a line."""
    seen, draws = set[int](), (array("q"), array("q"), array("q"))
    for journal, path in enumerate(journals):
        for number, line, entry in checked_lines(path, parse_line, say, longest=LONGEST_LINE):
            if hash(line) in seen:
                continue
            seen.add(hash(line))
            yield line
            for key, said in entry.answers.items():
                windows.add(entry.model, said)
                draws[0].append(hash((entry.question_id, key)))
                draws[1].append(hash((said.text, said.reasoning, said.finish_reason)))
                draws[2].append(journal << 40 | number)
    keys, answers, places = map(np.asarray, draws)
    order = np.argsort(keys, kind="stable")
    differ = np.flatnonzero((np.diff(keys[order]) == 0) & (np.diff(answers[order]) != 0))
    if len(differ):
        at = (divmod(int(places[order[differ[0] + each]]), 1 << 40) for each in (0, 1))
        first, second = (f"{journals[journal]}, line {number}" for journal, number in at)
        raise InputError(
            f"{second} has another answer to a request than {first}. Remove one of the lines; --verify then tells "
            "whether it was the right one"
        )


def _refused_by_any(ranks: Sequence[dict[str, list[str]]]) -> dict[str, list[str]]:
    names = sorted({name for each in ranks for name in each})
    return {name: sorted({said for each in ranks for said in each.get(name, [])}) for name in names}


def summary_of_ranks(
    run: Path,
    folders: Sequence[Path],
    *,
    questions: int,
    rollouts: Iterable[RolloutRecord],
    stopped: StopReason | None,
    refused: dict[str, list[str]] | None = None,
) -> RunSummary:
    """Counts of these rollouts, with the numbers of the ranks' last sessions added up; ranks that were killed before
    they wrote any are left out. refused: by endpoints of all ranks, where it is known. Raises InputError where none is
    left."""
    advice = "Restore it, or run the rank again"
    parts = [found for each in folders if (found := read_record(each / SUMMARY, RunSummary, advice))]
    if not parts:
        raise InputError(f"no rank of {run} has a {SUMMARY}; run them again")
    costs = [each.cost_usd for each in parts]
    if refused is None:
        refused = _refused_by_any([each.refused_parameters for each in parts])
    return count_run(
        rollouts,
        SessionNumbers(
            **parts[0].model_dump(include=set(SessionNumbers.model_fields) - _ADDED_UP),
            run=str(run),
            questions=questions,
            cost_usd=None if None in costs else sum(each for each in costs if each is not None),
            refused_parameters=refused,
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
        failed = 0
        for joined, replayed in zip_longest(read_rollouts(ours), read_rollouts(theirs)):
            if joined and joined.error and replayed and replayed.error:
                failed += 1
            elif joined != replayed:
                of = f"question {(joined or replayed).question_id!r}"
                break
        else:
            if failed:
                watcher.say(f"{counted(failed, 'question')} without a tree cannot be compared")
                return
            of = "no question, but in bytes"
        if replayed and replayed.error and replayed.error.cause == "not_recorded":
            raise NotReproduced(
                f"{run / JOURNAL} lacks an answer that the tree of {of} was made with, perhaps in a line that was cut "
                f"off: the tree is as it was made. To have it made again, delete its line in the {ROLLOUTS} of its "
                f"rank, run that rank again and merge"
            )
    raise NotReproduced(
        f"one process makes other trees of {run / JOURNAL} than the ranks did, first for {of}: were ranks made by "
        "another version of reasonrag, or by an outcome function?"
    )
