"""`audit.html`: a page without network access or scripts, made from the report alone.

Decides how numbers are plotted. Outside text (names of files, splits, renderers) is escaped by the template and never
plotted. Colours in the plots are CSS variables of the page, so they follow dark mode.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from markupsafe import Markup

from preference.export.formats import plain_types
from preference.statistics import LABEL_LEVEL
from reasonrag.curation.audit.report import AuditReport, Histogram, by_severity
from reasonrag.rendering import counted, drawing_style, html_templates, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INK, _LINE, *_SERIES = ("#010101", "#020202", "#030303", "#040404")
_VARIABLES = dict(zip((_INK, _LINE, *_SERIES), ("ink", "line", "one", "two"), strict=True))
"""Placeholder colours in a plot, by the CSS variable that replaces them."""
_SIZE = (4.8, 3.0)
"""Inches; narrow enough to stay readable on a phone."""
_STYLE = drawing_style(ink=_INK, line=_LINE, size=11.5) | {
    "grid.linewidth": 0.7,
    "legend.fontsize": 10.5,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
}


@dataclass(frozen=True)
class AuditPlot:
    """A plot, a sentence about it, and its numbers as a table."""

    title: str
    summary: str
    svg: Markup
    columns: Sequence[str]
    numbers: Sequence[Sequence[str]]


def render_audit_page(report: AuditReport) -> str:
    """The whole page."""
    environment = html_templates()
    environment.filters["plain"] = plain_types
    environment.filters |= {"number": _number, "tokens": _tokens, "percent": _percent, "signed": _signed}
    template = environment.get_template("audit.html.j2")
    return template.render(report=report, level=percent(LABEL_LEVEL), checks=by_severity(report), plots=plots(report))


def plots(report: AuditReport) -> list[AuditPlot]:
    """The plots; none without rows."""
    if not report.rows:
        return []
    return [_totals(report), _sides(report)]


# -- the plots -------------------------------------------------------------------------------------------------


def _totals(report: AuditReport) -> AuditPlot:
    bins = report.lengths.histograms["total"]
    advised = report.advised_cutoff or 0

    def draw(axes: Axes) -> None:
        axes.stairs(bins.counts, bins.edges, fill=True, color=_SERIES[0])
        # room above the bars for the labels of the lines
        axes.set_ylim(0, max(bins.counts) * 1.3)
        marks = [each.cutoff_len for each in report.cutoffs if each.truncated and each.cutoff_len != advised]
        longest = max(bins.edges[-1], advised * 1.03)
        # labels of lines that are close together would overlap
        for each in [*(mark for mark in marks if mark > longest / 16), advised]:
            chosen = each == advised
            axes.axvline(each, color=_SERIES[1] if chosen else _INK, linestyle="-" if chosen else "--", linewidth=1.2)
            axes.annotate(
                f"{each:,}" + (" cuts nothing" if chosen else ""),
                (each, 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(-3, -2),
                textcoords="offset points",
                rotation=90,
                ha="right",
                va="top",
                fontsize=10,
            )
        axes.set_xlim(0, longest)
        axes.set_xlabel("tokens in prompt and longer reply")
        axes.set_ylabel("rows")

    total = report.lengths.total
    summary = (
        f"Median {_number(total.p50)} tokens over {counted(report.rows, 'row')}, longest {_number(total.max)}; "
        f"cutoff_len {advised:,} cuts nothing."
    )
    return _plot("Row length and cutoff_len", summary, draw, ("tokens from", "to", "rows"), _rows_of(bins))


def _sides(report: AuditReport) -> AuditPlot:
    chosen, rejected = (report.lengths.histograms[name] for name in ("chosen", "rejected"))

    def draw(axes: Axes) -> None:
        for bins, label, color, style in (
            (chosen, "chosen", _SERIES[0], "-"),
            (rejected, "rejected", _SERIES[1], (0, (4, 2))),
        ):
            axes.stairs(bins.counts, bins.edges, color=color, linewidth=1.8, linestyle=style, label=label)
        axes.set_ylim(0)
        axes.set_xlim(0)
        axes.legend(loc="upper right")
        axes.set_xlabel("tokens in the reply")
        axes.set_ylabel("rows")

    gap = report.length_gap
    summary = f"The chosen side is shorter in {_percent(gap.shorter)} of the rows, longer in {_percent(gap.longer)}."
    if gap.mean:
        summary += f" Chosen minus rejected: {_signed(gap.mean.value)} tokens on average."
    columns = ("tokens from", "to", "chosen", "rejected")
    return _plot("Length of chosen and rejected replies", summary, draw, columns, _rows_of(chosen, rejected))


# -- drawing ---------------------------------------------------------------------------------------------------


def _rows_of(*histograms: Histogram) -> list[tuple[str, ...]]:
    """The non-empty bins of histograms with equal edges, as table rows."""
    bins = zip(pairwise(histograms[0].edges), *(each.counts for each in histograms), strict=True)
    return [
        (_number(low), _number(high), *(f"{count:,}" for count in counts))
        for (low, high), *counts in bins
        if any(counts)
    ]


def _plot(
    title: str,
    summary: str,
    draw: Callable[[Axes], None],
    columns: Sequence[str],
    numbers: Sequence[Sequence[str]],
) -> AuditPlot:
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    content = io.StringIO()
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=_SIZE, layout="constrained")
        canvas = FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        draw(axes)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        # savefig would draw it twice
        canvas.print_svg(content, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    return AuditPlot(title, summary, _inline(content.getvalue(), title, summary), columns, numbers)


def _inline(svg: str, title: str, summary: str) -> Markup:
    """An SVG ready for embedding: unique ids, the page's colours, a title and a description."""
    name = re.sub(r"\W+", "-", title.lower())
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(url\(#|href="#)', rf"\g<1>{name}-", svg)
    for color, variable in _VARIABLES.items():
        svg = svg.replace(color, f"var(--{variable})")
    head, rest = svg.split(">", 1)
    head = re.sub(r' (?:width|height)="[^"]*"', "", head)
    label = Markup(' role="img" aria-labelledby="{0}-title {0}-summary">').format(name)
    about = Markup('<title id="{0}-title">{1}</title><desc id="{0}-summary">{2}</desc>').format(name, title, summary)
    return Markup(head) + label + about + Markup(rest)  # noqa: S704 - drawn from numbers, with words of ours only


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
