"""What a person sees: progress on stderr, tables on stdout. Text of models and passages is never markup here."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from preference import GoldAgreement, PairSummary
from preference.export.exporting import CANDIDATES, DROPPED, EffectiveSize
from preference.statistics import Bin, Share, SignAgreement
from reasonrag.agent.outcomes import OF_GOLDEN_ANSWERS
from reasonrag.curation.judge_labels import Judging
from reasonrag.exploration.cost_estimate import Estimate, Range
from reasonrag.exploration.summary import RunSummary
from reasonrag.files import FAILURES, ROLLOUTS, TUNING
from reasonrag.progress import SessionTally
from reasonrag.settings import SETTINGS_FILE
from reasonrag.studies.calibrate import Calibration, Revaluation
from reasonrag.studies.tune import REDEFINES_RIGHT, TrialReport, Tuning
from reasonrag.terminal import dollars, on_one_line, shown

BAR_WIDTH = 30
PLAIN_LINE_EVERY_S = 10.0
"""How often progress is written where there is no terminal to redraw."""


class TerminalWatcher:
    """Progress of a run on stderr: a live bar in a terminal, a plain line now and then elsewhere."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._bar: Progress | None = None
        self._total = 0
        self._done_before = 0
        self._last_line = time.monotonic()

    def say(self, message: str) -> None:
        self._console.print(escape(shown(message)), soft_wrap=True)

    def warn(self, message: str) -> None:
        self.say(f"warning: {message}")

    def started(self, *, total: int, done: int) -> None:
        self._total, self._done_before = total, done
        if done == total:
            self.say(f"all {total:,} questions are done; nothing to ask")
        elif done:
            self.say(f"{done:,} of {total:,} questions are done; going on with the rest")
        if self._console.is_terminal and done < total:
            self._bar = Progress(
                TextColumn("questions"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rates]}"),
                TimeElapsedColumn(),
                console=self._console,
            )
            self._bar.add_task("questions", total=total, completed=done, rates="")
            self._bar.start()

    def advanced(self, tally: SessionTally) -> None:
        completed = self._done_before + tally.questions
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=completed, rates=_standing(tally))
        elif time.monotonic() - self._last_line >= PLAIN_LINE_EVERY_S:
            self._last_line = time.monotonic()
            owed = self._total - completed
            self.say(f"{completed - tally.failed_questions:,} done, {owed:,} owed, {_standing(tally)}")

    def ended(self) -> None:
        if self._bar is not None:
            self._bar.stop()


def show_run(summary: RunSummary) -> None:
    """The summary of `generate`, then where things are and what comes next."""
    run, attempts = Path(summary.run), f"{summary.session_failed_calls:,}"
    rows = [
        ("questions", f"{summary.done:,} done, {summary.failed:,} failed, {summary.questions:,} asked for"),
        ("failed because of", _counts(summary.failures_by_cause)),
        ("steps in trees", f"{summary.nodes:,}"),
        ("continuations", f"{summary.continuations:,}"),
        ("mean F1 / EM", f"{_share(summary.mean_f1)} / {_share(summary.mean_em)}"),
        *_outcome(summary),
        ("mixed outcomes", f"{summary.questions_mixed:,} questions"),
        ("distinct siblings", _shares(summary.diversity_by_layer, "layer")),
        ("degenerate", _counts(summary.degenerate)),
        ("unreadable replies", _counts(summary.parse_failures_by_cause)),
        ("calls", f"{summary.calls:,} replies in {summary.requests:,} requests{_from_journal(summary)}"),
        ("tokens", f"{summary.prompt_tokens:,} in, {summary.completion_tokens:,} out"),
        ("cost of the run", _dollars(summary.cost_usd)),
        (
            "this session",
            f"{summary.session_questions:,} questions in {summary.session_seconds:.1f} s, {attempts} failed attempts",
        ),
    ]
    values = f"  values of {summary.value_model}" if summary.value_model else ""
    title = f"{summary.dataset}/{summary.split}  recipe {summary.recipe}  teacher {summary.model}{values}"
    print_table(title, rows)
    _warn(summary.warnings)
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
    return [] if by_gold else [(f"mean {summary.outcome} outcome", _share(summary.mean_outcome))]


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
        print(f"measured on {_questions(estimate.measured_questions)} of this run, mean and two standard errors")
        print(f"the pilot has cost {_dollars(estimate.spent_dollars)}; the run goes on from there")
        if estimate.failed:
            print(f"{_questions(estimate.failed)} failed and count for nothing here; the same command tries them again")
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


def _questions(count: int) -> str:
    return "1 question" if count == 1 else f"{count:,} questions"


def _range(values: Range) -> str:
    return f"{values.low:,.0f} to {values.high:,.0f}"


def _costs_by_model(estimate: Estimate) -> list[tuple[str, str]]:
    """A row for each where there are several with a price."""
    known = [(name, dollars) for name, dollars in estimate.dollars_by_model.items() if dollars]
    several = len(estimate.dollars_by_model) > 1
    return [(f"of {name}", f"{_dollars(each.low)} to {_dollars(each.high)}") for name, each in known if several]


def _price_range(estimate: Estimate) -> str:
    if estimate.dollars is None:
        unknown = next(name for name, dollars in estimate.dollars_by_model.items() if dollars is None)
        flags = "--" if unknown == estimate.model else "--value-"
        return (
            f"no price of {unknown} in the table of {estimate.prices_as_of}; give {flags}price-in and {flags}price-out"
        )
    return f"{_dollars(estimate.dollars.low)} to {_dollars(estimate.dollars.high)}"


