"""`audit.html`: a page without network access or scripts, made from the report alone.

Outside text (names of files, splits, renderers) is escaped by the template.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from reasonrag.curation.audit.report import AuditReport, Histogram, by_severity
from reasonrag.rendering import html_templates, percent, written


@dataclass(frozen=True)
class LengthTable:
    """Rows by their length: the non-empty bins (from, to, counts), whose bars are shares of `most`."""

    title: str
    columns: Sequence[str]
    bins: Sequence[tuple[float, float, Sequence[int]]]
    most: int


def render_audit_page(report: AuditReport) -> str:
    """The whole page."""
    environment = html_templates()
    environment.filters["percent"] = lambda share: percent(share, 1)
    template = environment.get_template("audit.html.j2")
    drawn = report.lengths.histograms
    tables = [
        _table("Prompt and longer reply", rows=drawn["total"]),
        _table("Chosen and rejected replies", chosen=drawn["chosen"], rejected=drawn["rejected"]),
    ]
    numbers = [(name, written(value)) for name, value in report.numbers()]
    return template.render(
        report=report, numbers=numbers, checks=by_severity(report), tables=tables if report.rows else []
    )


def _table(title: str, **histograms: Histogram) -> LengthTable:
    """Of histograms with equal edges, by the name of their column."""
    every = list(histograms.values())
    bins = zip(pairwise(every[0].edges), *(each.counts for each in every), strict=True)
    filled = [(low, high, counts) for (low, high), *counts in bins if any(counts)]
    most = max(max(each.counts) for each in every)
    return LengthTable(title, ("tokens from", "to", *histograms), filled, most)
