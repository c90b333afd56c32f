"""Ranks: a run in n parts, each of which is a run directory of its own below the run's.

    RUN/manifest.json            number of ranks, config_hash, and the ids of the run's questions in order
    RUN/ranks/00017/             of rank 17: an ordinary run directory
    RUN/completions/00017        written last, once every question of the rank has its line

Decides which rank a question belongs to, and that all ranks of a run have one configuration, one number of ranks and
the same questions. Does not know what a rank does with its questions, nor what starts it.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self, TypeAlias

import orjson
from pydantic import AfterValidator, BaseModel, Field

from preference.export.private_files import write_file
from preference.records import Items
from reasonrag.errors import InputError
from reasonrag.files import locked, read_record, read_small, storing, writing

RANKS, COMPLETIONS, MANIFEST = "ranks", "completions", "manifest.json"
MOST_RANKS = 100_000
DEFAULT_WORKERS = 2
"""Ranks of a new run on Ray: those of the smallest machine's cores."""
OF_RANKS = ("shard", "on", "workers")
"""Settings that say by which processes a run is explored."""
MOST_MANIFEST_BYTES = 1 << 28
"""Millions of ids."""
_SHARD = re.compile(r"([0-9]{1,6})/([0-9]{1,6})")


@dataclass(frozen=True, slots=True)
class Shard:
    """The questions of one rank of several. rank: from 0. A question's rank depends on nothing but its id and the
    number of ranks."""

    rank: int
    ranks: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError for a text that is not `i/n` with 0 <= i < n."""
        found = _SHARD.fullmatch(text)
        rank, ranks = map(int, found.groups()) if found else (0, 0)
        if not rank < ranks <= MOST_RANKS:
            raise ValueError(
                f"must be i/n, the i-th of n with i from 0 to n - 1, such as 0/8; n is at most {MOST_RANKS:,}"
            )
        return cls(rank, ranks)

    def __str__(self) -> str:
        return f"{self.rank}/{self.ranks}"

    def holds(self, question_id: str) -> bool:
        return rank_of(question_id, self.ranks) == self.rank

    def folder(self, whole: Path) -> Path:
        """The rank's folder in that of the whole."""
        return whole / RANKS / rank_name(self.rank)


def whole_of(folder: Path) -> Path | None:
    """The folder of the whole that this folder is a rank's of; None if it is none."""
    whole = folder.parent.parent
    return whole if folder.parent.name == RANKS and (whole / MANIFEST).exists() else None


def rank_of(question_id: str, ranks: int) -> int:
    return int(hashlib.sha256(question_id.encode("utf-8", "surrogatepass")).hexdigest()[:16], 16) % ranks


def rank_name(rank: int) -> str:
    return f"{rank:05d}"


ShardText: TypeAlias = Annotated[str, AfterValidator(lambda text: str(Shard.parse(text)))]
"""A setting that is a shard."""


def _distinct(ids: list[str]) -> list[str]:
    if len({*ids}) < len(ids):
        raise ValueError(f"{Counter(ids).most_common(1)[0][0]!r} stands there twice")
    return ids


class Manifest(BaseModel, frozen=True):
    """What all ranks of a run share."""

    ranks: int = Field(ge=1, le=MOST_RANKS, strict=True)
    config_hash: str
    question_ids: Annotated[Items[str], AfterValidator(_distinct)]
    """Of the whole run, in order; more are added at the end when --limit or --sample grows."""


def read_manifest(run: Path) -> Manifest | None:
    """The manifest of a run; None for a run without ranks. Raises InputError if it is unreadable."""
    advice = "Restore it, or choose another --run"
    return read_record(run / MANIFEST, Manifest, advice, most=MOST_MANIFEST_BYTES)


def join_ranks(run: Path, wanted: Manifest) -> None:
    """Enter a rank into its run, the first one by writing the manifest. Raises InputError where the ranks that are
    there have another configuration, number or questions."""
    with locked(run / ".ranks.lock", run, lambda: None):
        there = read_manifest(run)
        if there and there != wanted:
            _refuse_another(run, there, wanted)
        if there != wanted:
            path = run / MANIFEST
            with storing(path) if there else writing(path):
                write_file(path, orjson.dumps(wanted.model_dump()))


def _refuse_another(run: Path, there: Manifest, wanted: Manifest) -> None:
    """Raises InputError unless all that is wanted is more questions at the end."""
    known, now = there.question_ids, wanted.question_ids
    if there.ranks != wanted.ranks:
        other = f"{there.ranks:,} ranks, not {wanted.ranks:,}: give --shard i/{there.ranks}"
    elif there.config_hash != wanted.config_hash or now[: len(known)] != known:
        other = (
            f"ranks of {len(known):,} questions and the configuration {there.config_hash}, not of these {len(now):,} "
            f"and {wanted.config_hash}: give all the same questions, settings (--reasoning-effort is one) and versions"
        )
    else:
        return
    raise InputError(f"{run} is made by {other}, or choose another --run")


def leave_ranks(run: Path) -> None:
    """Have one process go on with a run: its ranks, if it has any, do not any more. Raises StorageError."""
    with storing(run / MANIFEST):
        (run / MANIFEST).unlink(missing_ok=True)


def complete(run: Path, rank: int, questions: int) -> None:
    """Mark a rank as complete, for a run of that many questions. Raises StorageError."""
    marker = run / COMPLETIONS / rank_name(rank)
    with storing(marker):
        marker.parent.mkdir(exist_ok=True)
        write_file(marker, b"%d\n" % questions)


def incomplete_ranks(run: Path, manifest: Manifest) -> list[int]:
    """The ranks without a marker for as many questions as the run has now."""

    def marked(rank: int) -> bool:
        try:
            return read_small(run / COMPLETIONS / rank_name(rank), 64).strip() == b"%d" % len(manifest.question_ids)
        except (OSError, InputError):
            return False

    return [rank for rank in range(manifest.ranks) if not marked(rank)]


def shown_ranks(ranks: Sequence[int]) -> str:
    """`3, 5, 8 and 12 others`."""
    few = 5
    named = ", ".join(str(each) for each in ranks[:few])
    return named if len(ranks) <= few else f"{named} and {len(ranks) - few:,} others"