def show_pairs(summary: PairSummary) -> None:
    """The summary of `pairs`, then what was written."""
    effective = summary.effective
    rows = [
        ("questions with a pair", f"{summary.questions_with_a_pair:,} of {summary.questions:,}"),
        ("without one because", _counts(summary.without_a_pair)),
        ("pairs", f"{summary.pairs:,} of {summary.candidates:,} candidates"),
        ("of them for validation", f"{summary.validation_pairs:,} of {_questions(summary.validation_questions)}"),
        *([("sides exchanged", f"{summary.flipped:,}")] if summary.flipped else []),
        *_judging_rows(summary.judging),
        ("worth at least", _effective(effective)),
        ("mean confidence", _share(summary.mean_confidence)),
        ("by chosen action", _counts(summary.pairs_by_action_type)),
        ("by layer", _counts(summary.pairs_by_layer)),
        ("same type on both sides", f"{summary.same_type_pairs:,}"),
        ("tagged", _counts(summary.pairs_by_tag)),
        *_gold_row(summary.gold_agreement),
        ("dropped", _counts(summary.dropped)),
        ("looked for in", _looked_for_in(summary.contamination)),
    ]
    print_table(f"preference pairs  recipe {', '.join(summary.recipes) or 'none'}", rows)
    _warn(summary.warnings)
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
        ("agrees with the values", _share_with_interval(found.agrees_with_values)),
        (
            "cost of judging",
            f"{_dollars(found.cost_usd)}, {found.calls:,} replies, {found.session_calls:,} now",
        ),
    ]


def _looked_for_in(contamination: dict[str, Any]) -> str:
    """The evaluation splits that the questions were compared with, and how many stand in one."""
    checked = contamination.get("checked") or []
    if not checked:
        return "no evaluation split"
    asked, found = sum(each["questions"] for each in checked), contamination["questions"]
    splits = "1 evaluation split" if len(checked) == 1 else f"{len(checked):,} evaluation splits"
    return f"{splits} with {_questions(asked)}: {found:,} found, {contamination['dropped']:,} left out"


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
    return f"{share} ({each.right:,} of {decided:,}, {_ties(each.ties)})"


def _ties(count: int) -> str:
    return "1 tie" if count == 1 else f"{count:,} ties"


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
        ("given up because of", _counts(fresh.failures_by_cause)),
        ("label confirmed", _confirmed_of(fresh.confirmed)),
        *((f"  {name}", _confirmed_of(each)) for name, each in fresh.confirmed_by_action_type.items()),
        *((f"  layer {layer}", _confirmed_of(each)) for layer, each in fresh.confirmed_by_layer.items()),
        ("margin, label", _share(fresh.mean_margin)),
        ("margin, fresh", _share(fresh.mean_fresh_margin)),
        ("calls", f"{fresh.calls:,} replies, {fresh.session_calls:,} of them asked for now"),
        ("cost", _dollars(fresh.cost_usd)),
    ]
    print_table(f"{fresh.k:,} fresh continuations a step  by {fresh.model}", rows)
    if other := fresh.disagreement:
        disagree = {"all pairs": other.disagree} | other.disagree_by_action_type
        print(f"how often {other.label_model} (labels) and {other.fresh_model} disagree on which step is better")
        for name, share in disagree.items():
            print(f"{name:<10}  {_share_with_interval(share)}")
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
    return _share_with_interval(found.confirmed) + (f", {_ties(found.ties)}" if found.ties else "")


def _share_with_interval(share: Share) -> str:
    if share.share is None or share.low is None or share.high is None:
        return "- of 0"
    return f"{share.share:.2f} [{share.low:.2f}, {share.high:.2f}] of {share.of:,}"


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
    cost = f" for {_dollars(tuning.cost_delivered)}" if money else ""
    print(f"{tuning.calls_delivered:,} replies were given{cost}; that trials share them saved {saved:,}")
    for trial in tuning.trials:
        if trial.failed:
            print(f"{trial.name}: {trial.failed:,} questions failed: {_counts(trial.failures_by_cause)}")
    _warn(tuning.warnings)
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


def print_table(title: str, rows: Iterable[tuple[str, str]]) -> None:
    table = Table(title=escape(shown(title).replace("\n", " ")), title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, escape(shown(value)))
    Console(highlight=False).print(table)


def _warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        print(f"warning: {on_one_line(warning)}", file=sys.stderr)


def _standing(tally: SessionTally) -> str:
    """How a session goes, in one line."""
    rate = tally.calls / tally.seconds if tally.seconds else 0.0
    parts = [f"{tally.failed_questions:,} failed", f"{tally.in_flight:,} in flight", f"{rate:,.1f} calls/s"]
    answered = tally.calls + tally.cached_calls
    if tally.cached_calls:
        parts.append(f"{100 * tally.cached_calls / answered:.0f} % cached")
    parts.append(f"{tally.tokens:,} tokens")
    if tally.cost:
        projected = f" (about {_dollars(tally.projected_cost)} in all)" if tally.projected_cost else ""
        parts.append(f"{_dollars(tally.cost)}{projected}")
    if tally.failed_calls:
        parts.append(f"{tally.failed_calls:,} failed attempts")
    if tally.waiting_for:
        parts.append(tally.waiting_for)
    return ", ".join(parts)


def _dollars(amount: float | None) -> str:
    return "not known" if amount is None else dollars(amount)


def _counts(counts: dict[str, int]) -> str:
    """`a 3, b 1` for those that are not 0; a dash if none are."""
    return ", ".join(f"{name} {count:,}" for name, count in counts.items() if count) or "-"


def _shares(shares: dict[str, float], what: str) -> str:
    """`layer 0 0.62, 1 0.80`; a dash if there are none."""
    return f"{what} " + ", ".join(f"{name} {value:.2f}" for name, value in shares.items()) if shares else "-"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
