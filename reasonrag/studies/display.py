"""Terminal output of `calibrate` and `tune`."""

from __future__ import annotations

import shlex
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from preference.statistics import COMPARISON_LEVEL
from reasonrag.files import FAILURES, TUNING
from reasonrag.rendering import counted, percent
from reasonrag.studies.calibrate import Calibration
from reasonrag.studies.pareto import TrialReport
from reasonrag.studies.revaluation import Revaluation
from reasonrag.studies.tune import Tuning
from reasonrag.terminal import (
    agreement_text,
    counts_text,
    dollars_or_unknown,
    print_prose,
    print_shown,
    print_table,
    print_titled,
    share_text,
    share_with_interval,
    shown,
    warn,
)

BAR_WIDTH = 30


def show_calibration(found: Calibration) -> None:
    """How many labels fresh continuations confirm, and what else they say."""
    _show_revaluation(found.revaluation)
    if found.value_model and not found.revaluation.disagreement:
        command = shlex.join(["reasonrag", "calibrate", found.run, "--revalue", "40", "--model", found.teacher])
        print_prose(
            f"to see how often {found.value_model} and the teacher disagree on the better step, by action type:"
        )
        print_shown(command)
    if found.gave_up:
        why = Path(found.report).parent / FAILURES
        print_prose(f"failure causes: {why}; the same command retries the failed steps")
    print_shown(f"wrote {found.report}")


def _show_revaluation(fresh: Revaluation) -> None:
    rows = [
        ("pairs", f"{fresh.pairs:,} of {fresh.exportable:,}, {fresh.unvalued:,} could not be valued"),
        ("failure causes", counts_text(fresh.failures_by_cause)),
        ("labels", agreement_text(fresh.confirmed)),
        *((f"  {name}", agreement_text(each)) for name, each in fresh.confirmed_by_action_type.items()),
        *((f"  depth {layer}", agreement_text(each)) for layer, each in fresh.confirmed_by_layer.items()),
        *((f"  draws: {name}", agreement_text(each)) for name, each in fresh.confirmed_by_draws.items()),
        ("margin, label", share_text(fresh.mean_margin)),
        ("margin, fresh", share_text(fresh.mean_fresh_margin)),
        ("completions", f"{fresh.calls:,}, {fresh.session_calls:,} of them new"),
        ("cost", dollars_or_unknown(fresh.cost_usd)),
    ]
    print_table(f"{fresh.k:,} fresh continuations per step  by {fresh.model}", rows)
    if other := fresh.disagreement:
        disagree = {"all pairs": other.disagree} | other.disagree_by_action_type
        print_prose(f"how often {other.label_model} (labels) and {other.fresh_model} disagree on which step is better")
        for name, share in disagree.items():
            print_shown(f"{name:<10}  {share_with_interval(share)}")
    claimed = [each for each in fresh.reliability if each.mean_confidence is not None]  # others have no pair
    unclaimed = any(each.confidence is None for each in fresh.sample)
    print_shown("these labels have no confidence" if unclaimed else "claimed confidence, share right of all")
    for each in claimed:
        bar = "#" * round(BAR_WIDTH * (each.right.share or 0.0))
        print_shown(f"{each.low:.1f} to {each.high:.1f}  {bar:.<{BAR_WIDTH}}  {agreement_text(each)}")


def show_tuning(tuning: Tuning) -> None:
    """A row per trial, the suggestion, and the paths of the files."""
    money = tuning.unit == "dollars"
    questions = counted(tuning.questions, "question")
    teacher = f"recipe {tuning.recipe}  teacher {tuning.model}  {questions}"
    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column("trial", overflow="fold")
    headings = ("comple-\ntions", "share", "pairs", "confi-\ndence", "expected\nright", "dis-\ntinct", "cost")
    for name in (*headings, "CI\nlow", "CI\nhigh"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for trial in tuning.trials:
        table.add_row(*(escape(shown(each)) for each in _trial_row(trial, money=money)))
    print_titled(f"{tuning.dataset}/{tuning.split}  {teacher}", table)
    unit = "dollars per 1,000 expected right pairs" if money else "completions per expected right pair"
    print_prose("completions, pairs: per question. share: of the questions that have a pair")
    print_prose("confidence: mean over pairs. expected right: pairs per question times confidence")
    print_prose("distinct: share of the samples that differ from their siblings")
    level = percent(COMPARISON_LEVEL)
    print_prose(f"cost: {unit}; CI low, CI high: its {level} interval, by a bootstrap over {questions}")
    print_prose("*: on the Pareto frontier. worse: significantly below the base in confidence or share")
    print_prose("..: stopped")
    print_prose(_suggestion(tuning))
    saved = max(0, tuning.calls_apart - tuning.calls_delivered)
    cost = f" for {dollars_or_unknown(tuning.cost_delivered)}" if money else ""
    print_prose(f"{counted(tuning.calls_delivered, 'completion')}{cost}; sharing them between trials saved {saved:,}")
    for trial in tuning.trials:
        if trial.failed:
            print_shown(
                f"{trial.name}: {counted(trial.failed, 'question')} failed: {counts_text(trial.failures_by_cause)}"
            )
    warn(tuning.warnings)
    run = Path(tuning.run)
    print_shown(f"wrote {run / TUNING}")
    if tuning.suggests_a_change:
        print_shown(f"explore with it:\n{tuning.command}")
    if tuning.stopped:
        tried = sum(trial.complete for trial in tuning.trials)
        print_prose(f"stopped after {tried:,} of {tuning.planned:,} trials: {tuning.stopped.message}")


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
        share_text(trial.confidence, digits=2),
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
