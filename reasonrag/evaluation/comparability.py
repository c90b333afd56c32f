"""Which evaluations may be compared: conditions (one evaluation, or several seeds), and their common questions.

Decides whether evaluations are comparable, which questions are left out, and how the conditions differ. Reads
`predictions.jsonl`, `report.json` and `config.json` of each and nothing else; knows no statistics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from reasonrag.agent.protocols.known import most_searches
from reasonrag.agent.settings import OURS
from reasonrag.data.questions import SHORT
from reasonrag.errors import InputError
from reasonrag.evaluation.predictions import Prediction, read_predictions
from reasonrag.evaluation.report import Report, read_report
from reasonrag.evaluation.reported_metrics import METRICS
from reasonrag.evaluation.significance import Values
from reasonrag.files import CONFIG, names_of
from reasonrag.rendering import counted
from reasonrag.retrieval.settings import BEST_FIRST
from reasonrag.run_config import RunConfig, read_config


@dataclass(frozen=True)
class EvaluationRun:
    path: Path
    report: Report
    config: RunConfig
    predictions: dict[str, Prediction]
    """By question, failed ones included."""


@dataclass(frozen=True)
class Condition:
    """One evaluation, or several that differ only in their seeds, in the order of these."""

    name: str
    seeds: tuple[EvaluationRun, ...]

    @property
    def first(self) -> EvaluationRun:
        return self.seeds[0]

    def values(self, metric: str, questions: Sequence[str]) -> Values:
        """Shape (seeds, questions); nan without a value."""
        of = METRICS[metric].value
        return np.array([[of(seed.predictions[each]) for each in questions] for seed in self.seeds], dtype=np.float64)


def read_conditions(runs: Sequence[Path], groups: Sequence[str]) -> list[Condition]:
    """The single evaluations, then the groups, `NAME=DIR,DIR`. Raises InputError for fewer than two conditions, for
    evaluations that are given twice, for equal names and for folders that are not evaluations."""
    grouped = [_parsed(group) for group in groups]
    given = Counter(map(Path.absolute, [*runs, *(path for _, paths in grouped for path in paths)]))
    if twice := [path for path, count in given.items() if count > 1]:
        raise InputError(f"{twice[0]} is given twice; each condition and each seed needs its own evaluation")
    names = names_of([each.absolute() for each in runs])
    named = [(name, [run]) for name, run in zip(names, runs, strict=True)] + grouped
    if len(named) < 2:  # noqa: PLR2004 - a comparison has two sides
        raise InputError(
            "a comparison needs at least two evaluations: reasonrag compare RUN RUN, where the first is the reference, "
            "or --group NAME=RUN,RUN for several seeds of one"
        )
    again = [name for name, count in Counter(name for name, _ in named).items() if count > 1]
    if again and len(named) > len(runs):
        raise InputError(f"two conditions are named {again[0]!r}; give the --group another name")
    read = [(name, map(_read_evaluation, paths)) for name, paths in named]
    return [Condition(name, tuple(sorted(seeds, key=lambda each: each.report.seed))) for name, seeds in read]


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


def common_questions(conditions: Sequence[Condition]) -> tuple[list[str], dict[str, int]]:
    """Sorted ids of the questions that every evaluation has replies to, and how many are left out: missing in one, or
    failed in one.

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
    return usable, {"missing": len(every) - len(shared), "failed": len(shared) - len(usable)}


def _check_same_data(one: EvaluationRun, other: EvaluationRun) -> None:
    ours, theirs = (f"{each.report.dataset}/{each.report.split}" for each in (one, other))
    if ours != theirs:
        raise InputError(f"{one.path} is an evaluation on {ours}, {other.path} on {theirs}: not comparable")
    for id_, mine in one.predictions.items():
        its = other.predictions.get(id_)
        if its and (mine.question, mine.golden_answers) != (its.question, its.golden_answers):
            raise InputError(
                f"question {id_!r} or its golden answers are not the same in {other.path} and {one.path}, so the two "
                "cannot be compared; evaluate both on the same file"
            )


_EXPLAIN: dict[str, Callable[[Report], object]] = {
    "top-k": lambda run: run.asked.top_k,
    "retriever": lambda run: run.asked.retriever,
    "prompts (renderer)": lambda run: run.asked.renderer,
    "max-steps": lambda run: run.asked.max_steps,
    "searches (budget)": lambda run: run.asked.top_k and most_searches(run.asked.max_steps, run.asked.agent),
    "max-passage-chars": lambda run: run.asked.max_passage_chars or "none",
    "passage order": lambda run: run.asked.passage_order or BEST_FIRST,
    "answer style": lambda run: run.asked.style or SHORT,
    "agent": lambda run: (run.asked.agent or OURS) if run.method == "agent" else None,
    "reader": lambda run: run.asked.reader if run.asked.reader != run.model else "its model",
    "repair turns": lambda run: "one" if run.repair else "none",
    "judge": lambda run: f"{run.judge} without gold answers" if run.judge_saw_gold is False else run.judge,
    "rubric": lambda run: (run.rubric_sha256 or "none")[:16] if run.judge else None,
    "critic": lambda run: run.critic,
    "draws (--best-of or --vote)": lambda run: run.best_of or run.vote,
}
"""What may explain a difference beside the method; null where an evaluation has none."""


def comparability_warnings(conditions: Sequence[Condition], left_out: Mapping[str, int]) -> list[str]:
    """Warnings about anything but the intended difference that may explain the result."""
    retried = {"missing": "", "failed": "; run it again to retry them"}
    found = [
        f"{counted(count, 'question')} left out: {why} in an evaluation{retried[why]}"
        for why, count in left_out.items()
        if count
    ]
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


def _calls(condition: Condition) -> str | None:
    """In which form a tool was called; None for agents without one."""
    decides = condition.first.config.decides_answers
    form = "native" if decides.sampling.get("native_tools") else "text"
    return form if decides.agent == "tools" else None


def _warnings_between(one: Condition, other: Condition) -> list[str]:
    ours, theirs = one.first.report, other.first.report
    values = [(what, of(theirs), of(ours)) for what, of in _EXPLAIN.items()]
    if ours.method == theirs.method:
        prompts = (each.first.config.decides_answers.baseline_prompts for each in (other, one))
        values.append(("baseline prompts", *prompts))
    values.append(("calls (agent.native)", _calls(other), _calls(one)))
    return [
        f"{other.name} used {what} {its}, {one.name} {mine}: that alone may explain a difference"
        for what, its, mine in values
        if its != mine and None not in (its, mine)
    ]
