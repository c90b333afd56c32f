"""Which evaluations may be compared: conditions (one evaluation, or several seeds), and their common questions.

Decides whether evaluations are comparable, which questions are left out, and how the conditions differ. Reads
`predictions.jsonl`, `report.json` and `config.json` of each and nothing else; knows no statistics.
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
from reasonrag.rendering import counted
from reasonrag.run_config import RunConfig, read_config


@dataclass(frozen=True)
class EvaluationRun:
    """The content of one evaluation's run directory."""

    path: Path
    report: Report
    config: RunConfig
    predictions: dict[str, Prediction]
    """By question, failed ones included."""


@dataclass(frozen=True)
class Condition:
    """One evaluation, or several that differ only in their seeds."""

    name: str
    seeds: tuple[EvaluationRun, ...]

    @property
    def first(self) -> EvaluationRun:
        return self.seeds[0]

    def values(self, metric: str, questions: Sequence[str]) -> Values:
        """Shape (seeds, questions); nan without a value."""
        of = METRICS[metric]
        rows = [[of(seed.predictions[each]) for each in questions] for seed in self.seeds]
        return np.array(rows, dtype=np.float64).reshape(len(self.seeds), len(questions))


@dataclass(frozen=True)
class LeftOutQuestions:
    """Questions that are not compared: missing in an evaluation, or failed in one."""

    missing: int
    failed: int


def read_conditions(runs: Sequence[Path], groups: Sequence[str]) -> list[Condition]:
    """The single evaluations, then the groups, `NAME=DIR,DIR`. Raises InputError for fewer than two conditions, for
    evaluations that are given twice, for equal names and for folders that are not evaluations."""
    grouped = [_parsed(group) for group in groups]
    given = Counter(map(Path.absolute, [*runs, *(path for _, paths in grouped for path in paths)]))
    if twice := [path for path, count in given.items() if count > 1]:
        raise InputError(f"{twice[0]} is given twice; each condition and each seed needs its own evaluation")
    named = [(name, [run]) for name, run in zip(_names_of(runs), runs, strict=True)] + grouped
    if len(named) < 2:  # noqa: PLR2004 - a comparison has two sides
        raise InputError(
            "a comparison needs at least two evaluations: reasonrag compare RUN RUN, where the first is the reference, "
            "or --group NAME=RUN,RUN for several seeds of one"
        )
    again = [name for name, count in Counter(name for name, _ in named).items() if count > 1]
    if again and len(named) > len(runs):
        raise InputError(f"two conditions are named {again[0]!r}; give the --group another name")
    return [Condition(name, tuple(map(_read_evaluation, paths))) for name, paths in named]


def _names_of(runs: Sequence[Path]) -> list[str]:
    """Names of directories: as many of their last parts as make them unique."""
    parts = [run.absolute().parts for run in runs]
    lengths = range(1, max(map(len, parts), default=0) + 1)
    tried = (["/".join(each[-length:]) for each in parts] for length in lengths)
    return next((names for names in tried if len(set(names)) == len(names)), [])


def _parsed(group: str) -> tuple[str, list[Path]]:
    name, given, listed = group.partition("=")
    paths = [Path(each.strip()) for each in listed.split(",") if each.strip()]
    if not (name.strip() and given and paths):
        raise InputError(f"--group {group} is not a group; write NAME=RUN,RUN")
    return name.strip(), paths


def _read_evaluation(path: Path) -> EvaluationRun:
    """Raises InputError for a folder that is not an evaluation."""
    if not path.is_dir():
        raise InputError(f"there is no evaluation {path}; give the directory that reasonrag evaluate wrote (its --run)")
    report, predictions = read_report(path), read_predictions(path)
    if not (path / CONFIG).is_file():
        raise InputError(f"{path} has no {CONFIG}, so the origin of its answers is unknown; evaluate again")
    by_id = {each.question_id: each for each in predictions}
    return EvaluationRun(path, report, read_config(path / CONFIG), by_id)


# -- common questions ------------------------------------------------------------------------------------------


