"""Terminal output of an audit: numbers, then the checks, errors first. Outside text is never read as markup.

The page shows the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from preference.statistics import LABEL_LEVEL
from reasonrag.curation.audit.cutoffs import TRAINERS_DEFAULT
from reasonrag.curation.audit.report import (
    AUDIT_PAGE,
    AuditReport,
    CheckResult,
    Quantiles,
    by_severity,
    read_audit,
)
from reasonrag.curation.display import effective_text
from reasonrag.data.names import HUB_SPLITS
from reasonrag.rendering import counted, interval_text, percent
from reasonrag.terminal import on_one_line, print_next, print_prose, print_shown, print_table, print_titled

_STYLES = {"error": "bold red", "allowed": "magenta", "warning": "yellow"}


def show_audit(report: AuditReport, page: Path) -> None:
    """The numbers, the checks with findings, and the path of the page."""
    print_table(f"audit of {on_one_line(report.data)}", audit_numbers(report))
    found = [each for each in by_severity(report) if each.count]
    if found:
        _print_checks(found)
    print_shown(_tally(report))
    for each in found:
        if not each.allowed:
            print_prose(f"{each.name}: {each.advice}")
    print_shown(f"wrote {page} and {page.with_suffix('.json').name}")


def show_verdict(out: Path, splits: Sequence[str]) -> None:
    """For a data set that was just written: one line, and the next commands. splits: of its questions; only a data
    set of public questions is suggested for publishing."""
    report = read_audit(out)
    named = ", ".join(each.name for each in report.warnings)
    print_prose(f"audit: {_tally(report)}{f' ({named})' if named else ''}; see {out / AUDIT_PAGE}")
    if report.rows:
        print_next("view", out)
        print_next("review", out, "--out", f"{out}-review.csv")
        print_next("train", "qwen2.5-7b-dpo-lora", "--data", out)
        if splits and all(each.rpartition("/")[0] in HUB_SPLITS for each in splits):
            print_next("publish", out, "--repo", "ORG/NAME")


def audit_numbers(report: AuditReport) -> list[tuple[str, str]]:
    """The numbers of a report by name, for the terminal and the page."""
    gap, lengths = report.length_gap, report.lengths
    rows = [
        ("files", on_one_line(", ".join(f"{name} {count:,}" for name, count in report.files.items()))),
        ("rows", f"{report.rows:,} ({report.parts['train']:,} train, {report.parts['validation']:,} validation)"),
        ("questions, states", f"{report.worth.questions:,}, {report.worth.states:,}"),
        ("effective sample size", effective_text(report.worth)),
        ("tokens counted by", report.token_counter.name),
        ("prompt", _tokens(lengths.prompt)),
        ("chosen", _tokens(lengths.chosen)),
        ("rejected", _tokens(lengths.rejected)),
        ("prompt and longer reply", _tokens(lengths.total)),
    ]
    for each in report.cutoffs:
        if each.truncated or each.cutoff_len == TRAINERS_DEFAULT:
            rows_cut, in_prompt = percent(each.truncated_share, 1), percent(each.prompt_cut_share, 1)
            cut = f"cuts {rows_cut} of the rows, {in_prompt} in the prompt"
            rows.append((f"cutoff_len {each.cutoff_len:,}", cut))
    if report.advised_cutoff:
        about = "" if report.token_counter.exact else ", by estimated lengths (exact: pip install 'reasonrag[tokens]')"
        rows.append(("cutoff_len to use", f"{report.advised_cutoff:,}: cuts nothing{about}"))
    if gap.mean is not None and gap.shorter is not None:
        shorter, longer = percent(gap.shorter, 1), percent(gap.longer or 0, 1)
        rows.append(("chosen side shorter", f"in {shorter} of the rows, longer in {longer}"))
        rows.append(("chosen minus rejected", f"mean {gap.mean:+,.1f} tokens"))
    if share := gap.shorter_of_unequal:
        ends = interval_text(f"{share.low:.2f}", f"{share.high:.2f}", LABEL_LEVEL)
        rows.append(("shorter where they differ", f"{share.value:.2f} {ends}"))
    return rows


def _print_checks(found: list[CheckResult]) -> None:
    table = Table()
    table.add_column("check", no_wrap=True)
    table.add_column("result")
    table.add_column("rows", justify="right")
    table.add_column("finding and examples", overflow="fold", ratio=1)
    for each in found:
        style = _STYLES.get(each.verdict, "")
        share = f"{each.count:,}" if each.share is None else f"{each.count:,}\n{percent(each.share, 1)}"
        table.add_row(each.name, each.verdict, share, escape(_where(each)), style=style)
    print_titled("checks", table)


def _where(check: CheckResult) -> str:
    details = on_one_line(", ".join(f"{name} {count:,}" for name, count in list(check.details.items())[:4]))
    examples = on_one_line("; ".join(map(str, check.examples[:2])))
    return "\n".join(part for part in (check.finds, details, f"examples: {examples}" if examples else "") if part)


def _tally(report: AuditReport) -> str:
    """`1 error, 2 warnings, 28 checks passed`."""
    verdicts = [each.verdict for each in report.checks]
    parts = [counted(verdicts.count("error"), "error"), counted(verdicts.count("warning"), "warning")]
    parts += [f"{verdicts.count('allowed')} allowed"] if "allowed" in verdicts else []
    parts.append(f"{counted(verdicts.count('passed'), 'check')} passed")
    parts += [f"{verdicts.count('not checked')} not checked"] if "not checked" in verdicts else []
    return ", ".join(parts)


def _tokens(found: Quantiles) -> str:
    if found.mean is None:
        return "-"
    return (
        f"mean {found.mean:,.0f}, median {found.p50:,.0f}, p95 {found.p95:,.0f}, p99 {found.p99:,.0f}, "
        f"longest {found.max:,.0f} tokens"
    )
