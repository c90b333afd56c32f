"""The pairs of a data set from the point of view of the model that will be trained on them, the student.

The student continues afresh from both sides of every exported pair. Decides when its values replace those of the
search: in every state in which it tells the steps apart; elsewhere the labels stay. Does not know how it was trained or
how it is served.
"""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic import BaseModel

from preference import NO_FILTERS, candidates, confidence, read_rollouts
from preference.candidates import PairRecord, StateRecord, question_key, read_lines
from preference.export.files import atomic_replacement
from preference.export.formats import SPLITS, SplitName, pairs_files
from preference.export.json_stream import read_items
from preference.export.summary import CANDIDATES, QUESTIONS, SUMMARY
from preference.labelling import TOLERANCE, answer_weight, tags_without_values, with_golden_tags
from preference.records import ActionType, RecipeRef
from reasonrag.agent.outcomes import OF_GOLDEN_ANSWERS
from reasonrag.agent.prompting import PROMPTS
from reasonrag.curation.dataset_directory import read_summary
from reasonrag.curation.decontamination import CONTAMINATION
from reasonrag.curation.existing_data_set import IMPORT_REPORT
from reasonrag.data.item_files import explained_records
from reasonrag.errors import InputError
from reasonrag.files import ROLLOUTS
from reasonrag.progress import Watcher
from reasonrag.studies.from_settings import Injected, RunParts, find_parts, made_with
from reasonrag.studies.revaluation import PairSample, RevaluedPair, revalue
from reasonrag.studies.settings import CalibrateSettings

CONTINUATIONS: Final = 4
"""Of the student from each step. With 4, a step that it always continues to a right answer beats one that it never does
with confidence .997, one of 3 in 4 beats one of 1 in 4 with .92; `pairs` asks for .7. Where some do not count, as
labels of the run say, confidence is lower."""
_TREES_AT_ONCE = 256
"""Held in memory."""


@dataclass(frozen=True)
class Student:
    """The model that continues. name: of these weights, by which the journal knows its answers. served_as: its name at
    the server."""

    name: str
    base_url: str
    served_as: str


class StudentLabels(BaseModel):
    """What became of the exported pairs of a data set."""

    student: str
    continuations: int
    """From each step."""
    pairs: int
    confirmed: int = 0
    """The student ends better from the chosen step too."""
    reversed: int = 0
    """It ends better from the rejected step, which is the chosen one now."""
    tied: int = 0
    """It ends equally well from both, but not from all steps of the state: no pair any more."""
    untold: int = 0
    """It ends equally well from all steps of the state, or could not be asked: the label of the search stays."""
    unvalued: int = 0
    """No continuation from one of the two counts, but it tells others of the state apart: no pair any more."""
    failures_by_cause: dict[str, int] = {}
    """Steps whose continuation failed, by cause."""
    calls: int = 0
    """Completions of the student, all sessions."""


def runs_of(data_set: Path) -> list[Path]:
    """The runs a data set was made of, those of the data sets it was merged from included, and without imported ones,
    which cannot be continued: the labels of what was imported stay.

    Raises InputError if one is not where it was, or was made with a judge of answers.
    """
    found = list(dict.fromkeys(_sources(data_set, seen=())))
    runs = []
    for run in found:
        if not (run / ROLLOUTS).is_file():
            raise InputError(
                f"{data_set} was made of {run}, which is not there, so its steps cannot be continued. Put the run "
                "back, or train on the pairs as they are, without --recipe"
            )
        made = made_with(run).decides_answers
        if made.imported:
            continue
        if made.recipe.outcome not in OF_GOLDEN_ANSWERS:
            raise InputError(
                f"the outcome of {run} is {made.recipe.outcome}, which the student cannot give its own answers: train "
                "on the pairs as they are, without --recipe"
            )
        runs.append(run)
    return runs


def _sources(data_set: Path, *, seen: tuple[Path, ...]) -> Iterator[Path]:
    """The runs among its sources; of an import there is none."""
    if (data_set / IMPORT_REPORT).is_file():
        return
    for named in read_summary(data_set).sources:
        source = Path(named)
        if source.resolve() in (data_set.resolve(), *seen):
            raise InputError(
                f"{data_set / SUMMARY} does not say of which runs it was made; make it again from them: "
                f"reasonrag pairs RUN --out {data_set}"
            )
        if source.suffix == ".jsonl":
            source = source.parent
        if (source / CANDIDATES).is_file():
            yield from _sources(source, seen=(*seen, data_set.resolve()))
        else:
            yield source


