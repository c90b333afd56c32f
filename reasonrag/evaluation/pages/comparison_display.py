"""Terminal output of a comparison. Outside text is never read as markup."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from reasonrag.evaluation.comparison_report import COMPARISON, Comparison, PairedComparison
from reasonrag.evaluation.pages.comparison_page import (
    PAGE,
    RULE,
    arrow,
    difference_text,
    outcome_sentence,
    shown_metrics,
)
from reasonrag.evaluation.pages.report_page import metric_name, number
from reasonrag.rendering import counted, percent
from reasonrag.terminal import on_one_line, print_shown, print_titled, warn


def show_warnings(comparison: Comparison) -> None:
    """Print warnings about comparability to stderr."""
    warn(comparison.warnings)


def show_comparison(comparison: Comparison, out: Path) -> None:
    """A table per pair, the verdict, the settings that differ, and the paths of the files. Types, hops and t-tests
    are in the page."""
    console = Console(highlight=False)
    for pair in comparison.pairs:
        _show_pair(console, pair, comparison)
    console.print(RULE, style="dim")
    print_shown(f"wrote {out / PAGE} and {COMPARISON}")


def _show_pair(console: Console, pair: PairedComparison, comparison: Comparison) -> None:
    questions = counted(comparison.questions, "question")
    title = f"{on_one_line(pair.other)} vs. {on_one_line(pair.reference)}, {questions}"
    table = Table()
    table.add_column("metric")
    for name in (pair.reference, pair.other):
        table.add_column(escape(on_one_line(name)), justify="right")
    table.add_column(escape(f"difference ({percent(comparison.confidence)} CI)"), justify="right")
    for name, each in shown_metrics(pair):
        cells = (
            metric_name(name),
            number(name, each.reference),
            number(name, each.other),
            difference_text(name, each),
        )
        table.add_row(*(escape(on_one_line(each)) for each in cells), style="" if each.side else "dim")
    print_titled(title, table)
    console.print(escape(on_one_line(outcome_sentence(pair))))
    console.print(escape(on_one_line(pair.sentence)), style="bold")
    for line in pair.changed:
        console.print(escape(f"  {on_one_line(arrow(line))}"), style="dim")
    console.print()
