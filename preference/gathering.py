"""Several runs as one set of candidates: trees are labelled, and all states of a question stand together.

Decides the order of `candidates.jsonl` and `questions.jsonl`: questions as they first come, in each the sources as they
were given. Which states there are is decided in `labelling`. Memory holds places in files, not what stands there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import orjson

from preference.candidates import Origin, question_key
from preference.exporting import CANDIDATES, QUESTIONS, replacing
from preference.labelling import TokenCounter, labelled_states
from preference.paths import question_record
from preference.records import RolloutRecord


def write_candidates(
    rollouts: Iterable[RolloutRecord], out: Path, *, origin: Origin | None = None, tokens: TokenCounter | None = None
) -> None:
    """Label the trees of a run and write `candidates.jsonl` and `questions.jsonl` below `out`.

    origin: what the run's configuration tells beyond its records. A question that failed and was explored later has one
    line, that of its tree. Raises OSError, and whatever reading `rollouts` raises; nothing is replaced then.
    """
    out.mkdir(parents=True, exist_ok=True)
    failed: dict[str, bytes] = {}
    with replacing(out / CANDIDATES) as candidates, replacing(out / QUESTIONS) as questions:
        for rollout in rollouts:
            its_own = origin and _completed(origin, rollout)
            line = question_record(rollout, its_own).to_line()
            if rollout.error:
                failed[rollout.question_id] = line
                continue
            failed.pop(rollout.question_id, None)
            questions.write(line)
            for state in labelled_states(rollout, its_own, tokens):
                candidates.write(state.to_line())
        for line in failed.values():
            questions.write(line)


def _completed(origin: Origin, rollout: RolloutRecord) -> Origin:
    """What is known of a run, for one of its records: those of an imported one may be of several data sets."""
    own = {"dataset": rollout.dataset, "split": rollout.split, "revision": rollout.revision or origin.revision}
    return origin.model_copy(update=own)


def merge_candidates(folders: Sequence[Path], out: Path) -> None:
    """Several folders with candidates as one; states of one question stand together. Raises OSError."""
    out.mkdir(parents=True, exist_ok=True)
    for name in (CANDIDATES, QUESTIONS):
        with ExitStack() as opened:
            sources = [opened.enter_context((folder / name).open("rb")) for folder in folders]
            target = opened.enter_context(replacing(out / name))
            for source, place in _grouped(sources):
                sources[source].seek(place)
                target.write(sources[source].readline())


def _grouped(sources: Sequence[BinaryIO]) -> Iterator[tuple[int, int]]:
    """Source and place of every line, those of a question together."""
    places: dict[str, list[tuple[int, int]]] = {}
    for number, source in enumerate(sources):
        place = 0
        for line in source:
            places.setdefault(question_key(orjson.loads(line)["question"]), []).append((number, place))
            place += len(line)
    for found in places.values():
        yield from found