async def check_runs(runs: Sequence[Path], watcher: Watcher) -> None:
    """Open what continuing the runs needs, before a student is trained for it. Raises InputError."""
    for run in runs:
        async with AsyncExitStack() as opened:
            try:
                await _parts(run, Student("student", "http://127.0.0.1:9/v1", "student"), watcher, opened)
            except InputError as error:
                raise InputError(
                    f"the steps of {run} cannot be continued: {error}. A recipe takes no such flags: put back what the "
                    "run was made with, or train on the pairs as they are, without --recipe"
                ) from error


async def label_by_student(
    data_set: Path, runs: Sequence[Path], out: Path, student: Student, watcher: Watcher
) -> StudentLabels:
    """Write the candidates of a data set, with the student's values, into a folder that `pairs` takes as a data set.

    out: also keeps the journals of the student's answers, so that nothing is asked twice. Raises InputError, RunStopped
    and KeyboardInterrupt.
    """
    exported = _exported(data_set)
    told = StudentLabels(student=student.name, continuations=CONTINUATIONS, pairs=len(exported))
    values = _StudentValues()
    failures = Counter[str]()
    for run in runs:
        made = made_with(run)
        journal = out / f"journal-{made.config_hash}"
        journal.mkdir(parents=True, exist_ok=True)
        calls = 0
        async with AsyncExitStack() as opened:
            parts = await _parts(run, student, watcher, opened)
            model = replace(parts.model, name=student.served_as).open(opened, say=watcher.say)
            for sample in _samples(run, exported):
                found = await revalue(parts, sample, k=CONTINUATIONS, folder=journal, chat_model=model, watcher=watcher)
                values.add(made.config_hash, sample, found.sample)
                failures.update(found.failures_by_cause)
                calls = found.calls
        told.calls += calls
    for name in (QUESTIONS, SUMMARY, CONTAMINATION):
        if (data_set / name).is_file():
            shutil.copyfile(data_set / name, out / name)
    if (data_set / PROMPTS).is_dir():
        shutil.copytree(data_set / PROMPTS, out / PROMPTS, dirs_exist_ok=True)
    counts = Counter[str]()
    with atomic_replacement(out / CANDIDATES) as file:
        for state in read_lines(data_set / CANDIDATES, StateRecord):
            anew = values.of(state, student.name)
            counts.update(verdict(pair, anew) for pair in state.pairs if pair.pair_id in exported)
            file.write((anew or state).to_line())
    return told.model_copy(update={**counts, "failures_by_cause": dict(failures.most_common())})


def _exported(data_set: Path) -> frozenset[str]:
    """The pairs in the rows of a data set, by id."""
    return frozenset(str(row["pair_id"]) for split in SPLITS for row in _rows(data_set, split))


def held_out(data_set: Path) -> frozenset[str]:
    """The questions in the validation rows of a data set, by `question_key`. What is made of it must hold out these: a
    model may have been trained on the others."""
    return frozenset(question_key(str(row["question"])) for row in _rows(data_set, "validation"))


def _rows(data_set: Path, split: SplitName) -> Iterator[dict[str, Any]]:
    file = pairs_files(data_set).get(split)
    for item in read_items(file) if file else ():
        if isinstance(item.value, dict) and "pair_id" in item.value:
            yield item.value


def _samples(run: Path, exported: frozenset[str]) -> Iterator[PairSample]:
    """The exported pairs of a run, those of some trees at a time."""
    with explained_records():
        trees = (rollout for rollout in read_rollouts(run / ROLLOUTS) if rollout.error is None)
        while some := list(islice(trees, _TREES_AT_ONCE)):
            sample = PairSample(sys.maxsize, seed=0, min_confidence=0.0)
            for rollout in some:
                sample.add(rollout, (each for each in candidates(rollout, NO_FILTERS) if each.pair.pair_id in exported))
            if sample.seen:
                yield sample


async def _parts(run: Path, student: Student, watcher: Watcher, opened: AsyncExitStack) -> RunParts:
    """The run's agent, corpus and outcome rule, with the student to continue."""
    free = {"price_in": 0.0, "price_out": 0.0, "yes": True}
    given = CalibrateSettings.model_validate({"model": student.name, "base_url": [student.base_url], **free})
    return await find_parts(run, made_with(run), given, Injected(None, None, None, watcher), opened)


