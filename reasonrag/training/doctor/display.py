"""Terminal output of a checkup: findings, errors first, then the memory plan. Outside text is never read as markup."""

from __future__ import annotations

from typing import Final

from rich.table import Table
from rich.text import Text

from reasonrag.rendering import counted
from reasonrag.terminal import on_one_line, print_prose, print_shown, print_titled, shown
from reasonrag.training.doctor.doctor import Diagnosis
from reasonrag.training.doctor.findings import Finding
from reasonrag.training.doctor.memory import GB

_STYLES: Final = {"error": "bold red", "warning": "yellow", "note": "cyan", "ok": "green"}
_ORDER: Final = ("error", "warning", "note", "ok")
_PARTS: Final = ("weights", "reference", "gradients", "optimizer", "activations", "logits")


def show_diagnosis(diagnosis: Diagnosis) -> None:
    """The findings, the memory plan, and a line with the number of errors and warnings."""
    print_titled("checkup", _findings(diagnosis.findings))
    if diagnosis.plans:
        _show_memory(diagnosis)
        _print_notes(diagnosis)
    errors, warnings = len(diagnosis.errors), len(diagnosis.warnings)
    print_shown(f"{counted(errors, 'error')}, {counted(warnings, 'warning')}")


def _findings(findings: list[Finding]) -> Table:
    table = Table()
    table.add_column("about", no_wrap=True)
    table.add_column("result", no_wrap=True)
    table.add_column("finding, and what to do", overflow="fold", ratio=1)
    for each in sorted(findings, key=lambda each: _ORDER.index(each.severity)):
        advice = f"\n-> {each.advice}" if each.advice else ""
        style = _STYLES[each.severity]
        said = Text(shown(f"{on_one_line(each.says)}{advice}"))
        table.add_row(each.about, Text(each.severity, style=style), said)
    return table


def _show_memory(diagnosis: Diagnosis) -> None:
    """A row for each kind of memory in use, a column for each way to train."""
    training = diagnosis.plans[0].plan.training
    title = (
        f"memory of {on_one_line(diagnosis.model)} on {diagnosis.target}\n"
        f"{training.stage}, cutoff_len {training.cutoff_len:,}, batch {training.batch}; GB per GPU"
    )
    table = Table()
    table.add_column("")
    for each in diagnosis.plans:
        table.add_column(each.plan.training.name.replace(", ", "\n"), justify="right")
    for part in _PARTS:
        numbers = [getattr(each.plan, part) for each in diagnosis.plans]
        if any(numbers):
            table.add_row(part, *map(_size, numbers))
    table.add_row(
        "rest", *(_size(each.plan.overhead + each.plan.buffers) for each in diagnosis.plans), end_section=True
    )
    table.add_row("total", *(_size(each.plan.gpu) for each in diagnosis.plans), style="bold")
    if any(each.plan.host for each in diagnosis.plans):
        table.add_row("host", *(_size(each.plan.host) for each in diagnosis.plans))
    table.add_row("fits", *("yes" if each.verdict != "does not fit" else "no" for each in diagnosis.plans))
    table.add_row("longest cutoff_len", *(_or_none(each.longest_cutoff) for each in diagnosis.plans))
    table.add_row("fewest GPUs", *(_or_none(each.fewest_gpus) for each in diagnosis.plans))
    print_titled(title, table)


def _or_none(number: int | None) -> str:
    return f"{number:,}" if number else "none"


def _size(number: int) -> str:
    if not number:
        return "-"
    size = number / GB
    return f"{size:,.0f}" if size >= 1000 else f"{size:.1f}" if size >= 1 else f"{size:.2g}"  # noqa: PLR2004 - width


def _print_notes(diagnosis: Diagnosis) -> None:
    asked = diagnosis.plans[0].plan
    line = f"{_count(asked.parameters)} parameters, {_count(asked.trained)} of them trained"
    print_prose(f"{line}; an estimate that assumes every row is as long as cutoff_len")
    if not diagnosis.target.here:
        print_shown(f"planned for {diagnosis.target}; change it with --gpus and --gpu-memory")


def _count(parameters: int) -> str:
    return f"{parameters / 1e9:.2f} B" if parameters >= 1e9 else f"{parameters / 1e6:,.2f} M"  # noqa: PLR2004 - B, M
