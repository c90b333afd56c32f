"""What is compared: conditions, each one evaluation or several seeds of one, and the questions that all have answered.

Decides which evaluations may stand side by side, which questions are left out, and what about the conditions is not the
same. Reads `predictions.jsonl`, `report.json` and `config.json` of each and nothing else; knows no statistics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from reasonrag.errors import InputError
from reasonrag.evaluation.metrics import METRICS
from reasonrag.evaluation.predictions import Prediction, read_predictions
from reasonrag.evaluation.report import Report, read_report
from reasonrag.evaluation.significance import Values
from reasonrag.files import CONFIG
from reasonrag.run_config import RunConfig, read_config


@dataclass(frozen=True)
class EvaluationRun:
    """One run of `evaluate`: what its directory holds."""

    path: Path
    report: Report
    config: RunConfig
    predictions: dict[str, Prediction]
    """By question, those that failed included."""


@dataclass(frozen=True)
class Condition:
    """What is compared: one evaluation, or several of the same thing that differ in their seeds."""

    name: str
    seeds: tuple[EvaluationRun, ...]

    @property
    def first(self) -> EvaluationRun:
        return self.seeds[0]

    def values(self, metric: str, questions: Sequence[str]) -> Values:
        """A row per seed, a column per question; nan where there is no value."""
        of = METRICS[metric]
        rows = [[of(seed.predictions[each]) for each in questions] for seed in self.seeds]
        return np.array(rows, dtype=np.float64).reshape(len(self.seeds), len(questions))


@dataclass(frozen=True)
class LeftOutQuestions:
    """Questions that are not compared: some evaluation was not asked them, or has an error in place of replies."""

    missing: int
    failed: int


def read_conditions(runs: Sequence[Path], groups: Sequence[str]) -> list[Condition]:
    """The single evaluations, then the groups, `NAME=DIR,DIR`. Raises InputError for fewer than two, for names that are
    not told apart and for what is no evaluation."""
    named = [(_names(runs)[place], [run]) for place, run in enumerate(runs)] + [_parsed(group) for group in groups]
    if len(named) < 2:  # noqa: PLR2004 - a comparison has two sides
        raise InputError(
            "a comparison needs two evaluations at least: reasonrag compare RUN RUN, the first of which the others are "
            "held against, or --group NAME=RUN,RUN for several seeds of one"
        )
    again = [name for name, count in Counter(name for name, _ in named).items() if count > 1]
    if again and len(named) > len(runs):
        raise InputError(f"two conditions are called {again[0]!r}; give the --group another name")
    return [Condition(name, tuple(map(_evaluation, paths))) for name, paths in named]


def _names(runs: Sequence[Path]) -> list[str]:
    """Of directories: their last parts, as many as it takes to tell them apart; a number where nothing does."""
    parts = [run.absolute().parts for run in runs]
    for length in range(1, max(map(len, parts), default=0) + 1):
        names = ["/".join(each[-length:]) for each in parts]
        if len(set(names)) == len(names):
            return names
    seen: Counter[str] = Counter()
    names = []
    for run in runs:
        seen[run.name] += 1
        names.append(run.name if seen[run.name] == 1 else f"{run.name} ({seen[run.name]})")
    return names


def _parsed(group: str) -> tuple[str, list[Path]]:
    name, given, listed = group.partition("=")
    paths = [Path(each.strip()) for each in listed.split(",") if each.strip()]
    if not (name.strip() and given and paths):
        raise InputError(f"--group {group} is no group; write NAME=RUN,RUN")
    again = [path for path, count in Counter(map(Path.absolute, paths)).items() if count > 1]
    if again:
        raise InputError(f"--group {name}: {again[0]} is in it twice; each seed has an evaluation of its own")
    return name.strip(), paths


def _evaluation(path: Path) -> EvaluationRun:
    if not path.is_dir():
        raise InputError(f"there is no evaluation {path}; give the directory that reasonrag evaluate wrote (its --run)")
    report, predictions = read_report(path), read_predictions(path)
    if not (path / CONFIG).is_file():
        raise InputError(f"{path} has no {CONFIG}, so nobody knows how its answers were made; evaluate once more")
    by_id = {each.question_id: each for each in predictions}
    return EvaluationRun(path, report, read_config(path / CONFIG), by_id)


# -- what all of them answered ---------------------------------------------------------------------------------


def common_questions(conditions: Sequence[Condition]) -> tuple[list[str], LeftOutQuestions]:
    """Ids that every evaluation has replies to, sorted, and how many others there are.

    Raises InputError where the evaluations are of different data, and where there is no common question.
    """
    evaluations = [seed for each in conditions for seed in each.seeds]
    first = evaluations[0]
    for each in evaluations[1:]:
        _check_same_data(first, each)
    every = set().union(*(each.predictions for each in evaluations))
    shared = set(first.predictions).intersection(*(each.predictions for each in evaluations))
    usable = sorted(id_ for id_ in shared if all(each.predictions[id_].error is None for each in evaluations))
    if not usable:
        held = ", ".join(f"{each.path} has {len(each.predictions):,}" for each in evaluations)
        why = "every question they share failed in one of them" if shared else "they share no question"
        raise InputError(f"nothing to compare: {why} ({held}). Evaluate the same questions, with the same --limit")
    return usable, LeftOutQuestions(len(every) - len(shared), len(shared) - len(usable))


def _check_same_data(one: EvaluationRun, other: EvaluationRun) -> None:
    ours, theirs = (f"{each.report.dataset}/{each.report.split}" for each in (one, other))
    if ours != theirs:
        raise InputError(f"{one.path} is an evaluation on {ours}, {other.path} on {theirs}: they do not compare")
    for id_, mine in one.predictions.items():
        its = other.predictions.get(id_)
        if its is None:
            continue
        for what, a, b in (
            ("question", mine.question, its.question),
            ("golden answers", mine.golden_answers, its.golden_answers),
        ):
            if a != b:
                raise InputError(
                    f"question {id_!r} has other {what} in {other.path} ({b!r}) than in {one.path} ({a!r}): they do "
                    "not compare; evaluate both on the same file"
                )


# -- what is not the same --------------------------------------------------------------------------------------


def changed_settings(one: Condition, other: Condition) -> list[str]:
    """What decides answers and differs between two conditions, by their first seeds: `key was x, is y`."""
    return one.first.config.changed_to(other.first.config)


def comparability_warnings(conditions: Sequence[Condition], left_out: LeftOutQuestions) -> list[str]:
    """What keeps a comparison from being one of what its conditions are named for."""
    found = []
    if left_out.missing:
        found.append(f"{left_out.missing:,} questions are left out: not every evaluation was asked them")
    if left_out.failed:
        found.append(
            f"{left_out.failed:,} questions are left out: an evaluation got no reply, or no passages, for them; run it "
            "again to try them once more"
        )
    for condition in conditions:
        found += _warnings_within(condition)
    reference, *others = conditions
    for other in others:
        found += _warnings_between(reference, other)
    return found


def _warnings_within(condition: Condition) -> list[str]:
    """A group is of one thing: only its seeds, and models trained with different ones, should differ."""
    first, *rest = condition.seeds
    keys = {line.partition(" was ")[0] for each in rest for line in first.config.changed_to(each.config)}
    others = sorted(key for key in keys if key not in ("seed", "model") and not key.startswith("model."))
    return [f"the runs of {condition.name} differ in more than seed and model: {', '.join(others)}"] if others else []


def _warnings_between(one: Condition, other: Condition) -> list[str]:
    ours, theirs = one.first.report, other.first.report
    asked = [(name, getattr(ours.asked, name), getattr(theirs.asked, name)) for name in _SAID]
    found = [
        f"{other.name} was asked with {_SAID[name]} {its}, {one.name} with {mine}: a difference may be due to "
        "that alone"
        for name, mine, its in asked
        if mine != its and None not in (mine, its)
    ]
    shown = [each.first.config.decides_answers.baseline_prompts for each in (one, other)]
    if ours.method == theirs.method and shown[0] != shown[1]:
        found.append(
            f"{other.name} was asked with other prompts than {one.name}: a difference may be due to that alone"
        )
    if ours.judge and theirs.judge and ours.judge != theirs.judge:
        found.append(
            f"{other.name} was judged by {theirs.judge}, {one.name} by {ours.judge}: their scores do not compare"
        )
    if one.first.path.absolute() == other.first.path.absolute():
        found.append(f"{other.name} is the same evaluation as {one.name}")
    return found


_SAID = {"top_k": "top-k", "retriever": "retriever", "renderer": "prompts (renderer)", "max_steps": "max-steps"}
