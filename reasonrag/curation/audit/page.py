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
from reasonrag.curation.audit.catalogue import TYPE_NAMES
from reasonrag.curation.audit.report import AuditReport, Histogram, by_severity
from reasonrag.rendering import counted, drawing_style, html_templates, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INK, _LINE, *_SERIES = ("#010101", "#020202", "#030303", "#040404", "#050505", "#060606")
_VARIABLES = dict(zip((_INK, _LINE, *_SERIES), ("ink", "line", "one", "two", "three", "four"), strict=True))
"""Placeholder colours in a plot, by the CSS variable that replaces them."""
_SIZE = (4.8, 3.0)
"""Inches; narrow enough to stay readable on a phone."""
_STYLE = drawing_style(ink=_INK, line=_LINE, size=11.5) | {
    "grid.linewidth": 0.7,
    "legend.fontsize": 10.5,
    "hatch.linewidth": 0.6,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
}
_HATCHES = ("", "///", "...", "xxx")
"""In addition to colours, for colour-blind readers."""


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
    """The plots for which there is data."""
    if not report.rows:
        return []
    found = [_totals(report), _sides(report)]
    found += [_values(report, name) for name in ("margin", "confidence") if name in report.histograms]
    return [*found, _layers(report), _questions(report)]


# -- the plots -------------------------------------------------------------------------------------------------


def _totals(report: AuditReport) -> AuditPlot:
    bins = report.lengths.histograms["total"]
    advised = report.advised_cutoff or 0

    def draw(axes: Axes) -> None:
        _bars(axes, bins)
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


def _values(report: AuditReport, name: str) -> AuditPlot:
    bins = report.histograms["margin" if name == "margin" else "confidence"]
    found = report.margins if name == "margin" else report.confidences
    meaning = "margin: reward of chosen - rejected" if name == "margin" else "confidence that the chosen step is better"

    def draw(axes: Axes) -> None:
        _bars(axes, bins)
        axes.set_xlabel(meaning)
        axes.set_ylabel("rows")

    summary = (
        f"Known for {counted(found.of, 'row')}: median {_number(found.p50)}, 10th percentile {_number(found.p10)}."
    )
    return _plot(name.capitalize(), summary, draw, ("from", "to", "rows"), _rows_of(bins))


def _layers(report: AuditReport) -> AuditPlot:
    layers = sorted(report.layers, key=lambda name: (not name[0].isdigit(), int(re.sub(r"\D", "", name) or 0)))
    present = [name for name in TYPE_NAMES if any(name in report.layers[layer] for layer in layers)]

    def draw(axes: Axes) -> None:
        below = [0] * len(layers)
        for position, name in enumerate(present):
            counts = [report.layers[layer].get(name, 0) for layer in layers]
            axes.bar(
                range(len(layers)),
                counts,
                bottom=below,
                width=0.8,
                color=_SERIES[position],
                hatch=_HATCHES[position],
                edgecolor=_INK,
                linewidth=0.5,
                label=plain_types(name),
            )
            below = [a + b for a, b in zip(below, counts, strict=True)]
        every = -(-len(layers) // 12)
        axes.set_xticks(range(0, len(layers), every), layers[::every])
        axes.set_ylim(0, max(below) * (1.12 + 0.12 * len(present)))
        axes.legend(loc="upper left")
        axes.set_xlabel("depth of the state (root 0)")
        axes.set_ylabel("rows")

    said = ", ".join(f"{plain_types(name)} {report.action_types[name]:,}" for name in present)
    numbers = [(layer, *(f"{report.layers[layer].get(name, 0):,}" for name in present)) for layer in layers]
    return _plot(
        "Depth and chosen action", f"Chosen sides: {said}.", draw, ("depth", *map(plain_types, present)), numbers
    )


def _questions(report: AuditReport) -> AuditPlot:
    counts = report.rows_per_question_counts

    def draw(axes: Axes) -> None:
        axes.bar(range(len(counts)), list(counts.values()), width=0.8, color=_SERIES[0])
        every = -(-len(counts) // 12)
        names = [name.replace(" or more", "+") for name in counts]
        axes.set_xticks(range(0, len(counts), every), names[::every])
        axes.set_xlabel("rows per question")
        axes.set_ylabel("questions")

    summary = (
        f"{counted(report.worth.questions, 'question')}: mean {_number(report.rows_per_question.mean)} rows per "
        f"question, most {_number(report.rows_per_question.max)}."
    )
    numbers = [(name, f"{count:,}") for name, count in counts.items()]
    return _plot("Rows per question", summary, draw, ("rows", "questions"), numbers)


# -- drawing ---------------------------------------------------------------------------------------------------


def _bars(axes: Axes, bins: Histogram) -> None:
    axes.stairs(bins.counts, bins.edges, fill=True, color=_SERIES[0])


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
