"""What `tune` shows: a row for each trial, and what is suggested."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from preference.statistics import COMPARISON_LEVEL
from reasonrag.files import TUNING
from reasonrag.rendering import (
    Line,
    Part,
    Table,
    counted,
    counts_text,
    dollars_or_unknown,
    percent,
    share_text,
    warned,
)
from reasonrag.studies.pareto import TrialReport
from reasonrag.studies.tune import Tuning

_HEAD = (
    *("trial", ("comple-", "tions"), "share", "pairs", ("confi-", "dence"), ("expected", "right"), ("dis-", "tinct")),
    *("cost", ("CI", "low"), ("CI", "high"), ""),
)


def tuning_parts(tuning: Tuning) -> Iterator[Part]:
    """A row per trial, the suggestion, and the paths of the files."""
    money, questions = tuning.unit == "dollars", counted(tuning.questions, "question")
    title = f"{tuning.dataset}/{tuning.split}  recipe {tuning.recipe}  teacher {tuning.model}  {questions}"
    yield Table(title, [_trial_row(each, money=money) for each in tuning.trials], _HEAD)
    yield "completions, pairs: per question. share: of the questions that have a pair"
    yield "confidence: mean over pairs. expected right: pairs per question times confidence"
    yield "distinct: share of the samples that differ from their siblings"
    unit = "dollars per 1,000 expected right pairs" if money else "completions per expected right pair"
    yield f"cost: {unit}; CI low, CI high: its {percent(COMPARISON_LEVEL)} interval, by a bootstrap over {questions}"
    yield "*: on the Pareto frontier. worse: significantly below the base in confidence or share. ..: stopped"
    yield _suggestion(tuning)
    cost = f" for {dollars_or_unknown(tuning.cost_delivered)}" if money else ""
    saved = max(0, tuning.calls_apart - tuning.calls_delivered)
    yield f"{counted(tuning.calls_delivered, 'completion')}{cost}; sharing them between trials saved {saved:,}"
    for trial in tuning.trials:
        if trial.failed:
            causes = counts_text(trial.failures_by_cause)
            yield f"{trial.name}: {counted(trial.failed, 'question')} failed: {causes}"
    yield from warned(tuning.warnings)
    yield Line(f"wrote {Path(tuning.run) / TUNING}")
    if tuning.suggests_a_change:
        yield Line(f"explore with it:\n{tuning.command}")
    if tuning.stopped:
        tried = sum(trial.complete for trial in tuning.trials)
        yield f"stopped after {tried:,} of {tuning.planned:,} trials: {tuning.stopped.message}"


def _trial_row(trial: TrialReport, *, money: bool) -> list[str]:
    def cost(value: float | None) -> str:
        return "-" if value is None else f"{1000 * value:,.2f}" if money else f"{value:,.1f}"

    mark = "" if trial.complete else ".."
    if trial.on_frontier:
        mark = "*"
    elif trial.worse_than_base:
        mark = "worse"
    ends = trial.intervals.get("cost_per_right_pair")
    return [
        trial.name,
        f"{trial.calls:,.0f}",
        percent(trial.questions_with_a_pair, 0),
        f"{trial.pairs:.1f}",
        share_text(trial.confidence),
        f"{trial.right_pairs:.1f}",
        "-" if trial.distinct_steps is None else percent(trial.distinct_steps, 0),
        cost(trial.cost_per_right_pair),
        *([cost(ends.low), cost(ends.high)] if ends else ["", ""]),
        mark,
    ]


def _suggestion(tuning: Tuning) -> str:
    found = next((trial for trial in tuning.trials if trial.name == tuning.suggested), None)
    if found is None:
        return "no suggestion: the base did not finish, or made no pair and nothing is significantly cheaper"
    if not found.changed:
        return "suggested: the base, your own settings; nothing is significantly cheaper without being worse"
    change = found.intervals["cost_change"]
    low, high = ("?" if each is None else f"{100 * each:+.0f} %" for each in (change.low, change.high))
    by = f"{low} to {high} ({percent(COMPARISON_LEVEL)} CI)"
    return f"suggested: {found.name}; a right pair costs {by} against the base"
