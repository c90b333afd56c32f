"""A sweep for people: `sweep.md`, `iterations.svg`, `top-k.svg` and the terminal's tables, made from its record alone.

Decides what is shown and plotted. Names of folders and models are outside text: escaped for Markdown, and in the plot
by the plotting library.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from xml.sax.saxutils import quoteattr

from rich.table import Table

from reasonrag.evaluation.pages.comparison_page import difference_text, markdown_table
from reasonrag.evaluation.pages.drawing import COLORS, label, svg_of
from reasonrag.evaluation.pages.report_page import METRIC_NAMES, interval, number
from reasonrag.evaluation.report import MetricMean
from reasonrag.evaluation.sweeps.report import SCORES, SWEEP, FigureName, Sweep, SweepPoint, SweptEvaluation
from reasonrag.redaction import mask_secrets, secrets
from reasonrag.rendering import code, counted, escaped, percent
from reasonrag.terminal import dollars, on_one_line, print_next, print_prose, print_shown, print_titled, warn

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAGE: Final = "sweep.md"
DRAWINGS: dict[FigureName, str] = {"iterations": "iterations.svg", "top-k": "top-k.svg"}
_AXES: dict[FigureName, str] = {"iterations": "most searches per question", "top-k": "passages per search (top-k)"}
_TITLES = {"em": "exact match (EM), %", "f1": "F1, %"}
_MARKS = ("o", "s", "^", "D", "v", "P")
_COLUMNS = (*SCORES, "searches", "calls", "prompt_tokens", "completion_tokens")
_HOLLOW = "hollow: some questions failed, and are left out of every point"


def _shown(found: Sweep) -> list[FigureName]:
    """The figures that have a finished point."""
    return [name for name in DRAWINGS if any(_points(each, name) for each in found.evaluations)]


def _points(swept: SweptEvaluation, figure: FigureName) -> list[SweepPoint]:
    """Its finished points in a figure, from left to right."""
    found = (each for each in swept.points if each.finished and figure in each.figures)
    return sorted(found, key=lambda each: _at(each, figure))


def _at(point: SweepPoint, figure: FigureName) -> int:
    return point.searches if figure == "iterations" else point.top_k


def _level(found: Sweep) -> str:
    return f"{percent(found.confidence)} CI"


def _what(found: Sweep) -> str:
    left = f"; {found.failed:,} that failed somewhere are left out of every point" if found.failed else ""
    return f"{counted(found.questions, 'question')} of {found.dataset}/{found.split}, the same at every point{left}"


def _mark(point: SweepPoint, own: SweptEvaluation) -> str:
    """What is special about a point."""
    if not point.finished:
        return "every question failed" if point.failed else "not finished"
    itself = "this evaluation" if point.run == own.run else "taken" if point.taken else ""
    return ", ".join(filter(None, [itself, f"{point.failed:,} failed" if point.failed else ""]))


# -- sweep.md ----------------------------------------------------------------------------------------------------------


def render_sweep(found: Sweep) -> str:
    """The whole file."""
    level = _level(found)
    lines = [f"# Sweep of {', '.join(escaped(each.name) for each in found.evaluations)}", ""]
    about = (
        f"{escaped(_what(found))}. Intervals: {level}, bootstrap over questions ({found.bootstrap:,} resamples, seed "
        f"{found.bootstrap_seed}). Differences are paired by question, and not corrected for their number. A budget of "
        "n searches is `--max-steps` 2n+1."
    )
    lines += [
        about,
        "",
        *(f"- **Warning:** {escaped(each)}" for each in found.warnings),
        "",
    ]
    for figure in _shown(found):
        lines += [f"![EM and F1 against {_AXES[figure]}]({DRAWINGS[figure]})", ""]
    heads = [METRIC_NAMES[name] + (", %" if name in SCORES else "") for name in _COLUMNS]
    for each in found.evaluations:
        repair = "with" if each.repair else "without"
        how = (
            f"Method {escaped(each.method)}, model {code(each.model)}, {repair} a repair turn for unreadable replies; "
            f"evaluated with max-steps {each.max_steps}, top-k {each.top_k}."
        )
        lines += [f"## {escaped(each.name)}", "", how, ""]
        columns = "most searches", "max-steps", "top-k", *(f"{head} ({level})" for head in heads), "EM, difference", ""
        lines += [*markdown_table(columns, _rows(each)), ""]
    cost = "unknown" if found.cost_usd is None else dollars(found.cost_usd)
    lines += [f"Asked for the points: {counted(found.calls, 'completion')}; points share answers. Cost: {cost}."]
    return mask_secrets("\n".join(lines) + "\n", secrets())


def _rows(swept: SweptEvaluation) -> Iterator[list[str]]:
    for point in swept.points:
        cells = [_cell(point, name) for name in _COLUMNS]
        delta = point.differences.get("em")
        difference = difference_text("em", delta) if delta and point.run != swept.run else "-"
        yield [str(point.searches), str(point.max_steps), str(point.top_k), *cells, difference, _mark(point, swept)]


def _cell(point: SweepPoint, name: str) -> str:
    metric = point.metrics.get(name)
    return "-" if metric is None else f"{number(name, metric.value)} ({interval(name, metric)})"


# -- the drawings ------------------------------------------------------------------------------------------------------


def draw_sweep(found: Sweep) -> dict[str, str]:
    """Standalone SVGs by file name: EM and F1 of every evaluation, with their intervals as bands."""
    return {DRAWINGS[figure]: _drawn(found, figure) for figure in _shown(found)}


def _drawn(found: Sweep, figure: FigureName) -> str:
    swept = [(each, points) for each in found.evaluations if (points := _points(each, figure))]
    longest = max(len(label(each.name)) for each, _ in swept)
    columns = max(1, min(3, 72 // (longest + 6)))  # about 72 characters and lines of a legend stand side by side
    places = sorted({_at(point, figure) for _, points in swept for point in points})

    def draw(whole: Figure) -> None:
        panels = whole.subplots(1, len(SCORES), sharey=True)
        for axes, metric in zip(panels, SCORES, strict=True):
            for place, (each, points) in enumerate(swept):
                look = {"color": COLORS[place % len(COLORS)], "marker": _MARKS[place % len(_MARKS)], "markersize": 6}
                at = [_at(point, figure) for point in points]
                _draw_line(axes, at, [(point.metrics[metric], point.failed > 0) for point in points], look)
                axes.plot([], [], **look, linewidth=2, label=label(each.name))
            axes.set_xticks(places)
            axes.set_xlabel(_AXES[figure])
            axes.set_title(_TITLES[metric], fontsize=10)
            axes.tick_params(labelleft=True)
        hollow = f"\n{_HOLLOW}" if any(point.failed for _, points in swept for point in points) else ""
        whole.suptitle(f"{counted(found.questions, 'question')}; bands: {_level(found)}{hollow}", fontsize=10)
        handles, labels = panels[0].get_legend_handles_labels()
        whole.legend(handles, labels, loc="outside lower center", ncols=columns)

    drawing = svg_of(
        draw, inches=(6.4, 3.4 + 0.2 * math.ceil(len(swept) / columns)), grid="y", without=("top", "right")
    )
    said = mask_secrets("; ".join(_in_words(each, points, figure) for each, points in swept), secrets())
    return drawing.replace("<svg ", f"<svg role='img' aria-label={quoteattr(on_one_line(said))} ", 1)


def _draw_line(
    axes: Axes, at: Sequence[int], points: Sequence[tuple[MetricMean, bool]], look: Mapping[str, Any]
) -> None:
    """One evaluation in one panel. points: each with whether some question failed."""
    low, value, high = ([100 * (getattr(mean, end) or 0.0) for mean, _ in points] for end in ("low", "value", "high"))
    axes.fill_between(at, low, high, color=look["color"], alpha=0.15, linewidth=0)
    axes.plot(at, value, **look, linewidth=2)
    failed = [(x, y) for x, y, (_, hollow) in zip(at, value, points, strict=True) if hollow]
    axes.plot([x for x, _ in failed], [y for _, y in failed], **look, linestyle="", markerfacecolor="white")


def _in_words(swept: SweptEvaluation, points: Sequence[SweepPoint], figure: FigureName) -> str:
    """The numbers of a drawing, for those who do not see it."""
    said = [
        f"{_at(point, figure)}: EM {number('em', point.metrics['em'].value)}, F1 "
        f"{number('f1', point.metrics['f1'].value)}"
        for point in points
    ]
    return f"{swept.name} by {_AXES[figure]}: {'; '.join(said)}"


# -- the terminal ------------------------------------------------------------------------------------------------------


def show_sweep(found: Sweep) -> None:
    """A table for each evaluation, what was asked, the files and the next command."""
    print_prose(_what(found))
    for each in found.evaluations:
        table = Table(box=None, padding=(0, 1, 0, 0))
        scores = [f"{METRIC_NAMES[name]}, % ({_level(found)})" for name in SCORES]
        for heading in ("searches\nallowed", "top-k", *scores, "searches\ntaken", "compl.", "tokens"):
            table.add_column(heading, justify="right")
        for point in each.points:
            tokens = sum(point.metrics[name].value or 0.0 for name in _COLUMNS[-2:]) if point.metrics else None
            cells = [_short_cell(point, name) for name in SCORES]
            cells += [number(name, one.value) if (one := point.metrics.get(name)) else "-" for name in _COLUMNS[2:4]]
            cells.append("-" if tokens is None else f"{tokens:,.0f}")
            table.add_row(str(point.searches), f"{point.top_k}{'*' if point.run == each.run else ' '}", *cells)
        repair = "" if each.repair else "  no repair turns"
        print_titled(on_one_line(f"{each.name}: method {each.method}  model {each.model}{repair}"), table)
        for point in each.points:
            if not point.finished or point.failed:
                of = f"{point.searches} searches, top-k {point.top_k}"
                print_prose(f"{of}: {_mark(point, each)}")
        if any(point.run == each.run for point in each.points):
            print_shown("* as evaluated")
    warn(found.warnings)
    cost = "cost unknown" if found.cost_usd is None else dollars(found.cost_usd)
    print_shown(f"asked for the points: {counted(found.calls, 'completion')}, {cost}; points share answers")
    out = Path(found.out)
    print_shown(f"wrote {', '.join([str(out / PAGE), *(DRAWINGS[name] for name in _shown(found)), SWEEP])}")
    if found.owed or found.unfinished:
        print_prose("the same command retries what failed")
    print_next("compare", *_to_compare(found))


def _short_cell(point: SweepPoint, name: str) -> str:
    """A score with the ends of its interval in whole percents."""
    if not (metric := point.metrics.get(name)):
        return "-"
    return f"{number(name, metric.value)} ({100 * (metric.low or 0):.0f} to {100 * (metric.high or 0):.0f})"


def _to_compare(found: Sweep) -> list[str]:
    """The evaluation that was swept first, and its point with the highest F1, or another evaluation."""
    own = found.evaluations[0]
    others = [each for each in own.points if each.finished and each.run != own.run]
    best = max(others, key=lambda each: each.metrics["f1"].value or 0.0, default=None)
    return [own.run, best.run if best else "OTHER_RUN"]
