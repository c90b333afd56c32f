"""What a person sees: progress on stderr, tables on stdout. Text of models and passages is never markup here."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from preference import GoldAgreement, PairSummary
from preference.export.exporting import CANDIDATES, DROPPED, EffectiveSize
from preference.statistics import Bin, Share, SignAgreement
from reasonrag.agent.outcomes import OF_GOLDEN_ANSWERS
from reasonrag.curation.judge_labels import Judging
from reasonrag.exploration.cost_estimate import Estimate, Range
from reasonrag.exploration.summary import RunSummary
from reasonrag.files import FAILURES, ROLLOUTS, TUNING
from reasonrag.settings import SETTINGS_FILE
from reasonrag.studies.calibrate import Calibration, Revaluation
from reasonrag.studies.tune import REDEFINES_RIGHT, TrialReport, Tuning
from reasonrag.terminal import (
    counts_text,
    dollars_or_unknown,
    print_table,
    questions_text,
    share_text,
    share_with_interval,
    shares_text,
    ties_text,
    warn,
)

BAR_WIDTH = 30


def show_run(summary: RunSummary) -> None:
    """The summary of `generate`, then where things are and what comes next."""
    run, attempts = Path(summary.run), f"{summary.session_failed_calls:,}"
    rows = [
        ("questions", f"{summary.done:,} done, {summary.failed:,} failed, {summary.questions:,} asked for"),
        ("failed because of", counts_text(summary.failures_by_cause)),
        ("steps in trees", f"{summary.nodes:,}"),
        ("continuations", f"{summary.continuations:,}"),
        ("mean F1 / EM", f"{share_text(summary.mean_f1)} / {share_text(summary.mean_em)}"),
        *_outcome(summary),
        ("mixed outcomes", f"{summary.questions_mixed:,} questions"),
        ("distinct siblings", shares_text(summary.diversity_by_layer, "layer")),
        ("degenerate", counts_text(summary.degenerate)),
        ("unreadable replies", counts_text(summary.parse_failures_by_cause)),
        ("calls", f"{summary.calls:,} replies in {summary.requests:,} requests{_from_journal(summary)}"),
        ("tokens", f"{summary.prompt_tokens:,} in, {summary.completion_tokens:,} out"),
        ("cost of the run", dollars_or_unknown(summary.cost_usd)),
        (
            "this session",
            f"{summary.session_questions:,} questions in {summary.session_seconds:.1f} s, {attempts} failed attempts",
        ),
    ]
    values = f"  values of {summary.value_model}" if summary.value_model else ""
    title = f"{summary.dataset}/{summary.split}  recipe {summary.recipe}  teacher {summary.model}{values}"
    print_table(title, rows)
    warn(summary.warnings)
    print(f"wrote {run / ROLLOUTS}")
    if summary.failed:
        print(f"why questions failed: {run / FAILURES}; the same command tries them again")
    if summary.stopped:
        print(f"stopped: {summary.stopped.message}")
    elif summary.done:
        print(f"next: reasonrag pairs {run} --out data/{run.name}")


def _outcome(summary: RunSummary) -> list[tuple[str, str]]:
    """A row of its own where golden answers do not say what an answer is worth."""
    by_gold = summary.outcome in OF_GOLDEN_ANSWERS
    return [] if by_gold else [(f"mean {summary.outcome} outcome", share_text(summary.mean_outcome))]


def _from_journal(summary: RunSummary) -> str:
    cached = summary.session_cached_calls
    return f", {cached:,} of them from the journal" if cached else ""


def show_estimate(estimate: Estimate) -> None:
    """What a run would take, then how that was found out."""
    rows = [
        ("questions", f"{estimate.questions:,}"),
        ("calls", f"{_range(estimate.calls)} replies in {_range(estimate.requests)} requests"),
        ("prompt tokens", _range(estimate.prompt_tokens)),
        ("completion tokens", _range(estimate.completion_tokens)),
        ("cost", _price_range(estimate)),
        *_costs_by_model(estimate),
        ("hours", f"{estimate.hours.low:.1f} to {estimate.hours.high:.1f}, limited by {estimate.limited_by}"),
    ]
    print_table(f"estimate  recipe {estimate.recipe}  teacher {estimate.model}", rows)
    if estimate.measured_by == "pilot":
        print(f"measured on {questions_text(estimate.measured_questions)} of this run, mean and two standard errors")
        print(f"the pilot has cost {dollars_or_unknown(estimate.spent_dollars)}; the run goes on from there")
        if estimate.failed:
            print(
                f"{questions_text(estimate.failed)} failed and count for nothing here; the same command tries them again"
            )
        if estimate.stopped:
            print(f"the pilot stopped early, so this is measured on fewer than was asked: {estimate.stopped.message}")
    else:
        print(
            f"low: {estimate.measured_questions:,} questions rehearsed by the offline teacher; high: the whole "
            "budget of the recipe, with long replies. Nothing was asked; --pilot 10 measures it"
        )
    if estimate.dollars and estimate.batch_discount:
        print(
            f"list prices of {estimate.prices_as_of}; the endpoint's prompt cache (${estimate.cached_price_in:g} per "
            f"million) would cost less, a Batch API, which reasonrag does not use, {estimate.batch_discount:.0%} less"
        )


def _range(values: Range) -> str:
    return f"{values.low:,.0f} to {values.high:,.0f}"


def _costs_by_model(estimate: Estimate) -> list[tuple[str, str]]:
    """A row for each where there are several with a price."""
    known = [(name, dollars) for name, dollars in estimate.dollars_by_model.items() if dollars]
    several = len(estimate.dollars_by_model) > 1
    return [
        (f"of {name}", f"{dollars_or_unknown(each.low)} to {dollars_or_unknown(each.high)}")
        for name, each in known
        if several
    ]


def _price_range(estimate: Estimate) -> str:
    if estimate.dollars is None:
        unknown = next(name for name, dollars in estimate.dollars_by_model.items() if dollars is None)
        flags = "--" if unknown == estimate.model else "--value-"
        return (
            f"no price of {unknown} in the table of {estimate.prices_as_of}; give {flags}price-in and {flags}price-out"
        )
    return f"{dollars_or_unknown(estimate.dollars.low)} to {dollars_or_unknown(estimate.dollars.high)}"


def show_pairs(summary: PairSummary) -> None:
    """The summary of `pairs`, then what was written."""
    effective = summary.effective
    rows = [
        ("questions with a pair", f"{summary.questions_with_a_pair:,} of {summary.questions:,}"),
        ("without one because", counts_text(summary.without_a_pair)),
        ("pairs", f"{summary.pairs:,} of {summary.candidates:,} candidates"),
        ("of them for validation", f"{summary.validation_pairs:,} of {questions_text(summary.validation_questions)}"),
        *([("sides exchanged", f"{summary.flipped:,}")] if summary.flipped else []),
        *_judging_rows(summary.judging),
        ("worth at least", _effective(effective)),
        ("mean confidence", share_text(summary.mean_confidence)),
        ("by chosen action", counts_text(summary.pairs_by_action_type)),
        ("by layer", counts_text(summary.pairs_by_layer)),
        ("same type on both sides", f"{summary.same_type_pairs:,}"),
        ("tagged", counts_text(summary.pairs_by_tag)),
        *_gold_row(summary.gold_agreement),
        ("dropped", counts_text(summary.dropped)),
        ("looked for in", _looked_for_in(summary.contamination)),
    ]
    print_table(f"preference pairs  recipe {', '.join(summary.recipes) or 'none'}", rows)
    warn(summary.warnings)
    out = Path(summary.out)
    for name, count in summary.files.items():
        print(f"wrote {out / name} ({count:,} rows)")
    print(f"every candidate: {out / CANDIDATES}; why one was dropped: {out / DROPPED}")


def _judging_rows(judging: dict[str, Any]) -> list[tuple[str, str]]:
    """What a judge said; nothing where none was asked."""
    if not judging:
        return []
    found = Judging.model_validate(judging)
    said = f"{found.picked:,} picks, {found.none:,} times none, {found.unreadable:,} unreadable"
    lost = f", {found.given_up:,} given up (the same command asks again)" if found.given_up else ""
    return [
        (f"judged by {found.model}", f"{found.states:,} states: {said}{lost}"),
        ("agrees with the values", share_with_interval(found.agrees_with_values)),
        (
            "cost of judging",
            f"{dollars_or_unknown(found.cost_usd)}, {found.calls:,} replies, {found.session_calls:,} now",
        ),
    ]


def _looked_for_in(contamination: dict[str, Any]) -> str:
    """The evaluation splits that the questions were compared with, and how many stand in one."""
    checked = contamination.get("checked") or []
    if not checked:
        return "no evaluation split"
    asked, found = sum(each["questions"] for each in checked), contamination["questions"]
    splits = "1 evaluation split" if len(checked) == 1 else f"{len(checked):,} evaluation splits"
    return f"{splits} with {questions_text(asked)}: {found:,} found, {contamination['dropped']:,} left out"


def _effective(effective: EffectiveSize) -> str:
    """Pairs that would be independent if all of a state, or of a question, said the same."""
    if effective.by_state is None or effective.by_question is None:
        return "-"
    return (
        f"{effective.by_state:,.0f} if pairs of a state say the same ({effective.states:,} states), "
        f"{effective.by_question:,.0f} if those of a question do"
    )


def _gold_row(agreement: dict[str, GoldAgreement]) -> list[tuple[str, str]]:
    """How often gold passages agree with the chosen side, ties left out; no row where none are known."""
    shown = [f"{name} {_agreement(each)}" for name, each in agreement.items()]
    return [("agree with gold passages", ", ".join(shown))] if shown else []


def _agreement(each: GoldAgreement) -> str:
    decided = each.right + each.wrong
    share = f"{each.right / decided:.2f}" if decided else "-"
    return f"{share} ({each.right:,} of {decided:,}, {ties_text(each.ties)})"


def show_calibration(found: Calibration) -> None:
    """How reward rules agree, then what fresh continuations say."""
    types = sorted(found.rules_by_action_type)
    table = Table(title="do two rules order siblings alike? share, siblings both order", title_justify="left")
    for heading in ("rules", "all", *types):
        table.add_column(heading)
    for row, whole in enumerate(found.rules):
        by_type = [_short_share(found.rules_by_action_type[each][row].alike) for each in types]
        table.add_row(escape(f"{whole.one}, {whole.other}"), _short_share(whole.alike), *by_type)
    Console(highlight=False).print(table)
    if found.revaluation:
        _show_revaluation(found.revaluation)
    if found.value_model and not (found.revaluation and found.revaluation.disagreement):
        command = shlex.join(["reasonrag", "calibrate", found.run, "--revalue", "40", "--model", found.teacher])
        print(f"how often {found.value_model} and the teacher disagree on which step is better, by action type:")
        print(command)
    if found.gave_up:
        why = Path(found.report).parent / FAILURES
        print(f"why steps were given up: {why}; the same command tries them again")
    print(f"wrote {found.report}")


def _show_revaluation(fresh: Revaluation) -> None:
    rows = [
        ("pairs", f"{fresh.pairs:,} of {fresh.exportable:,}, {fresh.unvalued:,} could not be valued"),
        ("given up because of", counts_text(fresh.failures_by_cause)),
        ("label confirmed", _confirmed_of(fresh.confirmed)),
        *((f"  {name}", _confirmed_of(each)) for name, each in fresh.confirmed_by_action_type.items()),
        *((f"  layer {layer}", _confirmed_of(each)) for layer, each in fresh.confirmed_by_layer.items()),
        ("margin, label", share_text(fresh.mean_margin)),
        ("margin, fresh", share_text(fresh.mean_fresh_margin)),
        ("calls", f"{fresh.calls:,} replies, {fresh.session_calls:,} of them asked for now"),
        ("cost", dollars_or_unknown(fresh.cost_usd)),
    ]
    print_table(f"{fresh.k:,} fresh continuations a step  by {fresh.model}", rows)
    if other := fresh.disagreement:
        disagree = {"all pairs": other.disagree} | other.disagree_by_action_type
        print(f"how often {other.label_model} (labels) and {other.fresh_model} disagree on which step is better")
        for name, share in disagree.items():
            print(f"{name:<10}  {share_with_interval(share)}")
    print("confidence claimed, share confirmed")
    for each in fresh.reliability:
        if each.mean_confidence is None:  # no pair is in it
            continue
        part = each.confirmed.share or 0.0
        bar = "#" * round(BAR_WIDTH * part) + "." * (BAR_WIDTH - round(BAR_WIDTH * part))
        print(
            f"{each.low:.1f} to {each.high:.1f}  {bar if each.confirmed.of else ' ' * BAR_WIDTH}  {_confirmed_of(each)}"
        )


def _confirmed_of(found: Bin | SignAgreement) -> str:
    """`0.90 [0.80, 0.95] of 40, 2 ties`."""
    return share_with_interval(found.confirmed) + (f", {ties_text(found.ties)}" if found.ties else "")


def _short_share(share: Share) -> str:
    return "-" if share.share is None else f"{share.share:.3f}, {share.of:,}"


def show_tuning(tuning: Tuning) -> None:
    """A row per trial, what is suggested, and where everything is."""
    money = tuning.unit == "dollars"
    teacher = f"recipe {tuning.recipe}  teacher {tuning.model}  {tuning.questions:,} questions"
    title = escape(f"{tuning.dataset}/{tuning.split}  {teacher}")
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0))
    table.add_column("trial", overflow="fold")
    for name in ("replies", "share", "pairs", "sure", "right", "new", "cost", "from", "to"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for trial in tuning.trials:
        table.add_row(*map(escape, _trial_row(trial, money=money)))
    Console(highlight=False).print(table)
    unit = "dollars per 1,000 right pairs" if money else "replies per right pair"
    print("replies, pairs: per question. share: of the questions that have a pair")
    print("sure: mean confidence of the pairs. right: pairs per question times confidence")
    print("new: share of the draws that said something new")
    print(f"cost: {unit}; from, to: 95 % of a bootstrap over {tuning.questions:,} questions")
    print("*: no other is better in everything. worse: than the base in sure or share, by more than noise")
    print("-: not compared, alpha decides what is right. ..: stopped")
    print(_suggestion(tuning))
    saved = max(0, tuning.calls_apart - tuning.calls_delivered)
    cost = f" for {dollars_or_unknown(tuning.cost_delivered)}" if money else ""
    print(f"{tuning.calls_delivered:,} replies were given{cost}; that trials share them saved {saved:,}")
    for trial in tuning.trials:
        if trial.failed:
            print(f"{trial.name}: {trial.failed:,} questions failed: {counts_text(trial.failures_by_cause)}")
    warn(tuning.warnings)
    run = Path(tuning.run)
    print(f"wrote {run / TUNING}")
    if tuning.suggests_a_change:
        print(f"wrote {run / SETTINGS_FILE}: copy its table into your own, or explore with\n{tuning.command}")
    if tuning.stopped:
        tried = sum(trial.complete for trial in tuning.trials)
        print(f"stopped after {tried:,} of {tuning.planned:,} trials: {tuning.stopped.message}")


def _trial_row(trial: TrialReport, *, money: bool) -> list[str]:
    def cost(value: float | None) -> str:
        return "-" if value is None else f"{1000 * value:,.2f}" if money else f"{value:,.1f}"

    mark = "" if trial.complete else ".."
    if trial.on_frontier:
        mark = "*"
    elif trial.worse_than_base:
        mark = "worse"
    elif REDEFINES_RIGHT in trial.changed:
        mark = "-"
    ends = trial.intervals.get("cost_per_right_pair")
    return [
        trial.name,
        f"{trial.calls:,.0f}",
        f"{trial.questions_with_a_pair:.0%}",
        f"{trial.pairs:.1f}",
        "-" if trial.confidence is None else f"{trial.confidence:.2f}",
        f"{trial.right_pairs:.1f}",
        "-" if trial.distinct_steps is None else f"{trial.distinct_steps:.0%}",
        cost(trial.cost_per_right_pair),
        *([cost(ends.low), cost(ends.high)] if ends else ["", ""]),
        mark,
    ]


def _suggestion(tuning: Tuning) -> str:
    found = next((trial for trial in tuning.trials if trial.name == tuning.suggested), None)
    if found is None:
        return "nothing is suggested: the base did not come to its end, or made no pair and nothing is surely cheaper"
    if not found.changed:
        return "suggested: the base, your own settings; nothing is cheaper by more than noise and not worse"
    change = found.intervals["cost_change"]
    return f"suggested: {found.name}; a right pair costs {change.low:+.0%} to {change.high:+.0%} against the base"
