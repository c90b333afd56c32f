"""What a person sees: progress on stderr, tables on stdout. Text of models and passages is never markup here."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from preference import PairSummary
from preference.exporting import PAIRS_FILE
from reasonrag.estimation import Estimate, Range
from reasonrag.prices import dollars
from reasonrag.runs import FAILURES, ROLLOUTS
from reasonrag.session import SessionTally
from reasonrag.summaries import RunSummary

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
        self._console.print(escape(message), soft_wrap=True)

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
        ("mixed outcomes", f"{summary.questions_mixed:,} questions"),
        ("unreadable replies", _counts(summary.parse_failures_by_cause)),
        ("calls", f"{summary.calls:,} replies in {summary.requests:,} requests{_from_journal(summary)}"),
        ("tokens", f"{summary.prompt_tokens:,} in, {summary.completion_tokens:,} out"),
        ("cost of the run", _dollars(summary.cost_usd)),
        (
            "this session",
            f"{summary.session_questions:,} questions in {summary.session_seconds:.1f} s, {attempts} failed attempts",
        ),
    ]
    title = f"{summary.dataset}/{summary.split}  recipe {summary.recipe}  teacher {summary.model}"
    _print_table(title, rows)
    _warn(summary.warnings)
    print(f"wrote {run / ROLLOUTS}")
    if summary.failed:
        print(f"why questions failed: {run / FAILURES}; the same command tries them again")
    if summary.stopped:
        print(f"stopped: {summary.stopped.message}")
    elif summary.done:
        print(f"next: reasonrag pairs {run} --out data/{run.name}")


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
        ("hours", f"{estimate.hours.low:.1f} to {estimate.hours.high:.1f}, limited by {estimate.limited_by}"),
    ]
    _print_table(f"estimate  recipe {estimate.recipe}  teacher {estimate.model}", rows)
    if estimate.measured_by == "pilot":
        print(f"measured on {estimate.measured_questions:,} questions of this run, mean and two standard errors")
        print(f"the pilot has cost {_dollars(estimate.spent_dollars)}; the run goes on from there")
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


def _price_range(estimate: Estimate) -> str:
    if estimate.dollars is None:
        return f"no price of {estimate.model} in the table of {estimate.prices_as_of}; give --price-in and --price-out"
    return f"{_dollars(estimate.dollars.low)} to {_dollars(estimate.dollars.high)}"


def show_pairs(summary: PairSummary) -> None:
    """The summary of `pairs`, then what was written."""
    rows = [
        ("questions with a pair", f"{summary.questions_with_a_pair:,} of {summary.questions:,}"),
        ("pairs", f"{summary.pairs:,} of {summary.candidates:,} candidates"),
        ("by chosen action", _counts(summary.pairs_by_action_type)),
        ("by layer", _counts(summary.pairs_by_layer)),
        ("same type on both sides", f"{summary.same_type_pairs:,}"),
        ("tagged", _counts(summary.pairs_by_tag)),
        ("dropped", _counts(summary.dropped)),
    ]
    _print_table(f"preference pairs  recipe {', '.join(summary.recipes) or 'none'}", rows)
    _warn(summary.warnings)
    print(f"wrote {Path(summary.out) / PAIRS_FILE}")


def _print_table(title: str, rows: Iterable[tuple[str, str]]) -> None:
    table = Table(title=escape(title), title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, escape(value))
    Console(highlight=False).print(table)


def _warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)


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


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
