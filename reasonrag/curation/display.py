"""What a person sees of an import: what was read, every kind of repair and refusal, and what to do next."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from reasonrag.curation.import_published import Counted, ImportReport
from reasonrag.terminal import on_one_line, print_table, shown


class TerminalImport:
    """Says on stderr what is going on."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)

    def say(self, message: str) -> None:
        self._console.print(escape(shown(message)), soft_wrap=True)


def show_import(report: ImportReport) -> None:
    """The report, then what was written."""
    print_table(f"imported {report.kind}", _rows(report))
    if report.repairs:
        _show_counts("repaired", report.repairs)
    if report.refusals:
        _show_counts("given up", report.refusals)
    for warning in report.warnings:
        print(f"warning: {on_one_line(warning)}", file=sys.stderr)
    print(f"wrote {report.out}")
    for command in report.next_commands:
        print(f"next: {command}")


def _rows(report: ImportReport) -> list[tuple[str, str]]:
    what = "trees" if report.kind == "trees" else "rows"
    rows = [
        ("read", ", ".join(f"{each.name} ({each.items:,})" for each in report.sources)),
        (what, f"{report.kept:,} of {report.items:,}"),
        ("questions", f"{report.questions:,}, {report.without_golden_answers:,} of them without golden answers"),
    ]
    if report.passed_over:
        rows.append(("passed over", f"{', '.join(report.passed_over)}: the same trees"))
    if report.kind == "trees":
        rows.append(("steps", f"{report.steps:,}"))
        rows.append(("recipe", f"{report.recipe}, rewards {report.reward}, alpha {report.alpha:g}"))
    else:
        dropped = ", ".join(f"{name} {count:,}" for name, count in report.not_exported.items()) or "-"
        rows.append(("states", f"{report.states:,}"))
        rows.append(("written", f"{report.exported:,} pairs; candidates that are none: {dropped}"))
    return [*rows, ("teacher", report.teacher or "unknown")]


def _show_counts(title: str, counts: dict[str, Counted]) -> None:
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for name, each in counts.items():
        table.add_row(name, f"{each.count:,}", escape(f"{each.meaning}. First: {on_one_line(each.examples[0])}"))
    Console(highlight=False).print(table)