# -- new labels ------------------------------------------------------------------------------------------------


class FreshValue(NamedTuple):
    """Mean discounted outcome of the student's continuations of a step, and how many of them count."""

    mean: float
    ends: int

    @property
    def of_step(self) -> dict[str, float]:
        """As fields of a `StepRecord`."""
        return {"reward": self.mean, "observations": float(self.ends)}


class _StudentValues:
    """The student's values of steps, by run, question and step, and how their runs count margins."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, str], dict[int, FreshValue]] = {}
        self._recipes: dict[str, RecipeRef] = {}

    def add(self, run: str, sample: PairSample, found: Sequence[RevaluedPair]) -> None:
        for sampled, pair in zip(sample.pairs, found, strict=True):
            self._recipes[run] = sampled.rollout.recipe
            steps = self._values.setdefault((run, pair.question_id), {})
            for step, value, ends in (
                (pair.chosen_id, pair.chosen_fresh, pair.chosen_ends),
                (pair.rejected_id, pair.rejected_fresh, pair.rejected_ends),
            ):
                if value is not None:
                    steps[step] = FreshValue(value, ends)

    def of(self, state: StateRecord, student: str) -> StateRecord | None:
        """The state as the student values it; None where it does not tell its steps apart."""
        run = state.origin.config_hash or ""
        known = self._values.get((run, state.question_id), {})
        return as_valued_by(state, known, self._recipes[run], student) if known else None


def as_valued_by(
    state: StateRecord, values: Mapping[int, FreshValue], recipe: RecipeRef, student: str
) -> StateRecord | None:
    """The state with the student's rewards, and its pairs by these; None where they are all equal, or fewer than two.

    values: of the student's continuations, by step. Steps without one have no reward.
    """
    known = {step.id: values[step.id] for step in state.steps if step.id in values}
    means = [each.mean for each in known.values()]
    if len(means) < 2 or max(means) - min(means) <= TOLERANCE:  # noqa: PLR2004 - a pair
        return None
    steps = [
        step.model_copy(update={"uncounted": None} | (known[step.id].of_step if step.id in known else {"reward": None}))
        for step in state.steps
    ]
    scale = recipe.alpha**state.layer if recipe.margin_by_layer else 1.0
    greatest = recipe.alpha ** (state.layer + 1)
    types = {step.id: step.action_type for step in state.steps}
    relabelled = state.model_copy(
        update={
            "steps": steps,
            "pairs": [_by_student(each, known, types, scale=scale, greatest=greatest) for each in state.pairs],
            "origin": state.origin.model_copy(update={"value_model": student}),
        }
    )
    return with_golden_tags(relabelled)


def _by_student(
    pair: PairRecord,
    known: Mapping[int, FreshValue],
    types: Mapping[int, ActionType | None],
    *,
    scale: float,
    greatest: float,
) -> PairRecord:
    """types: of the steps. greatest: the highest possible value of a step of the state."""
    tags = tags_without_values(pair)
    better, worse = known.get(pair.chosen), known.get(pair.rejected)
    if better is None or worse is None:
        return pair.model_copy(update={"label": "value", "margin": None, "confidence": None, "tags": tags})
    if worse.mean > better.mean + TOLERANCE:
        pair, better, worse = pair.swapped(), worse, better
    both = types[pair.chosen], types[pair.rejected]
    n = better.ends * answer_weight(*both), worse.ends * answer_weight(*both[::-1])
    found = confidence((min(1.0, better.mean / greatest), n[0]), (min(1.0, worse.mean / greatest), n[1]))
    update = {"margin": (better.mean - worse.mean) / scale, "confidence": found}
    return pair.model_copy(update={"label": "value", "tags": tags} | update)


def verdict(before: PairRecord, anew: StateRecord | None) -> str:
    """What became of a pair: a field of `StudentLabels`."""
    now = next((each for each in anew.pairs if each.pair_id == before.pair_id), None) if anew else None
    if now is None:
        return "untold"
    if now.margin is None:
        return "unvalued"
    if now.margin <= TOLERANCE:
        return "tied"
    return "confirmed" if now.chosen == before.chosen else "reversed"