def common_questions(conditions: Sequence[Condition]) -> tuple[list[str], LeftOutQuestions]:
    """Sorted ids of the questions that every evaluation has replies to, and how many are left out.

    Raises InputError if the evaluations are on different data, or share no question.
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
        raise InputError(f"{one.path} is an evaluation on {ours}, {other.path} on {theirs}: not comparable")
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
                    f"question {id_!r} has different {what} in {other.path} ({b!r}) and {one.path} ({a!r}), so the two "
                    "cannot be compared; evaluate both on the same file"
                )


# -- differences between conditions ----------------------------------------------------------------------------


def comparability_warnings(conditions: Sequence[Condition], left_out: LeftOutQuestions) -> list[str]:
    """Warnings about anything but the intended difference that may explain the result."""
    found = []
    if left_out.missing:
        found.append(f"{counted(left_out.missing, 'question')} left out: missing in an evaluation")
    if left_out.failed:
        found.append(
            f"{counted(left_out.failed, 'question')} left out: failed in an evaluation; run it again to retry them"
        )
    for condition in conditions:
        found += _warnings_within(condition)
    reference, *others = conditions
    for other in others:
        found += _warnings_between(reference, other)
    return found


def _warnings_within(condition: Condition) -> list[str]:
    """Warnings if the evaluations of a group differ in more than seeds and models trained with different seeds."""
    first, *rest = condition.seeds
    keys = {line.partition(" was ")[0] for each in rest for line in first.config.changed_to(each.config)}
    others = sorted(key for key in keys if key not in ("seed", "model") and not key.startswith("model."))
    return [f"the runs of {condition.name} differ in more than seed and model: {', '.join(others)}"] if others else []


def _warnings_between(one: Condition, other: Condition) -> list[str]:
    ours, theirs = one.first.report, other.first.report
    asked = [(name, getattr(ours.asked, name), getattr(theirs.asked, name)) for name in _SAID]
    found = [
        f"{other.name} used {_SAID[name]} {its}, {one.name} {mine}: that alone may explain a difference"
        for name, mine, its in asked
        if mine != its and None not in (mine, its)
    ]
    found += [
        f"{other.name} and {one.name} {differ}"
        for name, differ in _DIFFER.items()
        if getattr(ours.asked, name) != getattr(theirs.asked, name)
    ]
    repaired, unrepaired = (other.name, one.name) if theirs.repair else (one.name, other.name)
    if ours.repair != theirs.repair:
        found.append(
            f"{repaired} gave unreadable replies a repair turn, {unrepaired} did not: that alone may explain a "
            "difference"
        )
    shown = [each.first.config.decides_answers.baseline_prompts for each in (one, other)]
    if ours.method == theirs.method and shown[0] != shown[1]:
        found.append(f"{other.name} and {one.name} used different prompts: that alone may explain a difference")
    if ours.judge and theirs.judge and ours.judge != theirs.judge:
        found.append(
            f"{other.name} was judged by {theirs.judge}, {one.name} by {ours.judge}: their scores are not comparable"
        )
    if ours.critic and theirs.critic and ours.critic != theirs.critic:
        found.append(
            f"the steps of {other.name} were chosen by the critic {theirs.critic}, those of {one.name} by {ours.critic}"
        )
    if (theirs_drawn := _drawn(theirs)) and (ours_drawn := _drawn(ours)) and theirs_drawn[0] != ours_drawn[0]:
        found.append(
            f"{other.name} is {theirs_drawn[1]}, {one.name} {ours_drawn[1]}: they do not take as many completions"
        )
    return found


def _drawn(report: Report) -> tuple[int, str] | None:
    """How many replies or attempts one was chosen of, and how, in words; None where there was no choice."""
    if report.best_of:
        return report.best_of, f"the best of {report.best_of} by a critic"
    return (report.vote, f"the vote of {report.vote}") if report.vote else None


_DIFFER = {
    "max_passage_chars": "cut passages differently: that alone may explain a difference",
    "style": "ask for different answer styles: they are not comparable",
    "passage_order": "order passages differently: that alone may explain a difference",
}
_SAID = {"top_k": "top-k", "retriever": "retriever", "renderer": "prompts (renderer)", "max_steps": "max-steps"}
