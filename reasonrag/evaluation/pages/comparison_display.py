"""Terminal output of a comparison. Outside text is never read as markup."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from reasonrag.evaluation.comparison_report import COMPARISON, ComparedExample, Comparison, PairedComparison
from reasonrag.evaluation.pages.comparison_page import (
    DRAWING,
    PAGE,
    RULE,
    arrow,
    difference_text,
    outcome_sentence,
    shown_metrics,
    t_test_sentence,
)
from reasonrag.evaluation.pages.report_page import metric_name, number
from reasonrag.rendering import counted, percent
from reasonrag.terminal import on_one_line, print_shown, print_titled, warn

EXAMPLES_SHOWN = 2
"""Wins and losses shown each; all are in the page."""


def show_warnings(comparison: Comparison) -> None:
    """Print warnings about comparability to stderr."""
    warn(comparison.warnings)


def show_comparison(comparison: Comparison, out: Path) -> None:
    """A table per pair, the verdict, some examples, and the paths of the files."""
    console = Console(highlight=False)
    for pair in comparison.pairs:
        _show_pair(console, pair, comparison)
    console.print(RULE, style="dim")
    print_shown(f"wrote {out / PAGE}, {DRAWING} and {COMPARISON}")


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
    _show_parts(pair, percent(comparison.confidence))
    console.print(escape(on_one_line(outcome_sentence(pair))))
    if pair.t_tests:
        console.print(escape(t_test_sentence(pair)), style="dim")
    console.print(escape(on_one_line(pair.sentence)), style="bold")
    for line in pair.changed:
        console.print(escape(f"  {on_one_line(arrow(line))}"), style="dim")
    for title, examples in (("win", pair.wins), ("loss", pair.losses)):
        for example in examples[:EXAMPLES_SHOWN]:
            console.print(escape(_in_words(title, example, pair)))
    console.print()


def _show_parts(pair: PairedComparison, level: str) -> None:
    if not pair.by_type and not pair.by_hops:
        return
    table = Table()
    for heading in ("part", "n", f"EM ({level} CI)", f"cover-EM ({level} CI)", "won:\nlost"):
        table.add_column(escape(heading), justify="left" if heading == "part" else "right")
    for kind, parts in (("type", pair.by_type), ("hops", pair.by_hops)):
        for label, part in parts.items():
            em, cover = (difference_text(each, part.metrics[each]) for each in ("em", "cover_em"))
            won = f"{part.outcomes.wins:,}:{part.outcomes.losses:,}"
            table.add_row(*map(escape, (f"{kind} {on_one_line(label)}", f"{part.questions:,}", em, cover, won)))
    print_titled("difference in points, by part", table)


def _in_words(title: str, example: ComparedExample, pair: PairedComparison) -> str:
    golden = " or ".join(example.golden_answers)
    said = [each.answer or "(no answer)" for each in (example.reference, example.other)]
    return on_one_line(
        f"{title}: {example.question} Gold answers: {golden}; {pair.reference}: {said[0]}; {pair.other}: {said[1]}"
    )
