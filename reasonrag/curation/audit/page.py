"""`audit.html`: a page without network access or scripts, made from the report alone.

Outside text (names of files, splits, renderers) is escaped by the template.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from preference.export.formats import plain_types
from preference.statistics import LABEL_LEVEL
from reasonrag.curation.audit.report import AuditReport, Histogram, by_severity
from reasonrag.rendering import counted, html_templates, percent


@dataclass(frozen=True)
class LengthTable:
    """Rows by their length: a sentence, and the non-empty bins (from, to, counts), whose bars are shares of `most`."""

    title: str
    summary: str
    columns: Sequence[str]
    bins: Sequence[tuple[float, float, Sequence[int]]]
    most: int


def render_audit_page(report: AuditReport) -> str:
    """The whole page."""
    environment = html_templates()
    environment.filters["plain"] = plain_types
    environment.filters |= {"number": _number, "tokens": _tokens, "percent": _percent, "signed": _signed}
    template = environment.get_template("audit.html.j2")
    tables = [_totals(report), _sides(report)] if report.rows else []
    return template.render(report=report, level=percent(LABEL_LEVEL), checks=by_severity(report), tables=tables)


def _totals(report: AuditReport) -> LengthTable:
    total = report.lengths.total
    summary = (
        f"Median {_number(total.p50)} tokens over {counted(report.rows, 'row')}, longest {_number(total.max)}; "
        f"cutoff_len {report.advised_cutoff or 0:,} cuts nothing."
    )
    return _table("Prompt and longer reply", summary, rows=report.lengths.histograms["total"])


def _sides(report: AuditReport) -> LengthTable:
    gap = report.length_gap
    summary = f"The chosen side is shorter in {_percent(gap.shorter)} of the rows, longer in {_percent(gap.longer)}."
    if gap.mean:
        summary += f" Chosen minus rejected: {_signed(gap.mean.value)} tokens on average."
    chosen, rejected = (report.lengths.histograms[name] for name in ("chosen", "rejected"))
    return _table("Chosen and rejected replies", summary, chosen=chosen, rejected=rejected)


def _table(title: str, summary: str, **histograms: Histogram) -> LengthTable:
    """Of histograms with equal edges, by the name of their column."""
    every = list(histograms.values())
    bins = zip(pairwise(every[0].edges), *(each.counts for each in every), strict=True)
    filled = [(low, high, counts) for (low, high), *counts in bins if any(counts)]
    most = max(max(each.counts) for each in every)
    return LengthTable(title, summary, ("tokens from", "to", *histograms), filled, most)


def _number(value: float | None) -> str:
    """Whole numbers with thousands separators, others with three significant digits."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if float(value).is_integer() or abs(value) >= 100 else f"{value:,.3g}"  # noqa: PLR2004


def _tokens(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else percent(value, 1)


def _signed(value: float) -> str:
    return f"{value:+,.1f}"
