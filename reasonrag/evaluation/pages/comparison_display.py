"""What a person sees of a comparison in the terminal. Names and answers of others are never markup here."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from reasonrag.evaluation.comparison_report import COMPARISON, ComparedExample, Comparison, PairedComparison
from reasonrag.evaluation.pages.comparison_page import (
    DRAWING,
    PAGE,
    RULE,
    difference_text,
    metric_name,
    metric_value,
    outcome_sentence,
    shown_metrics,
)
from reasonrag.rendering import percent
from reasonrag.terminal import on_one_line

EXAMPLES_SHOWN = 2
"""Of wins, and of losses; all are in the page."""


def show_warnings(comparison: Comparison) -> None:
    """On stderr: what keeps the comparison from being what it is called."""
    for each in comparison.warnings:
        print(f"warning: {on_one_line(each)}", file=sys.stderr)


def show_comparison(comparison: Comparison, out: Path) -> None:
    """A table per pair, what it comes to, some examples, and where the files are."""
    console = Console(highlight=False)
    for pair in comparison.pairs:
        _show_pair(console, pair, comparison)
    console.print(RULE, style="dim")
    print(f"wrote {out / PAGE}, {DRAWING} and {COMPARISON}")


def _show_pair(console: Console, pair: PairedComparison, comparison: Comparison) -> None:
    title = f"{on_one_line(pair.other)} against {on_one_line(pair.reference)}, {comparison.questions:,} questions"
    table = Table(title=escape(title), title_justify="left")
    for heading in ("metric", "reference", "other", f"difference [{percent(comparison.confidence)} CI]"):
        table.add_column(escape(heading), justify="left" if heading == "metric" else "right")
    for name, each in shown_metrics(pair):
        cells = (
            metric_name(name),
            metric_value(name, each.reference),
            metric_value(name, each.other),
            difference_text(name, each),
        )
        table.add_row(*map(escape, cells), style="" if each.side else "dim")
    console.print(table)
    _show_parts(console, pair, percent(comparison.confidence))
    console.print(escape(outcome_sentence(pair)))
    console.print(escape(on_one_line(pair.sentence)), style="bold")
    for line in pair.changed:
        console.print(escape(f"  {on_one_line(line)}"), style="dim")
    for title, examples in (("win", pair.wins), ("loss", pair.losses)):
        for example in examples[:EXAMPLES_SHOWN]:
            console.print(escape(_in_words(title, example)))
    console.print()


def _show_parts(console: Console, pair: PairedComparison, level: str) -> None:
    if not pair.by_type and not pair.by_hops:
        return
    table = Table()
    for heading in ("questions of", "n", f"EM [{level} CI]", f"cover-EM [{level} CI]", "won:lost"):
        table.add_column(escape(heading), justify="left" if heading == "questions of" else "right")
    for kind, parts in (("type", pair.by_type), ("hops", pair.by_hops)):
        for label, part in parts.items():
            em, cover = (difference_text(each, part.metrics[each]) for each in ("em", "cover_em"))
            won = f"{part.outcomes.wins:,}:{part.outcomes.losses:,}"
            table.add_row(*map(escape, (f"{kind} {on_one_line(label)}", f"{part.questions:,}", em, cover, won)))
    console.print(table)


def _in_words(title: str, example: ComparedExample) -> str:
    golden = " or ".join(example.golden_answers)
    said = [each.answer or "(no answer)" for each in (example.reference, example.other)]
    return on_one_line(f"{title}: {example.question} golden: {golden}; reference: {said[0]}; other: {said[1]}")
